// SPDX-License-Identifier: Apache-2.0
// The shape of a micro-batch, and what context ranks exchange of it.
#include <algorithm>

#include "engine/train/run_plan_parts.h"

namespace strata::train {

model::BatchShape shape_of(const config::Options& options) {
  return {.rows = options.micro_batch,
          .length = options.sequence_length / options.context_ranks,
          .documents = options.samples == config::SampleLayout::kPacked,
          .context = {.ranks = options.context_ranks}};
}

bool swaps_heads(const config::Options& options, const model::Architecture& architecture,
                 const kernels::DeviceDescription& device) {
  using enum config::ContextExchange;
  const int64_t ranks = options.context_ranks;
  if (ranks == 1 || options.context_exchange == kKeys) return false;
  model::Architecture own = architecture;  // of a tensor rank
  own.heads /= options.tensor_ranks;
  own.kv_heads = std::max<int64_t>(1, own.kv_heads / options.tensor_ranks);
  // Others are refused with the model at hand (model::require_taken).
  if (options.context_exchange == kHeads) return true;
  return model::can_swap_heads(own, ranks) &&
         (!device.contexts || model::should_swap_heads(own, ranks));
}

}  // namespace strata::train
