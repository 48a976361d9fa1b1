// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace strata {

// The word for `count` of a thing: "step", "steps"; "directory", "directories".
std::string plural(int64_t count, std::string_view thing);
// "1 step", "12000 steps".
std::string counted(int64_t count, std::string_view thing);

}  // namespace strata
