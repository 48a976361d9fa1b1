// SPDX-License-Identifier: Apache-2.0
// What GPT-2's blocks compute beside those of Llama: LayerNorm, learned positions and an MLP
// without gate. Backwards are derivatives of their forwards, the cpu backend agrees with the plain
// loops and repeats its bits for any thread count.
#include <fmt/format.h>

#include "tests/kernels/gradient_check.h"

namespace strata::kernels {
namespace {

struct LayerNormSetting {
  int64_t rows, cols;
  DType dtype;
  bool residual;
};

KernelCase layer_norm_case(const LayerNormSetting& s) {
  const auto run = [=](const Backend& backend, int threads) {
    Typed x(s.dtype, random_floats(s.rows * s.cols, 1));
    Typed w(s.dtype, random_floats(s.cols, 2)), b(s.dtype, random_floats(s.cols, 6));
    Floats y(static_cast<size_t>(s.rows * s.cols));
    Floats mean(static_cast<size_t>(s.rows)), rstd(mean);
    backend.layer_norm_forward({.dtype = s.dtype,
                                .rows = s.rows,
                                .cols = s.cols,
                                .x = x.data(),
                                .w = w.data(),
                                .b = b.data(),
                                .y = y.data(),
                                .mean = mean.data(),
                                .rstd = rstd.data()});
    const Floats dy = random_floats(s.rows * s.cols, 3);
    Typed dx(s.dtype, random_floats(s.rows * s.cols, 4));
    Floats dw = random_floats(s.cols, 5), db = random_floats(s.cols, 7);
    LayerNormBackward op = {.dtype = s.dtype,
                            .rows = s.rows,
                            .cols = s.cols,
                            .x = x.data(),
                            .w = w.data(),
                            .mean = mean.data(),
                            .rstd = rstd.data(),
                            .dy = dy.data(),
                            .dres = s.residual ? dx.data() : nullptr,
                            .dx = dx.data(),
                            .dw = dw.data(),
                            .db = db.data(),
                            .accumulate = s.residual};
    Scratch scratch(workspace_bytes(op, device_of(backend, threads)));
    op.workspace = scratch.lend();
    backend.layer_norm_backward(op);
    Floats dw_alone = random_floats(s.cols, 5);
    op.dw = dw_alone.data();
    op.dres = op.dx = op.db = nullptr;
    backend.layer_norm_backward(op);
    return std::vector<Floats>{y, dx.values(), dw, db, dw_alone};
  };
  return {
      fmt::format("N{} C{} {}{}", s.rows, s.cols, name_of(s.dtype), s.residual ? " residual" : ""),
      tolerance_of(s.dtype), run};
}

TEST(LayerNorm, AgreesWithRefAndRepeats) {
  std::vector<KernelCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    cases.push_back(layer_norm_case({2, 3, dtype, false}));
    cases.push_back(layer_norm_case({7, 40, dtype, true}));
    cases.push_back(layer_norm_case({100, 997, dtype, true}));
  }
  cases.push_back(layer_norm_case({40, 85, DType::kF16, true}));
  expect_agrees_and_repeats(cases);
}

// A mean that is large beside the spread must not cancel: the variance is of the distances.
TEST(LayerNorm, ALargeMeanLeavesTheSpread) {
  for (const Backend* backend : {&ref_backend(), &cpu_backend()}) {
    Floats x(19), w(19, 1.0f), b(19, 0.0f), y(19);
    for (size_t i = 0; i < x.size(); ++i) x[i] = 4096.0f + static_cast<float>(i % 2);
    backend->layer_norm_forward(
        {.rows = 1, .cols = 19, .x = x.data(), .w = w.data(), .b = b.data(), .y = y.data()});
    EXPECT_NEAR(y[0], -0.9487, 1e-3) << backend->name;
    EXPECT_NEAR(y[1], 1.0541, 1e-3) << backend->name;
  }
}

TEST(LayerNorm, BackwardIsTheDerivative) {
  constexpr int64_t kRows = 3, kCols = 7;
  Floats x = random_floats(kRows * kCols, 1), w = random_floats(kCols, 2);
  Floats b = random_floats(kCols, 5);
  for (size_t i = 0; i < x.size(); ++i) x[i] += i % 2 == 0 ? 1.5f : -1.5f;  // away from no spread
  const Floats dy = random_floats(kRows * kCols, 3);
  Floats mean(kRows), rstd(kRows);
  const auto loss = [&] {
    Floats y(kRows * kCols);
    ref_backend().layer_norm_forward({.rows = kRows,
                                      .cols = kCols,
                                      .x = x.data(),
                                      .w = w.data(),
                                      .b = b.data(),
                                      .y = y.data(),
                                      .mean = mean.data(),
                                      .rstd = rstd.data()});
    return weighted_sum(y, dy) + weighted_sum(x, dy);  // the second term: the residual branch
  };
  loss();
  const Floats kept_mean = mean, kept = rstd;
  Floats dx(x.size()), dw(w.size()), db(b.size());
  ref_backend().layer_norm_backward({.rows = kRows,
                                     .cols = kCols,
                                     .x = x.data(),
                                     .w = w.data(),
                                     .mean = kept_mean.data(),
                                     .rstd = kept.data(),
                                     .dy = dy.data(),
                                     .dres = dy.data(),
                                     .dx = dx.data(),
                                     .dw = dw.data(),
                                     .db = db.data()});
  expect_gradient(x, dx, loss);
  expect_gradient(w, dw, loss);
  expect_gradient(b, db, loss);
}

KernelCase plain_activation_case(Activation activation, int64_t rows, int64_t cols) {
  const auto run = [=](const Backend& backend, int) {
    Floats g = random_floats(rows * cols, 1), h(g.size());
    for (float& value : g) value *= 6.0f;
    backend.glu_forward(
        {.activation = activation, .rows = rows, .cols = cols, .g = g.data(), .h = h.data()});
    const Floats dh = random_floats(rows * cols, 3);
    backend.glu_backward({.activation = activation,
                          .rows = rows,
                          .cols = cols,
                          .g = g.data(),
                          .dh = dh.data(),
                          .dg = g.data()});
    return std::vector<Floats>{h, g};
  };
  return {fmt::format("plain N{} F{}", rows, cols), kF32Tolerance, run};
}

TEST(PlainActivation, AgreesWithRefAndRepeats) {
  std::vector<KernelCase> cases;
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    cases.push_back(plain_activation_case(activation, 1, 1));
    cases.push_back(plain_activation_case(activation, 19, 77));
  }
  expect_agrees_and_repeats(cases);
}

