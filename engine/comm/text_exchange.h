// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/comm/group.h"

namespace strata::comm {

// Texts of any length between ranks. A null group is of one rank. All ranks call together.

// What rank 0 gives.
std::string broadcast_text(Group* group, const std::string& text);

// On rank 0 what every rank gives, in rank order; empty on others.
std::vector<std::string> gather_texts(Group* group, const std::string& text);

}  // namespace strata::comm
