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

// A model that a framework computes by itself: segments with named shapes, in the order of its
// forward.
struct ExternalSegment {
  std::string name;
  std::vector<NamedShape> parameters;
};

// Every segment is a unit of its own. Tensors of two and more dimensions decay. Throws
// Error{kConfig} for an empty list, an empty segment, a size that is not positive, or more elements
// than can be counted.
ModelSpec external_spec(const std::vector<ExternalSegment>& segments);

}  // namespace strata::model
