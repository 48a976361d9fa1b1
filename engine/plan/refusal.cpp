// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/units.h"

namespace strata::plan {
namespace {

std::string fix_of(Arena arena, const Remedies& remedies) {
  if (arena == Arena::kDevice) {
    return remedies.device_is_whole ? "take a device with more memory" : "raise --device-memory";
  }
  if (arena == Arena::kNvme) return "free that much on the drives, or add a drive";
  std::string text = "raise --host-memory";
  if (remedies.device_memory) text += " or --device-memory";
  if (remedies.nvme) text += ", or add --nvme DIR";
  if (remedies.offload) text += ", or leave out --offload";
  return text;
}

Remedies helping(Remedies remedies, bool nvme_helps) {
  remedies.nvme = remedies.nvme && nvme_helps;
  remedies.offload = remedies.offload && nvme_helps;
  return remedies;
}

std::string option_of(const SmallerBatch& change) {
  if (change.micro_batch > 0) return fmt::format("--micro-batch {}", change.micro_batch);
  if (change.accumulate > 0) return fmt::format("--accumulate {}", change.accumulate);
  if (change.sequence_length > 0) {
    return fmt::format("--sequence-length {}", change.sequence_length);
  }
  return "";
}

std::string text_of(const std::vector<Shortage>& shortages, const SmallerBatch& change,
                    const Remedies& remedies) {
  const std::string option = option_of(change);
  return std::string("does not fit") +
         (remedies.offload ? " with --offload, which keeps state off drives: " : ": ") +
         describe(shortages, [&](Arena arena) { return fix_of(arena, remedies); }) +
         (option.empty() ? "" : "; or give a smaller batch, such as " + option);
}

}  // namespace

DoesNotFit::DoesNotFit(std::vector<Shortage> shortages, const SmallerBatch& change,
                       const Remedies& remedies)
    : Error(ErrorCode::kDoesNotFit, text_of(shortages, change, remedies)),
      shortages_(std::move(shortages)),
      change_(change),
      remedies_(remedies) {}

DoesNotFit::DoesNotFit(const DoesNotFit& other, std::vector<Shortage> shortages, bool nvme_helps,
                       const std::string& note)
    : Error(ErrorCode::kDoesNotFit,
            text_of(shortages, other.change_, helping(other.remedies_, nvme_helps)) + "; " + note),
      shortages_(std::move(shortages)),
      change_(other.change_),
      remedies_(helping(other.remedies_, nvme_helps)),
      note_(note) {}

bool DoesNotFit::lacks(Arena arena) const {
  return std::any_of(shortages_.begin(), shortages_.end(),
                     [&](const Shortage& shortage) { return shortage.arena == arena; });
}

std::string describe(const std::vector<Shortage>& shortages,
                     const std::function<std::string(Arena)>& fix_of) {
  std::string text;
  for (const Shortage& shortage : shortages) {
    if (!text.empty()) text += "; ";
    const char* what = shortage.arena == Arena::kDevice ? "device memory"
                       : shortage.arena == Arena::kHost ? "host memory"
                                                        : "NVMe space";
    text += fmt::format("{}: needs at least {}, has {} ({})", what,
                        format_bytes_up(shortage.need_bytes), format_bytes(shortage.has_bytes),
                        fix_of(shortage.arena));
  }
  return text;
}

}  // namespace strata::plan
