// SPDX-License-Identifier: Apache-2.0
#include "engine/model/external.h"

#include "engine/base/error.h"

namespace strata::model {

ModelSpec external_spec(const std::vector<ExternalSegment>& segments) {
  if (segments.empty()) {
    throw Error(ErrorCode::kConfig, "external model: no segments (declare at least one)");
  }
  ModelSpec spec;
  spec.architecture.model_type = "external";
  spec.groups = {{.name = "matrices", .decays = true}, {.name = "vectors", .decays = false}};
  for (const ExternalSegment& wanted : segments) {
    Segment segment;
    segment.kind = SegmentKind::kExternal;
    segment.unit = static_cast<int>(spec.units.size());
    segment.name = wanted.name;
    for (const NamedShape& named : wanted.parameters) {
      Parameter parameter;
      parameter.name = named.name;
      parameter.shape = named.shape;
      parameter.numel = 1;
      for (int64_t size : named.shape) {
        if (size <= 0) {
          throw Error(ErrorCode::kConfig, "external model: " + named.name + ": size " +
                                              std::to_string(size) + " (sizes are positive)");
        }
        parameter.numel *= size;
      }
      parameter.group = named.shape.size() >= 2 ? 0 : 1;
      segment.parameters.push_back(std::move(parameter));
    }
    if (segment.parameters.empty()) {
      throw Error(ErrorCode::kConfig, "external model: " + wanted.name + ": no parameters");
    }
    spec.units.push_back({wanted.name, {static_cast<int>(spec.segments.size())}});
    spec.segments.push_back(std::move(segment));
  }
  assign_offsets(spec, 1);
  return spec;
}

}  // namespace strata::model
