// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of JSON lines: refused with our Error, or segments of which none is empty and
// no two neighbours are of one kind.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/data/data_records.h"
#include "engine/data/record_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata;
  static const int file = memfd_create("records", MFD_CLOEXEC);
  STRATA_CHECK(ftruncate(file, 0) == 0 &&
               pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  std::optional<data::RecordKind> kind;
  try {
    data::for_each_item(
        "/proc/self/fd/" + std::to_string(file), [](int64_t, int64_t) {},
        [&](std::string_view item, int64_t line) {
          if (data::is_blank(item)) return true;
          const std::string where = std::to_string(line);
          config::Json record = data::parse_record(item, "records", line);
          if (!kind) kind = data::kind_of_record(record, where);
          const auto text = data::text_of_record(std::move(record), *kind, where);
          for (size_t i = 0; i < text.parts.size(); ++i) {
            STRATA_CHECK(!text.parts[i].text.empty());
            STRATA_CHECK(i == 0 || text.parts[i].is_target != text.parts[i - 1].is_target);
          }
          return true;
        });
  } catch (const Error& error) {
    STRATA_CHECK(error.code() == ErrorCode::kConfig);
  }
  return 0;
}
