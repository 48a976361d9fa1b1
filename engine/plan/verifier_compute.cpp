// SPDX-License-Identifier: Apache-2.0
// Compute ops: the weights, activations, interiors and gradients that each op must name, so that a
// plan that moves the right bytes also computes the right step.
#include <fmt/core.h>

#include <algorithm>

#include "engine/plan/verifier_pass_check.h"

namespace strata::plan::verifying {
namespace {

// The rules of one compute op.
class ComputeCheck : PassCheck {
 public:
  using PassCheck::PassCheck;

  void check() {
    if (segment_.kind == model::SegmentKind::kExternal) return check_use();
    check_kind();
    check_operands();
    if (!is_products()) {
      check_weights();
      check_activations();
      check_between_parts(facts_, program_, index_, reporter_);
      check_exchanged();
    }
    if (goes_back()) check_gradients();
  }

 private:
  void check_kind() {
    const bool head_op = is_loss() || op_.kind == OpKind::kEvaluate || op_.kind == OpKind::kLogits;
    if (head_op != is_head()) bad("contract", "only the head has loss, evaluate and logits");
    if (op_.recomputes && !is_backward()) bad("contract", "only backward recomputes");
    const bool leaves = std::any_of(accesses_.begin(), accesses_.end(), [](const Access& access) {
      return access.mode == Mode::kWrite && access.value.kind == ValueKind::kInterior;
    });
    if (op_.kind == OpKind::kForward ? op_.keeps != leaves : op_.keeps) {
      bad("contract", "a forward that keeps, and no other op, says so and leaves its interior");
    }
    const int last = facts_.last_part(op_.kind, op_.segment);
    if (op_.part < 0 || op_.part > last) {
      bad("contract", fmt::format("part {} of {}", op_.part, last + 1));
    }
    if (op_.recomputes && last > 0) bad("contract", "recomputes within a part");
    check_micro_batch();
  }

  void check_micro_batch() {
    const int count = facts_.micro_batches_of(program_.name);
    if (op_.micro_batch >= 0 && op_.micro_batch < count) return;
    bad("compute", fmt::format("micro-batch {} of {}", op_.micro_batch, count));
  }

  // Of segments that a framework computes the plan has weights and, in backward, gradients.
  void check_use() {
    const std::vector<model::ExternalUse>& uses = facts_.spec.uses;
    if (op_.part < 0 || op_.part >= std::ssize(uses)) {
      return bad("contract", fmt::format("use {} of {}", op_.part, uses.size()));
    }
    const model::ExternalUse& use = uses[op_.part];
    const OpKind kind = use.backward ? OpKind::kBackward : OpKind::kForward;
    if (op_.kind != kind || op_.segment != use.segments.front() || op_.keeps || op_.recomputes) {
      return bad("contract", fmt::format("is not use {}", op_.part));
    }
    check_micro_batch();
    for (const Access& access : accesses_) {
      const Value& value = access.value;
      const bool known = std::ranges::count(use.segments, value.segment) > 0;
      if (known && value.kind == ValueKind::kGradient && use.backward) continue;
      if (known && value.kind == ValueKind::kPlane && value.plane == Plane::kHi) {
        check_generation(access);
        continue;
      }
      bad("contract", fmt::format("has {}", describe(facts_, value)));
    }
    for (size_t i = 0; i < use.segments.size(); ++i) {
      const int s = use.segments[i];
      check_weights_of(s);
      if (!use.backward) continue;
      const int before = op_.micro_batch * facts_.segment(s).backward_uses;
      check_gradient(s, before + facts_.sums_by_use[op_.part][i]);
    }
  }

  void check_weights() {
    for (const Access& access : accesses_) {
      const Value& value = access.value;
      if (value.kind != ValueKind::kPlane) continue;
      if (value.plane != Plane::kHi ||
          (value.segment != op_.segment && value.segment != segment_.shares)) {
        bad("contract", fmt::format("reads {}", describe(facts_, value)));
        continue;
      }
      check_generation(access);
    }
    if (!(embeds() && op_.kind == OpKind::kBackward)) check_weights_of(op_.segment);
    if (segment_.shares >= 0 && is_head()) check_weights_of(segment_.shares);
  }

