// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/plan_bench_inputs.h"

#include <algorithm>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/units.h"
#include "engine/config/machine.h"
#include "engine/exec/rates_of.h"
#include "engine/model/architecture.h"
#include "engine/model/family.h"

namespace strata::bench {
namespace {

struct Size {
  const char* name;
  const char* family;
  int64_t layers, hidden, heads, kv_heads, head_size, feed_forward, vocabulary;
  bool tied = false;
};

constexpr Size kSizes[] = {
    {"llama-4M", "llama", 4, 256, 8, 8, 32, 704, 8192, true},
    {"llama-100M", "llama", 12, 768, 12, 4, 64, 2048, 32000, true},
    {"llama-1B", "llama", 16, 2048, 32, 8, 64, 8192, 128256, true},
    {"llama-8B", "llama", 32, 4096, 32, 8, 128, 14336, 128256},
    {"llama-70B", "llama", 80, 8192, 64, 8, 128, 28672, 128256},
    {"llama-405B", "llama", 126, 16384, 128, 8, 128, 53248, 128256},
    {"mistral-7B", "mistral", 32, 4096, 32, 8, 128, 14336, 32768},
    {"qwen2-7B", "qwen2", 28, 3584, 28, 4, 128, 18944, 152064},
    {"qwen3-32B", "qwen3", 64, 5120, 64, 8, 128, 25600, 151936},
    {"gemma2-9B", "gemma2", 42, 3584, 16, 8, 256, 14336, 256000, true},
    {"gemma3-27B", "gemma3_text", 62, 5376, 32, 16, 128, 21504, 262208, true},
    {"phi3-14B", "phi3", 40, 5120, 40, 10, 128, 17920, 32064},
    {"olmo2-13B", "olmo2", 40, 5120, 40, 40, 128, 13824, 100352},
    {"gpt2-1.5B", "gpt2", 48, 1600, 25, 25, 64, 6400, 50257, true},
};

constexpr const char* kSmall = "small-2core";
constexpr const char* kDesk = "rtx4090-4nvme";
constexpr auto kFp32 = Recipe::kFp32;
constexpr auto kInBackward = plan::OptimizerMode::kInBackward;

const Question kTimed[] = {
    {.name = "70B", .model = "llama-70B"},
    {.name = "405B", .model = "llama-405B"},
    {.name = "405B, one rank of 1,024", .model = "llama-405B", .ranks = 1024},
};

const Question kKept[] = {
    {.name = "4M resident", .model = "llama-4M", .machine = kSmall, .rows = 1, .length = 128},
    {.name = "4M, short rows",
     .model = "llama-4M",
     .machine = kSmall,
     .rows = 1,
     .length = 64,
     .micro_batches = 2},
    {.name = "100M, 1 GiB",
     .model = "llama-100M",
     .machine = kSmall,
     .host_gib = 1,
     .rows = 1,
     .length = 128,
     .micro_batches = 4,
     .recipe = kFp32},
    {.name = "100M, 1 GiB, in backward",
     .model = "llama-100M",
     .machine = kSmall,
     .host_gib = 1,
     .rows = 1,
     .length = 512,
     .micro_batches = 4,
     .mode = kInBackward},
    {.name = "1B, 4 GiB",
     .model = "llama-1B",
     .machine = kSmall,
     .host_gib = 4,
     .rows = 1,
     .length = 512,
     .micro_batches = 4},
    {.name = "1B, 10 GiB, fp32",
     .model = "llama-1B",
     .machine = kSmall,
     .host_gib = 10,
     .rows = 1,
     .length = 512,
     .micro_batches = 4,
     .recipe = kFp32},
    {.name = "1B resident without drives",
     .model = "llama-1B",
     .machine = kSmall,
     .nvme = false,
     .rows = 1,
     .length = 256,
     .micro_batches = 2},
    {.name = "1.5B, 6 GiB",
     .model = "gpt2-1.5B",
     .machine = kSmall,
     .host_gib = 6,
     .rows = 1,
     .length = 512},
    {.name = "8B, 20 GiB",
     .model = "llama-8B",
     .machine = kSmall,
     .host_gib = 20,
     .rows = 1,
     .length = 1024,
     .micro_batches = 8},
    {.name = "8B, 16 GiB, 24 layers frozen",
     .model = "llama-8B",
     .machine = kSmall,
     .host_gib = 16,
     .rows = 1,
     .length = 512,
     .micro_batches = 4,
     .frozen_layers = 24},
    {.name = "8B inference, 6 GiB",
     .model = "llama-8B",
     .machine = kSmall,
     .host_gib = 6,
     .rows = 1,
     .length = 512,
     .micro_batches = 1,
     .inference = true},
    {.name = "7B, 4 ranks, 24 GiB",
     .model = "mistral-7B",
     .machine = kDesk,
     .host_gib = 24,
     .one_tier = true,
     .rows = 1,
     .length = 1024,
     .micro_batches = 4,
     .ranks = 4,
     .ranks_on_node = 4},
    {.name = "8B, desk", .model = "llama-8B", .machine = kDesk, .host_gib = 64, .rows = 2},
    {.name = "8B, desk, 12 GiB of device",
     .model = "llama-8B",
     .machine = kDesk,
     .host_gib = 32,
     .device_gib = 12,
     .rows = 1},
    {.name = "7B, desk, in backward",
     .model = "qwen2-7B",
     .machine = kDesk,
     .host_gib = 48,
     .rows = 1,
     .mode = kInBackward},
    {.name = "9B, desk", .model = "gemma2-9B", .machine = kDesk, .host_gib = 100, .rows = 1},
    {.name = "13B, desk, 2 of 4 ranks, stage 2",
     .model = "olmo2-13B",
     .machine = kDesk,
     .host_gib = 48,
     .rows = 1,
     .ranks = 4,
     .ranks_on_node = 2,
     .zero_stage = 2,
     .rank = 1},
    {.name = "14B, desk", .model = "phi3-14B", .machine = kDesk, .rows = 1},
    {.name = "32B, desk", .model = "qwen3-32B", .machine = kDesk, .rows = 1},
    {.name = "70B, desk", .model = "llama-70B", .machine = kDesk, .rows = 1, .micro_batches = 16},
    {.name = "8B, server", .model = "llama-8B"},
    {.name = "27B, server, 200 GiB", .model = "gemma3-27B", .host_gib = 200, .rows = 2},
    {.name = "70B, server", .model = "llama-70B"},
    {.name = "70B, server, 300 GiB", .model = "llama-70B", .host_gib = 300},
    {.name = "70B, server, short steps",
     .model = "llama-70B",
     .rows = 1,
     .length = 2048,
     .micro_batches = 2},
    {.name = "70B, server, 8 of 64 ranks",
     .model = "llama-70B",
     .host_gib = 500,
     .rows = 2,
     .micro_batches = 4,
     .ranks = 64,
     .ranks_on_node = 8,
     .rank = 5},
    {.name = "405B, server", .model = "llama-405B"},
    {.name = "405B, server, 400 GiB", .model = "llama-405B", .host_gib = 400, .rows = 2},
    {.name = "405B, server, 1,024 ranks",
     .model = "llama-405B",
     .host_gib = 600,
     .rows = 1,
     .micro_batches = 4,
     .ranks = 1024,
     .ranks_on_node = 8,
     .rank = 1000},
    {.name = "405B, server, 16 ranks",
     .model = "llama-405B",
     .rows = 1,
     .ranks = 16,
     .ranks_on_node = 2},
};

model::ModelSpec spec_of(const Question& question) {
  const auto size = std::find_if(std::begin(kSizes), std::end(kSizes), [&](const Size& one) {
    return std::string_view(one.name) == question.model;
  });
  STRATA_CHECK(size != std::end(kSizes));
  const model::Family* family = model::find_family_by_type(size->family);
  STRATA_CHECK(family != nullptr);
  model::Architecture at;
  at.model_type = size->family;
  at.layers = size->layers;
  at.hidden = size->hidden;
  at.heads = size->heads;
  at.kv_heads = size->kv_heads;
  at.head_size = size->head_size;
  at.feed_forward = size->feed_forward;
  at.vocabulary = size->vocabulary;
  at.max_position = question.length;
  at.tied = size->tied;
  at.block = family->block;
  at.norm = family->norm;
  at.position = family->position;
  at.activation = family->activation;
  at.window = family->window;
  for (int64_t layer = 0; family->window_pattern > 0 && layer < at.layers; ++layer) {
    at.windowed.push_back((layer + 1) % family->window_pattern != 0);
  }
  model::ModelSpec spec = model::build_spec(at);
  for (model::Segment& segment : spec.segments) {
    const bool frozen = segment.layer < question.frozen_layers &&
                        segment.kind != model::SegmentKind::kHead && question.frozen_layers > 0;
    for (model::Parameter& parameter : segment.parameters) {
      parameter.frozen = frozen || question.inference;
    }
  }
  model::assign_offsets(spec, question.ranks);
  return spec;
}

int64_t share_of(double share, int64_t bytes) {
  return static_cast<int64_t>(share * static_cast<double>(bytes));
}

}  // namespace

std::span<const Question> timed_questions() {
  return kTimed;
}

std::span<const Question> kept_questions() {
  return kKept;
}

Prepared prepare(const Question& question, const std::string& machines) {
  const config::Machine machine = config::read_machine(machines + "/" + question.machine + ".toml");
  Prepared made;
  made.spec = std::make_unique<model::ModelSpec>(spec_of(question));
  const int threads =
      static_cast<int>(std::max<int64_t>(1, machine.cores / question.ranks_on_node));
  plan::PlanInput& input = made.input;
  input.spec = made.spec.get();
  input.recipe = question.recipe;
  input.shape = {question.rows, question.length};
  input.micro_batches = question.micro_batches;
  input.mode = question.inference ? kInBackward : question.mode;
  input.device.discrete = machine.device == config::DeviceKind::kCuda && !question.one_tier;
  input.mesh = {.world = question.ranks, .rank = question.rank, .zero_stage = question.zero_stage};
  input.device.threads = threads;
  input.frozen_in_source = question.nvme;
  input.inference = question.inference;
  input.host_budget =
      (question.host_gib > 0 ? question.host_gib * kGiB : share_of(0.85, machine.host_bytes)) /
      question.ranks_on_node;
  input.nvme_budget = question.nvme ? int64_t{1} << 50 : 0;
  if (input.device.discrete) {
    input.device_budget =
        question.device_gib > 0 ? question.device_gib * kGiB : share_of(0.9, machine.device_bytes);
  }
  made.rates = exec::rates_of(machine, {.recipe = question.recipe,
                                        .threads = threads,
                                        .ranks = question.ranks_on_node,
                                        .nodes = ceil_div(question.ranks, question.ranks_on_node),
                                        .discrete = input.device.discrete});
  return made;
}

}  // namespace strata::bench
