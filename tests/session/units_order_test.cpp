// SPDX-License-Identifier: Apache-2.0
// Units that a caller uses in an order of its own: shared ones, uses that are left out, and
// micro-batches without a backward.
#include <cmath>

#include "tests/session/session_fixture.h"

namespace strata::test {
namespace {

constexpr int kSize = 100 * 1000;  // not a multiple of 64

// "shared" is used with "head" again, and "middle" twice.
const std::vector<Unit> kOrderedUnits = {
    {"shared", {{"w", {kSize}}}}, {"middle", {{"w", {2, kSize}}}}, {"head", {{"w", {7}}}}};
const std::vector<UsedUnits> kOrder = {{{0}, UnitPass::kForward},     {{1}, UnitPass::kForward},
                                       {{1}, UnitPass::kForward},     {{2, 0}, UnitPass::kForward},
                                       {{2, 0}, UnitPass::kBackward}, {{1}, UnitPass::kBackward},
                                       {{1}, UnitPass::kBackward},    {{0}, UnitPass::kBackward}};

class UnitsInOrder : public SessionTest {
 protected:
  Session open(const UnitOptions& options, bool may_leave_out = false) {
    Session session = Session::declare(kOrderedUnits, options, sinks());
    session.order(kOrder, may_leave_out);
    return session;
  }
  UnitOptions small() const {
    return {
        .memory_bytes = 11 << 19, .nvme = {directory_ + "/nvme"}, .micro_batches = 2, .clip = 1};
  }
  static void fill(int unit, int, int64_t first, std::span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = static_cast<double>(first) + static_cast<double>(i);
      values[i] = static_cast<float>(std::sin(at + unit));
    }
  }

