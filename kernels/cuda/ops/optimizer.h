// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/adamw.h"
#include "kernels/cuda/ops/launch.h"
#include "kernels/cuda/sizes.h"
#include "kernels/sum_squares.h"

// AdamW and the sum of squares, with the bits of every other backend.
namespace strata::kernels::cuda {

template <bool kSplit, bool kWhole>
struct AdamWPack {
  AdamW op;
  float* next_exp_avg_sq;

  STRATA_HOST_DEVICE void operator()(int64_t, int64_t at) const {
    const int64_t left = op.count - at;
    const AdamWScalars& s = op.scalars;
    const Four grad = load_pack<kWhole>(op.grad + at, left);
    Four master = load_master(at, left);
    Four exp_avg = load_pack<kWhole>(op.exp_avg + at, left);
    Four exp_avg_sq = load_pack<kWhole>(op.exp_avg_sq + at, left);
    for (int i = 0; i < kPack; ++i) {
      const float g = exact_mul(grad.at[i], s.grad_coefficient);
      float p = exact_mul(master.at[i], s.decay);
      const float m0 = exp_avg.at[i];
      const float m = exact_add(m0, exact_mul(exact_add(g, -m0), s.one_minus_beta1));
      const float v = exact_add(exact_mul(exp_avg_sq.at[i], s.beta2),
                                exact_mul(exact_mul(g, s.one_minus_beta2), g));
      const float d = exact_add(exact_div(exact_sqrt(v), s.denominator_scale), s.eps);
      p = exact_add(p, exact_div(exact_mul(m, s.minus_step_size), d));
      master.at[i] = p;
      exp_avg.at[i] = canonical(m);
      exp_avg_sq.at[i] = canonical(v);
    }
    store_pack<kWhole>(op.exp_avg + at, left, exp_avg);
    store_pack<kWhole>(next_exp_avg_sq + at, left, exp_avg_sq);
    store_master(at, left, master);
  }

  STRATA_HOST_DEVICE Four load_master(int64_t at, int64_t left) const {
    if constexpr (kSplit) {
      const auto hi = load_pack<kWhole>(op.hi + at, left), lo = load_pack<kWhole>(op.lo + at, left);
      Four master;
      for (int i = 0; i < kPack; ++i) master.at[i] = join_master(hi.at[i], lo.at[i]);
      return master;
    } else {
      return load_pack<kWhole>(op.master + at, left);
    }
  }

  STRATA_HOST_DEVICE void store_master(int64_t at, int64_t left, Four master) const {
    if constexpr (kSplit) {
      Pack<uint16_t> hi, lo;
      for (int i = 0; i < kPack; ++i) {
        const SplitMaster split = split_master(master.at[i]);
        hi.at[i] = split.hi;
        lo.at[i] = split.lo;
      }
      store_pack<kWhole>(op.hi + at, left, hi);
      store_pack<kWhole>(op.lo + at, left, lo);
    } else {
      for (int i = 0; i < kPack; ++i) master.at[i] = canonical(master.at[i]);
      store_pack<kWhole>(op.master + at, left, master);
      if (op.hi == nullptr) return;
      Pack<uint16_t> hi;
      for (int i = 0; i < kPack; ++i) hi.at[i] = to_f16(master.at[i]);
      store_pack<kWhole>(op.hi + at, left, hi);
    }
  }
};

// The ranges of a call, of which each has `blocks` sums.
struct Ranges {
  int64_t count, part, blocks;
  STRATA_HOST_DEVICE int64_t begin(int64_t index) const {
    return index / blocks * part + index % blocks * kSumSquaresBlock;
  }
  STRATA_HOST_DEVICE int64_t end(int64_t index) const {
    int64_t end = (index / blocks + 1) * part;
    if (count < end) end = count;
    const int64_t block = begin(index) + kSumSquaresBlock;
    return block < end ? block : end;
  }
};

// The sums of kSquaresPerBlock blocks of kSumSquaresBlock elements each. All threads of a block
// load tiles of them, so that enough loads are in flight; 16 threads add the elements of a sum: the
// specified order allows no more.
inline constexpr int kSquaresLanes = 16, kSquaresPerBlock = 8, kSquaresTile = 1024;
template <bool kWhole>
struct SumSquaresBlocks {
  static constexpr int kAdding = kSquaresLanes * kSquaresPerBlock;
  static constexpr int kRow = kSquaresTile + kSquaresLanes;  // two sums use different banks
  static constexpr int kScratch = ceil_div(kRow * kSquaresPerBlock / 2, kThreadsMax);
  static constexpr int kPacksOfRow = kSquaresTile / kPack;
  static constexpr int kPacks = kPacksOfRow * kSquaresPerBlock / kThreadsMax;  // of a thread
  static_assert(kPacksOfRow * kSquaresPerBlock == kPacks * kThreadsMax);
  static_assert(kSumSquaresBlock % kSquaresTile == 0);

  const float* x;
  Ranges ranges;
  int64_t all;  // sums
  double* sums;

