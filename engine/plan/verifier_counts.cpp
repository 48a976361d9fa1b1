// SPDX-License-Identifier: Apache-2.0
// Counts: what a program must do exactly once.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>

#include "engine/plan/verifier_parts.h"

namespace strata::plan::verifying {
namespace {

class Counts {
 public:
  Counts(const Facts& facts, const Program& program, Reporter& reporter)
      : facts_(facts), program_(program), reporter_(reporter) {}

  void check() {
    check_sizes(ValueKind::kInterior);
    check_sizes(ValueKind::kOperands);
    check_results();
    switch (program_.name) {
      case ProgramName::kStep:
        if (program_.ops.empty() && std::ranges::count(facts_.wants_gradient, 1) == 0) {
          break;  // inference: nothing to train
        }
        check_passes(facts_.plan.micro_batches, OpKind::kLoss);
        check_backward();
        check_updates(!facts_.plan.update().waits || program_.accepts_pending);
        check_decision();
        break;
      case ProgramName::kDrain:
        if (program_.ops.empty()) break;
        check_updates(true);
        check_decides();
        break;
      case ProgramName::kEval:
        check_updates(false);
        if (!program_.ops.empty()) check_passes(facts_.plan.eval_micro_batches, OpKind::kEvaluate);
        break;
      case ProgramName::kGenerate:
        check_updates(false);
        if (!program_.ops.empty()) check_passes(generated(), OpKind::kLogits);
        break;
      case ProgramName::kCheckpoint:
        check_updates(false);
        if (!program_.ops.empty()) check_saved();
        break;
      case ProgramName::kLoad:
        check_updates(false);
        break;
    }
  }

 private:
  void bad(const char* kind, int64_t op, std::string text) {
    reporter_.add(kind, program_.name, op, std::move(text));
  }

  // All ops that use an interior have all of it, with one size, and so it is with operands. By
  // contract these are compute ops.
  void check_sizes(ValueKind kind) {
    std::vector<int64_t> bytes(facts_.segment_count(), -1);
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      if (!is_compute(program_.ops[i].kind)) continue;
      for (const Access& access : program_.accesses_of(program_.ops[i])) {
        if (access.value.kind != kind) continue;
        int64_t& known = bytes[access.value.segment];
        if (known < 0) known = access.bytes;
        if (known == access.bytes && access.first == 0) continue;
        bad("coverage", static_cast<int64_t>(i),
            fmt::format("{}: {} bytes from {}, elsewhere {}", describe(facts_, access.value),
                        access.bytes, access.first, known));
      }
    }
  }

  // The caller gets every loss sum and all logits exactly once; logits are the sum over the tensor
  // ranks that divide the vocabulary.
  void check_results() {
    for (const ValueKind kind : {ValueKind::kLossSum, ValueKind::kLogits}) {
      std::vector<int> written, given;
      const int sums = kind == ValueKind::kLogits && facts_.spec.tensor.cuts_vocabulary ? 1 : 0;
      for (const Op& op : program_.ops) {
        if (op.kind != OpKind::kOutput && !is_compute(op.kind)) continue;
        for (const Access& access : program_.accesses_of(op)) {
          if (access.value.kind != kind) continue;
          if (op.kind == OpKind::kOutput) given.push_back(access.value.index);
          if (op.kind == OpKind::kOutput && access.value.reduced != sums) {
            bad("results", &op - program_.ops.data(), "gives logits that are not of all ranks");
          }
          const bool writes = access.mode == Mode::kWrite;
          if (is_compute(op.kind) && writes) written.push_back(access.value.index);
        }
      }
      std::sort(written.begin(), written.end());
      std::sort(given.begin(), given.end());
      if (written == given) continue;
      bad("results", -1,
          fmt::format("{} values like {} are computed, {} are given to the caller", written.size(),
                      describe(facts_, {.kind = kind}), given.size()));
    }
  }

