// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/attention.h"
#include "kernels/typed.h"

// The tiles of attention, and their places in a thread's workspace.
namespace strata::kernels::cpu {

constexpr int64_t kTile = 64;  // queries and keys of a tile

// Queries of a tile follow each other in the sequence, so a tile is within a piece of the rank's
// tokens; so are its keys.
struct QueryTile {
  int64_t token;    // first, of this rank's tokens of the sequence
  int64_t query;    // its position
  int64_t queries;  // at most kTile
};

template <typename Op>
int64_t tiles_of_piece(const Op& op) {
  return ceil_div(op.context.piece(op.length), kTile);
}
template <typename Op>
int64_t query_tiles(const Op& op) {
  return op.length / op.context.piece(op.length) * tiles_of_piece(op);
}
template <typename Op>
QueryTile query_tile(const Op& op, int64_t index) {
  const int64_t piece = op.context.piece(op.length);
  const int64_t first = index % tiles_of_piece(op) * kTile;
  const int64_t token = index / tiles_of_piece(op) * piece + first;
  return {token, op.context.position(token, op.length), std::min(kTile, piece - first)};
}
// Keys of the tile from `key` on.
template <typename Op>
int64_t tile_keys(const Op& op, int64_t key) {
  const int64_t piece = op.context.piece(op.length);
  return std::min(kTile, piece - key % piece);
}

struct KeyTile {
  int64_t query;    // position of the first query
  int64_t queries;  // at most kTile
  int64_t key;
  int64_t keys;
  const int32_t* starts;  // of the documents of kTile queries
};

// Where the documents of a tile's queries start, kTile of them, which ascend.
struct DocumentStarts {
  template <typename Op>
  DocumentStarts(const Op& op, int64_t b, const QueryTile& tile) {
    for (int64_t i = 0; i < kTile && op.starts != nullptr; ++i) {
      at[i] = op.starts[b * op.length + tile.token + std::min(i, tile.queries - 1)];
    }
  }
  alignas(64) int32_t at[kTile] = {};
};

// Rows of vectors.
struct Rows {
  const float* data = nullptr;
  int64_t stride = 0;
};

// Sums of keys' gradients, of a sequence among `batch`.
struct KeySums {
  float* first = nullptr;
  int64_t stride = 0;
  int64_t sequence = 0;
  int64_t batch = 1;

  template <typename Op>
  float* at(const Op& op, int64_t key) const {
    return first + op.context.key_row(sequence, batch, key, op.length) * stride;
  }
};

template <typename Op>
int64_t first_key_tile(const Op& op, int64_t query, const DocumentStarts& starts) {
  const int64_t seen = op.window == 0 ? 0 : query - op.window + 1;
  const int64_t first = std::max<int64_t>(starts.at[0], seen);
  return first - first % op.context.piece(op.length) % kTile;
}

// The rows themselves when they are whole vectors of 16, otherwise a copy padded with zeros.
inline Rows padded_rows(const float* from, int64_t stride, int64_t count, int64_t size,
                        float* copy) {
  if (size % 16 == 0) return {.data = from, .stride = stride};
  const int64_t padded = round_up(size, 16);
  for (int64_t r = 0; r < count; ++r) {
    std::copy_n(from + r * stride, size, copy + r * padded);
    std::fill(copy + r * padded + size, copy + (r + 1) * padded, 0.0f);
  }
  return {.data = copy, .stride = padded};
}

struct ForwardTiles {
  int64_t padded;  // head size in whole vectors
  float *qt, *s, *o, *v;
  float *largest, *total, *fade;
};

inline ForwardTiles forward_tiles(int64_t head_size, float* memory) {
  const int64_t padded = round_up(head_size, 16);
  const int64_t rows = kTile * padded;
  float* s = memory + 3 * rows;
  float* vectors = s + kTile * kTile;
  return {padded,
          memory,
          s,
          memory + rows,
          memory + 2 * rows,
          vectors,
          vectors + kTile,
          vectors + 2 * kTile};
}

inline int64_t forward_tile_bytes(int64_t head_size) {
  return (3 * kTile * round_up(head_size, 16) + kTile * kTile + 3 * kTile) * 4;
}

struct BackwardTiles {
  int64_t padded;
  float *qt, *d_ot, *q, *d_o, *k, *dq;
  float *s, *dp;
  float *lse, *delta;
};

inline BackwardTiles backward_tiles(int64_t head_size, float* memory) {
  const int64_t padded = round_up(head_size, 16);
  const int64_t rows = kTile * padded;
  float* s = memory + 6 * rows;
  float* vectors = s + 2 * kTile * kTile;
  return {padded,
          memory,
          memory + rows,
          memory + 2 * rows,
          memory + 3 * rows,
          memory + 4 * rows,
          memory + 5 * rows,
          s,
          s + kTile * kTile,
          vectors,
          vectors + kTile};
}

inline int64_t backward_tile_bytes(int64_t head_size) {
  return (6 * kTile * round_up(head_size, 16) + 2 * kTile * kTile + 2 * kTile) * 4;
}

// The number of parts, each a task of the backward pass, that the query heads of a kv head are
// split into. There is more than one part only when there are few kv heads, because each part then
// has its own dk and dv, which must be summed afterwards.
constexpr int64_t kWantedTasks = 8;

template <typename Op>
int64_t splits_of(const Op& op) {
  return op.batch * op.kv_heads >= kWantedTasks ? 1 : op.heads / op.kv_heads;
}

// The rows that backward reads and writes for one query tile of one head.
struct QueryRows {
  const float *q, *o, *d_o, *lse;
  float* dq;
  int64_t q_stride, o_stride, d_o_stride, dq_stride;
};

inline QueryRows query_rows(const AttentionBackward& op, int64_t b, int64_t h, int64_t token) {
  const int64_t dense = op.heads * op.head_size;
  const int64_t row = b * op.length + token;
  const int64_t col = h * op.head_size;
  QueryRows rows = {};
  rows.q_stride = stride_or(op.q_stride, dense);
  rows.o_stride = stride_or(op.o_stride, dense);
  rows.d_o_stride = stride_or(op.d_o_stride, dense);
  rows.dq_stride = stride_or(op.dq_stride, dense);
  rows.q = op.q + row * rows.q_stride + col;
  rows.o = op.o + row * rows.o_stride + col;
  rows.d_o = op.d_o + row * rows.d_o_stride + col;
  rows.dq = op.dq + row * rows.dq_stride + col;
  rows.lse = op.lse + (b * op.heads + h) * op.length + token;
  return rows;
}

}  // namespace strata::kernels::cpu
