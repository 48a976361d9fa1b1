// SPDX-License-Identifier: Apache-2.0
// A drive cannot change a run without a word. Runs have their state on a simulated drive that fails
// or is late at any I/O of any lane in any program: a run ends with the bits of an undisturbed one,
// or with one Error that names the file and the offset. Neither wrong bits nor a lane that waits
// for ever passes: an Error of the executor's own deadline names no file.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <set>

#include "engine/plan/op_contract.h"
#include "tests/support/seeds.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

using io::FaultKind;
using plan::Lane;

constexpr Lane kIoLanes[] = {Lane::kReadWeights, Lane::kReadState, Lane::kWrite};
constexpr FaultKind kKinds[] = {FaultKind::kEio,         FaultKind::kEnospc,  FaultKind::kShort,
                                FaultKind::kZero,        FaultKind::kEagain,  FaultKind::kEintr,
                                FaultKind::kTorn,        FaultKind::kFlipped, FaultKind::kStale,
                                FaultKind::kMisdirected, FaultKind::kHang};
constexpr uint64_t kForEver = uint64_t{1} << 40;

bool is_passing(FaultKind kind) {
  return kind == FaultKind::kShort || kind == FaultKind::kZero || kind == FaultKind::kEagain ||
         kind == FaultKind::kEintr;
}

// Whether a drive that did this once to a read does it right when it is asked again.
bool heals_when_read_again(FaultKind kind) {
  return is_passing(kind) || (kind != FaultKind::kEnospc && kind != FaultKind::kHang);
}

bool fails_loudly(FaultKind kind) {
  return kind == FaultKind::kEio || kind == FaultKind::kEnospc || kind == FaultKind::kHang;
}

// A model, its run, and where its state lies: some of it on the drive.
struct Case {
  Case(uint64_t seed, int world)
      : draw(seed),
        spec(test::random_spec(draw, world, true)),
        input(test::random_input(draw, spec, world)),
        placement(draw.coin() ? plan::smallest_placement(input)
                              : test::random_placement(draw, input)) {}

  test::Draw draw;
  const model::ModelSpec spec;
  const plan::PlanInput input;
  const plan::Placement placement;
};

struct Outcome {
  test::RunResult result;
  std::optional<Error> error;
  plan::ProgramName program = plan::ProgramName::kLoad;  // that failed
  uint64_t injected = 0;
};

class DriveFaults : public testing::Test {
 protected:
  // In memory where that is possible: the time of a real drive is not what is tested.
  DriveFaults() : directory_(access("/dev/shm", W_OK) == 0 ? "/dev/shm" : testing::TempDir()) {}

  test::RunOptions options_for(const Case& at) const {
    test::RunOptions options;
    options.directory = directory_.path();
    options.backend = &kernels::ref_backend();
    options.io_backend = io::Backend::kSimulated;
    options.clip = at.input.mode == plan::OptimizerMode::kDeferred ? 0.5 : 0;
    return options;
  }

  static Outcome run(const Case& at, test::RunOptions options) {
    Outcome outcome;
    options.under_way = &outcome.program;
    try {
      outcome.result = at.input.mesh.world > 1
                           ? small_run_on_ranks(at.input, {at.placement}, options)
                           : small_run(at.input, at.placement, options);
    } catch (const Error& error) {
      outcome.error = error;
    }
    return outcome;
  }

  // The undisturbed run, and how many I/Os each lane has in it.
  test::RunResult undisturbed(const Case& at) {
    test::RunOptions options = options_for(at);
    ios_ = {};
    for (const Lane lane : kIoLanes) {
      options.simulated[static_cast<size_t>(lane)].started = &ios_[static_cast<size_t>(lane)];
    }
    const Outcome outcome = run(at, options);
    EXPECT_FALSE(outcome.error) << outcome.error->what();
    return outcome.result;
  }

  Outcome run_with(const Case& at, Lane lane, const io::SimulatedFault& fault, int rank = 0) const {
    test::RunOptions options = options_for(at);
    uint64_t injected = 0;
    options.simulated[static_cast<size_t>(lane)].faults = {fault};
    options.simulated[static_cast<size_t>(lane)].injected = &injected;
    options.simulated_rank = rank;
    Outcome outcome = run(at, options);
    outcome.injected = injected;
    return outcome;
  }

  void expect_named(const Outcome& outcome) const {
    ASSERT_TRUE(outcome.error);
    const std::string text = outcome.error->what();
    const ErrorCode code = outcome.error->code();
    EXPECT_TRUE(code == ErrorCode::kIo || code == ErrorCode::kCorrupt ||
                code == ErrorCode::kDeadline)
        << text;
    EXPECT_NE(text.find("scratch file in " + directory_.path()), std::string::npos) << text;
    EXPECT_NE(text.find(" at offset "), std::string::npos) << text;
    EXPECT_NE(text.find('('), std::string::npos) << text;
  }

  uint64_t ios(Lane lane) const { return ios_[static_cast<size_t>(lane)]; }

  const test::TemporaryDirectory directory_;
  std::array<uint64_t, plan::kLaneCount> ios_ = {};
};

