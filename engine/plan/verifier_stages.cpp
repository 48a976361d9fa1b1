// SPDX-License-Identifier: Apache-2.0
// Stages of a pipeline: the messages that a stage exchanges with its neighbours, and the numbers of
// all ops between ranks.
#include <fmt/core.h>

#include <algorithm>

#include "engine/model/stage.h"
#include "engine/plan/pipeline.h"
#include "engine/plan/verifier_parts.h"

namespace strata::plan::verifying {
namespace {

class StageCheck {
 public:
  StageCheck(const Facts& facts, const Program& program, Reporter& reporter)
      : facts_(facts), program_(program), reporter_(reporter) {}

  void check() {
    check_messages();
    check_numbers();
  }

 private:
  void bad(const char* kind, int64_t op, std::string text) {
    reporter_.add(kind, program_.name, op, std::move(text));
  }

  struct Wanted {
    OpKind kind;
    int64_t number;
    int micro_batch;
    Phase sender;
  };

  bool has_passes() const {
    return !program_.ops.empty() &&
           (program_.name == ProgramName::kStep || program_.name == ProgramName::kEval ||
            program_.name == ProgramName::kGenerate);
  }

  std::vector<Wanted> wanted() const {
    std::vector<Wanted> list;
    if (!has_passes()) return list;
    const model::Route& route = facts_.spec.stage.route;
    const Windows& windows = facts_.plan.windows;
    const StageSchedule schedule = schedule_stage(route, facts_.plan.mesh.stage(), windows,
                                                  program_.name == ProgramName::kStep);
    const int count =
        program_.name == ProgramName::kGenerate ? 1 : facts_.micro_batches_of(program_.name);
    const int size = std::max(1, count / windows.count);
    const auto add = [&](OpKind kind, const Phase& sender) {
      for (int i = 0; i < size && sender.window * size + i < count; ++i) {
        list.push_back({kind, number_of(route, sender, i), sender.window * size + i, sender});
      }
    };
    for (size_t p = 0; p < schedule.phases.size(); ++p) {
      for (const Phase& sender : schedule.receipts[p]) add(OpKind::kRecv, sender);
      const Phase& phase = schedule.phases[p];
      if (phase.products) continue;
      if (phase.section != (phase.backward ? 0 : route.sections() - 1)) add(OpKind::kSend, phase);
    }
    return list;
  }

  void check_messages() {
    const std::vector<Wanted> list = wanted();
    auto next = list.begin();
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      if (op.kind != OpKind::kSend && op.kind != OpKind::kRecv) continue;
      const auto index = static_cast<int64_t>(i);
      if (next == list.end()) return bad("messages", index, "the schedule has no further message");
      if (op.kind != next->kind || op.number != next->number ||
          op.micro_batch != next->micro_batch || op.group != GroupName::kPipeline) {
        return bad("messages", index,
                   fmt::format("{} {} of micro-batch {}, not {} {} of micro-batch {}",
                               contract_of(op.kind).name, op.number, op.micro_batch,
                               contract_of(next->kind).name, next->number, next->micro_batch));
      }
      check_value(op, index, next->sender);
      ++next;
    }
    if (next != list.end()) {
      bad("messages", -1, fmt::format("{} messages are missing", list.end() - next));
    }
  }

  // A message forward has what a section's last block gave, or is what its first one reads; a
  // message back has the gradient of one of these.
  void check_value(const Op& op, int64_t index, const Phase& sender) {
    const bool sends = op.kind == OpKind::kSend;
    const int number = sender.section + (sends ? 0 : sender.backward ? -1 : 1);
    const model::Section section = model::section_of(facts_.spec, number);
    const bool at_front = sends == sender.backward;
    const int end = at_front ? section.first_segment : section.end_segment - 1;
    const Value value = {
        .kind = sender.backward ? ValueKind::kActivationGradient : ValueKind::kActivation,
        .segment = at_front ? end : facts_.segment(end).inputs.front(),
        .index = op.micro_batch};
    const auto accesses = exchanged_accesses(program_, op);
    const Mode mode = sends ? Mode::kRead : Mode::kWrite;
    const bool whole = accesses.size() == 1 && accesses[0].mode == mode &&
                       accesses[0].value == value && accesses[0].first == 0 &&
                       accesses[0].bytes == facts_.boundary_bytes;
    if (whole && op.segment == end && op.bytes == facts_.boundary_bytes) return;
    bad("messages", index, fmt::format("is not all of {}", describe(facts_, value)));
  }

