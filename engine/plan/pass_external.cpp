// SPDX-License-Identifier: Apache-2.0
// Passes of a framework that computes by itself: its uses of segments, in its order.
#include "engine/plan/pass_order.h"

namespace strata::plan {

// What the plan does for segments that a framework computes: their weights are there, and so are
// places for their gradients. Activations are the framework's own.
void PassOrder::external_use(int index, int micro_batch) {
  const model::ExternalUse& use = input_.spec->uses[index];
  for (const int s : use.segments) {
    acquire_updated(s);
    if (use.backward) gradients_.begin(s);
  }
  Op& op = emit_.open(use.backward ? OpKind::kBackward : OpKind::kForward, Lane::kCompute,
                      use.segments.front());
  op.unit = segment_of(use.segments.front()).unit;
  op.micro_batch = micro_batch;
  op.part = index;
  op.flops = use.flops;
  for (const int s : use.segments) {
    weights_.read(s, generation_);
    if (use.backward) gradients_.add(s);
  }
  emit_.close();
  for (const int s : use.segments) {
    if (use.backward) gradients_.leave(s);
    weights_.release(s);
  }
}

// A framework computes micro-batch by micro-batch, so weights are brought for every use in it.
void PassOrder::train_external() {
  for (int m = 0; m < input_.micro_batches; ++m) {
    for (size_t i = 0; i < input_.spec->uses.size(); ++i) external_use(static_cast<int>(i), m);
  }
}

void PassOrder::infer_external(int micro_batches) {
  const std::vector<model::ExternalUse>& uses = input_.spec->uses;
  for (int m = 0; m < micro_batches; ++m) {
    for (size_t i = 0; i < uses.size(); ++i) {
      if (!uses[i].backward) external_use(static_cast<int>(i), m);
    }
  }
}

}  // namespace strata::plan
