// SPDX-License-Identifier: Apache-2.0
// The budget that a refusal names is enough, a MiB less is not, and plan and train name the same.
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

class Budgets : public Mistakes {
 protected:
  void SetUp() override {
    make_model(sandbox_, "good", {.layers = 3, .hidden = 128});
    const std::string text = read_text(STRATA_TEXT);
    while (long_text_.size() < size_t{4} << 20) long_text_ += text;
    write_text(sandbox_ / "long.txt", long_text_);
  }

  int run(Arguments arguments, int64_t budget_mib, std::string* said = nullptr) {
    arguments.insert(arguments.end(), {"--host-memory", std::to_string(budget_mib) + "MiB"});
    Process process(arguments, {.directory = sandbox_.path()});
    const int code = process.wait();
    if (said != nullptr) *said = process.err();
    std::filesystem::remove_all(sandbox_ / "out");
    return code;
  }

  // The numbers that the refusal of a tiny budget names: the least, and the least with NVMe where
  // that is said apart.
  std::vector<int64_t> named(const Arguments& arguments) {
    std::string said;
    EXPECT_EQ(run(arguments, 1, &said), kDoesNotFit) << said;
    std::vector<int64_t> numbers;
    const std::string flag = "--host-memory ";
    size_t at = said.find("the least that fits is");
    if (at == std::string::npos) ADD_FAILURE() << said;
    while (at != std::string::npos && (at = said.find(flag, at)) != std::string::npos) {
      at += flag.size();
      numbers.push_back(std::atoll(said.c_str() + at));
    }
    return numbers;
  }

  void expect_least(const Arguments& arguments, int64_t mib) {
    std::string said;
    EXPECT_EQ(run(arguments, mib, &said), 0) << mib << " MiB: " << said;
    EXPECT_EQ(run(arguments, mib - 1, &said), kDoesNotFit) << mib - 1 << " MiB: " << said;
  }

  Arguments plan(const Arguments& more) {
    Arguments all = {"plan",         "--model",           "good", "--machine",
                     STRATA_MACHINE, "--sequence-length", "32"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string long_text_;
};

TEST_F(Budgets, InMemory) {
  const std::vector<int64_t> least = named(train({}));
  ASSERT_EQ(least.size(), 2u);
  EXPECT_GT(least[0], least[1]);
  expect_least(train({}), least[0]);
  expect_least(train({"--offload", "nvme", "--nvme", "."}), least[1]);
  // A plan for a machine has its drives, unless they are not to be used.
  EXPECT_EQ(named(plan({})), std::vector{least[1]});
  EXPECT_EQ(named(plan({"--offload", "host"})), least) << "with --offload, and without";
  EXPECT_EQ(named(plan({"--offload", "host", "--data", STRATA_TEXT})), least);
  expect_least(plan({"--offload", "host"}), least[0]);
}

TEST_F(Budgets, WithDrives) {
  const Arguments nvme = {"--nvme", "."};
  const std::vector<int64_t> least = named(train(nvme));
  ASSERT_EQ(least.size(), 1u);
  expect_least(train(nvme), least[0]);
  EXPECT_EQ(named(plan(nvme)), least);
}

TEST_F(Budgets, WithDrivesThatAreForbidden) {
  const Arguments forbidden = {"--nvme", ".", "--offload", "host"};
  std::string said;
  EXPECT_EQ(run(train(forbidden), 1, &said), kDoesNotFit);
  EXPECT_EQ(said.find("--nvme", said.find("error:")), std::string::npos) << said;
  EXPECT_EQ(said.find("with NVMe"), std::string::npos) << said;
  const std::vector<int64_t> least = named(train(forbidden));
  ASSERT_EQ(least.size(), 2u);
  expect_least(train(forbidden), least[0]);
  expect_least(train({"--nvme", "."}), least[1]);
}

// What the device has room for need not be in host memory.
TEST_F(Budgets, OfARunOnADevice) {
  const int64_t in_memory = named(train({}))[0];
  const Arguments small = {"--device", "emulated", "--device-memory", "16MiB"};
  for (const Arguments& device : {small, Arguments{"--device", "emulated"}}) {
    const std::vector<int64_t> least = named(train(device));
    ASSERT_GE(least.size(), 1u);
    EXPECT_LT(least[0], in_memory);
    expect_least(train(device), least[0]);
    Arguments in_memory_alone = device;
    in_memory_alone.insert(in_memory_alone.end(), {"--offload", "host"});
    EXPECT_EQ(named(plan(in_memory_alone))[0], least[0]);
  }
}

// Both budgets are named where both are too small.
TEST_F(Budgets, OfARunWhoseDeviceIsTooSmallToo) {
  std::string said;
  EXPECT_EQ(run(plan({"--device", "emulated", "--device-memory", "64KiB"}), 1, &said), kDoesNotFit);
  const size_t at = said.find(" --device-memory ", said.find("the least that fits is"));
  ASSERT_NE(at, std::string::npos) << said;
  const int64_t device = std::atoll(said.c_str() + at + 17);
  const int64_t host =
      std::atoll(said.c_str() + said.find("--host-memory ", said.find("the least that fits")) + 14);
  const auto with = [&](int64_t device_mib) {
    return plan({"--device", "emulated", "--device-memory", std::to_string(device_mib) + "MiB"});
  };
  expect_least(with(device), host);
  EXPECT_EQ(run(with(device - 1), host), kDoesNotFit);
}

TEST_F(Budgets, TokensOfLongTextCount) {
  const Arguments data = {"--data", "long.txt"};
  const std::vector<int64_t> least = named(train(data));
  ASSERT_EQ(least.size(), 2u);
  EXPECT_GT(least[0], named(train({}))[0]);
  expect_least(train(data), least[0]);
  EXPECT_EQ(named(plan(data)), std::vector{least[1]});
  expect_least(plan(data), least[1]);
}

}  // namespace
}  // namespace strata::cli::test
