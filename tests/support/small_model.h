// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/model/architecture.h"

namespace strata::test {

// A Llama model with four narrow layers.
inline model::Architecture small_llama() {
  model::Architecture at;
  at.model_type = "llama";
  at.heads = 2;
  at.kv_heads = 1;
  at.head_size = 8;
  at.hidden = 32;
  at.layers = 4;
  at.feed_forward = 64;
  at.vocabulary = 101;
  at.max_position = 64;
  return at;
}

}  // namespace strata::test