  // Forward and backward of a step use one and the same state of the weights.
  void check_generation(const Access& access) {
    const Value& value = access.value;
    const bool pending = program_.accepts_pending;
    const Generation wanted = pending ? Generation::kUpdated : Generation::kOld;
    const bool frozen =
        access.first >= facts_.segment(value.segment).trainable_numel * facts_.width(Plane::kHi);
    if (normal(value.generation, pending) == wanted || frozen) return;
    bad("generation", fmt::format("reads {}", describe(facts_, value)));
  }

  // The frozen part of a segment may have an access of its own, so generations are not compared
  // here.
  void check_weights_of(int segment) {
    Value value;
    value.kind = ValueKind::kPlane;
    value.segment = segment;
    const auto matches = [&](const Value& other) {
      return other.kind == ValueKind::kPlane && other.segment == segment;
    };
    if (whole(Mode::kRead, facts_.extent(value), matches)) return;
    bad("coverage",
        fmt::format("does not read all of {} in one slot", facts_.segment(segment).name));
  }

  // The gradients of its output and of what it reads. Readers of one output go back from the last
  // to the first, and each adds to the sum of those before.
  void check_activation_gradients() {
    const bool backward = op_.kind == OpKind::kBackward;
    const Value output = boundary(ValueKind::kActivationGradient, op_.segment);
    std::vector<Tensor> reads, writes;
    if (!has_all_rows()) reads.push_back({output, backward});
    for (const int from : segment_.inputs) {
      const std::vector<int>& readers = facts_.readers[from];
      Value gradient = boundary(ValueKind::kActivationGradient, from);
      gradient.reduced = static_cast<uint8_t>(
          std::find(readers.begin(), readers.end(), op_.segment) - readers.begin());
      if (!ends_backward()) continue;
      const bool needed = facts_.wants_gradient[from] != 0;
      writes.push_back({gradient, needed});
      if (op_.segment == readers.back()) continue;
      ++gradient.reduced;
      reads.push_back({gradient, needed});
    }
    check_tensors(Mode::kRead, ValueKind::kActivationGradient, reads);
    check_tensors(Mode::kWrite, ValueKind::kActivationGradient, writes);
  }

  void check_activations() {
    std::vector<Tensor> inputs, rows;
    for (const int from : segment_.inputs) {
      if (has_all_rows())
        rows.push_back({boundary(ValueKind::kRows, from), true});
      else if (!norms_back())
        inputs.push_back({boundary(ValueKind::kActivation, from), true});
    }
    check_tensors(Mode::kRead, ValueKind::kActivation, inputs);
    check_tensors(Mode::kRead, ValueKind::kRows, rows);
    std::vector<Tensor> outputs;
    const Value output = boundary(ValueKind::kActivation, op_.segment);
    if (is_last()) outputs = {{output, op_.kind == OpKind::kForward}};
    check_tensors(Mode::kWrite, ValueKind::kActivation, outputs);
    check_activation_gradients();
    check_interior();
    check_cache();
  }

  // Attention extends its own keys and values.
  void check_cache() {
    const Value cache = {.kind = ValueKind::kCache, .segment = op_.segment};
    const bool attends = segment_.kind == model::SegmentKind::kAttention && op_.part == 0;
    std::vector<Tensor> own;
    if (attends && facts_.plan.shape.is_cached()) own = {{cache, true}};
    check_tensors(Mode::kRead, ValueKind::kCache, own);
    check_tensors(Mode::kWrite, ValueKind::kCache, own);
  }

