// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/panels.h"

#include <algorithm>

#include "kernels/cpu/parallel_for.h"
#include "kernels/typed.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/panels.cpp"
#include "kernels/cpu/simd.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/panel_passes.h"
#include "kernels/cpu/panel_product-inl.h"
#include "kernels/cpu/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace strata::kernels::cpu::HWY_NAMESPACE {

bool has_vectors_of_16() {
  return kLanes == 16;
}

template <typename T>
void widen_row(const T* from, float* to, int64_t count) {
  for_vectors(count, [&](auto d, int64_t i, auto end)
                         HWY_ATTR { store_as(d, load_as(d, from + i, end), to + i, end); });
}

// --- forward ---

// Packs inputs [begin, end) of one panel of rows.
void pack_rows(const ForwardPass& pass, int64_t panel, int64_t begin, int64_t end) {
  const int64_t stride = stride_or(pass.op->x_stride, pass.op->inputs);
  const int64_t row = panel * kPanelCols;
  const int64_t rows = std::min(kPanelCols, pass.rows - row);
  float* to = pass.panels + panel * pass.depth * kPanelCols;
  transpose_block(pass.op->x + (pass.row + row) * stride + pass.first + begin, stride, rows,
                  end - begin, to + begin * kPanelCols, kPanelCols);
  for (int64_t p = begin; rows < kPanelCols && p < end; ++p) {
    std::fill(to + p * kPanelCols + rows, to + (p + 1) * kPanelCols, 0.0f);
  }
}

// Rows [out, out + count) of w as f32.
HWY_INLINE const float* weight_rows(const ForwardPass& pass, int64_t out, int64_t count,
                                    float* widened) {
  const int64_t at = out * pass.op->inputs + pass.first;
  if (pass.op->dtype == DType::kF32) return static_cast<const float*>(pass.op->w) + at;
  with_weight_type(pass.op->dtype, [&](auto type) {
    const auto* from = static_cast<const decltype(type)*>(pass.op->w) + at;
    for (int64_t r = 0; r < count; ++r) {
      widen_row(from + r * pass.op->inputs, widened + r * pass.depth, pass.depth);
    }
  });
  return widened;
}

HWY_INLINE Lines next_weights(const ForwardPass& pass, int64_t out) {
  const MatMulForward& op = *pass.op;
  const int64_t width = bytes_of(op.dtype);
  const char* first = static_cast<const char*>(op.w) + (out * op.inputs + pass.first) * width;
  return Lines::of(first, op.inputs * width, std::min(kRegisterRows, op.outputs - out),
                   pass.depth * width);
}

// Loads what a band's sums are added to. Returns false when they are added to nothing.
HWY_INLINE bool begin_band(const ForwardPass& pass, int64_t out, int64_t count, float* tile) {
  const MatMulForward& op = *pass.op;
  const int64_t stride = stride_or(op.y_stride, op.outputs);
  const bool again = op.accumulate || pass.first > 0;
  const bool biased = op.bias != nullptr && pass.first == 0;
  for (int64_t row = 0; row < pass.rows && (again || biased); row += kPanelCols) {
    const int64_t rows = std::min(kPanelCols, pass.rows - row);
    float* panel = tile + row * kBandRows;
    if (again) {
      transpose_block(op.y + (pass.row + row) * stride + out, stride, rows, count, panel,
                      kPanelCols);
    }
    for (int64_t r = 0; biased && r < count; ++r) {
      const float bias = load(op.dtype, op.bias, out + r);
      float* sums = panel + r * kPanelCols;
      for (int64_t c = 0; c < rows; ++c) sums[c] = again ? sums[c] + bias : bias;
    }
  }
  return again || biased;
}

