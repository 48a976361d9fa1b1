// SPDX-License-Identifier: Apache-2.0
// Compute ops: what tensor and context ranks exchange before and behind a part of a pass.
#include "engine/plan/verifier_pass_check.h"

namespace strata::plan::verifying {
namespace {

class BetweenParts : PassCheck {
 public:
  using PassCheck::PassCheck;

  void check() {
    check_row_gradients();
    check_branch();
    check_scores();
    check_keys();
    check_swapped();
    check_norms();
  }

 private:
  // What tensor ranks sum between two parts of a segment, and each has the sums of own rows of.
  void check_branch() {
    const Value branch =
        boundary(goes_back() ? ValueKind::kBranchGradient : ValueKind::kBranch, op_.segment);
    const int after = is_loss() ? op_.part - 1 : parts_after_branch();
    const bool sums = is_loss()     ? parts_.shares_scores
                      : goes_back() ? parts_.sums_branch
                                    : parts_.sums_branch || parts_.sums_rows;
    std::vector<Tensor> writes;
    if (sums && after == 0) writes = {{branch, op_.kind != OpKind::kRecompute}};
    check_tensors(Mode::kWrite, branch.kind, writes);
    check_shared(Mode::kRead, branch.kind, 1, sums && after > 0, facts_.own_rows(branch));
  }

  // Of what tensor ranks gather for a backward, a norm behind the branch makes own rows.
  void check_row_gradients() {
    const Value value = boundary(ValueKind::kRowGradient, op_.segment);
    const Range all = {0, facts_.extent(value)};
    check_shared(Mode::kWrite, value.kind, 0, norms_back(), facts_.own_rows(value));
    check_shared(Mode::kRead, value.kind, 1, is_backward() && has_all_rows(), all);
  }

  // What tensor ranks share of their logits before the loss.
  void check_scores() {
    const bool shares = parts_.shares_scores && op_.kind != OpKind::kLogits;
    const Range all = {0, facts_.extent({.kind = ValueKind::kScores})};
    check_shared(Mode::kWrite, ValueKind::kScores, 0, shares && op_.part == 0, facts_.own_scores());
    check_shared(Mode::kRead, ValueKind::kScores, 1, shares && op_.part == 1, all);
  }

  // What tensor ranks sum up for norms of q and k over all heads: before the branch, and in
  // backward between attention and the products.
  void check_norms() {
    const int after = parts_after_branch();
    const bool back = is_backward();
    const bool sums = parts_.sums_norms;
    const bool gives = sums && (back ? op_.part == parts_.backward_first() : after < 0);
    const bool takes = sums && after == 0;
    check_projected(ValueKind::kProjected, gives && !back, takes && !back);
    check_projected(ValueKind::kProjectedGradient, gives && back, takes && back);
    const Range all = {0, model::norm_sum_bytes(facts_.plan.shape)};
    check_shared(Mode::kWrite, ValueKind::kNormSums, 0, gives, all);
    check_shared(Mode::kRead, ValueKind::kNormSums, 1, takes, all);
  }

  void check_projected(ValueKind kind, bool writes, bool reads) {
    const Range all = {
        0, model::projected_bytes(facts_.spec, facts_.plan.shape, facts_.plan.device.interior)};
    check_shared(Mode::kWrite, kind, 0, writes, all);
    check_shared(Mode::kRead, kind, 0, reads, all);
  }

  // What context ranks share around attention: own ones come before the branch, those of all with
  // it; of gradients those of all are made first.
  void check_keys() {
    const Range own = facts_.own_keys(), all = {0, facts_.extent({.kind = ValueKind::kKeys})};
    const bool shares = parts_.shares_keys;
    const bool brings = shares && !is_backward() && parts_after_branch() < 0;
    const bool attends =
        shares && (is_backward() ? op_.part == parts_.backward_first() : parts_after_branch() == 0);
    const bool turns = shares && is_backward() && parts_after_branch() == 0;
    check_shared(Mode::kWrite, ValueKind::kKeys, 0, brings, own);
    check_shared(Mode::kRead, ValueKind::kKeys, 1, attends, all);
    const bool sums = attends && is_backward();
    check_shared(Mode::kRead, ValueKind::kKeyGradient, 1, turns, own);
    check_shared(Mode::kWrite, ValueKind::kKeyGradient, sums ? 0 : 1, sums || turns,
                 sums ? all : own);
  }

  // What context ranks swap around attention: q, k and v, and then what is attended to; of
  // gradients the opposite.
  void check_swapped() {
    using enum ValueKind;
    const bool swaps = parts_.swaps_heads, back = is_backward();
    // Forward and back: before own heads attend, when they do, and behind that.
    const int step = back ? parts_.backward_first() - op_.part : op_.part - parts_.first_filling();
    const auto check = [&](ValueKind kind, bool forward, int at) {
      const Range all = {0, facts_.extent({.kind = kind})};
      const bool is_here = swaps && back != forward;
      check_shared(Mode::kWrite, kind, 0, is_here && step == at, all);
      check_shared(Mode::kRead, kind, 1, is_here && step == at + 1, all);
    };
    check(kHeads, true, 0);
    check(kAttended, true, 1);
    check(kAttendedGradient, false, 0);
    check(kHeadsGradient, false, 1);
  }
};

}  // namespace

void check_between_parts(const Facts& facts, const Program& program, int64_t index,
                         Reporter& reporter) {
  BetweenParts(facts, program, index, reporter).check();
}

}  // namespace strata::plan::verifying
