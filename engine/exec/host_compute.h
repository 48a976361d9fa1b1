// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "engine/exec/segment_compute.h"

namespace strata::exec {

// SegmentCompute on host memory, with position tables of its own, for tests. A call is complete
// when it returns; it runs in the caller's kernels::Parallel.
class HostCompute {
 public:
  HostCompute(const model::ModelSpec& spec, Recipe recipe, model::BatchShape shape,
              const kernels::Backend& backend, int threads);

  const kernels::DeviceDescription& device() const { return device_->description(); }

  void forward(const SegmentCall& call) const { compute_.forward(with_table(call)); }
  void recompute(const SegmentCall& call) const { compute_.recompute(with_table(call)); }
  void backward(const SegmentCall& call) const { compute_.backward(with_table(call)); }
  void loss(const SegmentCall& call) const { compute_.loss(call); }
  void loss_forward(const SegmentCall& call) const { compute_.loss_forward(call); }
  void logits(const SegmentCall& call) const { compute_.logits(call); }

 private:
  SegmentCall with_table(SegmentCall call) const;

  const model::ModelSpec& spec_;
  std::vector<std::vector<float>> tables_;
  const std::unique_ptr<kernels::Device> device_;
  const std::unique_ptr<kernels::Queue> queue_;
  const SegmentCompute compute_;
};

}  // namespace strata::exec
