// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/direct_files.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/blocking_call.h"
#include "engine/base/units.h"

namespace strata::model {

std::vector<DirectFile> open_direct(const std::vector<const File*>& files) {
  std::vector<DirectFile> opened;
  for (const File* file : files) {
    File direct = file->open_direct();
    if (!direct.is_open()) continue;
    const int64_t bytes = direct.size();
    opened.push_back({file, std::move(direct), bytes});
  }
  return opened;
}

size_t index_of(const std::vector<DirectFile>& files, const File& file) {
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const DirectFile& one) { return one.file == &file; });
  return static_cast<size_t>(found - files.begin());
}

io::RingOptions ring_options(const std::vector<DirectFile>& files, size_t depth) {
  io::RingOptions options;
  options.depth = static_cast<uint32_t>(depth);
  options.alignment = kPageBytes;
  options.deadline_s = BlockingCall::deadline_s();
  for (const DirectFile& one : files)
    options.files.push_back({.fd = one.direct.descriptor(), .name = one.file->path()});
  return options;
}

Error no_answer(const char* what, const File& file) {
  return Error(ErrorCode::kDeadline,
               fmt::format("{}: {}: no answer for {} s (the drive or the file server hangs: see "
                           "dmesg)",
                           what, file.path(), BlockingCall::deadline_s()));
}

int64_t page_of(int64_t offset) {
  return offset / kPageBytes * kPageBytes;
}

}  // namespace strata::model
