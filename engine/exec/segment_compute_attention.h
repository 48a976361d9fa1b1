// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "engine/exec/segment_compute_ops.h"

// What attention segments share, whether their ranks share keys, swap heads, or neither.
namespace strata::exec {

// q, k and v, or their gradients, with the elements between their tokens.
struct Columns {
  kernels::Interior q;
  kernels::Interior k;
  kernels::Interior v;
  int64_t q_stride;
  int64_t k_stride;
  int64_t v_stride;
};

Columns columns_of(const SegmentContext& context, kernels::Interior base);

// q, k and v as attention reads them: rotated in place, or, when q and k are normed first, written
// to `turned`, because the norms' backward needs their inputs. `rstd`: what that reads, or null.
// `sums`: those of the norms, where tensor ranks add them up.
Columns turn(const SegmentContext& context, kernels::Interior projected, kernels::Interior turned,
             float* rstd, const float* sums);

// Turns gradients of rotated q and k into those of the projections, in place; where tensor ranks
// add up sums, only into those of normed q and k, with own sums.
void turn_back(const SegmentContext& context, kernels::ConstInterior projected, const float* rstd,
               kernels::Interior grad_projected);

inline float score_scale(const model::Architecture& a) {
  const double scalar = a.score_scalar > 0 ? a.score_scalar : static_cast<double>(a.head_size);
  return static_cast<float>(1.0 / std::sqrt(scalar));
}

// Forward or backward of attention, with q, k and v.
template <typename Op>
Op attention_of(const SegmentContext& context, const Columns& in) {
  const model::Architecture& a = context.architecture;
  Op op = model::attention_shape<Op>(a, context.shape, context.segment.layer);
  op.starts = context.starts();
  op.scale = score_scale(a);
  op.q = in.q;
  op.q_stride = in.q_stride;
  op.k = in.k;
  op.k_stride = in.k_stride;
  op.v = in.v;
  op.v_stride = in.v_stride;
  return op;
}

// Where context ranks swap heads (model::Parts::swaps_heads): the two parts before the branch, what
// the branch reads, and the parts of backward, the first of which has the gradient of attended.
void heads_forward(const SegmentContext& context, std::byte* interior);
void whole_forward(const SegmentContext& context, std::byte* interior);
void take_attended(const SegmentContext& context, std::byte* interior);
void give_attended_grad(const SegmentContext& context, kernels::ConstInterior grad_attended);
void whole_backward(const SegmentContext& context);
void heads_backward(const SegmentContext& context);

}  // namespace strata::exec
