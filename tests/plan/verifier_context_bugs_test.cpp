// SPDX-License-Identifier: Apache-2.0
// Seeded bugs in plans of context ranks that swap heads, and the kind of violation that each must
// be.
#include <gtest/gtest.h>

#include "engine/plan/builder.h"
#include "tests/plan/seeded_bugs.h"
#include "tests/support/random_runs.h"

namespace strata::plan {
namespace {

using bugs::Editor;

// Whether the ranks have a device of their own.
class BugsOfSwappedHeads : public testing::TestWithParam<bool> {
 protected:
  BugsOfSwappedHeads() {
    test::Draw draw(12);
    model::Architecture architecture = test::random_architecture(draw);
    architecture.kv_heads = 2;
    architecture.heads = 4;
    tiny_.spec = test::random_spec_of(draw, architecture, 1, false);
    PlanInput input = test::random_input(draw, tiny_.spec, 2);
    input.mesh.context = 2;
    input.mesh.replicate = 2;
    input.shape.length = 8;
    input.shape.context.ranks = 2;
    input.shape.swaps_heads = true;
    input.device.discrete = GetParam();
    tiny_.plan = build_plan(input, test::all_in_memory(input));
  }

  // The access of the first op that has one of the kind.
  Access& access_of(OpKind kind, Mode mode, ValueKind value, int part = 0) {
    for (const Op& op : editor_.step().ops) {
      if (op.kind != kind || op.part != part) continue;
      for (uint32_t a = op.access_begin; a < op.access_end; ++a) {
        Access& access = editor_.step().accesses[a];
        if (access.mode == mode && access.value.kind == value) return access;
      }
    }
    throw std::logic_error("no such access");
  }

  Op& swap_of(ValueKind value) {
    for (Op& op : editor_.step().ops) {
      const Access& first = editor_.step().accesses[op.access_begin];
      if (op.kind == OpKind::kAllToAll && first.value.kind == value) return op;
    }
    throw std::logic_error("no such op");
  }

  void expect(const std::string& kind) {
    std::string found;
    for (const Violation& violation : verify(tiny_.plan, tiny_.spec).violations) {
      found += violation.kind + ": " + violation.text + "\n";
    }
    EXPECT_NE(found.find(kind + ": "), std::string::npos) << "found: " << found;
  }

  bugs::Tiny tiny_;
  Editor editor_{tiny_};
};

TEST_P(BugsOfSwappedHeads, ThePlanWithoutThemIsAccepted) {
  std::string text;
  for (const Violation& violation : verify(tiny_.plan, tiny_.spec).violations) {
    text += violation.text + "\n";
  }
  EXPECT_EQ(text, "");
}

TEST_P(BugsOfSwappedHeads, AnExchangeOfHalfOfAValue) {
  editor_.step().accesses[swap_of(ValueKind::kHeads).access_begin].bytes /= 2;
  expect("transfer");
}

TEST_P(BugsOfSwappedHeads, AnExchangeThatGivesAnotherValue) {
  Access& to = editor_.step().accesses[swap_of(ValueKind::kHeads).access_begin + 1];
  to.value.kind = ValueKind::kAttended;
  expect("transfer");
}

TEST_P(BugsOfSwappedHeads, AnExchangeInPlace) {
  const Op& op = swap_of(ValueKind::kHeadsGradient);
  std::vector<Access>& accesses = editor_.step().accesses;
  accesses[op.access_begin + 1].offset = accesses[op.access_begin].offset;
  expect("transfer");
}

TEST_P(BugsOfSwappedHeads, HeadsThatRanksDoNotDivide) {
  tiny_.spec.architecture.kv_heads = 1;
  expect("layout");
}

TEST_P(BugsOfSwappedHeads, AnExchangeOverShards) {
  Op& op = swap_of(ValueKind::kAttended);
  op.group = GroupName::kReplicate;
  expect("collective");
}

TEST_P(BugsOfSwappedHeads, AttentionToHeadsOfOwnTokensAlone) {
  Access& heads = access_of(OpKind::kForward, Mode::kRead, ValueKind::kHeads, 1);
  heads.value.reduced = 0;
  expect("value");
}

TEST_P(BugsOfSwappedHeads, ABranchOfAnotherMicroBatch) {
  Access& attended = access_of(OpKind::kForward, Mode::kRead, ValueKind::kAttended, 2);
  attended.value.index += 1;
  expect("value");
}

TEST_P(BugsOfSwappedHeads, WhatOwnHeadsAttendToInThePlaceOfWhatCame) {
  access_of(OpKind::kForward, Mode::kWrite, ValueKind::kAttended, 1).offset =
      access_of(OpKind::kForward, Mode::kRead, ValueKind::kHeads, 1).offset;
  expect("stale");
}

TEST_P(BugsOfSwappedHeads, AGradientOfHeadsForThatOfWhatTheyAttendTo) {
  access_of(OpKind::kBackward, Mode::kRead, ValueKind::kAttendedGradient, 1).value.kind =
      ValueKind::kHeadsGradient;
  expect("value");
}

TEST_P(BugsOfSwappedHeads, AnInteriorWithoutItsFirstPart) {
  const bool recomputes = editor_.step().ops.end() !=
                          std::ranges::find(editor_.step().ops, OpKind::kRecompute, &Op::kind);
  ASSERT_TRUE(recomputes);
  Access& interior = access_of(OpKind::kRecompute, Mode::kRead, ValueKind::kInterior, 2);
  interior.value.reduced += 1;
  expect("value");
}

INSTANTIATE_TEST_SUITE_P(WithAndWithoutDevice, BugsOfSwappedHeads, testing::Bool());

}  // namespace
}  // namespace strata::plan
