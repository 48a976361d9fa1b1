// SPDX-License-Identifier: Apache-2.0
#include "engine/train/mesh_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <span>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/tasks.h"
#include "engine/config/mesh_option.h"
#include "engine/model/tensor_slice.h"
#include "engine/train/plan_variant.h"
#include "engine/train/run_plan_parts.h"

namespace strata::train {
namespace {

constexpr int64_t kTensorRanksMax = 16;    // further apart, their sums within each layer take long
constexpr int64_t kPipelineRanksMax = 64;  // with more, stages wait most of the time
constexpr int64_t kContextTokensMin = 4096;  // of a rank: parts of shorter sequences save little
constexpr int64_t kMicroBatchesMax = 8192;   // that pass the stages of a pipeline
constexpr int64_t kFinalistsMax = 4;         // meshes that are planned whole

std::vector<int64_t> divisors(int64_t number, int64_t most) {
  std::vector<int64_t> all;
  for (int64_t each = 1; each <= std::min(number, most); ++each) {
    if (number % each == 0) all.push_back(each);
  }
  return all;
}

bool may_slice(const model::ModelSpec& spec, int64_t ranks) {
  try {
    (void)model::tensor_slices(spec, static_cast<int>(ranks), 1);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Whether groups of so many ranks that follow each other lie within a node each.
bool lie_on_nodes(int64_t group, int64_t node_ranks, int64_t ranks) {
  return node_ranks >= ranks || node_ranks % group == 0;
}

std::vector<int64_t> tensors_of(const PlanBasis& basis, int64_t node_ranks) {
  const int64_t ranks = basis.options.ranks;
  std::vector<int64_t> all = divisors(ranks, std::min(node_ranks, kTensorRanksMax));
  std::erase_if(all, [&](int64_t each) {
    return each > 1 && !(lie_on_nodes(each, node_ranks, ranks) && may_slice(basis.spec, each));
  });
  return all;
}

std::vector<int64_t> stages_of(const PlanBasis& basis, int64_t ranks) {
  const int64_t sections = basis.spec.architecture.layers / basis.options.least_chunks();
  return divisors(ranks, std::clamp<int64_t>(sections, 1, kPipelineRanksMax));
}

// Ranks of a node that divide long sequences, in two pieces each.
std::vector<int64_t> contexts_of(const config::Options& options, int64_t data_ranks,
                                 int64_t node_ranks) {
  const int64_t length = options.sequence_length;
  std::vector<int64_t> all = divisors(data_ranks, std::max<int64_t>(1, node_ranks));
  std::erase_if(all, [&](int64_t each) {
    return each > 1 && (length / each < kContextTokensMin || length % (2 * each) != 0 ||
                        options.continues_samples());
  });
  return all;
}

// Copies of the state that lie within a node each, beside one copy on all ranks.
std::vector<int64_t> shards_of(int64_t data_ranks, int64_t node_ranks, int64_t others) {
  const int64_t within = std::max<int64_t>(1, node_ranks / others);
  if (within >= data_ranks || data_ranks % within != 0) return {data_ranks};
  return {data_ranks, within};
}

Variant variant_of(const PlanBasis& basis, int64_t tensor, int64_t stages, int64_t context,
                   int64_t shards) {
  Variant variant = {{}, basis.options, basis.facts};
  variant.compared.kind = ComparedKind::kMesh;
  config::Options& options = variant.options;
  options.mesh.clear();
  options.tensor_ranks = tensor;
  options.pipeline_ranks = stages;
  options.context_ranks = context;
  options.shard_ranks = shards;
  options.accumulate *= basis.options.batch_ranks();
  options.accumulate /= options.batch_ranks();
  variant.facts.only_rank = 0;
  variant.compared.name = config::mesh_text(options);
  return variant;
}

// Meshes that might be planned, those with less traffic within layers first.
std::vector<Variant> variants_of(const PlanBasis& basis) {
  const int64_t ranks = basis.options.ranks;
  const int64_t node = ranks_on_node(basis.options, basis.facts);
  std::vector<Variant> variants;
  for (const int64_t tensor : tensors_of(basis, node)) {
    for (const int64_t stages : stages_of(basis, ranks / tensor)) {
      const int64_t data_ranks = ranks / (tensor * stages);
      for (const int64_t context : contexts_of(basis.options, data_ranks, node / tensor)) {
        for (const int64_t shards : shards_of(data_ranks, node, tensor * stages)) {
          if (shards % context != 0 || !lie_on_nodes(tensor * context, node, ranks)) continue;
          Variant variant = variant_of(basis, tensor, stages, context, shards);
          const config::Options& options = variant.options;
          if (options.step_samples() != basis.options.step_samples()) continue;
          if (stages > 1 && options.accumulate > kMicroBatchesMax) continue;
          variants.push_back(std::move(variant));
        }
      }
    }
  }
  return variants;
}

// Returns false for a mesh that no plan can have, such as tensor ranks on a device without them;
// of the first mesh, which every model can have, that is an error.
bool may_plan(const model::ModelSpec& spec, bool is_first, Variant& variant) {
  try {
    plan_variant(spec, variant);
    return true;
  } catch (const Error& error) {
    if (is_first || error.code() != ErrorCode::kConfig) throw;
    return false;
  }
}

double speed_of(const Variant& variant) {
  return variant.compared.refusal.empty() ? variant.compared.report.tokens_per_s() : 0;
}

void put_fastest_first(std::span<Variant> variants) {
  std::ranges::stable_sort(variants, std::greater<>(), speed_of);
}

// Plans all roughly, and returns them without those that no plan can have.
std::vector<Variant> plan_roughly(const model::ModelSpec& spec, const Planning& planning,
                                  std::vector<Variant> variants) {
  std::vector<char> there(variants.size());
  std::mutex mutex;
  int64_t number = 0;
  std::vector<std::function<void()>> tasks;
  for (size_t i = 0; i < variants.size(); ++i) {
    tasks.emplace_back([&, i] {
      if (planning) {
        const std::scoped_lock lock(mutex);
        planning(++number, std::ssize(variants) + kFinalistsMax);
      }
      variants[i].facts.rough = true;
      there[i] = may_plan(spec, i == 0, variants[i]) ? 1 : 0;
    });
  }
  run_tasks(tasks);
  std::vector<Variant> planned;
  for (size_t i = 0; i < variants.size(); ++i) {
    if (there[i] != 0) planned.push_back(std::move(variants[i]));
  }
  return planned;
}

// How many of the first take about as long as the fastest.
size_t finalists_of(std::span<const Variant> variants) {
  constexpr double kAlike = 0.75;
  size_t count = 1;
  while (count < std::min<size_t>(kFinalistsMax, variants.size()) &&
         speed_of(variants[count]) > kAlike * speed_of(variants.front())) {
    ++count;
  }
  return count;
}

}  // namespace

MeshChoice choose_mesh(const PlanBasis& basis, const Planning& planning) {
  std::vector<Variant> variants = variants_of(basis);
  int64_t number = std::ssize(variants);
  const int64_t most = number + kFinalistsMax;
  variants = plan_roughly(basis.spec, planning, std::move(variants));
  put_fastest_first(variants);
  const std::span<Variant> finalists(variants.data(), finalists_of(variants));
  for (Variant& variant : finalists) {
    if (planning) planning(++number, most);
    variant.facts.rough = false;
    plan_variant(basis.spec, variant);
  }
  put_fastest_first(finalists);
  MeshChoice choice = {variants.front().options, {}};
  for (Variant& variant : variants) choice.compared.push_back(std::move(variant.compared));
  choice.compared.front().is_planned = choice.compared.front().refusal.empty();
  return choice;
}

std::string mesh_line(const std::vector<Compared>& compared) {
  const Compared& chosen = compared.front();
  const std::string_view name = chosen.name;
  if (compared.size() == 1) return fmt::format("mesh     {}, the only one\n", name);
  const Compared& next = compared[1];
  if (!next.refusal.empty()) return fmt::format("mesh     {}, the only one that fits\n", name);
  const double slower = 1 - next.report.tokens_per_s() / chosen.report.tokens_per_s();
  return fmt::format(
      "mesh     {}, the fastest of {} that were planned; the next best, {}, is {}{:.0f}% slower, "
      "limited by {}\n",
      name, compared.size(), next.name, next.is_rough ? "about " : "", 100 * slower,
      next.report.bottleneck);
}

}  // namespace strata::train
