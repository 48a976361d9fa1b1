// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/tier.h"
#include "engine/memory/process_memory.h"

namespace strata::memory {

// One purpose of bytes in a tier.
struct LedgerLine {
  config::Tier tier;
  std::string purpose;  // "gradients", "thread stacks"
  int64_t planned_bytes = 0;
  int64_t measured_bytes = 0;  // the most that was seen
  bool in_arena = true;        // handed out by an arena, or taken by a library outside of it
};

// The ledger's count of host memory against the kernel's.
struct LedgerCheck {
  int64_t counted_bytes = 0;
  int64_t kernel_bytes = 0;
  // Within 5% of the kernel's count and 64 MiB.
  bool agrees() const;
};

// Every byte of every tier by purpose: what the plan gave it, and what was measured.
//
// Threads: one; the owner of the engine writes it between steps.
// Failure: none. Memory: its lines.
class Ledger {
 public:
  // Adds `bytes` to what a purpose may use inside arenas (of the host, the device, or on drives).
  void plan(config::Tier tier, std::string_view purpose, int64_t bytes);

  // Adds room for what libraries take outside arenas. Its measure comes from observe().
  void plan_outside(std::string_view purpose, int64_t bytes);

  // The peak use of a purpose inside an arena, as the executor saw it; the largest is kept.
  void measure(config::Tier tier, std::string_view purpose, int64_t bytes);

  // Takes in what the process holds outside arenas, under kHeap, kStacks and kProgram; the largest
  // of each is kept. Call it while the run works, as the ends of steps.
  void observe(const ProcessMemory& memory);
  static constexpr std::string_view kHeap = "heap of program and libraries";
  static constexpr std::string_view kStacks = "thread stacks";
  static constexpr std::string_view kProgram = "program and mapped files";

  const std::vector<LedgerLine>& lines() const { return lines_; }
  int64_t planned_bytes(config::Tier tier) const;

  // Arenas are present in full from the start, so they count as planned; the rest as measured. An
  // emulated device's arena is host memory to the kernel.
  LedgerCheck check(const ProcessMemory& memory, bool device_is_emulated = false) const;

  // Rows by tier, the largest first, with sums; and the same as JSON.
  std::string table() const;
  std::string json() const;

 private:
  LedgerLine& line(config::Tier tier, std::string_view purpose, bool in_arena);

  std::vector<LedgerLine> lines_;
};

}  // namespace strata::memory
