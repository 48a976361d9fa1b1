// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/spec.h"
#include "engine/model_files/model_directory.h"
#include "engine/model_files/safetensors.h"

// The files of a model directory to write.
namespace strata::model {

struct ShardPlan {
  std::string file;  // in the directory
  std::vector<TensorPlan> tensors;
};

// Puts tensors in the order of the spec into files of at most `shard_bytes`, unless one tensor is
// larger.
std::vector<ShardPlan> plan_shards(const ModelSpec& spec, DType dtype, int64_t shard_bytes);

// The default type for exporting a weight that was read in type `came`: FP8 becomes BF16, other
// types stay.
DType exported_dtype(DType came);

// Puts every tensor into a file of the name that it came from, in `dtype` or by default in its
// exported_dtype(). Kept tensors keep their type.
std::vector<ShardPlan> plan_shards_like(const ModelDirectory& source, std::optional<DType> dtype);

// The bytes of all files, headers included.
int64_t bytes_of_files(const std::vector<ShardPlan>& shards);

// The type that most of the bytes have.
DType main_dtype(const std::vector<ShardPlan>& shards);

}  // namespace strata::model
