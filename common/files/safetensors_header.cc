#include "common/files/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/json.h"
#include "common/base/printable.h"
#include "common/base/status.h"

namespace rubato {
namespace {

using Json = nlohmann::json;

constexpr char kMetadataKey[] = "__metadata__";

struct DtypeRow {
  Dtype dtype;
  absl::string_view name;
  int64_t bytes;
};
constexpr DtypeRow kDtypes[] = {
    {Dtype::kF64, "F64", 8},   {Dtype::kF32, "F32", 4}, {Dtype::kF16, "F16", 2},
    {Dtype::kBF16, "BF16", 2}, {Dtype::kI64, "I64", 8}, {Dtype::kI32, "I32", 4},
    {Dtype::kI16, "I16", 2},   {Dtype::kI8, "I8", 1},   {Dtype::kU64, "U64", 8},
    {Dtype::kU32, "U32", 4},   {Dtype::kU16, "U16", 2}, {Dtype::kU8, "U8", 1},
    {Dtype::kBool, "BOOL", 1},
};

// Bytes of a tensor, or nothing if they cannot be counted.
std::optional<int64_t> CheckedBytes(Dtype dtype, absl::Span<const int64_t> shape) {
  int64_t bytes = DtypeBytes(dtype);
  for (const int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return bytes;
}

std::optional<int64_t> ToInt64(const Json& json) {
  if (!json.is_number_unsigned()) return std::nullopt;
  const uint64_t value = json.get<uint64_t>();
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return static_cast<int64_t>(value);
}

// A tensor's entry in the header: its info and the place of its bytes in the data.
struct Entry {
  TensorInfo info;
  int64_t begin = 0;
  int64_t end = 0;
};

// Errors say what is wrong with the entry; the caller says where.
absl::StatusOr<Entry> ParseEntry(const std::string& name, const Json& json) {
  const std::string tensor = absl::StrCat("tensor ", QuotedName(name));
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(tensor, " is no object"));
  Entry entry;
  entry.info.name = name;

  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) {
    return absl::InvalidArgumentError(absl::StrCat(tensor, " has no dtype"));
  }
  const std::string& dtype_name = dtype->get_ref<const std::string&>();
  const auto* row = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                 [&](const DtypeRow& row) { return row.name == dtype_name; });
  if (row == std::end(kDtypes)) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor, " has the unknown dtype ", QuotedName(dtype_name)));
  }
  entry.info.dtype = row->dtype;

  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) {
    return absl::InvalidArgumentError(absl::StrCat(tensor, " has no shape"));
  }
  for (const Json& element : *shape) {
    const std::optional<int64_t> size = ToInt64(element);
    if (!size) {
      return absl::InvalidArgumentError(absl::StrCat(tensor, " has a shape that is not of sizes"));
    }
    entry.info.shape.push_back(*size);
  }
  const std::optional<int64_t> bytes = CheckedBytes(entry.info.dtype, entry.info.shape);
  if (!bytes) {
    return absl::InvalidArgumentError(absl::StrCat(tensor, " has a shape of 2^63 bytes or more"));
  }

  const auto offsets = json.find("data_offsets");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2 ||
      !ToInt64((*offsets)[0]) || !ToInt64((*offsets)[1])) {
    return absl::InvalidArgumentError(absl::StrCat(tensor, " has no data_offsets of two numbers"));
  }
  entry.begin = *ToInt64((*offsets)[0]);
  entry.end = *ToInt64((*offsets)[1]);
  if (entry.begin > entry.end || entry.end - entry.begin != *bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor, " lies at bytes ", entry.begin, " to ", entry.end,
                     " of the data; its dtype and shape take ", *bytes, " bytes"));
  }
  return entry;
}

absl::StatusOr<Metadata> ParseMetadata(const Json& json) {
  if (!json.is_object()) return absl::InvalidArgumentError("__metadata__ is no object");
  Metadata metadata;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("__metadata__ key ", QuotedName(key), " is no text"));
    }
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

// Looks for a key that an object has twice, of which the parser of values keeps the last. That
// parser could look itself, by a callback, but then takes a time that grows with the square of the
// number of keys.
class EqualKeys : public Json::json_sax_t {
 public:
  const std::optional<std::string>& found() const { return found_; }

  bool key(std::string& key) override {
    if (!keys_.back().insert(key).second && !found_) found_ = key;
    return true;
  }
  bool start_object(size_t) override {
    keys_.emplace_back();
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    return true;
  }
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::optional<std::string> found_;
};

