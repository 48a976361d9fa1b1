// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/plan/verifier_op_check.h"

namespace strata::plan::verifying {

// What rules of a compute op ask about the part of a pass that it is.
class PassCheck : public OpCheck {
 protected:
  using OpCheck::OpCheck;

  bool is_last() const { return op_.part == facts_.last_part(op_.kind, op_.segment); }
  // Whether the op has the gradients of what the segment reads.
  bool ends_backward() const { return is_loss() ? is_last() : is_backward() && op_.part == 0; }
  bool is_backward() const { return op_.kind == OpKind::kBackward; }
  bool is_products() const { return op_.kind == OpKind::kWeightGradient; }
  bool goes_back() const { return is_backward() || is_products() || is_loss(); }
  bool delays() const { return facts_.delays(op_.segment); }
  bool is_loss() const { return op_.kind == OpKind::kLoss; }
  // How many parts come after that of the branch, or of its first products' gradients.
  int parts_after_branch() const {
    return is_backward() ? parts_.backward_branch() - op_.part : op_.part - parts_.forward_branch();
  }
  bool slices() const { return facts_.spec.tensor.ranks > 1; }
  // Whether the op is the backward of a norm behind the branch.
  bool norms_back() const { return is_backward() && op_.part > parts_.backward_first(); }
  // Whether the op of a tensor slice computes with the rows of all ranks, or with sums of own ones.
  bool has_all_rows() const {
    if (!slices()) return false;
    if (is_head()) return op_.part < 2;
    return parts_after_branch() <= 0 && !norms_back();
  }
  bool embeds() const { return segment_.kind == model::SegmentKind::kEmbedding; }
  bool is_head() const { return segment_.kind == model::SegmentKind::kHead; }

  const model::Parts parts_ = facts_.parts(op_.segment);
};

}  // namespace strata::plan::verifying
