// SPDX-License-Identifier: Apache-2.0
// What a caller may do with the state of declared units beyond plain steps: settings that are known
// only at the end of a step, steps that are discarded or have no finite gradient, frozen units,
// planes that are read and given, and options as JSON.
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>

#ifdef __SSE__
#include <xmmintrin.h>
#endif

#include "tests/session/session_fixture.h"

namespace strata::test {
namespace {

constexpr int kUnits = 3;
constexpr int64_t kNumel[kUnits] = {100, 150016, 149996};

class UnitState : public SessionTest {
 protected:
  static std::vector<Unit> units(int frozen = -1) {
    std::vector<Unit> units = {{"in", {{"in.weight", {10, 9}}, {"in.bias", {10}}}},
                               {"mid", {{"mid.weight", {2, kNumel[1] / 2}}}},
                               {"out", {{"out.weight", {kNumel[2]}}}}};
    if (frozen >= 0) units[static_cast<size_t>(frozen)].frozen = true;
    return units;
  }
  Session open(const std::string& more = "", int frozen = -1) {
    return Session::open_units(units(frozen), "{\"recipe\": \"fp32\", \"threads\": 1" + more + "}",
                               sinks());
  }
  std::string on_drive() {
    return ", \"host_memory\": \"4352KiB\", \"nvme\": " + quoted(directory_ + "/nvme");
  }
  static void fill(int unit, int tensor, int64_t first, std::span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(static_cast<float>(first + static_cast<int64_t>(i)) * 0.7f +
                           static_cast<float>(unit + 5 * tensor));
    }
  }
  static void fill_positive(int unit, int tensor, int64_t first, std::span<float> values) {
    fill(unit, tensor, first, values);
    for (float& value : values) value *= value;
  }
  // The gradient depends on the weights and on `salt`. A frozen unit has none.
  static void pass(Session& session, int unit, UnitPass which, float salt) {
    const UnitUse use = session.acquire(unit, which);
    if (which == UnitPass::kBackward && use.gradient != nullptr) {
      const auto* weights = static_cast<const float*>(use.weights);
      for (int64_t tensor = 0; tensor < (unit == 0 ? 2 : 1); ++tensor) {
        const int64_t begin = session.place(unit, static_cast<int>(tensor)).offset;
        const int64_t count = unit > 0 ? kNumel[unit] : tensor == 0 ? 90 : 10;
        for (int64_t i = begin; i < begin + count; ++i) {
          const float own = weights[i] * salt + 0.25f;
          use.gradient[i] = use.overwrites ? own : use.gradient[i] + own;
        }
      }
    }
    session.release();
  }
  static void passes(Session& session, float salt = 1) {
    for (int unit = 0; unit < kUnits; ++unit) pass(session, unit, UnitPass::kForward, salt);
    for (int unit = kUnits; unit-- > 0;) pass(session, unit, UnitPass::kBackward, salt);
  }
  static StepResult step(Session& session, const UpdateSettings& settings = {.lr = 0.01},
                         float salt = 1) {
    session.begin();
    passes(session, salt);
    return session.end(settings);
  }
  // A step whose gradients are what `fill_gradient` writes over each tensor's.
  template <typename Fill>
  static void step_with(Session& session, const Fill& fill_gradient) {
    session.begin();
    for (int unit = 0; unit < kUnits; ++unit) {
      session.acquire(unit, UnitPass::kForward);
      session.release();
    }
    for (int unit = kUnits; unit-- > 0;) {
      const UnitUse use = session.acquire(unit, UnitPass::kBackward);
      fill_gradient(0, std::span(use.gradient, unit == 0 ? 90 : kNumel[unit]));
      if (unit == 0) fill_gradient(1, std::span(use.gradient + session.place(0, 1).offset, 10));
      session.release();
    }
    session.end({.lr = 0.01});
  }
  using Values = std::map<std::pair<int, int>, std::vector<float>>;
  static Values read(Session& session, StatePlane plane) {
    Values all;
    session.read(plane, [&](int unit, int tensor, int64_t first, std::span<const float> values) {
      std::vector<float>& to = all[{unit, tensor}];
      EXPECT_EQ(std::ssize(to), first);
      to.insert(to.end(), values.begin(), values.end());
    });
    return all;
  }
  static std::array<Values, 3> state(Session& session) {
    return {read(session, StatePlane::kWeights), read(session, StatePlane::kExpAvg),
            read(session, StatePlane::kExpAvgSq)};
  }
};

TEST_F(UnitState, SettingsOfAStepMayComeAtItsEnd) {
  Session early = open(), late = open();
  early.load(fill);
  late.load(fill);
  early.begin(0.01);
  passes(early);
  const double norm = early.end().grad_norm;
  EXPECT_EQ(step(late, {.lr = 0.01}).grad_norm, norm);
  EXPECT_EQ(state(early), state(late));

  const Values before = read(late, StatePlane::kWeights);
  step(late, {.lr = 0});
  EXPECT_EQ(read(late, StatePlane::kWeights), before);
  EXPECT_EQ(code_of([&] { step(late, {.lr = NAN}); }), ErrorCode::kConfig);
  EXPECT_EQ(code_of([&] { late.end({.lr = 1, .clip = -1}); }), ErrorCode::kConfig);
  EXPECT_EQ(code_of([&] { late.end(); }), ErrorCode::kConfig);  // begun without a learning rate
  EXPECT_TRUE(late.end({.lr = 0}).applied);
}

// A group's weight decay is for vectors too, and a frozen tensor of a trained unit stays.
TEST_F(UnitState, GroupsOfTensorsHaveSettingsOfTheirOwn) {
  for (const std::string& more : {std::string(), on_drive()}) {
    std::vector<Unit> declared = units();
    declared[0].tensors[0].frozen = true;
    declared[1].tensors[0].group = 2;
    declared[2].tensors[0].group = 1;
    Session session = Session::open_units(
        declared, "{\"recipe\": \"fp32\", \"threads\": 1" + more + "}", sinks());
    session.load([](int, int, int64_t, std::span<float> values) {
      std::fill(values.begin(), values.end(), 1.0f);
    });
    EXPECT_TRUE(session.place(0, 0).frozen);
    const auto end = [&](const UpdateSettings& settings) {
      session.begin();
      for (int unit = 0; unit < kUnits; ++unit) {
        session.acquire(unit, UnitPass::kForward), session.release();
      }
      for (int unit = kUnits; unit-- > 0;) {
        const UnitUse use = session.acquire(unit, UnitPass::kBackward);
        const TensorPlace place = session.place(unit, unit == 0 ? 1 : 0);
        std::fill_n(use.gradient + place.offset, place.count, 1.0f);
        session.release();
      }
      return session.end(settings);
    };
    // Gradients are equal in both steps, so that an update is the learning rate.
    end({.lr = 0.5, .groups = {{.lr = 0.25, .weight_decay = 1}, {.lr = 0.125}}});
    end({.lr = 0.5, .groups = {{.lr = 0, .weight_decay = 1}, {.lr = 0.125}}});
    const Values seen = read(session, StatePlane::kWeights);
    EXPECT_NEAR(seen.at({0, 1}).front(), 0.0f, 1e-5);
    EXPECT_NEAR(seen.at({1, 0}).front(), 0.75f, 1e-5);
    EXPECT_NEAR(seen.at({2, 0}).back(), 0.5f, 1e-5);
    EXPECT_EQ(code_of([&] { end({.lr = 1, .groups = {{.lr = 1}}}); }), ErrorCode::kConfig);
    session.discard();
    EXPECT_EQ(code_of([&] {
                end({.lr = 1, .groups = {{.lr = 1}, {.lr = -1}}});
              }),
              ErrorCode::kConfig);
  }
}

// The norm is that of the declared elements, whatever padding holds.
TEST_F(UnitState, ANormIsOverTheDeclaredElements) {
  for (const std::string& more : {std::string(), on_drive()}) {
    Session session = open(more);
    session.load([](int, int, int64_t, std::span<float> values) {
      std::fill(values.begin(), values.end(), 0.75f);
    });
    const double elements = 100 + 150016 + 149996;
    EXPECT_NEAR(step(session).grad_norm, std::sqrt(elements), 1e-9);
  }
}

TEST_F(UnitState, ADiscardedStepLeavesNoTraceWhereverItStops) {
  for (const std::string& more : {std::string(), on_drive()}) {
    Session plain = open(), session = open(more);
    plain.load(fill);
    session.load(fill);
    step(plain);
    step(session);
    for (int stop_after = 0; stop_after <= 2 * kUnits; ++stop_after) {
      session.begin();
      for (int i = 0; i < stop_after; ++i) {
        const bool forward = i < kUnits;
        pass(session, forward ? i : 2 * kUnits - 1 - i,
             forward ? UnitPass::kForward : UnitPass::kBackward, 7);
      }
      if (stop_after == 2) session.acquire(2, UnitPass::kForward);  // and never released
      session.discard();
    }
    EXPECT_EQ(code_of([&] { session.discard(); }), ErrorCode::kUsage);
    EXPECT_EQ(state(session), state(plain));
    EXPECT_EQ(step(session).step, 2);
    step(plain);
    EXPECT_EQ(state(session), state(plain));
  }
}

TEST_F(UnitState, AGradientThatIsNotFiniteSkipsTheUpdate) {
  Session plain = open(), session = open();
  plain.load(fill);
  session.load(fill);
  EXPECT_TRUE(step(session).applied);
  EXPECT_FALSE(step(session, {.lr = 0.01}, NAN).applied);
  EXPECT_TRUE(step(session).applied);
  step(plain);
  step(plain);
  EXPECT_EQ(state(session), state(plain));
  EXPECT_EQ(session.statistics().steps, 3);
  EXPECT_EQ(session.statistics().updates, 2);
}

TEST_F(UnitState, FrozenUnitsKeepTheirWeightsAndHaveNoGradient) {
  for (const std::string& more : {std::string(), on_drive()}) {
    for (int frozen = 0; frozen < kUnits; ++frozen) {
      Session session = open(more, frozen);
      session.load(fill);
      step(session);
      const std::string saved = session.save(directory_ + "/checkpoints");
      const auto expected = step(session).grad_norm;
      EXPECT_EQ(read(session, StatePlane::kWeights).count({frozen, 0}), 0u);
      session.begin();
      for (int unit = 0; unit <= frozen; ++unit) {
        if (unit == frozen) {
          const auto* weights =
              static_cast<const float*>(session.acquire(unit, UnitPass::kForward).weights);
          EXPECT_EQ(weights[3], std::sin(3 * 0.7f + static_cast<float>(frozen)));
          break;
        }
        pass(session, unit, UnitPass::kForward, 1);
      }
      session.discard();
      // Steps whose settings come late are the same, even when the first unit has no gradient.
      EXPECT_EQ(code_of([&] { session.load(saved); }), ErrorCode::kUsage);
      session.load(fill, saved);
      EXPECT_EQ(step(session).grad_norm, expected);
    }
  }
  std::vector<Unit> all = units();
  for (Unit& unit : all) unit.frozen = true;
  EXPECT_EQ(code_of([&] { Session::open_units(all, "{}"); }), ErrorCode::kConfig);
}

// More updates than steps of this session: the state has seen them elsewhere.
TEST_F(UnitState, StateThatBeganElsewhereIsSavedWithItsUpdates) {
  const auto zeros = [](int, int, int64_t, std::span<float> values) {
    std::ranges::fill(values, 0.0f);
  };
  Session session = open();
  session.load({.weights = fill, .exp_avg = zeros, .exp_avg_sq = zeros, .updates = 1000});
  step(session);
  const std::string path = session.save(directory_ + "/checkpoints");
  step(session);
  Session other = open();
  other.load(path);
  EXPECT_EQ(other.statistics().updates, 1001);
  step(other);
  EXPECT_EQ(state(other), state(session));
}

#ifdef __SSE__
// A program may flush denormal numbers to zero in its own threads.
TEST_F(UnitState, ModesOfTheCallersFloatsChangeNoBit) {
  constexpr unsigned kFlush = 0x8040;
  const auto tiny_step = [&] {
    Session session = open();
    session.load(fill);
    step_with(session, [](int, std::span<float> gradient) {
      std::fill(gradient.begin(), gradient.end(), 1.8e-38f);
    });
    return state(session);
  };
  const std::array<Values, 3> expected = tiny_step();
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlush);
  const std::array<Values, 3> flushed = tiny_step();
  EXPECT_EQ(_mm_getcsr() & kFlush, kFlush);  // those of the caller are as they were
  _mm_setcsr(before);
  EXPECT_GT(expected[1].at({1, 0}).front(), 0.0f);
  EXPECT_EQ(flushed, expected);
}
#endif

