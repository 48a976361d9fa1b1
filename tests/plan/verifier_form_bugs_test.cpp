// SPDX-License-Identifier: Apache-2.0
// Bugs of order, place, form and ranks are rejected as what they are.
#include "tests/plan/seeded_bugs.h"

namespace strata::plan {
namespace {

using namespace bugs;

class VerifierRejectsForm : public testing::TestWithParam<Bug> {};

TEST_P(VerifierRejectsForm, TheBug) {
  expect_rejected(GetParam());
}

const Bug kOrder[] = {
    {"MissingWait",
     "race",
     {},
     [](Editor& e) { e.forget(e.op(OpKind::kForward, kEmbed), Lane::kOptimizer); }},
    {"WaitTooSmall",
     "race",
     {},
     [](Editor& e) { --e.wait(e.op(OpKind::kForward, kEmbed), Lane::kOptimizer).count; }},
    {"SlotReusedWhileRead",
     "race",
     {},
     [](Editor& e) { --e.wait(e.op(OpKind::kFetch, kHead), Lane::kCompute).count; }},
    {"StateReusedBeforeItsSpill",
     "race",
     {},
     [](Editor& e) {
       --e.wait(e.op(OpKind::kFetch, kMlp, 1), Lane::kWrite).count;
       e.forget(e.op(OpKind::kFetch, kMlp, 1), Lane::kWrite);
     }},
    {"ExtentFetchedBeforeItsSpill",
     "race",
     {},
     [](Editor& e) { e.forget(e.op(OpKind::kFetch, kMlp, 2), Lane::kWrite); }},
    {"RaceWithTheStepBefore",
     "race",
     {},
     [](Editor& e) {
       const Op& op = e.op(OpKind::kFetch, kEmbed, 1);
       EXPECT_LE(e.wait(op, Lane::kWrite).count, 0);
       e.forget(op, Lane::kWrite);
     }},
    {"GradientHeldTooLate",
     "race",
     {.discrete = true},
     [](Editor& e) { e.forget(e.op(OpKind::kNormPartial, kHead), Lane::kDownload); }},
    {"UploadBeforeUpdate",
     "race",
     {.discrete = true},
     [](Editor& e) { e.forget(e.op(OpKind::kUpload, kEmbed), Lane::kOptimizer); }},
    {"WaitForALaterOp",
     "wait",
     {},
     [](Editor& e) { e.wait(e.op(OpKind::kForward, kEmbed), Lane::kOptimizer).count = 8; }},
    {"NegativeWaitBeyondTheLane",
     "wait",
     {},
     [](Editor& e) { e.wait(e.op(OpKind::kFetch, kEmbed), Lane::kCompute).count = -1000; }},
    {"LaneListOutOfOrder",
     "lanes",
     {},
     [](Editor& e) {
       auto& list = e.step().lanes[0];
       std::swap(list[0], list[1]);
     }},
    {"LaneListMissesAnOp", "lanes", {}, [](Editor& e) { e.step().lanes[0].pop_back(); }},
    {"LaneListNamesAnOpTwice",
     "lanes",
     {},
     [](Editor& e) {
       auto& list = e.step().lanes[0];
       list.push_back(list.back());
     }},
};

const Bug kPlaces[] = {
    {"ArenaOverBudget", "budget", {}, [](Editor& e) { e.plan().arenas.budget[1] -= 1; }},
    {"LedgerLinesOverlap",
     "ledger",
     {},
     [](Editor& e) { e.plan().arenas.lines[1].offset -= 4096; }},
    {"AccessOutsideTheLedger", "ledger", {}, [](Editor& e) { e.plan().arenas.lines.pop_back(); }},
    {"AccessOutsideItsArena",
     "range",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kForward, kMlp), Mode::kRead, ValueKind::kActivation).offset =
           e.plan().arenas.bytes[1];
     }},
    {"NegativeOffset",
     "range",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kForward, kMlp), Mode::kRead, kPlaneValue).offset = -4096;
     }},
    {"BeyondTheValue",
     "range",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kForward, kMlp), Mode::kRead, kPlaneValue).bytes += 4096;
     }},
    {"Misaligned",
     "alignment",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kFetch, kEmbed), Mode::kWrite, kPlaneValue).offset += 512;
     }},
    {"HalfAnElement",
     "alignment",
     {},
     [](Editor& e) { e.access(e.op(OpKind::kForward, kMlp), Mode::kRead, kPlaneValue).first = 1; }},
    {"UploadFromTheWrongArena",
     "arena",
     {.discrete = true},
     [](Editor& e) {
       e.access(e.op(OpKind::kUpload, kEmbed), Mode::kRead, kPlaneValue).arena = Arena::kNvme;
     }},
    {"ComputeOnHostWeights",
     "arena",
     {.discrete = true},
     [](Editor& e) {
       e.access(e.op(OpKind::kForward, kEmbed), Mode::kRead, kPlaneValue).arena = Arena::kHost;
     }},
    {"DecisionOutsideControl",
     "arena",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kDecide, -1), Mode::kWrite, ValueKind::kDecision).arena = Arena::kHost;
     }},
    {"TransferOfUnequalBytes",
     "transfer",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kFetch, kEmbed), Mode::kWrite, kPlaneValue).bytes -= 4096;
     }},
    {"TransferMiscounted",
     "transfer",
     {},
     [](Editor& e) { e.op(OpKind::kFetch, kEmbed).bytes += 1; }},
    {"TransferRenames",
     "transfer",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kFetch, kEmbed), Mode::kWrite, kPlaneValue).value.generation =
           Generation::kNew;
     }},
    {"OpOnAWrongLane",
     "contract",
     {},
     [](Editor& e) {
       Op& op = e.op(OpKind::kDecide, -1);
       e.step().lanes[static_cast<size_t>(op.lane)].pop_back();
       op.lane = Lane::kUpload;
       e.step().lanes[static_cast<size_t>(op.lane)].push_back(
           static_cast<uint32_t>(e.step().ops.size() - 1));
     }},
    {"HoldingsOverlap",
     "boundary",
     {},
     [](Editor& e) {
       e.plan().boundary[1].offset = e.plan().boundary[0].offset;
       e.plan().boundary[1].arena = e.plan().boundary[0].arena;
     }},
    {"AccessesBeyondTheProgram",
     "index",
     {},
     [](Editor& e) { e.step().ops.back().access_end += 1; }},
    {"NoSuchChunk",
     "index",
     {},
     [](Editor& e) { e.op(OpKind::kOptimize, kHead).chunk_count = 100; }},
    {"WeightsInPieces",
     "coverage",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kForward, kMlp), Mode::kRead, kPlaneValue).bytes -= 4096;
     }},
    {"NoSuchPlaneInFp32", "value", {}, [](Editor& e) { e.plan().recipe = Recipe::kFp32; }},
    {"NoSuchPlane",
     "value",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kForward, kMlp), Mode::kRead, kPlaneValue).value.plane = Plane{200};
     }},
    {"NoSuchGeneration",
     "value",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kForward, kMlp), Mode::kRead, kPlaneValue).value.generation =
           Generation{200};
     }},
    {"NoSuchRecipe", "value", {}, [](Editor& e) { e.plan().recipe = Recipe{200}; }},
    {"ChunkTableOfAnotherMesh", "layout", {}, [](Editor& e) { e.plan().layout.shard_count = 2; }},
};

