// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "engine/comm/group.h"

namespace strata::comm {

// Makes a group whose ranks are threads of this process; element r is for the thread of rank r.
// Ranks read each other's buffers in place while all of them are inside a call, so there are no
// staging buffers. Memory: a few hundred bytes a rank.
std::vector<std::unique_ptr<Group>> make_local_groups(int count, const GroupOptions& options = {});

}  // namespace strata::comm
