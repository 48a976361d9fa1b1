// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/ops/launch.h"

// The rows between the products of attention: a block takes one query row of one head of a tile.
namespace strata::kernels::cuda {

// A tile: query rows [row, row + rows) of one sequence against keys [key, key + keys), for the
// query heads group_head, group_head + heads / kv_heads, ... (one of each key head).
struct AttentionTile {
  int64_t batch, group_head, row, rows, key, keys;
  int64_t stride;  // elements between rows of scores
};

// What the kernels of both directions know of a tile. Block `index` has key head index / rows.
struct TileRows {
  AttentionTile tile;
  int64_t length, heads, group, window;
  const int32_t* starts;  // may be null
  float scale, cap;

  STRATA_HOST_DEVICE int64_t row(int64_t index) const { return tile.row + index % tile.rows; }
  STRATA_HOST_DEVICE int64_t head(int64_t index) const {
    return index / tile.rows * group + tile.group_head;
  }
  // Of the tile's keys, those that the row sees: [first, end).
  STRATA_HOST_DEVICE int64_t first(int64_t row) const {
    int64_t key = starts == nullptr ? 0 : starts[tile.batch * length + row];
    if (window > 0 && row - window + 1 > key) key = row - window + 1;
    return key > tile.key ? key - tile.key : 0;
  }
  STRATA_HOST_DEVICE int64_t end(int64_t row) const { return row + 1 - tile.key; }
  STRATA_HOST_DEVICE int64_t lse_at(int64_t index) const {
    return (tile.batch * heads + head(index)) * length + row(index);
  }
  STRATA_HOST_DEVICE float score(float product) const {
    const float s = scale * product;
    return cap > 0.0f ? cap * tanhf(s / cap) : s;
  }
};

// p = exp(s - lse) and lse; p may lie over the products. Keys that the row does not see get 0.
template <typename I>
struct SoftmaxRow {
  TileRows rows;
  const float* products;
  typename I::Stored* p;
  float* lse;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t index) const {
    const int64_t row = rows.row(index), first = rows.first(row), end = rows.end(row);
    const float* from = products + index * rows.tile.stride;
    const float largest = block.reduce(
        [&](int thread) {
          float most = -INFINITY;
          for (int64_t j = first + thread; j < end; j += block.threads) {
            most = Largest()(most, rows.score(from[j]));
          }
          return most;
        },
        Largest());
    const float sum = block.reduce(
        [&](int thread) {
          float total = 0.0f;
          for (int64_t j = first + thread; j < end; j += block.threads) {
            total += expf(rows.score(from[j]) - largest);
          }
          return total;
        },
        Sum());
    const float share = 1.0f / sum;
    block.each([&](int thread) {
      if (thread == 0) lse[rows.lse_at(index)] = largest + logf(sum);
      for (int64_t j = thread; j < rows.tile.keys; j += block.threads) {
        const bool seen = j >= first && j < end;
        const float value = seen ? expf(rows.score(from[j]) - largest) * share : 0.0f;
        p[index * rows.tile.stride + j] = I::store(value);
      }
    });
  }
};

// p from the products and lse; ds from p and dp = do·v, each over what it is made from or apart.
template <typename I>
struct SoftmaxGradientRow {
  TileRows rows;
  const float* products;
  const float* dp;
  typename I::Stored* p;
  typename I::Stored* ds;
  const float* lse;
  const typename I::Stored* o;
  const typename I::Stored* d_o;
  int64_t o_stride, d_o_stride, head_size;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t index) const {
    const int64_t row = rows.row(index), first = rows.first(row), end = rows.end(row);
    const int64_t token = rows.tile.batch * rows.length + row;
    const auto* o_row = o + token * o_stride + rows.head(index) * head_size;
    const auto* d_o_row = d_o + token * d_o_stride + rows.head(index) * head_size;
    const float delta = block.reduce(
        [&](int thread) {
          float sum = 0.0f;
          for (int64_t d = thread; d < head_size; d += block.threads) {
            sum += I::load(o_row[d]) * I::load(d_o_row[d]);
          }
          return sum;
        },
        Sum());
    const float shift = lse[rows.lse_at(index)];
    block.each([&](int thread) {
      for (int64_t j = thread; j < rows.tile.keys; j += block.threads) {
        const int64_t at = index * rows.tile.stride + j;
        float share = 0.0f, change = 0.0f;
        if (j >= first && j < end) {
          const float s = rows.score(products[at]);
          const float part = rows.cap > 0.0f ? s / rows.cap : 0.0f;
          share = expf(s - shift);
          change = share * (dp[at] - delta) * (1.0f - part * part) * rows.scale;
        }
        p[at] = I::store(share);
        ds[at] = I::store(change);
      }
    });
  }
};

}  // namespace strata::kernels::cuda