// Of those that a run has.
std::set<plan::ProgramName> programs_that_use(Lane lane, const Case& at) {
  const plan::Plan plan = plan::build_plan(at.input, at.placement);
  std::set<plan::ProgramName> names;
  for (const plan::Program& program : plan.programs) {
    for (const uint32_t index : program.lanes[static_cast<size_t>(lane)]) {
      for (const plan::Access& access : program.accesses_of(program.ops[index])) {
        if (access.arena == plan::Arena::kNvme) names.insert(program.name);
      }
    }
  }
  return names;
}

std::string described(uint64_t seed, Lane lane, const io::SimulatedFault& fault) {
  return "seed " + std::to_string(seed) + ", " + plan::name_of(lane) + ": " +
         io::name_of(fault.kind) + " x " + std::to_string(fault.count) + " at I/O " +
         std::to_string(fault.index);
}

// The drive is gone from one I/O on, whichever it is: every program that uses a lane is met.
TEST_F(DriveFaults, ADriveThatGoesAtAnyIoEndsTheRunWithItsName) {
  for (uint64_t seed = 1; seed <= test::seeds(2); ++seed) {
    const Case at(seed, 1);
    undisturbed(at);
    for (const Lane lane : kIoLanes) {
      std::set<plan::ProgramName> failed;
      for (uint64_t index = 0; index < ios(lane); ++index) {
        const io::SimulatedFault fault = {FaultKind::kEio, index, kForEver};
        SCOPED_TRACE(described(seed, lane, fault));
        const Outcome outcome = run_with(at, lane, fault);
        expect_named(outcome);
        if (HasFailure()) return;
        failed.insert(outcome.program);
      }
      EXPECT_EQ(failed, programs_that_use(lane, at)) << plan::name_of(lane);
    }
  }
}

TEST_F(DriveFaults, AnyOtherFaultIsHealedOrNamed) {
  std::map<std::string, int> tally;
  for (uint64_t seed = 1; seed <= test::seeds(10); ++seed) {
    Case at(100 + seed, 1);
    const test::RunResult expected = undisturbed(at);
    for (const FaultKind kind : kKinds) {
      for (const Lane lane : kIoLanes) {
        if (ios(lane) == 0) continue;
        const uint64_t index =
            static_cast<uint64_t>(at.draw.below(static_cast<int64_t>(ios(lane))));
        const io::SimulatedFault fault = {kind, index, at.draw.coin() ? 1 : kForEver};
        SCOPED_TRACE(described(100 + seed, lane, fault));
        const Outcome outcome = run_with(at, lane, fault);
        ASSERT_GE(outcome.injected, 1u);
        const bool once = fault.count == 1;
        const bool must_heal =
            once && (is_passing(kind) || (lane != Lane::kWrite && heals_when_read_again(kind)));
        const bool must_fail = fails_loudly(kind) && (lane == Lane::kWrite || !once);
        if (outcome.error) {
          expect_named(outcome);
          EXPECT_FALSE(must_heal) << outcome.error->what();
        } else {
          EXPECT_TRUE(outcome.result == expected);
          EXPECT_FALSE(must_fail);
        }
        if (HasFailure()) return;
        ++tally[outcome.error ? "named" : "healed"];
      }
    }
  }
  std::printf("%d named, %d healed\n", tally["named"], tally["healed"]);
  EXPECT_GT(tally["named"], 0);
  EXPECT_GT(tally["healed"], 0);
}

// On real time, so that lanes overtake each other: each lane of its own lateness.
TEST_F(DriveFaults, DelaysChangeNoBit) {
  for (uint64_t seed = 1; seed <= test::seeds(10); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Case at(200 + seed, 1);
    const test::RunResult expected = undisturbed(at);
    test::RunOptions options = options_for(at);
    options.threads = 2;
    for (const Lane lane : kIoLanes) {
      io::SimulatedOptions& drive = options.simulated[static_cast<size_t>(lane)];
      drive.seed = seed;
      drive.virtual_time = false;
      drive.latency_s_min = 0;
      drive.latency_s_max = 1e-4 * at.draw.uniform();
      drive.slow_from = static_cast<uint64_t>(at.draw.between(0, 20));
      drive.slow_factor = static_cast<double>(at.draw.between(1, 20));
    }
    const Outcome outcome = run(at, options);
    ASSERT_FALSE(outcome.error) << outcome.error->what();
    ASSERT_TRUE(outcome.result == expected);
  }
}

// A drive of one rank: the others hear of it and end too, and the cause is the drive.
TEST_F(DriveFaults, TheDriveOfOneRankEndsAllOfThem) {
  for (uint64_t seed = 1; seed <= test::seeds(6); ++seed) {
    Case at(300 + seed, 2);
    const test::RunResult expected = undisturbed(at);
    for (const Lane lane : kIoLanes) {
      if (ios(lane) == 0) continue;
      const uint64_t index = static_cast<uint64_t>(at.draw.below(static_cast<int64_t>(ios(lane))));
      const int rank = static_cast<int>(at.draw.below(2));
      for (const io::SimulatedFault fault : {io::SimulatedFault{FaultKind::kEio, index, kForEver},
                                             io::SimulatedFault{FaultKind::kShort, index}}) {
        SCOPED_TRACE(described(300 + seed, lane, fault) + " of rank " + std::to_string(rank));
        const Outcome outcome = run_with(at, lane, fault, rank);
        if (fault.kind == FaultKind::kShort) {
          ASSERT_FALSE(outcome.error) << outcome.error->what();
          ASSERT_TRUE(outcome.result == expected);
        } else {
          expect_named(outcome);
          if (HasFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace strata
