// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/weight_planes.h"
#include "engine/model/quantization.h"
#include "engine/model/spec.h"
#include "engine/model_files/file.h"
#include "engine/model_files/safetensors.h"

// Reads elements of a parameter from its stored tensor, of any type and layout, as masters.
namespace strata::model {

// Bytes of files that may have been read ahead.
class StoredBytes {
 public:
  virtual ~StoredBytes() = default;
  // Returns the bytes [offset, offset + bytes) of the file: in `room`, or in other memory that is
  // valid until the next call. Throws as File::read_at does.
  virtual const void* get(const File& file, int64_t offset, int64_t bytes, void* room) = 0;
};

// A tensor of an open file; an FP8 tensor has its scales.
struct StoredTensor {
  const File* file = nullptr;
  const TensorEntry* entry = nullptr;
  const File* scale_file = nullptr;
  const TensorEntry* scales = nullptr;
  Fp8Blocks blocks = {};
  StoredBytes* ahead = nullptr;  // null: from the file
};

// Reads elements [first, first + count) of a parameter. Memory: 320 KiB on the stack, 2 MiB more
// when the file has the transpose; then a range of whole rows is read much faster.
void read_elements(const StoredTensor& tensor, const Parameter& parameter, int64_t first,
                   int64_t count, const WeightPlanes& planes);

}  // namespace strata::model
