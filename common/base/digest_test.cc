#include "common/base/digest.h"

#include "gtest/gtest.h"

namespace rubato {
namespace {

// Vectors of FIPS 180-4's examples (NIST, "SHA-256", one block and two) and of the long message.
constexpr char kAbc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr char kTwoBlocks[] = "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1";
constexpr char kMillion[] = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";
constexpr char kEmpty[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

TEST(Sha256Test, GivesTheStandardsVectors) {
  EXPECT_EQ(Sha256Hex(""), kEmpty);
  EXPECT_EQ(Sha256Hex("abc"), kAbc);
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"), kTwoBlocks);
  EXPECT_EQ(Sha256Hex(std::string(1000000, 'a')), kMillion);
}

TEST(Sha256Test, DoesNotDependOnTheCutAndStartsAnew) {
  Sha256 sha256;
  const std::string text(1000000, 'a');
  for (size_t begin = 0, size = 1; begin < text.size(); begin += size, size = size * 2 % 4093) {
    sha256.Update(absl::string_view(text).substr(begin, size));
  }
  EXPECT_EQ(sha256.FinishHex(), kMillion);
  sha256.Update("ab");
  sha256.Update("");
  sha256.Update("c");
  EXPECT_EQ(sha256.FinishHex(), kAbc);
}

}  // namespace
}  // namespace rubato