TEST(PlainActivation, BackwardIsTheDerivative) {
  constexpr int64_t kCols = 11;
  Floats g = random_floats(kCols, 1), dg(g.size());
  for (float& value : g) value *= 3.0f;
  const Floats dh = random_floats(kCols, 3);
  const auto loss = [&] {
    Floats h(g.size());
    ref_backend().glu_forward({.activation = Activation::kGeluTanh,
                               .rows = 1,
                               .cols = kCols,
                               .g = g.data(),
                               .h = h.data()});
    return weighted_sum(h, dh);
  };
  ref_backend().glu_backward({.activation = Activation::kGeluTanh,
                              .rows = 1,
                              .cols = kCols,
                              .g = g.data(),
                              .dh = dh.data(),
                              .dg = dg.data()});
  expect_gradient(g, dg, loss);
}

KernelCase position_case(DType dtype, bool accumulate, bool documents) {
  const auto run = [=](const Backend& backend, int) {
    constexpr int64_t kLength = 53, kRows = 5 * kLength, kCols = 203, kPositions = 60;
    const std::vector<int32_t> starts = drawn_starts(5, kLength, 19);
    const int32_t* given_starts = documents ? starts.data() : nullptr;
    Typed y(dtype, random_floats(kRows * kCols, 1));
    Typed p(dtype, random_floats(kPositions * kCols, 2));
    backend.position_forward({.dtype = dtype,
                              .rows = kRows,
                              .cols = kCols,
                              .length = kLength,
                              .starts = given_starts,
                              .p = p.data(),
                              .y = y.data()});
    Typed dy(dtype, random_floats(kRows * kCols, 3));
    Floats dp = random_floats(kPositions * kCols, 4);
    backend.position_backward({.dtype = dtype,
                               .rows = kRows,
                               .cols = kCols,
                               .length = kLength,
                               .starts = given_starts,
                               .positions = kPositions,
                               .dy = dy.data(),
                               .dp = dp.data(),
                               .accumulate = accumulate});
    return std::vector<Floats>{y.values(), dp};
  };
  return {fmt::format("{}{}{}", name_of(dtype), accumulate ? " added" : "",
                      documents ? ", documents" : ""),
          0.0f, run};
}

TEST(Position, GivesTheBitsOfRefAndRepeats) {
  std::vector<KernelCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool accumulate : {false, true}) {
      for (const bool documents : {false, true}) {
        cases.push_back(position_case(dtype, accumulate, documents));
      }
    }
  }
  cases.push_back(position_case(DType::kF16, true, true));
  expect_agrees_and_repeats(cases);
}

TEST(Position, GradientsAreSumsOverSequences) {
  const Floats dy = {1, 2, 3, 4, 5, 6, 7, 8};  // two sequences of two positions, two columns
  Floats dp(6, 9.0f);
  ref_backend().position_backward(
      {.rows = 4, .cols = 2, .length = 2, .positions = 3, .dy = dy.data(), .dp = dp.data()});
  EXPECT_EQ(dp, (Floats{6, 8, 10, 12, 0, 0}));
  const Floats p = {10, 20, 30, 40};
  Floats y(8, 1.0f);
  ref_backend().position_forward({.rows = 4, .cols = 2, .length = 2, .p = p.data(), .y = y.data()});
  EXPECT_EQ(y, (Floats{11, 21, 31, 41, 11, 21, 31, 41}));
}

}  // namespace
}  // namespace strata::kernels
