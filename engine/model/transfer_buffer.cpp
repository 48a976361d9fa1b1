// SPDX-License-Identifier: Apache-2.0
#include "engine/model/transfer_buffer.h"

#include <sys/mman.h>

#include <cerrno>

#include "engine/base/check.h"
#include "engine/base/error.h"

namespace strata::model {
namespace {

constexpr int64_t kHugePageBytes = 2 * kMiB;
constexpr int64_t kLeastParameters = 32 * kMiB;

}  // namespace

int64_t transfer_buffer_bytes(const ModelSpec& spec) {
  return spec.parameter_count() < kLeastParameters ? 0 : kTransferBufferBytes;
}

TransferBuffer::TransferBuffer(int64_t bytes)
    : bytes_(round_up(bytes, kHugePageBytes)), mapping_bytes_(bytes_ + kHugePageBytes) {
  STRATA_CHECK(bytes > 0);
  mapping_ = ::mmap(nullptr, static_cast<size_t>(mapping_bytes_), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    throw system_error(
        ErrorCode::kDoesNotFit,
        "cannot map " + format_bytes(mapping_bytes_) + " for reading and writing weights", errno,
        "raise the limit of address space of this process");
  }
  const auto start = reinterpret_cast<intptr_t>(mapping_);
  data_ = static_cast<std::byte*>(mapping_) + (round_up(start, kHugePageBytes) - start);
  // Advice may be refused without harm.
  ::madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
}

TransferBuffer::~TransferBuffer() {
  ::munmap(mapping_, static_cast<size_t>(mapping_bytes_));
}

}  // namespace strata::model
