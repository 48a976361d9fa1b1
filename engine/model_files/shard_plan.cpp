// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/shard_plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>

namespace strata::model {
namespace {

int64_t numel_of(const TensorPlan& tensor) {
  int64_t count = 1;
  for (const int64_t extent : tensor.shape) count *= extent;
  return count;
}

int64_t bytes_of_plan(const TensorPlan& tensor) {
  return numel_of(tensor) * bytes_of(tensor.dtype);
}

// Every stored tensor of the spec, once.
std::vector<TensorPlan> tensors_of(const ModelSpec& spec, DType dtype) {
  std::vector<TensorPlan> tensors;
  std::set<std::string> seen;
  for (const Segment& segment : spec.segments) {
    for (const Parameter& parameter : segment.parameters) {
      if (!seen.insert(parameter.stored.tensor).second) continue;
      tensors.push_back({parameter.stored.tensor, dtype, parameter.stored.shape});
    }
  }
  return tensors;
}

// Puts large tensors first: most are whole pages, so the tensor after each starts at a page.
void put_large_first(ShardPlan& shard) {
  std::stable_sort(
      shard.tensors.begin(), shard.tensors.end(),
      [](const TensorPlan& a, const TensorPlan& b) { return numel_of(a) > numel_of(b); });
}

}  // namespace

std::vector<ShardPlan> plan_shards(const ModelSpec& spec, DType dtype, int64_t shard_bytes) {
  std::vector<ShardPlan> shards(1);
  int64_t bytes = 0;
  for (TensorPlan& tensor : tensors_of(spec, dtype)) {
    const int64_t more = bytes_of_plan(tensor);
    if (bytes > 0 && bytes + more > shard_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    shards.back().tensors.push_back(std::move(tensor));
    bytes += more;
  }
  for (size_t i = 0; i < shards.size(); ++i) {
    put_large_first(shards[i]);
    shards[i].file = shards.size() == 1
                         ? "model.safetensors"
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

DType exported_dtype(DType came) {
  return came == DType::kF8E4M3 ? DType::kBF16 : came;
}

std::vector<ShardPlan> plan_shards_like(const ModelDirectory& source, std::optional<DType> dtype) {
  std::map<std::string, ShardPlan> by_file;
  for (TensorPlan& tensor : tensors_of(source.spec(), dtype.value_or(DType::kF32))) {
    if (!dtype) tensor.dtype = exported_dtype(source.tensor(tensor.name).dtype);
    ShardPlan& shard = by_file[source.file_of(tensor.name)];
    shard.tensors.push_back(std::move(tensor));
  }
  for (const std::string& name : source.kept()) {
    const TensorEntry& entry = source.tensor(name);
    by_file[source.file_of(name)].tensors.push_back({name, entry.dtype, entry.shape});
  }
  std::vector<ShardPlan> shards;
  for (auto& [file, shard] : by_file) {
    shard.file = file;
    put_large_first(shard);
    shards.push_back(std::move(shard));
  }
  return shards;
}

int64_t bytes_of_files(const std::vector<ShardPlan>& shards) {
  int64_t bytes = 0;
  for (const ShardPlan& shard : shards) bytes += make_safetensors_prefix(shard.tensors).file_bytes;
  return bytes;
}

DType main_dtype(const std::vector<ShardPlan>& shards) {
  std::map<DType, int64_t> bytes;
  for (const ShardPlan& shard : shards) {
    for (const TensorPlan& tensor : shard.tensors) bytes[tensor.dtype] += bytes_of_plan(tensor);
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? DType::kF32 : most->first;
}

}  // namespace strata::model
