#include "tensor/cuda/ptx/fat_binary.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato::ptx {
namespace {

using ::testing::HasSubstr;

template <typename T>
void Put(std::string* bytes, int64_t offset, T value) {
  std::memcpy(&(*bytes)[offset], &value, sizeof value);
}

// An entry as nvcc 13.0 writes it.
std::string Entry(uint16_t kind, uint32_t architecture, const std::string& content,
                  uint32_t compressed = 0, uint64_t size = 0, uint64_t flags = 0) {
  std::string header(64, '\0');
  Put<uint16_t>(&header, 0, kind);
  Put<uint32_t>(&header, 4, 64);
  Put<uint64_t>(&header, 8, content.size());
  Put<uint32_t>(&header, 16, compressed);
  Put<uint32_t>(&header, 28, architecture);
  Put<uint64_t>(&header, 40, flags);
  Put<uint64_t>(&header, 56, size);
  return header + content;
}

std::string Binary(const std::string& entries) {
  std::string header(16, '\0');
  Put<uint32_t>(&header, 0, 0xba55ed50);
  Put<uint16_t>(&header, 4, 1);
  Put<uint16_t>(&header, 6, 16);
  Put<uint64_t>(&header, 8, entries.size());
  return header + entries;
}

absl::StatusOr<std::string> Opened(absl::string_view compressed, int64_t size) {
  return absl::StrCat(size, " bytes of ", compressed);
}

TEST(FatBinaryTest, FindsThePtxOfAnArchitecture) {
  const std::string binary =
      Binary(Entry(2, 90, "machine code") + Entry(1, 80, "older") + Entry(1, 90, "text") +
             Entry(1, 100, "abcd  ", /*compressed=*/4, /*size=*/12, /*flags=*/0x8011));
  RUBATO_ASSERT_OK(FatBinaryAt(binary.data()));
  EXPECT_EQ(*FatBinaryAt(binary.data()), binary);
  EXPECT_EQ(*EmbeddedPtx(binary, 90, Opened), "text");
  EXPECT_EQ(*EmbeddedPtx(binary, 100, Opened), "12 bytes of abcd");
  EXPECT_THAT(EmbeddedPtx(binary, 70, Opened),
              IsError(absl::StatusCode::kNotFound, HasSubstr("sm_70")));
}

TEST(FatBinaryTest, RefusesOtherForms) {
  const auto expect = [](const std::string& binary) {
    EXPECT_THAT(EmbeddedPtx(binary, 90, Opened),
                IsError(absl::StatusCode::kInvalidArgument, HasSubstr("not known")));
  };
  const std::string binary = Binary(Entry(1, 90, "text"));
  for (size_t size = 17; size < binary.size(); ++size) expect(binary.substr(0, size));
  expect(Binary(Entry(1, 90, "text", /*compressed=*/4, /*size=*/8, /*flags=*/0x2011)));
  expect(Binary(Entry(1, 90, "text", /*compressed=*/5, /*size=*/8, /*flags=*/0x8011)));
  EXPECT_FALSE(FatBinaryAt(std::string(16, '\0').data()).ok());
}

}  // namespace
}  // namespace rubato::ptx
