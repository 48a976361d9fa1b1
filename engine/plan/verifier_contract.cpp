// SPDX-License-Identifier: Apache-2.0
// Checks each op against the contract of its kind, and the rules of transfers and collectives.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "engine/plan/verifier_parts.h"

namespace strata::plan::verifying {
namespace {

const char* const kNeedNames[] = {"none", "at most one", "exactly one", "at least one", "any"};

constexpr int kValueKindCount = static_cast<int>(ValueKind::kDecision) + 1;

// By kind and mode: 0, 1, or 2 for several different values.
using Distinct = std::array<std::array<int, 2>, kValueKindCount>;

Distinct distinct(std::span<const Access> accesses) {
  Distinct counts = {};
  std::array<std::array<const Value*, 2>, kValueKindCount> seen = {};
  for (const Access& access : accesses) {
    const auto kind = static_cast<size_t>(access.value.kind);
    const auto mode = static_cast<size_t>(access.mode);
    const Value*& value = seen[kind][mode];
    if (value != nullptr && !(*value == access.value)) counts[kind][mode] = 2;
    if (value == nullptr) counts[kind][mode] = 1;
    value = &access.value;
  }
  return counts;
}

bool satisfies(Need need, int count) {
  switch (need) {
    case Need::kNone:
      return count == 0;
    case Need::kOptional:
      return count <= 1;
    case Need::kOne:
      return count == 1;
    case Need::kSome:
      return count >= 1;
    case Need::kAny:
      return true;
  }
  return false;
}

void check_predicate(const Facts& facts, const Program& program, int64_t index,
                     const OpContract& contract, Reporter& reporter) {
  const Op& op = program.ops[index];
  bool reads_pending = false;
  for (const Access& access : program.accesses_of(op)) {
    reads_pending |= access.value.kind == ValueKind::kDecision && access.mode == Mode::kRead &&
                     access.value.generation == Generation::kOld;
  }
  if (op.predicate != Predicate::kPending && op.kind != OpKind::kOptimize) return;
  if (op.predicate == Predicate::kPending && !contract.may_be_predicated) {
    reporter.add("predicate", program.name, index,
                 fmt::format("{} may not be predicated", contract.name));
  }
  if (!reads_pending) {
    reporter.add(
        "predicate", program.name, index,
        fmt::format("{} depends on the last decision and does not read it", contract.name));
  }
}

// A contract's needs by kind of value. An op must not have kinds that the contract does not list.
using Needs = std::array<ValueNeed, kValueKindCount>;

const Needs& needs_of(const OpContract& contract) {
  static const auto kNeeds = [] {
    std::array<Needs, kOpKindCount> all;
    for (int o = 0; o < kOpKindCount; ++o) {
      Needs& needs = all[static_cast<size_t>(o)];
      for (int k = 0; k < kValueKindCount; ++k) {
        needs[static_cast<size_t>(k)] = {static_cast<ValueKind>(k), Need::kNone, Need::kNone};
      }
      for (const ValueNeed& listed : contract_of(static_cast<OpKind>(o)).values) {
        needs[static_cast<size_t>(listed.kind)] = listed;
      }
    }
    return all;
  }();
  return kNeeds[static_cast<size_t>(contract.kind)];
}

void check_needs(const Facts& facts, const Program& program, int64_t index,
                 const OpContract& contract, Reporter& reporter) {
  const Distinct counts = distinct(program.accesses_of(program.ops[index]));
  const Needs& needs = needs_of(contract);
  for (int k = 0; k < kValueKindCount; ++k) {
    const ValueKind kind = static_cast<ValueKind>(k);
    const ValueNeed& need = needs[static_cast<size_t>(k)];
    for (const Mode mode : {Mode::kRead, Mode::kWrite}) {
      const Need wanted = mode == Mode::kRead ? need.read : need.write;
      const int count = counts[k][static_cast<size_t>(mode)];
      if (satisfies(wanted, count)) continue;
      Value sample;
      sample.kind = kind;
      reporter.add("contract", program.name, index,
                   fmt::format("{} {} {} of values like {}: the contract says {}", contract.name,
                               mode == Mode::kRead ? "reads" : "writes",
                               count == 2 ? "several" : fmt::format("{}", count),
                               describe(facts, sample), kNeedNames[static_cast<int>(wanted)]));
    }
  }
}

// Whether a plane's or gradient's bytes begin and end in chunks that the op names.
bool inside_chunks(const Facts& facts, const Op& op, const Access& access) {
  const Value& value = access.value;
  if (value.kind != ValueKind::kPlane && value.kind != ValueKind::kGradient) return true;
  const int width = value.kind == ValueKind::kGradient ? 4 : facts.width(value.plane);
  const int64_t last = access.first + access.bytes - 1;
  bool begins = false;
  bool ends = false;
  for (int c = op.chunk; c < op.chunk + op.chunk_count; ++c) {
    const shard::Chunk& chunk = facts.plan.layout.chunks[c];
    if (chunk.segment != value.segment) continue;
    const Range bytes = {chunk.offset * width, (chunk.offset + chunk.numel) * width};
    begins |= bytes.begin <= access.first && access.first < bytes.end;
    ends |= bytes.begin <= last && last < bytes.end;
  }
  return begins && ends;
}

// Whether an access of an op that is not a transfer is in an arena of its lane's side. Decisions,
// and norm partials on the host, are in the control arena; collectives work on both sides.
bool fits_arena(const Facts& facts, const Op& op, const Access& access) {
  const bool device = facts.plan.device.discrete && is_device_lane(op.lane);
  if (access.value.kind == ValueKind::kDecision) return access.arena == Arena::kControl;
  const bool comm = op.lane == Lane::kComm;
  if (access.value.kind == ValueKind::kNormPartial && (comm || !device)) {
    return access.arena == Arena::kControl;
  }
  if (comm && access.arena == Arena::kHost) return true;
  return access.arena == (device ? Arena::kDevice : Arena::kHost);
}

void check_places(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  const Op& op = program.ops[index];
  for (const Access& access : program.accesses_of(op)) {
    if (fits_arena(facts, op, access)) continue;
    reporter.add("arena", program.name, index,
                 fmt::format("{} has {} in arena {}", contract_of(op.kind).name,
                             describe(facts, access.value), static_cast<int>(access.arena)));
    return;
  }
}

}  // namespace

void check_contract(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  const Op& op = program.ops[index];
  const OpContract& contract = contract_of(op.kind);
  if ((contract.lanes >> static_cast<uint32_t>(op.lane) & 1u) == 0) {
    reporter.add("contract", program.name, index,
                 fmt::format("{} on lane {}", contract.name, static_cast<int>(op.lane)));
  }
  check_predicate(facts, program, index, contract, reporter);
  check_needs(facts, program, index, contract, reporter);
  if (!is_transfer(op.kind)) check_places(facts, program, index, reporter);
}

// During load, everything has a source. Afterwards only frozen weights have one, and they are
// converted on the lane that reads weights.
void check_convert(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  const Op& op = program.ops[index];
  const bool loads = program.name == ProgramName::kLoad;
  if (op.lane != (loads ? Lane::kOptimizer : Lane::kReadWeights)) {
    reporter.add("contract", program.name, index,
                 fmt::format("convert on lane {}", static_cast<int>(op.lane)));
  }
  for (const Access& access : program.accesses_of(op)) {
    const Value& value = access.value;
    if (value.kind != ValueKind::kPlane) continue;
    if ((op.chunk >= 0 || !loads) && !inside_chunks(facts, op, access)) {
      reporter.add("index", program.name, index,
                   fmt::format("convert: {} is not of its chunk", describe(facts, value)));
    }
    const int64_t trainable = facts.segment(value.segment).trainable_numel;
    if (loads || (value.plane == Plane::kHi && access.first >= trainable * facts.width(Plane::kHi)))
      continue;
    reporter.add(
        "frozen", program.name, index,
        fmt::format("convert: {} is trained: its source is out of date", describe(facts, value)));
  }
}

void check_transfer(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  const Op& op = program.ops[index];
  const bool from_host = op.kind == OpKind::kSpill || op.kind == OpKind::kUpload;
  const bool nvme = op.kind == OpKind::kSpill || op.kind == OpKind::kFetch;
  const Arena far = nvme ? Arena::kNvme : Arena::kDevice;
  const Arena from = from_host ? Arena::kHost : far;
  const Arena to = from_host ? far : Arena::kHost;
  const auto bad = [&](const char* kind, std::string text) {
    reporter.add(kind, program.name, index, contract_of(op.kind).name + (": " + std::move(text)));
  };
  if (!nvme && !facts.plan.device.discrete) bad("arena", "the device has no memory of its own");
  const auto side = [&](const Access& access) {
    const bool partial = op.kind == OpKind::kDownload && access.mode == Mode::kWrite &&
                         access.value.kind == ValueKind::kNormPartial;
    return partial ? Arena::kControl : access.mode == Mode::kRead ? from : to;
  };
  std::vector<const Access*> reads;
  std::vector<const Access*> writes;
  reads.reserve(op.access_end - op.access_begin);
  writes.reserve(op.access_end - op.access_begin);
  for (const Access& access : program.accesses_of(op)) {
    if (access.value.kind == ValueKind::kDecision) continue;
    (access.mode == Mode::kRead ? reads : writes).push_back(&access);
    if (access.arena == side(access)) continue;
    bad("arena", fmt::format("{} in arena {}", describe(facts, access.value),
                             static_cast<int>(access.arena)));
  }
  if (reads.empty()) bad("transfer", "moves nothing");
  if (reads.size() != writes.size()) {
    return bad("transfer", fmt::format("{} reads and {} writes", reads.size(), writes.size()));
  }
  int64_t bytes = 0;
  for (size_t i = 0; i < reads.size(); ++i) {
    bytes += reads[i]->bytes;
    if (op.chunk >= 0 && !inside_chunks(facts, op, *reads[i])) {
      bad("index", fmt::format("{} is not of its chunks", describe(facts, reads[i]->value)));
    }
    if (reads[i]->value == writes[i]->value && reads[i]->first == writes[i]->first &&
        reads[i]->bytes == writes[i]->bytes) {
      continue;
    }
    bad("transfer",
        fmt::format("reads {} bytes from byte {} of {}, writes {} from byte {} of {}",
                    reads[i]->bytes, reads[i]->first, describe(facts, reads[i]->value),
                    writes[i]->bytes, writes[i]->first, describe(facts, writes[i]->value)));
  }
  if (op.bytes != bytes) bad("transfer", fmt::format("says {} bytes, moves {}", op.bytes, bytes));
}

}  // namespace strata::plan::verifying