// Computes outputs [out, out + count), at most kBandRows of them: y transposed in `tile`, then
// stored.
void forward_band(const ForwardPass& pass, int64_t out, int64_t count, float* tile) {
  const MatMulForward& op = *pass.op;
  const int64_t stride = stride_or(op.y_stride, op.outputs);
  float* y = op.y + pass.row * stride + out;
  float* widened = tile + kForwardRows * kBandRows;
  const bool add = begin_band(pass, out, count, tile);
  Ahead ahead = {.reads = {}, .writes = Lines::of(y, stride * 4, pass.rows, count * 4)};
  for (int64_t r = 0; r < count; r += kRegisterRows) {
    PanelProduct product = {.rows = std::min(kRegisterRows, count - r),
                            .depth = pass.depth,
                            .a_row = op.dtype == DType::kF32 ? op.inputs : pass.depth,
                            .b = pass.panels,
                            .c = tile + r * kPanelCols,
                            .c_row = kPanelCols,
                            .add = add};
    product.a = weight_rows(pass, out + r, product.rows, widened);
    ahead.reads = next_weights(pass, out + r + product.rows);
    for (int64_t row = 0; row < pass.rows; row += kPanelCols) {
      const int64_t rows = std::min(kPanelCols, pass.rows - row);
      panel_product<false>(product, ceil_div(rows, 16), ahead);
      product.b += pass.depth * kPanelCols;
      product.c += kBandRows * kPanelCols;
    }
  }
  for (int64_t row = 0; row < pass.rows; row += kPanelCols) {
    transpose_block(tile + row * kBandRows, kPanelCols, count,
                    std::min(kPanelCols, pass.rows - row), y + row * stride, stride);
  }
}

// --- input ---

template <typename T>
HWY_INLINE void pack_weights(const T* from, int64_t stride, int64_t depth, int64_t cols,
                             float* panel) {
  for (int64_t p = 0; p < depth; ++p) {
    for_vectors(cols, [&](auto d, int64_t i, auto end) HWY_ATTR {
      store_as(d, load_as(d, from + p * stride + i, end), panel + p * kPanelCols + i, end);
    });
  }
}

// Prefetches the first line of each row; the processor prefetches the rest of a row by itself.
HWY_INLINE void ask_for_starts(const float* first, int64_t stride, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    const char* at = reinterpret_cast<const char*>(first + r * stride);
    for (int64_t line = 0; line < 4; ++line) ask<false>(at + line * Lines::kLineBytes);
  }
}

// Computes columns [col, col + cols) of dx.
void input_columns(const MatMulInput& op, int64_t col, int64_t cols, float* panel) {
  const int64_t dy_stride = stride_or(op.dy_stride, op.outputs);
  const int64_t dx_stride = stride_or(op.dx_stride, op.inputs);
  const int64_t part = part_of(op.outputs, kInputDepth, 4);
  const int64_t width = bytes_of(op.dtype);
  const auto weights = [&](int64_t out, int64_t at) HWY_ATTR {
    return static_cast<const char*>(op.w) + (out * op.inputs + at) * width;
  };
  for (int64_t first = 0; first < op.outputs; first += part) {
    const int64_t depth = std::min(part, op.outputs - first);
    const char* from = weights(first, col);
    with_weight_type(op.dtype, [&](auto type) HWY_ATTR {
      using T = decltype(type);
      pack_weights(reinterpret_cast<const T*>(from), op.inputs, depth, cols, panel);
    });
    // Prefetches the next part, or the first part of the columns that this thread will probably get
    // next.
    const bool last = first + depth == op.outputs;
    const int64_t next = last ? 0 : first + depth;
    const int64_t next_col = last ? std::min(col + cols, op.inputs - cols) : col;
    Ahead ahead = {.reads = Lines::of(weights(next, next_col), op.inputs * width,
                                      std::min(part, op.outputs - next), cols * width),
                   .writes = {}};
    for (int64_t row = 0; row < op.rows; row += kRegisterRows) {
      ask_for_starts(op.dy + (row + kRegisterRows) * dy_stride + first, dy_stride,
                     std::min(kRegisterRows, op.rows - row - kRegisterRows));
      panel_product<false>({.rows = std::min(kRegisterRows, op.rows - row),
                            .depth = depth,
                            .a = op.dy + row * dy_stride + first,
                            .a_row = dy_stride,
                            .b = panel,
                            .c = op.dx + row * dx_stride + col,
                            .c_row = dx_stride,
                            .add = op.accumulate || first > 0},
                           cols / 16, ahead);
    }
  }
}

