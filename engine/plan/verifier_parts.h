// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/plan/op_contract.h"
#include "engine/plan/pipeline.h"
#include "engine/plan/verifier.h"

// The parts of the verifier. Each check_* adds violations to the reporter. All except the form
// checks may assume that indices, lanes and waits are well formed.
namespace strata::plan::verifying {

inline constexpr size_t kViolationsKept = 32;
inline constexpr int kValueKindCount = static_cast<int>(ValueKind::kAttendedGradient) + 1;

class Reporter {
 public:
  explicit Reporter(VerifyReport& report) : report_(report) {}
  bool full() const { return report_.violations.size() >= kViolationsKept; }
  void add(const char* kind, ProgramName program, int64_t op, std::string text);
  void add(VerifyReport other);  // its violations

 private:
  VerifyReport& report_;
};

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  bool operator==(const Range&) const = default;
};

// The accesses of an op between ranks, without its bounce buffer, which is the last one.
inline std::span<const Access> exchanged_accesses(const Program& program, const Op& op) {
  const std::span<const Access> all = program.accesses_of(op);
  const bool bounces = !all.empty() && all.back().value.kind == ValueKind::kScratch;
  return all.first(all.size() - (bounces ? 1 : 0));
}

// Sorts ranges and joins those that touch. Returns false when two overlap; they are joined too.
bool join(std::vector<Range>& ranges);

// What follows from plan and spec together: widths, owners of parts, and how many contributions
// make a gradient final.
struct Facts {
  Facts(const Plan& plan_in, const model::ModelSpec& spec_in);

  const Plan& plan;
  const model::ModelSpec& spec;
  std::vector<int> sharers;  // by segment: how many others read its parameters
  // By use and segment of it: the contributions to its gradient in a micro-batch up to this use.
  std::vector<std::vector<int>> sums_by_use;
  // Of each segment: whether its output needs a gradient: it or what it reads is trained. Outputs
  // of a segment that a framework computes may go to any segment above.
  std::vector<char> wants_gradient;
  std::vector<std::vector<int>> readers;  // of each segment: those that read its output, ascending
  int64_t boundary_bytes = 0;             // of an activation, and of its gradient
  int64_t row_bytes = 0;                  // the same without those that fill a page
  std::array<std::vector<Range>, kArenaCount> ledger;  // by arena: its lines, joined
  std::array<bool, kArenaCount> ledger_overlaps = {};  // by arena: whether two lines overlap
  const Holding* decision = nullptr;  // where it lies; null where the plan has none

  const model::Segment& segment(int index) const { return spec.segments[index]; }
  int segment_count() const { return static_cast<int>(spec.segments.size()); }
  // Bytes of an element; 0 when the recipe does not have the plane.
  int64_t width(Plane plane) const { return width_of(plane, plan.recipe); }
  model::Parts parts(int index) const { return model::parts_of(spec, plan.shape, index); }
  // Bytes of the keys and values of all context ranks, and of the scores of all tensor ranks, that
  // are this rank's.
  Range own_keys() const;
  Range own_scores() const;
  // The bytes of own rows in one of these values, of a segment: kRows, kRowGradient, kBranch or
  // kBranchGradient.
  Range own_rows(const Value& value) const;
  bool delays(int index) const { return delays_products(plan.windows, segment(index)); }
  // How many ops of a micro-batch add to a segment's gradient, beside those of its sharers.
  int gradient_ops(int index) const {
    return delays(index) ? 1 : model::backward_ops(spec, plan.shape, index);
  }
  // The last part of an op.
  int last_part(OpKind kind, int segment) const;
  int final_contributions(int index) const {
    const int each = gradient_ops(index) + sharers[index];
    return plan.micro_batches * each + (model::sums_whole(spec, index) ? 1 : 0);
  }
  Range own_part(int chunk) const;  // elements of the segment's flat buffer
  // The elements of a segment that this rank (`own`) or all ranks update, as joined ranges.
  std::vector<Range> trainable_parts(int index, bool own) const;
  // How many values of an exchanged kind a program has.
  int exchanged(ProgramName program, ValueKind kind) const;
  // Whether an op of a stage stands for the forward, or backward, of what it receives or sends.
  bool passes(const Op& op, bool backward) const;
  // The end of the byte range that a value can have; -1 when only the plan determines it.
  int64_t extent(const Value& value) const;
  int micro_batches_of(ProgramName name) const;
};

std::string describe(const Facts& facts, const Value& value);
std::string describe(const Range& range);

// The generation under one valuation of `pending`.
constexpr Generation normal(Generation generation, bool pending) {
  return generation == Generation::kUpdated && !pending ? Generation::kOld : generation;
}

// Whether values of this kind are exchanged with the caller.
constexpr bool is_exchanged(ValueKind kind) {
  return kind >= ValueKind::kTokens && kind <= ValueKind::kLogits;
}

constexpr bool is_transfer(OpKind kind) {
  return kind == OpKind::kFetch || kind == OpKind::kSpill || kind == OpKind::kUpload ||
         kind == OpKind::kDownload;
}
constexpr bool is_compute(OpKind kind) {
  return kind >= OpKind::kForward && kind <= OpKind::kLogits;
}

// All return false when something is broken that other checks rely on; then these must not run.
// check_accesses() checks one op; `sorted` is its scratch.
bool check_plan_form(const Facts& facts, Reporter& reporter);
bool check_stage_form(const Facts& facts, Reporter& reporter);
bool check_program_form(const Facts& facts, const Program& program, Reporter& reporter);
bool check_accesses(const Facts& facts, const Program& program, int64_t index,
                    std::vector<const Access*>& sorted, Reporter& reporter);
void check_arenas(const Facts& facts, Reporter& reporter);
void check_ledger(const Facts& facts, const Program& program, int64_t index, Reporter& reporter);
// Check one op against its contract and the rules of its kind.
void check_contract(const Facts& facts, const Program& program, int64_t index, Reporter& reporter);
void check_transfer(const Facts& facts, const Program& program, int64_t index, Reporter& reporter);
void check_between_parts(const Facts& facts, const Program& program, int64_t index,
                         Reporter& reporter);
void check_compute(const Facts& facts, const Program& program, int64_t index, Reporter& reporter);
void check_convert(const Facts& facts, const Program& program, int64_t index, Reporter& reporter);
void check_update(const Facts& facts, const Program& program, int64_t index, Reporter& reporter);
void check_inner_exchange(const Facts& facts, const Program& program, int64_t index,
                          Reporter& reporter);
void check_values(const Facts& facts, std::span<const Program* const> programs, bool pending,
                  Reporter& reporter);
void check_races(const Facts& facts, const Program& program, int copies, Reporter& reporter);
// What a stage exchanges with its neighbours, and that no two ranks wait for each other.
void check_stages(const Facts& facts, const Program& program, Reporter& reporter);
void check_counts(const Facts& facts, const Program& program, Reporter& reporter);
void check_sequence(const Facts& facts, Reporter& reporter);

}  // namespace strata::plan::verifying
