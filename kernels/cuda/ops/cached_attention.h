// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cached_attention.h"
#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/sizes.h"

// Attention over a cache. The positions that a query sees are cut into parts of kPartPositions,
// counted from the first one. A block takes one part for one head of one token, and a second kernel
// adds the parts. So a long cache is read by many blocks, and the order of every sum depends on the
// token's position, the window and the head size alone.
namespace strata::kernels::cuda {

// The cache: [rows, kv_heads, tiles] of keys [width / kPack, kCacheTile, kPack], so that threads
// with adjacent positions load adjacent packs, and values [kCacheTile, width].
struct CacheLayout {
  int64_t kv_heads, tiles;
  int64_t width;  // head size in whole packs; elements beyond the head size are zero

  STRATA_HOST_DEVICE int64_t tile_at(int64_t row, int64_t kv, int64_t tile) const {
    return ((row * kv_heads + kv) * tiles + tile) * 2 * kCacheTile * width;
  }
  // Within a tile.
  STRATA_HOST_DEVICE int64_t key_at(int64_t slot, int64_t col) const {
    return col * kCacheTile + slot * kPack;
  }
  STRATA_HOST_DEVICE int64_t value_at(int64_t slot, int64_t col) const {
    return (kCacheTile + slot) * width + col;
  }
};

// Puts the new keys and values into the cache; `index` counts the key heads of all tokens.
template <typename Stored, bool kWhole>
struct AppendPack {
  const Stored* k;
  const Stored* v;
  Stored* cache;
  const int32_t* row;
  const int32_t* position;
  CacheLayout layout;
  int64_t rows, head_size, k_stride, v_stride;
  STRATA_HOST_DEVICE void operator()(int64_t index, int64_t col) const {
    const int64_t token = index / layout.kv_heads, kv = index % layout.kv_heads;
    const int64_t at = position[token];
    STRATA_KERNEL_CHECK(row[token] >= 0 && row[token] < rows && at >= 0);
    const int64_t left = head_size - col, slot = at % kCacheTile;
    Stored* tile = cache + layout.tile_at(row[token], kv, at / kCacheTile % layout.tiles);
    const auto* key = k + token * k_stride + kv * head_size + col;
    const auto* value = v + token * v_stride + kv * head_size + col;
    store_pack<kWhole>(tile + layout.key_at(slot, col), kPack, load_pack<kWhole>(key, left));
    store_pack<kWhole>(tile + layout.value_at(slot, col), kPack, load_pack<kWhole>(value, left));
  }
};

// The positions that a token sees, and those of one part of them.
struct SeenPositions {
  const int32_t* position;
  int64_t window;
  STRATA_HOST_DEVICE int64_t first(int64_t token) const {
    const int64_t first = position[token] - window + 1;
    return window == 0 || first < 0 ? 0 : first;
  }
  STRATA_HOST_DEVICE int64_t parts(int64_t token) const {
    return (position[token] - first(token)) / kPartPositions + 1;
  }
  STRATA_HOST_DEVICE int64_t begin(int64_t token, int64_t part) const {
    return first(token) + part * kPartPositions;
  }
  STRATA_HOST_DEVICE int count(int64_t token, int64_t part) const {
    const int64_t left = position[token] + 1 - begin(token, part);
    return static_cast<int>(left < kPartPositions ? left : kPartPositions);
  }
};

// What a part leaves for its head of its token: a pack with the largest score and the sum of
// exp(s - largest), and then [width] sums of exp(s - largest) * value.
struct PartResults {
  float* data;
  int64_t parts, floats;
  STRATA_HOST_DEVICE float* at(int64_t item, int64_t part) const {
    return data + (item * parts + part) * floats;
  }
};

// Block `index` takes part index / items of item index % items: so blocks that run together read
// the same keys for the query heads of a key head. Items are heads of tokens.
template <typename I, bool kWhole>
struct AttendPart {
  static constexpr int kScratch = 3;  // an f32 score and an f32 pack for each thread
  const typename I::Stored* q;
  const typename I::Stored* cache;
  const int32_t* row;
  SeenPositions seen;
  CacheLayout layout;
  PartResults results;
  int64_t first_item, items, heads, head_size, q_stride;
  float scale, cap;

