// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/safetensors.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/model_files/file.h"

namespace strata::model {
namespace {

using config::Json;

constexpr int64_t kLengthBytes = 8;
constexpr size_t kDimensionsMax = 16;
constexpr std::string_view kLfsPointer = "version https://git-lfs";

// The types of the format and the number of bits of an element.
struct TypeName {
  const char* name;
  int bits;
  std::optional<DType> dtype;
};

constexpr TypeName kTypes[] = {
    {"F32", 32, DType::kF32},
    {"BF16", 16, DType::kBF16},
    {"F16", 16, DType::kF16},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"I32", 32, {}},
    {"I16", 16, {}},
    {"I8", 8, {}},
    {"U64", 64, {}},
    {"U32", 32, {}},
    {"U16", 16, {}},
    {"U8", 8, {}},
    {"BOOL", 8, {}},
    {"F8_E4M3", 8, DType::kF8E4M3},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
    {"F4", 4, {}},
    {"C64", 64, {}},
};

[[noreturn]] void refuse_safetensors(const std::string& path, const std::string& cause) {
  throw Error(ErrorCode::kCorrupt,
              "cannot read safetensors: " + path + ": " + cause + " (fetch the file again)");
}

// Reads one member of the header.
class EntryReader {
 public:
  EntryReader(const std::string& path, const config::JsonMember& member)
      : path_(path), name_(member.name), json_(member.value) {
    if (!json_.is_object() || json_.members().size() != 3) {
      fail("must be an object of dtype, shape and data_offsets");
    }
  }

  TensorEntry read(int64_t data_start, int64_t data_bytes) const {
    TensorEntry entry;
    entry.name = name_;
    const int bits = read_type(entry);
    entry.numel = read_shape(entry.shape);
    const auto [begin, end] = read_offsets(data_bytes);
    int64_t total_bits = 0;
    if (__builtin_mul_overflow(entry.numel, int64_t{bits}, &total_bits) || total_bits % 8 != 0 ||
        total_bits / 8 != end - begin) {
      fail(fmt::format("has {} bytes, but its shape and dtype {} make {} elements of {} bits",
                       end - begin, entry.dtype_name, entry.numel, bits));
    }
    entry.offset = data_start + begin;
    entry.bytes = end - begin;
    return entry;
  }

 private:
  const Json& member(const char* name) const {
    const Json* value = json_.find(name);
    if (value == nullptr) fail(fmt::format("has no {}", name));
    return *value;
  }

  int read_type(TensorEntry& entry) const {
    const Json& dtype = member("dtype");
    if (!dtype.is_string()) fail("dtype must be a string");
    for (const TypeName& type : kTypes) {
      if (dtype.string() != type.name) continue;
      entry.dtype_name = type.name;
      entry.dtype_known = type.dtype.has_value();
      entry.dtype = type.dtype.value_or(DType::kF32);
      return type.bits;
    }
    fail(fmt::format("has the unknown dtype {}", dtype.dump()));
  }

  int64_t read_shape(std::vector<int64_t>& shape) const {
    const Json& json = member("shape");
    if (!json.is_array() || json.items().size() > kDimensionsMax) {
      fail(fmt::format("shape must be an array of at most {} numbers", kDimensionsMax));
    }
    int64_t numel = 1;
    for (const Json& item : json.items()) {
      const auto extent = item.is_integer() ? item.int64() : std::nullopt;
      if (!extent || *extent < 0) fail(fmt::format("shape has {}", item.describe()));
      if (__builtin_mul_overflow(numel, *extent, &numel)) fail("shape has more than 2^63 elements");
      shape.push_back(*extent);
    }
    return numel;
  }

  std::array<int64_t, 2> read_offsets(int64_t data_bytes) const {
    const Json& json = member("data_offsets");
    if (!json.is_array() || json.items().size() != 2) fail("data_offsets must be two numbers");
    std::array<int64_t, 2> range{};
    for (size_t i = 0; i < 2; ++i) {
      const Json& item = json.items()[i];
      const auto offset = item.is_integer() ? item.int64() : std::nullopt;
      if (!offset || *offset < 0 || *offset > data_bytes) {
        fail(fmt::format("data_offsets has {}, the data part has {} bytes", item.describe(),
                         data_bytes));
      }
      range[i] = *offset;
    }
    if (range[0] > range[1]) fail("data_offsets are in the wrong order");
    return range;
  }

  [[noreturn]] void fail(const std::string& cause) const {
    refuse_safetensors(path_, fmt::format("tensor \"{}\" {}", name_, cause));
  }

