// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/footprint.h"
#include "engine/model/spec.h"
#include "kernels/cached_attention.h"

// The offsets of a segment's tensors in its interior and workspaces. footprint() reports the totals
// and the compute driver uses the offsets, so the two cannot differ.
namespace strata::model {

struct Span {
  int64_t offset = 0;  // bytes, a multiple of kernels::workspace_alignment
  int64_t bytes = 0;
};

// Weight matrices with the same input that are adjacent in the flat buffer, so that one product
// computes them.
struct Projection {
  int64_t offset = 0;   // elements from the start of the flat buffer
  int64_t column = 0;   // first column of the output
  int64_t outputs = 0;  // columns of the output
  bool frozen = false;
  int64_t bias_offset = -1;  // elements; negative: no bias
  bool bias_frozen = false;
};

// Tensors, including `ones`, have the device's interior type. `gathered` has the weights' type, and
// statistics ([B, H, T], [N], [N, H], [N, K]) are f32. A span with two names in its comment holds
// first the one, then the other.
struct SegmentLayout {
  int64_t width = 0;               // columns of `projected`
  std::vector<Projection> into;    // norm's output -> projected
  std::vector<Projection> keys;    // norm's output -> keys and values that ranks share
  std::vector<Projection> out_of;  // attended or activated -> the branch's output; or the head

  Span projected;    // interior  [N, (H+2K)D] q, k, v: after RoPE; before norm and RoPE if q and k
                     //           are normed; or [N, 2F] gate, up; or [N, H*D] q, where ranks
                     //           share keys
  Span attended;     // interior  [N, H*D]
  Span log_sum_exp;  // interior  [B, H, T]; of own heads and all tokens where Parts::swaps_heads
  // Where Parts::swaps_heads, of own heads and all tokens in their order, for P ranks:
  Span whole_heads;     // interior  [P*N, (H+2K)D / P] q, k, v as attention reads them
  Span whole_attended;  // interior  [P*N, H*D / P]
  Span whole_starts;    // interior  [P*N] i32 with documents
  Span norm_sums;       // interior  [2, N] of q and k over all ranks, where Parts::sums_norms
  Span unnormed;   // interior  [own rows, C] the branch's output before its norm, if it has one
  Span post_rstd;  // interior  [own rows] of the norm of the branch's output
  int64_t interior_bytes = 0;

  Span normed;           // forward   [N, C] norm's output, then the branch's output
  Span activated;        // forward   [N, F]
  Span turned;           // forward   [N, (H+K)D] normed q and k after RoPE, or projected where
                         //           it is not in the interior
  Span gathered;         // forward   [B, C] rows of the boundary tensor, for logits
  Span own_logits;       // forward   [B, own tokens] where the vocabulary is cut, f32
  Span own_rows;         // forward   [N, C] of the embedding there, in the weights' type
  Span forward_scratch;  // forward   scratch of the kernels
  Span own_interior;     // forward   the interior when the caller keeps none
  int64_t recompute_bytes = 0;
  int64_t forward_bytes = 0;

  Span grad;          // backward  [N, C] of the branch's output, then of the norm's output
  Span branch;        // backward  [N, H*D] gradient of attended, or [N, F] activated;
                      //           then [N, C] the norm's output
  Span inner;         // backward  [N, (H+2K)D] gradient of projected, or [N, F] of activated
  Span ones;          // backward  [N], if a bias is trained and its matrix is frozen
  Span rstd;          // backward  [N]; for LayerNorm followed by [N] means
  Span turned_again;  // backward  [N, (H+K)D] normed q and k after RoPE
  Span own_keys;      // backward  [N, 2KD] keys before their norm, where ranks share them
  Span head_rstd;     // backward  [N, H], [N, K] of the norms of q and k; [N], [N] over all heads
  Span backward_scratch;  // backward  scratch of the kernels
  int64_t backward_bytes = 0;

  // What a backward that delays its products leaves for them: the gradient of the branch's output
  // [N, C], attended [N, H*D] or activated [N, F], the norm's output [N, C], and the gradients of
  // projected, and of keys where ranks share them ([N, 2KD] f32).
  Span later_grad;    // operands
  Span later_branch;  // operands
  Span later_input;   // operands
  Span later_inner;   // operands
  Span later_keys;    // operands
  int64_t operand_bytes = 0;
};

SegmentLayout segment_layout(const ModelSpec& spec, int segment, const BatchShape& shape,
                             Recipe recipe, const kernels::DeviceDescription& device);

// The number of norms of q, and of k, for one token.
int64_t query_norms(const Architecture& architecture);
int64_t key_norms(const Architecture& architecture);

// The trained parameters of a segment's norms, whose gradients follow each other where products are
// delayed (Footprint::norm_gradient_bytes), in this order.
std::vector<const Parameter*> trained_norms(const Segment& segment);

// The parameter of a role; null when the segment has none.
const Parameter* find_parameter(const Segment& segment, ParameterRole role);

// As find_parameter; the segment must have one (checked).
const Parameter& parameter_of(const Segment& segment, ParameterRole role);

// The shape of a layer's attention, on which its workspaces depend. Op is kernels::AttentionForward
// or AttentionBackward.
template <typename Op>
Op attention_shape(const Architecture& a, const BatchShape& batch, int layer) {
  Op op;
  const int64_t parts = batch.swaps_heads ? batch.context.ranks : 1;
  op.batch = batch.rows;
  op.length = batch.length * parts;
  if (!batch.swaps_heads) op.context = batch.context;
  op.heads = a.heads / parts;
  op.kv_heads = a.kv_heads / parts;
  op.head_size = a.head_size;
  op.cap = static_cast<float>(a.score_cap);
  op.window = a.window_of(layer);
  return op;
}

// The same over a cache of keys and values.
kernels::CachedAttention cached_shape(const Architecture& architecture, const BatchShape& batch,
                                      int layer);

}  // namespace strata::model