  void check_interior() {
    const bool fills = op_.kind == OpKind::kRecompute || op_.keeps;
    const bool block = segment_.kind == model::SegmentKind::kAttention ||
                       segment_.kind == model::SegmentKind::kMlp;
    const Value whole = boundary(ValueKind::kInterior, op_.segment);
    std::vector<Tensor> reads, writes;
    const int missing = parts_.last_filling() - op_.part;
    if (is_backward() && parts_after_branch() <= 0) {
      reads = {{whole, block && !op_.recomputes}};
      writes = {{whole, false}};
    } else if (!is_backward() && missing >= 0 && op_.part >= parts_.first_filling()) {
      Value begun = whole;
      begun.reduced = static_cast<uint8_t>(missing + 1);
      if (op_.part > parts_.first_filling()) reads = {{begun, fills}};
      begun.reduced = static_cast<uint8_t>(missing);
      writes = {{begun, fills}};
    }
    check_tensors(Mode::kRead, ValueKind::kInterior, reads);
    check_tensors(Mode::kWrite, ValueKind::kInterior, writes);
  }

  // What a backward leaves for the products that it delays, and the gradients of norms, which it
  // sums up itself until the last of these products takes them.
  void check_operands() {
    if (is_products() && !delays()) bad("contract", "the segment's products are not delayed");
    const Value whole = boundary(ValueKind::kOperands, op_.segment);
    Value begun = whole;
    begun.reduced = 1;
    std::vector<Tensor> reads, writes;
    if (is_products()) reads = {{whole, true}};
    if (is_backward() && delays()) {
      const int first = parts_.backward_first(), products = parts_.backward_branch();
      const bool two = first > products;
      if (op_.part == first) writes = {{two ? begun : whole, true}};
      if (two && op_.part == products) {
        reads = {{begun, true}};
        writes = {{whole, true}};
      }
    }
    check_tensors(Mode::kRead, ValueKind::kOperands, reads);
    check_tensors(Mode::kWrite, ValueKind::kOperands, writes);
    check_norm_gradient();
  }

  void check_norm_gradient() {
    const int parts = parts_.backward_last() + 1;
    const int end = (op_.micro_batch + 1) * parts;
    Value sum = {.kind = ValueKind::kNormGradient, .segment = op_.segment, .index = end};
    std::vector<Tensor> reads, writes;
    if (delays() && facts_.extent(sum) > 0) {
      if (is_backward()) {
        sum.index = end - op_.part;
        writes = {{sum, true}};
        if (--sum.index > 0) reads = {{sum, true}};
      } else if (is_products() && op_.micro_batch + 1 == facts_.plan.micro_batches) {
        reads = {{sum, true}};
      }
    }
    check_tensors(Mode::kRead, ValueKind::kNormGradient, reads);
    check_tensors(Mode::kWrite, ValueKind::kNormGradient, writes);
  }

  // The op must have exactly these of the values that are exchanged with the caller.
  void check_exchanged() {
    const model::Architecture& a = facts_.spec.architecture;
    const model::BatchShape& shape = facts_.plan.shape;
    const bool logits = op_.kind == OpKind::kLogits;
    const bool scores = is_head() && !logits;
    const bool attends = segment_.kind == model::SegmentKind::kAttention &&
                         parts_after_branch() <= 0 && !norms_back();
    check_one(Mode::kRead, ValueKind::kTokens, op_.micro_batch,
              embeds() || (attends && (shape.documents || shape.is_cached())));
    check_one(Mode::kRead, ValueKind::kRope, model::rope_table_of(a, segment_.layer),
              attends && model::rope_tables(a) > 0);
    check_one(Mode::kRead, ValueKind::kTargets, op_.micro_batch, scores && op_.part < 2);
    check_one(Mode::kWrite, ValueKind::kLossSum, op_.micro_batch,
              scores && op_.part == parts_.evaluate_last());
    check_one(Mode::kRead, ValueKind::kPositions, 0, logits);
    check_one(Mode::kWrite, ValueKind::kLogits, 0, logits);
  }

