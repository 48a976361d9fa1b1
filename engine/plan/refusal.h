// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/plan/plan.h"

namespace strata::plan {

// An arena of which even the smallest placement needs more than there is.
struct Shortage {
  Arena arena = Arena::kHost;
  int64_t need_bytes = 0;
  int64_t has_bytes = 0;
};

// The smallest single change of the batch that would fit. At most one member is not 0.
struct SmallerBatch {
  int64_t micro_batch = 0;
  int64_t accumulate = 0;
  int64_t sequence_length = 0;
};

// What would help besides more of the memory that is short.
struct Remedies {
  bool nvme = false;             // there is no drive, and scratch on one would help
  bool offload = false;          // --offload keeps state off drives, which would help
  bool device_memory = false;    // a device with more memory would take state from the host
  bool device_is_whole = false;  // --device-memory cannot be raised
};

// Thrown when no plan fits (kDoesNotFit). Its text is for users of `strata plan`; other callers
// make their own text from its parts.
class DoesNotFit : public Error {
 public:
  DoesNotFit(std::vector<Shortage> shortages, const SmallerBatch& change, const Remedies& remedies);

  // A copy that tells the shortages in other terms, with a note at the end of its text. It does not
  // advise NVMe unless that helps.
  DoesNotFit(const DoesNotFit& other, std::vector<Shortage> shortages, bool nvme_helps,
             const std::string& note);

  const std::vector<Shortage>& shortages() const { return shortages_; }
  bool lacks(Arena arena) const;
  const SmallerBatch& change() const { return change_; }
  const std::string& note() const { return note_; }

 private:
  std::vector<Shortage> shortages_;
  SmallerBatch change_;
  Remedies remedies_;
  std::string note_;
};

// "host memory: needs at least 2.00 GiB, has 1.00 GiB (the fix); NVMe space: ..."
std::string describe(const std::vector<Shortage>& shortages,
                     const std::function<std::string(Arena)>& fix_of);

}  // namespace strata::plan
