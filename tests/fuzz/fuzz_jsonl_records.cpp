// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of JSON lines: each record is refused with our Error, or has segments of
// which none is empty and no two neighbours are of one kind, or is a chat with messages. Every
// second record is read as a chat where it can be. A run ends with the number of records.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/config/json.h"
#include "engine/data/data_records.h"
#include "engine/data/record_stream.h"

namespace {

using namespace strata;

struct Count {
  int64_t records = 0;
  ~Count() { std::fprintf(stderr, "%lld records\n", static_cast<long long>(records)); }
} count;

void take_record(std::string_view item, int64_t line, std::optional<data::RecordKind>& kind) {
  ++count.records;
  const std::string where = std::to_string(line);
  config::Json record = data::parse_record(item, "records", line);
  if (!kind) kind = data::kind_of_record(record, where);
  const auto text =
      data::text_of_record(std::move(record), *kind, where, {.as_chats = count.records % 2 == 0});
  STRATA_CHECK(!text.chat || (text.parts.empty() && !text.chat->messages.items().empty()));
  for (size_t i = 0; i < text.parts.size(); ++i) {
    STRATA_CHECK(!text.parts[i].text.empty());
    STRATA_CHECK(i == 0 || text.parts[i].is_target != text.parts[i - 1].is_target);
  }
}

template <typename Call>
void refuses_or_does(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    STRATA_CHECK(error.code() == ErrorCode::kConfig);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int file = memfd_create("records", MFD_CLOEXEC);
  STRATA_CHECK(ftruncate(file, 0) == 0 &&
               pwrite(file, data, size, 0) == static_cast<ssize_t>(size));
  std::optional<data::RecordKind> kind;
  refuses_or_does([&] {
    data::for_each_item(
        "/proc/self/fd/" + std::to_string(file), [](int64_t, int64_t) {},
        [&](std::string_view item, int64_t line) {
          if (!data::is_blank(item)) refuses_or_does([&] { take_record(item, line, kind); });
          return true;
        });
  });
  return 0;
}
