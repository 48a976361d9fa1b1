// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/fresh_moments.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

namespace strata::exec {
namespace {

using plan::Access;

struct Written {
  plan::Arena arena = plan::Arena::kHost;
  int64_t begin = 0, end = 0;
  size_t op = 0;
  bool moments = false;
  bool shared = false;
};

bool is_moments(const Access& access) {
  return access.value.kind == plan::ValueKind::kPlane &&
         (access.value.plane == Plane::kExpAvg || access.value.plane == Plane::kExpAvgSq);
}

// The ranges that ops write, sorted by place.
std::vector<Written> ranges_of(const plan::Program& program) {
  std::vector<Written> ranges;
  for (size_t op = 0; op < program.ops.size(); ++op) {
    for (const Access& access : program.accesses_of(program.ops[op])) {
      if (access.mode != plan::Mode::kWrite || access.bytes == 0) continue;
      ranges.push_back(
          {access.arena, access.offset, access.offset + access.bytes, op, is_moments(access)});
    }
  }
  std::sort(ranges.begin(), ranges.end(), [](const Written& a, const Written& b) {
    return std::tie(a.arena, a.begin) < std::tie(b.arena, b.begin);
  });
  return ranges;
}

// Marks ranges that overlap. It compares each range only with the earlier one that ends last,
// because all others that contain the same address overlap that one and are marked already.
void mark_shared(std::vector<Written>& ranges) {
  Written* last = nullptr;
  for (Written& range : ranges) {
    if (last && last->arena == range.arena && range.begin < last->end) {
      last->shared = range.shared = true;
    }
    if (!last || last->arena != range.arena || range.end > last->end) last = &range;
  }
}

}  // namespace

std::vector<bool> ops_with_fresh_moments(const plan::Program& load) {
  std::vector<Written> ranges = ranges_of(load);
  mark_shared(ranges);
  std::vector<bool> fresh(load.ops.size());
  for (const Written& range : ranges) {
    if (range.moments) fresh[range.op] = true;
  }
  for (const Written& range : ranges) {
    if (range.moments && range.shared) fresh[range.op] = false;
  }
  return fresh;
}

}  // namespace strata::exec
