// SPDX-License-Identifier: Apache-2.0
// The machine probe gives figures that a planner accepts, leaves nothing behind but its cache file,
// and rates follow from a profile, a recipe and limits as they should.
#include "engine/exec/machine_probe.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/exec/compute_probe.h"
#include "engine/exec/rates_of.h"
#include "engine/model/architecture.h"
#include "tests/support/temporary_directory.h"

namespace strata::exec {
namespace {

namespace fs = std::filesystem;

class MachineProbe : public testing::Test {
 protected:
  MachineProbe() {
    options_.backend = &kernels::cpu_backend();
    options_.threads = 2;
    options_.seconds = 0.1;
    options_.memory_bytes = ProbeOptions::kLeastBytes;
    options_.drive.directories = {directory_.path()};
    options_.drive.file_bytes = 32 * kMiB;
    options_.drive.allow_memory_filesystem = true;
  }

  const test::TemporaryDirectory directory_;
  ProbeOptions options_;
};

TEST_F(MachineProbe, EveryFigureIsMeasuredAndACacheThatCannotBeWrittenIsNoError) {
  bool measured = false;
  const config::Machine machine = machine_for("/proc/nonexistent", "1", options_, &measured);
  EXPECT_TRUE(measured);
  const config::Machine back = config::parse_machine(config::to_toml(machine), "probe");
  EXPECT_EQ(config::to_json(back), config::to_json(machine));
  for (const double figure :
       {machine.matmul_flops_per_s, machine.matmul_bf16_flops_per_s, machine.step_flops_per_s,
        machine.step_bf16_flops_per_s, machine.memory_bytes_per_s, machine.optimizer_bytes_per_s,
        machine.checksum_bytes_per_s, machine.nvme_read_bytes_per_s, machine.nvme_write_bytes_per_s,
        machine.nvme_mixed_bytes_per_s}) {
    EXPECT_GT(figure, 1e6);
    EXPECT_LT(figure, 1e16);
  }
  EXPECT_GT(machine.op_overhead_s, 1e-8);
  EXPECT_LT(machine.op_overhead_s, 0.1);
  EXPECT_GT(machine.nvme_latency_s, 1e-6);
  EXPECT_GE(machine.overlap_speed, 0.25);
  EXPECT_LE(machine.overlap_speed, 1.0);
  EXPECT_TRUE(fs::is_empty(directory_.path()));
}

TEST_F(MachineProbe, AProfileIsMeasuredOnceAndAgainWhenItCannotBeRead) {
  const std::string cache = directory_ / "made/for-it";
  options_.device = config::DeviceKind::kEmulated;
  options_.drive.directories.clear();
  bool measured = false;
  const config::Machine first = machine_for(cache, "1", options_, &measured);
  EXPECT_TRUE(measured);
  EXPECT_GT(first.upload_bytes_per_s, 1e6);
  EXPECT_EQ(first.nvme_read_bytes_per_s, 0);
  const config::Machine again = machine_for(cache, "1", options_, &measured);
  EXPECT_FALSE(measured);
  EXPECT_EQ(again.matmul_flops_per_s, first.matmul_flops_per_s);
  EXPECT_EQ(again.overlap_speed, first.overlap_speed);
  int files = 0;
  for (const auto& file : fs::directory_iterator(cache)) {
    std::ofstream(file.path()) << "cores = \"many\"\n";
    ++files;
  }
  EXPECT_EQ(files, 1);
  machine_for(cache, "1", options_, &measured);
  EXPECT_TRUE(measured);
}

TEST_F(MachineProbe, ADirectoryThatIsNotThereIsAnError) {
  options_.drive.directories = {"/proc/nonexistent"};
  EXPECT_THROW(probe_machine(options_), Error);
}

// Figures of drives that somebody else measured replace a probe's, and are what is found later, by
// whatever name the directory is given.
TEST_F(MachineProbe, FiguresMeasuredElsewhereAreKept) {
  const std::string cache = directory_.path() + "/cache";
  fs::create_directories(cache);
  const DriveFigures drive = {.read_bytes_per_s = 3e9,
                              .write_bytes_per_s = 2e9,
                              .mixed_bytes_per_s = 2.5e9,
                              .latency_s = 1e-3,
                              .cpu_s_per_byte = 1e-6,
                              .weights = {}};
  std::string path;
  const config::Machine first = machine_with(cache, "1", options_, drive, &path);
  EXPECT_TRUE(fs::exists(path));
  EXPECT_EQ(first.nvme_read_bytes_per_s, 3e9);
  EXPECT_GT(first.matmul_flops_per_s, 0);
  EXPECT_NEAR(first.cpu_s_per_io_gb, 1000 - 1e9 / first.checksum_bytes_per_s, 1e-6);
  options_.drive.directories = {directory_.path() + "/cache/.."};
  bool measured = true;
  const config::Machine later = machine_for(cache, "1", options_, &measured);
  EXPECT_FALSE(measured);
  EXPECT_EQ(later.nvme_mixed_bytes_per_s, 2.5e9);
  EXPECT_EQ(later.matmul_flops_per_s, first.matmul_flops_per_s);
  machine_with("/proc/nonexistent", "1", options_, drive, &path);
  EXPECT_EQ(path, "");
}

// A drive that has room for little is measured with little, and is refused below that.
TEST_F(MachineProbe, LittleRoomIsEnoughToMeasure) {
  for (const auto& [size, enough] : {std::pair{"24m", true}, {"17m", true}, {"12m", false}}) {
    if (mount("tmpfs", directory_.path().c_str(), "tmpfs", 0,
              (std::string("size=") + size).c_str()) != 0)
      GTEST_SKIP() << "mounting is not permitted";
    try {
      EXPECT_GT(probe_drive(options_.drive, 0.1).mixed_bytes_per_s, 0) << size;
      EXPECT_TRUE(enough) << size;
    } catch (const Error& error) {
      EXPECT_FALSE(enough) << size << ": " << error.what();
      EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
      EXPECT_NE(std::string(error.what()).find("needs 16 MiB"), std::string::npos) << error.what();
    }
    umount2(directory_.path().c_str(), MNT_DETACH);
  }
}

// A product of oneDNN on a thread with handlers loses what it keeps below the stack pointer.
TEST_F(MachineProbe, SignalsOfTheCallerDoNotReachTheProducts) {
  struct sigaction counts = {}, before = {};
  static std::atomic<int> handled;
  counts.sa_handler = [](int) { ++handled; };
  sigaction(SIGALRM, &counts, &before);
  const itimerval often = {{0, 500}, {0, 500}}, never = {};
  setitimer(ITIMER_REAL, &often, nullptr);
  options_.seconds = 2;
  EXPECT_GT(probe_machine(options_).matmul_flops_per_s, 1e6);
  setitimer(ITIMER_REAL, &never, nullptr);
  sigaction(SIGALRM, &before, nullptr);
  EXPECT_GT(handled, 100);
}

TEST_F(MachineProbe, TheModelsOwnRateIsOfTheOrderOfTheProducts) {
  model::Architecture small;
  small.model_type = "llama";
  small.hidden = 256;
  small.layers = 3;
  small.heads = 4;
  small.kv_heads = 2;
  small.head_size = 64;
  small.feed_forward = 512;
  small.vocabulary = 1000;
  small.max_position = 64;
  small.tied = true;
  const model::ModelSpec spec = model::build_spec(small);
  for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
    const auto host = kernels::make_host_device(kernels::cpu_backend(), 2);
    const double rate =
        probe_compute({.spec = spec, .recipe = recipe, .shape = {1, 64}, .device = *host});
    EXPECT_GT(rate, 1e8);
    EXPECT_LT(rate, 1e14);
  }
}

config::Machine plain_machine() {
  config::Machine machine;
  machine.cores = 4;
  machine.matmul_flops_per_s = 100e9;
  machine.step_flops_per_s = 80e9;
  machine.step_bf16_flops_per_s = 60e9;
  machine.memory_bytes_per_s = 20e9;
  machine.optimizer_bytes_per_s = 18e9;
  machine.nvme_read_bytes_per_s = 2e9;
  machine.nvme_write_bytes_per_s = 1e9;
  machine.nvme_mixed_bytes_per_s = 1.5e9;
  machine.checksum_bytes_per_s = 10e9;
  machine.cpu_s_per_io_gb = 0.05;
  machine.overlap_speed = 0.6;
  machine.upload_bytes_per_s = 9e9;
  machine.op_overhead_s = 3e-5;
  return machine;
}

TEST(RatesOf, WithoutALimitTheDriveIsAsMeasured) {
  const plan::Rates rates = rates_of(plain_machine(), {.threads = 4});
  EXPECT_EQ(rates.read_bytes_per_s, 2e9);
  EXPECT_EQ(rates.write_bytes_per_s, 1e9);
  EXPECT_EQ(rates.mixed_bytes_per_s, 1.5e9);
  EXPECT_FALSE(rates.half_duplex);
  EXPECT_DOUBLE_EQ(rates.io_cpu_s_per_byte, 0.05e-9 + 0.1e-9);
  EXPECT_EQ(rates.matmul_flops_per_s, 80e9);
  EXPECT_EQ(rates.memory_bytes_per_s, 18e9);
  EXPECT_EQ(rates.shared_speed, 0.6);
  EXPECT_EQ(rates.cores, 4);
  EXPECT_EQ(rates.upload_bytes_per_s, 0) << "one tier";
}

TEST(RatesOf, ALimitCapsTheDriveAndSaysHowItTakesTurns) {
  RateContext context;
  context.limits = {.read_bytes_per_s = 5e8, .write_bytes_per_s = 3e9, .half_duplex = true};
  plan::Rates rates = rates_of(plain_machine(), context);
  EXPECT_EQ(rates.read_bytes_per_s, 5e8);
  EXPECT_EQ(rates.write_bytes_per_s, 1e9) << "the drive is slower than the limit";
  EXPECT_TRUE(rates.half_duplex);
  context.limits = {.read_bytes_per_s = 1e8, .write_bytes_per_s = 1e8};
  rates = rates_of(plain_machine(), context);
  EXPECT_FALSE(rates.half_duplex);
  EXPECT_EQ(rates.mixed_bytes_per_s, 2e8);
}

TEST(RatesOf, TheModelsOwnRateComesFirstAndTheBestIsTheProducts) {
  RateContext context;
  context.recipe = Recipe::kBf16;
  EXPECT_EQ(rates_of(plain_machine(), context).matmul_flops_per_s, 60e9);
  context.compute_flops_per_s = 42e9;
  context.discrete = true;
  EXPECT_EQ(rates_of(plain_machine(), context).matmul_flops_per_s, 42e9);
  EXPECT_EQ(rates_of(plain_machine(), context).upload_bytes_per_s, 9e9);
  EXPECT_EQ(rates_of(plain_machine(), context).compute_overhead_s, 3e-5);
  const plan::Rates best = best_rates_of(plain_machine(), context);
  EXPECT_EQ(best.matmul_flops_per_s, 100e9);
  EXPECT_EQ(best.memory_bytes_per_s, 20e9);
  EXPECT_EQ(best.io_cpu_s_per_byte, 0);
}

TEST(RatesOf, ExchangesBetweenMachinesTakeTheNetworksTimes) {
  config::Machine machine = plain_machine();
  machine.network_bytes_per_s = 1e8;
  machine.network_latency_s = 2e-4;
  machine.op_overhead_s = 3e-5;
  const plan::Rates two = rates_of(machine, {.ranks = 2, .nodes = 2});
  EXPECT_EQ(two.comm_between_bytes_per_s, 5e7) << "two ranks share it";
  EXPECT_EQ(two.exchange_s({.within = 0, .between = 100}, false), 100 / 5e7 + 2e-4);
  EXPECT_EQ(two.exchange_s({.within = 100, .between = 0}, false),
            100 / two.comm_within_bytes_per_s + 3e-5);
  const plan::Rates processes = rates_of(machine, {.ranks = 2, .nodes = 2, .processes = true});
  EXPECT_EQ(processes.comm_within_bytes_per_s, two.comm_within_bytes_per_s / 2)
      << "each byte is copied twice";
  machine.network_latency_s = 0;
  EXPECT_EQ(rates_of(machine, {.ranks = 1, .nodes = 2}).exchange_s({.between = 100}, false),
            100 / 1e8 + 3e-5);
  EXPECT_EQ(rates_of(machine, {.ranks = 2}).comm_between_bytes_per_s, 0) << "one machine";
}

TEST(RatesOf, PeersExchangeWithoutTheLinkAndTheHost) {
  config::Machine machine = plain_machine();
  machine.device = config::DeviceKind::kCuda;
  machine.device_count = 2;
  machine.memory_bytes_per_s = 80e9;
  machine.upload_bytes_per_s = 9e9;
  machine.download_bytes_per_s = 7e9;
  machine.network_bytes_per_s = 40e9;
  const RateContext through_host = {.ranks = 2, .nodes = 2, .discrete = true};
  RateContext peers = through_host;
  peers.peers = true;
  const auto expect = [&](const RateContext& context, bool device, double bytes_per_s) {
    const plan::Rates rates = rates_of(machine, context);
    EXPECT_DOUBLE_EQ(rates.exchange_s(100.0, 0.0, device), 100 / bytes_per_s);
  };
  expect(through_host, true, 7e9);
  expect(peers, true, 7e9);    // no figure: as the slower of the link
  expect(peers, false, 20e9);  // two ranks, and each byte is copied once
  machine.peer_bytes_per_s = 300e9;
  expect(peers, true, 300e9);
  expect(through_host, true, 7e9);
  EXPECT_EQ(rates_of(machine, peers).comm_between_bytes_per_s, 20e9);
  EXPECT_EQ(rates_of(machine, through_host).comm_between_bytes_per_s, 7e9);
}

TEST(RatesOf, ADeviceHasItsOwnTimeOfAnOp) {
  config::Machine machine = plain_machine();
  machine.device_op_overhead_s = 5e-6;
  EXPECT_EQ(rates_of(machine, {.discrete = true}).compute_overhead_s, 5e-6);
  EXPECT_EQ(rates_of(machine, {.discrete = true}).optimizer_overhead_s, 3e-5);
  EXPECT_EQ(rates_of(machine, {}).compute_overhead_s, 3e-5);
  machine.device = config::DeviceKind::kUnified;
  EXPECT_EQ(rates_of(machine, {}).compute_overhead_s, 5e-6);
}

}  // namespace
}  // namespace strata::exec
