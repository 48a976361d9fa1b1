// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/op_contract.h"

#include <array>

#include "engine/base/check.h"

namespace strata::plan {
namespace {

using enum Need;

constexpr uint32_t on(Lane lane) {
  return 1u << static_cast<uint32_t>(lane);
}
constexpr uint32_t kReads = on(Lane::kReadWeights) | on(Lane::kReadState);
constexpr uint32_t kExchanges = on(Lane::kComm) | on(Lane::kCommInner) | on(Lane::kCommStage);
constexpr uint32_t kUpdates = on(Lane::kOptimizer) | on(Lane::kUpdate);

// A predicated op also reads the decision, and so does one whose side depends on it.
constexpr ValueNeed kPredicate = {ValueKind::kDecision, kOptional, kNone};
constexpr ValueNeed kWorkspace = {ValueKind::kScratch, kNone, kAny};
constexpr ValueNeed kTables = {ValueKind::kRope, kOptional, kNone};

constexpr std::array kMove = {ValueNeed{ValueKind::kPlane, kAny, kAny},
                              ValueNeed{ValueKind::kGradient, kAny, kAny},
                              ValueNeed{ValueKind::kActivation, kAny, kAny}, kPredicate};
constexpr std::array kLink = {ValueNeed{ValueKind::kPlane, kAny, kAny},
                              ValueNeed{ValueKind::kGradient, kAny, kAny},
                              ValueNeed{ValueKind::kActivation, kAny, kAny},
                              ValueNeed{ValueKind::kTokens, kAny, kAny},
                              ValueNeed{ValueKind::kTargets, kAny, kAny},
                              ValueNeed{ValueKind::kPositions, kAny, kAny},
                              ValueNeed{ValueKind::kRope, kAny, kAny},
                              ValueNeed{ValueKind::kLossSum, kAny, kAny},
                              ValueNeed{ValueKind::kLogits, kAny, kAny},
                              ValueNeed{ValueKind::kNormPartial, kAny, kAny},
                              kPredicate};
constexpr std::array kInput = {
    ValueNeed{ValueKind::kTokens, kNone, kAny}, ValueNeed{ValueKind::kTargets, kNone, kAny},
    ValueNeed{ValueKind::kPositions, kNone, kAny}, ValueNeed{ValueKind::kRope, kNone, kAny},
    ValueNeed{ValueKind::kDecision, kNone, kOptional}};
constexpr std::array kOutput = {ValueNeed{ValueKind::kLossSum, kAny, kNone},
                                ValueNeed{ValueKind::kLogits, kAny, kNone}};
constexpr std::array kConvert = {ValueNeed{ValueKind::kPlane, kNone, kSome}, kWorkspace};
constexpr std::array kSave = {ValueNeed{ValueKind::kPlane, kSome, kNone}, kWorkspace};
constexpr std::array kGather = {ValueNeed{ValueKind::kPlane, kAny, kAny},
                                ValueNeed{ValueKind::kActivation, kOptional, kNone},
                                ValueNeed{ValueKind::kActivationGradient, kOptional, kNone},
                                ValueNeed{ValueKind::kRows, kNone, kOptional},
                                ValueNeed{ValueKind::kRowGradient, kOptional, kOptional},
                                ValueNeed{ValueKind::kKeys, kOptional, kOptional},
                                ValueNeed{ValueKind::kScores, kOptional, kOptional},
                                kWorkspace};
constexpr std::array kAllToAll = {ValueNeed{ValueKind::kHeads, kOptional, kOptional},
                                  ValueNeed{ValueKind::kHeadsGradient, kOptional, kOptional},
                                  ValueNeed{ValueKind::kAttended, kOptional, kOptional},
                                  ValueNeed{ValueKind::kAttendedGradient, kOptional, kOptional},
                                  kWorkspace};
constexpr std::array kReduce = {ValueNeed{ValueKind::kGradient, kAny, kAny},
                                ValueNeed{ValueKind::kNormPartial, kAny, kAny},
                                ValueNeed{ValueKind::kBranch, kOptional, kOptional},
                                ValueNeed{ValueKind::kBranchGradient, kOptional, kOptional},
                                ValueNeed{ValueKind::kNormSum, kNone, kOptional},
                                ValueNeed{ValueKind::kKeyGradient, kOptional, kOptional},
                                ValueNeed{ValueKind::kNormSums, kOptional, kOptional},
                                ValueNeed{ValueKind::kLogits, kOptional, kOptional},
                                kWorkspace};
constexpr std::array kForward = {ValueNeed{ValueKind::kPlane, kSome, kNone},
                                 ValueNeed{ValueKind::kActivation, kAny, kOptional},
                                 ValueNeed{ValueKind::kRows, kOptional, kNone},
                                 ValueNeed{ValueKind::kInterior, kOptional, kOptional},
                                 ValueNeed{ValueKind::kBranch, kOptional, kOptional},
                                 ValueNeed{ValueKind::kKeys, kOptional, kOptional},
                                 ValueNeed{ValueKind::kHeads, kOptional, kOptional},
                                 ValueNeed{ValueKind::kAttended, kOptional, kOptional},
                                 ValueNeed{ValueKind::kProjected, kOptional, kOptional},
                                 ValueNeed{ValueKind::kNormSums, kOptional, kOptional},
                                 ValueNeed{ValueKind::kCache, kOptional, kOptional},
                                 ValueNeed{ValueKind::kTokens, kOptional, kNone},
                                 kTables,
                                 kWorkspace};
constexpr std::array kRecompute = {ValueNeed{ValueKind::kPlane, kSome, kNone},
                                   ValueNeed{ValueKind::kActivation, kAny, kOptional},
                                   ValueNeed{ValueKind::kRows, kOptional, kNone},
                                   ValueNeed{ValueKind::kInterior, kOptional, kOptional},
                                   ValueNeed{ValueKind::kBranch, kOptional, kOptional},
                                   ValueNeed{ValueKind::kKeys, kOptional, kOptional},
                                   ValueNeed{ValueKind::kHeads, kOptional, kOptional},
                                   ValueNeed{ValueKind::kAttended, kOptional, kOptional},
                                   ValueNeed{ValueKind::kProjected, kOptional, kOptional},
                                   ValueNeed{ValueKind::kNormSums, kOptional, kOptional},
                                   ValueNeed{ValueKind::kTokens, kOptional, kNone},
                                   kTables,
                                   kWorkspace};
// The embedding's backward needs no weights and no activation as input; the backward of a frozen
// segment writes no gradient, and a use of several external segments writes as many.
constexpr std::array kBackward = {ValueNeed{ValueKind::kPlane, kAny, kNone},
                                  ValueNeed{ValueKind::kActivation, kAny, kNone},
                                  ValueNeed{ValueKind::kRows, kOptional, kNone},
                                  ValueNeed{ValueKind::kRowGradient, kOptional, kOptional},
                                  ValueNeed{ValueKind::kInterior, kOptional, kOptional},
                                  ValueNeed{ValueKind::kBranchGradient, kOptional, kOptional},
                                  ValueNeed{ValueKind::kKeys, kOptional, kNone},
                                  ValueNeed{ValueKind::kKeyGradient, kOptional, kOptional},
                                  ValueNeed{ValueKind::kHeadsGradient, kOptional, kOptional},
                                  ValueNeed{ValueKind::kAttendedGradient, kOptional, kOptional},
                                  ValueNeed{ValueKind::kProjectedGradient, kOptional, kOptional},
                                  ValueNeed{ValueKind::kNormSums, kOptional, kOptional},
                                  ValueNeed{ValueKind::kActivationGradient, kAny, kAny},
                                  ValueNeed{ValueKind::kGradient, kAny, kAny},
                                  ValueNeed{ValueKind::kOperands, kOptional, kOptional},
                                  ValueNeed{ValueKind::kNormGradient, kOptional, kOptional},
                                  ValueNeed{ValueKind::kTokens, kOptional, kNone},
                                  kTables,
                                  kWorkspace};
constexpr std::array kWeightGradient = {ValueNeed{ValueKind::kOperands, kOne, kNone},
                                        ValueNeed{ValueKind::kNormGradient, kOptional, kNone},
                                        ValueNeed{ValueKind::kGradient, kAny, kSome}, kWorkspace};
// The first micro-batch reads no gradient; the lowest trainable segment writes no activation
// gradient. Where the vocabulary is cut, one part of the loss has the loss sum. What goes back
// reads the decision where the recipe scales the loss.
constexpr std::array kLoss = {ValueNeed{ValueKind::kPlane, kSome, kNone},
                              ValueNeed{ValueKind::kActivation, kOptional, kNone},
                              ValueNeed{ValueKind::kRows, kOptional, kNone},
                              ValueNeed{ValueKind::kActivationGradient, kNone, kOptional},
                              ValueNeed{ValueKind::kGradient, kAny, kAny},
                              ValueNeed{ValueKind::kScores, kOptional, kOptional},
                              ValueNeed{ValueKind::kBranchGradient, kOptional, kOptional},
                              ValueNeed{ValueKind::kTargets, kOptional, kNone},
                              ValueNeed{ValueKind::kLossSum, kNone, kOptional},
                              ValueNeed{ValueKind::kDecision, kOptional, kNone},
                              kWorkspace};
constexpr std::array kEvaluate = {ValueNeed{ValueKind::kPlane, kSome, kNone},
                                  ValueNeed{ValueKind::kActivation, kOptional, kNone},
                                  ValueNeed{ValueKind::kRows, kOptional, kNone},
                                  ValueNeed{ValueKind::kScores, kOptional, kOptional},
                                  ValueNeed{ValueKind::kTargets, kOptional, kNone},
                                  ValueNeed{ValueKind::kLossSum, kNone, kOptional},
                                  kWorkspace};
constexpr std::array kLogits = {ValueNeed{ValueKind::kPlane, kSome, kNone},
                                ValueNeed{ValueKind::kActivation, kOptional, kNone},
                                ValueNeed{ValueKind::kRows, kOptional, kNone},
                                ValueNeed{ValueKind::kPositions, kOne, kNone},
                                ValueNeed{ValueKind::kLogits, kNone, kOne},
                                kWorkspace};
constexpr std::array kNorm = {ValueNeed{ValueKind::kGradient, kOne, kNone},
                              ValueNeed{ValueKind::kNormPartial, kNone, kOne}, kWorkspace};
constexpr std::array kDecide = {ValueNeed{ValueKind::kNormPartial, kAny, kNone},
                                ValueNeed{ValueKind::kNormSum, kOptional, kNone},
                                ValueNeed{ValueKind::kDecision, kOne, kOne}};
constexpr std::array kOptimize = {ValueNeed{ValueKind::kPlane, kSome, kSome},
                                  ValueNeed{ValueKind::kGradient, kOne, kNone},
                                  ValueNeed{ValueKind::kDecision, kOne, kNone}};

constexpr std::array kSend = {ValueNeed{ValueKind::kActivation, kOptional, kNone},
                              ValueNeed{ValueKind::kActivationGradient, kOptional, kNone},
                              kWorkspace};
constexpr std::array kRecv = {ValueNeed{ValueKind::kActivation, kNone, kOptional},
                              ValueNeed{ValueKind::kActivationGradient, kNone, kOptional},
                              kWorkspace};

constexpr std::array<OpContract, kOpKindCount> kContracts = {{
    {OpKind::kFetch, "fetch", kReads, true, kMove},
    {OpKind::kConvert, "convert", on(Lane::kOptimizer) | on(Lane::kReadWeights), false, kConvert},
    {OpKind::kSave, "save", on(Lane::kOptimizer), false, kSave},
    {OpKind::kSpill, "spill", on(Lane::kWrite), true, kMove},
    {OpKind::kUpload, "upload", on(Lane::kUpload), true, kLink},
    {OpKind::kDownload, "download", on(Lane::kDownload), false, kLink},
    {OpKind::kGather, "gather", on(Lane::kComm) | on(Lane::kCommInner), false, kGather},
    {OpKind::kReduce, "reduce", kExchanges, false, kReduce},
    {OpKind::kAllToAll, "all_to_all", on(Lane::kCommInner), false, kAllToAll},
    {OpKind::kForward, "forward", on(Lane::kCompute), false, kForward},
    {OpKind::kRecompute, "recompute", on(Lane::kCompute), false, kRecompute},
    {OpKind::kBackward, "backward", on(Lane::kCompute), false, kBackward},
    {OpKind::kWeightGradient, "weight_gradient", on(Lane::kCompute), false, kWeightGradient},
    {OpKind::kLoss, "loss", on(Lane::kCompute), false, kLoss},
    {OpKind::kEvaluate, "evaluate", on(Lane::kCompute), false, kEvaluate},
    {OpKind::kLogits, "logits", on(Lane::kCompute), false, kLogits},
    {OpKind::kNormPartial, "norm", kUpdates, false, kNorm},
    {OpKind::kDecide, "decide", on(Lane::kOptimizer), false, kDecide},
    {OpKind::kOptimize, "optimize", kUpdates, true, kOptimize},
    {OpKind::kInput, "input", on(Lane::kOptimizer), false, kInput},
    {OpKind::kOutput, "output", on(Lane::kOptimizer), false, kOutput},
    {OpKind::kSend, "send", on(Lane::kCommStage), false, kSend},
    {OpKind::kRecv, "recv", on(Lane::kCommStage), false, kRecv},
}};

}  // namespace

const OpContract& contract_of(OpKind kind) {
  const OpContract& contract = kContracts[static_cast<size_t>(kind)];
  STRATA_CHECK(contract.kind == kind);
  return contract;
}

const char* name_of(Lane lane) {
  static constexpr std::array<const char*, kLaneCount> kNames = {
      "compute", "optimizer", "upload",     "download", "read_weights", "read_state",
      "write",   "comm",      "comm_inner", "update",   "comm_stage"};
  return kNames[static_cast<size_t>(lane)];
}

}  // namespace strata::plan