  // What one of the packs that a thread loads of each tile is part of.
  struct Place {
    int64_t begin, end;  // of elements, from the pack on
  };

  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t index) const {
    auto places = block.template keep<Place, kPacks>();
    auto added = block.template keep<double, 1>();
    auto* tile = reinterpret_cast<float*>(block.scratch);
    block.each_alone([&](int thread) {
      STRATA_UNROLL
      for (int j = 0; j < kPacks; ++j) {
        const int pack = j * kThreadsMax + thread;
        const int64_t at = index * kSquaresPerBlock + pack / kPacksOfRow;
        const int64_t begin = ranges.begin(at) + pack % kPacksOfRow * kPack;
        places.of(thread)[j] = {begin, at < all ? ranges.end(at) : begin};
      }
    });
    const int64_t longest = ranges.part < kSumSquaresBlock ? ranges.part : kSumSquaresBlock;
    for (int64_t from = 0; from < longest; from += kSquaresTile) {
      block.each([&](int thread) { load(places.of(thread), from, thread, tile); });
      block.each([&](int thread) {
        if (thread < kAdding) add(tile, thread, *added.of(thread));
      });
    }
    block.each([&](int thread) {
      if (thread < kAdding) block.scratch[thread] = *added.of(thread);
    });
    for (int width = kSquaresLanes / 2; width >= 1; width /= 2) {
      block.each([&](int thread) {
        if (thread < kAdding && thread % kSquaresLanes < width) {
          block.scratch[thread] += block.scratch[thread + width];
        }
      });
    }
    block.each([&](int thread) {
      const int64_t at = index * kSquaresPerBlock + thread / kSquaresLanes;
      if (thread < kAdding && thread % kSquaresLanes == 0 && at < all) {
        sums[at] = block.scratch[thread];
      }
    });
  }

  // Elements beyond the end of a sum are zeros, whose squares change no bit of it.
  STRATA_HOST_DEVICE void load(const Place* places, int64_t from, int thread, float* tile) const {
    Four values[kPacks];
    STRATA_UNROLL
    for (int j = 0; j < kPacks; ++j) {
      const int64_t at = places[j].begin + from, left = places[j].end - at;
      values[j] = left >= kPack ? load_pack<kWhole>(x + at, left) : load_pack<false>(x + at, left);
    }
    STRATA_UNROLL
    for (int j = 0; j < kPacks; ++j) {
      const int pack = j * kThreadsMax + thread;
      float* to = tile + pack / kPacksOfRow * kRow + pack % kPacksOfRow * kPack;
      store_pack<true>(to, kPack, values[j]);
    }
  }

  STRATA_HOST_DEVICE static void add(const float* tile, int thread, double& sum) {
    const float* lane = tile + thread / kSquaresLanes * kRow + thread % kSquaresLanes;
    STRATA_UNROLL_4
    for (int i = 0; i < kSquaresTile; i += kSquaresLanes) sum += double{lane[i]} * lane[i];
  }
};

// Blocks beyond the end of the last range have the sum 0, which changes no bit.
struct SumSquaresTotal {
  static constexpr int kScratch = 1;
  const double* sums;
  int64_t blocks;
  SquaresPartial* out;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t range) const {
    sum_in_order(
        block, 0.0, blocks, [&](int64_t i) { return sums[range * blocks + i]; },
        [&](double sum) {
          out[range] = {sum, sum - sum == 0.0 ? 0.0 : 1.0};
        });
  }
};

template <typename On>
void adamw(On& on, const AdamW& op) {
  STRATA_CHECK(is_adamw(op));
  float* next = op.next_exp_avg_sq ? op.next_exp_avg_sq : op.exp_avg_sq;
  const bool whole = op.count % kPack == 0 && is_packed(op.hi) && is_packed(op.lo) &&
                     is_packed(op.master) && is_packed(op.exp_avg) && is_packed(op.exp_avg_sq) &&
                     is_packed(next) && is_packed(op.grad);
  with_flag(op.lo != nullptr, [&](auto split_flag) {
    with_flag(whole, [&](auto flag) {
      on.grid(1, op.count, AdamWPack<decltype(split_flag)::value, decltype(flag)::value>{op, next});
    });
  });
}

template <typename On>
void sum_squares(On& on, const SumSquares& op) {
  STRATA_CHECK(op.workspace.bytes >= bytes_needed(op, DType::kF32));
  const int64_t blocks = blocks_of_range(op), all = ranges_of(op) * blocks;
  double* sums = reinterpret_cast<double*>(op.workspace.data);
  const Ranges ranges = {op.count, range_numel(op), blocks};
  if (all > 0) {
    const bool whole = is_packed(op.x, ranges_of(op) > 1 ? ranges.part : 0);
    with_flag(whole, [&](auto flag) {
      on.blocks(ceil_div(all, kSquaresPerBlock), kThreadsMax,
                SumSquaresBlocks<decltype(flag)::value>{op.x, ranges, all, sums});
    });
  }
  on.blocks(ranges_of(op), threads_for(blocks, 1, kThreadsMax),
            SumSquaresTotal{sums, blocks, op.out});
}

}  // namespace strata::kernels::cuda
