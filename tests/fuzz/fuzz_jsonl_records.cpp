// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of JSON lines: refused with our Error, or segments of which none is empty and
// no two neighbours are of one kind.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/train/data_records.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  static const int file = memfd_create("records", MFD_CLOEXEC);
  STRATA_CHECK(ftruncate(file, 0) == 0 &&
               pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  std::optional<train::RecordKind> kind;
  try {
    train::for_each_record("/proc/self/fd/" + std::to_string(file), [&](const config::Json& record,
                                                                        const std::string& where) {
      if (!kind) kind = train::kind_of_record(record, where);
      const auto segments = train::segments_of_record(record, *kind, where);
      for (size_t i = 0; i < segments.size(); ++i) {
        STRATA_CHECK(!segments[i].text.empty());
        STRATA_CHECK(i == 0 || segments[i].is_target != segments[i - 1].is_target);
      }
    });
  } catch (const Error& error) {
    STRATA_CHECK(error.code() == ErrorCode::kConfig);
  }
  return 0;
}
