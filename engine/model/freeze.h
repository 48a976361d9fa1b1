// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/model/spec.h"

namespace strata::model {

// Freezes the parameters whose whole name matches a regular expression, and assigns offsets for
// `shard_count` again. Throws Error (kConfig) for a pattern that is not a regular expression, that
// matches no parameter, or that leaves nothing to train.
void freeze_parameters(ModelSpec& spec, const std::string& pattern, int shard_count);

}  // namespace strata::model
