// Whatever happens to a checkpoint's files: it is refused, in one sentence that names the file, or
// what is read is what was written, to the last bit.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_matchers.h"
#include "common/files/checkpoint.h"
#include "common/files/old_checkpoint.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace rubato {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

const char* const kFiles[] = {"parameters.safetensors", "momentum.safetensors", "manifest.json",
                              "job.yaml", "COMPLETE"};

std::string Text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void SetText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class CheckpointDamageTest : public ::testing::Test {
 protected:
  CheckpointDamageTest() {
    fs::remove_all(folder_);
    for (const int64_t extent : {3, 40}) {
      proto::Parameter* parameter = layout_.add_parameters();
      parameter->set_name(absl::StrCat("layer.", extent));
      parameter->add_shape(extent);
    }
  }

  // On arrival, of three blocks, as a job makes it.
  std::string Write(int64_t step, float value, bool is_old = false) {
    proto::Manifest manifest;
    manifest.set_format(1);
    manifest.set_version("1.0");
    manifest.set_job_digest("0123");
    manifest.set_data_digest("4567");
    manifest.set_seed(11);
    manifest.set_mode(proto::Manifest::MODE_ASYNC);
    manifest.set_step(step);
    manifest.set_samples(8 * step);
    manifest.set_samples_per_epoch(60);
    manifest.set_epoch(1.5);
    manifest.set_origin_unit(0);
    manifest.set_origin_samples(0);
    manifest.set_unit_samples(8);
    manifest.set_block_values(16);
    manifest.set_seconds(2.25);
    manifest.add_slots("momentum");
    for (int64_t block = 0; block < 3; ++block) {
      proto::BlockState* state = manifest.add_blocks();
      state->set_block(block);
      state->set_version(step);
      state->set_samples(8 * step);
      state->set_units_below(step - 2);
      state->add_units_above(step - 1);
    }
    TrainingState state;
    state.parameters.assign(43, value);
    state.slots.emplace_back(43, -value);
    if (is_old) {
      return WriteOldCheckpoint(folder_, manifest, "name: x\nseed: 11\n", layout_, state);
    }
    const auto path = WriteCheckpoint(folder_, manifest, "name: x\nseed: 11\n", layout_, state);
    EXPECT_THAT(path, IsOk());
    return path.value_or("");
  }

  // What a job would go on with.
  absl::StatusOr<std::string> Read(const std::string& path) {
    absl::StatusOr<proto::Manifest> manifest = CheckCheckpoint(path);
    if (!manifest.ok()) return manifest.status();
    const absl::StatusOr<TrainingState> state = ReadTrainingState(path, *manifest, layout_);
    if (!state.ok()) return state.status();
    manifest->clear_digest();  // as if it were of before
    std::string bits = manifest->SerializeAsString() + Text(path + "/job.yaml");
    for (const std::vector<float>& values : {state->parameters, state->slots[0]}) {
      bits.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
    return bits;
  }

  // Another value of one of the fields of `json`, or none.
  static void Change(Json* json, RandomStream* random) {
    Json* at = json;
    while (at->is_structured() && !at->empty() && (at == json || random->Below(3) > 0)) {
      auto inner = at->begin();
      std::advance(inner, random->Below(static_cast<uint32_t>(at->size())));
      at = &*inner;
    }
    const Json kOthers[] = {Json(),
                            Json("x"),
                            Json(-1),
                            Json(1e300),
                            Json("-7"),
                            Json(0),
                            Json(Json::array()),
                            Json(Json::object()),
                            Json(true),
                            Json("9223372036854775807"),
                            Json({1, 2})};
    *at = kOthers[random->Below(std::size(kOthers))];
  }

  void Damage(const std::string& path, const std::string& other, uint64_t seed) {
    RandomStream random(seed);
    const std::string name = kFiles[random.Below(std::size(kFiles))];
    const std::string file = absl::StrCat(path, "/", name);
    std::string text = Text(file);
    const auto place = [&] { return random.Below(static_cast<uint32_t>(text.size())); };
    switch (random.Below(7)) {
      case 0:
        fs::remove(file);
        return;
      case 1:
        SetText(file, Text(absl::StrCat(other, "/", name)));  // of another checkpoint
        return;
      case 2:
        fs::remove(file);
        fs::create_directory(file);
        return;
      case 3: {
        Json json = Json::parse(Text(path + "/manifest.json"));
        Change(&json, &random);
        SetText(path + "/manifest.json", json.dump(1));
        return;
      }
      case 4:
        if (!text.empty()) text.resize(place());
        break;
      case 5:
        text.append(1 + random.Below(100), static_cast<char>(random.Bits()));
        break;
      default:
        if (!text.empty()) text[place()] ^= static_cast<char>(1 << random.Below(8));
    }
    SetText(file, text);
  }

  const std::string folder_ = ::testing::TempDir() + "/checkpoint_damage";
  proto::Layout layout_;
};

TEST_F(CheckpointDamageTest, IsRefusedOrChangesNothing) {
  const std::string other = Write(6, 2), path = Write(7, 1);
  const absl::StatusOr<std::string> whole = Read(path);
  ASSERT_THAT(whole, IsOk());
  const std::string copy = folder_ + "/copy";
  fs::copy(path, copy);
  int refused = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    fs::remove_all(path);
    fs::copy(copy, path);
    Damage(path, other, seed);
    const absl::StatusOr<std::string> read = Read(path);
    if (read.ok()) {
      EXPECT_TRUE(*read == *whole);
      continue;
    }
    ++refused;
    EXPECT_THAT(std::string(read.status().message()),
                AllOf(HasSubstr(path), Not(HasSubstr("\n")), Not(HasSubstr("\r"))));
    EXPECT_LT(read.status().message().size(), 500u);
  }
  EXPECT_GT(refused, 700);
}

// Of a checkpoint of before manifests had digests, what cannot be is found as well.
TEST_F(CheckpointDamageTest, AManifestWithoutADigestIsReadWithCare) {
  const std::string path = Write(7, 1, /*is_old=*/true), file = path + "/manifest.json";
  Json json = Json::parse(Text(file));
  const Json before = json;
  SetText(file, json.dump());
  EXPECT_THAT(Read(path), IsOk());
  const std::vector<std::pair<const char*, Json>> kDamages = {
      {"no blocks", {{"blocks", Json::array()}}},
      {"samples is 55", {{"samples", "55"}}},
      {"step is -7", {{"step", "-7"}}},
      {"expected 0 to", {{"samples_per_epoch", "9223372036854775807"}}},
      {"epoch is", {{"epoch", "NaN"}}},
      {"origin_unit", {{"origin_unit", "8"}}},
      {"of block 0", {{"blocks", {{{"block", "3"}, {"version", "7"}}}}}},
      {"of block 0", {{"mode", "MODE_SYNC"}, {"step", "8"}}},
      {"no JSON", {{"blocks", 7}}},
      {"no JSON", {{"nonsense", 7}}},
  };
  for (const auto& [what, change] : kDamages) {
    json = before;
    json.update(change);
    SetText(file, json.dump());
    EXPECT_THAT(Read(path), IsError(absl::StatusCode::kInvalidArgument,
                                    AllOf(HasSubstr(file), HasSubstr(what))));
  }
}

}  // namespace
}  // namespace rubato
