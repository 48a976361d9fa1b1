// SPDX-License-Identifier: Apache-2.0
// Declared units of a caller that computes on a device with memory of its own: the state of one
// that computes on the host, with budgets that hold and settings that are refused by name.
#include <cmath>

#include "tests/session/session_fixture.h"

namespace strata::test {
namespace {

constexpr int64_t kDeviceUnitSizes[] = {150016, 4099, 96000, 150016, 64, 96000, 120000, 33333};
constexpr int kDeviceUnits = 8;
constexpr const char* kOnDevice = ", \"device\": \"emulated\", \"device_memory\": \"3MiB\"";

using DevicePlanes = std::array<std::vector<float>, 3 * kDeviceUnits>;

class UnitDevice : public SessionTest {
 protected:
  Session open(const std::string& more) {
    const std::string options =
        R"({"recipe": "fp32", "threads": 1, "accumulate": 2, "clip": 1)" + more + "}";
    std::vector<Unit> units;
    for (const int64_t size : kDeviceUnitSizes) {
      const std::string name(1, static_cast<char>('a' + units.size()));
      units.push_back({.name = "unit " + name, .tensors = {{name, {size}}}});
    }
    return Session::open_units(units, options, sinks());
  }
  std::string on_drives() {
    return ", \"host_memory\": \"4608KiB\", \"nvme\": [\"" + directory_ + "/nvme\"]";
  }

  static void fill(int unit, int, int64_t first, std::span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(first + static_cast<int64_t>(i) + 1000 * unit));
    }
  }

