// SPDX-License-Identifier: Apache-2.0
// Attention of context ranks that swap heads: each attends to all tokens with some of the heads.
#include "engine/exec/segment_compute_attention.h"

namespace strata::exec {
namespace {

using kernels::ConstInterior;
using kernels::Interior;

// What ranks send each other in blocks, one for each rank: q, k and v of the heads of one rank and
// the tokens of another, and where documents start; or what these attend to.
struct Swap {
  explicit Swap(const SegmentContext& context)
      : ranks(context.shape.context.ranks),
        tokens(context.tokens()),
        element(bytes_of(context.interior)),
        queries(context.architecture.heads * context.architecture.head_size / ranks),
        keys(context.architecture.kv_heads * context.architecture.head_size / ranks),
        width(queries + 2 * keys),
        block_bytes(
            model::swapped_head_bytes(context.architecture, context.shape, context.interior)),
        attended_bytes(
            model::swapped_attended_bytes(context.architecture, context.shape, context.interior)),
        start_bytes(block_bytes - head_bytes()) {}

  int64_t head_bytes() const { return tokens * width * element; }

  const int64_t ranks;
  const int64_t tokens;  // own ones
  const int64_t element;
  const int64_t queries, keys, width;  // columns of a rank's heads
  const int64_t block_bytes, attended_bytes;
  const int64_t start_bytes;  // of a block, behind the heads; 0 without documents
};

std::byte* bytes_at(const void* data, int64_t offset) {
  return static_cast<std::byte*>(const_cast<void*>(data)) + offset;
}

void copy_columns(const SegmentContext& context, int64_t columns, ConstInterior from,
                  int64_t from_stride, Interior to, int64_t to_stride) {
  const int64_t element = bytes_of(context.interior);
  context.ops.copy_rows(context.queue, {.rows = context.tokens(),
                                        .row_bytes = columns * element,
                                        .x = from.data,
                                        .x_stride = from_stride * element,
                                        .y = to.data,
                                        .y_stride = to_stride * element});
}

// Calls f(columns of all heads, its stride, columns in a block) for q, k and v of a rank's heads.
template <typename F>
void each_column_part(const Swap& swap, int64_t rank, const Columns& all, const F& f) {
  f(swap.queries, all.q + rank * swap.queries, all.q_stride, int64_t{0});
  f(swap.keys, all.k + rank * swap.keys, all.k_stride, swap.queries);
  f(swap.keys, all.v + rank * swap.keys, all.v_stride, swap.queries + swap.keys);
}

Interior block_of(const SegmentContext& context, const void* blocks, int64_t rank, int64_t bytes) {
  return {bytes_at(blocks, rank * bytes), context.interior};
}

// Rows of all tokens in the order of sequences, [B, P*T], to or from the blocks of their ranks,
// [B, T] each.
enum class Order : uint8_t { kToSequences, kToRanks };
void reorder(const SegmentContext& context, Order order, void* blocks, int64_t block_bytes,
             void* whole, int64_t row_bytes) {
  const int64_t ranks = context.shape.context.ranks, length = context.shape.length;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const kernels::ContextPart part = {rank, ranks};
    const int64_t piece = part.piece(length);
    for (int64_t b = 0; b < context.shape.rows; ++b) {
      for (const int64_t first : {int64_t{0}, piece}) {
        void* own = bytes_at(blocks, rank * block_bytes + (b * length + first) * row_bytes);
        const int64_t row = b * ranks * length + part.position(first, length);
        void* all = bytes_at(whole, row * row_bytes);
        const bool to_ranks = order == Order::kToRanks;
        const int64_t joined = row_bytes < 64 ? piece : 1;  // rows, which follow each other
        context.ops.copy_rows(context.queue, {.rows = piece / joined,
                                              .row_bytes = joined * row_bytes,
                                              .x = to_ranks ? all : own,
                                              .x_stride = joined * row_bytes,
                                              .y = to_ranks ? own : all,
                                              .y_stride = joined * row_bytes});
      }
    }
  }
}

// q, k and v of own heads and all tokens.
Columns whole_columns(const Swap& swap, Interior base) {
  const Interior k = base + swap.queries;
  return {base, k, k + swap.keys, swap.width, swap.width, swap.width};
}

}  // namespace

