// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "kernels/device.h"

namespace strata::kernels::emulated {

// All memory of a device: its addresses, and the mappings where kernels find the bytes. Threads:
// any.
class AddressSpace {
 public:
  void add(const void* address, std::byte* mapped, int64_t bytes);
  void remove(const void* address);

  // Where the byte at `address` is mapped; null when the address is not in the device's memory.
  void* mapped(const void* address) const;

 private:
  struct Region {
    const std::byte* address;
    std::byte* mapped;
    int64_t bytes;
  };
  mutable std::mutex mu_;
  std::vector<Region> regions_;  // Guarded by mu_
};

// Allocates memory at addresses that host code cannot access. Throws Error{kDoesNotFit}.
std::unique_ptr<DeviceMemory> allocate(AddressSpace& space, int64_t bytes);

}  // namespace strata::kernels::emulated
