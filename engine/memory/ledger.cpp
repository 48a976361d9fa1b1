// SPDX-License-Identifier: Apache-2.0
#include "engine/memory/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "engine/base/check.h"
#include "engine/base/units.h"
#include "engine/config/json.h"

namespace strata::memory {

using config::Tier;

bool LedgerCheck::agrees() const {
  return std::abs(counted_bytes - kernel_bytes) <= kernel_bytes / 20 + 64 * kMiB;
}

LedgerLine& Ledger::line(Tier tier, std::string_view purpose, bool in_arena) {
  for (LedgerLine& known : lines_) {
    if (known.tier == tier && known.purpose == purpose && known.in_arena == in_arena) return known;
  }
  return lines_.emplace_back(LedgerLine{tier, std::string(purpose), 0, 0, in_arena});
}

void Ledger::plan(Tier tier, std::string_view purpose, int64_t bytes) {
  STRATA_CHECK(bytes >= 0);
  line(tier, purpose, true).planned_bytes += bytes;
}

void Ledger::plan_outside(std::string_view purpose, int64_t bytes) {
  STRATA_CHECK(bytes >= 0);
  line(Tier::kHost, purpose, false).planned_bytes += bytes;
}

void Ledger::measure(Tier tier, std::string_view purpose, int64_t bytes) {
  LedgerLine& known = line(tier, purpose, true);
  known.measured_bytes = std::max(known.measured_bytes, bytes);
}

void Ledger::observe(const ProcessMemory& memory) {
  const auto keep_largest = [this](std::string_view purpose, int64_t bytes) {
    LedgerLine& known = line(Tier::kHost, purpose, false);
    known.measured_bytes = std::max(known.measured_bytes, bytes);
  };
  keep_largest(kHeap, memory.heap_bytes);
  keep_largest(kStacks, memory.stack_bytes);
  keep_largest(kProgram, memory.file_bytes);
}

int64_t Ledger::planned_bytes(Tier tier) const {
  int64_t bytes = 0;
  for (const LedgerLine& known : lines_) {
    if (known.tier == tier) bytes += known.planned_bytes;
  }
  return bytes;
}

LedgerCheck Ledger::check(const ProcessMemory& memory, bool device_is_emulated) const {
  LedgerCheck check;
  check.kernel_bytes = memory.resident_peak_bytes;
  for (const LedgerLine& known : lines_) {
    const bool in_host =
        known.tier == Tier::kHost || (known.tier == Tier::kDevice && device_is_emulated);
    if (!in_host) continue;
    check.counted_bytes += known.in_arena ? known.planned_bytes : known.measured_bytes;
  }
  return check;
}

std::string Ledger::table() const {
  std::string text =
      fmt::format("{:<34}{:>12}{:>12}\n", "bytes by tier and purpose", "planned", "measured");
  for (int index = 0; index < config::kTierCount; ++index) {
    const Tier tier = static_cast<Tier>(index);
    std::vector<LedgerLine> rows;
    LedgerLine sum{tier, name_of(tier), 0, 0, true};
    for (const LedgerLine& known : lines_) {
      if (known.tier != tier) continue;
      rows.push_back(known);
      sum.planned_bytes += known.planned_bytes;
      sum.measured_bytes += known.measured_bytes;
    }
    if (rows.empty()) continue;
    std::stable_sort(rows.begin(), rows.end(), [](const LedgerLine& a, const LedgerLine& b) {
      return std::max(a.planned_bytes, a.measured_bytes) >
             std::max(b.planned_bytes, b.measured_bytes);
    });
    const auto append = [&text](const std::string& name, const LedgerLine& row) {
      const auto shown = [](int64_t bytes) { return bytes == 0 ? "-" : format_bytes(bytes); };
      fmt::format_to(std::back_inserter(text), "{:<34}{:>12}{:>12}\n", name,
                     shown(row.planned_bytes), shown(row.measured_bytes));
    };
    append(sum.purpose, sum);
    for (const LedgerLine& row : rows) append("  " + row.purpose, row);
  }
  return text;
}

std::string Ledger::json() const {
  config::Json items = config::Json::array();
  for (const LedgerLine& known : lines_) {
    config::Json item = config::Json::object();
    item.set("tier", name_of(known.tier));
    item.set("purpose", known.purpose);
    item.set("planned_bytes", known.planned_bytes);
    item.set("measured_bytes", known.measured_bytes);
    item.set("in_arena", known.in_arena);
    items.push_back(std::move(item));
  }
  return items.dump(2);
}

}  // namespace strata::memory