  // Consider the op between ranks with the smallest number that never completes. Each of its ranks
  // has completed all ops with smaller numbers, and there it waits for no other. So it begins on
  // each of them, and completes.
  void check_numbers() {
    std::array<std::vector<int64_t>, kLaneCount> largest;  // that the first ops of a lane need
    for (size_t i = 0; i < program_.ops.size(); ++i) {
      const Op& op = program_.ops[i];
      std::vector<int64_t>& own = largest[static_cast<size_t>(op.lane)];
      int64_t needed = own.empty() ? -1 : own.back();
      for (const Wait& wait : program_.waits_of(op)) {
        if (wait.count <= 0) continue;
        needed = std::max(needed, largest[static_cast<size_t>(wait.lane)][wait.count - 1]);
      }
      if (is_comm_lane(op.lane)) {
        if (op.number <= needed) {
          return bad("numbers", static_cast<int64_t>(i),
                     fmt::format("{} has number {} and waits for number {}",
                                 contract_of(op.kind).name, op.number, needed));
        }
        needed = op.number;
      }
      own.push_back(needed);
    }
  }

  const Facts& facts_;
  const Program& program_;
  Reporter& reporter_;
};

// The sections of the rank by the route, one after the other, each with its ends.
template <class Bad>
bool check_sections(const Facts& facts, const Bad& bad) {
  const model::Stage& stage = facts.spec.stage;
  const model::Route& route = stage.route;
  int unit = 0, segment = 0;  // behind the sections so far
  auto next = stage.sections.begin();
  for (int number = 0; number < route.sections(); ++number) {
    if (route.rank_of(number) != stage.rank) continue;
    if (next == stage.sections.end() || next->number != number || next->first_unit != unit ||
        next->first_segment != segment || next->end_segment <= segment ||
        next->end_segment > facts.segment_count()) {
      return bad(fmt::format("section {} is not where it belongs", number));
    }
    for (int s = segment; s < next->end_segment; ++s) {
      const model::SegmentKind kind = facts.segment(s).kind;
      const bool receives = s == segment && number > 0;
      const bool sends = s + 1 == next->end_segment && number + 1 < route.sections();
      if ((kind == model::SegmentKind::kReceived) != receives ||
          (kind == model::SegmentKind::kSent) != sends) {
        return bad(fmt::format("segment {} is no end of a section, or a missing one", s));
      }
    }
    unit = next->end_unit;
    segment = next->end_segment;
    ++next;
  }
  if (next == stage.sections.end() && segment == facts.segment_count() &&
      unit == static_cast<int>(facts.spec.units.size())) {
    return true;
  }
  return bad("the sections do not cover the stage");
}

}  // namespace

bool check_stage_form(const Facts& facts, Reporter& reporter) {
  const Plan& plan = facts.plan;
  const model::Stage& stage = facts.spec.stage;
  const auto bad = [&](std::string text) {
    reporter.add("layout", ProgramName::kStep, -1, std::move(text));
    return false;
  };
  if (plan.windows.count < 1 || plan.micro_batches % plan.windows.count != 0 ||
      (plan.mesh.pipeline > 1 && plan.micro_batches / plan.windows.count > kMessageNumbers) ||
      plan.windows.order > PipelineOrder::kDelayedProducts ||
      (plan.mesh.pipeline == 1 && plan.windows.order == PipelineOrder::kDelayedProducts)) {
    return bad(
        fmt::format("{} windows of {} micro-batches", plan.windows.count, plan.micro_batches));
  }
  const model::Route& route = stage.route;
  if (route.ranks != plan.mesh.pipeline || (route.ranks > 1 && stage.rank != plan.mesh.stage())) {
    return bad(fmt::format("stage {} of {}, and the model is stage {} of {}", plan.mesh.stage(),
                           plan.mesh.pipeline, stage.rank, route.ranks));
  }
  if (route.ranks > 1) return check_sections(facts, bad);
  const auto is_end = [](const model::Segment& segment) { return !is_computed(segment.kind); };
  return std::ranges::none_of(facts.spec.segments, is_end) || bad("there is one stage");
}

void check_stages(const Facts& facts, const Program& program, Reporter& reporter) {
  if (facts.plan.mesh.pipeline > 1) return StageCheck(facts, program, reporter).check();
  for (size_t i = 0; i < program.ops.size(); ++i) {
    if (program.ops[i].kind != OpKind::kSend && program.ops[i].kind != OpKind::kRecv) continue;
    return reporter.add("messages", program.name, static_cast<int64_t>(i), "there is one stage");
  }
}

}  // namespace strata::plan::verifying
