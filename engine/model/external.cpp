// SPDX-License-Identifier: Apache-2.0
#include "engine/model/external.h"

#include <fmt/format.h>

#include "engine/base/error.h"

namespace strata::model {
namespace {

// With this many elements, the bytes of weights, state and gradients still fit 64 bits.
constexpr int64_t kElementsMost = int64_t{1} << 48;

}  // namespace

ModelSpec external_spec(const std::vector<ExternalSegment>& segments) {
  if (segments.empty()) {
    throw Error(ErrorCode::kConfig, "external model: no segments (declare at least one)");
  }
  ModelSpec spec;
  int64_t elements = 0;
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
      const auto refuse = [&](const char* cause, int64_t value) {
        throw Error(ErrorCode::kConfig,
                    fmt::format("external model: {}: {}: {}", wanted.name, named.name,
                                fmt::format(fmt::runtime(cause), value)));
      };
      for (int64_t size : named.shape) {
        if (size <= 0) refuse("size {} (sizes are positive)", size);
        if (__builtin_mul_overflow(parameter.numel, size, &parameter.numel) ||
            parameter.numel > kElementsMost) {
          refuse("more than {} elements (declare smaller tensors)", kElementsMost);
        }
      }
      elements += parameter.numel;
      if (elements > kElementsMost) {
        refuse("all tensors up to it have more than {} elements (declare fewer)", kElementsMost);
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