void heads_forward(const SegmentContext& context, std::byte* interior) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  const bool norms = a.block.qk_norm != model::QkNorm::kNone;
  const Interior turned = context.workspace(layout.turned);
  const Interior projected = norms ? context.part(interior, layout.projected) : turned;
  project(context, {layout.into, a.hidden, layout.width, layout.forward_scratch},
          branch_input(context, context.workspace(layout.normed), nullptr), projected);
  const Columns all = turn(context, projected, turned, nullptr, nullptr);
  const Swap swap(context);
  for (int64_t rank = 0; rank < swap.ranks; ++rank) {
    const Interior block = block_of(context, context.call.sent, rank, swap.block_bytes);
    each_column_part(swap, rank, all,
                     [&](int64_t columns, Interior from, int64_t stride, int64_t at) {
                       copy_columns(context, columns, from, stride, block + at, swap.width);
                     });
    if (swap.start_bytes == 0) continue;
    context.queue.copy(bytes_at(block.data, swap.head_bytes()), context.starts(), swap.start_bytes);
  }
}

void whole_forward(const SegmentContext& context, std::byte* interior) {
  const model::SegmentLayout& layout = context.layout;
  const Swap swap(context);
  const Interior heads = context.part(interior, layout.whole_heads);
  const Interior attended = context.part(interior, layout.whole_attended);
  void* received = bytes_at(context.call.received, 0);
  reorder(context, Order::kToSequences, received, swap.block_bytes, heads.data,
          swap.width * swap.element);
  if (swap.start_bytes > 0) {
    reorder(context, Order::kToSequences, bytes_at(received, swap.head_bytes()), swap.block_bytes,
            interior + layout.whole_starts.offset, 4);
  }
  attend(context, interior, whole_columns(swap, heads));
  reorder(context, Order::kToRanks, context.call.sent, swap.attended_bytes, attended.data,
          swap.queries * swap.element);
}

void take_attended(const SegmentContext& context, std::byte* interior) {
  const Swap swap(context);
  const Interior attended = context.part(interior, context.layout.attended);
  for (int64_t rank = 0; rank < swap.ranks; ++rank) {
    copy_columns(context, swap.queries,
                 block_of(context, context.call.received, rank, swap.attended_bytes), swap.queries,
                 attended + rank * swap.queries, swap.ranks * swap.queries);
  }
}

void give_attended_grad(const SegmentContext& context, ConstInterior grad_attended) {
  const Swap swap(context);
  for (int64_t rank = 0; rank < swap.ranks; ++rank) {
    copy_columns(context, swap.queries, grad_attended + rank * swap.queries,
                 swap.ranks * swap.queries,
                 block_of(context, context.call.sent, rank, swap.attended_bytes), swap.queries);
  }
}

void whole_backward(const SegmentContext& context) {
  const model::SegmentLayout& layout = context.layout;
  const Swap swap(context);
  std::byte* interior = static_cast<std::byte*>(context.call.interior);
  const Interior grad_attended = context.workspace(layout.branch);
  const Interior grad_heads = context.workspace(layout.inner);
  reorder(context, Order::kToSequences, bytes_at(context.call.received, 0), swap.attended_bytes,
          grad_attended.data, swap.queries * swap.element);
  attend_backward(context, interior,
                  whole_columns(swap, context.part(interior, layout.whole_heads)), grad_attended,
                  whole_columns(swap, grad_heads));
  reorder(context, Order::kToRanks, context.call.sent, swap.block_bytes, grad_heads.data,
          swap.width * swap.element);
}

void heads_backward(const SegmentContext& context) {
  const model::Architecture& a = context.architecture;
  const model::SegmentLayout& layout = context.layout;
  const Swap swap(context);
  std::byte* interior = static_cast<std::byte*>(context.call.interior);
  const Interior grad = context.operand_or(layout.inner, layout.later_inner);
  for (int64_t rank = 0; rank < swap.ranks; ++rank) {
    const Interior block = block_of(context, context.call.received, rank, swap.block_bytes);
    each_column_part(swap, rank, columns_of(context, grad),
                     [&](int64_t columns, Interior to, int64_t stride, int64_t at) {
                       copy_columns(context, columns, block + at, swap.width, to, stride);
                     });
  }
  const Interior projected = context.part(interior, layout.projected);
  float* head_rstd = context.workspace_floats(layout.head_rstd);
  if (a.block.qk_norm != model::QkNorm::kNone) {
    turn(context, projected, context.workspace(layout.turned_again), head_rstd, nullptr);
  }
  turn_back(context, projected, head_rstd, grad);
  const ProjectionOperands into = {layout.into, a.hidden, layout.width, layout.backward_scratch};
  finish_branch_grad(context, {{into, grad, layout.later_inner}});
}

}  // namespace strata::exec