TEST_F(UnitState, StateThatWasReadAndGivenGoesOnExactly) {
  for (const std::string recipe : {"fp32", "bf16"}) {
    const auto open_recipe = [&](const std::string& more) {
      return Session::open_units(
          units(), "{\"threads\": 1, \"recipe\": " + quoted(recipe) + more + "}", sinks());
    };
    // Gradients here do not depend on the weights' type.
    const auto plain_step = [](Session& session) {
      step_with(session, [](int tensor, std::span<float> gradient) {
        if (tensor == 0) return std::iota(gradient.begin(), gradient.end(), -3.0f);
        std::fill(gradient.begin(), gradient.end(), 0.5f);
      });
    };
    Session session = open_recipe("");
    session.load(fill);
    plain_step(session);
    plain_step(session);
    const std::array<Values, 3> planes = state(session);
    const auto from = [&](size_t plane) {
      return [&, plane](int unit, int tensor, int64_t first, std::span<float> values) {
        const std::vector<float>& all = planes[plane].at({unit, tensor});
        std::copy_n(all.begin() + first, values.size(), values.begin());
      };
    };
    Session other = open_recipe(on_drive());
    other.load({.weights = from(0), .exp_avg = from(1), .exp_avg_sq = from(2), .updates = 2});
    EXPECT_EQ(state(other), planes) << recipe;
    plain_step(session);
    plain_step(other);
    EXPECT_EQ(state(other), state(session)) << recipe;
    EXPECT_EQ(other.statistics().updates, 3);
  }
}

