// SPDX-License-Identifier: Apache-2.0
#include "io/huge_memory.h"

#include <sys/mman.h>

#include <cerrno>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/units.h"

namespace strata::io {
namespace {

constexpr int64_t kHugePageBytes = 2 * kMiB;

}  // namespace

HugeMemory::HugeMemory(int64_t bytes)
    : bytes_(round_up(bytes, kHugePageBytes)), mapping_bytes_(bytes_ + kHugePageBytes) {
  STRATA_CHECK(bytes > 0);
  mapping_ = ::mmap(nullptr, static_cast<size_t>(mapping_bytes_), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    throw system_error(ErrorCode::kDoesNotFit,
                       "cannot map " + format_bytes(mapping_bytes_) + " of memory for transfers",
                       errno, "raise the limit of address space of this process, or ask for less");
  }
  const auto start = reinterpret_cast<intptr_t>(mapping_);
  data_ = static_cast<std::byte*>(mapping_) + (round_up(start, kHugePageBytes) - start);
  (void)::madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);  // when refused: small pages
}

HugeMemory::~HugeMemory() {
  ::munmap(mapping_, static_cast<size_t>(mapping_bytes_));
}

}  // namespace strata::io