  // The gradient of (sum of squares) / 2 is the weight, of every unit of the use.
  static void add_gradients(Session& session, const std::vector<int>& units) {
    for (const int unit : units) {
      const UnitUse use = session.used(unit);
      const auto* weights = static_cast<const float*>(use.weights);
      const int count = unit == 0 ? kSize : unit == 1 ? 2 * kSize : 7;
      for (int i = 0; i < count; ++i) {
        use.gradient[i] = use.overwrites ? weights[i] : use.gradient[i] + weights[i];
      }
    }
  }
  template <typename Wants>
  static StepResult step(Session& session, const Wants& wants) {
    session.begin(0.01);
    for (int m = 0; m < 2; ++m) {
      for (int i = 0; i < static_cast<int>(kOrder.size()); ++i) {
        if (!wants(m, i)) continue;
        session.acquire(kOrder[i].units.front(), kOrder[i].pass);
        if (kOrder[i].pass == UnitPass::kBackward) add_gradients(session, kOrder[i].units);
        session.release();
      }
      session.end_micro_batch();
    }
    return session.end();
  }
  static bool all(int, int) { return true; }
};

TEST_F(UnitsInOrder, HaveTheSameBitsWithinLittleMemory) {
  Session resident = open({.micro_batches = 2, .clip = 1});
  Session offloaded = open(small());
  ASSERT_TRUE(offloaded.plan().fits) << offloaded.plan().text;
  resident.load(fill);
  offloaded.load(fill);
  double expected = 0;  // "shared" and "middle" have two backward uses in each of two micro-batches
  for (int unit = 0; unit < 3; ++unit) {
    const int uses = unit == 2 ? 2 : 4, count = unit == 0 ? kSize : unit == 1 ? 2 * kSize : 7;
    for (int i = 0; i < count; ++i) {
      const double g = uses * static_cast<float>(std::sin(static_cast<double>(i) + unit));
      expected += g * g;
    }
  }
  for (int i = 1; i <= 3; ++i) {
    const StepResult result = step(resident, all);
    if (i == 1) {
      EXPECT_NEAR(result.grad_norm, std::sqrt(expected), 1e-5 * std::sqrt(expected));
    }
    EXPECT_EQ(step(offloaded, all).grad_norm, result.grad_norm);
  }
}

TEST_F(UnitsInOrder, UsesThatAreLeftOutAddNothing) {
  const auto few = [](int m, int i) { return m == 0 ? i != 2 && i != 5 : i < 5; };
  Session resident = open({.micro_batches = 2, .clip = 1}, true);
  Session offloaded = open(small(), true);
  resident.load(fill);
  offloaded.load(fill);
  for (int i = 0; i < 3; ++i) {
    const StepResult result = step(resident, few);
    EXPECT_EQ(result.left_out, 5);
    EXPECT_EQ(step(offloaded, few).grad_norm, result.grad_norm);
  }
  const auto none = [](int, int) { return false; };
  EXPECT_EQ(step(resident, none).grad_norm, 0.0);
}

TEST_F(UnitsInOrder, AnOrderIsKeptUnlessUsesMayBeLeftOut) {
  Session session = open({.micro_batches = 2});
  session.load(fill);
  EXPECT_EQ(code_of([&] { session.order(kOrder); }), ErrorCode::kUsage);
  session.begin(0.01);
  EXPECT_EQ(code_of([&] { session.acquire(1, UnitPass::kForward); }), ErrorCode::kConfig);
  EXPECT_EQ(code_of([&] { session.end_micro_batch(); }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([&] { session.used(0); }), ErrorCode::kUsage);
  session.acquire(0, UnitPass::kForward);
  EXPECT_EQ(code_of([&] { session.used(1); }), ErrorCode::kUsage);
  EXPECT_EQ(code_of([&] { session.end_micro_batch(); }), ErrorCode::kUsage);
  session.release();
  EXPECT_EQ(code_of([&] { session.end(); }), ErrorCode::kUsage);
  session.discard();
  EXPECT_EQ(step(session, all).step, 1);
}

TEST_F(UnitsInOrder, WrongOrdersAreRefused) {
  Session session = Session::declare(kOrderedUnits, {}, sinks());
  EXPECT_EQ(code_of([&] { session.order({{{0}, UnitPass::kBackward}}); }), ErrorCode::kConfig);
  EXPECT_EQ(code_of([&] { session.order({{{3}, UnitPass::kBackward}}); }), ErrorCode::kConfig);
  EXPECT_EQ(code_of([&] {
              session.order({{{0, 1, 2}, UnitPass::kBackward, -1.0}});
            }),
            ErrorCode::kConfig);
  session.order({{{0, 1, 2}, UnitPass::kBackward}});
  EXPECT_TRUE(session.plan().fits);
}

TEST_F(UnitsInOrder, AForwardAloneSeesTheUpdatedWeights) {
  Session session = open(small());
  session.load(fill);
  const auto first_weight = [&] {
    session.begin_forward();
    float weight = 0;
    for (const UsedUnits& use : kOrder) {
      if (use.pass == UnitPass::kBackward) continue;
      weight = static_cast<const float*>(
          session.acquire(use.units.front(), UnitPass::kForward).weights)[1];
      session.release();
    }
    session.end_forward();
    return weight;
  };
  const float before = first_weight();
  EXPECT_EQ(before, static_cast<float>(std::sin(1.0 + 2)));  // of the head
  step(session, all);
  EXPECT_NEAR(first_weight(), before - std::copysign(0.01f, before), 1e-4);
  EXPECT_EQ(first_weight(), first_weight());
  EXPECT_EQ(step(session, all).step, 2);
}

TEST_F(UnitsInOrder, SecondsOfUsesAreMeasuredAndPlannedWith) {
  Session session = open({.micro_batches = 2});
  session.load(fill);
  step(session, all);
  const std::vector<double> seconds = session.use_seconds();
  ASSERT_EQ(seconds.size(), kOrder.size());
  for (const double each : seconds) EXPECT_GT(each, 0);
  std::vector<UsedUnits> timed = kOrder;
  for (UsedUnits& use : timed) use.seconds = 0.5;
  Session slow = Session::declare(kOrderedUnits, {.micro_batches = 2}, sinks());
  slow.order(timed);
  EXPECT_NE(slow.plan().text, session.plan().text);
}

}  // namespace
}  // namespace strata::test
