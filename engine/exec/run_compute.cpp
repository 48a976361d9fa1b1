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

SegmentCall Executor::Impl::call_of(const plan::Op& op, Instance& instance) const {
  const auto accesses = program_of(instance).accesses_of(op);
  const auto pointer = [&](Mode mode, ValueKind kind, int segment = -1) -> std::byte* {
    const Access* access = find_access(accesses, mode, kind, segment);
    return access ? at(access->arena, access->offset - access->first) : nullptr;
  };
  const int shared = spec_.segments[op.segment].shares;
  const auto batch = static_cast<size_t>(op.micro_batch * plan_.shape.tokens());
  SegmentCall call;
  call.segment = op.segment;
  call.weights = pointer(Mode::kRead, ValueKind::kPlane, op.segment);
  call.grad = reinterpret_cast<float*>(pointer(Mode::kWrite, ValueKind::kGradient, op.segment));
  call.grad_first = !find_access(accesses, Mode::kRead, ValueKind::kGradient, op.segment);
  if (shared >= 0) {
    call.shared_weights = pointer(Mode::kRead, ValueKind::kPlane, shared);
    call.shared_grad =
        reinterpret_cast<float*>(pointer(Mode::kWrite, ValueKind::kGradient, shared));
    call.shared_grad_first = !find_access(accesses, Mode::kRead, ValueKind::kGradient, shared);
  }
  call.input = pointer(Mode::kRead, ValueKind::kActivation);
  call.output = pointer(Mode::kWrite, ValueKind::kActivation);
  call.grad_output = pointer(Mode::kRead, ValueKind::kActivationGradient);
  call.grad_input = pointer(Mode::kWrite, ValueKind::kActivationGradient);
  call.interior =
      pointer(op.kind == OpKind::kBackward && !op.recomputes ? Mode::kRead : Mode::kWrite,
              ValueKind::kInterior);
  call.workspace = pointer(Mode::kWrite, ValueKind::kScratch);
  call.tokens = instance.tokens.data() + batch;
  call.targets = instance.targets.empty() ? nullptr : instance.targets.data() + batch;
  call.grad_scale = 1.0f / static_cast<float>(instance.target_count);
  call.loss_sum = &instance.loss_sums[static_cast<size_t>(op.micro_batch)];
  if (op.kind == OpKind::kLogits) {
    call.logits = instance.logits.data();
    call.logit_position = instance.logit_position.data();
  }
  return call;
}

void Executor::Impl::run_compute(const plan::Op& op, Instance& instance) {
  SegmentCall call = call_of(op, instance);
  parallel_.run([&] {
    switch (op.kind) {
      case OpKind::kForward:
        return compute_->forward(call);
      case OpKind::kRecompute:
        return compute_->recompute(call);
      case OpKind::kBackward:
        if (op.recomputes) compute_->recompute(call);
        return compute_->backward(call);
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
