// SPDX-License-Identifier: Apache-2.0
#include "engine/model/freeze.h"

#include "engine/model/name_pattern.h"

namespace strata::model {

void freeze_parameters(ModelSpec& spec, const std::string& pattern, int shard_count) {
  const NamePattern expression("freeze", pattern);
  ModelSpec frozen = spec;
  bool any_frozen = false;
  bool any_trained = false;
  for (Segment& segment : frozen.segments) {
    for (Parameter& parameter : segment.parameters) {
      const bool matches = expression.matches(parameter);
      parameter.frozen = parameter.frozen || matches;
      any_frozen = any_frozen || matches;
      any_trained = any_trained || !parameter.frozen;
    }
  }
  if (!any_frozen) {
    expression.refuse("it matches no parameter (it must match a whole name, such as \"" +
                      spec.segments.front().parameters.front().name + "\")");
  }
  if (!any_trained) expression.refuse("it leaves nothing to train (freeze fewer parameters)");
  assign_offsets(frozen, shard_count);
  spec = std::move(frozen);
}

}  // namespace strata::model
