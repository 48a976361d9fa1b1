// SPDX-License-Identifier: Apache-2.0
// The machine probe gives figures that a plan can be made from, leaves nothing behind, and is
// cached.
#include "engine/exec/machine_probe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/units.h"

namespace strata::exec {
namespace {

class MachineProbe : public testing::Test {
 protected:
  // Scratch refuses memory file systems, which the usual temporary directory may be.
  MachineProbe() : folder_(STRATA_BINARY_DIR "/machine_probe." + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_ + "/nvme");
  }
  ~MachineProbe() override { std::filesystem::remove_all(folder_); }

  ProbeOptions quick() const {
    return {.threads = 2, .nvme = {folder_ + "/nvme"}, .seconds = 0.1, .bytes_max = 16 * kMiB};
  }

  const std::string folder_;
};

TEST_F(MachineProbe, MeasuresWhatAPlanNeeds) {
  const config::Machine machine = probe_machine(quick());
  // parse_machine refuses what a planner cannot use.
  EXPECT_NO_THROW(config::parse_machine(config::to_toml(machine), "probe"));
  EXPECT_GT(machine.nvme_read_bytes_per_s, 1e6);
  EXPECT_GT(machine.nvme_write_bytes_per_s, 1e6);
  EXPECT_GT(machine.nvme_mixed_bytes_per_s, 1e6);
  EXPECT_GT(machine.nvme_latency_s, 0);
  EXPECT_LT(machine.nvme_latency_s, 10);
  EXPECT_GT(machine.cpu_s_per_io_gb, 0);
  EXPECT_GT(machine.memory_bytes_per_s, 1e8);
  EXPECT_GT(machine.checksum_bytes_per_s, 1e8);
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/nvme") ||
              std::distance(std::filesystem::directory_iterator(folder_ + "/nvme"), {}) == 1)
      << "at most the lock file stays";
}

TEST_F(MachineProbe, WithoutDrivesTheirFiguresAreZero) {
  ProbeOptions options = quick();
  options.nvme.clear();
  options.emulated_device_bytes = 64 * kMiB;
  const config::Machine machine = probe_machine(options);
  EXPECT_EQ(machine.nvme_read_bytes_per_s, 0);
  EXPECT_EQ(machine.device, config::DeviceKind::kEmulated);
  EXPECT_EQ(machine.device_bytes, 64 * kMiB);
  EXPECT_GT(machine.upload_bytes_per_s, 1e8);
}

TEST_F(MachineProbe, ADirectoryThatCannotBeUsedIsAnError) {
  ProbeOptions options = quick();
  options.nvme = {folder_ + "/missing"};
  EXPECT_THROW(probe_machine(options), Error);
}

TEST_F(MachineProbe, TheCacheIsUsedAndABrokenOneIsReplaced) {
  const std::string cache = folder_ + "/cache";
  const config::Machine first = cached_machine(quick(), cache, "1");
  const config::Machine second = cached_machine(quick(), cache, "1");
  EXPECT_EQ(second.matmul_flops_per_s, first.matmul_flops_per_s);
  EXPECT_EQ(second.nvme_read_bytes_per_s, first.nvme_read_bytes_per_s);
  const std::filesystem::path file = std::filesystem::directory_iterator(cache)->path();
  std::ofstream(file) << "cores = ";
  const config::Machine third = cached_machine(quick(), cache, "1");
  EXPECT_GT(third.matmul_flops_per_s, 0);
  EXPECT_EQ(config::read_machine(file.string()).matmul_flops_per_s, third.matmul_flops_per_s);
}

}  // namespace
}  // namespace strata::exec