  // How often each micro-batch of each segment had an op for which `pick` is true: the part that
  // had the fewest or, where one had more than one, that part.
  template <class Pick>
  std::vector<int> tally(int micro_batches, OpKind kind, OpKind head, Pick pick) const {
    const size_t count = static_cast<size_t>(facts_.segment_count()) * micro_batches;
    constexpr int kMostParts = model::Parts::kMost;
    std::array<std::vector<int>, kMostParts> counts;
    counts.fill(std::vector<int>(count, 0));
    for (const Op& op : program_.ops) {
      if (!pick(op) || op.segment < 0 || op.micro_batch < 0 || op.micro_batch >= micro_batches)
        continue;
      const size_t at = static_cast<size_t>(op.segment) * micro_batches + op.micro_batch;
      ++counts[std::clamp(op.part, 0, kMostParts - 1)][at];
    }
    for (size_t at = 0; at < count; ++at) {
      const int segment = static_cast<int>(at / micro_batches);
      const int last = facts_.last_part(is_head(segment) ? head : kind, segment);
      for (int part = 1; part <= last; ++part) {
        const auto [least, most] = std::minmax(counts[0][at], counts[part][at]);
        counts[0][at] = most > 1 ? most : least;
      }
    }
    return counts[0];
  }

  bool is_head(int segment) const {
    return facts_.segment(segment).kind == model::SegmentKind::kHead;
  }

  void check_passes(int micro_batches, OpKind head) {
    if (!facts_.spec.uses.empty()) return check_uses(micro_batches, head == OpKind::kLoss);
    const std::vector<int> forwards =
        tally(micro_batches, OpKind::kForward, head, [&](const Op& op) {
          return op.kind == OpKind::kForward || op.kind == head || facts_.passes(op, false);
        });
    for (size_t i = 0; i < forwards.size(); ++i) {
      if (forwards[i] == 1) continue;
      bad("passes", -1,
          fmt::format("micro-batch {} is forwarded {} times through {}", i % micro_batches,
                      forwards[i], facts_.segment(static_cast<int>(i / micro_batches)).name));
    }
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      const bool other_head =
          op.kind != head &&
          (op.kind == OpKind::kLoss || op.kind == OpKind::kEvaluate || op.kind == OpKind::kLogits);
      if (other_head || (head != OpKind::kLoss &&
                         (op.kind == OpKind::kBackward || op.kind == OpKind::kRecompute))) {
        bad("passes", static_cast<int64_t>(i),
            fmt::format("{} has no place here", contract_of(op.kind).name));
      }
    }
  }

  // A framework's uses come in their order, of one micro-batch after the other.
  void check_uses(int micro_batches, bool with_backward) {
    std::vector<std::pair<int, int>> wanted, planned;
    for (int m = 0; m < micro_batches; ++m) {
      for (int i = 0; i < std::ssize(facts_.spec.uses); ++i) {
        if (with_backward || !facts_.spec.uses[i].backward) wanted.emplace_back(m, i);
      }
    }
    for (const Op& op : program_.ops) {
      if (is_compute(op.kind)) planned.emplace_back(op.micro_batch, op.part);
    }
    if (planned == wanted) return;
    bad("passes", -1,
        fmt::format("{} uses are planned, {} are declared, or their order differs", planned.size(),
                    wanted.size()));
  }

  int generated() const {
    int count = 0;
    for (const Op& op : program_.ops) count += op.kind == OpKind::kLogits;
    return std::max(count, 1);
  }

  // Gradients flow down to the first trainable segment.
  void check_backward() {
    if (!facts_.spec.uses.empty()) return;  // among the uses
    const int micro_batches = facts_.plan.micro_batches;
    const auto goes_back = OpKind::kBackward;
    const std::vector<int> backwards = tally(
        micro_batches, goes_back, goes_back,
        [&](const Op& op) { return op.kind == OpKind::kBackward || facts_.passes(op, true); });
    for (size_t i = 0; i < backwards.size(); ++i) {
      const int segment = static_cast<int>(i / micro_batches);
      if (is_head(segment)) continue;
      const bool needed = facts_.wants_gradient[segment] != 0;
      if (backwards[i] == 1 || (backwards[i] == 0 && !needed)) continue;
      bad("passes", -1,
          fmt::format("micro-batch {} goes back {} times through {}", i % micro_batches,
                      backwards[i], facts_.segment(segment).name));
    }
  }

  void check_updates(bool wanted) {
    const shard::Layout& layout = facts_.plan.layout;
    std::vector<int> updates(layout.chunks.size(), 0);
    for (const Op& op : program_.ops) {
      if (op.kind != OpKind::kOptimize) continue;
      for (int c = std::max(op.chunk, 0); c < op.chunk + op.chunk_count; ++c) ++updates[c];
    }
    for (size_t c = 0; c < updates.size(); ++c) {
      const int count = wanted && !layout.chunks[c].frozen ? 1 : 0;
      if (updates[c] == count) continue;
      bad("updates", -1,
          fmt::format("chunk {} of {} is updated {} times, not {}", c,
                      facts_.segment(layout.chunks[c].segment).name, updates[c], count));
    }
  }

