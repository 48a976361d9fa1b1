// SPDX-License-Identifier: Apache-2.0
// AdamW and the sum of squares give the same bits in both backends and for any thread count; AdamW
// follows PyTorch's numbers; masters stay equal in every form of the planes.
#include <fmt/format.h>

#include <limits>

#include "tests/kernels/kernel_case.h"

namespace strata::kernels {
namespace {

struct State {
  Floats master, exp_avg, exp_avg_sq, grad;
  Halves hi, lo;
};

State make_state(int64_t count) {
  State s = {random_floats(count, 1),
             random_floats(count, 2),
             random_floats(count, 3),
             random_floats(count, 4),
             {},
             {}};
  for (float& value : s.exp_avg_sq) value *= value;
  if (count > 8) s.exp_avg_sq[7] = s.grad[7] = 0.0f;  // denominator eps alone
  if (count > 8) s.grad[8] = 1e-30f;                  // its square underflows
  for (const float value : s.master) {
    const SplitMaster split = split_master(value);
    s.hi.push_back(split.hi);
    s.lo.push_back(split.lo);
  }
  return s;
}

// How the master is kept: whole, split, or whole beside f16 weights.
enum class Form : uint8_t { kWhole, kSplit, kRounded };
constexpr Form kForms[] = {Form::kWhole, Form::kSplit, Form::kRounded};

AdamW op_of(State& s, Form form, const AdamWScalars& scalars) {
  return {.count = static_cast<int64_t>(s.grad.size()),
          .hi = form == Form::kWhole ? nullptr : s.hi.data(),
          .lo = form == Form::kSplit ? s.lo.data() : nullptr,
          .master = form == Form::kSplit ? nullptr : s.master.data(),
          .exp_avg = s.exp_avg.data(),
          .exp_avg_sq = s.exp_avg_sq.data(),
          .grad = s.grad.data(),
          .scalars = scalars};
}

Floats masters_of(const State& s, Form form) {
  if (form != Form::kSplit) return s.master;
  Floats joined;
  for (size_t i = 0; i < s.hi.size(); ++i) joined.push_back(join_master(s.hi[i], s.lo[i]));
  return joined;
}

constexpr AdamWSettings kSettings = {.lr = 1e-2, .weight_decay = 0.1};

KernelCase adamw_case(int64_t count, Form form) {
  const auto run = [=](const Backend& backend, int) {
    State s = make_state(count);
    for (int64_t step = 1; step <= 3; ++step) {
      backend.adamw(op_of(s, form, adamw_scalars(kSettings, step, 0.37)));
    }
    const Floats weights(s.hi.begin(), s.hi.end());  // bits as numbers
    return std::vector<Floats>{masters_of(s, form), s.exp_avg, s.exp_avg_sq, weights};
  };
  return {fmt::format("{} in form {}", count, static_cast<int>(form)), 0.0f, run};
}

TEST(AdamW, GivesTheBitsOfRefForAnyThreadCount) {
  std::vector<KernelCase> cases;
  for (const int64_t count : {1, 9, 15, 64, 16384, 50001}) {
    cases.push_back(adamw_case(count, Form::kWhole));
    cases.push_back(adamw_case(count, Form::kSplit));
  }
  for (const int64_t count : {9, 16401}) cases.push_back(adamw_case(count, Form::kRounded));
  expect_agrees_and_repeats(cases);
}

// The room of the gradient, or any other.
TEST(AdamW, ItsSecondMomentMayGoElsewhere) {
  for (const Form form : kForms) {
    for (const Backend* backend : {&ref_backend(), &cpu_backend()}) {
      State in_place = make_state(1003), over_gradient = in_place, beside = in_place;
      const Floats before = in_place.exp_avg_sq;
      const AdamWScalars scalars = adamw_scalars(kSettings, 3, 0.37);
      backend->adamw(op_of(in_place, form, scalars));
      AdamW op = op_of(over_gradient, form, scalars);
      op.next_exp_avg_sq = over_gradient.grad.data();
      backend->adamw(op);
      Floats next(1003);
      op = op_of(beside, form, scalars);
      op.next_exp_avg_sq = next.data();
      backend->adamw(op);
      for (const State* s : {&over_gradient, &beside}) {
        EXPECT_TRUE(same_bits(masters_of(*s, form), masters_of(in_place, form)));
        EXPECT_TRUE(same_bits(s->exp_avg, in_place.exp_avg));
        EXPECT_TRUE(same_bits(s->exp_avg_sq, before));
      }
      EXPECT_TRUE(same_bits(over_gradient.grad, in_place.exp_avg_sq));
      EXPECT_TRUE(same_bits(next, in_place.exp_avg_sq));
      EXPECT_TRUE(same_bits(beside.grad, in_place.grad));
    }
  }
}

// Hardware makes NaN of different bits; what an update writes must not show which did.
TEST(AdamW, EveryNanIsWrittenAsTheOne) {
  constexpr size_t kCount = 67;  // whole vectors and a tail
  const float payload = std::bit_cast<float>(0xffc12345u),
              quiet = std::bit_cast<float>(0x7fc00001u);
  for (const Form form : kForms) {
    for (const Backend* backend : {&ref_backend(), &cpu_backend()}) {
      State s = make_state(kCount);
      Floats next(kCount);
      for (size_t i = 0; i + 3 < kCount; i += 4) {
        s.grad[i] =
            i % 8 == 0 ? INFINITY : payload;  // infinity less itself, and a NaN that is given
        s.exp_avg[i] = INFINITY;
        s.exp_avg_sq[i + 1] = -1.0f;  // has no root: the master alone
        s.exp_avg_sq[i + 2] = quiet;
      }
      AdamW op = op_of(s, form, adamw_scalars(kSettings, 2, 0.37));
      op.next_exp_avg_sq = next.data();
      backend->adamw(op);
      Floats masters = masters_of(s, form);
      size_t found = 0;
      for (const Floats* plane : {&masters, &s.exp_avg, &next}) {
        for (const float value : *plane) {
          if (!std::isnan(value)) continue;
          ++found;
          EXPECT_EQ(std::bit_cast<uint32_t>(value), 0x7fc00000u) << backend->name;
        }
      }
      EXPECT_EQ(found, 16u * 5 + 8u) << backend->name;
      for (size_t i = 0; form == Form::kRounded && i < kCount; ++i) {
        EXPECT_EQ(s.hi[i] == 0x7e00, std::isnan(masters[i])) << backend->name << ' ' << i;
      }
    }
  }
}

TEST(AdamW, MastersStayEqualInEveryForm) {
  State states[] = {make_state(1000), make_state(1000), make_state(1000)};
  for (int64_t step = 1; step <= 20; ++step) {
    const AdamWScalars scalars = adamw_scalars(kSettings, step, 1.0);
    for (const Form form : kForms) {
      cpu_backend().adamw(op_of(states[static_cast<size_t>(form)], form, scalars));
    }
  }
  const Floats& whole = states[0].master;
  EXPECT_TRUE(same_bits(masters_of(states[1], Form::kSplit), whole));
  EXPECT_TRUE(same_bits(states[2].master, whole));
}

// The weights that were there are not read. A master beyond the range of f16 stays finite itself.
TEST(AdamW, F16WeightsAreRoundedFromTheNewMaster) {
  for (const Backend* backend : {&ref_backend(), &cpu_backend(), &twin_backend()}) {
    State s = make_state(1003);
    s.master[3] = 70000.0f;
    s.master[5] = 1e-6f;  // subnormal
    s.grad[5] = s.exp_avg[5] = 0.0f;
    std::fill(s.hi.begin(), s.hi.end(), uint16_t{0x7e00});
    backend->adamw(op_of(s, Form::kRounded, adamw_scalars(kSettings, 1, 1.0)));
    for (size_t i = 0; i < s.hi.size(); ++i) {
      EXPECT_EQ(s.hi[i], to_f16(s.master[i])) << backend->name << ' ' << i;
    }
    EXPECT_EQ(s.hi[3], 0x7c00);
    EXPECT_TRUE(std::isfinite(s.master[3]));
    EXPECT_GT(s.hi[5], 0);
    EXPECT_LT(s.hi[5], 0x400);
  }
}

TEST(AdamWDeath, PlanesOfNoFormAreABug) {
  State s = make_state(4);
  AdamW op = op_of(s, Form::kSplit, {});
  op.master = s.master.data();
  EXPECT_DEATH(ref_backend().adamw(op), "is_adamw");
  op = op_of(s, Form::kRounded, {});
  op.master = nullptr;
  EXPECT_DEATH(cpu_backend().adamw(op), "is_adamw");
}

// torch.optim.AdamW(lr=0.01, betas=(0.9, 0.99), eps=1e-8, weight_decay=0.1, foreach=False) in
// float64 on parameters 1, -2, 0.5 with gradients 0.1, -0.2, 0.3 times 1, 2, 3 in steps 1, 2, 3.
TEST(AdamW, FollowsPyTorch) {
  State s = {{1.0f, -2.0f, 0.5f}, {0, 0, 0}, {0, 0, 0}, {}, {}, {}};
  for (int64_t step = 1; step <= 3; ++step) {
    const float k = static_cast<float>(step);
    s.grad = {0.1f * k, -0.2f * k, 0.3f * k};
    const AdamWSettings settings = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.99, .weight_decay = 0.1};
    cpu_backend().adamw(op_of(s, Form::kWhole, adamw_scalars(settings, step, 1.0)));
  }
  const double wanted[] = {0.967838540619, -1.964841538596, 0.469337039754};
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(s.master[i], wanted[i], 2e-7) << i;
}

TEST(AdamW, OneStepOfHandComputedValues) {
  State s = {{1.0f}, {0.0f}, {0.0f}, {0.5f}, {}, {}};
  // m/(1-b1) = g and sqrt(v/(1-b2)) = |g|: the first step is lr * sign(g).
  cpu_backend().adamw(op_of(s, Form::kWhole, adamw_scalars({.lr = 0.125}, 1, 1.0)));
  EXPECT_NEAR(s.master[0], 0.875f, 1e-7);
  EXPECT_NEAR(s.exp_avg[0], 0.05f, 1e-8);
  EXPECT_NEAR(s.exp_avg_sq[0], 0.00025f, 1e-9);
}

std::pair<double, bool> sum_of(const Backend& backend, const Floats& x, int threads) {
  SquaresPartial out = {-1.0, -1.0};
  SumSquares op = {.count = static_cast<int64_t>(x.size()), .x = x.data(), .out = &out};
  Scratch scratch(workspace_bytes(op, device_of(backend, threads)));
  op.workspace = scratch.lend();
  Parallel(threads).run([&] { backend.sum_squares(op); });
  return {out.sum, out.not_finite == 0.0};
}

TEST(SumSquares, GivesTheBitsOfRefForAnyThreadCount) {
  for (const int64_t count : {0, 1, 15, 16, 17, 16384, 16385, 100003}) {
    const Floats x = random_floats(count, 1);
    const auto wanted = sum_of(ref_backend(), x, 1);
    double plain = 0.0;
    for (const float value : x) plain += double{value} * value;
    EXPECT_NEAR(wanted.first, plain, 1e-12 * plain);
    for (const int threads : {1, 2, 3})
      EXPECT_EQ(sum_of(cpu_backend(), x, threads), wanted) << count;
  }
}

// Ranges of one call are those of a call each.
TEST(SumSquares, RangesOfOneCallHaveTheirOwnSums) {
  struct Case {
    int64_t count, part;
  };
  for (const auto& [count, part] :
       {Case{100003, 32768}, {50000, 4096}, {20000, 20000}, {99, 400}}) {
    const Floats x = random_floats(count, 3);
    std::vector<std::pair<double, bool>> wanted;
    for (int64_t at = 0; at < count; at += part) {
      const Floats one(x.begin() + at, x.begin() + std::min(count, at + part));
      wanted.push_back(sum_of(ref_backend(), one, 1));
    }
    for (const Backend* backend : {&ref_backend(), &cpu_backend(), &twin_backend()}) {
      std::vector<SquaresPartial> out(wanted.size() + 1, SquaresPartial{-1.0, -1.0});
      SumSquares op = {.count = count, .part = part, .x = x.data(), .out = out.data()};
      Scratch scratch(workspace_bytes(op, device_of(*backend, 2)));
      op.workspace = scratch.lend();
      Parallel(2).run([&] { backend->sum_squares(op); });
      for (size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(out[i].sum, wanted[i].first) << i;
      EXPECT_EQ(out.back().sum, -1.0) << backend->name;
    }
  }
}

TEST(SumSquares, OneBadElementAnywhereShows) {
  for (const size_t where : {size_t{0}, size_t{16390}, size_t{20004}}) {
    for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
      Floats x(20005, 1.0f);
      x[where] = bad;
      EXPECT_FALSE(sum_of(ref_backend(), x, 1).second);
      EXPECT_FALSE(sum_of(cpu_backend(), x, 2).second);
    }
  }
  const Floats largest(20005, std::numeric_limits<float>::max());
  EXPECT_TRUE(sum_of(cpu_backend(), largest, 2).second);
}

}  // namespace
}  // namespace strata::kernels
