// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/base/units.h"
#include "engine/plan/input.h"

namespace strata::plan {

inline constexpr int64_t kNvmeAlignment = 64 * kKiB;  // a checksum block

// Hands out page-aligned ranges of the arenas from the bottom up, a ledger line for each purpose.
class Packer {
 public:
  explicit Packer(ArenaLayout& arenas) : arenas_(arenas) {}

  static int64_t stride(Arena arena, int64_t bytes) {
    return round_up(bytes, arena == Arena::kNvme ? kNvmeAlignment : kPageBytes);
  }

  // `count` ranges of equal size, a stride apart.
  int64_t take(Arena arena, int64_t bytes, const char* purpose, int64_t count = 1) {
    int64_t& used = arenas_.bytes[static_cast<size_t>(arena)];
    const int64_t offset = used;
    const int64_t size = count * stride(arena, bytes);
    used += size;
    LedgerLine* last = arenas_.lines.empty() ? nullptr : &arenas_.lines.back();
    if (last && last->arena == arena && last->purpose == purpose) {
      last->bytes += size;
    } else if (size > 0) {
      arenas_.lines.push_back({arena, purpose, offset, size});
    }
    return offset;
  }

  void count_kept_in_gradients(int64_t bytes) { arenas_.kept_in_gradients += bytes; }

 private:
  ArenaLayout& arenas_;
};

inline Arena compute_arena(const PlanInput& input) {
  return input.device.discrete ? Arena::kDevice : Arena::kHost;
}

}  // namespace strata::plan