// --- weight ---

// Packs rows [row, row + depth) of columns [out, out + count) of dy by register blocks:
// [block][depth][kRegisterRows].
HWY_INLINE void pack_band(const MatMulWeight& op, int64_t row, int64_t depth, int64_t out,
                          int64_t count, float* packed) {
  const hn::CappedTag<float, 8> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t stride = stride_or(op.dy_stride, op.outputs);
  const int64_t blocks = lanes == 8 ? (count - 2) / kRegisterRows : 0;  // 8 lanes stay in the row
  for (int64_t p = 0; p < depth; ++p) {
    const float* from = op.dy + (row + p) * stride + out;
    for (int64_t block = 0; block < blocks; ++block) {
      hn::StoreU(hn::LoadU(d, from + block * kRegisterRows), d,
                 packed + block * packed_block(depth) + p * kRegisterRows);
    }
    for (int64_t i = blocks * kRegisterRows; i < count; ++i) {
      const int64_t block = i / kRegisterRows;
      packed[block * packed_block(depth) + p * kRegisterRows + i % kRegisterRows] = from[i];
    }
  }
}

// The lines that are packed after rows [row, row + depth) of columns [out, out + count) of dy.
HWY_INLINE Lines next_band(const MatMulWeight& op, int64_t row, int64_t depth, int64_t out,
                           int64_t count) {
  const int64_t stride = stride_or(op.dy_stride, op.outputs);
  const bool last = row + depth == op.rows;
  const int64_t next_row = last ? 0 : row + depth;
  const int64_t next_out = last ? out + count : out;
  const int64_t cols = std::min(kBandRows, op.outputs - next_out);
  return Lines::of(op.dy + next_row * stride + next_out, stride * 4,
                   cols > 0 ? std::min(part_of(op.rows, kWeightDepth, 4), op.rows - next_row) : 0,
                   cols * 4);
}

// Computes rows [out, out + count) of dw, at most kBandRows of them.
void weight_band(const MatMulWeight& op, int64_t out, int64_t count, float* packed) {
  const int64_t x_stride = stride_or(op.x_stride, op.inputs);
  const int64_t part = part_of(op.rows, kWeightDepth, 4);
  for (int64_t row = 0; row < op.rows; row += part) {
    const int64_t depth = std::min(part, op.rows - row);
    pack_band(op, row, depth, out, count, packed);
    Ahead ahead = {.reads = next_band(op, row, depth, out, count), .writes = {}};
    for (int64_t r = 0; r < count; r += kRegisterRows) {
      const int64_t rows = std::min(kRegisterRows, count - r);
      float* c = op.dw + (out + r) * op.inputs;
      const int64_t next = row == 0 ? std::min(kRegisterRows, op.outputs - out - r - rows) : 0;
      ahead.writes = Lines::of(c + rows * op.inputs, op.inputs * 4, next, op.inputs * 4);
      for (int64_t col = 0; col < op.inputs; col += kPanelCols) {
        const int64_t cols = std::min(kPanelCols, op.inputs - col);
        panel_product<true>({.rows = rows,
                             .depth = depth,
                             .a = packed + r / kRegisterRows * packed_block(depth),
                             .b = op.x + row * x_stride + col,
                             .b_row = x_stride,
                             .c = c + col,
                             .c_row = op.inputs,
                             .add = op.accumulate || row > 0},
                            cols / 16, ahead);
      }
    }
  }
}

}  // namespace strata::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace strata::kernels::cpu {
namespace {

HWY_EXPORT(has_vectors_of_16);
HWY_EXPORT(pack_rows);
HWY_EXPORT(forward_band);
HWY_EXPORT(input_columns);
HWY_EXPORT(weight_band);

constexpr int64_t kTasks = 16;  // so that 2, 4, 8 threads get equal work
constexpr int64_t kPackedInputs = 128;

// Whether panels are faster than the library: fewer rows leave vectors empty, and with more rows
// the library's packing pays off.
bool is_skinny(int64_t rows) {
  return rows >= 32 && rows <= kForwardRows;
}

bool has_wide_vectors() {
  return HWY_DYNAMIC_DISPATCH(has_vectors_of_16)();
}

// Scratch that tasks share, followed by scratch of each thread.
struct Memory {
  explicit Memory(const Workspace& workspace)
      : shared(reinterpret_cast<float*>(workspace.data)), own(shared + kSharedElements) {}
  float* of(int slot) const { return own + slot * kThreadElements; }
  float* shared;
  float* own;
};

// Calls band(first, count) for bands of at most kBandRows of `total` rows, in parallel.
template <typename Band>
void for_bands(int64_t total, const Band& band) {
  const int64_t part = round_up(ceil_div(total, kTasks), 16);
  parallel_for(ceil_div(total, part), [&](int64_t index, int slot) {
    const int64_t end = std::min(total, (index + 1) * part);
    for (int64_t first = index * part; first < end; first += kBandRows) {
      band(first, std::min(kBandRows, end - first), slot);
    }
  });
}

}  // namespace

