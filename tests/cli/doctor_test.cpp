// SPDX-License-Identifier: Apache-2.0
// What `strata doctor` says about machines that are made up: each trouble gets a line with its fix.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "bindings/cli/doctor_command.h"
#include "bindings/cli/doctor_machine.h"
#include "engine/config/json.h"
#include "tests/support/temporary_directory.h"

namespace strata::cli {
namespace {

using Status = DoctorLine::Status;

class DoctorTest : public testing::Test {
 protected:
  DoctorTest() { write("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n"); }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + file).parent_path());
    std::ofstream(root_ + file) << text;
  }

  DoctorLine line_of(const std::string& subject) const {
    const auto environment = [this](const char* name) {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    };
    const auto lines = check_machine(environment, root_);
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const DoctorLine& line) {
      return line.subject == subject;
    });
    if (found == lines.end()) return {Status::kFail, "no line", subject, ""};
    return *found;
  }

  const strata::test::TemporaryDirectory home_;
  const std::string root_ = home_.path();
  std::map<std::string, std::string> variables_;
};

TEST_F(DoctorTest, ASoundMachineHasNoFailure) {
  EXPECT_EQ(doctor_exit_code(check_machine([](const char*) { return nullptr; }, root_)), 0);
  EXPECT_EQ(line_of("memory").text, "8 GiB of 16 GiB available");
  EXPECT_EQ(line_of("cgroup memory limit").text, "none");
  EXPECT_EQ(line_of("io_uring switch").status, Status::kOk);
  EXPECT_EQ(line_of("ranks from the environment").text, "none: one process");
}

TEST_F(DoctorTest, ABlockedIoUringIsAWarningWithTheSwitch) {
  write("/proc/sys/kernel/io_uring_disabled", "2\n");
  const DoctorLine line = line_of("io_uring switch");
  EXPECT_EQ(line.status, Status::kWarn);
  EXPECT_EQ(line.fix, "sysctl kernel.io_uring_disabled=0");
}

TEST_F(DoctorTest, ASlowClockAndNoHugePagesAreWarnings) {
  write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
  write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_EQ(line_of("clock").status, Status::kWarn);
  EXPECT_EQ(line_of("transparent huge pages").status, Status::kWarn);
  write("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n");
  write("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
  EXPECT_EQ(line_of("clock").status, Status::kOk);
  EXPECT_EQ(line_of("transparent huge pages").status, Status::kOk);
}

// What is registered for I/O counts against it, unless the user may lock anything.
TEST_F(DoctorTest, ALimitOnLockedMemoryIsAWarningUnlessItDoesNotBind) {
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit finite = {std::min<rlim_t>(before.rlim_max, 1 << 30), before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &finite), 0);
  const DoctorLine bound = line_of("memory lock limit");
  write("/proc/self/status", "Name:\tstrata\nCapEff:\t0000000000004000\n");
  const DoctorLine free = line_of("memory lock limit");
  setrlimit(RLIMIT_MEMLOCK, &before);
  EXPECT_EQ(bound.status, Status::kWarn) << bound.text;
  EXPECT_NE(bound.fix.find("ulimit -l unlimited"), std::string::npos) << bound.fix;
  EXPECT_EQ(free.status, Status::kOk) << free.text;
}

TEST_F(DoctorTest, ASmallCgroupIsAWarningNamingIt) {
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/memory.max", "134217728\n");
  write("/sys/fs/cgroup/job/memory.current", "0\n");
  EXPECT_NE(line_of("cgroup memory limit").text.find("128 MiB"), std::string::npos);
  EXPECT_EQ(line_of("usable memory").status, Status::kWarn);
}

TEST_F(DoctorTest, RanksMustBeWholeAndInTheWorld) {
  variables_ = {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};
  DoctorLine line = line_of("ranks from the environment");
  EXPECT_EQ(line.status, Status::kOk);
  EXPECT_EQ(line.text, "torchrun: rank 1 of 4, 2 on a machine");
  variables_["RANK"] = "4";
  line = line_of("ranks from the environment");
  EXPECT_EQ(line.status, Status::kFail);
  EXPECT_EQ(line.text, "environment: RANK: 4: torchrun has the ranks 0 to 3");
  EXPECT_EQ(line.fix, "unset its variables, if it did not start this process");
  // An allocation and a batch script are one process each.
  variables_ = {{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}};
  EXPECT_EQ(line_of("ranks from the environment").text, "none: one process");
}

TEST(DoctorReport, HasFixesAndASum) {
  const std::vector<DoctorLine> lines = {{Status::kOk, "clock", "tsc", ""},
                                         {Status::kWarn, "memory lock limit", "8 MiB", "raise it"},
                                         {Status::kFail, "scratch", "read-only", "remount"}};
  EXPECT_EQ(doctor_table(lines),
            "OK    clock                        tsc\n"
            "WARN  memory lock limit            8 MiB\n"
            "                                   fix: raise it\n"
            "FAIL  scratch                      read-only\n"
            "                                   fix: remount\n"
            "\n1 OK, 1 WARN, 1 FAIL\n");
  EXPECT_EQ(doctor_exit_code(lines), 2);
  const auto json = config::Json::parse(doctor_json(lines), "doctor");
  ASSERT_EQ(json.items().size(), 3u);
  EXPECT_EQ(json.items()[1].find("fix")->string(), "raise it");
}

}  // namespace
}  // namespace strata::cli