  // The norm covers all gradients: every trainable segment has norm partials of all of its elements
  // (or of this rank's), and the only Decide reads every partial, or a sum over stages that does.
  void check_decision() {
    std::vector<std::vector<Range>> squared(facts_.segment_count());
    std::vector<std::vector<Range>> partials(facts_.segment_count());
    std::vector<std::vector<Range>> decided(facts_.segment_count());
    check_decides();
    for (const Op& op : program_.ops) {
      const bool sums = op.kind == OpKind::kReduce && op.group == GroupName::kPipeline;
      if (op.kind != OpKind::kNormPartial && op.kind != OpKind::kDecide && !sums) continue;
      for (const Access& access : program_.accesses_of(op)) {
        if (access.value.segment < 0) continue;
        const int s = access.value.segment;
        const Range range = {access.first, access.first + access.bytes};
        if (op.kind != OpKind::kNormPartial) {
          decided[s].push_back(range);
        } else if (access.value.kind == ValueKind::kNormPartial) {
          partials[s].push_back(range);
        } else {
          squared[s].push_back({range.begin / 4, range.end / 4});
        }
      }
    }
    for (int s = 0; s < facts_.segment_count(); ++s) {
      check_norm(s, squared[s], partials[s], decided[s]);
    }
  }

  void check_decides() {
    const auto decides = std::ranges::count(program_.ops, OpKind::kDecide, &Op::kind);
    if (decides != 1) bad("decide", -1, fmt::format("{} ops decide, not 1", decides));
  }

  void check_norm(int segment, std::vector<Range>& squared, std::vector<Range>& partials,
                  std::vector<Range>& decided) {
    const std::string& name = facts_.segment(segment).name;
    const bool once = join(squared);
    if (!once || (squared != facts_.trainable_parts(segment, true) &&
                  squared != facts_.trainable_parts(segment, false))) {
      bad("norm", -1,
          fmt::format("the norm does not take every trainable element of {} once", name));
    }
    if (!join(partials)) bad("norm", -1, fmt::format("two ops write one norm partial of {}", name));
    if (!join(decided) || decided != partials) {
      bad("decide", -1, fmt::format("decide does not read all norm partials of {} once", name));
    }
  }

  // A checkpoint has every trainable plane of each rank that saves.
  void check_saved() {
    if (!facts_.plan.mesh.saves()) return;
    for (int s = 0; s < facts_.segment_count(); ++s) {
      for (const Plane plane : kPlanes) {
        if (facts_.width(plane) > 0) check_saved_plane(s, plane);
      }
    }
  }

  void check_saved_plane(int segment, Plane plane) {
    const std::vector<Range>& saved = saved_[{segment, plane}];
    const int width = facts_.width(plane);
    for (const Range& part : facts_.trainable_parts(segment, true)) {
      const bool inside = std::any_of(saved.begin(), saved.end(), [&](const Range& range) {
        return range.begin <= part.begin * width && part.end * width <= range.end;
      });
      if (!inside) {
        return bad("saves", -1,
                   fmt::format("plane {} of {} is not saved", static_cast<int>(plane),
                               facts_.segment(segment).name));
      }
    }
  }

  std::map<std::pair<int, Plane>, std::vector<Range>> collect_saved() const {
    std::map<std::pair<int, Plane>, std::vector<Range>> saved;
    if (program_.name != ProgramName::kCheckpoint) return saved;
    for (const Op& op : program_.ops) {
      if (op.kind != OpKind::kSave) continue;
      for (const Access& access : program_.accesses_of(op)) {
        if (access.value.kind != ValueKind::kPlane) continue;
        saved[{access.value.segment, access.value.plane}].push_back(
            {access.first, access.first + access.bytes});
      }
    }
    for (auto& [key, ranges] : saved) join(ranges);
    return saved;
  }

  const Facts& facts_;
  const Program& program_;
  Reporter& reporter_;
  std::map<std::pair<int, Plane>, std::vector<Range>> saved_ = collect_saved();
};

}  // namespace

void check_counts(const Facts& facts, const Program& program, Reporter& reporter) {
  Counts(facts, program, reporter).check();
}

}  // namespace strata::plan::verifying
