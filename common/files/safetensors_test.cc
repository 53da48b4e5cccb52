#include "common/files/safetensors.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "common/base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace rubato {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

template <size_t size>
std::string Bytes(const char (&text)[size]) {
  return std::string(text, size - 1);
}

// A file as the format's specification says, put together by hand: "a" = [1.5, -2] below "n" = -5
// in the data, above it in the header; 136 = 0x88 bytes of header.
std::string HandMade() {
  return Bytes("\x88\0\0\0\0\0\0\0") +
         R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[8,16]},)"
         R"("n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
         R"("__metadata__":{"k":"v"}})" +
         std::string(136 - 134, ' ') + Bytes("\xfb\xff\xff\xff\xff\xff\xff\xff") +
         Bytes("\0\0\xc0\x3f\0\0\0\xc0");
}

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() : path_(testing::TempDir() + "/safetensors_XXXXXX") {
    const int descriptor = mkstemp(&path_[0]);
    EXPECT_GE(descriptor, 0);
    close(descriptor);
  }
  ~SafetensorsTest() override { unlink(path_.c_str()); }

  void Put(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::string Get() const {
    std::ifstream file(path_, std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }

  std::string path_;
};

TEST_F(SafetensorsTest, ReadsAFileMadeByHand) {
  Put(HandMade());
  const absl::StatusOr<SafetensorsReader> file = SafetensorsReader::Open(path_);
  RUBATO_ASSERT_OK(file);
  EXPECT_THAT(file->metadata(), ElementsAre(Pair("k", "v")));
  ASSERT_EQ(file->tensors().size(), 2);
  EXPECT_EQ(file->Find("n"), 0);
  EXPECT_EQ(file->Find("a"), 1);
  EXPECT_EQ(file->Find("b"), std::nullopt);
  EXPECT_EQ(file->tensors()[1].name, "a");
  EXPECT_EQ(file->tensors()[1].dtype, Dtype::kF32);
  EXPECT_THAT(file->tensors()[1].shape, ElementsAre(2, 1));

  int64_t n = 0;
  RUBATO_EXPECT_OK(file->Read(0, 0, absl::MakeSpan(reinterpret_cast<char*>(&n), sizeof(n))));
  EXPECT_EQ(n, -5);
  std::vector<float> a(2);
  RUBATO_EXPECT_OK(file->ReadFloats(1, 0, absl::MakeSpan(a)));
  EXPECT_THAT(a, ElementsAre(1.5f, -2.0f));
  RUBATO_EXPECT_OK(file->ReadFloats(1, 1, absl::MakeSpan(a.data(), 1)));
  EXPECT_EQ(a[0], -2.0f);
  EXPECT_THAT(file->ReadFloats(0, 0, absl::MakeSpan(a)),
              IsError(kInvalid, HasSubstr("tensor 'n'")));
}

TEST_F(SafetensorsTest, WritesWhatTheFormatSays) {
  const std::vector<float> a = {1.5f, -2.0f};
  const std::vector<int64_t> n = {-5};
  RUBATO_ASSERT_OK(WriteSafetensors(path_,
                                    {{{"a", Dtype::kF32, {2, 1}}, AsBytes(absl::MakeConstSpan(a))},
                                     {{"n", Dtype::kI64, {}}, AsBytes(absl::MakeConstSpan(n))}},
                                    {}));
  EXPECT_EQ(Get(), Bytes("\x70\0\0\0\0\0\0\0") +
                       R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                       R"("n":{"dtype":"I64","shape":[],"data_offsets":[8,16]}})" +
                       std::string(112 - 109, ' ') + Bytes("\0\0\xc0\x3f\0\0\0\xc0") +
                       Bytes("\xfb\xff\xff\xff\xff\xff\xff\xff"));
}

TEST_F(SafetensorsTest, BytesMayArriveCutInAnyWay) {
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = i;
  absl::StatusOr<SafetensorsWriter> writer = SafetensorsWriter::Create(
      path_, {{"a", Dtype::kF32, {10, 10}}, {"b", Dtype::kF32, {900}}}, {{"step", "7"}});
  RUBATO_ASSERT_OK(writer);
  const absl::string_view bytes = AsBytes(absl::MakeConstSpan(values));
  for (size_t begin = 0; begin < bytes.size(); begin += 333) {
    RUBATO_ASSERT_OK(writer->Append(bytes.substr(begin, 333)));
  }
  EXPECT_EQ(Get(), "") << "is not there before it is whole";
  RUBATO_ASSERT_OK(writer->Finish());

  const absl::StatusOr<SafetensorsReader> file = SafetensorsReader::Open(path_);
  RUBATO_ASSERT_OK(file);
  EXPECT_THAT(file->metadata(), ElementsAre(Pair("step", "7")));
  std::vector<float> b(3);
  RUBATO_ASSERT_OK(file->ReadFloats(1, 897, absl::MakeSpan(b)));
  EXPECT_THAT(b, ElementsAre(997, 998, 999));
}

TEST_F(SafetensorsTest, BytesMustBeAsManyAsTheTensorsHold) {
  const auto create = [&] {
    return *SafetensorsWriter::Create(path_, {{"a", Dtype::kU8, {3}}}, {});
  };
  SafetensorsWriter more = create();
  RUBATO_EXPECT_OK(more.Append("xy"));
  EXPECT_THAT(more.Append("zz"), IsError(kInvalid, HasSubstr("found 2 more bytes of data; "
                                                             "expected 1 at most")));
  SafetensorsWriter less = create();
  RUBATO_EXPECT_OK(less.Append("xy"));
  EXPECT_THAT(less.Finish(), IsError(kInvalid, HasSubstr("found 2 bytes of data; expected 3")));
  EXPECT_EQ(Get(), "");
}

TEST_F(SafetensorsTest, DigestIsOfNamesTypesShapesAndBitsOnly) {
  // Python: sha256(b"1:a F32 [2,1]\n" + pack("<2f", 1.5, -2) + b"1:n I64 []\n" + pack("<q", -5))
  constexpr char kDigest[] = "6bde3df9cf235dc5e89b8c1222c1885d34a6764eb71893bb0a74260189ed867e";
  const std::vector<float> a = {1.5f, -2.0f};
  const std::vector<int64_t> n = {-5};
  const TensorView view_a = {{"a", Dtype::kF32, {2, 1}}, AsBytes(absl::MakeConstSpan(a))};
  const TensorView view_n = {{"n", Dtype::kI64, {}}, AsBytes(absl::MakeConstSpan(n))};
  EXPECT_EQ(TensorsDigest({view_a, view_n}), kDigest);
  EXPECT_EQ(TensorsDigest({view_n, view_a}), kDigest);
  Put(HandMade());
  const absl::StatusOr<std::string> digest = TensorsDigest(*SafetensorsReader::Open(path_));
  RUBATO_ASSERT_OK(digest);
  EXPECT_EQ(*digest, kDigest);

  TensorView other = view_a;
  other.info.shape = {1, 2};
  EXPECT_NE(TensorsDigest({other, view_n}), kDigest);
  other = view_a;
  other.info.dtype = Dtype::kI32;
  EXPECT_NE(TensorsDigest({other, view_n}), kDigest);
  other = view_a;
  other.info.name = "b";
  EXPECT_NE(TensorsDigest({other, view_n}), kDigest);
  const std::vector<float> b = {1.5f, 2.0f};
  other = view_a;
  other.bytes = AsBytes(absl::MakeConstSpan(b));
  EXPECT_NE(TensorsDigest({other, view_n}), kDigest);
}

TEST_F(SafetensorsTest, SaysWhatIsDamaged) {
  const std::string whole = HandMade();
  const auto open = [&](const std::string& bytes) {
    Put(bytes);
    return SafetensorsReader::Open(path_).status();
  };
  EXPECT_THAT(open(whole), IsOk());
  EXPECT_THAT(open(""), IsError(kInvalid, AllOf(HasSubstr(path_), HasSubstr("it has 0 bytes"))));
  EXPECT_THAT(open(whole.substr(0, 100)),
              IsError(kInvalid, HasSubstr("its header takes 136 bytes; expected at most 92")));
  EXPECT_THAT(open(std::string(8, '\xff') + whole.substr(8)),
              IsError(kInvalid, HasSubstr("its header takes 18446744073709551615 bytes")));
  EXPECT_THAT(open("# A page of text that is none"),
              IsError(kInvalid, path_ + " is not a safetensors file"));
  EXPECT_THAT(open(whole.substr(0, whole.size() - 1)),
              IsError(kInvalid, HasSubstr("its tensors take 16 bytes of data and it holds 15")));
  EXPECT_THAT(open(whole + "x"),
              IsError(kInvalid, HasSubstr("its tensors take 16 bytes of data and it holds 17")));
  EXPECT_THAT(SafetensorsReader::Open(testing::TempDir()),
              IsError(kInvalid, HasSubstr("it is a folder or a device")));
  EXPECT_THAT(SafetensorsReader::Open(path_ + "/missing"),
              IsError(absl::StatusCode::kNotFound, HasSubstr("Not a directory")));
  EXPECT_THAT(SafetensorsReader::Open("missing"),
              IsError(absl::StatusCode::kNotFound, HasSubstr("cannot open missing: No such file")));
}

TEST_F(SafetensorsTest, FileThatShrinksIsAnErrorNotACrash) {
  Put(HandMade());
  const absl::StatusOr<SafetensorsReader> file = SafetensorsReader::Open(path_);
  RUBATO_ASSERT_OK(file);
  ASSERT_EQ(truncate(path_.c_str(), 150), 0);
  EXPECT_THAT(TensorsDigest(*file),
              IsError(absl::StatusCode::kUnavailable, HasSubstr("become shorter")));
}

// Whatever the bytes, a file is refused in one sentence or can be read from end to end.
TEST_F(SafetensorsTest, MutationsAreRefusedOrReadable) {
  const std::string whole = HandMade();
  constexpr uint32_t kSeed = 21;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  int readable = 0;
  for (int trial = 0; trial < 1500; ++trial) {
    std::string bytes = whole;
    for (size_t i = 0, mutations = 1 + random() % 2; i < mutations && !bytes.empty(); ++i) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] ^= 1 << random() % 8;
          break;
        case 2:
          bytes.resize(at);
          break;
        case 3:
          bytes.insert(at, 1 + random() % 9, static_cast<char>(random()));
          break;
      }
    }
    Put(bytes);
    const absl::StatusOr<SafetensorsReader> file = SafetensorsReader::Open(path_);
    if (file.ok()) {
      ++readable;
      ASSERT_THAT(TensorsDigest(*file), IsOk()) << "trial " << trial;
    } else {
      ASSERT_THAT(file, IsError(kInvalid, AllOf(HasSubstr(path_), Not(HasSubstr("\n")))))
          << "trial " << trial;
    }
  }
  // Both outcomes have been seen: a bit changed in the data or in a name is readable.
  EXPECT_GT(readable, 50);
  EXPECT_LT(readable, 750);
}

}  // namespace
}  // namespace rubato
