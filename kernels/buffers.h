// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "kernels/backend.h"

// Lists the buffers of each op, for checks, translation of addresses, and traces. `visit` is called
// with a reference to each pointer (null pointers included), the number of bytes from it on that
// the op may touch, and whether the op writes them. Sizes follow from the shapes in the op's
// header.
namespace strata::kernels {

// Bytes from the first element of `rows` rows of `cols` elements to the end of the last one.
constexpr int64_t rows_bytes(int64_t rows, int64_t cols, int64_t stride, int64_t width) {
  return rows == 0 ? 0 : ((rows - 1) * (stride == 0 ? cols : stride) + cols) * width;
}
inline constexpr int64_t kFloat = 4;

template <typename Visit>
void visit_workspace(Workspace& workspace, const Visit& visit) {
  visit(workspace.data, workspace.bytes, true);
}

template <typename Visit>
void each_buffer(MatMulForward& op, const Visit& visit) {
  const int64_t width = bytes_of(op.dtype);
  visit(op.x.data, rows_bytes(op.rows, op.inputs, op.x_stride, bytes_of(op.x.dtype)), false);
  visit(op.w, op.outputs * op.inputs * width, false);
  visit(op.bias, op.outputs * width, false);
  visit(op.y.data, rows_bytes(op.rows, op.outputs, op.y_stride, bytes_of(op.y.dtype)), true);
  visit_workspace(op.workspace, visit);
}

template <typename Visit>
void each_buffer(MatMulInput& op, const Visit& visit) {
  visit(op.dy.data, rows_bytes(op.rows, op.outputs, op.dy_stride, bytes_of(op.dy.dtype)), false);
  visit(op.w, op.outputs * op.inputs * bytes_of(op.dtype), false);
  visit(op.dx.data, rows_bytes(op.rows, op.inputs, op.dx_stride, bytes_of(op.dx.dtype)), true);
  visit_workspace(op.workspace, visit);
}

template <typename Visit>
void each_buffer(MatMulWeight& op, const Visit& visit) {
  visit(op.dy.data, rows_bytes(op.rows, op.outputs, op.dy_stride, bytes_of(op.dy.dtype)), false);
  visit(op.x.data, rows_bytes(op.rows, op.inputs, op.x_stride, bytes_of(op.x.dtype)), false);
  visit(op.dw, op.outputs * op.inputs * kFloat, true);
  visit(op.dbias, op.outputs * kFloat, true);
  visit_workspace(op.workspace, visit);
}

template <typename Visit>
void each_buffer(RmsNormForward& op, const Visit& visit) {
  const int64_t cols = op.groups * op.cols;
  visit(op.x, rows_bytes(op.rows, cols, op.x_stride, bytes_of(x_dtype_of(op))), false);
  visit(op.w, op.cols * bytes_of(op.dtype), false);
  visit(op.y.data, rows_bytes(op.rows, cols, op.y_stride, bytes_of(op.y.dtype)), true);
  visit(op.rstd, op.rows * op.groups * kFloat, true);
  visit(op.own_sums, op.rows * kFloat, true);
  visit(op.all_sums, op.rows * kFloat, false);
}

template <typename Visit>
void each_buffer(RmsNormBackward& op, const Visit& visit) {
  const int64_t cols = op.groups * op.cols;
  const int64_t gradient_bytes = rows_bytes(op.rows, cols, op.dx_stride, bytes_of(x_dtype_of(op)));
  visit(op.x, rows_bytes(op.rows, cols, op.x_stride, bytes_of(x_dtype_of(op))), false);
  visit(op.w, op.cols * bytes_of(op.dtype), false);
  visit(op.rstd, op.rows * op.groups * kFloat, false);
  visit(op.dy.data, rows_bytes(op.rows, cols, op.dy_stride, bytes_of(op.dy.dtype)), false);
  visit(op.dres, gradient_bytes, false);
  visit(op.dx, gradient_bytes, true);
  visit(op.dw, op.cols * kFloat, true);
  visit(op.own_sums, op.rows * kFloat, true);
  visit(op.all_sums, op.rows * kFloat, false);
  visit_workspace(op.workspace, visit);
}

template <typename Visit>
void each_buffer(LayerNormForward& op, const Visit& visit) {
  const int64_t width = bytes_of(op.dtype);
  visit(op.x, op.rows * op.cols * width, false);
  visit(op.w, op.cols * width, false);
  visit(op.b, op.cols * width, false);
  visit(op.y.data, op.rows * op.cols * bytes_of(op.y.dtype), true);
  visit(op.mean, op.rows * kFloat, true);
  visit(op.rstd, op.rows * kFloat, true);
}

template <typename Visit>
void each_buffer(LayerNormBackward& op, const Visit& visit) {
  const int64_t gradient_bytes = op.rows * op.cols * bytes_of(op.dtype);
  visit(op.x, op.rows * op.cols * bytes_of(op.dtype), false);
  visit(op.w, op.cols * bytes_of(op.dtype), false);
  visit(op.mean, op.rows * kFloat, false);
  visit(op.rstd, op.rows * kFloat, false);
  visit(op.dy.data, op.rows * op.cols * bytes_of(op.dy.dtype), false);
  visit(op.dres, gradient_bytes, false);
  visit(op.dx, gradient_bytes, true);
  visit(op.dw, op.cols * kFloat, true);
  visit(op.db, op.cols * kFloat, true);
  visit_workspace(op.workspace, visit);
}

template <typename Visit>
void each_buffer(Rope& op, const Visit& visit) {
  const int64_t turned = op.rotary > 0 ? op.rotary : op.head_size;
  const int64_t table_bytes = op.length * turned / 2 * kFloat;
  visit(op.x.data,
        rows_bytes(op.rows, op.heads * op.head_size, op.row_stride, bytes_of(op.x.dtype)), true);
  visit(op.cos, table_bytes, false);
  visit(op.sin, table_bytes, false);
  visit(op.positions, op.rows * int64_t{4}, false);
}

template <typename Visit>
void each_buffer(AttentionForward& op, const Visit& visit) {
  const int64_t rows = op.batch * op.length, keys = rows * op.context.ranks;
  const int64_t q = op.heads * op.head_size, k = op.kv_heads * op.head_size;
  visit(op.q.data, rows_bytes(rows, q, op.q_stride, bytes_of(op.q.dtype)), false);
  visit(op.k.data, rows_bytes(keys, k, op.k_stride, bytes_of(op.k.dtype)), false);
  visit(op.v.data, rows_bytes(keys, k, op.v_stride, bytes_of(op.v.dtype)), false);
  visit(op.o.data, rows_bytes(rows, q, op.o_stride, bytes_of(op.o.dtype)), true);
  visit(op.lse, rows * op.heads * kFloat, true);
  visit(op.starts, rows * int64_t{4}, false);
  visit_workspace(op.workspace, visit);
}

template <typename Visit>
void each_buffer(CachedAttention& op, const Visit& visit) {
  const int64_t q = op.heads * op.head_size, k = op.kv_heads * op.head_size;
  visit(op.q.data, rows_bytes(op.tokens, q, op.q_stride, bytes_of(op.q.dtype)), false);
  visit(op.k.data, rows_bytes(op.tokens, k, op.k_stride, bytes_of(op.k.dtype)), false);
  visit(op.v.data, rows_bytes(op.tokens, k, op.v_stride, bytes_of(op.v.dtype)), false);
  visit(op.row, op.tokens * int64_t{4}, false);
  visit(op.position, op.tokens * int64_t{4}, false);
  visit(op.o.data, rows_bytes(op.tokens, q, op.o_stride, bytes_of(op.o.dtype)), true);
  visit(op.cache.data, cache_bytes(op, op.cache.dtype), true);
  visit_workspace(op.workspace, visit);
}

template <typename Visit>
void each_buffer(AttentionBackward& op, const Visit& visit) {
  const int64_t rows = op.batch * op.length, keys = rows * op.context.ranks;
  const int64_t q = op.heads * op.head_size, k = op.kv_heads * op.head_size;
  visit(op.q.data, rows_bytes(rows, q, op.q_stride, bytes_of(op.q.dtype)), false);
  visit(op.k.data, rows_bytes(keys, k, op.k_stride, bytes_of(op.k.dtype)), false);
  visit(op.v.data, rows_bytes(keys, k, op.v_stride, bytes_of(op.v.dtype)), false);
  visit(op.o.data, rows_bytes(rows, q, op.o_stride, bytes_of(op.o.dtype)), false);
  visit(op.lse, rows * op.heads * kFloat, false);
  visit(op.starts, rows * int64_t{4}, false);
  visit(op.d_o.data, rows_bytes(rows, q, op.d_o_stride, bytes_of(op.d_o.dtype)), false);
  visit(op.dq.data, rows_bytes(rows, q, op.dq_stride, bytes_of(op.dq.dtype)), true);
  visit(op.dk.data, rows_bytes(keys, k, op.dk_stride, bytes_of(op.dk.dtype)), true);
  visit(op.dv.data, rows_bytes(keys, k, op.dv_stride, bytes_of(op.dv.dtype)), true);
  visit_workspace(op.workspace, visit);
}

template <typename Visit>
void each_buffer(GluForward& op, const Visit& visit) {
  const int64_t bytes = rows_bytes(op.rows, op.cols, op.stride, bytes_of(op.g.dtype));
  visit(op.g.data, bytes, false);
  visit(op.u.data, bytes, false);
  visit(op.h.data, op.rows * op.cols * bytes_of(op.h.dtype), true);
}

template <typename Visit>
void each_buffer(GluBackward& op, const Visit& visit) {
  const int64_t bytes = rows_bytes(op.rows, op.cols, op.stride, bytes_of(op.g.dtype));
  const int64_t d_bytes = rows_bytes(op.rows, op.cols, op.d_stride, bytes_of(op.dg.dtype));
  visit(op.g.data, bytes, false);
  visit(op.u.data, bytes, false);
  visit(op.dh.data, op.rows * op.cols * bytes_of(op.dh.dtype), false);
  visit(op.dg.data, d_bytes, true);
  visit(op.du.data, d_bytes, true);
}

template <typename Visit>
void each_buffer(EmbeddingForward& op, const Visit& visit) {
  const int64_t width = bytes_of(op.dtype);
  visit(op.tokens, op.rows * int64_t{4}, false);
  visit(op.w, op.vocabulary * op.cols * width, false);
  visit(op.out, op.rows * op.cols * width, true);
}

template <typename Visit>
void each_buffer(EmbeddingBackward& op, const Visit& visit) {
  visit(op.tokens, op.rows * int64_t{4}, false);
  visit(op.dy, op.rows * op.cols * bytes_of(op.dtype), false);
  visit(op.dw, op.vocabulary * op.cols * kFloat, true);
}

template <typename Visit>
void each_buffer(PositionForward& op, const Visit& visit) {
  const int64_t width = bytes_of(op.dtype);
  visit(op.p, op.length * op.context.ranks * op.cols * width, false);
  visit(op.positions, op.rows * int64_t{4}, false);
  visit(op.y, op.rows * op.cols * width, true);
  visit(op.starts, op.rows * int64_t{4}, false);
}

template <typename Visit>
void each_buffer(PositionBackward& op, const Visit& visit) {
  visit(op.dy, op.rows * op.cols * bytes_of(op.dtype), false);
  visit(op.dp, op.positions * op.cols * kFloat, true);
  visit(op.starts, op.rows * int64_t{4}, false);
}

template <typename Visit>
void each_buffer(LinearCrossEntropy& op, const Visit& visit) {
  const int64_t matrix = op.vocabulary * op.cols;
  visit(op.h.data, op.rows * op.cols * bytes_of(op.h.dtype), false);
  visit(op.w, matrix * bytes_of(op.dtype), false);
  visit(op.targets, op.rows * int64_t{4}, false);
  visit(op.scores, op.rows * kScoresOfRow * kFloat, true);
  visit(op.all_scores, op.ranks * op.rows * kScoresOfRow * kFloat, false);
  visit(op.loss_sum, int64_t{8}, true);
  visit(op.dh.data, op.rows * op.cols * bytes_of(op.dh.dtype), true);
  visit(op.dw, matrix * kFloat, true);
  visit_workspace(op.workspace, visit);
}

template <typename Visit>
void each_buffer(GatherRows& op, const Visit& visit) {
  visit(op.x, (op.together ? 1 : op.rows) * op.length * op.row_bytes, false);
  visit(op.position, op.rows * int64_t{4}, false);
  visit(op.y, op.rows * op.row_bytes, true);
}

template <typename Visit>
void each_buffer(CopyRows& op, const Visit& visit) {
  visit(op.x, rows_bytes(op.rows, op.row_bytes, op.x_stride, 1), false);
  visit(op.y, rows_bytes(op.rows, op.row_bytes, op.y_stride, 1), true);
}

template <typename Visit>
void each_buffer(AddResidual& op, const Visit& visit) {
  const int64_t width = bytes_of(op.dtype);
  visit(op.x, op.count * width, false);
  visit(op.a.data, op.count * bytes_of(op.a.dtype), false);
  visit(op.y, op.count * width, true);
}

template <typename Visit>
void each_buffer(Add& op, const Visit& visit) {
  visit(op.a, op.count * kFloat, false);
  visit(op.y, op.count * kFloat, true);
}

template <typename Visit>
void each_buffer(Fill& op, const Visit& visit) {
  visit(op.y.data, op.count * bytes_of(op.y.dtype), true);
}

template <typename Visit>
void each_buffer(SoftCap& op, const Visit& visit) {
  visit(op.y, op.count * kFloat, true);
}

template <typename Visit>
void each_buffer(Cast& op, const Visit& visit) {
  visit(op.x, op.count * bytes_of(op.dtype), false);
  visit(op.y.data, op.count * bytes_of(op.y.dtype), true);
}

template <typename Visit>
void each_buffer(OrderedSum& op, const Visit& visit) {
  for (const void*& x : std::span(op.x).first(static_cast<size_t>(op.sources))) {
    visit(x, op.count * bytes_of(op.from), false);
  }
  visit(op.before, op.count * kFloat, false);
  visit(op.y, op.count * bytes_of(op.to), true);
}

template <typename Visit>
void each_buffer(AdamW& op, const Visit& visit) {
  visit(op.hi, op.count * int64_t{2}, true);
  visit(op.lo, op.count * int64_t{2}, true);
  visit(op.master, op.count * kFloat, true);
  visit(op.exp_avg, op.count * kFloat, true);
  visit(op.exp_avg_sq, op.count * kFloat, op.next_exp_avg_sq == nullptr);
  visit(op.next_exp_avg_sq, op.count * kFloat, true);
  visit(op.grad, op.count * kFloat, false);
}

template <typename Visit>
void each_buffer(SumSquares& op, const Visit& visit) {
  visit(op.x, op.count * kFloat, false);
  visit(op.out, ranges_of(op) * static_cast<int64_t>(sizeof(SquaresPartial)), true);
  visit_workspace(op.workspace, visit);
}

}  // namespace strata::kernels
