// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/host_compute.h"

#include "engine/exec/rope_table.h"

namespace strata::exec {

HostCompute::HostCompute(const model::ModelSpec& spec, Recipe recipe, model::BatchShape shape,
                         const kernels::Backend& backend, int threads)
    : spec_(spec),
      device_(kernels::make_host_device(backend, threads)),
      queue_(device_->make_queue("compute", 1)),
      compute_(spec, recipe, shape, *device_, *queue_) {
  for (int t = 0; t < model::rope_tables(spec.architecture); ++t) {
    tables_.push_back(rope_values(spec.architecture, t, shape));
  }
}

SegmentCall HostCompute::with_table(SegmentCall call) const {
  const int layer = spec_.segments[static_cast<size_t>(call.segment)].layer;
  if (!tables_.empty()) {
    call.rope =
        tables_[static_cast<size_t>(model::rope_table_of(spec_.architecture, layer))].data();
  }
  return call;
}

}  // namespace strata::exec