// The JSON object `text`, in which no object may have a key twice.
absl::StatusOr<Json> ParseObject(absl::string_view text) {
  Json json = ParseJson(text);
  if (json.is_discarded() || !json.is_object()) {
    return absl::InvalidArgumentError("its header is not a JSON object");
  }
  EqualKeys keys;
  Json::sax_parse(text.begin(), text.end(), &keys);
  if (keys.found()) {
    return absl::InvalidArgumentError(
        absl::StrCat("its header has the key ", QuotedName(*keys.found()), " twice"));
  }
  return json;
}

// Checks that the entries, in the order of their bytes, lie without gap or overlap.
absl::Status CheckPlaces(absl::Span<const Entry> entries) {
  int64_t end = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != end) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", QuotedName(entry.info.name), " begins at byte ", entry.begin,
                       " of the data; expected byte ", end, ", where the one before it ends"));
    }
    end = entry.end;
  }
  return absl::OkStatus();
}

}  // namespace

std::string QuotedName(absl::string_view text) {
  constexpr size_t kLongest = 80;
  return absl::StrCat("'", absl::CHexEscape(text.substr(0, kLongest)),
                      text.size() > kLongest ? "…" : "", "'");
}

absl::string_view DtypeName(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].name; }
int64_t DtypeBytes(Dtype dtype) { return kDtypes[static_cast<size_t>(dtype)].bytes; }

int64_t TensorInfo::Elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<int64_t>());
}

absl::StatusOr<SafetensorsHeader> MakeSafetensorsHeader(absl::Span<const TensorInfo> tensors,
                                                        const Metadata& metadata) {
  SafetensorsHeader header;
  std::set<absl::string_view> names;
  for (const TensorInfo& info : tensors) {
    if (info.name.empty() || info.name == kMetadataKey || !IsUtf8(info.name)) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tensor cannot be named ", QuotedName(info.name)));
    }
    if (!names.insert(info.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two tensors are named ", QuotedName(info.name)));
    }
    const std::optional<int64_t> bytes = CheckedBytes(info.dtype, info.shape);
    header.offsets.push_back(header.data_bytes);
    if (!bytes || __builtin_add_overflow(header.data_bytes, *bytes, &header.data_bytes)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", QuotedName(info.name), " has the shape [", absl::StrJoin(info.shape, ","),
          "]; expected sizes from 0 that make less than 2^63 bytes in all"));
    }
    header.tensors.push_back(info);
  }
  for (const auto& [key, value] : metadata) {
    if (!IsUtf8(key) || !IsUtf8(value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata key ", QuotedName(key), " or its value is not UTF-8 text"));
    }
  }
  header.metadata = metadata;
  return header;
}

std::string SafetensorsHeaderBytes(const SafetensorsHeader& header) {
  std::vector<std::string> entries;
  if (!header.metadata.empty()) {
    entries.push_back(absl::StrCat("\"", kMetadataKey, "\":", JsonText(Json(header.metadata))));
  }
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const TensorInfo& info = header.tensors[i];
    entries.push_back(absl::StrCat(JsonText(Json(info.name)), ":{\"dtype\":\"",
                                   DtypeName(info.dtype), "\",\"shape\":[",
                                   absl::StrJoin(info.shape, ","), "],\"data_offsets\":[",
                                   header.offsets[i], ",", header.offsets[i] + info.Bytes(), "]}"));
  }
  std::string text = absl::StrCat("{", absl::StrJoin(entries, ","), "}");
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(&bytes[0], &length, sizeof(length));
  return bytes + text;
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(absl::string_view text) {
  RUBATO_ASSIGN_OR_RETURN(const Json json, ParseObject(text));
  SafetensorsHeader header;
  std::vector<Entry> entries;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadataKey) {
      RUBATO_ASSIGN_OR_RETURN(header.metadata, ParseMetadata(value));
    } else {
      RUBATO_ASSIGN_OR_RETURN(Entry entry, ParseEntry(name, value));
      entries.push_back(std::move(entry));
    }
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.begin, a.end, a.info.name) < std::tie(b.begin, b.end, b.info.name);
  });
  RUBATO_RETURN_IF_ERROR(CheckPlaces(entries));
  for (Entry& entry : entries) {
    header.offsets.push_back(entry.begin);
    header.data_bytes = entry.end;
    header.tensors.push_back(std::move(entry.info));
  }
  return header;
}

}  // namespace rubato