bool panels_serve(const MatMulForward& op) {
  return is_skinny(op.rows) && has_wide_vectors();
}
bool panels_serve(const MatMulInput& op) {
  return is_skinny(op.rows) && op.inputs % 16 == 0 && has_wide_vectors();
}
bool panels_serve(const MatMulWeight& op) {
  return is_skinny(op.rows) && op.inputs % 16 == 0 && has_wide_vectors();
}

void forward_by_panels(const MatMulForward& op) {
  const Memory memory(op.workspace);
  const int64_t row_part = part_of(op.rows, kForwardRows, kPanelCols);
  const int64_t depth_part = part_of(op.inputs, kForwardElements / row_part, 16);
  for (int64_t row = 0; row < op.rows; row += row_part) {
    for (int64_t first = 0; first < op.inputs; first += depth_part) {
      const ForwardPass pass = {&op,
                                row,
                                std::min(row_part, op.rows - row),
                                first,
                                std::min(depth_part, op.inputs - first),
                                memory.shared};
      const int64_t panels = ceil_div(pass.rows, kPanelCols);
      parallel_for(panels * ceil_div(pass.depth, kPackedInputs), [&](int64_t index, int) {
        const int64_t begin = index / panels * kPackedInputs;
        HWY_DYNAMIC_DISPATCH(pack_rows)
        (pass, index % panels, begin, std::min(pass.depth, begin + kPackedInputs));
      });
      for_bands(op.outputs, [&](int64_t out, int64_t count, int slot) {
        HWY_DYNAMIC_DISPATCH(forward_band)(pass, out, count, memory.of(slot));
      });
    }
  }
}

void input_by_panels(const MatMulInput& op) {
  const Memory memory(op.workspace);
  parallel_for(ceil_div(op.inputs, kPanelCols), [&](int64_t index, int slot) {
    const int64_t col = index * kPanelCols;
    HWY_DYNAMIC_DISPATCH(input_columns)
    (op, col, std::min(kPanelCols, op.inputs - col), memory.of(slot));
  });
}

void weight_by_panels(const MatMulWeight& op) {
  const Memory memory(op.workspace);
  for_bands(op.outputs, [&](int64_t out, int64_t count, int slot) {
    HWY_DYNAMIC_DISPATCH(weight_band)(op, out, count, memory.of(slot));
  });
}

}  // namespace strata::kernels::cpu
#endif  // HWY_ONCE
