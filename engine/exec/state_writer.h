// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/exec/executor_impl.h"

namespace strata::exec {

// Writes a caller's values into the state between programs, where the plan's boundary says that it
// lies. Of a checksum block on NVMe that it changes in part, it reads the rest first, and verifies
// it.
//
// Threads: the submitter's, while no program runs. Failure: Error; some of the values may have been
// written. Memory: 512 KiB from the first use on, beside the arenas.
class Executor::Impl::StateWriter {
 public:
  explicit StateWriter(Impl& impl);

  void put(const PlaneValues& given);

 private:
  // A part of a holding: `bytes` bytes, `skip` bytes behind its begin.
  struct Part {
    const plan::Holding& holding;
    int64_t skip = 0;
    std::span<const std::byte> bytes;
  };

  void write(const Part& part);
  void write_to_device(const Part& part);
  void write_to_nvme(const Part& part);
  int64_t end_of_block(const plan::Holding& holding, int64_t wanted) const;
  void move(io::Direction direction, int64_t address, int64_t bytes, uint64_t tag, std::byte* data);

  Impl& impl_;
  std::vector<std::byte> encoded_;
  memory::Arena blocks_;                   // of NVMe, as they are there
  std::unique_ptr<io::Channel> channel_;   // null until the first write to NVMe
  std::unique_ptr<kernels::Queue> queue_;  // null until the first write to the device
  int64_t copies_ = 0;                     // that were issued to the queue
};

}  // namespace strata::exec
