// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/comm/group.h"

namespace strata::comm {

// A world of one rank: nothing waits, and only what must move to another address is copied.
std::unique_ptr<Group> make_self_group();

}  // namespace strata::comm
