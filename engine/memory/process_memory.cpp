// SPDX-License-Identifier: Apache-2.0
#include "engine/memory/process_memory.h"

#include <malloc.h>

#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>

#include "engine/base/units.h"

namespace strata::memory {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// The number in the line "KEY:   123 kB"; 0 when the line is missing.
int64_t field_of(const std::string& text, const std::string& key) {
  const size_t at = text.find("\n" + key + ":");
  if (at == std::string::npos) return 0;
  return std::strtoll(text.c_str() + at + key.size() + 2, nullptr, 10);
}

// The first line of a mapping in smaps.
struct Mapping {
  uint64_t start = 0;
  uint64_t end = 0;
  char access[5] = {};
  bool anonymous = false;
  bool main_stack = false;
};

bool parse_mapping(const std::string& line, Mapping& mapping) {
  uint64_t inode = 0;
  int name_at = 0;
  const int count = std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " %4s %*s %*s %" SCNu64 " %n",
                                &mapping.start, &mapping.end, mapping.access, &inode, &name_at);
  if (count < 4) return false;
  const std::string_view name =
      static_cast<size_t>(name_at) < line.size() ? std::string_view(line).substr(name_at) : "";
  mapping.anonymous = inode == 0 && name.empty();
  mapping.main_stack = name == "[stack]";
  return true;
}

}  // namespace

int64_t stack_bytes_of(const std::string& smaps) {
  constexpr uint64_t kGuardBytesMax = 64 * kKiB;
  int64_t total_bytes = 0;
  Mapping before;
  Mapping current;
  bool is_stack = false;
  std::istringstream lines(smaps);
  for (std::string line; std::getline(lines, line);) {
    Mapping next;
    if (parse_mapping(line, next)) {
      before = current;
      current = next;
      const bool behind_guard = std::string_view(before.access) == "---p" && before.anonymous &&
                                before.end == current.start &&
                                before.end - before.start <= kGuardBytesMax;
      const bool writable = std::string_view(current.access).starts_with("rw");
      is_stack = current.main_stack || (writable && current.anonymous && behind_guard);
    } else if (is_stack && line.starts_with("Rss:")) {
      total_bytes += std::strtoll(line.c_str() + 4, nullptr, 10) * kKiB;
    }
  }
  return total_bytes;
}

ProcessMemory read_process_memory() {
  ProcessMemory memory;
  const std::string status = read_text("/proc/self/status");
  memory.resident_bytes = field_of(status, "VmRSS") * kKiB;
  memory.resident_peak_bytes = field_of(status, "VmHWM") * kKiB;
  memory.file_bytes = (field_of(status, "RssFile") + field_of(status, "RssShmem")) * kKiB;
  const struct mallinfo2 heap = mallinfo2();
  memory.heap_bytes = static_cast<int64_t>(heap.arena + heap.hblkhd);
  memory.stack_bytes = stack_bytes_of(read_text("/proc/self/smaps"));
  return memory;
}

}  // namespace strata::memory
