// SPDX-License-Identifier: Apache-2.0
#include "engine/model/footprint.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/segment_layout.h"
#include "kernels/sum_squares.h"

namespace strata::model {
namespace {

// A multiply-add counts as two operations. Elementwise work is left out: it is small and bound by
// memory bandwidth.
// Most passes with a cache have one token of each text.
double product_flops(const BatchShape& shape, const std::vector<Projection>& projections,
                     int64_t inputs) {
  const int64_t tokens = shape.is_cached() ? shape.cache_rows : shape.tokens();
  double flops = 0;
  for (const Projection& one : projections) {
    flops += 2.0 * static_cast<double>(tokens) * static_cast<double>(one.outputs) *
             static_cast<double>(inputs);
  }
  return flops;
}

// The gradient of a frozen matrix is not computed, that of the input always.
double weight_gradient_flops(const BatchShape& shape, std::vector<Projection> projections,
                             int64_t inputs) {
  std::erase_if(projections, [](const Projection& one) { return one.frozen; });
  return product_flops(shape, projections, inputs);
}
double product_backward_flops(const BatchShape& shape, const std::vector<Projection>& projections,
                              int64_t inputs) {
  return product_flops(shape, projections, inputs) +
         weight_gradient_flops(shape, projections, inputs);
}

// Operations of q·k, or of p·v, over the pairs that causality and the window leave.
double attention_product_flops(const Architecture& a, int layer, const BatchShape& shape) {
  if (shape.is_cached()) return 0;  // it reads the cache, at the rate of memory
  const double length = static_cast<double>(shape.whole_length());
  const double window =
      a.is_windowed(layer) ? std::min<double>(length, static_cast<double>(a.window)) : length;
  const double pairs = length * window - 0.5 * window * window;
  return 2.0 * static_cast<double>(shape.rows * a.heads * a.head_size) * pairs /
         static_cast<double>(shape.context.ranks);
}

void add_block_flops(const ModelSpec& spec, int index, const SegmentLayout& layout,
                     const BatchShape& shape, Footprint& result) {
  const Segment& segment = spec.segments[static_cast<size_t>(index)];
  const Architecture& a = spec.architecture;
  const bool attention = segment.kind == SegmentKind::kAttention;
  const int64_t inner = attention ? a.heads * a.head_size : a.feed_forward;
  const double pairs = attention ? attention_product_flops(a, segment.layer, shape) : 0;
  const double into = product_flops(shape, layout.into, a.hidden) + 2 * pairs;
  result.forward_flops = into + product_flops(shape, layout.out_of, inner);
  // The norm of a branch's output needs that output.
  result.recompute_flops = a.block.post_norm ? result.forward_flops : into;
  result.backward_flops = product_backward_flops(shape, layout.into, a.hidden) +
                          product_backward_flops(shape, layout.out_of, inner) + 5 * pairs;
  result.key_flops = product_flops(shape, layout.keys, a.hidden);
  result.backward_flops += product_backward_flops(shape, layout.keys, a.hidden);
  result.product_flops = weight_gradient_flops(shape, layout.into, a.hidden) +
                         weight_gradient_flops(shape, layout.keys, a.hidden) +
                         weight_gradient_flops(shape, layout.out_of, inner);
  const Parts parts = parts_of(spec, shape, index);
  if (!parts.sums_norms && !parts.swaps_heads) return;
  result.key_flops = parts.swaps_heads ? into : product_flops(shape, layout.into, a.hidden);
  result.forward_flops -= result.key_flops;
  result.recompute_flops -= result.key_flops;
}

}  // namespace

Parts parts_of(const ModelSpec& spec, const BatchShape& shape, int segment) {
  const SegmentKind kind = spec.segments[static_cast<size_t>(segment)].kind;
  const bool attends = kind == SegmentKind::kAttention;
  const bool slices = spec.tensor.ranks > 1;
  const bool block = attends || kind == SegmentKind::kMlp;
  const bool of_contexts = attends && shape.context.ranks > 1;
  const bool shares_keys = of_contexts && !shape.swaps_heads;
  const bool norms_heads = spec.architecture.block.qk_norm == QkNorm::kProjection;
  return {.shares_keys = shares_keys,
          .swaps_heads = of_contexts && shape.swaps_heads,
          .sums_norms = attends && slices && norms_heads && !of_contexts,
          .sums_branch = block && slices,
          .norms_branch = block && slices && spec.architecture.block.post_norm,
          .sums_rows = kind == SegmentKind::kEmbedding && slices,
          .shares_scores = kind == SegmentKind::kHead && slices};
}

int backward_ops(const ModelSpec& spec, const BatchShape& shape, int segment) {
  const Segment& at = spec.segments[static_cast<size_t>(segment)];
  if (at.kind == SegmentKind::kExternal) return at.backward_uses;
  const Parts parts = parts_of(spec, shape, segment);
  // The head's own matrix has its gradient before the norm.
  if (parts.shares_scores) return at.shares < 0 ? 2 : 1;
  return parts.backward_last() + 1;
}

bool sums_whole(const ModelSpec& spec, int segment) {
  return spec.tensor.ranks > 1 && spec.segments[static_cast<size_t>(segment)].whole_numel > 0;
}

int64_t own_score_bytes(const BatchShape& shape) {
  return shape.tokens() * 3 * int64_t{4};
}

int64_t own_key_bytes(const ModelSpec& spec, const BatchShape& shape) {
  const Architecture& a = spec.architecture;
  return shape.tokens() * 2 * a.kv_heads * a.head_size * int64_t{4};
}

bool can_swap_heads(const Architecture& a, int64_t ranks) {
  return ranks > 1 && a.heads % ranks == 0 && a.kv_heads % ranks == 0;
}

// Of a token and D, to the other ranks: all heads twice and keys and values, without those that
// stay; or keys and values to each. Where that is equal, the backward of kept activations decides,
// which gathers keys once more.
bool should_swap_heads(const Architecture& a, int64_t ranks) {
  return can_swap_heads(a, ranks) && 2 * (a.heads + a.kv_heads) <= 2 * a.kv_heads * ranks;
}

int64_t swapped_head_bytes(const Architecture& a, const BatchShape& shape, DType interior) {
  const int64_t columns = (a.heads + 2 * a.kv_heads) * a.head_size / shape.context.ranks;
  const int64_t starts = shape.documents ? shape.tokens() * int64_t{4} : 0;
  return shape.tokens() * columns * bytes_of(interior) + starts;
}

int64_t swapped_attended_bytes(const Architecture& a, const BatchShape& shape, DType interior) {
  return shape.tokens() * a.heads * a.head_size / shape.context.ranks * bytes_of(interior);
}

int64_t projected_bytes(const ModelSpec& spec, const BatchShape& shape, DType interior) {
  const Architecture& a = spec.architecture;
  return shape.tokens() * (a.heads + 2 * a.kv_heads) * a.head_size * bytes_of(interior);
}

int64_t norm_sum_bytes(const BatchShape& shape) {
  return 2 * shape.tokens() * int64_t{4};
}

int rope_tables(const Architecture& a) {
  if (a.position != Position::kRope) return 0;
  return a.window_rope ? 2 : 1;
}

int rope_table_of(const Architecture& a, int layer) {
  return a.window_rope && a.is_windowed(layer) ? 1 : 0;
}

int64_t rope_pairs(const Architecture& a, int table) {
  const Rope& rope = table == 1 ? *a.window_rope : a.rope;
  return (rope.rotary > 0 ? rope.rotary : a.head_size) / 2;
}

int64_t rope_bytes(const Architecture& a, int table, const BatchShape& shape) {
  return 2 * shape.positions() * rope_pairs(a, table) * int64_t{4};
}

int64_t cache_bytes(const ModelSpec& spec, int segment, const BatchShape& shape,
                    const kernels::DeviceDescription& device) {
  const Segment& one = spec.segments[static_cast<size_t>(segment)];
  if (!shape.is_cached() || one.kind != SegmentKind::kAttention) return 0;
  return round_up(
      kernels::cache_bytes(cached_shape(spec.architecture, shape, one.layer), device.interior),
      kPageBytes);
}

int64_t most_rows(const ModelSpec& spec, const BatchShape& shape) {
  return ceil_div(shape.tokens(), spec.tensor.ranks);
}

RowRange own_rows(const ModelSpec& spec, const BatchShape& shape, int64_t tokens) {
  const int64_t most = most_rows(spec, shape);
  const int64_t first = spec.tensor.rank * most;
  return {first, std::clamp<int64_t>(tokens - first, 0, most)};
}

namespace {

// Of own rows of a tensor [N, C].
int64_t own_row_bytes(const ModelSpec& spec, const BatchShape& shape, DType type) {
  return most_rows(spec, shape) * spec.architecture.hidden * bytes_of(type);
}

}  // namespace

int64_t row_bytes(const ModelSpec& spec, const BatchShape& shape, Recipe recipe) {
  return own_row_bytes(spec, shape, weight_dtype(recipe));
}

int64_t boundary_bytes(const ModelSpec& spec, const BatchShape& shape, Recipe recipe) {
  return round_up(row_bytes(spec, shape, recipe), kPageBytes);
}

int64_t row_gradient_bytes(const ModelSpec& spec, int segment, const BatchShape& shape,
                           Recipe recipe, DType interior) {
  const bool inside = parts_of(spec, shape, segment).norms_branch;
  return own_row_bytes(spec, shape, inside ? interior : weight_dtype(recipe));
}

int64_t branch_bytes(const ModelSpec& spec, const BatchShape& shape) {
  return own_row_bytes(spec, shape, DType::kF32);
}

int64_t norm_workspace_bytes(int64_t numel, int64_t ranges,
                             const kernels::DeviceDescription& device) {
  kernels::SumSquares sum;
  sum.count = numel * ranges;
  sum.part = numel;
  return kernels::workspace_bytes(sum, device);
}

int64_t norm_gradient_bytes(const Segment& segment) {
  int64_t bytes = 0;
  for (const Parameter* norm : trained_norms(segment)) bytes += norm->numel * int64_t{4};
  return bytes;
}

Footprint footprint(const ModelSpec& spec, int segment, const BatchShape& shape, Recipe recipe,
                    const kernels::DeviceDescription& device) {
  const Segment& one = spec.segments[static_cast<size_t>(segment)];
  const SegmentLayout layout = segment_layout(spec, segment, shape, recipe, device);
  Footprint result;
  result.interior_bytes = layout.interior_bytes;
  result.forward_workspace_bytes = layout.forward_bytes;
  result.recompute_workspace_bytes = layout.recompute_bytes;
  result.backward_workspace_bytes = layout.backward_bytes;
  if (one.kind == SegmentKind::kHead) {
    result.forward_flops = product_flops(shape, layout.out_of, spec.architecture.hidden);
    result.backward_flops = result.forward_flops +
                            product_backward_flops(shape, layout.out_of, spec.architecture.hidden);
  } else if (one.kind == SegmentKind::kAttention || one.kind == SegmentKind::kMlp) {
    result.operand_bytes = layout.operand_bytes;
    result.norm_gradient_bytes = norm_gradient_bytes(one);
    add_block_flops(spec, segment, layout, shape, result);
  }
  return result;
}

void require_taken(const ModelSpec& spec, const BatchShape& shape,
                   const kernels::DeviceDescription& device) {
  kernels::require_possible(device);
  const bool norms_heads = spec.architecture.block.qk_norm == QkNorm::kProjection;
  if (spec.tensor.ranks > 1 && norms_heads && shape.context.ranks > 1) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("tensor-ranks: {}: this model has norms over all heads of q and k, whose "
                    "sums context ranks do not exchange (leave --tensor-ranks or "
                    "--context-ranks out)",
                    spec.tensor.ranks));
  }
  const Architecture& a = spec.architecture;
  const bool can_swap = can_swap_heads(a, shape.context.ranks);
  if (shape.swaps_heads && !can_swap) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("context-exchange: heads: {} context ranks have to divide the heads and "
                    "the key heads of a rank, {} and {} (give --context-exchange keys, or "
                    "other ranks)",
                    shape.context.ranks, a.heads, a.kv_heads));
  }
  if (shape.context.ranks > 1 && !shape.swaps_heads &&
      (!device.contexts || device.interior != DType::kF32)) {
    throw Error(ErrorCode::kConfig,
                fmt::format("context-ranks: {}: the kernels of device {} attend to whole sequences "
                            "alone, {} (use --device cpu, or {})",
                            shape.context.ranks, device.name,
                            can_swap ? "which --context-exchange keys cuts"
                                     : "and context ranks have these where they divide the heads "
                                       "and the key heads",
                            can_swap ? "leave that out" : "another --context-ranks"));
  }
  const auto refuse = [&](const char* what, int64_t is, const std::string& limit) {
    throw Error(ErrorCode::kConfig,
                fmt::format("model: {} of {}: the kernels of device {} take {} (use another "
                            "device)",
                            what, is, device.name, limit));
  };
  const auto require_multiple = [&](const char* what, int64_t is, int64_t of) {
    if (is % of != 0) refuse(what, is, fmt::format("multiples of {}", of));
  };
  if (a.head_size > device.head_size_max) {
    refuse("head size", a.head_size, fmt::format("at most {}", device.head_size_max));
  }
  require_multiple("head size", a.head_size, device.head_size_multiple);
  require_multiple("hidden size", a.hidden, device.column_multiple);
  require_multiple("feed-forward size", a.feed_forward, device.column_multiple);
  require_multiple("width of all heads", a.heads * a.head_size, device.column_multiple);
  require_multiple("width of all key heads", a.kv_heads * a.head_size, device.column_multiple);
}

}  // namespace strata::model
