// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/model/spec.h"
#include "kernels/context.h"
#include "kernels/description.h"

// Bytes and operations of a segment's compute ops, computed from shapes. The planner reserves
// memory and predicts times with them, and the compute driver lays out its buffers with the same
// functions.
namespace strata::model {

// One micro-batch: `rows` sequences of `length` tokens, padded to this fixed shape.
//
// Of context ranks, `length` is what each has of a sequence.
//
// With a cache of keys and values, one pass of generation: `length` is the most tokens of a pass,
// which are of any of cache_rows texts (rows is 1), and texts have up to cache_positions tokens.
struct BatchShape {
  int64_t rows = 1;
  int64_t length = 1;
  bool documents = false;  // rows hold several documents, each of which attends to itself alone
  int64_t cache_rows = 0;
  int64_t cache_positions = 0;
  kernels::ContextPart context = {};
  bool swaps_heads = false;  // between context ranks: Parts::swaps_heads
  int64_t tokens() const { return rows * length; }
  bool is_cached() const { return cache_rows > 0; }
  int64_t positions() const { return is_cached() ? cache_positions : length; }
  int64_t logit_rows() const { return is_cached() ? cache_rows : rows; }
  int64_t whole_length() const { return length * context.ranks; }  // of a sequence
};

// The ops that one pass of a segment is, cut where ranks exchange.
//
//   shares_keys   attention of context ranks. Forward: part 0 computes own keys and values, which
//                 are gathered. Backward: the last part goes down to the gradients of all keys and
//                 values, of whose sums each rank gets its own
//   swaps_heads   the same, where ranks exchange heads instead: part 0 computes q, k and v of own
//                 tokens, from which each rank gets those of its heads; part 1 attends to all
//                 tokens with own heads, and each rank gets what its tokens attend to. Backward is
//                 down to the gradient of that, then attention's, then that of the products
//   sums_norms    attention of a tensor slice, where norms of q and k run over all heads (and ranks
//                 do not share keys). Forward: part 0 computes q, k and v of own heads and sums of
//                 squares, which are added up. Backward: the last part but a norm's goes down to
//                 the gradients of normed q and k, and their sums are added up
//   sums_branch   blocks of a tensor slice, which compute with the rows of all ranks. Forward: the
//                 last part adds the sum of the branch to own rows of the residual stream.
//                 Backward: part 0 has the sum of own rows of the gradient of the branch's input
//   norms_branch  of these, where a norm follows the branch. Backward: the last part is the norm's,
//                 of own rows
//   sums_rows     the embedding of a tensor slice. Forward: part 0 has rows of own tokens and
//                 zeros, part 1 own rows of the sum over ranks. Backward is one part
//   shares_scores the head of a tensor slice. Part 0 sums up own logits in scores, part 1 has those
//                 of all ranks, and the loss, and in training own matrix's gradient; then part 2
//                 has the sum of own rows of the gradient of the norm's output. Logits are one part
//
// Forward does the parts in ascending order, backward in descending order.
struct Parts {
  bool shares_keys = false;
  bool swaps_heads = false;
  bool sums_norms = false;
  bool sums_branch = false;
  bool norms_branch = false;
  bool sums_rows = false;
  bool shares_scores = false;
  // The last part of forward, of backward, and of the head's loss with and without gradients.
  constexpr int last() const { return forward_branch() + (sums_branch || sums_rows ? 1 : 0); }
  constexpr int backward_last() const {
    return last() - (sums_rows ? 1 : 0) + (norms_branch ? 1 : 0);
  }
  constexpr int loss_last() const { return shares_scores ? 2 : 0; }
  constexpr int evaluate_last() const { return shares_scores ? 1 : 0; }
  static constexpr int kMost = 5;  // parts of an op
  // Where the branch is computed, where its gradient comes in, and where the gradients of its first
  // products are.
  constexpr int forward_branch() const {
    return swaps_heads ? 2 : shares_keys || sums_norms ? 1 : 0;
  }
  // The parts of forward that fill an interior.
  constexpr int first_filling() const { return swaps_heads ? 0 : forward_branch(); }
  constexpr int last_filling() const { return norms_branch ? last() : forward_branch(); }
  int backward_first() const { return backward_last() - (norms_branch ? 1 : 0); }
  int backward_branch() const { return sums_branch ? 1 : 0; }
};
Parts parts_of(const ModelSpec& spec, const BatchShape& shape, int segment);

// How many ops of a micro-batch add to a segment's gradient, without those of segments that share
// its parameters.
int backward_ops(const ModelSpec& spec, const BatchShape& shape, int segment);

// Whether the ranks of a tensor group have parts of the gradients of the parameters that all of
// them have (Parameter::whole): sums over own rows, over own heads, or what one rank brings.
bool sums_whole(const ModelSpec& spec, int segment);

// Bytes of what a rank's logits of one micro-batch are summed up in, where the vocabulary is cut:
// [N, 3] f32 (kernels/cross_entropy.h).
int64_t own_score_bytes(const BatchShape& shape);

// Bytes of a rank's own keys and values of one micro-batch, where they are shared: [N, 2KD] f32.
int64_t own_key_bytes(const ModelSpec& spec, const BatchShape& shape);

// Whether context ranks can swap the heads of a layer, of which each gets as many; and whether they
// send no more bytes in a forward so than by gathering keys and values.
bool can_swap_heads(const Architecture& architecture, int64_t ranks);
bool should_swap_heads(const Architecture& architecture, int64_t ranks);

// Bytes of what one rank sends another of one micro-batch where they swap heads: q, k and v, [N,
// (H+2K)D / ranks], and where documents start, [N] i32; and attended, [N, HD / ranks]; in the
// device's interior type.
int64_t swapped_head_bytes(const Architecture& architecture, const BatchShape& shape,
                           DType interior);
int64_t swapped_attended_bytes(const Architecture& architecture, const BatchShape& shape,
                               DType interior);

// Bytes of q, k and v of own heads of one micro-batch, [N, (H+2K)D] in the device's interior type,
// and of the sums of the norms of q and k, [2, N] f32, where Parts::sums_norms.
int64_t projected_bytes(const ModelSpec& spec, const BatchShape& shape, DType interior);
int64_t norm_sum_bytes(const BatchShape& shape);

// The number of RoPE tables of a model (0, 1, or 2 when windowed layers have their own), and the
// index of a layer's table.
int rope_tables(const Architecture& architecture);
int rope_table_of(const Architecture& architecture, int layer);

// Pairs of a head that a table rotates, R/2. The table has [T, R/2] cosines, then as many sines, in
// f32.
int64_t rope_pairs(const Architecture& architecture, int table);
int64_t rope_bytes(const Architecture& architecture, int table, const BatchShape& shape);

// The bytes of the targets of one micro-batch, and of its tokens, i32. With documents, where the
// document of each token starts (kernels/attention.h) comes behind the tokens; with a cache, the
// text of each token, then its position in that.
inline int64_t target_bytes(const BatchShape& shape) {
  return shape.tokens() * 4;
}
inline int64_t token_bytes(const BatchShape& shape) {
  return target_bytes(shape) * (shape.is_cached() ? 3 : shape.documents ? 2 : 1);
}

// The keys and values that an attention segment keeps; 0 for others and without a cache. A layer
// with a window keeps no more than passes can see.
int64_t cache_bytes(const ModelSpec& spec, int segment, const BatchShape& shape,
                    const kernels::DeviceDescription& device);

// Tensor ranks divide the N tokens of a micro-batch: each has rows of every boundary tensor. Of the
// first `tokens` of a batch of this shape (a pass with a cache may have fewer), rank r has those
// from r * most_rows() on.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};
int64_t most_rows(const ModelSpec& spec, const BatchShape& shape);
RowRange own_rows(const ModelSpec& spec, const BatchShape& shape, int64_t tokens);

// Bytes of the tensor at a segment boundary, [most_rows, C] in the recipe's weight type, rounded up
// to pages; and without that, as one part of the rows of all tensor ranks.
int64_t boundary_bytes(const ModelSpec& spec, const BatchShape& shape, Recipe recipe);
int64_t row_bytes(const ModelSpec& spec, const BatchShape& shape, Recipe recipe);
// The same of the gradient of the output of a segment, or of its branch, in the device's interior
// type, where Parts::norms_branch.
int64_t row_gradient_bytes(const ModelSpec& spec, int segment, const BatchShape& shape,
                           Recipe recipe, DType interior);
// The same of a branch, f32.
int64_t branch_bytes(const ModelSpec& spec, const BatchShape& shape);

// Sizes are rounded up to whole pages, and zero when a segment has no such buffer.
struct Footprint {
  int64_t interior_bytes = 0;  // what Recompute (or Forward, when kept) leaves for Backward
  // Workspaces are live only inside the op. Forward's is also enough when no interior is kept.
  int64_t forward_workspace_bytes = 0;
  int64_t recompute_workspace_bytes = 0;  // of Recompute, and of Forward into a kept interior
  int64_t backward_workspace_bytes = 0;   // also of products that a backward delays
  int64_t operand_bytes = 0;              // what such a backward leaves for them
  int64_t norm_gradient_bytes = 0;        // the sums of gradients of norms, meanwhile; no pages
  double key_flops = 0;                   // of the parts before the branch; not among the others
  double forward_flops = 0;    // of one micro-batch; for the head: only the forward of the loss
  double recompute_flops = 0;  // to rebuild the interior from the boundary input
  double backward_flops = 0;   // given the interior; for the head: forward+backward (Loss)
  double product_flops = 0;    // of these, what a backward can delay: gradients of matrices
};

// Bytes of the gradients of a segment's trained norms, f32 (segment_layout.h).
int64_t norm_gradient_bytes(const Segment& segment);

// Workspace of one call for the sums of squares of up to `ranges` ranges of up to `numel` elements.
int64_t norm_workspace_bytes(int64_t numel, int64_t ranges,
                             const kernels::DeviceDescription& device);

Footprint footprint(const ModelSpec& spec, int segment, const BatchShape& shape, Recipe recipe,
                    const kernels::DeviceDescription& device);

// Throws Error{kConfig} when the device's ops do not support the model's head size or row widths,
// or a cache of keys and values, or the device's description is impossible.
void require_taken(const ModelSpec& spec, const BatchShape& shape,
                   const kernels::DeviceDescription& device);

}  // namespace strata::model
