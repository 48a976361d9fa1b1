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
  bool frozen = false;
  int group = 0;  // ParameterGroup::given; 0: that of all matrices, or of all vectors
};

// One segment of a model that another framework computes: its parameters with names and shapes.
// Segments are in the order of the forward.
struct ExternalSegment {
  std::string name;
  std::vector<NamedShape> parameters;
  bool frozen = false;
};

// Makes each segment a unit of its own. Weight decay applies to tensors of two or more dimensions.
// `uses`: see set_uses(). Throws Error{kConfig} for an empty list, an empty segment, a list of
// frozen segments alone, a size that is not positive, or too many elements.
ModelSpec external_spec(const std::vector<ExternalSegment>& segments,
                        std::vector<ExternalUse> uses = {});

// Declares the order of a micro-batch. When it is empty, a micro-batch goes forward through all
// segments and back. Throws Error{kConfig} for uses of segments that are not there, and for an
// order that leaves a trained segment without a backward; then nothing is changed.
void set_uses(std::vector<ExternalUse> uses, ModelSpec& spec);

// Whether a caller computes the model.
bool is_external(const ModelSpec& spec);

}  // namespace strata::model
