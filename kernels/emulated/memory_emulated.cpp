// SPDX-License-Identifier: Apache-2.0
#include "kernels/emulated/memory_emulated.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace strata::kernels::emulated {
namespace {

[[noreturn]] void refuse(int64_t bytes, int error) {
  throw system_error(
      ErrorCode::kDoesNotFit,
      fmt::format("cannot allocate {} of the emulated device's memory, which is host "
                  "memory",
                  format_bytes(bytes)),
      error, "lower --device-memory");
}

class Memory : public DeviceMemory {
 public:
  Memory(AddressSpace& space, int64_t bytes) : space_(space), bytes_(round_up(bytes, kPageBytes)) {
    const int file = memfd_create("strata-device", MFD_CLOEXEC);
    if (file < 0) refuse(bytes, errno);
    const auto size = static_cast<size_t>(bytes_);
    int error = ftruncate(file, bytes_) == 0 ? 0 : errno;
    void* address = MAP_FAILED;
    void* mapped = MAP_FAILED;
    if (error == 0) {
      address = mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
      mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      error = address == MAP_FAILED || mapped == MAP_FAILED ? errno : 0;
    }
    close(file);
    if (error == 0) {
      address_ = static_cast<std::byte*>(address);
      mapped_ = static_cast<std::byte*>(mapped);
      madvise(mapped_, size, MADV_DONTDUMP);
      space_.add(address_, mapped_, bytes_);
      return;
    }
    if (address != MAP_FAILED) munmap(address, size);
    if (mapped != MAP_FAILED) munmap(mapped, size);
    refuse(bytes, error);
  }

  ~Memory() override {
    space_.remove(address_);
    munmap(address_, static_cast<size_t>(bytes_));
    munmap(mapped_, static_cast<size_t>(bytes_));
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const override { return address_; }

 private:
  AddressSpace& space_;
  const int64_t bytes_;
  std::byte* address_ = nullptr;
  std::byte* mapped_ = nullptr;
};

}  // namespace

void AddressSpace::add(const void* address, std::byte* mapped, int64_t bytes) {
  const std::lock_guard lock(mu_);
  regions_.push_back({static_cast<const std::byte*>(address), mapped, bytes});
}

void AddressSpace::remove(const void* address) {
  const std::lock_guard lock(mu_);
  std::erase_if(regions_, [&](const Region& region) { return region.address == address; });
}

void* AddressSpace::mapped(const void* address) const {
  const auto* at = static_cast<const std::byte*>(address);
  const std::lock_guard lock(mu_);
  for (const Region& region : regions_) {
    if (at >= region.address && at < region.address + region.bytes) {
      return region.mapped + (at - region.address);
    }
  }
  return nullptr;
}

std::unique_ptr<DeviceMemory> allocate(AddressSpace& space, int64_t bytes) {
  return std::make_unique<Memory>(space, bytes);
}

}  // namespace strata::kernels::emulated
