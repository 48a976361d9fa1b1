// SPDX-License-Identifier: Apache-2.0
// Checks each op against the contract of its kind, and the rules of transfers and collectives.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <bit>

#include "engine/plan/verifier_parts.h"

namespace strata::plan::verifying {
namespace {

const char* const kNeedNames[] = {"none", "at most one", "exactly one", "at least one", "any"};

// A bit for each kind of value and mode.
using Kinds = uint64_t;
static_assert(2 * kValueKindCount <= 64);

constexpr Kinds bit_of(ValueKind kind, Mode mode) {
  return Kinds{1} << (2 * static_cast<int>(kind) + static_cast<int>(mode));
}

// The kinds of which an op has values, and those of which it has several different values.
struct KindsUsed {
  Kinds any = 0;
  Kinds several = 0;
};

KindsUsed kinds_used(std::span<const Access> accesses) {
  KindsUsed used;
  std::array<const Value*, 64> last;
  for (const Access& access : accesses) {
    const Kinds bit = bit_of(access.value.kind, access.mode);
    const Value*& before = last[std::countr_zero(bit)];
    if ((used.any & bit) != 0 && !(*before == access.value)) used.several |= bit;
    used.any |= bit;
    before = &access.value;
  }
  return used;
}

// Whether a loss takes its scale from the last decision.
bool scales(const Facts& facts, const Op& op) {
  const bool goes_back = !facts.parts(op.segment).shares_scores || op.part > 0;
  return goes_back && scales_loss(facts.plan.recipe);
}

void check_predicate(const Facts& facts, const Program& program, int64_t index,
                     const OpContract& contract, Reporter& reporter) {
  const Op& op = program.ops[index];
  bool reads_pending = false;
  bool depends = op.predicate == Predicate::kPending || op.kind == OpKind::kOptimize ||
                 (op.kind == OpKind::kLoss && scales(facts, op));
  for (const Access& access : program.accesses_of(op)) {
    reads_pending |= access.value.kind == ValueKind::kDecision && access.mode == Mode::kRead &&
                     access.value.generation == Generation::kOld;
    depends |= side_of(access, false) != access.side;
  }
  if (!depends) return;
  if (op.kind == OpKind::kLoss && scales(facts, op) && !facts.plan.update().waits) {
    reporter.add("predicate", program.name, index,
                 "loss is scaled, and updates do not wait for the decision about its gradients");
  }
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

// An op that names the decision has all of it, where it lies between programs. The caller gives one
// when state is loaded, and at no other time.
void check_decision(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  const Op& op = program.ops[index];
  for (const Access& access : program.accesses_of(op)) {
    if (access.value.kind != ValueKind::kDecision) continue;
    const Holding* at = facts.decision;
    if (at == nullptr || access.offset != at->offset || access.bytes != at->bytes ||
        access.first != at->first) {
      reporter.add("decision", program.name, index,
                   fmt::format("{} does not have all of the decision in its place",
                               contract_of(op.kind).name));
    }
    if (op.kind == OpKind::kInput && program.name != ProgramName::kLoad) {
      reporter.add("decision", program.name, index,
                   "input gives a decision, and nothing is loaded");
    }
  }
}

// A contract's needs. An op must not have kinds that the contract does not list.
struct Needs {
  Kinds wanted = 0;
  Kinds allowed = 0;
  Kinds several_allowed = 0;
};

const Needs& needs_of(const OpContract& contract) {
  static const auto kNeeds = [] {
    std::array<Needs, kOpKindCount> all;
    for (int o = 0; o < kOpKindCount; ++o) {
      for (const ValueNeed& listed : contract_of(static_cast<OpKind>(o)).values) {
        for (const Mode mode : {Mode::kRead, Mode::kWrite}) {
          const Need need = mode == Mode::kRead ? listed.read : listed.write;
          const Kinds bit = bit_of(listed.kind, mode);
          Needs& needs = all[static_cast<size_t>(o)];
          if (need == Need::kOne || need == Need::kSome) needs.wanted |= bit;
          if (need != Need::kNone) needs.allowed |= bit;
          if (need == Need::kSome || need == Need::kAny) needs.several_allowed |= bit;
        }
      }
    }
    return all;
  }();
  return kNeeds[static_cast<size_t>(contract.kind)];
}

Need need_of(const OpContract& contract, ValueKind kind, Mode mode) {
  for (const ValueNeed& listed : contract.values) {
    if (listed.kind == kind) return mode == Mode::kRead ? listed.read : listed.write;
  }
  return Need::kNone;
}

void check_needs(const Facts& facts, const Program& program, int64_t index,
                 const OpContract& contract, Reporter& reporter) {
  const KindsUsed used = kinds_used(program.accesses_of(program.ops[index]));
  const Needs& needs = needs_of(contract);
  Kinds broken = (needs.wanted & ~used.any) | (used.any & ~needs.allowed) |
                 (used.several & ~needs.several_allowed);
  for (; broken != 0; broken &= broken - 1) {
    const int place = std::countr_zero(broken);
    const Kinds bit = Kinds{1} << place;
    const auto mode = static_cast<Mode>(place % 2);
    Value sample;
    sample.kind = static_cast<ValueKind>(place / 2);
    const Need need = need_of(contract, sample.kind, mode);
    reporter.add("contract", program.name, index,
                 fmt::format("{} {} {} of values like {}: the contract says {}", contract.name,
                             mode == Mode::kRead ? "reads" : "writes",
                             (used.several & bit) != 0 ? "several"
                             : (used.any & bit) != 0   ? "1"
                                                       : "0",
                             describe(facts, sample), kNeedNames[static_cast<int>(need)]));
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
// and norm partials on the host, are in the control arena; ranks exchange values of both sides.
bool fits_arena(const Facts& facts, const Op& op, const Access& access) {
  const bool device = facts.plan.device.discrete && is_device_lane(op.lane);
  if (access.value.kind == ValueKind::kDecision || access.value.kind == ValueKind::kNormSum) {
    return access.arena == Arena::kControl;
  }
  const bool comm = is_comm_lane(op.lane);
  if (access.value.kind == ValueKind::kNormPartial && (comm || !device)) {
    return access.arena == Arena::kControl;
  }
  if (comm && facts.plan.device.discrete && access.arena == Arena::kDevice) {
    return access.value.kind != ValueKind::kScratch ||
           bounce_arena(facts.plan.device) == Arena::kDevice;
  }
  return access.arena == (device ? Arena::kDevice : Arena::kHost);
}

// Whether ranks exchange values of a device without memory to pass them through.
bool lacks_bounce_buffer(const Facts& facts, const Program& program, const Op& op) {
  if (!is_comm_lane(op.lane)) return false;
  const int64_t least = kLeastBounceBytes * facts.plan.mesh.size_of(op.group);
  bool on_device = false, bounces = false;
  for (const Access& access : program.accesses_of(op)) {
    on_device |= access.arena == Arena::kDevice;
    bounces |= access.value.kind == ValueKind::kScratch && access.bytes >= least &&
               access.arena == bounce_arena(facts.plan.device);
  }
  return on_device && !bounces;
}

void check_places(const Facts& facts, const Program& program, int64_t index, Reporter& reporter) {
  const Op& op = program.ops[index];
  if (lacks_bounce_buffer(facts, program, op)) {
    reporter.add("arena", program.name, index,
                 fmt::format("{} has values on the device and no bounce buffer for them",
                             contract_of(op.kind).name));
  }
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
  check_decision(facts, program, index, reporter);
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
  const std::span<const Access> accesses = program.accesses_of(op);
  std::array<size_t, 2> moved = {};
  for (const Access& access : accesses) {
    if (access.value.kind == ValueKind::kDecision) continue;
    ++moved[static_cast<size_t>(access.mode)];
    if (access.arena == side(access)) continue;
    bad("arena", fmt::format("{} in arena {}", describe(facts, access.value),
                             static_cast<int>(access.arena)));
  }
  if (moved[0] == 0) bad("transfer", "moves nothing");
  if (moved[0] != moved[1]) {
    return bad("transfer", fmt::format("{} reads and {} writes", moved[0], moved[1]));
  }
  const auto next = [&](Mode mode, size_t at) {
    while (accesses[at].mode != mode || accesses[at].value.kind == ValueKind::kDecision) ++at;
    return at;
  };
  int64_t bytes = 0;
  size_t reads = 0;
  size_t writes = 0;
  for (size_t i = 0; i < moved[0]; ++i) {
    const Access& read = accesses[reads = next(Mode::kRead, reads)];
    const Access& write = accesses[writes = next(Mode::kWrite, writes)];
    ++reads;
    ++writes;
    bytes += read.bytes;
    if (op.chunk >= 0 && !inside_chunks(facts, op, read)) {
      bad("index", fmt::format("{} is not of its chunks", describe(facts, read.value)));
    }
    if (read.value == write.value && read.first == write.first && read.bytes == write.bytes) {
      continue;
    }
    bad("transfer", fmt::format("reads {} bytes from byte {} of {}, writes {} from byte {} of {}",
                                read.bytes, read.first, describe(facts, read.value), write.bytes,
                                write.first, describe(facts, write.value)));
  }
  if (op.bytes != bytes) bad("transfer", fmt::format("says {} bytes, moves {}", op.bytes, bytes));
}

}  // namespace strata::plan::verifying
