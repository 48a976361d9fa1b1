// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

// Token embedding.
//
//   forward   out[r, :] = scale * w[tokens[r], :]
//   backward  dw[v, :] (+)= sum of scale * dy[r, :] over the rows r with tokens[r] == v, ascending;
//             nothing is added for v == ignored
//
// Where ranks have parts of the vocabulary, a rank's rows of w are those from `first` on; a token
// of another part has zeros in `out` and adds nothing to dw.
//
//   tokens  [N]     i32  in    each in [0, vocabulary_end), or in [0, V) where that is 0: checked
//                              before anything is written
//   w       [V, C]  T    in    T = f32, bf16 or f16, dense
//   out     [N, C]  T    out
//   dy      [N, C]  T    in
//   dw      [V, C]  f32  out   without `accumulate`, rows of absent tokens become zero
//   N = rows, C = cols, V = vocabulary; products are rounded to f32 before sums and to T
//
// Deterministic: parallel over columns, so a sum has one order. The roof is memory bandwidth.
namespace strata::kernels {

// The own row of a token, or -1.
template <typename Op>
constexpr int64_t own_row(const Op& op, int32_t token) {
  const int64_t row = token - op.first;
  return row >= 0 && row < op.vocabulary ? row : -1;
}
template <typename Op>
constexpr bool is_token(const Op& op, int32_t token) {
  return token >= 0 && token < (op.vocabulary_end > 0 ? op.vocabulary_end : op.vocabulary);
}

struct EmbeddingForward {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t vocabulary = 0;
  int64_t first = 0;
  int64_t vocabulary_end = 0;
  float scale = 1.0f;
  const int32_t* tokens = nullptr;
  const void* w = nullptr;
  void* out = nullptr;
};

struct EmbeddingBackward {
  DType dtype = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t vocabulary = 0;
  int64_t first = 0;
  int64_t vocabulary_end = 0;
  float scale = 1.0f;
  int32_t ignored = -1;
  const int32_t* tokens = nullptr;
  const void* dy = nullptr;
  float* dw = nullptr;
  bool accumulate = false;
};

}  // namespace strata::kernels
