// SPDX-License-Identifier: Apache-2.0
// Bugs in what values an op sees and in what a step does as a whole are rejected as what they are.
#include "tests/plan/seeded_bugs.h"

namespace strata::plan {
namespace {

using namespace bugs;

class VerifierRejectsState : public testing::TestWithParam<Bug> {};

TEST_P(VerifierRejectsState, TheBug) {
  expect_rejected(GetParam());
}

const Bug kValues[] = {
    {"StaleWeights",
     "stale",
     {},
     [](Editor& e) { e.remove(e.step(), e.op(OpKind::kSpill, kMlp)); }},
    {"ForwardWithTheOldWeights",
     "generation",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kForward, kEmbed), Mode::kRead, kPlaneValue).value.generation =
           Generation::kOld;
     }},
    {"WeightsNotFetched",
     "stale",
     {},
     [](Editor& e) { e.remove(e.step(), e.op(OpKind::kFetch, kHead)); }},
    {"WrongPlane",
     "stale",
     {},
     [](Editor& e) {
       const Op& op = e.op(OpKind::kFetch, kEmbed, 1);
       for (const Mode mode : {Mode::kRead, Mode::kWrite})
         e.access(op, mode, kPlaneValue, 1).value.plane = Plane::kExpAvgSq;
     }},
    {"WrongFirstByte",
     "stale",
     {},
     [](Editor& e) {
       const Op& op = e.op(OpKind::kFetch, kEmbed);
       for (const Mode mode : {Mode::kRead, Mode::kWrite})
         e.access(op, mode, kPlaneValue, 0).first = 8192;
     }},
    {"WrongSegment",
     "stale",
     {},
     [](Editor& e) {
       const Op& op = e.op(OpKind::kFetch, kEmbed);
       for (const Mode mode : {Mode::kRead, Mode::kWrite})
         e.access(op, mode, kPlaneValue).value.segment = kMlp;
     }},
    {"SpillOfTheOldGeneration",
     "stale",
     {},
     [](Editor& e) {
       const Op& op = e.op(OpKind::kSpill, kEmbed);
       for (const Mode mode : {Mode::kRead, Mode::kWrite})
         e.access(op, mode, kPlaneValue).value.generation = Generation::kOld;
     }},
    {"ActivationOverwritten",
     "stale",
     {},
     [](Editor& e) {
       const int64_t there =
           e.access(e.op(OpKind::kForward, kEmbed, 0), Mode::kWrite, ValueKind::kActivation).offset;
       e.access(e.op(OpKind::kForward, kEmbed, 1), Mode::kWrite, ValueKind::kActivation).offset =
           there;
     }},
    {"ScratchOverInput",
     "alias",
     {},
     [](Editor& e) {
       const Op& op = e.op(OpKind::kForward, kMlp);
       e.access(op, Mode::kWrite, ValueKind::kScratch).offset =
           e.access(op, Mode::kRead, ValueKind::kActivation).offset;
     }},
    {"ScratchOverALiveSlot",
     "unwritten",
     {},
     [](Editor& e) {
       const int64_t there =
           e.access(e.op(OpKind::kForward, kEmbed), Mode::kWrite, ValueKind::kActivation).offset;
       e.access(e.op(OpKind::kForward, kEmbed, 1), Mode::kWrite, ValueKind::kScratch).offset =
           there;
     }},
    {"ScratchRead",
     "contract",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kForward, kMlp), Mode::kWrite, ValueKind::kScratch).mode = Mode::kRead;
     }},
    {"OldActivationOfTheStepBefore",
     "unwritten",
     {},
     [](Editor& e) { e.remove(e.step(), e.op(OpKind::kForward, kEmbed, 1)); }},
    {"InteriorOfAnotherMicroBatch",
     "value",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kBackward, kMlp, 1), Mode::kRead, ValueKind::kInterior).value.index =
           0;
     }},
    {"PendingGradientOverwritten",
     "stale",
     {},
     [](Editor& e) {
       const int64_t there =
           e.access(e.op(OpKind::kOptimize, kMlp), Mode::kRead, ValueKind::kGradient).offset;
       Op& op = e.op(OpKind::kForward, kEmbed, 1);
       e.access(op, Mode::kWrite, ValueKind::kActivation).offset = there;
     }},
    {"SpilledGradientLost",
     "boundary",
     {.spills_gradients = true},
     [](Editor& e) { e.remove(e.step(), e.op(OpKind::kSpill, kMlp, 1)); }},
    {"NothingHeldForAnOp",
     "unwritten",
     {},
     [](Editor& e) { e.plan().boundary.erase(e.plan().boundary.begin()); }},
};

