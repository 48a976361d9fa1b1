// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/cached_attention.h"
#include "kernels/typed.h"

// How the cpu backend lays out the cache: [rows, kv_heads, tiles] of keys [D, kCacheTile], so that
// a vector has one element of 16 keys, and values [kCacheTile, D in whole vectors].
namespace strata::kernels::cpu {

constexpr int64_t kCacheQueries = 6;  // that go over the cache together

struct CacheTile {
  float* keys;
  float* values;
};

constexpr int64_t cache_tile_floats(int64_t head_size) {
  return kCacheTile * 2 * round_up(head_size, 16);
}

inline int64_t cache_floats(const CachedAttention& op) {
  return op.rows * op.kv_heads * (op.positions / kCacheTile) * cache_tile_floats(op.head_size);
}

// The tile that begins at `position`.
inline CacheTile tile_at(const CachedAttention& op, int64_t row, int64_t kv, int64_t position) {
  const int64_t tiles = op.positions / kCacheTile;
  const int64_t index = (row * op.kv_heads + kv) * tiles + position / kCacheTile % tiles;
  float* cache = op.cache;
  float* keys = cache + index * cache_tile_floats(op.head_size);
  return {keys, keys + kCacheTile * round_up(op.head_size, 16)};
}

// Adjacent tokens of one row, and a kv head.
struct TokenRun {
  int64_t first;
  int64_t count;
  int64_t kv;
};

// Their places in a thread's workspace.
struct QueryTiles {
  int64_t padded;  // head size in whole vectors
  float *s, *o, *q;
};

inline QueryTiles query_tiles(int64_t head_size, float* memory) {
  const int64_t padded = round_up(head_size, 16);
  float* o = memory + kCacheQueries * kCacheTile;
  return {padded, memory, o, o + kCacheQueries * padded};
}

inline int64_t query_tile_bytes(int64_t head_size) {
  return kCacheQueries * (kCacheTile + 2 * round_up(head_size, 16)) * 4;
}

}  // namespace strata::kernels::cpu
