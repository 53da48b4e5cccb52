// Runs a fuzz target over the files of a corpus and over seeded mutations of each, where there is
// no libFuzzer: fuzz_corpus_test DIRECTORY MUTATIONS. Crashes are what it finds.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/base/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

// Exactly as many bytes on the heap as the input has, so that AddressSanitizer sees a read beyond.
void RunOne(const std::string& input) {
  const std::vector<uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

std::string Mutate(std::string input, uint64_t key) {
  rubato::RandomStream random(key);
  for (uint32_t times = 1 + random.Below(4); times > 0; --times) {
    const uint32_t place = random.Below(static_cast<uint32_t>(input.size()) + 1);
    switch (random.Below(4)) {
      case 0:
        input.resize(place);
        break;
      case 1:
        input.insert(place, 1 + random.Below(8), static_cast<char>(random.Bits()));
        break;
      default:
        if (place < input.size()) input[place] = static_cast<char>(random.Bits());
        break;
    }
  }
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s DIRECTORY MUTATIONS\n", argv[0]);
    return 2;
  }
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    paths.push_back(entry.path());
  }
  if (paths.empty()) {
    std::fprintf(stderr, "%s holds no inputs\n", argv[1]);
    return 1;
  }
  const uint64_t mutations = std::strtoull(argv[2], nullptr, 10);
  for (const std::string& path : paths) {
    std::ifstream file(path, std::ios::binary);
    const std::string input{std::istreambuf_iterator<char>(file), {}};
    RunOne(input);
    for (uint64_t i = 0; i < mutations; ++i) RunOne(Mutate(input, rubato::Key(1, i)));
  }
  std::printf("%zu inputs, each with %d mutations\n", paths.size(), static_cast<int>(mutations));
  return 0;
}