// The drive of the first one may be full or gone: what is loaded next has its place.
TEST_F(UnitState, ALoadTakesThePlaceOfWhatIsLoaded) {
  Session other = open();
  other.load(fill);
  const auto values = [](int unit, int tensor, int64_t first, std::span<float> to) {
    fill(unit + 1, tensor, first, to);
  };
  for (const bool is_given : {false, true}) {
    const InitialState given = is_given ? InitialState{.weights = values,
                                                       .exp_avg = fill,
                                                       .exp_avg_sq = fill_positive,
                                                       .updates = 7}
                                        : InitialState{.weights = values};
    Session session = open(on_drive());
    session.load(fill);
    std::filesystem::remove_all(directory_ + "/nvme");
    step(session);
    step(session);  // whose update is pending
    session.load(given);
    std::filesystem::create_directory(directory_ + "/nvme");
    EXPECT_EQ(session.statistics().steps, 0);
    EXPECT_EQ(session.statistics().last_step_s, 0);
    EXPECT_EQ(session.use_seconds(), std::vector<double>());
    other.load(given);
    EXPECT_EQ(state(session), state(other));
    for (int i = 0; i < 2; ++i) EXPECT_EQ(step(session).grad_norm, step(other).grad_norm);
    EXPECT_EQ(state(session), state(other));
  }
}