  // The gradient of a unit depends on its weights. All goes through the caller's own memory.
  static void add_gradient(Session& session, int unit, const UnitUse& use) {
    const auto count = static_cast<size_t>(kDeviceUnitSizes[unit]);
    const int64_t bytes = kDeviceUnitSizes[unit] * 4;
    std::vector<float> weights(count), gradient(count);
    session.copy(weights.data(), use.weights, bytes);
    if (!use.overwrites) session.copy(gradient.data(), use.gradient, bytes);
    for (size_t i = 0; i < count; ++i) gradient[i] += 0.5f * weights[i] + 0.25f;
    session.copy(use.gradient, gradient.data(), bytes);
  }
  static void pass(Session& session, bool zeroes) {
    for (int unit = 0; unit < kDeviceUnits; ++unit) {
      session.acquire(unit, UnitPass::kForward);
      session.release();
    }
    for (int unit = kDeviceUnits; unit-- > 0;) {
      const UnitUse use = session.acquire(unit, UnitPass::kBackward, {.zeroes = zeroes});
      EXPECT_FALSE(zeroes && use.overwrites);
      add_gradient(session, unit, use);
      session.release();
    }
  }
  static StepResult step(Session& session, bool zeroes = false) {
    session.begin();
    for (int m = 0; m < 2; ++m) pass(session, zeroes);
    return session.end({.lr = 0.01});
  }
  static DevicePlanes read(Session& session) {
    DevicePlanes planes;
    for (const StatePlane plane :
         {StatePlane::kWeights, StatePlane::kExpAvg, StatePlane::kExpAvgSq}) {
      session.read(plane, [&](int unit, int, int64_t first, std::span<const float> values) {
        auto& whole = planes[static_cast<size_t>(static_cast<int>(plane) * kDeviceUnits + unit)];
        whole.resize(static_cast<size_t>(kDeviceUnitSizes[unit]), NAN);
        std::ranges::copy(values, whole.begin() + first);
      });
    }
    return planes;
  }
  DevicePlanes state_after(int steps, const std::string& more, bool zeroes = false) {
    Session session = open(more);
    session.load(fill);
    for (int i = 0; i < steps; ++i) EXPECT_TRUE(step(session, zeroes).applied);
    return read(session);
  }
  void expect_refused(const std::string& more, const std::string& words) {
    try {
      Session session = open(more);
      (void)session.plan();
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  }
};

TEST_F(UnitDevice, HasTheStateOfTheHost) {
  const DevicePlanes host = state_after(3, "");
  EXPECT_EQ(state_after(3, "", true), host);
  for (const std::string& place : {std::string(), on_drives()}) {
    EXPECT_EQ(state_after(3, kOnDevice + place, false), host) << place;
    EXPECT_EQ(state_after(3, kOnDevice + place, true), host) << place;
  }
}

TEST_F(UnitDevice, KeepsToBothBudgets) {
  Session session = open(kOnDevice + on_drives());
  session.load(fill);
  step(session);
  const UnitStatistics counts = session.statistics();
  EXPECT_GT(counts.device_bytes, kDeviceUnitSizes[0] * 4);
  EXPECT_LE(counts.device_bytes, 3 << 20);
  EXPECT_LE(counts.host_bytes, 9 << 19);
  EXPECT_GT(counts.nvme_bytes_read, 0);
}

// With room for everything, the state lives on the device and nothing else moves.
TEST_F(UnitDevice, UpdatesAreDoneWhereTheStateLies) {
  const DevicePlanes host = state_after(2, "");
  EXPECT_EQ(state_after(2, R"(, "device": "emulated", "device_memory": "64MiB")"), host);
}

TEST_F(UnitDevice, GoesOnFromACheckpointOfTheHost) {
  const DevicePlanes host = state_after(3, "");
  Session first = open("");
  first.load(fill);
  step(first);
  const std::string path = first.save(directory_ + "/checkpoints");
  Session second = open(kOnDevice + on_drives());
  second.load(path);
  step(second);
  step(second, true);
  EXPECT_EQ(read(second), host);
}

TEST_F(UnitDevice, DiscardsAndForwardsLeaveTheStateAlone) {
  const DevicePlanes host = state_after(1, "");
  Session session = open(kOnDevice + on_drives());
  session.load(fill);
  step(session);
  session.begin();
  (void)session.acquire(0, UnitPass::kForward);
  session.discard();
  session.begin_forward();
  for (int unit = 0; unit < kDeviceUnits; ++unit) {
    const UnitUse use = session.acquire(unit, UnitPass::kForward);
    float value = NAN;
    session.copy(&value, use.weights, sizeof(value));
    EXPECT_EQ(value, host[static_cast<size_t>(unit)].front());
    session.release();
  }
  session.end_forward();
  EXPECT_EQ(read(session), host);
}

TEST_F(UnitDevice, ACopyBesideTheUnitIsAnErrorThatLosesNothing) {
  Session session = open(kOnDevice);
  session.load(fill);
  session.begin();
  const UnitUse use = session.acquire(0, UnitPass::kForward);
  float value = 0;
  EXPECT_THROW(session.copy(&value, &value, 4), Error);
  EXPECT_THROW(session.copy(const_cast<void*>(use.weights), &value, 4), Error);
  session.copy(&value, use.weights, 4);
  session.release();
  EXPECT_THROW(session.copy(&value, use.weights, 4), Error);
  session.discard();
  EXPECT_TRUE(step(session).applied);
}

TEST_F(UnitDevice, SettingsThatCannotBeAreRefusedByName) {
  expect_refused(R"(, "device": "emulated")", "device-memory: not given");
  expect_refused(R"(, "device": "auto")", "give cpu, cuda or cuda:N");
  expect_refused(R"(, "device_memory": "1GiB")", "--device-memory has no effect");
  expect_refused(R"(, "device": "cuda", "device_memory": "1GiB", "ranks": 2)", "ranks");
  Session session = open(R"(, "device": "emulated", "device_memory": "64KiB")");
  const PlanText plan = session.plan();
  EXPECT_FALSE(plan.fits);
  EXPECT_NE(plan.text.find("device"), std::string::npos) << plan.text;
}

}  // namespace
}  // namespace strata::test
