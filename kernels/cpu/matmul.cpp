// SPDX-License-Identifier: Apache-2.0
#include "kernels/matmul.h"

#include <algorithm>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/parallel_for.h"
#include "kernels/cpu/row_product.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/weight_product.h"
#include "kernels/typed.h"

// Each product is cut into tiles of the output; each tile is a task, one product on one thread.
namespace strata::kernels {
namespace cpu {
namespace {

constexpr int64_t kTileOperations = int64_t{32} << 20;
constexpr int64_t kMostTiles = 16;
constexpr int64_t kLeastTileCols = 96;

struct Tiling {
  int64_t rows = 0;  // of a tile
  int64_t cols = 0;
  int64_t row_tiles = 0;
  int64_t col_tiles = 0;
};

// The size of `count` about equal parts of `total`, in whole vectors.
int64_t part(int64_t total, int64_t count) {
  return round_up(ceil_div(total, count), 16);
}

// The number of tiles: a power of two, so that 2, 4 or 8 threads get equal work, and small enough
// that a tile is worth a call.
int64_t wanted_tiles(int64_t rows, int64_t cols, int64_t depth) {
  int64_t wanted = 2;
  while (wanted < kMostTiles && rows * cols * depth >= kTileOperations * wanted) wanted *= 2;
  return wanted;
}

Tiling tiles_of(int64_t rows, int64_t cols, int64_t tile_rows, int64_t tile_cols) {
  return {tile_rows, tile_cols, ceil_div(rows, tile_rows), ceil_div(cols, tile_cols)};
}

// For activations times weights: cuts columns finer until there are enough tiles, and rows only
// where they exceed kTileRows, because every row tile packs the weights again.
Tiling tile_columns(int64_t rows, int64_t cols, int64_t depth) {
  const int64_t row_tiles = ceil_div(rows, kTileRows);
  const int64_t finest = std::max<int64_t>(1, cols / kLeastTileCols);
  const int64_t wanted = std::max(ceil_div(cols, kTileCols),
                                  std::min(finest, wanted_tiles(rows, cols, depth) / row_tiles));
  return tiles_of(rows, cols, part(rows, row_tiles), part(cols, std::max<int64_t>(1, wanted)));
}

// For weight gradients: cuts bands of rows as wide as allowed, because a band packs its short
// operand once.
Tiling tile_rows(int64_t rows, int64_t cols, int64_t depth) {
  const int64_t col_tiles = ceil_div(cols, int64_t{1024});
  const int64_t finest = std::max<int64_t>(1, rows / 64);
  const int64_t wanted = std::max(ceil_div(rows, kTileRows),
                                  std::min(finest, wanted_tiles(rows, cols, depth) / col_tiles));
  return tiles_of(rows, cols, part(rows, std::max<int64_t>(1, wanted)), part(cols, col_tiles));
}

template <typename Op>
void check(const Op& op) {
  STRATA_CHECK(op.rows > 0 && op.outputs > 0 && op.inputs > 0);
  STRATA_CHECK(op.workspace.bytes >= workspace_bytes(op, thread_count()));
}

void weight_by_library(const MatMulWeight& op) {
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
                op.workspace.data + slot * kProductScratchBytes);
  });
}

void add_bias(const MatMulWeight& op) {
  const int64_t dy_stride = stride_or(op.dy_stride, op.outputs);
  parallel_blocks(op.outputs, 256, [&](int64_t begin, int64_t end) {
    if (!op.accumulate) std::fill(op.dbias + begin, op.dbias + end, 0.0f);
    for (int64_t row = 0; row < op.rows; ++row) {
      add_to(op.dy + row * dy_stride + begin, op.dbias + begin, end - begin);
    }
  });
}

}  // namespace

void matmul_forward(const MatMulForward& op) {
  check(op);
  STRATA_CHECK(is_weight_type(op.dtype));
  if (op.by_row) return forward_by_row(op);
  if (panels_serve(op)) return forward_by_panels(op);
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
                       .ldb = op.inputs,
                       .b_transposed = true,
                       .c = op.y + row * y_stride + col,
                       .ldc = y_stride,
                       .accumulate = op.accumulate};
    run_weight_product(product, op.dtype, element_of(op.dtype, op.w, col * op.inputs),
                       op.workspace.data + slot * weight_product_bytes());
    for (int64_t r = 0; op.bias && r < product.m; ++r) {
      for (int64_t c = 0; c < product.n; ++c) {
        product.c[r * y_stride + c] += load(op.dtype, op.bias, col + c);
      }
    }
  });
}

void matmul_input(const MatMulInput& op) {
  check(op);
  STRATA_CHECK(is_weight_type(op.dtype));
  if (panels_serve(op)) return input_by_panels(op);
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
                             .ldb = op.inputs,
                             .c = op.dx + row * dx_stride + col,
                             .ldc = dx_stride,
                             .accumulate = op.accumulate};
    run_weight_product(product, op.dtype, element_of(op.dtype, op.w, col),
                       op.workspace.data + slot * weight_product_bytes());
  });
}

void matmul_weight(const MatMulWeight& op) {
  check(op);
  panels_serve(op) ? weight_by_panels(op) : weight_by_library(op);
  if (op.dbias) add_bias(op);
}

}  // namespace cpu

}  // namespace strata::kernels