  // Where keys and values of a part lie.
  struct Part {
    const typename I::Stored* cache;  // of the row and the key head
    int64_t tile, slot;               // of the first position
    int count;
  };

  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t index) const {
    const int64_t item = index % items, number = index / items;
    const int64_t token = (first_item + item) / heads, head = (first_item + item) % heads;
    if (number >= seen.parts(token)) return;
    const int64_t kv = head / (heads / layout.kv_heads), begin = seen.begin(token, number);
    const Part part = {cache + layout.tile_at(row[token], kv, 0), begin / kCacheTile % layout.tiles,
                       begin % kCacheTile, seen.count(token, number)};
    const auto* query = q + token * q_stride + head * head_size;
    float* result = results.at(item, number);
    float* shares = reinterpret_cast<float*>(block.scratch);
    const float largest = block.reduce(
        [&](int thread) {
          shares[thread] = thread < part.count ? score(part, query, thread) : -INFINITY;
          return shares[thread];
        },
        Largest());
    const float total = block.reduce(
        [&](int thread) {
          shares[thread] = thread < part.count ? expf(shares[thread] - largest) : 0.0f;
          return shares[thread];
        },
        Sum());
    block.each([&](int thread) {
      if (thread == 0) store_pack<true>(result, kPack, Four{{largest, total, 0.0f, 0.0f}});
    });
    add_values(block, part, shares, result + kPack);
  }

  // The packs of a value in passes of up to `threads` packs: threads that share a pack take every
  // positions in turn, and the sums of these threads are added in ascending order.
  template <typename Block>
  STRATA_HOST_DEVICE void add_values(Block& block, const Part& part, float* shares,
                                     float* sums) const {
    const int threads = block.threads;
    const int64_t packs = layout.width / kPack;
    const int width = packs < threads ? static_cast<int>(packs) : threads;
    const int sharing = threads / width;
    float* parts = shares + threads;
    for (int64_t pass = 0; pass < packs; pass += width) {
      block.each([&](int thread) {
        const int64_t pack = pass + thread % width;
        if (thread / width >= sharing || pack >= packs) return;
        Four sum = {};
        STRATA_UNROLL_4
        for (int i = thread / width; i < part.count; i += sharing) {
          const Four value = load_four<I, kWhole>(value_of(part, i) + pack * kPack, kPack);
          for (int j = 0; j < kPack; ++j) sum.at[j] += shares[i] * value.at[j];
        }
        for (int j = 0; j < kPack; ++j) parts[j * threads + thread] = sum.at[j];
      });
      block.each([&](int thread) {
        const int64_t pack = pass + thread;
        if (thread >= width || pack >= packs) return;
        Four sum = {};
        for (int from = thread; from < sharing * width; from += width) {
          for (int j = 0; j < kPack; ++j) sum.at[j] += parts[j * threads + from];
        }
        store_pack<true>(sums + pack * kPack, kPack, sum);
      });
    }
  }

  STRATA_HOST_DEVICE const typename I::Stored* tile_of(const Part& part, int64_t slot) const {
    int64_t tile = part.tile + slot / kCacheTile;
    while (tile >= layout.tiles) tile -= layout.tiles;
    return part.cache + tile * 2 * kCacheTile * layout.width;
  }
  STRATA_HOST_DEVICE const typename I::Stored* value_of(const Part& part, int i) const {
    const int64_t slot = part.slot + i;
    return tile_of(part, slot) + layout.value_at(slot % kCacheTile, 0);
  }
  STRATA_HOST_DEVICE float score(const Part& part, const typename I::Stored* query, int i) const {
    const int64_t slot = part.slot + i;
    const auto* keys = tile_of(part, slot) + layout.key_at(slot % kCacheTile, 0);
    Four sum = {};
    STRATA_UNROLL_4
    for (int64_t col = 0; col < head_size; col += kPack) {
      const Four left = load_four<I, kWhole>(query + col, head_size - col);
      const Four right = load_four<I, kWhole>(keys + layout.key_at(0, col), kPack);
      for (int j = 0; j < kPack; ++j) sum.at[j] += left.at[j] * right.at[j];
    }
    const float s = scale * (sum.at[0] + sum.at[1] + (sum.at[2] + sum.at[3]));
    return cap > 0.0f ? cap * tanhf(s / cap) : s;
  }
};

