// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cross_entropy.h"
#include "kernels/cuda/ops/matmul.h"

// Output projection and cross entropy by chunks of rows: logits, then a block for each row's loss
// and gradient, then the products of the gradients.
namespace strata::kernels::cuda {

struct SumDouble {
  STRATA_HOST_DEVICE double operator()(double a, double b) const { return a + b; }
};

// Scores of all ranks, from the first row of a chunk on.
struct AllScores {
  const float* scores;  // null: the call has the whole vocabulary
  int ranks;
  int64_t rows;  // of the call

  STRATA_HOST_DEVICE const float* of(int rank, int64_t row) const {
    return scores + (rank * rows + row) * kScoresOfRow;
  }
  STRATA_HOST_DEVICE float largest(int64_t row) const {
    float most = -INFINITY;
    for (int rank = 0; rank < ranks; ++rank) most = Largest()(most, of(rank, row)[0]);
    return most;
  }
  STRATA_HOST_DEVICE double sum(int64_t row, float most) const {
    double total = 0.0;
    for (int rank = 0; rank < ranks; ++rank) {
      total += of(rank, row)[1] * std::exp(double{of(rank, row)[0]} - most);
    }
    return total;
  }
  STRATA_HOST_DEVICE float at_target(int64_t row) const {
    float at = 0.0f;
    for (int rank = 0; rank < ranks; ++rank) at += of(rank, row)[2];
    return at;
  }
};

template <typename Z, bool kWhole>
struct CrossEntropyRow {
  float* logits;           // [rows, V]
  typename Z::Stored* dz;  // [rows, V]; may lie over the logits; null: only the loss
  const int32_t* targets;
  double* losses;
  float* scores;  // [rows, 3]; null: losses instead
  AllScores all;
  int64_t vocabulary, first, end;
  float cap, grad_scale;

  STRATA_HOST_DEVICE float capped(float z) const { return cap > 0.0f ? cap * tanhf(z / cap) : z; }

  STRATA_HOST_DEVICE Four capped(const float* z, int64_t col) const {
    Four four = load_pack<kWhole>(z + col, vocabulary - col);
    for (int i = 0; i < kPack; ++i) four.at[i] = capped(four.at[i]);
    return four;
  }

  template <typename Block>
  STRATA_HOST_DEVICE float largest_of(Block& block, const float* z) const {
    return block.reduce(
        [&](int thread) {
          float most = -INFINITY;
          each_pack(thread, block.threads, vocabulary, [&](int64_t col) {
            const Four four = capped(z, col);
            for (int i = 0; i < kPack && col + i < vocabulary; ++i) {
              most = Largest()(most, four.at[i]);
            }
          });
          return most;
        },
        Largest());
  }

  template <typename Block>
  STRATA_HOST_DEVICE double sum_of(Block& block, const float* z, float largest) const {
    return block.reduce(
        [&](int thread) {
          double total = 0.0;
          each_pack(thread, block.threads, vocabulary, [&](int64_t col) {
            const Four four = capped(z, col);
            float part = 0.0f;
            for (int i = 0; i < kPack && col + i < vocabulary; ++i) {
              part += expf(four.at[i] - largest);
            }
            total += part;
          });
          return total;
        },
        SumDouble());
  }

  // One thread takes the exponentials in f64, which many devices compute slowly.
  template <typename Block>
  STRATA_HOST_DEVICE double sum_of_all(Block& block, int64_t row, float largest) const {
    return block.reduce([&](int thread) { return thread == 0 ? all.sum(row, largest) : 0.0; },
                        SumDouble());
  }

  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t row) const {
    STRATA_KERNEL_CHECK(targets[row] >= -1 && targets[row] < end);
    if (targets[row] < 0) return without_target(block, row);
    const int64_t target = targets[row] - first;  // not in [0, vocabulary): of another rank
    const float* z = logits + row * vocabulary;
    const bool given = all.scores != nullptr;
    const float largest = given ? all.largest(row) : largest_of(block, z);
    const double sum = given ? sum_of_all(block, row, largest) : sum_of(block, z, largest);
    block.each([&](int thread) {
      if (thread != 0) return;
      store_results(row, largest, sum, given ? all.at_target(row) : at_target(z, target));
    });
    if (dz == nullptr) return;
    const auto share = static_cast<float>(1.0 / sum);
    block.each([&](int thread) {
      each_pack(thread, block.threads, vocabulary, [&](int64_t col) {
        Four four = capped(z, col);
        for (int i = 0; i < kPack; ++i) {
          const float part = cap > 0.0f ? four.at[i] / cap : 0.0f;
          const float hit = col + i == target ? 1.0f : 0.0f;
          const float change = expf(four.at[i] - largest) * share - hit;
          four.at[i] = grad_scale * change * (1.0f - part * part);
        }
        store_four<Z, kWhole>(dz + row * vocabulary + col, vocabulary - col, four);
      });
    });
  }

  STRATA_HOST_DEVICE float at_target(const float* z, int64_t target) const {
    return target >= 0 && target < vocabulary ? capped(z[target]) : 0.0f;
  }

  STRATA_HOST_DEVICE void store_results(int64_t row, float largest, double sum, float at) const {
    if (scores == nullptr) {
      losses[row] = std::log(sum) + (double{largest} - at);
      return;
    }
    float* to = scores + row * kScoresOfRow;
    to[0] = largest;
    to[1] = static_cast<float>(sum);
    to[2] = at;
  }

