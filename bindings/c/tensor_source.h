// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bindings/c/strata.h"
#include "engine/base/dtype.h"
#include "engine/model_files/file.h"

namespace strata::c {

// Where a file has the initial weights of a tensor: its elements in their order, without gaps.
struct TensorSource {
  std::string path;  // empty: the caller's function has them
  int64_t offset = 0;
  DType dtype = DType::kF32;
};

// The type of a number of strata.h. Throws Error (kUsage) that begins with `where`.
DType dtype_of(int32_t dtype, const std::string& where);

// The source of a tensor with so many elements, whose weights are of `own` type. Throws Error
// (kConfig) that names `where` for a file that cannot be read or ends before the last element.
TensorSource source_of(const strata_tensor& tensor, int64_t count, DType own,
                       const std::string& where);

// Reads tensors, one at a time. Keeps the file of the last one open. Failure: Error that names file
// and offset.
class SourceReader {
 public:
  // Elements [first, first + values.size()).
  void read(const TensorSource& source, int64_t first, std::span<float> values);

 private:
  std::optional<model::File> file_;
};

}  // namespace strata::c
