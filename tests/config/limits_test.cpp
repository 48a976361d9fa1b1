// SPDX-License-Identifier: Apache-2.0
// Limits of the system, read from made-up /proc and /sys trees of both cgroup versions, and from
// the real ones.
#include "engine/config/limits.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/base/units.h"
#include "tests/support/temporary_directory.h"

namespace strata::config {
namespace {

// A directory that stands in for /.
class FakeRoot {
 public:
  FakeRoot() {
    write("/proc/meminfo",
          "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n");
  }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + file).parent_path());
    std::ofstream(path_ + file) << text;
  }
  const std::string& path() const { return path_; }

 private:
  const strata::test::TemporaryDirectory home_;
  const std::string path_ = home_.path();
};

TEST(Limits, WithoutCgroupsTheMachineIsTheLimit) {
  const FakeRoot root;
  const Limits limits = read_limits(root.path());
  EXPECT_EQ(limits.memory_total_bytes, 16 * kGiB);
  EXPECT_EQ(limits.memory_available_bytes, 8 * kGiB);
  EXPECT_FALSE(limits.cgroup_limit_bytes.has_value());
  EXPECT_EQ(limits.usable_bytes(), 8 * kGiB);
  EXPECT_EQ(limits.usable_reason(), "memory that the machine has available");
  cpu_set_t allowed;
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  EXPECT_EQ(limits.cores, CPU_COUNT(&allowed));
}

TEST(Limits, Version1TakesTheTightestLevelAndCountsPageCacheAsFree) {
  const FakeRoot root;
  const std::string memory = "/sys/fs/cgroup/memory";
  root.write("/proc/self/cgroup", "4:memory:/job/step\n1:cpu,cpuacct:/job\n0::/\n");
  root.write(memory + "/memory.limit_in_bytes", "9223372036854771712\n");
  root.write(memory + "/memory.usage_in_bytes", "100\n");
  root.write(memory + "/job/memory.limit_in_bytes", "1610612736\n");
  root.write(memory + "/job/memory.usage_in_bytes", "1073741824\n");
  root.write(memory + "/job/memory.stat", "inactive_file 1\ntotal_inactive_file 536870912\n");
  root.write(memory + "/job/step/memory.limit_in_bytes", "4294967296\n");
  root.write(memory + "/job/step/memory.usage_in_bytes", "1073741824\n");
  const Limits limits = read_limits(root.path());
  EXPECT_EQ(limits.cgroup_limit_bytes, 1536 * kMiB);
  EXPECT_EQ(limits.cgroup_free_bytes, kGiB);
  EXPECT_TRUE(limits.cgroup_path.ends_with("/memory/job")) << limits.cgroup_path;
  EXPECT_EQ(limits.usable_bytes(), kGiB);
  EXPECT_EQ(limits.usable_reason(), "cgroup memory limit");
}

TEST(Limits, Version2ReadsMaxAndQuota) {
  const FakeRoot root;
  root.write("/proc/self/cgroup", "0::/pod/main\n");
  root.write("/sys/fs/cgroup/pod/memory.max", "2147483648\n");
  root.write("/sys/fs/cgroup/pod/memory.current", "1048576\n");
  root.write("/sys/fs/cgroup/pod/main/memory.max", "max\n");
  root.write("/sys/fs/cgroup/pod/main/memory.current", "1048576\n");
  root.write("/sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
  const Limits limits = read_limits(root.path());
  EXPECT_EQ(limits.cgroup_limit_bytes, 2 * kGiB);
  EXPECT_EQ(limits.cgroup_free_bytes, 2 * kGiB - kMiB);
  EXPECT_EQ(limits.cores, 1);
}

TEST(Limits, AQuotaOfMaxIsNone) {
  const FakeRoot root;
  root.write("/proc/self/cgroup", "0::/\n");
  root.write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(read_limits(root.path()).cores, read_limits().cores);
}

TEST(Limits, InAContainerTheMountIsTheGroup) {
  const FakeRoot root;
  root.write("/proc/self/cgroup", "4:memory:/docker/0123\n");
  root.write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");
  root.write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2147483648\n");
  const Limits limits = read_limits(root.path());
  EXPECT_EQ(limits.cgroup_limit_bytes, kGiB);
  EXPECT_EQ(limits.cgroup_free_bytes, 0);
}

TEST(Limits, TheRealSystemHasMemoryAndCores) {
  const Limits limits = read_limits();
  EXPECT_GE(limits.cores, 1);
  EXPECT_LE(limits.cores, sysconf(_SC_NPROCESSORS_ONLN));
  EXPECT_GT(limits.memory_total_bytes, 0);
  EXPECT_GT(limits.usable_bytes(), 0);
  EXPECT_LE(limits.usable_bytes(), limits.memory_total_bytes);
}

}  // namespace
}  // namespace strata::config