  template <typename Block>
  STRATA_HOST_DEVICE void without_target(Block& block, int64_t row) const {
    block.each([&](int thread) {
      if (thread == 0) {
        losses[row] = 0.0;
        for (int i = 0; scores != nullptr && i < kScoresOfRow; ++i) {
          scores[row * kScoresOfRow + i] = 0.0f;
        }
      }
      if (dz == nullptr) return;
      each_pack(thread, block.threads, vocabulary, [&](int64_t col) {
        store_four<Z, kWhole>(dz + row * vocabulary + col, vocabulary - col, Four{});
      });
    });
  }
};

// Adds the losses of a chunk to the sum, rows ascending.
struct AddLosses {
  static constexpr int kScratch = 1;
  const double* losses;
  int64_t rows;
  bool first;
  double* sum;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t) const {
    sum_in_order(
        block, first ? 0.0 : *sum, rows, [&](int64_t row) { return losses[row]; },
        [&](double total) { *sum = total; });
  }
};

// Results of a chunk's rows but for the products of the gradients.
template <typename On>
void cross_entropy_rows(On& on, const LinearCrossEntropy& op, const CrossEntropyLayout& layout,
                        const Interior& dz, int64_t begin, int64_t rows) {
  std::byte* base = op.workspace.data;
  auto* logits = reinterpret_cast<float*>(base);
  auto* losses = reinterpret_cast<double*>(base + layout.losses_offset);
  const int64_t scores_begin = begin * kScoresOfRow;
  const AllScores all = {op.all_scores ? op.all_scores + scores_begin : nullptr, op.ranks, op.rows};
  with_inside(dz.dtype, [&](auto kind) {
    using Z = decltype(kind);
    with_flag(op.vocabulary % kPack == 0, [&](auto flag) {
      on.blocks(rows, row_threads(op.vocabulary),
                CrossEntropyRow<Z, decltype(flag)::value>{
                    .logits = logits,
                    .dz = op.dh ? elements<Z>(dz.data) : nullptr,
                    .targets = op.targets + begin,
                    .losses = losses,
                    .scores = op.scores ? op.scores + scores_begin : nullptr,
                    .all = all,
                    .vocabulary = op.vocabulary,
                    .first = op.first,
                    .end = op.targets_end(),
                    .cap = op.cap,
                    .grad_scale = op.grad_scale});
    });
  });
  if (op.loss_sum) on.blocks(1, kThreadsMax, AddLosses{losses, rows, begin == 0, op.loss_sum});
}

// One call's operands, with the weights and each chunk of h in the type of the products.
template <typename On>
void cross_entropy_chunk(On& on, const LinearCrossEntropy& op, const CrossEntropyLayout& layout,
                         const Operand& w, const Operand& h, int64_t begin, int64_t rows) {
  std::byte* base = op.workspace.data;
  const Workspace library = {base + layout.library_offset, kLibraryBytes};
  const Interior dz = {base + layout.gradients_offset, w.data.dtype};
  const int64_t vocabulary = op.vocabulary;
  on.product({.m = rows,
              .n = vocabulary,
              .k = op.cols,
              .a = h,
              .b = transpose(w),
              .c = {.data = reinterpret_cast<float*>(base), .stride = vocabulary},
              .workspace = library});
  cross_entropy_rows(on, op, layout, dz, begin, rows);
  if (op.dw) {
    on.product({.m = vocabulary,
                .n = op.cols,
                .k = rows,
                .a = {.data = dz, .stride = vocabulary, .transposed = true},
                .b = h,
                .c = {.data = op.dw, .stride = op.cols},
                .accumulate = op.accumulate || begin > 0,
                .workspace = library});
  }
  if (op.dh) {
    on.product({.m = rows,
                .n = op.cols,
                .k = vocabulary,
                .a = {.data = dz, .stride = vocabulary},
                .b = w,
                .c = {.data = op.dh + begin * op.cols, .stride = op.cols},
                .workspace = library});
  }
}

template <typename On>
void linear_cross_entropy(On& on, const LinearCrossEntropy& op) {
  STRATA_CHECK(is_one_call(op) && is_weight_type(op.dtype));
  const CrossEntropyLayout layout = layout_of(op, op.h.dtype);
  STRATA_CHECK(op.workspace.bytes >= layout.bytes);
  const DType type = product_type(op.h.dtype, op.dtype);
  const Workspace scratch = {op.workspace.data + layout.widened_offset,
                             layout.library_offset - layout.widened_offset};
  Rest for_weights(scratch);
  const Operand given_w = {.data = {op.w, op.dtype}, .stride = op.cols};
  const bool logits = op.needs_logits();
  const Operand w =
      logits ? operand_as(on, type, given_w, op.vocabulary, op.cols, for_weights) : Operand();
  for (int64_t begin = 0; begin < op.rows; begin += layout.rows) {
    const int64_t rows = std::min(layout.rows, op.rows - begin);
    if (!logits) {
      cross_entropy_rows(on, op, layout, {nullptr, type}, begin, rows);
      continue;
    }
    Rest for_rows(scratch);
    const Operand h = operand_as(on, type, {.data = op.h + begin * op.cols, .stride = op.cols},
                                 rows, op.cols, for_rows);
    cross_entropy_chunk(on, op, layout, w, h, begin, rows);
  }
}

}  // namespace strata::kernels::cuda
