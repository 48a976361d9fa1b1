// SPDX-License-Identifier: Apache-2.0
#include "bindings/c/tensor_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "bindings/c/handles.h"
#include "kernels/backend.h"

namespace strata::c {

DType dtype_of(int32_t dtype, const std::string& where) {
  constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
  if (dtype >= STRATA_F32 && dtype <= STRATA_F16) return kTypes[dtype - STRATA_F32];
  throw Error(ErrorCode::kUsage,
              fmt::format("{}: dtype {}: unknown (give STRATA_F32, STRATA_BF16 or STRATA_F16)",
                          where, dtype));
}

TensorSource source_of(const strata_tensor& tensor, int64_t count, DType own,
                       const std::string& where) {
  TensorSource source;
  source.path = text_or_empty(tensor.source);
  if (source.path.empty()) return source;
  source.offset = tensor.source_offset;
  source.dtype = tensor.source_dtype == 0 ? own : dtype_of(tensor.source_dtype, where);
  const int64_t has = model::File::open_to_read(source.path).size();
  const int64_t bytes = count * bytes_of(source.dtype);
  if (source.offset >= 0 && source.offset <= has && bytes <= has - source.offset) return source;
  throw Error(ErrorCode::kConfig,
              fmt::format("{}: source {}: it has {} bytes, too few for {} bytes at offset {} (give "
                          "the file, offset and type that the weights have)",
                          where, source.path, has, bytes, source.offset));
}

void SourceReader::read(const TensorSource& source, int64_t first, std::span<float> values) {
  if (!file_ || file_->path() != source.path) {
    file_.reset();
    file_ = model::File::open_to_read(source.path);
  }
  constexpr int64_t kPiece = 16384;
  std::array<char, kPiece * sizeof(float)> bytes;
  const int64_t size = bytes_of(source.dtype);
  for (int64_t done = 0; done < std::ssize(values); done += kPiece) {
    const int64_t count = std::min<int64_t>(kPiece, std::ssize(values) - done);
    file_->read_at(source.offset + (first + done) * size, bytes.data(), count * size);
    kernels::cpu_backend().convert_in({.dtype = source.dtype,
                                       .count = count,
                                       .src = bytes.data(),
                                       .master = values.data() + done});
  }
}

}  // namespace strata::c