const Bug kUpdates[] = {
    {"ChunkUpdatedTwice",
     "updates",
     {},
     [](Editor& e) { e.repeat(e.step(), e.op(OpKind::kOptimize, kEmbed)); }},
    {"UpdateSkipped",
     "updates",
     {},
     [](Editor& e) { e.remove(e.step(), e.op(OpKind::kOptimize, kHead)); }},
    {"UpdateSkippedInDrain",
     "updates",
     {},
     [](Editor& e) {
       Program& drain = e.program(ProgramName::kDrain);
       e.remove(drain, e.op(drain, OpKind::kOptimize, kMlp, 1));
     }},
    {"UpdateThatMovesAPlane",
     "place",
     {},
     [](Editor& e) {
       const Op& op = e.op(OpKind::kOptimize, kMlp);
       Access& average = e.access(op, Mode::kWrite, kPlaneValue, 2);
       average.offset = e.access(op, Mode::kRead, ValueKind::kGradient).offset;
     }},
    {"SecondMomentOverGradientsOfOthers",
     "alias",
     {},
     [](Editor& e) {
       const Op& op = e.op(OpKind::kOptimize, kMlp);
       const Access& gradient = e.access(op, Mode::kRead, ValueKind::kGradient);
       e.access(op, Mode::kWrite, kPlaneValue, 3).offset = gradient.offset + 4096;
     }},
    {"SecondMomentLeftInTheGradientsRoom",
     "stale",
     {},
     [](Editor& e) {
       const Op& op = e.op(OpKind::kOptimize, kMlp);
       e.access(op, Mode::kWrite, kPlaneValue, 3).offset =
           e.access(op, Mode::kRead, ValueKind::kGradient).offset;
     }},
    {"UpdateOfAnotherChunk",
     "coverage",
     {},
     [](Editor& e) { ++e.op(OpKind::kOptimize, kEmbed).chunk; }},
    {"FrozenChunkUpdated",
     "frozen",
     {.frozen = true},
     [](Editor& e) { ++e.op(OpKind::kOptimize, kMlp).chunk; }},
    {"TrainedWeightsFromTheirSource",
     "frozen",
     {.frozen = true, .in_source = true},
     [](Editor& e) {
       const Op& op = e.op(OpKind::kConvert, kMlp);
       Access& access = e.access(op, Mode::kWrite, kPlaneValue);
       access.offset -= access.bytes;
       access.first -= access.bytes;
     }},
    {"AnotherChunkFromItsSource",
     "index",
     {.frozen = true, .in_source = true},
     [](Editor& e) { --e.op(OpKind::kConvert, kMlp).chunk; }},
    {"FrozenWeightsNotConverted",
     "unwritten",
     {.frozen = true, .in_source = true},
     [](Editor& e) { e.remove(e.step(), e.op(OpKind::kConvert, kMlp)); }},
    {"FrozenWeightsConvertedWithoutAWait",
     "race",
     {.frozen = true, .in_source = true},
     [](Editor& e) {
       Op& op = e.op(OpKind::kConvert, kMlp, 1);
       op.wait_end = op.wait_begin;
       Op& before = e.op(OpKind::kFetch, kMlp, 2);
       before.wait_end = before.wait_begin;
     }},
    {"UpdateWithoutPredicate",
     "predicate",
     {},
     [](Editor& e) { e.op(OpKind::kOptimize, kEmbed).predicate = Predicate::kAlways; }},
    {"FetchOfAPendingGradientWithoutPredicate",
     "unwritten",
     {.spills_gradients = true},
     [](Editor& e) { e.op(OpKind::kFetch, kMlp, 2).predicate = Predicate::kAlways; }},
    {"PredicateOnWhatAlwaysRuns",
     "stale",
     {},
     [](Editor& e) {
       Op& op = e.op(OpKind::kFetch, kHead);
       op.predicate = Predicate::kPending;
     }},
    {"PredicateWithoutDecision",
     "predicate",
     {},
     [](Editor& e) {
       Op& op = e.op(OpKind::kOptimize, kEmbed);
       --op.access_end;
     }},
    {"UpdateReadsHalfADecision",
     "decision",
     {},
     [](Editor& e) {
       Access& access =
           e.access(e.op(OpKind::kOptimize, kEmbed), Mode::kRead, ValueKind::kDecision);
       access.offset += 8;
       access.first += 8;
       access.bytes -= 8;
     }},
    {"DecisionGivenInAStep",
     "decision",
     {},
     [](Editor& e) {
       Program& load = e.program(ProgramName::kLoad);
       const Access given =
           e.access(load, e.op(load, OpKind::kInput, -1), Mode::kWrite, ValueKind::kDecision);
       Op& op = e.op(OpKind::kInput, -1);
       const auto first = e.step().accesses.begin() + op.access_begin;
       std::vector<Access> all(first, first + (op.access_end - op.access_begin));
       all.push_back(given);
       all.back().value.generation = Generation::kOld;
       op.access_begin = static_cast<uint32_t>(e.step().accesses.size());
       e.step().accesses.insert(e.step().accesses.end(), all.begin(), all.end());
       op.access_end = static_cast<uint32_t>(e.step().accesses.size());
     }},
    {"PredicateOnForward",
     "predicate",
     {},
     [](Editor& e) { e.op(OpKind::kForward, kEmbed).predicate = Predicate::kPending; }},
    {"UpdateFromThisStepsGradient",
     "stale",
     {},
     [](Editor& e) {
       Op& update = e.op(OpKind::kOptimize, kHead);
       Op& norm = e.op(OpKind::kNormPartial, kHead);
       std::swap(update, norm);
       update.wait_end = update.wait_begin;
       norm.wait_end = norm.wait_begin;
     }},
    {"GradientWithTooFewContributions",
     "contributions",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kOptimize, kMlp), Mode::kRead, ValueKind::kGradient).value.index = 1;
     }},
    {"ContributionLost",
     "contributions",
     {},
     [](Editor& e) {
       e.access(e.op(OpKind::kBackward, kMlp, 1), Mode::kWrite, ValueKind::kGradient).value.index =
           1;
     }},
    {"TiedGradientWithoutTheHeads",
     "contributions",
     {.tied = true},
     [](Editor& e) {
       e.access(e.op(OpKind::kBackward, kEmbed), Mode::kWrite, ValueKind::kGradient).value.index =
           1;
     }},
    {"MicroBatchSkipped",
     "passes",
     {},
     [](Editor& e) { e.remove(e.step(), e.op(OpKind::kBackward, kEmbed, 1)); }},
    {"MicroBatchForwardedTwice",
     "passes",
     {},
     [](Editor& e) { e.repeat(e.step(), e.op(OpKind::kForward, kEmbed)); }},
    {"EvalForgetsAMicroBatch", "passes", {}, [](Editor& e) { e.plan().eval_micro_batches = 2; }},
    {"NormPartialMissing",
     "norm",
     {},
     [](Editor& e) { e.remove(e.step(), e.op(OpKind::kNormPartial, kMlp)); }},
    {"NormOfHalfASegment",
     "norm",
     {},
     [](Editor& e) { --e.op(OpKind::kNormPartial, kMlp).access_end; }},
    {"DecideBeforeNorm",
     "unwritten",
     {},
     [](Editor& e) {
       Op& norm = e.op(OpKind::kNormPartial, kEmbed);
       std::swap(norm, e.op(OpKind::kDecide, -1));
     }},
    {"DecideForgetsASegment",
     "decide",
     {},
     [](Editor& e) { --e.op(OpKind::kDecide, -1).access_end; }},
    {"UpdateToTheSameGeneration",
     "generation",
     {.mode = OptimizerMode::kInBackward},
     [](Editor& e) {
       e.access(e.op(OpKind::kOptimize, kEmbed), Mode::kWrite, kPlaneValue).value.generation =
           Generation::kOld;
     }},
    {"PlaneNotSaved",
     "saves",
     {},
     [](Editor& e) {
       Program& checkpoint = e.program(ProgramName::kCheckpoint);
       --e.op(checkpoint, OpKind::kSave, kMlp).access_end;
     }},
    {"BoundaryWrongAtTheEnd",
     "boundary",
     {},
     [](Editor& e) { e.remove(e.step(), e.op(OpKind::kSpill, kEmbed)); }},
    {"BoundaryWrongAfterLoad",
     "boundary",
     {},
     [](Editor& e) {
       Program& load = e.program(ProgramName::kLoad);
       e.remove(load, e.op(load, OpKind::kSpill, kMlp));
     }},
    {"StepForgetsToDecide",
     "boundary",
     {},
     [](Editor& e) { e.remove(e.step(), e.op(OpKind::kDecide, -1)); }},
    {"DrainMissing", "flags", {}, [](Editor& e) { e.empty(ProgramName::kDrain); }},
};