  void check_one(Mode mode, ValueKind kind, int index, bool needed) {
    const Value value = {.kind = kind, .index = index};
    int count = 0;
    for (const Access& access : accesses_) {
      if (access.mode != mode || access.value.kind != kind) continue;
      ++count;
      if (!(access.value == value)) {
        return bad("value", fmt::format("names {}, not {}", describe(facts_, access.value),
                                        describe(facts_, value)));
      }
    }
    if ((count > 0) != needed || (needed && !whole(mode, value, facts_.extent(value)))) {
      bad("coverage", fmt::format("{} {}", needed ? "does not have all of" : "has no use for",
                                  describe(facts_, value)));
    }
  }

  // Contributions to a gradient are in ascending order: the head's for all micro-batches, then the
  // segment's own, of each micro-batch from the last part to the first. Of the head's parts, where
  // it has several, the second has the gradient of the matrix and the third that of the norm.
  void check_gradients() {
    const bool ties = is_head() && segment_.shares >= 0;
    const bool parts = is_loss() && parts_.shares_scores;
    const bool own =
        parts ? op_.part == 2 || (op_.part == 1 && !ties) : !(is_backward() && delays());
    const bool shared = ties && (!parts || op_.part == 1);
    const int each = facts_.gradient_ops(op_.segment);
    const int later = parts ? (each == 1 ? 0 : 2 - op_.part) : op_.part;
    const int base = facts_.plan.micro_batches * facts_.sharers[op_.segment];
    if (own) check_gradient(op_.segment, base + (op_.micro_batch + 1) * each - later);
    if (shared) check_gradient(segment_.shares, op_.micro_batch + 1);
    for (const Access& access : accesses_) {
      const Value& value = access.value;
      if (value.kind == ValueKind::kGradient && !(own && value.segment == op_.segment) &&
          !(shared && value.segment == segment_.shares)) {
        bad("contract", fmt::format("has {}", describe(facts_, value)));
      }
    }
  }

  void check_gradient(int segment, int contributions) {
    const model::Segment& s = facts_.segment(segment);
    std::vector<Range> covered;
    for (const Access& access : accesses_) {
      const Value& value = access.value;
      if (value.kind != ValueKind::kGradient || value.segment != segment) continue;
      const int wanted = access.mode == Mode::kWrite ? contributions : contributions - 1;
      if (value.index != wanted || value.reduced) {
        return bad("contributions", fmt::format("{} {}, not with {}",
                                                access.mode == Mode::kRead ? "reads" : "writes",
                                                describe(facts_, value), wanted));
      }
      if (access.mode == Mode::kWrite)
        covered.push_back({access.first, access.first + access.bytes});
      if (access.mode == Mode::kWrite && contributions > 1 && !has_read_at(access)) {
        return bad("contributions",
                   fmt::format("writes {} without the sum so far", describe(facts_, value)));
      }
    }
    if (s.trainable_numel == 0 && covered.empty()) return;
    Value value = boundary(ValueKind::kGradient, segment);
    value.index = contributions;
    const bool ok = join(covered) && covered.size() == 1 && covered[0].begin == 0 &&
                    covered[0].end >= s.trainable_numel * 4;
    if (!ok || !whole(Mode::kWrite, value, covered[0].end)) {
      bad("coverage", fmt::format("does not write all of {}", describe(facts_, value)));
    }
  }

  bool has_read_at(const Access& write) const {
    return std::any_of(accesses_.begin(), accesses_.end(), [&](const Access& access) {
      return access.mode == Mode::kRead && access.value.kind == ValueKind::kGradient &&
             access.value.segment == write.value.segment && access.arena == write.arena &&
             access.offset == write.offset && access.bytes == write.bytes &&
             access.first == write.first;
    });
  }
};

}  // namespace

void check_compute(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  if (program.ops[index].segment < 0) {
    return reporter.add("index", program.name, index, "a compute op without a segment");
  }
  ComputeCheck(facts, program, index, reporter).check();
}

}  // namespace strata::plan::verifying
