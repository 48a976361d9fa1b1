// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/model/family.h"

// Describes in words what is computed for each family, from its row of the table.
namespace strata::model {

// "RMSNorm", "RoPE (default, linear, ...)", "biases of q, k, v".
std::vector<std::string> features_of(const Family& family);

// "F32", "F8_E4M3 with block scales": how weights may be stored.
std::vector<std::string> weight_types();

}  // namespace strata::model
