#include "tools/bench/wire.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/flags.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "common/wire/channel.h"
#include "tools/bench/median.h"
#include "tools/bench/peer.h"
#include "tools/bench/raw_tcp.h"
#include "tools/bench/wire_arguments.h"
#include "tools/bench/wire_memory.h"
#include "tools/bench/wire_security.h"
#include "tools/bench/wire_shard.h"
#include "tools/bench/wire_workers.h"
#include "tools/bench/yardsticks.h"

namespace rubato {
namespace {

constexpr int64_t kLatencyBytes = 1 << 10;
constexpr struct {
  WireOp op;
  const char* name;
  int directions;
} kOps[] = {
    {WireOp::kPush, "push", 1}, {WireOp::kPull, "pull", 1}, {WireOp::kPushPull, "pushpull", 2}};

// A shard in its own process, and the load on it.
struct Wire {
  static absl::StatusOr<Wire> Start(const BenchShard& bench, const BenchSecurity& security) {
    Wire wire;
    wire.bench = bench;
    RUBATO_ASSIGN_OR_RETURN(wire.shard, Peer::Start({"bench", "wire", "--serve", bench.Role()}));
    RUBATO_ASSIGN_OR_RETURN(const ConnectionOptions connection, security.OfWorker(bench.path));
    wire.workers = std::make_unique<WireWorkers>(bench, wire.shard.get(), connection);
    return wire;
  }

  // Whether it is measured: it differs from that of float32; of several workers, sums are exact in
  // any order; in step, who pushes pulls.
  bool Has(WireOp op, Codec codec) const {
    const bool is_exact = codec != Codec::kInt8 && codec != Codec::kTopK;
    if (bench.sync && op != WireOp::kPushPull) return false;
    return is_exact || (op != WireOp::kPull && bench.workers == 1);
  }

