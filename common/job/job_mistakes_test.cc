// What a user reads who has made a mistake.
// Long because it is one table: a mistake and its sentence for each key.
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/base/status_matchers.h"
#include "common/job/job.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kGood[] =
    "version: 1\n"
    "name: good\n"
    "seed: 1\n"
    "cluster: {servers: 2, workers: 2}\n"
    "data: {format: glyphs}\n"
    "model:\n"
    "  layers:\n"
    "    - flatten\n"
    "    - linear: {out_features: 10}\n"
    "loss: cross_entropy\n"
    "optimizer: {name: sgd, learning_rate: 0.05, momentum: 0.9}\n"
    "train: {batch_size: 64, micro_batches: 4, until: {epochs: 3}}\n";

// The lines of the error that `text` gives as the file job.yaml; none if it is a job.
std::vector<std::string> MistakesIn(absl::string_view text,
                                    const std::vector<std::string>& overrides = {}) {
  const std::string file = testing::TempDir() + "/job.yaml";
  std::ofstream(file, std::ios::binary) << text;
  const absl::StatusOr<proto::Job> job = LoadJob(file, overrides);
  if (job.ok()) return {};
  EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << job.status();
  return absl::StrSplit(absl::StrReplaceAll(job.status().message(), {{file, "job.yaml"}}), '\n');
}

// kGood with one line in place of that which begins with the same key; a new key comes last.
std::string With(absl::string_view line) {
  const absl::string_view key = line.substr(0, line.find(':') + 1);
  std::vector<std::string> lines = absl::StrSplit(kGood, '\n', absl::SkipEmpty());
  bool replaced = false;
  for (std::string& old : lines) {
    if (!absl::StartsWith(old, key)) continue;
    old = std::string(line);
    replaced = true;
  }
  if (!replaced) lines.emplace_back(line);
  return absl::StrJoin(lines, "\n") + "\n";
}

TEST(JobMistakesTest, TheGoodJobHasNone) { EXPECT_THAT(MistakesIn(kGood), ElementsAre()); }

