// SPDX-License-Identifier: Apache-2.0
// Units that a caller of the library declares and computes by itself.
#include <cmath>
#include <numeric>

#include "tests/session/session_fixture.h"

namespace strata::test {
namespace {

// Two units of one tensor each; the gradient is the weight, so that it shrinks. Their weights,
// gradients and moments take 4.8 MB.
class DeclaredUnits : public SessionTest {
 protected:
  static constexpr int64_t kSize = 150016;  // a multiple of 64

  Session declare(const UnitOptions& unit_options) {
    return Session::declare({{"first", {{"a", {2, kSize / 2}}}}, {"second", {{"b", {kSize}}}}},
                            unit_options, sinks());
  }
  static void fill(int unit, int tensor, int64_t first, std::span<float> values) {
    EXPECT_EQ(tensor, 0);
    EXPECT_LE(first + std::ssize(values), kSize);
    std::iota(values.begin(), values.end(), static_cast<float>(first + 1000 * unit));
  }
  // The gradients' norm, and the first weights that the step saw.
  static std::pair<double, float> step(Session& session) {
    session.begin(0.5);
    float seen = 0;
    for (int unit = 0; unit < 2; ++unit) {
      seen += static_cast<const float*>(session.acquire(unit, UnitPass::kForward).weights)[1];
      session.release();
    }
    for (int unit = 2; unit-- > 0;) {
      const UnitUse use = session.acquire(unit, UnitPass::kBackward);
      EXPECT_TRUE(use.overwrites);
      std::copy_n(static_cast<const float*>(use.weights), kSize, use.gradient);
      session.release();
    }
    return {session.end().grad_norm, seen};
  }
};

TEST_F(DeclaredUnits, AreUpdatedAndGoOnExactlyFromACheckpoint) {
  Session session = declare({.clip = 1.0});
  EXPECT_TRUE(session.plan().fits);
  session.load(fill);
  const auto first = step(session);
  EXPECT_EQ(first.second, 1.0f + 1001.0f);
  const std::string saved = session.save(directory_ + "/checkpoints");
  const auto second = step(session);
  EXPECT_LT(second.first, first.first);
  const auto third = step(session);

  Session other = declare({.memory_bytes = 17 << 18, .nvme = {directory_ + "/nvme"}, .clip = 1.0});
  EXPECT_NE(other.plan().text.find("\nnvme "), std::string::npos) << other.plan().text;
  other.load(saved);
  EXPECT_EQ(step(other), second);
  EXPECT_EQ(step(other), third);
}

TEST_F(DeclaredUnits, HaveWeightsOf16BitsWhereThatIsAsked) {
  Session session = declare({.bf16 = true});
  session.load(fill);
  session.begin(0.1);
  const auto* weights =
      static_cast<const uint16_t*>(session.acquire(0, UnitPass::kForward).weights);
  EXPECT_EQ(weights[1], 0x3f80);  // 1.0
  EXPECT_EQ(weights[2], 0x4000);  // 2.0
}

TEST_F(DeclaredUnits, APassOutOfTurnNamesBoth) {
  Session session = declare({});
  session.load(fill);
  session.begin(0.1);
  std::string text;
  EXPECT_EQ(code_of([&] { session.acquire(1, UnitPass::kForward); }, &text), ErrorCode::kConfig);
  EXPECT_NE(text.find("forward of second"), std::string::npos) << text;
  EXPECT_NE(text.find("forward of first"), std::string::npos) << text;
}

TEST_F(DeclaredUnits, OptionsOutOfRangeAreRefused) {
  for (const UnitOptions& wrong :
       {UnitOptions{.memory_bytes = -1}, UnitOptions{.micro_batches = 0},
        UnitOptions{.micro_batches = (1 << 20) + 1}, UnitOptions{.threads = 4097},
        UnitOptions{.beta1 = 1}, UnitOptions{.beta2 = -0.1}, UnitOptions{.beta2 = NAN},
        UnitOptions{.eps = 0}, UnitOptions{.weight_decay = -1}, UnitOptions{.clip = INFINITY}}) {
    EXPECT_EQ(code_of([&] { declare(wrong); }), ErrorCode::kConfig);
  }
}

TEST_F(DeclaredUnits, ShapesThatCannotBeAreRefusedByName) {
  const int64_t large = int64_t{1} << 32;
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{4, 0}, {-4}, {large, large}, {large, large, 0}}) {
    std::string text;
    EXPECT_EQ(code_of(
                  [&] {
                    Session::declare({{"layer", {{"weight", shape}}}}, {});
                  },
                  &text),
              ErrorCode::kConfig);
    EXPECT_NE(text.find("layer: weight: "), std::string::npos) << text;
  }
}

TEST_F(DeclaredUnits, CallsOutOfTurnChangeNothing) {
  Session plain = declare({});
  Session session = declare({});
  plain.load(fill);
  session.load(fill);
  const auto expect_usage = [](const std::function<void()>& call) {
    EXPECT_EQ(code_of(call), ErrorCode::kUsage);
  };
  expect_usage([&] { session.release(); });
  expect_usage([&] { session.acquire(0, UnitPass::kForward); });
  expect_usage([&] { session.end(); });
  EXPECT_EQ(code_of([&] { session.begin(NAN); }), ErrorCode::kConfig);
  session.begin(0.5);
  expect_usage([&] { session.begin(0.5); });
  expect_usage([&] { session.release(); });
  session.acquire(0, UnitPass::kForward);
  expect_usage([&] { session.end(); });
  session.release();
  expect_usage([&] { session.release(); });
  expect_usage([&] { session.save(directory_ + "/checkpoints"); });
  EXPECT_FALSE(fs::exists(directory_ + "/checkpoints"));
  session.acquire(1, UnitPass::kForward);
  session.release();
  for (int unit = 2; unit-- > 0;) {
    expect_usage([&] { session.end(); });
    const UnitUse use = session.acquire(unit, UnitPass::kBackward);
    std::copy_n(static_cast<const float*>(use.weights), kSize, use.gradient);
    session.release();
  }
  expect_usage([&] { session.acquire(0, UnitPass::kForward); });
  EXPECT_EQ(session.end().grad_norm, step(plain).first);
  EXPECT_EQ(step(session), step(plain));
}

}  // namespace
}  // namespace strata::test