  const std::string& path_;
  const std::string& name_;
  const Json& json_;
};

Json parse_header_json(std::string_view text, const std::string& path) {
  // A tensor has nine values in the header, so this allows 200,000 tensors and bounds the memory.
  const config::JsonLimits limits = {.bytes = kHeaderBytesMax, .values = 2'000'000, .depth = 8};
  try {
    Json json = Json::parse(text, path + " header", limits);
    if (!json.is_object()) refuse_safetensors(path, "the header is not a JSON object");
    return json;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupt) throw;
    throw Error(ErrorCode::kCorrupt, error.what());
  }
}

}  // namespace

std::vector<TensorEntry> parse_safetensors_header(std::string_view text, int64_t file_bytes,
                                                  const std::string& path) {
  const int64_t data_start = kLengthBytes + static_cast<int64_t>(text.size());
  STRATA_CHECK(file_bytes >= data_start);
  const int64_t data_bytes = file_bytes - data_start;
  const Json json = parse_header_json(text, path);
  std::vector<TensorEntry> entries;
  for (const config::JsonMember& member : json.members()) {
    if (member.name == "__metadata__") continue;
    entries.push_back(EntryReader(path, member).read(data_start, data_bytes));
  }
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  int64_t end = data_start;
  for (const TensorEntry& entry : entries) {
    if (entry.offset != end) {
      refuse_safetensors(
          path,
          fmt::format("tensor \"{}\" starts at byte {} of the data, the one before ends at {}",
                      entry.name, entry.offset - data_start, end - data_start));
    }
    end += entry.bytes;
  }
  if (end != file_bytes) {
    refuse_safetensors(path,
                       fmt::format("the tensors end at byte {}, the file at {}", end, file_bytes));
  }
  return entries;
}

std::vector<TensorEntry> read_safetensors_header(const std::string& path) {
  const File file = File::open_to_read(path);
  const int64_t file_bytes = file.size();
  char start[kLfsPointer.size()] = {};
  const int64_t start_bytes = std::min<int64_t>(file_bytes, static_cast<int64_t>(sizeof start));
  file.read_at(0, start, start_bytes);
  if (std::string_view(start, static_cast<size_t>(start_bytes)) == kLfsPointer) {
    throw Error(ErrorCode::kCorrupt,
                "cannot read safetensors: " + path +
                    ": it is a Git LFS pointer, not the weights (run git lfs pull there)");
  }
  if (file_bytes < kLengthBytes) {
    refuse_safetensors(
        path, fmt::format("truncated: it has {} bytes, not even a header length", file_bytes));
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(start[i]);
  if (length > static_cast<uint64_t>(kHeaderBytesMax)) {
    refuse_safetensors(
        path, fmt::format("it says that its header has {} bytes, the format allows {}", length,
                          kHeaderBytesMax));
  }
  if (static_cast<int64_t>(length) > file_bytes - kLengthBytes) {
    refuse_safetensors(path, fmt::format("truncated: its header ends at byte {}, the file at {}",
                                         length + kLengthBytes, file_bytes));
  }
  std::string text(length, '\0');
  file.read_at(kLengthBytes, text.data(), static_cast<int64_t>(length));
  return parse_safetensors_header(text, file_bytes, path);
}

SafetensorsPrefix make_safetensors_prefix(const std::vector<TensorPlan>& tensors) {
  SafetensorsPrefix prefix;
  Json header = Json::object();
  Json metadata = Json::object();
  metadata.set("format", "pt");
  header.set("__metadata__", std::move(metadata));
  int64_t end = 0;
  for (const TensorPlan& tensor : tensors) {
    TensorEntry entry{.name = tensor.name,
                      .dtype_name = name_of(tensor.dtype),
                      .dtype_known = true,
                      .dtype = tensor.dtype,
                      .shape = tensor.shape,
                      .numel = 1};
    Json shape = Json::array();
    for (const int64_t extent : tensor.shape) {
      entry.numel *= extent;
      shape.push_back(extent);
    }
    entry.bytes = entry.numel * bytes_of(tensor.dtype);
    entry.offset = end;
    end += entry.bytes;
    Json json = Json::object();
    json.set("dtype", entry.dtype_name);
    json.set("shape", std::move(shape));
    json.set("data_offsets", Json::Array{Json(entry.offset), Json(end)});
    header.members().push_back({tensor.name, std::move(json)});
    prefix.entries.push_back(std::move(entry));
  }
  const std::string text = header.dump();
  const int64_t data_start = round_up(kLengthBytes + static_cast<int64_t>(text.size()), kPageBytes);
  const uint64_t length = static_cast<uint64_t>(data_start - kLengthBytes);
  for (int i = 0; i < kLengthBytes; ++i)
    prefix.bytes += static_cast<char>(length >> (8 * i) & 0xff);
  prefix.bytes += text;
  prefix.bytes.resize(static_cast<size_t>(data_start), ' ');
  for (TensorEntry& entry : prefix.entries) entry.offset += data_start;
  prefix.file_bytes = data_start + end;
  return prefix;
}

}  // namespace strata::model
