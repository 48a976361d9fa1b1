// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/model/footprint.h"
#include "engine/model/spec.h"

// Programs that others would use instead, run for comparison.
namespace strata::bench {

struct Yardstick {
  std::string python;  // empty: there is none
  std::string script;
  explicit operator bool() const { return !python.empty() && !script.empty(); }
};

// The median seconds of forward and backward, as `torch_train.py SHAPE B T ckpt STEPS` prints them:
// "fwdbwd 1.09s". Throws Error (kIo) with its output where it failed.
double torch_forward_backward_s(const Yardstick& yardstick, const model::Architecture& shape,
                                const model::BatchShape& batch, int steps);

// `ds_train.py DIR SHAPE B T ACCUMULATE fp32 STEPS`: "... step 3.50s ... maxrss 5.10 GB".
struct DeepSpeedResult {
  double step_s = 0;
  double peak_bytes = 0;
};
DeepSpeedResult deepspeed_step(const Yardstick& yardstick, const std::string& directory,
                               const model::Architecture& shape, const model::BatchShape& batch,
                               int micro_batches, int steps);

}  // namespace strata::bench
