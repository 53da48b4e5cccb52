// Any bytes as a file of data, whose format the first byte chooses.
#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/strings/ascii.h"
#include "tests/fuzz/input.h"
#include "worker/data/load.h"

namespace {

// A row is kept dense: one long number is an honest wish for much memory.
bool AsksForMuch(absl::string_view bytes) {
  int digits = 0;
  for (const char c : bytes) {
    digits = absl::ascii_isdigit(static_cast<unsigned char>(c)) ? digits + 1 : 0;
    if (digits > 5) return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rubato;
  FuzzInput input(data, size);
  const uint8_t kind = input.Byte();
  const absl::string_view bytes = input.Rest();
  proto::Job job;
  job.mutable_loss()->set_name(kind & 8 ? proto::Loss::NAME_MSE : proto::Loss::NAME_CROSS_ENTROPY);
  proto::Data& config = *job.mutable_data();
  config.set_test_fraction(0.5);
  config.set_target("y");
  config.set_context(2);
  config.set_path(FuzzFile("data", bytes));
  switch (kind % 5) {
    case 0:
      config.set_format(proto::Data::FORMAT_CSV);
      break;
    case 1:
      if (AsksForMuch(bytes)) return 0;
      config.set_format(proto::Data::FORMAT_LIBSVM);
      break;
    case 2:
      config.set_format(proto::Data::FORMAT_TEXT);
      break;
    default: {
      const std::string folder = FuzzFolder() + "/images";
      std::filesystem::create_directories(folder);
      const bool idx = kind % 5 == 3;
      config.set_format(idx ? proto::Data::FORMAT_IDX : proto::Data::FORMAT_CIFAR10);
      config.set_path(folder);
      // Half of it as images, half as labels, of both splits.
      for (const char* name :
           {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte", "train-labels-idx1-ubyte",
            "t10k-labels-idx1-ubyte", "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
            "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"}) {
        const bool labels = absl::string_view(name).find("labels") != absl::string_view::npos;
        const size_t half = std::min<size_t>(bytes.size(), kind / 5 * 16);
        FuzzFile(absl::StrCat("images/", name), !idx     ? bytes
                                                : labels ? bytes.substr(half)
                                                         : bytes.substr(0, half));
      }
    }
  }
  LoadData(job).status().IgnoreError();
  return 0;
}
