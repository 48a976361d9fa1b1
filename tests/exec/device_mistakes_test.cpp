// SPDX-License-Identifier: Apache-2.0
// Mistakes in the plan of a device with memory of its own: the verifier refuses each of them, and
// where the plan is run all the same, the emulated device names those that touch its memory.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "engine/base/error.h"
#include "engine/plan/verifier.h"
#include "kernels/emulated/device_emulated.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata::exec {
namespace {

using plan::Access;
using plan::Arena;
using plan::Lane;
using plan::Mode;
using plan::Op;
using plan::OpKind;
using plan::Program;
using plan::ValueKind;

Op* find(Program& program, OpKind kind, int segment) {
  for (Op& op : program.ops) {
    if (op.kind == kind && (segment < 0 || op.segment == segment)) return &op;
  }
  return nullptr;
}

Access* find(Program& program, const Op& op, Mode mode, ValueKind kind) {
  for (uint32_t i = op.access_begin; i < op.access_end; ++i) {
    Access& access = program.accesses[i];
    if (access.mode == mode && access.value.kind == kind) return &access;
  }
  return nullptr;
}

void drop_waits_for(Program& program, Op& op, Lane lane) {
  const auto begin = static_cast<uint32_t>(program.waits.size());
  const std::vector<plan::Wait> before(program.waits.begin() + op.wait_begin,
                                       program.waits.begin() + op.wait_end);
  for (const plan::Wait& wait : before) {
    if (wait.lane != lane) program.waits.push_back(wait);
  }
  op.wait_begin = begin;
  op.wait_end = static_cast<uint32_t>(program.waits.size());
}

constexpr int kEmbedding = 0, kAttention = 1, kMlp = 2;

// Which of the two the device sees first is up to the delays.
constexpr const char* kUnordered = "nothing says which comes first (the plan lacks a wait)";

struct Mistake {
  const char* name;
  std::function<void(Program&)> make;
  const char* violation;  // the verifier's word
  const char* fault;      // what the device says; null: it is not run
  bool keeps = false;     // interiors
  bool home = false;      // of all weights and state on the device
};

// The access of an op becomes too short for anything.
std::function<void(Program&)> shorten(OpKind kind, int segment, Mode mode, ValueKind value,
                                      int64_t bytes = 64) {
  return [=](Program& step) { find(step, *find(step, kind, segment), mode, value)->bytes = bytes; };
}

std::function<void(Program&)> forget(OpKind kind, int segment, Lane lane) {
  return [=](Program& step) { drop_waits_for(step, *find(step, kind, segment), lane); };
}

const Mistake kMistakes[] = {
    {"ComputeBeforeItsWeightsAreUp", forget(OpKind::kForward, kAttention, Lane::kUpload), "race",
     kUnordered},
    {"TokensBeforeTheyAreUp", forget(OpKind::kForward, kEmbedding, Lane::kUpload), "race",
     kUnordered},
    {"AGradientIsCopiedEarly", forget(OpKind::kDownload, 4, Lane::kCompute), "race", kUnordered},
    {"LossesAreCopiedEarly", forget(OpKind::kDownload, -1, Lane::kCompute), "race", kUnordered},
    {"WeightsAreFetchedOverARunningUpload",
     [](Program& step) {
       for (Op& op : step.ops) {
         if (op.kind == OpKind::kFetch) drop_waits_for(step, op, Lane::kUpload);
       }
     },
     "race", nullptr},
    {"TheUpdateIsUploadedEarly", forget(OpKind::kUpload, kAttention, Lane::kOptimizer), "race",
     nullptr},
    {"ASlotIsReusedUnderARunningOp",
     [](Program& step) {
       for (Op& op : step.ops) {
         if (op.kind == OpKind::kUpload) drop_waits_for(step, op, Lane::kCompute);
       }
     },
     "race", kUnordered},
    {"TheWorkspaceIsTooSmall",
     shorten(OpKind::kForward, kAttention, Mode::kWrite, ValueKind::kScratch), nullptr,
     "is in no range of its op"},
    {"WeightsAreDeclaredShort",
     shorten(OpKind::kForward, kAttention, Mode::kRead, ValueKind::kPlane), "coverage",
     "is in no range of its op"},
    {"AGradientIsDeclaredShort",
     shorten(OpKind::kBackward, kAttention, Mode::kWrite, ValueKind::kGradient), "coverage",
     "writes a buffer of"},
    {"BackwardSaysNothingOfTheInteriorItWorksIn",
     [](Program& step) {
       const Op& op = *find(step, OpKind::kBackward, kMlp);
       *find(step, op, Mode::kWrite, ValueKind::kInterior) =
           *find(step, op, Mode::kRead, ValueKind::kInterior);
     },
     nullptr, "backward b0.mlp on compute: it writes a buffer", true},
    {"TokensAreReadFromTheHost",
     [](Program& step) {
       Access& tokens =
           *find(step, *find(step, OpKind::kForward, kEmbedding), Mode::kRead, ValueKind::kTokens);
       tokens.arena = Arena::kHost;
       tokens.offset =
           find(step, *find(step, OpKind::kInput, -1), Mode::kWrite, ValueKind::kTokens)->offset;
     },
     "arena", "a kernel reads host memory"},
    {"TargetsOfAnotherMicroBatch",
     [](Program& step) {
       ++find(step, *find(step, OpKind::kLoss, -1), Mode::kRead, ValueKind::kTargets)->value.index;
     },
     "value", nullptr},
    {"AForwardOnTheQueueOfUploads",
     [](Program& step) {
       Op& op = *find(step, OpKind::kForward, kAttention);
       const auto index = static_cast<uint32_t>(&op - step.ops.data());
       std::erase(step.lanes[static_cast<size_t>(Lane::kCompute)], index);
       auto& lane = step.lanes[static_cast<size_t>(Lane::kUpload)];
       lane.insert(std::lower_bound(lane.begin(), lane.end(), index), index);
       op.lane = Lane::kUpload;
     },
     "wait", nullptr},
    {"AnUpdateBeforeItsGradient",
     [](Program& step) {
       for (Op& op : step.ops) {
         if (op.kind == OpKind::kNormPartial) drop_waits_for(step, op, Lane::kCompute);
       }
     },
     "race", kUnordered, false, true},
    {"ForwardBeforeItsUpdate", forget(OpKind::kForward, kAttention, Lane::kUpdate), "race",
     kUnordered, false, true},
    {"NormsAreCopiedEarly",
     [](Program& step) {
       Op* last = nullptr;
       for (Op& op : step.ops) {
         if (op.kind == OpKind::kDownload) last = &op;
       }
       drop_waits_for(step, *last, Lane::kUpdate);
     },
     "race", kUnordered, false, true},
    {"AnUpdateTakesAGradientOfTheHost",
     [](Program& step) {
       Access& gradient = *find(step, *find(step, OpKind::kOptimize, kAttention), Mode::kRead,
                                ValueKind::kGradient);
       gradient.arena = Arena::kHost;
       gradient.offset = 0;
     },
     "arena", "a kernel reads host memory", false, true},
    {"ANormPartialIsDeclaredShort",
     shorten(OpKind::kNormPartial, kAttention, Mode::kWrite, ValueKind::kNormPartial, 4), "decide",
     "is in no range of its op", false, true},
};

class DeviceMistakes : public testing::TestWithParam<Mistake> {
 protected:
  void SetUp() override {
    architecture_.model_type = "llama";
    architecture_.hidden = 32;
    architecture_.heads = architecture_.kv_heads = 2;
    architecture_.head_size = 16;
    architecture_.layers = 2;
    architecture_.feed_forward = 48;
    architecture_.vocabulary = 64;
    architecture_.max_position = 64;
    spec_ = model::build_spec(architecture_);
    model::assign_offsets(spec_, 1);
    input_.spec = &spec_;
    input_.shape = {1, 8};
    input_.micro_batches = 2;
    input_.device.discrete = true;
    input_.nvme_budget = int64_t{1} << 40;
  }

