// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "engine/comm/group.h"

namespace strata::comm {

// A group of one rank: calls never wait, and copy only when input and output differ.
std::unique_ptr<Group> make_self_group();

}  // namespace strata::comm
