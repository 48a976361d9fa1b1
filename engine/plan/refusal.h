// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/plan/plan.h"

namespace strata::plan {

// Memory of which even the smallest placement needs more than there is.
struct Shortage {
  Arena arena = Arena::kHost;
  int64_t need_bytes = 0;
  int64_t has_bytes = 0;
};

// The smallest single change of the batch that would fit: at most one of them, 0: none does.
struct SmallerBatch {
  int64_t micro_batch = 0;
  int64_t accumulate = 0;
  int64_t sequence_length = 0;
};

// Thrown where no plan fits (kDoesNotFit). Its text speaks to who gives the options of `strata
// plan`; others make theirs from its parts.
class DoesNotFit : public Error {
 public:
  // `may_add_nvme`: there is none, and scratch there would help.
  DoesNotFit(std::vector<Shortage> shortages, const SmallerBatch& change, bool may_add_nvme);

  // The same with more to say at the end.
  DoesNotFit(const DoesNotFit& other, const std::string& note);

  const std::vector<Shortage>& shortages() const { return shortages_; }
  bool lacks(Arena arena) const;
  const SmallerBatch& change() const { return change_; }
  const std::string& note() const { return note_; }

 private:
  std::vector<Shortage> shortages_;
  SmallerBatch change_;
  std::string note_;
};

// "host memory: needs at least 2.00 GiB, has 1.00 GiB (the fix); NVMe space: ..."
std::string describe(const std::vector<Shortage>& shortages,
                     const std::function<const char*(Arena)>& fix_of);

}  // namespace strata::plan
