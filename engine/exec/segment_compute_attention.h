// SPDX-License-Identifier: Apache-2.0
#pragma once

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

// Attends to q, k and v: what comes of it, and what backward reads of it, goes into the interior;
// or reads that and the gradient of the former. Where ranks swap heads it is of all tokens.
void attend(const SegmentContext& context, std::byte* interior, const Columns& in);
void attend_backward(const SegmentContext& context, std::byte* interior, const Columns& in,
                     kernels::ConstInterior grad_attended, const Columns& grads);

// Where context ranks swap heads (model::Parts::swaps_heads): the two parts before the branch, what
// the branch reads, and the parts of backward, the first of which has the gradient of attended.
void heads_forward(const SegmentContext& context, std::byte* interior);
void whole_forward(const SegmentContext& context, std::byte* interior);
void take_attended(const SegmentContext& context, std::byte* interior);
void give_attended_grad(const SegmentContext& context, kernels::ConstInterior grad_attended);
void whole_backward(const SegmentContext& context);
void heads_backward(const SegmentContext& context);

}  // namespace strata::exec
