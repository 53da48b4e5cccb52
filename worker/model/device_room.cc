#include "worker/model/device_room.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rubato {
namespace {

std::string Gigabytes(int64_t bytes) {
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

absl::Status DoesNotFit(const Device& device, int64_t room, Purpose purpose, int64_t batch,
                        absl::FunctionRef<int64_t(int64_t n)> bytes_for) {
  int64_t fits = 0;
  for (int64_t below = batch; below - fits > 1;) {
    const int64_t middle = (fits + below) / 2;
    (bytes_for(middle) <= room ? fits : below) = middle;
  }
  const std::string reserved = device.reserved_bytes() == 0
                                   ? ""
                                   : absl::StrCat(" beside ", Gigabytes(device.reserved_bytes()),
                                                  " that its libraries take");
  return absl::ResourceExhaustedError(absl::StrCat(
      device.description(), " has ", Gigabytes(std::max<int64_t>(room, 0)), " free of ",
      Gigabytes(device.total_bytes()), reserved, "; ",
      purpose == Purpose::kEvaluation ? "evaluation" : "training", " in batches of ", batch,
      " needs ", Gigabytes(bytes_for(batch)), ", ",
      fits == 0 ? "and even single samples do not fit"
                : absl::StrCat(fits, " would fit (train.batch_size over train.micro_batches)")));
}

}  // namespace rubato
