// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <type_traits>
#include <vector>

#include "engine/comm/group.h"

namespace strata::comm {

// What every rank gives, by rank. All ranks of the group call it together.
template <typename T>
std::vector<T> gather_each(Group& group, const T& own) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(group.size()));
  all[static_cast<size_t>(group.rank())] = own;
  group.gather(all.data(), sizeof(T));
  return all;
}

}  // namespace strata::comm
