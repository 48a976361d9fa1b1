// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/model_directory.h"
#include "engine/model/safetensors.h"
#include "engine/model/spec.h"

// The files of a model directory that is to be written.
namespace strata::model {

struct ShardPlan {
  std::string file;  // in the directory
  std::vector<TensorPlan> tensors;
};

// Tensors in the order of the spec, in files of at most `shard_bytes` unless one is larger.
std::vector<ShardPlan> plan_shards(const ModelSpec& spec, DType dtype, int64_t shard_bytes);

// Every tensor in the file that it came from; F32 and F16 ones stay as they came, the others become
// `dtype`: none is narrower than it was, nor than what was trained.
std::vector<ShardPlan> plan_shards_like(const ModelDirectory& source, DType dtype);

// The type that most of the bytes have.
DType main_dtype(const std::vector<ShardPlan>& shards);

}  // namespace strata::model