TEST(JobMistakesTest, OneWrongLine) {
  const struct {
    const char* line;     // of kGood, changed
    const char* mistake;  // the only one
  } kCases[] = {
      // Types.
      {"seed: one", "3:7: seed: found one, expected an integer from 0 to 18446744073709551615"},
      {"seed: -1", "3:7: seed: found -1, expected an integer from 0 to 18446744073709551615"},
      {"seed: 1.5", "3:7: seed: found 1.5, expected an integer from 0 to 18446744073709551615"},
      {"seed: 18446744073709551616",
       "3:7: seed: found 18446744073709551616, expected an integer from 0 to "
       "18446744073709551615"},
      {"seed: \"1\"",
       "3:7: seed: found 1 in quotes, expected an integer from 0 to 18446744073709551615"},
      {"seed:", "3:1: seed: found nothing, expected an integer from 0 to 18446744073709551615"},
      {"seed: [1]", "3:7: seed: found a list, expected an integer from 0 to 18446744073709551615"},
      {"seed: {a: b}",
       "3:7: seed: found a map, expected an integer from 0 to 18446744073709551615"},
      {"name: \"two words\"",
       "2:7: name: found \"two words\", expected 1 to 128 letters, digits, '_', '.' or '-'"},
      {"name: a/b", "2:7: name: found a/b, expected 1 to 128 letters, digits, '_', '.' or '-'"},
      {"name: \"\"", "2:7: name: found \"\", expected 1 to 128 letters, digits, '_', '.' or '-'"},
      {"name: ~", "2:1: name: found nothing, expected 1 to 128 letters, digits, '_', '.' or '-'"},
      {"optimizer: {nesterov: yes}",
       "11:23: optimizer.nesterov: found yes, expected true or false"},
      {"optimizer: {nesterov: True}",
       "11:23: optimizer.nesterov: found True, expected true or false"},
      {"optimizer: {learning_rate: fast}",
       "11:28: optimizer.learning_rate: found fast, expected a number above 0"},
      {"optimizer: {learning_rate: .inf}",
       "11:28: optimizer.learning_rate: found .inf, expected a number above 0"},
      {"optimizer: {learning_rate: 1e999}",
       "11:28: optimizer.learning_rate: found 1e999, expected a number above 0"},
      {"optimizer: {learning_rate: '0.1'}",
       "11:28: optimizer.learning_rate: found 0.1 in quotes, expected a number above 0"},
      {"optimizer: [sgd]",
       "11:12: optimizer: found a list, expected sgd, adam, adamw, adagrad or rmsprop, or a map "
       "{name, learning_rate, learning_rate_parity, momentum, dampening, nesterov, betas, amsgrad, "
       "lr_decay, initial_accumulator_value, alpha, centered, eps, weight_decay, groups, schedule, "
       "clip_grad_norm}"},
      {"train: 3",
       "12:8: train: found 3, expected a map {batch_size, micro_batches, until, stop_when, "
       "on_non_finite}"},
      {"metrics:", "13:1: metrics: found nothing, expected a map {every, tensorboard}"},
      {"cluster: {start_timeout: 5 parsecs}",
       "4:26: cluster.start_timeout: found \"5 parsecs\", expected a duration such as 5s or 10m "
       "above 0 and at most 7d"},
      {"wire: {chunk: 64KB}",
       "13:15: wire.chunk: found 64KB, expected a size such as 256KiB, a multiple of 64, from 64 "
       "to 1MiB"},
      {"data: {format: glyphs, normalize: {mean: 0.5, std: [0.5]}}",
       "5:42: data.normalize.mean: found 0.5, expected a list of numbers"},
      {"data: {format: glyphs, normalize: {mean: [], std: [0.5]}}",
       "5:42: data.normalize.mean: found an empty list, expected a list of numbers"},
      // Ranges.
      {"version: 2", "1:10: version: found 2, expected 1"},
      {"version: 1.0", "1:10: version: found 1.0, expected 1"},
      {"cluster: {servers: 0}",
       "4:20: cluster.servers: found 0, expected an integer from 1 to 4096"},
      {"cluster: {servers: 99999999999999999999}",
       "4:20: cluster.servers: found 99999999999999999999, expected an integer from 1 to 4096"},
      {"cluster: {workers: 0}",
       "4:20: cluster.workers.start: found 0, expected an integer from 1 to 65536"},
      {"cluster: {start_timeout: 0s}",
       "4:26: cluster.start_timeout: found 0s, expected a duration such as 5s or 10m above 0 and "
       "at most 7d"},
      {"optimizer: {learning_rate: 0}",
       "11:28: optimizer.learning_rate: found 0, expected a number above 0"},
      {"optimizer: {momentum: 1}",
       "11:23: optimizer.momentum: found 1, expected a number at least 0 and below 1"},
      {"optimizer: {weight_decay: -1e-4}",
       "11:27: optimizer.weight_decay: found -1e-4, expected a number at least 0"},
      {"optimizer: {name: adam, betas: [0.9, 1]}",
       "11:38: optimizer.betas[1]: found 1, expected a number at least 0 and below 1"},
      {"optimizer: {name: adam, eps: 0}",
       "11:30: optimizer.eps: found 0, expected a number at least 1e-30"},
      {"optimizer: {groups: [{match: a, learning_rate: -1}]}",
       "11:48: optimizer.groups[0].learning_rate: found -1, expected a number at least 0"},
      {"wire: {chunk: 100}",
       "13:15: wire.chunk: found 100, expected a size such as 256KiB, a multiple of 64, from 64 to "
       "1MiB"},
      {"wire: {push: zip}",
       "13:14: wire.push.codec: found zip, expected float32, bf16, fp16, int8 or topk"},
      {"wire: {push: {codec: bf16, density: 0.1}}",
       "13:28: wire.push.density: found with codec: bf16, expected only with codec: topk"},
      {"wire: {push: {codec: topk, density: 0}}",
       "13:37: wire.push.density: found 0, expected a number above 0 and at most 1"},
      {"wire: {pull: int8}",
       "13:14: wire.pull: found int8, expected float32, bf16 or fp16 (a rounding of 1/127 of a "
       "block's largest parameter would hide most updates from the workers; it is for gradients, "
       "in wire.push)"},
      {"wire: {pull: topk}",
       "13:14: wire.pull: found topk, expected float32, bf16 or fp16 (parameters that are left out "
       "would be 0; it is for gradients, in wire.push)"},
      {"wire: {chunk: 0}",
       "13:15: wire.chunk: found 0, expected a size such as 256KiB, a multiple of 64, from 64 to "
       "1MiB"},
      {"train: {batch_size: 64, until: {steps: 0}}",
       "12:40: train.until.steps: found 0, expected an integer from 1 to 100000000000"},
      {"train: {batch_size: 64, until: {epochs: 0}}",
       "12:41: train.until.epochs: found 0, expected a number above 0 and at most 1000000"},
      {"data: {format: glyphs, normalize: {mean: [0.5], std: [0]}}",
       "5:55: data.normalize.std[0]: found 0, expected a number above 0"},
      // Names.
      {"optimizer: {momentun: 0.9}",
       "11:13: optimizer.momentun: found an unknown key; did you mean momentum?"},
      {"optimizer: {learning-rate: 0.9}",
       "11:13: optimizer.learning-rate: found an unknown key; did you mean learning_rate?"},
      {"optimizer: {nam: sgd}", "11:13: optimizer.nam: found an unknown key; did you mean name?"},
      {"optimizer: {lr: 0.1}",
       "11:13: optimizer.lr: found an unknown key; did you mean learning_rate?"},
      {"train: {batch_size: 64, epochs: 3}",
       "12:25: train.epochs: found an unknown key; did you mean train.until.epochs?"},
      {"optimizer: adamm",
       "11:12: optimizer.name: found adamm, expected sgd, adam, adamw, adagrad or rmsprop; did you "
       "mean adam?"},
      {"optimizer: {groups: [{match: a, momentum: 0.5}]}",
       "11:33: optimizer.groups[0].momentum: found an unknown key, expected match, learning_rate "
       "or weight_decay; did you mean optimizer.momentum?"},
      {"train: {batch_size: 64, untill: {epochs: 3}}",
       "12:25: train.untill: found an unknown key; did you mean until?"},
      {"train: {batch_size: 64, until: {epoch: 3}}",
       "12:33: train.until.epoch: found an unknown key; did you mean epochs?"},
      {"train: {batch_size: 64, until: {time: 3x}}",
       "12:39: train.until.time: found 3x, expected a duration such as 5s or 10m above 0 and at "
       "most 1e+08s"},
      {"learning_rate: 3",
       "13:1: learning_rate: found an unknown key; did you mean optimizer.learning_rate?"},
      {"loss: {name: cross_entropy, momentum: 0.5}",
       "10:29: loss.momentum: found an unknown key, expected name, label_smoothing, "
       "ignore_index, class_weights or delta; did you mean optimizer.momentum?"},
      {"loss: {class_weights: [0, 0]}",
       "10:8: loss.class_weights: found only 0, expected a class whose targets count"},
      {"loss: {class_weights: [1e-50, 0]}",
       "10:8: loss.class_weights: found only 0, expected a class whose targets count"},
      {"loss: {class_weights: [0, 1], ignore_index: 1}",
       "10:8: loss.class_weights: found only 0 beside loss.ignore_index, expected a class whose "
       "targets count"},
      {"loss: {class_weights: [1, -2]}",
       "10:27: loss.class_weights[1]: found -2, expected a number from 0 to 1000000"},
      {"loss: {name: l1, delta: 2}",
       "10:18: loss.delta: found with name: l1, expected only with name: huber"},
      {"loss: {name: huber, delta: 0}",
       "10:28: loss.delta: found 0, expected a number from 1e-30 to 1e+30"},
      {"nonsense: 3",
       "13:1: nonsense: found an unknown key, expected version, name, seed, cluster, device, data, "
       "model, loss, optimizer, consistency, wire, train, metrics, log, evaluation, checkpoint, "
       "security or script"},
      {"<<: {a: b}",
       "13:1: <<: found a merge key, expected plain keys: << is not part of YAML 1.2"},
      {"log: {level:error}",
       "13:7: log.level:error: found a key with a colon in it, expected a space after the colon"},
      {"log: {level: debug}", "13:14: log.level: found debug, expected info, warning or error"},
      {"consistency: asynch",
       "13:14: consistency.mode: found asynch, expected sync, async or bounded; did you mean "
       "async?"},
      {"consistency: Sync",
       "13:14: consistency.mode: found Sync, expected sync, async or bounded; did you mean sync?"},
      {"device: gpu", "13:9: device.type: found gpu, expected auto, cpu or cuda"},
      {"device: {precision: half}",
       "13:21: device.precision: found half, expected float32, tf32, bf16 or fp16"},
      {"device: {convolution: winograd}",
       "13:23: device.convolution: found winograd, expected auto or products"},
      {"device: {exchange: nccl}", "13:20: device.exchange: found nccl, expected auto or host"},
      {"device: {precision: fp16}",
       "13:10: device.precision: found fp16 with train.on_non_finite: stop, expected it with skip: "
       "steps that overflow are left out"},
      // Of what is not there.
      {"evaluation: {split: validation}",
       "13:14: evaluation.split: found validation without data.validation, expected test, or a "
       "split of its own such as data.validation: {fraction: 0.1}"},
      {"loss: mse\ncheckpoint: {keep_best: {metric: eval/accuracy, mode: max}}",
       "11:26: checkpoint.keep_best.metric: found eval/accuracy beside loss: mse, expected "
       "eval/loss"},
      // Duplicates.
      {"cluster: {servers: 1, servers: 2}",
       "4:23: cluster.servers: found twice (first in line 4), expected once"},
      {"optimizer: {momentum: 0.5, learning_rate: 0.1, momentum: 0.9}",
       "11:48: optimizer.momentum: found twice (first in line 11), expected once"},
      {"train: {batch_size: 64, until: {epochs: 3, steps: 5}}",
       "12:44: train.until: found epochs and steps, expected only one of them"},
      // Missing.
      {"train: {batch_size: 64}",
       "12:1: train.until: found nothing, expected {epochs: N}, {steps: N}, {samples: N} or {time: "
       "N}"},
      {"train: {batch_size: 64, until: {}}",
       "12:25: train.until: found nothing, expected {epochs: N}, {steps: N}, {samples: N} or "
       "{time: N}"},
      {"train: {batch_size: 64, until: {epochs: 3}, stop_when: {metric: eval/accuracy}}",
       "12:45: train.stop_when: found no at_least or at_most, expected one of them"},
      {"train: {batch_size: 64, until: {epochs: 3}, stop_when: 0.9}",
       "12:56: train.stop_when: found 0.9, expected a map {metric, at_least, at_most}"},
      {"train: {until: {steps: 1}}",
       "12:1: train.batch_size: found nothing, expected an integer from 1 to 16777216"},
      {"data: {format: idx}",
       "5:1: data.path: found nothing, expected a path, because format is idx"},
      {"optimizer: {schedule: step}",
       "11:13: optimizer.schedule.every: found nothing, expected {epochs: N}, {steps: N}, "
       "{samples: N} or {time: N}, because name is step"},
      {"optimizer: {groups: [{weight_decay: 0}]}",
       "11:22: optimizer.groups[0].match: found nothing, expected text"},
      {"data: {format: glyphs, normalize: {mean: [0.5]}}",
       "5:24: data.normalize.std: found nothing, expected a list of numbers above 0, because by is "
       "values"},
      // Contradictions.
      {"data: {format: glyphs, path: x}",
       "5:24: data.path: found with format: glyphs, expected only with format: idx, csv, libsvm, "
       "text "
       "or cifar10"},
      {"data: {format: csv, path: x, test_path: y, target: t, categorical: [c], numeric: []}",
       "5:73: data.numeric: found an empty list, expected at least one column; without the key all "
       "columns that are neither the target nor categorical nor ignored are inputs"},
      {"data: {format: csv, path: x, test_path: y, target: t, numeric: [n], ignore: [i]}",
       "5:69: data.ignore: found beside data.numeric, expected one of the two: numeric names all "
       "columns that are read as numbers"},
      {"data: {format: idx, path: x, train_size: 5}",
       "5:30: data.train_size: found with format: idx, expected only with format: glyphs"},
      {"optimizer: {schedule: {until: {steps: 4}}}",
       "11:24: optimizer.schedule.until: found with name: constant, expected only with name: "
       "cosine"},
      {"optimizer: {schedule: {name: cosine, gamma: 0.5}}",
       "11:38: optimizer.schedule.gamma: found with name: cosine, expected only with name: step"},
      {"optimizer: {schedule: {name: cosine, warmup: {epochs: 3}}}",
       "11:38: optimizer.schedule.warmup: found 180000 samples, expected fewer than until, which "
       "is 180000 samples"},
      {"optimizer: {schedule: {name: cosine, warmup: {samples: 641}, until: {steps: 10}}}",
       "11:38: optimizer.schedule.warmup: found 641 samples, expected fewer than until, which is "
       "640 samples"},
      {"consistency: {mode: async, schedule: [{mode: sync}]}",
       "13:15: consistency.mode: found beside schedule, expected one of the two"},
      {"consistency: {schedule: [{mode: bounded}]}",
       "13:26: consistency.schedule[0].staleness: found nothing, expected an integer from 0 to "
       "1000000, because mode is bounded"},
      {"consistency: {schedule: [{mode: sync}, {mode: async}]}",
       "13:26: consistency.schedule[0].until: found nothing, expected epochs, steps or samples: "
       "another mode follows"},
      {"consistency: {schedule: [{mode: sync, until: {time: 1m}}, {mode: async}]}",
       "13:47: consistency.schedule[0].until: found a time, expected epochs, steps or samples"},
      {"consistency: {schedule: [{mode: sync, until: {epochs: 1}}, {mode: async, until: {steps: "
       "937}}]}",
       "13:74: consistency.schedule[1].until: found a point that is not after that of the mode "
       "before, expected ascending ones"},
      {"optimizer: {nesterov: true}",
       "11:13: optimizer.nesterov: found true with momentum 0, expected momentum above 0"},
      {"optimizer: {nesterov: true, momentum: 0.9, dampening: 0.1}",
       "11:13: optimizer.nesterov: found true with dampening 0.1, expected dampening 0"},
      {"optimizer: {name: adam, momentum: 0.9}",
       "11:25: optimizer.momentum: found with name: adam, expected only with name: sgd or rmsprop"},
      {"optimizer: {name: rmsprop, nesterov: false}",
       "11:28: optimizer.nesterov: found with name: rmsprop, expected only with name: sgd"},
      {"optimizer: {betas: [0.9, 0.99]}",
       "11:13: optimizer.betas: found with name: sgd, expected only with name: adam or adamw"},
      {"optimizer: {name: adagrad, alpha: 0.9}",
       "11:28: optimizer.alpha: found with name: adagrad, expected only with name: rmsprop"},
      {"optimizer: {name: adamw, lr_decay: 0.1}",
       "11:26: optimizer.lr_decay: found with name: adamw, expected only with name: adagrad"},
      {"optimizer: {eps: 1e-8}",
       "11:13: optimizer.eps: found with name: sgd, expected only with name: adam, adamw, adagrad "
       "or rmsprop"},
      {"optimizer: {name: adam, betas: [0.9]}",
       "11:25: optimizer.betas: found 1 number, expected 2"},
      {"optimizer: {name: adam, betas: [0.9, 0.9, 0.9]}",
       "11:25: optimizer.betas: found 3 numbers, expected 2"},
      {"train: {batch_size: 65, micro_batches: 4, until: {epochs: 3}}",
       "12:25: train.micro_batches: found 4, expected a divisor of batch_size, which is 65"},
      {"train: {batch_size: 2, micro_batches: 4, until: {epochs: 3}}",
       "12:24: train.micro_batches: found 4, expected a divisor of batch_size, which is 2"},
      {"cluster: {workers: {start: 2, min: 3}}",
       "4:31: cluster.workers.min: found 3, expected at most start, which is 2"},
      {"cluster: {workers: {start: 2, max: 1}}",
       "4:31: cluster.workers.max: found 1, expected at least start, which is 2"},
      {"cluster: {address: localhost}",
       "4:11: cluster.address: found \"localhost\", expected HOST:PORT, such as 127.0.0.1:29500"},
      {"cluster: {address: \"0.0.0.0:29500\"}",
       "4:11: cluster.address: found \"0.0.0.0:29500\", all addresses of a host; expected one by "
       "which the others reach it (--listen and --advertise of rubato-server let it listen at "
       "all)"},
      {"cluster: {address: \"[::1]:1,[::]:1\"}",
       "4:11: cluster.address: found \"[::1]:1,[::]:1\", all addresses of a host; expected one by "
       "which the others reach it (--listen and --advertise of rubato-server let it listen at "
       "all)"},
      {"data: {format: glyphs, normalize: {mean: [0.5, 0.5], std: [0.5]}}",
       "5:54: data.normalize.std: found 1 number, expected as many as mean has, which is 2"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(MistakesIn(With(c.line)), ElementsAre(absl::StrCat("job.yaml:", c.mistake)))
        << c.line;
  }
}

TEST(JobMistakesTest, ASoftmaxIsTheLosss) {
  for (const char* layers : {"[softmax]", "[softmax: {dim: 1}]", "[log_softmax]"}) {
    EXPECT_THAT(MistakesIn(kGood, {absl::StrCat("model.layers=", layers)}),
                ElementsAre(::testing::EndsWith(
                    "or transformer_block; the loss cross_entropy has a softmax of its own")))
        << layers;
  }
}

TEST(JobMistakesTest, WhatTopKDoesNotGoWith) {
  const struct {
    const char* line;
    const char* mistake;
  } kCases[] = {
      {"optimizer: {name: adam}",
       "11:13: optimizer.name: found another than sgd beside wire.push: topk, expected sgd: its "
       "averages would take values that come later for gradients of 0"},
      {"optimizer: {momentum: 0.9, dampening: 0.1}",
       "11:28: optimizer.dampening: found beside wire.push: topk, expected 0: the momentum is the "
       "workers', which has none"},
      {"optimizer: {momentum: 0.9, weight_decay: 1e-4}",
       "11:28: optimizer.weight_decay: found beside momentum and wire.push: topk, expected one of "
       "the two: the momentum is the workers', and the decay would not be in it"},
      {"optimizer: {clip_grad_norm: 1}",
       "11:13: optimizer.clip_grad_norm: found beside wire.push: topk, expected none: what is sent "
       "of a step is not its gradient"},
      {"train: {batch_size: 64, until: {epochs: 3}, on_non_finite: skip}",
       "12:45: train.on_non_finite: found skip beside wire.push: topk, expected stop: what a step "
       "that is left out had sent of earlier ones would be lost"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(MistakesIn(With(c.line) + "wire: {push: topk}\n"),
                ElementsAre(absl::StrCat("job.yaml:", c.mistake)))
        << c.line;
    EXPECT_THAT(MistakesIn(With(c.line) + "wire: {push: int8}\n"), ElementsAre());
  }
  EXPECT_THAT(MistakesIn(With("optimizer: {weight_decay: 1e-4}") + "wire: {push: topk}\n"),
              ElementsAre());
}

TEST(JobMistakesTest, AllAtOnceInTheOrderOfTheFile) {
  EXPECT_THAT(
      MistakesIn("name: a b\n"
                 "device: {threads: 0, isa: sse}\n"
                 "model:\n"
                 "  layers:\n"
                 "    - linear\n"
                 "    - linear: {out_features: 0, bias: 1}\n"
                 "    - [relu]\n"
                 "    - flatten: {x: 1}\n"
                 "      relu: {}\n"
                 "? {a: b}\n"
                 ": c\n"
                 "train: {batch_size: 0, micro_batches: 4}\n",
                 {"optimizer.learning_rat=1", "optimizer={momentum: 2, nesterov: 1}"}),
      ElementsAre(
          "job.yaml:1:1: version: found nothing, expected 1",
          "job.yaml:1:7: name: found \"a b\", expected 1 to 128 letters, digits, '_', '.' or '-'",
          "job.yaml:2:19: device.threads: found 0, expected an integer from 1 to 1024",
          "job.yaml:2:27: device.isa: found sse, expected auto, generic, avx2 or avx512",
          "job.yaml:5:7: model.layers[0].linear.out_features: found nothing, expected an integer "
          "from 1 to 10000000",
          "job.yaml:6:30: model.layers[1].linear.out_features: found 0, expected an integer from 1 "
          "to 10000000",
          "job.yaml:6:39: model.layers[1].linear.bias: found 1, expected true or false",
          "job.yaml:7:7: model.layers[2]: found a list, expected flatten, linear, relu, "
          "gelu, tanh, sigmoid, dropout, conv2d, max_pool2d, avg_pool2d, adaptive_avg_pool2d, "
          "layer_norm, group_norm, batch_norm, sequential, residual, embedding, "
          "position_embedding, attention or transformer_block",
          "job.yaml:8:17: model.layers[3].flatten.x: found an unknown key, expected no keys here",
          "job.yaml:9:7: model.layers[3]: found flatten and relu, expected only one of them",
          "job.yaml:10:3: found a map as a key, expected version, name, seed, cluster, device, "
          "data, model, loss, optimizer, consistency, wire, train, metrics, log, evaluation, "
          "checkpoint, security or script",
          "job.yaml:12:1: train.until: found nothing, expected {epochs: N}, {steps: N}, {samples: "
          "N} or {time: N}",
          "job.yaml:12:21: train.batch_size: found 0, expected an integer from 1 to 16777216",
          "--set optimizer: optimizer.momentum: found 2, expected a number at least 0 and below 1",
          "--set optimizer: optimizer.nesterov: found 1, expected true or false"));
}

TEST(JobMistakesTest, OfAnotherVersionNothingElseIsSaid) {
  EXPECT_THAT(MistakesIn("version: 2\nfoo: bar\n"),
              ElementsAre("job.yaml:1:10: version: found 2, expected 1"));
}

TEST(JobMistakesTest, ManyAreCounted) {
  std::string text = kGood;
  for (int i = 0; i < 1000; ++i) absl::StrAppend(&text, "x", i, ": 0\n");
  const std::vector<std::string> mistakes = MistakesIn(text);
  ASSERT_EQ(mistakes.size(), 101u);
  EXPECT_EQ(mistakes.back(), "and 900 more");
}

TEST(JobMistakesTest, BrokenYamlGivesOneLine) {
  const struct {
    std::string text;
    const char* mistake;
  } kCases[] = {
      {"", "1:1: found an empty file, expected a map of keys, such as version: 1"},
      {"# nothing\n\n", "1:1: found an empty file, expected a map of keys, such as version: 1"},
      {"[version]", "1:1: found a list, expected a map of keys, such as version: 1"},
      {"version", "1:1: found version, expected a map of keys, such as version: 1"},
      {std::string("version\0: 1", 11), "1:1: found binary data, expected YAML"},
      {"version: 1\n---\nversion: 1\n",
       "2:1: found a second document after ---, expected only one"},
      {"- version\nname: x\n",
       "2:1: broken YAML: found something that does not belong to what is above it"},
      // Endless documents to yaml-cpp's LoadAll.
      {",", "1:1: broken YAML: found something that does not belong to what is above it"},
      {"version: 1\n\tname: x\n",
       "2:1: broken YAML: illegal tab when looking for indentation (this line is indented with a "
       "tab; YAML wants spaces)"},
      {"version: 1\nname:x\nseed: 1\n",
       "3:5: broken YAML: found a key where none can be; is the indentation right, with a space "
       "after every colon?"},
      {"version: 1\n  name: x\n",
       "2:7: broken YAML: found a key where none can be; is the indentation right, with a space "
       "after every colon?"},
      {"version: 1\ncluster: {servers: 2\nname: x\n",
       "3:5: broken YAML: found a { without its }, or no comma between keys"},
      {"model: {layers: [relu relu\n",
       "2:1: broken YAML: found a [ without its ], or no comma between entries"},
      {"model:\n    a: 1\n  b: 1\n",
       "3:3: broken YAML: found a line that is not indented like its map"},
      {"name: *x\n", "1:7: broken YAML: found an alias (*) without its anchor (&)"},
      {"model: {layers: [&a {sequential: {layers: [relu, *a]}}]}\n",
       "1:1: found aliases (*) within what they stand for, or for far too much in all"},
      {"name: @x\n",
       "1:7: broken YAML: found a character that cannot begin a value; does it belong in quotes?"},
      {"name: \"x", "1:9: broken YAML: found the end of the file inside quotes"},
      {"name: \"\\q\"", "1:10: broken YAML: unknown escape character: q"},
      {std::string(100000, '['), "1:1: broken YAML: nested too deeply"},
      {std::string(100000, '{'), "1:1: broken YAML: nested too deeply"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(MistakesIn(c.text), ElementsAre(absl::StrCat("job.yaml:", c.mistake)))
        << c.text.substr(0, 80);
  }
}

TEST(JobMistakesTest, OverridesAreNamedInPlaceOfTheFile) {
  const struct {
    const char* assignment;
    const char* mistake;
  } kCases[] = {
      {"optimizer.learning_rat=1",
       "--set optimizer.learning_rat: found an unknown key; did you mean "
       "optimizer.learning_rate?"},
      {"optimizer.lr=1",
       "--set optimizer.lr: found an unknown key; did you mean optimizer.learning_rate?"},
      {"evaluation.every.time=1s",
       "--set evaluation.every.time: evaluation.every: found a time, expected epochs, steps or "
       "samples"},
      {"lr=1", "--set lr: found an unknown key; did you mean optimizer.learning_rate?"},
      {"consistency=sync,staleness=3",
       "--set consistency: consistency.staleness: found with mode: sync, expected only with mode: "
       "bounded"},
      {"consistency=sync, staleness 3",
       "--set consistency: consistency.staleness: found with mode: sync, expected only with mode: "
       "bounded"},
      {"data=glyphs", "--set data: found glyphs, expected a map such as {format: glyphs}"},
      {"optimiser.learning_rate=1",
       "--set optimiser.learning_rate: optimiser: found an unknown key; did you mean optimizer?"},
      {"learning_rate=1",
       "--set learning_rate: found an unknown key; did you mean optimizer.learning_rate?"},
      {"optimizer.learning_rate=-1",
       "--set optimizer.learning_rate: found -1, expected a number above 0"},
      {"optimizer.learning_rate=",
       "--set optimizer.learning_rate: found nothing, expected a number above 0"},
      {"optimizer.learning_rate",
       "--set optimizer.learning_rate: found no value, expected KEY=VALUE, such as "
       "optimizer.learning_rate=0.1"},
      {"=1", "--set \"\": found no key, expected KEY=VALUE, such as optimizer.learning_rate=0.1"},
      {"", "--set \"\": found no key, expected KEY=VALUE, such as optimizer.learning_rate=0.1"},
      {"optimizer.learning_rate.x=1",
       "--set optimizer.learning_rate.x: found a key in a single value, expected "
       "optimizer.learning_rate=VALUE"},
      {"model.layers.1=relu",
       "--set model.layers.1: found a part of a list, expected the whole: model.layers=[...]"},
      {"model.layers=[]",
       "--set model.layers: found an empty list, expected a list of flatten, linear, relu, gelu, "
       "tanh, sigmoid, dropout, conv2d, max_pool2d, avg_pool2d, adaptive_avg_pool2d, layer_norm, "
       "group_norm, batch_norm, sequential, residual, embedding, position_embedding, attention or "
       "transformer_block"},
      {"model.layers=[flatten, flaten]",
       "--set model.layers: model.layers[1]: found flaten, expected flatten, linear, relu, gelu, "
       "tanh, sigmoid, dropout, conv2d, max_pool2d, avg_pool2d, adaptive_avg_pool2d, layer_norm, "
       "group_norm, batch_norm, sequential, residual, embedding, position_embedding, attention or "
       "transformer_block; did you mean flatten?"},
      {"model.layers=[lstm]",
       "--set model.layers: model.layers[0]: found lstm, expected flatten, linear, relu, gelu, "
       "tanh, sigmoid, dropout, conv2d, max_pool2d, avg_pool2d, adaptive_avg_pool2d, layer_norm, "
       "group_norm, batch_norm, sequential, residual, embedding, position_embedding, attention or "
       "transformer_block"},
      {"model.layers=[{lstm: {channels: 3}}]",
       "--set model.layers: model.layers[0].lstm: found an unknown key, expected flatten, "
       "linear, relu, gelu, tanh, sigmoid, dropout, conv2d, max_pool2d, avg_pool2d, "
       "adaptive_avg_pool2d, layer_norm, group_norm, batch_norm, sequential, residual, embedding, "
       "position_embedding, attention or transformer_block"},
      {"train.until={epochs: 1",
       "--set train.until: broken YAML: found a { without its }, or no comma between keys, at "
       "character 1 of \"{epochs: 1\""},
      {"train.until={epochs: -1}",
       "--set train.until: train.until.epochs: found -1, expected a number above 0 and at most "
       "1000000"},
      {"train={batch_size: 64}",
       "--set train: train.until: found nothing, expected {epochs: N}, {steps: N}, {samples: N} or "
       "{time: N}"},
      {"train.batch_size=66",
       "job.yaml:12:25: train.micro_batches: found 4, expected a divisor of batch_size, which is "
       "66"},
      {"train.micro_batches=5",
       "--set train.micro_batches: found 5, expected a divisor of batch_size, which is 64"},
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(MistakesIn(kGood, {c.assignment}), ElementsAre(c.mistake)) << c.assignment;
  }
}

TEST(JobMistakesTest, WhatWasFoundIsShownShortAndPrintable) {
  EXPECT_THAT(MistakesIn(With(absl::StrCat("name: ", std::string(100000, 'x'), "/"))),
              ElementsAre(absl::StrCat("job.yaml:2:7: name: found ", std::string(60, 'x'),
                                       "..., expected 1 to 128 letters, digits, '_', '.' or '-'")));
  EXPECT_THAT(MistakesIn(With("name: \"\\e[31m\\n\"")),
              ElementsAre("job.yaml:2:7: name: found \"\\033[31m\\n\", expected 1 to 128 letters, "
                          "digits, '_', '.' or '-'"));
  EXPECT_THAT(MistakesIn(With("\"\\e\\n\": 1")),
              ElementsAre(HasSubstr("job.yaml:13:1: \"\\033\\n\": found an unknown key")));
}

}  // namespace
}  // namespace rubato
