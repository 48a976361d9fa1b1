// SPDX-License-Identifier: Apache-2.0
#include "engine/train/mesh_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "engine/base/error.h"
#include "engine/config/mesh_option.h"
#include "engine/model/tensor_slice.h"
#include "engine/train/plan_variant.h"
#include "engine/train/run_plan_parts.h"

namespace strata::train {
namespace {

constexpr int64_t kTensorRanksMax = 16;     // further apart, their sums within each layer take long
constexpr int64_t kPipelineRanksMax = 64;   // with more, stages wait most of the time
constexpr int64_t kMicroBatchesMax = 8192;  // that pass the stages of a pipeline

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

// Copies of the state that lie within a node each, beside one copy on all ranks.
std::vector<int64_t> shards_of(int64_t data_ranks, int64_t node_ranks, int64_t others) {
  const int64_t within = std::max<int64_t>(1, node_ranks / others);
  if (within >= data_ranks || data_ranks % within != 0) return {data_ranks};
  return {data_ranks, within};
}

// Meshes that might be planned, those with less traffic within layers first.
std::vector<Variant> variants_of(const PlanBasis& basis) {
  const int64_t ranks = basis.options.ranks;
  const int64_t node = ranks_on_node(basis.options, basis.facts);
  std::vector<Variant> variants;
  for (const int64_t tensor : divisors(ranks, std::min(node, kTensorRanksMax))) {
    if (tensor > 1 && !may_slice(basis.spec, tensor)) continue;
    const int64_t sections = basis.spec.architecture.layers / basis.options.least_chunks();
    const int64_t stages_max = std::clamp<int64_t>(sections, 1, kPipelineRanksMax);
    for (const int64_t stages : divisors(ranks / tensor, stages_max)) {
      const int64_t data_ranks = ranks / (tensor * stages);
      if (data_ranks % basis.options.context_ranks != 0) continue;
      for (const int64_t shards : shards_of(data_ranks, node, tensor * stages)) {
        Variant variant = {{}, basis.options, basis.facts};
        variant.compared.kind = ComparedKind::kMesh;
        config::Options& options = variant.options;
        options.mesh.clear();
        options.tensor_ranks = tensor;
        options.pipeline_ranks = stages;
        options.shard_ranks = shards;
        options.accumulate = basis.options.accumulate * tensor * stages;
        if (stages > 1 && options.accumulate > kMicroBatchesMax) continue;
        variant.facts.only_rank = 0;
        variant.compared.name = config::mesh_text(options);
        variants.push_back(std::move(variant));
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

}  // namespace

MeshChoice choose_mesh(const PlanBasis& basis, const Planning& planning) {
  std::vector<Variant> variants = variants_of(basis);
  int64_t number = 0;
  std::erase_if(variants, [&](Variant& variant) {
    if (planning) planning(number + 1, std::ssize(variants));
    return !may_plan(basis.spec, number++ == 0, variant);
  });
  std::ranges::stable_sort(variants, std::greater<>(), speed_of);
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
  const double slower = chosen.report.tokens_per_s() / next.report.tokens_per_s() - 1;
  return fmt::format(
      "mesh     {}, the fastest of {} that were planned; with the next best, {}, a step takes "
      "{:.0f}% longer, limited by {}\n",
      name, compared.size(), next.name, 100 * slower, next.report.bottleneck);
}

}  // namespace strata::train
