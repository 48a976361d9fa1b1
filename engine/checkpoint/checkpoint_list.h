// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::checkpoint {

// Names in a directory of checkpoints: step-000123, followed by a mark and 16 hexadecimal digits
// while the checkpoint is being written or removed, or when it was set aside.
inline constexpr std::string_view kPrefix = "step-";
inline constexpr std::string_view kPartialMark = ".tmp-";
inline constexpr std::string_view kAsideMark = ".aside-";
enum class Kind : uint8_t { kWhole, kPartial, kAside };

struct Entry {
  std::string path;
  int64_t step = 0;
};

bool is_link(const std::string& path);

// The checkpoints of one kind, by descending step. Empty when the directory does not exist. A whole
// checkpoint may be a link, which is only read. Throws Error (kIo), also where a link leads to
// nothing, because its drive may not be mounted.
std::vector<Entry> list(const std::string& directory, Kind kind);

}  // namespace strata::checkpoint
