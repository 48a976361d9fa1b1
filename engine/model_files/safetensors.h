// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/dtype.h"

// The safetensors file format: u64 little-endian header length, JSON header, tensor data.
namespace strata::model {

// One tensor of a file. For a type that we do not compute with, `dtype_known` is false.
struct TensorEntry {
  std::string name;
  std::string dtype_name;  // as in the header: "F32", "I64", ...
  bool dtype_known = false;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  int64_t numel = 0;
  int64_t offset = 0;  // bytes from the start of the file
  int64_t bytes = 0;
};

// The longest header that the format allows.
inline constexpr int64_t kHeaderBytesMax = 100'000'000;

// Parses the JSON header `text` of a file of `file_bytes` bytes; returns its tensors in order of
// offset. Throws Error (kCorrupt) that names `path` unless each tensor has the size of its shape
// and type, and the tensors fill the data part without holes or overlaps.
std::vector<TensorEntry> parse_safetensors_header(std::string_view text, int64_t file_bytes,
                                                  const std::string& path);

// Opens a file for the duration of the call and reads its header.
std::vector<TensorEntry> read_safetensors_header(const std::string& path);

// A tensor to write.
struct TensorPlan {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// The first bytes of a file with these tensors in this order, and the tensors' entries. The header
// is padded so that the data starts at a multiple of 4096.
struct SafetensorsPrefix {
  std::string bytes;
  std::vector<TensorEntry> entries;
  int64_t file_bytes = 0;
};
SafetensorsPrefix make_safetensors_prefix(const std::vector<TensorPlan>& tensors);

}  // namespace strata::model
