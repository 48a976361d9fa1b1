// SPDX-License-Identifier: Apache-2.0
// Machine profiles: what is written reads back, what cannot be planned with is refused with every
// cause, and the profiles shipped as examples load.
#include "engine/config/machine.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <set>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json.h"

namespace strata::config {
namespace {

constexpr const char* kSmall =
    "cores = 2\nhost_bytes = \"2GiB\"\nmatmul_flops_per_s = 1e11\nmemory_bytes_per_s = \"20GB\"\n"
    "optimizer_bytes_per_s = 1e10\n";

std::string machine_error(const std::string& toml) {
  try {
    parse_machine(toml, "m.toml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "no error";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(Machine, FiguresMayHaveSuffixes) {
  const Machine machine = parse_machine(kSmall, "m.toml");
  EXPECT_EQ(machine.cores, 2);
  EXPECT_EQ(machine.host_bytes, 2 * kGiB);
  EXPECT_EQ(machine.memory_bytes_per_s, 20e9);
  EXPECT_EQ(machine.device, DeviceKind::kCpu);
  EXPECT_EQ(machine.device_count, 1);
}

TEST(Machine, WhatIsWrittenReadsBack) {
  Machine machine = parse_machine(kSmall, "m.toml");
  machine.name = "a \"quoted\"\nname";
  machine.device = DeviceKind::kEmulated;
  machine.device_bytes = 12345678901;
  machine.upload_bytes_per_s = 1.0 / 3.0;
  machine.download_bytes_per_s = 1e9 / 7;
  machine.cpu_s_per_io_gb = 0.1;
  machine.nvme_weights = {0.75, 1.0 / 3.0};
  const Machine back = parse_machine(to_toml(machine), "back.toml");
  EXPECT_EQ(to_json(back), to_json(machine));
  EXPECT_EQ(back.name, machine.name);
  EXPECT_EQ(back.device_bytes, 12345678901);
  EXPECT_EQ(back.nvme_weights, machine.nvme_weights);
  EXPECT_EQ(back.upload_bytes_per_s, 1.0 / 3.0);
  EXPECT_EQ(Json::parse(to_json(machine), "json").find("device")->string(), "emulated");
}

TEST(Machine, WhatCannotBePlannedWithIsRefused) {
  const std::string base = kSmall;
  EXPECT_HAS(machine_error("cores = 2"), "matmul_flops_per_s must be given");
  EXPECT_HAS(machine_error(base + "nvme_weights = [1, 0]\n"), "nvme_weights \"0\" is not above 0");
  EXPECT_HAS(machine_error(base + "nvme_weights = [1, \"x\"]\n"), "is not above 0");
  EXPECT_HAS(machine_error("cores = 2"), "host_bytes must be given");
  EXPECT_HAS(machine_error(base + "nvme_raed_bytes_per_s = 1"),
             "(did you mean nvme_read_bytes_per_s?)");
  EXPECT_HAS(machine_error(base + "nvme_read_bytes_per_s = 1"), "must be given together");
  EXPECT_HAS(machine_error(base + "nvme_read_bytes_per_s = nan"),
             "m.toml:6:1: nvme_read_bytes_per_s");
  EXPECT_HAS(machine_error(base + "network_bytes_per_s = -1"), "is not a number of 0 or more");
  EXPECT_HAS(machine_error(base + "network_bytes_per_s = inf"), "is not a number of 0 or more");
  EXPECT_HAS(machine_error(base + "device_bytes = 1048577.5"), "is not a whole number");
  EXPECT_HAS(machine_error(base + "device_bytes = 80"), "has no unit: \"80GiB\" or \"80GB\"?");
  EXPECT_HAS(machine_error(base + "device_bytes = 1e19"), "is not a whole number");
  EXPECT_HAS(machine_error(base + "device = \"tpu\""), "is not cpu, emulated, cuda or unified");
  EXPECT_HAS(machine_error(base + "device = \"cuda\""),
             "device_bytes must be given for this device");
  EXPECT_HAS(machine_error(base + "device_count = 0"), "device_count must be above 0");
  EXPECT_HAS(machine_error(base + "network_bytes_per_s = [1, 2]"), "is not a single value");
  EXPECT_HAS(machine_error(base + "[rates]\na = 1"), "is not a single value");
  EXPECT_HAS(machine_error(base + "[rates]\n"), "m.toml:6:1: the table rates is not supported");
}

TEST(Machine, TheWorstOfTwoIsTheWorstOfEachFigure) {
  Machine a = parse_machine(kSmall, "m.toml");
  Machine b = a;
  a.cores = 8;
  a.cpu_s_per_io_gb = 0.5;
  b.memory_bytes_per_s = 1e9;
  b.nvme_latency_s = 1.0;
  const Machine worst = worst_of(a, b);
  EXPECT_EQ(worst.cores, 2);
  EXPECT_EQ(worst.memory_bytes_per_s, 1e9);
  EXPECT_EQ(worst.cpu_s_per_io_gb, 0.5);
  EXPECT_EQ(worst.nvme_latency_s, 1.0);
  EXPECT_EQ(worst.matmul_flops_per_s, 1e11);
}

TEST(Machine, CachesOfDifferentKeysHaveDifferentFiles) {
  const MachineKey key = {.host = "a/../b", .nvme = "/x", .version = "0.1"};
  const std::string path = machine_cache_path("/c", key);
  EXPECT_TRUE(path.starts_with("/c/machine-a----b-0-1-")) << path;
  MachineKey other = key;
  other.nvme = "/y";
  EXPECT_NE(machine_cache_path("/c", other), path);
  other = key;
  other.host = "a-..-b";
  EXPECT_NE(machine_cache_path("/c", other), path);
}

TEST(Machine, AWrittenFileReadsBack) {
  const std::string path = testing::TempDir() + "machine_test.toml";
  const Machine machine = parse_machine(kSmall, "m.toml");
  write_machine(path, machine);
  EXPECT_EQ(to_json(read_machine(path)), to_json(machine));
  std::filesystem::remove(path);
  EXPECT_THROW(write_machine("/proc/nonexistent/machine.toml", machine), Error);
}

TEST(Machine, ExamplesLoad) {
  const std::filesystem::path folder =

      std::filesystem::path(STRATA_TEST_DATA).parent_path().parent_path() / "examples/machines";
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const Machine machine = read_machine(file.path().string());
    EXPECT_EQ(machine.name, file.path().stem().string());
    EXPECT_GT(machine.nvme_mixed_bytes_per_s, 0);
    names.insert(file.path().filename().string());
  }
  EXPECT_EQ(names, std::set<std::string>(std::begin(kExampleMachines), std::end(kExampleMachines)));
  try {
    read_machine("rtx9999");
    FAIL() << "there is no such profile";
  } catch (const Error& error) {
    for (const std::string& name : names) EXPECT_HAS(std::string(error.what()), name);
  }
}

}  // namespace
}  // namespace strata::config
