// SPDX-License-Identifier: Apache-2.0
// Products that a backward delays: what it leaves for them, and the phases in which they are done.
#include "engine/plan/pass_order.h"

namespace strata::plan {

void PassOrder::operands(Mode mode, int segment, int micro_batch, int missing) {
  emit_.access({.mode = mode,
                .arena = compute_arena(),
                .offset = map_.operands[segment][micro_batch],
                .bytes = footprint(segment).operand_bytes,
                .value = {.kind = ValueKind::kOperands,
                          .reduced = static_cast<uint8_t>(missing),
                          .segment = segment,
                          .index = micro_batch}});
}

void PassOrder::give_gradients(int segment, int micro_batch, int part) {
  if (!delays(segment)) return gradients_.add(segment);
  const model::Parts parts = this->parts(segment);
  const int first = parts.backward_first(), products = parts.backward_branch();
  gradients_.add_norms(segment);
  if (part == products && first > products) operands(Mode::kRead, segment, micro_batch, 1);
  if (part == first && first > products) operands(Mode::kWrite, segment, micro_batch, 1);
  if (part == products) operands(Mode::kWrite, segment, micro_batch, 0);
}

void PassOrder::weight_gradient(int segment, int micro_batch) {
  Op& op = emit_.open(OpKind::kWeightGradient, Lane::kCompute, segment);
  op.unit = segment_of(segment).unit;
  op.micro_batch = micro_batch;
  op.flops = footprint(segment).product_flops;
  operands(Mode::kRead, segment, micro_batch, 0);
  gradients_.add(segment);
  if (micro_batch + 1 == input_.micro_batches) gradients_.read_norms_of(segment);
  scratch(footprint(segment).backward_workspace_bytes);
  emit_.close();
}

void PassOrder::products_window(const model::Section& section, const Span& span) {
  for (int s = section.end_segment; s-- > section.first_segment;) {
    if (!delays(s)) continue;
    gradients_.begin(s);
    for (int m = span.first; m < span.last; ++m) weight_gradient(s, m);
    gradients_.leave(s);
  }
}

}  // namespace strata::plan
