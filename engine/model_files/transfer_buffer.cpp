// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/transfer_buffer.h"

namespace strata::model {

int64_t transfer_buffer_bytes(const ModelSpec& spec) {
  constexpr int64_t kLeastParameters = 32 * kMiB;
  return spec.parameter_count() < kLeastParameters ? 0 : kTransferBufferBytes;
}

}  // namespace strata::model
