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

template <typename Z, bool kWhole>
struct CrossEntropyRow {
  float* logits;           // [rows, V]
  typename Z::Stored* dz;  // [rows, V]; may lie over the logits; null: only the loss
  const int32_t* targets;
  double* losses;
  int64_t vocabulary;
  float cap, grad_scale;

  STRATA_HOST_DEVICE Four capped(const float* z, int64_t col) const {
    Four four = load_pack<kWhole>(z + col, vocabulary - col);
    if (cap > 0.0f) {
      for (int i = 0; i < kPack; ++i) four.at[i] = cap * tanhf(four.at[i] / cap);
    }
    return four;
  }

  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t row) const {
    const int64_t target = targets[row];
    STRATA_KERNEL_CHECK(target >= -1 && target < vocabulary);
    const float* z = logits + row * vocabulary;
    if (target < 0) return without_target(block, row);
    const float largest = block.reduce(
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
    const double sum = block.reduce(
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
    block.each([&](int thread) {
      if (thread != 0) return;
      const float at = cap > 0.0f ? cap * tanhf(z[target] / cap) : z[target];
      losses[row] = std::log(sum) + (double{largest} - at);
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

  template <typename Block>
  STRATA_HOST_DEVICE void without_target(Block& block, int64_t row) const {
    block.each([&](int thread) {
      if (thread == 0) losses[row] = 0.0;
      if (dz == nullptr) return;
      each_pack(thread, block.threads, vocabulary, [&](int64_t col) {
        store_four<Z, kWhole>(dz + row * vocabulary + col, vocabulary - col, Four{});
      });
    });
  }
};

// Adds the losses of a chunk to the sum, rows ascending.
struct AddLosses {
  const double* losses;
  int64_t rows;
  bool first;
  double* sum;
  template <typename Block>
  STRATA_HOST_DEVICE void operator()(Block& block, int64_t) const {
    block.each([&](int thread) {
      if (thread != 0) return;
      double total = first ? 0.0 : *sum;
      for (int64_t row = 0; row < rows; ++row) total += losses[row];
      *sum = total;
    });
  }
};

// One call's operands, with the weights and each chunk of h in the type of the products.
template <typename On>
void cross_entropy_chunk(On& on, const LinearCrossEntropy& op, const CrossEntropyLayout& layout,
                         const Operand& w, const Operand& h, int64_t begin, int64_t rows) {
  std::byte* base = op.workspace.data;
  const Workspace library = {base + layout.library_offset, kLibraryBytes};
  auto* logits = reinterpret_cast<float*>(base);
  const Interior dz = {base + layout.gradients_offset, w.data.dtype};
  auto* losses = reinterpret_cast<double*>(base + layout.losses_offset);
  const int64_t vocabulary = op.vocabulary;
  on.product({.m = rows,
              .n = vocabulary,
              .k = op.cols,
              .a = h,
              .b = transpose(w),
              .c = {.data = logits, .stride = vocabulary},
              .workspace = library});
  with_inside(dz.dtype, [&](auto kind) {
    using Z = decltype(kind);
    auto* gradients = op.dh ? elements<Z>(dz.data) : nullptr;
    with_flag(vocabulary % kPack == 0, [&](auto flag) {
      on.blocks(
          rows, row_threads(vocabulary),
          CrossEntropyRow<Z, decltype(flag)::value>{logits, gradients, op.targets + begin, losses,
                                                    vocabulary, op.cap, op.grad_scale});
    });
  });
  on.blocks(1, 32, AddLosses{losses, rows, begin == 0, op.loss_sum});
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
  STRATA_CHECK(op.rows > 0 && op.cols > 0 && op.vocabulary > 0 && is_float_or_bf16(op.dtype));
  STRATA_CHECK(op.dh || !op.dw);
  const CrossEntropyLayout layout = layout_of(op, op.h.dtype);
  STRATA_CHECK(op.workspace.bytes >= layout.bytes);
  const DType type = product_type(op.h.dtype, op.dtype);
  const Workspace scratch = {op.workspace.data + layout.widened_offset,
                             layout.library_offset - layout.widened_offset};
  Rest for_weights(scratch);
  const Operand w = operand_as(on, type, {.data = {op.w, op.dtype}, .stride = op.cols},
                               op.vocabulary, op.cols, for_weights);
  for (int64_t begin = 0; begin < op.rows; begin += layout.rows) {
    const int64_t rows = std::min(layout.rows, op.rows - begin);
    Rest for_rows(scratch);
    const Operand h = operand_as(on, type, {.data = op.h + begin * op.cols, .stride = op.cols},
                                 rows, op.cols, for_rows);
    cross_entropy_chunk(on, op, layout, w, h, begin, rows);
  }
}

}  // namespace strata::kernels::cuda
