// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/comm/group.h"

namespace strata::comm {

// What a rank says of a collective that it has begun, as bytes that processes exchange. All ranks
// of a group must say the same.
struct CallHeader {
  char name[16] = {};
  int64_t size = 0;  // of the whole exchange, in bytes or elements by call
  int64_t root = 0;
  uint64_t shape = 0;  // of the sizes of its ranges, one by one
};

CallHeader header_of(const char* name, int64_t size, int64_t root = 0);
CallHeader header_of(const char* name, std::span<const GatherRange> ranges);
CallHeader header_of(std::span<const ReduceRange> ranges, Payload payload);
CallHeader header_of_sum(int64_t count, Payload payload);

// What differs between the ranks' headers, by rank; empty where they are equal.
std::string first_difference(std::span<const CallHeader> headers);

}  // namespace strata::comm