TEST_F(UnitState, StatisticsCountWhatMoves) {
  Session session = open(on_drive());
  EXPECT_EQ(code_of([&] { session.statistics(); }), ErrorCode::kUsage);
  session.load(fill);
  step(session);
  const UnitStatistics before = session.statistics();
  step(session);
  const UnitStatistics after = session.statistics();
  EXPECT_GT(after.nvme_bytes_read, before.nvme_bytes_read);
  EXPECT_GT(after.nvme_bytes_written, before.nvme_bytes_written);
  EXPECT_LE(after.host_bytes, 17 << 18);
  EXPECT_GT(after.nvme_bytes, 0);
  EXPECT_GT(after.last_step_s, 0);
  EXPECT_LE(after.last_stall_s, after.last_step_s);
  EXPECT_NE(after.io, "none");
}

TEST_F(UnitState, OptionsHaveTheNamesOfTheCommandLine) {
  Session session = open(
      ", \"freeze\": \"out.*\", \"groups\": [{\"match\": \"in.*\", "
      "\"lr_factor\": 0}]");
  session.load(fill);
  const Values before = read(session, StatePlane::kWeights);
  step(session);
  const Values after = read(session, StatePlane::kWeights);
  EXPECT_EQ(after.count({2, 0}), 0u);
  EXPECT_EQ(after.at({0, 0}), before.at({0, 0}));
  EXPECT_NE(after.at({1, 0}), before.at({1, 0}));
  for (const std::string wrong :
       {", \"data\": \"x\"", ", \"eps\": 0", ", \"betas\": [1, 0.5]", ", \"accumulate\": 0"}) {
    std::string text;
    EXPECT_EQ(code_of([&] { open(wrong); }, &text), ErrorCode::kUsage) << wrong;
    EXPECT_NE(text.find(wrong.substr(3, 3)), std::string::npos) << text;
  }
  EXPECT_EQ(code_of([&] { Session::open_units(units(), "[]"); }), ErrorCode::kConfig);
  EXPECT_EQ(code_of([&] { open(", \"freeze\": \"nothing\""); }), ErrorCode::kConfig);
}

TEST_F(UnitState, PlacesOfWhatIsNotDeclaredAreRefused) {
  Session session = open();
  EXPECT_EQ(session.place(0, 1).offset, 128);
  EXPECT_EQ(session.place(0, 1).count, 10);
  for (const auto& place : {std::pair(3, 0), {-1, 0}, {0, 2}, {0, -1}}) {
    EXPECT_EQ(code_of([&] { session.place(place.first, place.second); }), ErrorCode::kUsage);
  }
}

}  // namespace
}  // namespace strata::test