const Bug kRanks[] = {
    {"ForeignPartUpdated", "coverage", {.world = 2}, [](Editor& e) { e.plan().mesh.rank = 1; }},
    {"GatherOfTheOldGeneration",
     "stale",
     {.world = 2},
     [](Editor& e) {
       e.access(e.op(OpKind::kGather, kEmbed), Mode::kRead, kPlaneValue).value.generation =
           Generation::kOld;
     }},
    {"GradientNotReduced",
     "contributions",
     {.world = 2},
     [](Editor& e) {
       e.access(e.op(OpKind::kNormPartial, kEmbed), Mode::kRead, ValueKind::kGradient)
           .value.reduced = false;
     }},
    {"ReduceBeforeTheLastContribution",
     "contributions",
     {.world = 2},
     [](Editor& e) {
       e.access(e.op(OpKind::kReduce, kEmbed), Mode::kRead, ValueKind::kGradient).value.index = 1;
     }},
    {"GatherCutsAChunk",
     "coverage",
     {.world = 2},
     [](Editor& e) {
       e.access(e.op(OpKind::kGather, kEmbed), Mode::kWrite, kPlaneValue).bytes -= 4096;
     }},
    {"ReduceNotAwaited",
     "race",
     {.world = 2},
     [](Editor& e) { e.forget(e.op(OpKind::kNormPartial, kHead), Lane::kComm); }},
};

INSTANTIATE_TEST_SUITE_P(Order, VerifierRejectsForm, testing::ValuesIn(kOrder), bug_name);
INSTANTIATE_TEST_SUITE_P(Places, VerifierRejectsForm, testing::ValuesIn(kPlaces), bug_name);
INSTANTIATE_TEST_SUITE_P(Ranks, VerifierRejectsForm, testing::ValuesIn(kRanks), bug_name);

TEST(VerifierRejectsRanks, CollectivesInAnotherOrder) {
  const Tiny zero = tiny::make({.world = 2, .rank = 0});
  Tiny one = tiny::make({.world = 2, .rank = 1});
  Editor editor(one);
  for (Op& op : editor.step().ops) op.wait_end = op.wait_begin;
  Op& mlp = editor.op(OpKind::kReduce, kMlp);
  Op& embed = editor.op(OpKind::kReduce, kEmbed);
  std::swap(mlp, embed);
  std::swap(mlp.number, embed.number);
  const VerifyReport report = verify_ranks(std::vector<Plan>{zero.plan, one.plan}, zero.spec);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.violations[0].kind, "collective");
}

TEST(VerifierRejectsRanks, ACollectiveThatOneRankLacks) {
  const Tiny zero = tiny::make({.world = 2, .rank = 0});
  Tiny one = tiny::make({.world = 2, .rank = 1});
  Editor editor(one);
  editor.remove(editor.step(), editor.op(OpKind::kGather, kHead));
  const VerifyReport report = verify_ranks(std::vector<Plan>{zero.plan, one.plan}, zero.spec);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.violations[0].kind, "collective");
}

TEST(VerifierRejectsRanks, PlansOfDifferentRuns) {
  const Tiny zero = tiny::make({.world = 2, .rank = 0});
  const Tiny other = tiny::make({.world = 2, .rank = 1, .micro_batches = 3});
  const VerifyReport report = verify_ranks(std::vector<Plan>{zero.plan, other.plan}, zero.spec);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.violations[0].kind, "ranks");
}

TEST(VerifierRejectsRanks, OneRankTwice) {
  const Tiny zero = tiny::make({.world = 2, .rank = 0});
  const VerifyReport report = verify_ranks(std::vector<Plan>{zero.plan, zero.plan}, zero.spec);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.violations[0].kind, "ranks");
}

}  // namespace
}  // namespace strata::plan
