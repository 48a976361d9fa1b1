// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/rows.h"
#include "kernels/typed.h"

// Each product is cut into tiles of the output, a task each; a tile is one call of oneDNN on one
// thread. bf16 weights are widened, a tile and at most kDepth of the summed dimension at a time,
// into the running thread's workspace.
namespace strata::kernels {
namespace cpu {
namespace {

constexpr int64_t kTileOperations = int64_t{32} << 20;
constexpr int64_t kMostTiles = 16;
constexpr int64_t kTileRows = 256;
constexpr int64_t kTileCols = 256;
constexpr int64_t kLeastTileCols = 96;
constexpr int64_t kDepth = 1024;
constexpr int64_t kPad = 16;  // floats; keeps rows of a widened tile off one cache set

struct Tiling {
  int64_t rows = 0;  // of a tile
  int64_t cols = 0;
  int64_t row_tiles = 0;
  int64_t col_tiles = 0;
};

// `count` equal parts of `total`, but of whole vectors.
int64_t part(int64_t total, int64_t count) {
  return round_up(ceil_div(total, count), 16);
}

// A power of two, so that 2, 4, 8 threads get equal work, of tiles worth the call.
int64_t wanted_tiles(int64_t rows, int64_t cols, int64_t depth) {
  int64_t wanted = 2;
  while (wanted < kMostTiles && rows * cols * depth >= kTileOperations * wanted) wanted *= 2;
  return wanted;
}

Tiling tiles_of(int64_t rows, int64_t cols, int64_t tile_rows, int64_t tile_cols) {
  return {tile_rows, tile_cols, ceil_div(rows, tile_rows), ceil_div(cols, tile_cols)};
}

// Activations times weights: columns are cut finer until there are enough tiles; rows only where
// they exceed kTileRows, since every row tile packs the weights again.
Tiling tile_columns(int64_t rows, int64_t cols, int64_t depth) {
  const int64_t row_tiles = ceil_div(rows, kTileRows);
  const int64_t finest = std::max<int64_t>(1, cols / kLeastTileCols);
  const int64_t wanted = std::max(ceil_div(cols, kTileCols),
                                  std::min(finest, wanted_tiles(rows, cols, depth) / row_tiles));
  return tiles_of(rows, cols, part(rows, row_tiles), part(cols, std::max<int64_t>(1, wanted)));
}

// Weight gradients: bands of rows, as wide as they may be, since a band packs its short operand
// once.
Tiling tile_rows(int64_t rows, int64_t cols, int64_t depth) {
  const int64_t col_tiles = ceil_div(cols, int64_t{1024});
  const int64_t finest = std::max<int64_t>(1, rows / 64);
  const int64_t wanted = std::max(ceil_div(rows, kTileRows),
                                  std::min(finest, wanted_tiles(rows, cols, depth) / col_tiles));
  return tiles_of(rows, cols, part(rows, std::max<int64_t>(1, wanted)), part(cols, col_tiles));
}

int64_t widened_bytes(DType dtype) {
  return dtype == DType::kF32
             ? 0
             : (std::max(kDepth * (kTileCols + kPad), (kDepth + kPad) * kTileCols)) * 4;
}

struct Weights {
  DType dtype;
  const void* data;
  int64_t stride;
};

// The product of one tile, where b is the block of w that starts at (row, col) and reads
// product.n x product.k elements of it, or k x n when it is not transposed.
void run_with_weights(Product product, const Weights& w, int64_t row, int64_t col,
                      std::byte* workspace) {
  if (w.dtype == DType::kF32) {
    product.b = static_cast<const float*>(w.data) + row * w.stride + col;
    product.ldb = w.stride;
    run_product(product, workspace);
    return;
  }
  float* wide = reinterpret_cast<float*>(workspace + kProductScratchBytes);
  const int64_t depth = product.k;
  const float* a = product.a;
  for (int64_t begin = 0; begin < depth; begin += kDepth) {
    product.k = std::min(kDepth, depth - begin);
    product.a = a + begin;
    const int64_t rows = product.b_transposed ? product.n : product.k;
    const int64_t cols = product.b_transposed ? product.k : product.n;
    const int64_t at =
        product.b_transposed ? row * w.stride + col + begin : (row + begin) * w.stride + col;
    product.ldb = cols + kPad;
    for (int64_t r = 0; r < rows; ++r) {
      widen(static_cast<const uint16_t*>(w.data) + at + r * w.stride, wide + r * product.ldb, cols);
    }
    product.b = wide;
    run_product(product, workspace);
    product.accumulate = true;
  }
}

template <typename Op>
void check(const Op& op) {
  STRATA_CHECK(op.rows > 0 && op.outputs > 0 && op.inputs > 0);
  STRATA_CHECK(op.workspace.bytes >= workspace_bytes(op, thread_count()));
}

int64_t thread_bytes(DType dtype) {
  return kProductScratchBytes + widened_bytes(dtype);
}

}  // namespace

void matmul_forward(const MatMulForward& op) {
  check(op);
  STRATA_CHECK(is_float_or_bf16(op.dtype));
  const int64_t x_stride = stride_or(op.x_stride, op.inputs);
  const int64_t y_stride = stride_or(op.y_stride, op.outputs);
  const Tiling t = tile_columns(op.rows, op.outputs, op.inputs);
  parallel_for(t.row_tiles * t.col_tiles, [&](int64_t index, int slot) {
    const int64_t row = index % t.row_tiles * t.rows;
    const int64_t col = index / t.row_tiles * t.cols;
    Product product = {.m = std::min(t.rows, op.rows - row),
                       .n = std::min(t.cols, op.outputs - col),
                       .k = op.inputs,
                       .a = op.x + row * x_stride,
                       .lda = x_stride,
                       .b_transposed = true,
                       .c = op.y + row * y_stride + col,
                       .ldc = y_stride,
                       .accumulate = op.accumulate};
    run_with_weights(product, {op.dtype, op.w, op.inputs}, col, 0,
                     op.workspace.data + slot * thread_bytes(op.dtype));
    for (int64_t r = 0; op.bias && r < product.m; ++r) {
      for (int64_t c = 0; c < product.n; ++c) {
        product.c[r * y_stride + c] += load(op.dtype, op.bias, col + c);
      }
    }
  });
}

void matmul_input(const MatMulInput& op) {
  check(op);
  STRATA_CHECK(is_float_or_bf16(op.dtype));
  const int64_t dy_stride = stride_or(op.dy_stride, op.outputs);
  const int64_t dx_stride = stride_or(op.dx_stride, op.inputs);
  const Tiling t = tile_columns(op.rows, op.inputs, op.outputs);
  parallel_for(t.row_tiles * t.col_tiles, [&](int64_t index, int slot) {
    const int64_t row = index % t.row_tiles * t.rows;
    const int64_t col = index / t.row_tiles * t.cols;
    const Product product = {.m = std::min(t.rows, op.rows - row),
                             .n = std::min(t.cols, op.inputs - col),
                             .k = op.outputs,
                             .a = op.dy + row * dy_stride,
                             .lda = dy_stride,
                             .c = op.dx + row * dx_stride + col,
                             .ldc = dx_stride,
                             .accumulate = op.accumulate};
    run_with_weights(product, {op.dtype, op.w, op.inputs}, 0, col,
                     op.workspace.data + slot * thread_bytes(op.dtype));
  });
}

void matmul_weight(const MatMulWeight& op) {
  check(op);
  const int64_t dy_stride = stride_or(op.dy_stride, op.outputs);
  const int64_t x_stride = stride_or(op.x_stride, op.inputs);
  const Tiling t = tile_rows(op.outputs, op.inputs, op.rows);
  parallel_for(t.row_tiles * t.col_tiles, [&](int64_t index, int slot) {
    const int64_t out = index / t.col_tiles * t.rows;
    const int64_t in = index % t.col_tiles * t.cols;
    run_product({.m = std::min(t.rows, op.outputs - out),
                 .n = std::min(t.cols, op.inputs - in),
                 .k = op.rows,
                 .a = op.dy + out,
                 .lda = dy_stride,
                 .a_transposed = true,
                 .b = op.x + in,
                 .ldb = x_stride,
                 .c = op.dw + out * op.inputs + in,
                 .ldc = op.inputs,
                 .accumulate = op.accumulate},
                op.workspace.data + slot * thread_bytes(DType::kF32));
  });
  if (!op.dbias) return;
  parallel_blocks(op.outputs, 256, [&](int64_t begin, int64_t end) {
    if (!op.accumulate) std::fill(op.dbias + begin, op.dbias + end, 0.0f);
    for (int64_t row = 0; row < op.rows; ++row) {
      for (int64_t out = begin; out < end; ++out) op.dbias[out] += op.dy[row * dy_stride + out];
    }
  });
}

}  // namespace cpu

int64_t workspace_bytes(const MatMulForward& op, int threads) {
  return threads * cpu::thread_bytes(op.dtype);
}
int64_t workspace_bytes(const MatMulInput& op, int threads) {
  return threads * cpu::thread_bytes(op.dtype);
}
int64_t workspace_bytes(const MatMulWeight&, int threads) {
  return threads * cpu::thread_bytes(DType::kF32);
}

}  // namespace strata::kernels