  // What two steps of the plan end with; "" where nothing fails.
  std::string run(const plan::Plan& plan) {
    const auto device = kernels::make_emulated_device(kernels::ref_backend(),
                                                      {.delay_s_max = 5e-3, .delay_seed = 1});
    ExecutorOptions options;
    options.backend = &kernels::ref_backend();
    options.device = device.get();
    options.volume.directories = {directory_.path()};
    options.volume.allow_memory_filesystem = true;
    options.deadline_s = 20;
    Executor executor(plan, spec_, options);
    try {
      test::RandomSource source(spec_, test::kSeed);
      Instance load;
      load.program = plan::ProgramName::kLoad;
      load.source = &source;
      executor.run(load);
      for (int step = 1; step <= 2; ++step) {
        Instance instance;
        instance.settings = {.lr = 1e-2};
        test::fill_tokens(input_, step, 1, instance);
        executor.run(instance);
      }
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  const test::TemporaryDirectory directory_;
  model::Architecture architecture_;
  model::ModelSpec spec_;
  plan::PlanInput input_;
};

TEST_P(DeviceMistakes, AreRefusedAndNamed) {
  const Mistake& mistake = GetParam();
  plan::Placement placement = plan::smallest_placement(input_);
  placement.keep.assign(placement.keep.size(), mistake.keeps);
  if (mistake.home) {
    test::Draw draw(1);
    test::make_homes(4, draw, input_, placement);
  }
  plan::Plan plan = plan::build_plan(input_, placement);
  ASSERT_TRUE(plan::verify(plan, spec_).ok());
  mistake.make(plan.programs[static_cast<size_t>(plan::ProgramName::kStep)]);
  const plan::VerifyReport report = plan::verify(plan, spec_);
  if (mistake.violation) {
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.violations.front().kind, mistake.violation) << report.violations.front().text;
  }
  if (!mistake.fault) return;
  std::string said;
  // A host that other programs delay may come too late to make the mistake.
  for (int k = 0; k < 5 && said.empty(); ++k) said = run(plan);
  EXPECT_NE(said.find(mistake.fault), std::string::npos) << "it said: " << said;
}

INSTANTIATE_TEST_SUITE_P(Seeded, DeviceMistakes, testing::ValuesIn(kMistakes),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace strata::exec