Access& flip(Access& access) {
  access.side = access.side == Side::kLive ? Side::kOther : Side::kLive;
  return access;
}

const Bug kSides[] = {
    {"UpdateOverTheLiveSide",
     "side",
     {.two_sides = true},
     [](Editor& e) { flip(e.access(e.op(OpKind::kSpill, kMlp), Mode::kWrite, kPlaneValue)); }},
    {"UpdateInBackwardOverTheLiveSide",
     "side",
     {.two_sides = true, .mode = OptimizerMode::kInBackward},
     [](Editor& e) { flip(e.access(e.op(OpKind::kSpill, kMlp), Mode::kWrite, kPlaneValue)); }},
    {"OldWeightsWhereTheUpdateIsWanted",
     "stale",
     {.two_sides = true},
     [](Editor& e) { flip(e.access(e.op(OpKind::kFetch, kMlp, 2), Mode::kRead, kPlaneValue)); }},
    {"UpdateFromWhatTheLastOneReplaced",
     "unwritten",
     {.two_sides = true},
     [](Editor& e) { flip(e.access(e.op(OpKind::kFetch, kHead, 1), Mode::kRead, kPlaneValue)); }},
    {"EvalOfTheOtherSide",
     "unwritten",
     {.two_sides = true},
     [](Editor& e) {
       Program& eval = e.program(ProgramName::kEval);
       flip(e.access(eval, e.op(eval, OpKind::kFetch, kEmbed), Mode::kRead, kPlaneValue));
     }},
    {"LoadToTheOtherSide",
     "boundary",
     {.two_sides = true},
     [](Editor& e) {
       Program& load = e.program(ProgramName::kLoad);
       flip(e.access(load, e.op(load, OpKind::kSpill, kHead), Mode::kWrite, kPlaneValue));
     }},
    {"ChunkWithoutAnUpdate",
     "boundary",
     {.two_sides = true},
     [](Editor& e) { e.remove(e.step(), e.op(OpKind::kSpill, kHead)); }},
    {"SideThatDependsOnADecisionNotRead",
     "predicate",
     {.two_sides = true},
     [](Editor& e) { --e.op(OpKind::kFetch, kMlp, 2).access_end; }},
    {"OtherSideOfAGradient",
     "side",
     {.spills_gradients = true, .two_sides = true},
     [](Editor& e) {
       flip(e.access(e.op(OpKind::kFetch, kMlp, 2), Mode::kRead, ValueKind::kGradient));
     }},
    {"GradientAmongWhatHasTwoSides",
     "side",
     {.spills_gradients = true, .two_sides = true},
     [](Editor& e) {
       e.access(e.op(OpKind::kFetch, kMlp, 2), Mode::kRead, ValueKind::kGradient).offset = 0;
     }},
    {"OtherSideByItsPlace",
     "side",
     {.two_sides = true},
     [](Editor& e) {
       Access& access = flip(e.access(e.op(OpKind::kSpill, kEmbed), Mode::kWrite, kPlaneValue));
       access.offset += e.plan().sides.bytes;
     }},
    {"OtherSideBeyondNvme",
     "side",
     {.two_sides = true},
     [](Editor& e) { e.plan().sides.bytes *= 2; }},
    {"FetchOfASideThatIsStillWritten",
     "race",
     {.two_sides = true, .mode = OptimizerMode::kInBackward},
     [](Editor& e) { e.forget(e.op(OpKind::kFetch, kEmbed), Lane::kWrite); }},
};

INSTANTIATE_TEST_SUITE_P(Values, VerifierRejectsState, testing::ValuesIn(kValues), bug_name);
INSTANTIATE_TEST_SUITE_P(Updates, VerifierRejectsState, testing::ValuesIn(kUpdates), bug_name);
INSTANTIATE_TEST_SUITE_P(Sides, VerifierRejectsState, testing::ValuesIn(kSides), bug_name);

}  // namespace
}  // namespace strata::plan
