// SPDX-License-Identifier: Apache-2.0
// Compute ops: the buffers of a segment call are the op's accesses.
#include "engine/base/check.h"
#include "engine/exec/executor_impl.h"
#include "engine/exec/op_access.h"

namespace strata::exec {
namespace {

using plan::Access;
using plan::Mode;
using plan::OpKind;
using plan::ValueKind;

}  // namespace

SegmentCall Executor::Impl::call_of(const plan::Op& op, const Instance& instance) const {
  const auto accesses = program_of(instance).accesses_of(op);
  const auto pointer = [&](Mode mode, ValueKind kind, int segment = -1) -> std::byte* {
    const Access* access = find_access(accesses, mode, kind, segment);
    return access ? at(access->arena, access->offset - access->first) : nullptr;
  };
  const int shared = spec_.segments[op.segment].shares;
  SegmentCall call;
  call.segment = op.segment;
  call.part = op.part;
  call.weights = pointer(Mode::kRead, ValueKind::kPlane, op.segment);
  call.grad = reinterpret_cast<float*>(pointer(Mode::kWrite, ValueKind::kGradient, op.segment));
  call.grad_first = !find_access(accesses, Mode::kRead, ValueKind::kGradient, op.segment);
  if (shared >= 0) {
    call.shared_weights = pointer(Mode::kRead, ValueKind::kPlane, shared);
    call.shared_grad =
        reinterpret_cast<float*>(pointer(Mode::kWrite, ValueKind::kGradient, shared));
    call.shared_grad_first = !find_access(accesses, Mode::kRead, ValueKind::kGradient, shared);
  }
  STRATA_CHECK(spec_.segments[op.segment].inputs.size() <= 1);  // no op reads across streams yet
  call.input = pointer(Mode::kRead, ValueKind::kActivation);
  call.output = pointer(Mode::kWrite, ValueKind::kActivation);
  call.grad_output = pointer(Mode::kRead, ValueKind::kActivationGradient);
  call.grad_input = pointer(Mode::kWrite, ValueKind::kActivationGradient);
  const bool backward = op.kind == OpKind::kBackward;
  call.interior =
      pointer(backward && !op.recomputes ? Mode::kRead : Mode::kWrite, ValueKind::kInterior);
  const bool goes_back = backward || op.kind == OpKind::kLoss;
  const ValueKind branch = goes_back ? ValueKind::kBranchGradient : ValueKind::kBranch;
  const auto either = [&](ValueKind kind) {
    std::byte* written = pointer(Mode::kWrite, kind);
    return reinterpret_cast<float*>(written ? written : pointer(Mode::kRead, kind));
  };
  call.rows = pointer(Mode::kRead, ValueKind::kRows);
  call.row_grads = either(ValueKind::kRowGradient);
  call.branch = either(branch);
  call.scores = either(ValueKind::kScores);
  call.projected = either(backward ? ValueKind::kProjectedGradient : ValueKind::kProjected);
  call.norm_sums = either(ValueKind::kNormSums);
  call.keys = either(ValueKind::kKeys);
  call.key_grads = either(ValueKind::kKeyGradient);
  for (const Access& access : accesses) {
    if (!plan::is_swapped(access.value.kind)) continue;
    if (access.mode == Mode::kWrite) call.sent = at(access);
    if (access.mode == Mode::kRead) call.received = at(access);
  }
  call.operands = either(ValueKind::kOperands);
  call.norm_grads = either(ValueKind::kNormGradient);
  if (call.norm_grads != nullptr && backward) {
    call.grad_first = !find_access(accesses, Mode::kRead, ValueKind::kNormGradient);
  }
  call.workspace = pointer(Mode::kWrite, ValueKind::kScratch);
  call.tokens = reinterpret_cast<const int32_t*>(pointer(Mode::kRead, ValueKind::kTokens));
  call.targets = reinterpret_cast<const int32_t*>(pointer(Mode::kRead, ValueKind::kTargets));
  call.rope = reinterpret_cast<const float*>(pointer(Mode::kRead, ValueKind::kRope));
  call.grad_scale = 1.0f / static_cast<float>(instance.target_count);
  if (find_access(accesses, Mode::kRead, ValueKind::kDecision)) {
    call.grad_scale *= static_cast<float>(decision_of(op, instance).loss_scale.factor);
  }
  call.loss_sum = reinterpret_cast<double*>(pointer(Mode::kWrite, ValueKind::kLossSum));
  call.logits = reinterpret_cast<float*>(pointer(Mode::kWrite, ValueKind::kLogits));
  call.logit_position =
      reinterpret_cast<const int32_t*>(pointer(Mode::kRead, ValueKind::kPositions));
  call.cache = pointer(Mode::kWrite, ValueKind::kCache);
  call.token_count = instance.token_count;
  call.logit_count = instance.logit_count;
  return call;
}

void Executor::Impl::run_compute(const plan::Op& op, const Instance& instance) {
  const SegmentCall call = call_of(op, instance);
  parallel_.run([&] {
    switch (op.kind) {
      case OpKind::kForward:
        return compute_->forward(call);
      case OpKind::kRecompute:
        return compute_->recompute(call);
      case OpKind::kBackward:
        if (op.recomputes) compute_->recompute(call);
        return compute_->backward(call);
      case OpKind::kWeightGradient:
        return compute_->weight_gradient(call);
      case OpKind::kLoss:
        return compute_->loss(call);
      case OpKind::kEvaluate:
        return compute_->loss_forward(call);
      default:
        STRATA_CHECK(op.kind == OpKind::kLogits);
        return compute_->logits(call);
    }
  });
}

}  // namespace strata::exec
