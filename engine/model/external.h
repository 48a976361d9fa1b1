// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/spec.h"

namespace strata::model {

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

// One segment of a model that another framework computes: its parameters with names and shapes.
// Segments are in the order of the forward.
struct ExternalSegment {
  std::string name;
  std::vector<NamedShape> parameters;
};

// Makes each segment a unit of its own. Weight decay applies to tensors of two or more dimensions.
// Throws Error{kConfig} for an empty list, an empty segment, a size that is not positive, or too
// many elements.
ModelSpec external_spec(const std::vector<ExternalSegment>& segments);

}  // namespace strata::model
