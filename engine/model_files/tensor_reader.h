// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/model/quantization.h"
#include "engine/model/spec.h"
#include "engine/model_files/file.h"
#include "engine/model_files/safetensors.h"

// Elements of a parameter from the tensor that it lies in: any type, any layout, as masters.
namespace strata::model {

// Where elements go: f32 masters, or their halves; where lo is null, hi is the bf16 weight.
struct Planes {
  float* master = nullptr;
  uint16_t* hi = nullptr;
  uint16_t* lo = nullptr;

  Planes from(int64_t element) const {
    return {master ? master + element : nullptr, hi ? hi + element : nullptr,
            lo ? lo + element : nullptr};
  }
};

// Bytes of files that may have been read ahead.
class StoredBytes {
 public:
  virtual ~StoredBytes() = default;
  // The bytes [offset, offset + bytes) of the file: in `room`, or elsewhere until the next call.
  // Throws as File::read_at does.
  virtual const void* get(const File& file, int64_t offset, int64_t bytes, void* room) = 0;
};

// A tensor of an open file; FP8 ones with their scales.
struct StoredTensor {
  const File* file = nullptr;
  const TensorEntry* entry = nullptr;
  const File* scale_file = nullptr;
  const TensorEntry* scales = nullptr;
  Fp8Blocks blocks = {};
  StoredBytes* ahead = nullptr;  // null: from the file
};

// Elements [first, first + count) of a parameter. Memory: 320 KiB on the stack, 2 MiB more where
// the file has the transpose. A range of whole rows of it is read much faster then.
void read_elements(const StoredTensor& tensor, const Parameter& parameter, int64_t first,
                   int64_t count, const Planes& planes);

}  // namespace strata::model
