// SPDX-License-Identifier: Apache-2.0
// Ranks: checks what the plans of one mesh must have in common, and compares their collectives.
#include <fmt/core.h>

#include "engine/plan/collectives.h"
#include "engine/plan/verifier_parts.h"

namespace strata::plan {
namespace {

using namespace verifying;

bool same_layout(const shard::Layout& a, const shard::Layout& b) {
  if (a.shard_count != b.shard_count || a.first_chunk != b.first_chunk ||
      a.chunks.size() != b.chunks.size()) {
    return false;
  }
  for (size_t i = 0; i < a.chunks.size(); ++i) {
    const shard::Chunk& x = a.chunks[i];
    const shard::Chunk& y = b.chunks[i];
    if (x.segment != y.segment || x.offset != y.offset || x.numel != y.numel ||
        x.frozen != y.frozen || x.whole != y.whole) {
      return false;
    }
  }
  return true;
}

bool same_run(const Plan& a, const Plan& b) {
  if (a.mesh.stage() == b.mesh.stage() && !same_layout(a.layout, b.layout)) return false;
  return a.recipe == b.recipe && a.shape.rows == b.shape.rows && a.shape.length == b.shape.length &&
         a.shape.swaps_heads == b.shape.swaps_heads && a.micro_batches == b.micro_batches &&
         a.eval_micro_batches == b.eval_micro_batches && a.mode == b.mode &&
         a.mesh.world == b.mesh.world && a.mesh.zero_stage == b.mesh.zero_stage &&
         a.mesh.replicate == b.mesh.replicate && a.mesh.tensor == b.mesh.tensor &&
         a.mesh.pipeline == b.mesh.pipeline && a.mesh.context == b.mesh.context &&
         a.mesh.reduce_dtype == b.mesh.reduce_dtype && a.windows == b.windows;
}

void compare(const Facts& facts, int rank, const Program& a, const Program& b, Reporter& reporter) {
  const std::vector<const Op*> ours = collectives_of(a);
  const std::vector<const Op*> theirs = collectives_of(b);
  for (size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
    if (i >= ours.size() || i >= theirs.size()) {
      return reporter.add("collective", a.name, -1,
                          fmt::format("the first rank of a stage has {} collectives, rank {} has "
                                      "{}",
                                      ours.size(), rank, theirs.size()));
    }
    const Op& x = *ours[i];
    const Op& y = *theirs[i];
    if (x.kind != y.kind || x.group != y.group || x.number != y.number || x.segment != y.segment ||
        x.chunk != y.chunk || x.chunk_count != y.chunk_count ||
        !(exchanged_value(a, x) == exchanged_value(b, y)) ||
        agreed_bytes(a, x) != agreed_bytes(b, y)) {
      return reporter.add(
          "collective", a.name, ours[i] - a.ops.data(),
          fmt::format("collective {}: the first rank has {} of {}, {} bytes; rank {} has {} of {}, "
                      "{} bytes",
                      i, contract_of(x.kind).name, describe(facts, exchanged_value(a, x)),
                      agreed_bytes(a, x), rank, contract_of(y.kind).name,
                      describe(facts, exchanged_value(b, y)), agreed_bytes(b, y)));
    }
  }
}

}  // namespace

VerifyReport verify_ranks(std::span<const Plan> plans, const model::ModelSpec& spec) {
  return verify_ranks(plans, [&](int) -> const model::ModelSpec& { return spec; });
}

VerifyReport verify_ranks(std::span<const Plan> plans, const SpecOf& spec_of) {
  VerifyReport report;
  Reporter reporter(report);
  const auto bad = [&](std::string text) {
    reporter.add("ranks", ProgramName::kStep, -1, std::move(text));
    return report;
  };
  if (plans.empty() || static_cast<int>(plans.size()) != plans[0].mesh.world) {
    return bad(fmt::format("{} plans", plans.size()));
  }
  std::vector<AgreedHashes> hashes;
  for (size_t rank = 0; rank < plans.size(); ++rank) {
    const Plan& plan = plans[rank];
    const Facts facts(plan, spec_of(static_cast<int>(rank)));
    if (!check_plan_form(facts, reporter)) return report;
    if (plan.mesh.rank != static_cast<int>(rank)) {
      return bad(fmt::format("plan {} is of rank {}", rank, plan.mesh.rank));
    }
    if (!same_run(plans[0], plan)) return bad(fmt::format("rank {} plans another run", rank));
    const int first = plan.mesh.stage() * plan.mesh.stage_ranks();
    if (!same_run(plans[first], plan)) return bad(fmt::format("rank {} plans another run", rank));
    for (const Program& program : plan.programs) {
      if (!check_program_form(facts, program, reporter)) return report;
      report.ops += static_cast<int64_t>(program.ops.size());
      report.accesses += static_cast<int64_t>(program.accesses.size());
      if (static_cast<int>(rank) == first) continue;
      compare(facts, static_cast<int>(rank), plans[first].program(program.name), program, reporter);
    }
    hashes.push_back(hashes_of(plan));
  }
  for (const Plan& plan : plans) {
    if (!report.ok() || agree(hashes, plan.mesh)) continue;
    return bad(fmt::format("rank {} and the stage before it have other messages", plan.mesh.rank));
  }
  return report;
}

}  // namespace strata::plan