  BenchShard bench;
  std::unique_ptr<Peer> shard;
  std::unique_ptr<WireWorkers> workers;
};

struct Samples {
  std::vector<double> gbps, worker_cpu, server_cpu, switches;  // a GB
};

struct Latencies {
  std::vector<double> p50, p99;  // microseconds, by round
  void Add(std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    p50.push_back(seconds[seconds.size() / 2] * 1e6);
    p99.push_back(seconds[seconds.size() * 99 / 100] * 1e6);
  }
};

struct Measured {
  std::map<int64_t, std::vector<double>> raw_push, raw_pull;
  std::vector<double> copy, triad;
  std::map<std::tuple<size_t, Codec, size_t>, Samples> samples;  // by wire and operation
  std::map<std::string, Latencies> latencies;                    // by path
  std::map<std::string, double> memory;                          // of the server, by path
};

// `count` requests of all workers together, in each operation.
absl::Status MeasureWire(const Wire& wire, Codec codec, int64_t count,
                         absl::FunctionRef<Samples*(size_t op)> samples_of) {
  const int64_t each = std::max<int64_t>(4, count / wire.bench.workers);
  const double gigabytes = static_cast<double>(wire.bench.bytes * each * wire.bench.workers) * 1e-9;
  for (const WireOp op : {WireOp::kPush, WireOp::kPushPull}) {
    if (!wire.Has(op, codec)) continue;
    RUBATO_RETURN_IF_ERROR(wire.workers->Run(op, codec, std::min<int64_t>(each, 8)).status());
  }
  for (size_t k = 0; k < std::size(kOps); ++k) {
    if (!wire.Has(kOps[k].op, codec)) continue;
    RUBATO_ASSIGN_OR_RETURN(const WireWorkers::Took took,
                            wire.workers->Run(kOps[k].op, codec, each));
    const double moved = gigabytes * kOps[k].directions;
    Samples* const samples = samples_of(k);
    samples->gbps.push_back(moved / took.seconds);
    samples->worker_cpu.push_back(took.worker_cpu_seconds / moved);
    samples->server_cpu.push_back(took.server_cpu_seconds / moved);
    samples->switches.push_back(static_cast<double>(took.switches) / moved);
  }
  return absl::OkStatus();
}

absl::Status MeasureRound(const WireBench& bench, RawTcp* raw, const std::vector<Wire>& wires,
                          const std::vector<Wire>& latency_wires, Measured* measured) {
  for (const int64_t bytes : bench.sizes) {
    const int64_t count = std::max<int64_t>(4, bench.sample_bytes / bytes);
    // Each begins with what it works on in the caches and its peer awake, as in a long run.
    const int64_t first = std::min<int64_t>(count, 8);
    RUBATO_RETURN_IF_ERROR(raw->Push(bytes, first).status());
    RUBATO_RETURN_IF_ERROR(raw->Pull(bytes, first).status());
    RUBATO_ASSIGN_OR_RETURN(const double push, raw->Push(bytes, count));
    RUBATO_ASSIGN_OR_RETURN(const double pull, raw->Pull(bytes, count));
    const double gigabytes = static_cast<double>(bytes * count) * 1e-9;
    measured->raw_push[bytes].push_back(gigabytes / push);
    measured->raw_pull[bytes].push_back(gigabytes / pull);
    for (size_t i = 0; i < wires.size(); ++i) {
      if (wires[i].bench.bytes != bytes) continue;
      for (const Codec codec : bench.codecs) {
        RUBATO_RETURN_IF_ERROR(MeasureWire(wires[i], codec, count, [&](size_t k) {
          return &measured->samples[{i, codec, k}];
        }));
      }
    }
  }
  RUBATO_ASSIGN_OR_RETURN(const std::vector<double> raw_trips,
                          raw->RoundTrips(kLatencyBytes, bench.round_trips));
  measured->latencies["raw"].Add(raw_trips);
  for (const Wire& wire : latency_wires) {
    RUBATO_ASSIGN_OR_RETURN(const std::vector<double> trips,
                            wire.workers->RoundTrips(bench.round_trips));
    measured->latencies[wire.bench.path].Add(trips);
  }
  return absl::OkStatus();
}

std::string SizeText(int64_t bytes) {
  return bytes < 1 << 20 ? absl::StrCat(bytes >> 10, " KiB") : absl::StrCat(bytes >> 20, " MiB");
}

std::string Json(const WireBench& bench, const std::vector<Wire>& wires, Measured& measured) {
  nlohmann::ordered_json object;
  nlohmann::ordered_json& yardsticks = object["yardsticks"];
  for (const int64_t bytes : bench.sizes) {
    yardsticks["tcp_sink_gbps"][absl::StrCat(bytes)] = Median(measured.raw_push[bytes]);
  }
  yardsticks["memcpy_gbps"] = Median(measured.copy);
  yardsticks["triad_gbps"] = Median(measured.triad);
  for (const auto& [key, samples] : measured.samples) {
    const auto& [wire, codec, op] = key;
    const BenchShard& bench_shard = wires[wire].bench;
    const double worker = Median(samples.worker_cpu), server = Median(samples.server_cpu);
    object["results"].push_back({{"path", bench_shard.path},
                                 {"op", kOps[op].name},
                                 {"codec", std::string(CodecName(codec))},
                                 {"bytes", bench_shard.bytes},
                                 {"workers", bench_shard.workers},
                                 {"mode", bench_shard.sync ? "sync" : "async"},
                                 {"gbps", Median(samples.gbps)},
                                 {"cpu_s_per_gb", worker + server},
                                 {"worker_cpu_s_per_gb", worker},
                                 {"server_cpu_s_per_gb", server},
                                 {"switches_per_gb", Median(samples.switches)}});
  }
  for (const auto& [path, latencies] : measured.latencies) {
    object["latency_us"][path] = {{"p50", Median(latencies.p50)}, {"p99", Median(latencies.p99)}};
  }
  for (const auto& [path, ratio] : measured.memory) object["server_memory"][path] = ratio;
  return JsonText(object) + "\n";
}

// The row of a codec between workers and their server.
std::string Row(const std::vector<Wire>& wires, size_t index, Codec codec, Measured& measured) {
  const Wire& wire = wires[index];
  std::string row = absl::StrFormat(
      "%-5s%8s%9s  %-8s", wire.bench.path, SizeText(wire.bench.bytes),
      absl::StrCat(wire.bench.workers, wire.bench.sync ? " sync" : ""), CodecName(codec));
  for (size_t k = 0; k < std::size(kOps); ++k) {
    std::string cell = wire.bench.sync ? "" : "as float32";
    if (wire.Has(kOps[k].op, codec)) {
      const Samples& samples = measured.samples[{index, codec, k}];
      cell = absl::StrFormat("%.2f (%.2f %.2f)", Median(samples.gbps), Median(samples.worker_cpu),
                             Median(samples.server_cpu));
    }
    absl::StrAppendFormat(&row, "%20s", cell);
  }
  absl::StrAppendFormat(&row, "%14.0f\n", static_cast<double>(wire.shard->ResidentBytes()) * 1e-6);
  return row;
}

std::string Text(const WireBench& bench, const std::vector<Wire>& wires, Measured& measured) {
  std::string text = absl::StrFormat(
      "medians of %d rounds; GB/s of float32 payload (both: in both directions), in brackets\n"
      "processor seconds per GB, of workers and of the server\n\n"
      "memcpy %.1f GB/s, triad %.1f GB/s\n\n"
      "%-5s%8s%9s  %-8s%20s%20s%20s%14s\n",
      bench.rounds, Median(measured.copy), Median(measured.triad), "path", "size", "workers",
      "codec", "push", "pull", "both", "server's MB");
  for (const int64_t bytes : bench.sizes) {
    absl::StrAppendFormat(&text, "%-5s%8s%9s  %-8s%20.2f%20.2f\n", "raw", SizeText(bytes), "", "",
                          Median(measured.raw_push[bytes]), Median(measured.raw_pull[bytes]));
    for (size_t i = 0; i < wires.size(); ++i) {
      if (wires[i].bench.bytes != bytes) continue;
      for (const Codec codec : bench.codecs) {
        if (wires[i].Has(WireOp::kPushPull, codec)) text += Row(wires, i, codec, measured);
      }
    }
  }
  text += "\nround trip of 1 KiB\n";
  for (const auto& [path, latencies] : measured.latencies) {
    absl::StrAppendFormat(&text, "%-5s p50 %.1f us, p99 %.1f us\n", path, Median(latencies.p50),
                          Median(latencies.p99));
  }
  absl::StrAppend(&text, "\nserver's memory over parameters, slots and one gradient (",
                  SizeText(bench.memory_bytes), " each): SGD with momentum, two workers, sync\n");
  for (const auto& [path, ratio] : measured.memory) {
    absl::StrAppendFormat(&text, "%-5s %.2f\n", path, ratio);
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> BenchWire(const WireBench& bench, bool json) {
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<Peer> raw_server,
                          Peer::Start({"bench", "wire", "--serve", "raw"}));
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<RawTcp> raw,
                          RawTcp::Connect(raw_server->address()));
  RUBATO_ASSIGN_OR_RETURN(const std::unique_ptr<BenchSecurity> security, BenchSecurity::Create());
  std::vector<Wire> wires, latency_wires;
  for (const std::string& path : bench.paths) {
    BenchShard shard;
    shard.path = path;
    shard.threads = bench.threads;
    for (const int64_t bytes : bench.sizes) {
      for (const int workers : bench.workers) {
        for (const bool sync : {false, true}) {
          if (sync && workers == 1) continue;
          shard.bytes = bytes;
          shard.workers = workers;
          shard.sync = sync;
          RUBATO_ASSIGN_OR_RETURN(Wire wire, Wire::Start(shard, *security));
          wires.push_back(std::move(wire));
        }
      }
    }
    shard.bytes = kLatencyBytes;
    shard.workers = 1;
    shard.sync = false;
    RUBATO_ASSIGN_OR_RETURN(Wire wire, Wire::Start(shard, *security));
    latency_wires.push_back(std::move(wire));
  }
  // To stderr, for a result may be JSON.
  std::fputs("warming up\n", stderr);
  WireBench warm_up = bench;
  warm_up.sample_bytes = std::min<int64_t>(bench.sample_bytes, 16 << 20);
  warm_up.round_trips = 100;
  Measured ignored, measured;
  RUBATO_RETURN_IF_ERROR(MeasureRound(warm_up, raw.get(), wires, latency_wires, &ignored));
  auto triad = std::make_unique<Triad>();
  auto copying = std::make_unique<Copying>();
  for (int round = 0; round < bench.rounds; ++round) {
    absl::FPrintF(stderr, "round %d of %d\n", round + 1, bench.rounds);
    measured.copy.push_back(copying->GigabytesPerSecond());
    measured.triad.push_back(triad->GigabytesPerSecond());
    RUBATO_RETURN_IF_ERROR(MeasureRound(bench, raw.get(), wires, latency_wires, &measured));
  }
  std::fputs("the server's memory\n", stderr);
  for (const std::string& path : bench.paths) {
    if (path != "tcp" && path != "shm") continue;
    RUBATO_ASSIGN_OR_RETURN(measured.memory[path],
                            MeasureServerMemory(bench.memory_bytes, path == "shm"));
  }
  return json ? Json(bench, wires, measured) : Text(bench, wires, measured);
}

int BenchWireMain(const std::vector<std::string>& arguments) {
  KeepFreedMemory();
  UseOneHeap();  // as a server
  SilenceGrpc();
  TuneGrpc();
  WireBench bench;
  WireArguments typed;
  std::string serve;
  bool json = false;
  Flags flags(
      "rubato bench wire",
      "Measures how fast floats go between a worker and a server, each in its own process on "
      "this machine, beside\nraw TCP and memory. Every float is checked.",
      {"rubato bench wire --json", "rubato bench wire --sizes 1048576,4194304 --rounds 5"});
  flags.Add("sizes", &typed.sizes, "N,N,N",
            "sizes of a request in bytes, multiples of 64; default: 4 KiB to 64 MiB");
  flags.Add("path", &typed.path, "P,P",
            "which of tcp, shm (shared memory), token (TCP with a key) and mtls (TCP with "
            "certificates) to measure in turns; default: tcp,shm");
  flags.Add("codec", &typed.codecs, "C,C",
            "which of float32, bf16, fp16, int8 and topk to measure; default: all. With int8 and "
            "topk, which are for gradients only, parameters are pulled in float32");
  flags.Add(
      "workers", &typed.workers, "N,N",
      "how many workers, powers of two; several push and pull on arrival and in step; default: "
      "1. Of several, codecs are measured in which any sum of theirs is exact");
  flags.Add("threads", &bench.threads, "N",
            "threads with which a server makes updates (cluster.server_threads)");
  flags.Add("rounds", &bench.rounds, "N", "how many rounds; medians are printed");
  flags.Add("quick", &typed.quick, "", "a quick try of everything; its figures mean nothing");
  flags.Add("json", &json, "", "print one JSON object");
  flags.Add("serve", &serve, "ROLE", "used for the processes that this command starts");
  if (const std::optional<int> code = flags.Handle(arguments)) return *code;
  if (serve == "raw") return ServeRawTcp();
  if (const std::optional<BenchShard> shard = BenchShard::FromRole(serve); shard.has_value()) {
    return ServeBenchShard(*shard);
  }
  const absl::Status status = typed.ApplyTo(&bench);
  return PrintResult(status.ok() ? BenchWire(bench, json) : status);
}

}  // namespace rubato
