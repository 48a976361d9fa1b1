// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/interior.h"
#include "kernels/workspace.h"

// Causal grouped-query attention of new tokens over a cache of keys and values, which it extends.
//
//   first    k[i], v[i] go into the cache, at position[i] of row[i], for all i < n
//   then     s[i,j] = scale * q[i]·key(row[i], j) for the positions j <= position[i] of that row
//            (window > 0: and j > position[i] - window); cap > 0: s = cap * tanh(s / cap)
//            o[i] = sum_j softmax_j(s[i,j]) * value(row[i], j)
//
//   q, o      [n, H, D]  I     heads dense within a token; *_stride elements between tokens,
//   k, v      [n, K, D]  I     0 = dense
//   row       [n]        i32   in [0, rows)
//   position  [n]        i32   tokens of one row are adjacent, and their positions ascend by one
//   cache     cache_bytes()    in, out; its layout is the backend's own
//   n = tokens, H = heads, K = kv_heads, H % K == 0, D = head_size
//   query head h reads kv head h / (H/K)
//
// The cache holds `positions` positions of each row, a multiple of kCacheTile: position p replaces
// p - positions. So positions >= window + n - 1, or no position is beyond `positions`. The op reads
// what earlier calls put there; a row begins again at position 0, and what was there before is
// never read.
//
// Deterministic, and the bits of o[i] depend only on the q, k and v of its own row: not on how the
// tokens of a row are divided among calls, nor on other rows, nor on `rows`, `positions` or
// threads. Sums in f32. The roof is memory bandwidth for few tokens: the cached keys and values are
// read once for each row of a call.
namespace strata::kernels {

constexpr int64_t kCacheTile = 64;  // positions

struct CachedAttention {
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_size = 0;
  int64_t rows = 0;
  int64_t positions = 0;
  float scale = 1.0f;
  float cap = 0.0f;
  int64_t window = 0;
  const int32_t* row = nullptr;
  const int32_t* position = nullptr;
  ConstInterior q = {};
  int64_t q_stride = 0;
  ConstInterior k = {};
  int64_t k_stride = 0;
  ConstInterior v = {};
  int64_t v_stride = 0;
  Interior o = {};
  int64_t o_stride = 0;
  Interior cache = {};
  Workspace workspace = {};
};

// Bytes of the cache, from rows, positions, kv_heads, head_size and the type of an interior.
int64_t cache_bytes(const CachedAttention& op, DType interior);

int64_t workspace_bytes(const CachedAttention& op, int threads);

}  // namespace strata::kernels
