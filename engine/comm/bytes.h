// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace strata::comm {

inline std::byte* byte_at(void* base, int64_t bytes) {
  return static_cast<std::byte*>(base) + bytes;
}
inline const std::byte* byte_at(const void* base, int64_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

// Both may be one place, and null where there are no bytes.
inline void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace strata::comm
