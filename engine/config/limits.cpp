// SPDX-License-Identifier: Apache-2.0
#include "engine/config/limits.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>

namespace strata::config {
namespace {

// The names of a cgroup's files, by version of the interface.
struct CgroupFiles {
  const char* limit;
  const char* used;
  const char* reclaimable;  // key in memory.stat
};
constexpr CgroupFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                   "total_inactive_file"};
constexpr CgroupFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

// Version 1 reports the largest page-aligned number when there is no limit.
constexpr int64_t kNoLimitFrom = int64_t{1} << 60;

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<int64_t> parse_number(std::string_view text) {
  const size_t start = text.find_first_not_of(" \t");
  if (start == std::string_view::npos) return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data() + start, text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  return number;
}

// The number after `key` at the start of a line.
std::optional<int64_t> value_after(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > key.size() && line.starts_with(key) &&
        (line[key.size()] == ' ' || line[key.size()] == ':')) {
      return parse_number(std::string_view(line).substr(key.size() + 1));
    }
  }
  return std::nullopt;
}

// The path of this process in the hierarchy of a controller; "" selects version 2.
std::optional<std::string> cgroup_of(const std::string& table, const std::string& controller) {
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool match = controller.empty() ? names == ",,"
                                          : names.find("," + controller + ",") != std::string::npos;
    if (match) return line.substr(second + 1);
  }
  return std::nullopt;
}

void take_level(const std::string& directory, const CgroupFiles& files, Limits& limits) {
  const auto limit = parse_number(read_text(directory + "/" + files.limit));
  const auto used = parse_number(read_text(directory + "/" + files.used));
  if (!limit || *limit >= kNoLimitFrom || !used) return;
  const int64_t reclaimable =
      value_after(read_text(directory + "/memory.stat"), files.reclaimable).value_or(0);
  const int64_t free_bytes =
      std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - reclaimable));
  if (limits.cgroup_free_bytes && *limits.cgroup_free_bytes <= free_bytes) return;
  limits.cgroup_limit_bytes = *limit;
  limits.cgroup_free_bytes = free_bytes;
  limits.cgroup_path = directory;
}

double quota_of(const std::string& directory) {
  std::istringstream version2(read_text(directory + "/cpu.max"));
  double quota = 0;
  double period = 0;
  if (version2 >> quota >> period && quota > 0 && period > 0) return quota / period;
  const auto quota_us = parse_number(read_text(directory + "/cpu.cfs_quota_us"));
  const auto period_us = parse_number(read_text(directory + "/cpu.cfs_period_us"));
  if (!quota_us || !period_us || *quota_us <= 0 || *period_us <= 0) return 0;
  return static_cast<double>(*quota_us) / static_cast<double>(*period_us);
}

// Calls visit(directory) for a cgroup and all above it. In a container, the path from /proc may not
// exist below the mount; then the mount's root is the container's own cgroup.
template <typename Visit>
void walk_up(const std::string& mount, std::string path, const Visit& visit) {
  while (true) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    visit(mount + path);
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return;
    path.resize(slash);
  }
}

void read_cgroups(const std::string& root, Limits& limits) {
  const std::string table = read_text(root + "/proc/self/cgroup");
  const std::string mount = root + "/sys/fs/cgroup";
  if (const auto path = cgroup_of(table, "memory")) {
    walk_up(mount + "/memory", *path,
            [&](const std::string& directory) { take_level(directory, kVersion1, limits); });
  }
  double quota = INFINITY;
  const auto take_quota = [&](const std::string& directory) {
    const double cores = quota_of(directory);
    if (cores > 0) quota = std::min(quota, cores);
  };
  if (const auto path = cgroup_of(table, "cpu")) walk_up(mount + "/cpu", *path, take_quota);
  if (const auto path = cgroup_of(table, "")) {
    walk_up(mount, *path, [&](const std::string& directory) {
      take_level(directory, kVersion2, limits);
      take_quota(directory);
    });
  }
  if (quota < static_cast<double>(limits.cores)) {
    limits.cores = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(quota)));
  }
}

std::optional<int64_t> resource_limit(__rlimit_resource resource) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, INT64_MAX));
}

int64_t affinity_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails when the machine has more processors than the set can hold.
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return std::max<int64_t>(1, sysconf(_SC_NPROCESSORS_ONLN));
}

struct Bound {
  int64_t bytes;
  const char* reason;
};

Bound least_bound(const Limits& limits) {
  Bound least = {limits.memory_available_bytes, "memory that the machine has available"};
  const auto take = [&](const std::optional<int64_t>& bytes, const char* reason) {
    if (bytes && *bytes < least.bytes) least = {*bytes, reason};
  };
  take(limits.cgroup_free_bytes, "cgroup memory limit");
  take(limits.address_space_bytes, "RLIMIT_AS");
  return least;
}

}  // namespace

int64_t Limits::usable_bytes() const {
  return least_bound(*this).bytes;
}
std::string Limits::usable_reason() const {
  return least_bound(*this).reason;
}

Limits read_limits(const std::string& root) {
  Limits limits;
  limits.cores = affinity_cores();
  const std::string memory = read_text(root + "/proc/meminfo");
  constexpr int64_t kKilo = 1024;
  limits.memory_total_bytes = value_after(memory, "MemTotal").value_or(0) * kKilo;
  limits.memory_available_bytes = value_after(memory, "MemAvailable").value_or(0) * kKilo;
  read_cgroups(root, limits);
  limits.memlock_bytes = resource_limit(RLIMIT_MEMLOCK);
  limits.address_space_bytes = resource_limit(RLIMIT_AS);
  limits.file_bytes = resource_limit(RLIMIT_FSIZE);
  return limits;
}

}  // namespace strata::config
