// SPDX-License-Identifier: Apache-2.0
#include "engine/comm/call_header.h"

#include <fmt/core.h>

#include <cstring>

#include "engine/base/check.h"

namespace strata::comm {
namespace {

void add(CallHeader& header, int64_t size) {
  header.size += size;
  header.shape = (header.shape ^ static_cast<uint64_t>(size)) * 0x100000001b3u + 1;
}

}  // namespace

CallHeader header_of(const char* name, int64_t size, int64_t root) {
  CallHeader header = {.size = size, .root = root};
  const size_t length = std::strlen(name);
  STRATA_CHECK(length < sizeof(header.name));
  std::memcpy(header.name, name, length);
  return header;
}

CallHeader header_of(const char* name, std::span<const GatherRange> ranges) {
  CallHeader header = header_of(name, 0);
  for (const GatherRange& range : ranges) add(header, range.part_bytes);
  return header;
}

CallHeader header_of_sum(int64_t count, Payload payload) {
  return header_of(fmt::format("all_reduce {}", name_of(payload)).c_str(), count);
}

CallHeader header_of(std::span<const ReduceRange> ranges, Payload payload) {
  CallHeader header = header_of(fmt::format("reduce {}", name_of(payload)).c_str(), 0);
  for (const ReduceRange& range : ranges) add(header, range.part_numel);
  return header;
}

std::string first_difference(std::span<const CallHeader> headers) {
  const CallHeader& first = headers[0];
  for (size_t r = 1; r < headers.size(); ++r) {
    const CallHeader& other = headers[r];
    if (std::memcmp(&first, &other, sizeof(first)) == 0) continue;
    return fmt::format(
        "{}: rank {}: called {} of size {} where rank 0 called {} of size {} (all ranks must "
        "make the same calls in the same order)",
        first.name, r, other.name, other.size, first.name, first.size);
  }
  return "";
}

}  // namespace strata::comm