// o from the parts of an item.
template <typename I, bool kWhole>
struct AddParts {
  typename I::Stored* o;
  SeenPositions seen;
  PartResults results;
  int64_t first_item, heads, head_size, o_stride;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t item) const {
    const int64_t token = (first_item + item) / heads, head = (first_item + item) % heads;
    const int64_t parts = seen.parts(token);
    const float largest = block.reduce(
        [&](int thread) {
          float most = -INFINITY;
          for (int64_t part = thread; part < parts; part += block.threads) {
            most = Largest()(most, results.at(item, part)[0]);
          }
          return most;
        },
        Largest());
    // The first element becomes the factor of the part.
    const float total = block.reduce(
        [&](int thread) {
          float sum = 0.0f;
          for (int64_t part = thread; part < parts; part += block.threads) {
            float* result = results.at(item, part);
            result[0] = expf(result[0] - largest);
            sum += result[0] * result[1];
          }
          return sum;
        },
        Sum());
    auto* to = o + token * o_stride + head * head_size;
    block.each([&](int thread) {
      each_pack(thread, block.threads, head_size, [&](int64_t col) {
        Four sum = {};
        STRATA_UNROLL_4
        for (int64_t part = 0; part < parts; ++part) {
          const float* result = results.at(item, part);
          const Four term = load_pack<true>(result + kPack + col, kPack);
          for (int i = 0; i < kPack; ++i) sum.at[i] += result[0] * term.at[i];
        }
        for (int i = 0; i < kPack; ++i) sum.at[i] /= total;
        store_four<I, kWhole>(to + col, head_size - col, sum);
      });
    });
  }
};

template <typename On>
void cached_attention(On& on, const CachedAttention& op) {
  STRATA_CHECK(op.tokens > 0 && op.heads > 0 && op.kv_heads > 0 && op.heads % op.kv_heads == 0);
  STRATA_CHECK(op.head_size > 0 && op.window >= 0 && op.cap >= 0.0f && op.rows > 0);
  STRATA_CHECK(op.positions > 0 && op.positions % kCacheTile == 0);
  const CachedParts parts = cached_parts(op);
  STRATA_CHECK(op.workspace.bytes >= parts.bytes);
  const int64_t size = op.head_size, items = op.tokens * op.heads;
  const int64_t q_stride = stride_or(op.q_stride, op.heads * size);
  const int64_t k_stride = stride_or(op.k_stride, op.kv_heads * size);
  const int64_t v_stride = stride_or(op.v_stride, op.kv_heads * size);
  const int64_t o_stride = stride_or(op.o_stride, op.heads * size);
  const CacheLayout layout = {op.kv_heads, op.positions / kCacheTile,
                              round_up(size, int64_t{kPack})};
  const SeenPositions seen = {op.position, op.window};
  const PartResults results = {reinterpret_cast<float*>(op.workspace.data), parts.parts,
                               parts.floats};
  with_inside(op.o.dtype, [&](auto i) {
    using I = decltype(i);
    const auto* q = elements<I>(op.q.data);
    const auto* k = elements<I>(op.k.data);
    const auto* v = elements<I>(op.v.data);
    auto* o = elements<I>(op.o.data);
    auto* cache = elements<I>(op.cache.data);
    const bool whole = size % kPack == 0 && is_packed(q, q_stride) && is_packed(k, k_stride) &&
                       is_packed(v, v_stride) && is_packed(o, o_stride) && is_packed(cache);
    with_flag(whole, [&](auto flag) {
      constexpr bool kWhole = decltype(flag)::value;
      on.grid(op.tokens * op.kv_heads, size,
              AppendPack<typename I::Stored, kWhole>{k, v, cache, op.row, op.position, layout,
                                                     op.rows, size, k_stride, v_stride});
      for (int64_t first = 0; first < items; first += parts.items) {
        const int64_t some = std::min(parts.items, items - first);
        on.blocks(some * parts.parts, kPartPositions,
                  AttendPart<I, kWhole>{q, cache, op.row, seen, layout, results, first, some,
                                        op.heads, size, q_stride, op.scale, op.cap});
        on.blocks(some, threads_for(size, 1, kPartPositions),
                  AddParts<I, kWhole>{o, seen, results, first, op.heads, size, o_stride});
      }
    });
  });
}

}  // namespace strata::kernels::cuda
