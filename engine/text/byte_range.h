// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace strata::text {

// Bytes [begin, end) of a text, between characters.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  bool operator==(const ByteRange&) const = default;
};

}  // namespace strata::text
