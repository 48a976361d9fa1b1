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

// Tensors in the order of the spec, in files of at most `shard_bytes` unless one is larger.
std::vector<ShardPlan> plan_shards(const ModelSpec& spec, DType dtype, int64_t shard_bytes);

// The type that a weight which came in this one is exported in, unless another is asked for: FP8
// becomes BF16, all others stay.
DType exported_dtype(DType came);

// Every tensor in the file that it came from, in its exported_dtype() or, where one is given, in
// `dtype`; kept tensors as they came.
std::vector<ShardPlan> plan_shards_like(const ModelDirectory& source, std::optional<DType> dtype);

// Of all the files, headers included.
int64_t bytes_of_files(const std::vector<ShardPlan>& shards);

// The type that most of the bytes have.
DType main_dtype(const std::vector<ShardPlan>& shards);

}  // namespace strata::model
