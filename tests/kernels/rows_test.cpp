// SPDX-License-Identifier: Apache-2.0
// Norms, RoPE, gated units, embedding and elementwise ops of the cpu backend equal the plain loops
// within rounding, at sizes off the vector and in both element types, with the same bits for any
// thread count.
#include <fmt/format.h>

#include "tests/kernels/kernel_case.h"

namespace strata::kernels {
namespace {

struct NormSetting {
  int64_t rows, groups, cols;
  DType dtype;
  bool inside;  // x, and with it dx, is f32 whatever the type of w
  float offset;
  int64_t gap;  // between rows; 0: dense
  bool residual;
};

// With a gap dx lies over dy as for q and k, otherwise over the residual branch's gradient.
KernelCase norm_case(const NormSetting& s) {
  const DType x_dtype = s.inside ? DType::kF32 : s.dtype;
  const auto run = [=](const Backend& backend, int threads) {
    const int64_t stride = s.groups * s.cols + s.gap;
    Typed x(x_dtype, random_floats(s.rows * stride, 1));
    Typed w(s.dtype, random_floats(s.cols, 2));
    Floats y(static_cast<size_t>(s.rows * stride), 3.0f);
    Floats rstd(static_cast<size_t>(s.rows * s.groups));
    backend.rms_norm_forward({.dtype = s.dtype,
                              .inside = s.inside,
                              .rows = s.rows,
                              .groups = s.groups,
                              .cols = s.cols,
                              .x = x.data(),
                              .x_stride = s.gap == 0 ? 0 : stride,
                              .w = w.data(),
                              .offset = s.offset,
                              .y = y.data(),
                              .y_stride = s.gap == 0 ? 0 : stride,
                              .rstd = rstd.data()});
    Floats dy = random_floats(s.rows * stride, 3);
    Typed dx(x_dtype, random_floats(s.rows * stride, s.gap == 0 ? 4 : 3));
    Floats dw = random_floats(s.cols, 5);
    RmsNormBackward op = {.dtype = s.dtype,
                          .inside = s.inside,
                          .rows = s.rows,
                          .groups = s.groups,
                          .cols = s.cols,
                          .x = x.data(),
                          .x_stride = s.gap == 0 ? 0 : stride,
                          .w = w.data(),
                          .offset = s.offset,
                          .rstd = rstd.data(),
                          .dy = s.gap == 0 ? dy.data() : static_cast<float*>(dx.data()),
                          .dy_stride = s.gap == 0 ? 0 : stride,
                          .dres = s.residual ? dx.data() : nullptr,
                          .dx = dx.data(),
                          .dx_stride = s.gap == 0 ? 0 : stride,
                          .dw = dw.data(),
                          .accumulate = s.residual};
    Scratch scratch(workspace_bytes(op, device_of(backend, threads)));
    op.workspace = scratch.lend();
    backend.rms_norm_backward(op);
    Floats dw_alone = random_floats(s.cols, 5);
    op.dw = dw_alone.data();
    op.dy = dy.data();
    op.dres = op.dx = nullptr;
    backend.rms_norm_backward(op);
    return std::vector<Floats>{y, rstd, dx.values(), dw, dw_alone};
  };
  return {fmt::format("N{} G{} C{} {}{}{}{}", s.rows, s.groups, s.cols, name_of(s.dtype),
                      s.inside ? " inside" : "", s.offset > 0 ? " offset" : "",
                      s.residual ? " residual" : ""),
          tolerance_of(x_dtype), run};
}

TEST(RmsNorm, AgreesWithRefAndRepeats) {
  std::vector<KernelCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const bool inside : {false, true}) {
      cases.push_back(norm_case({1, 1, 3, dtype, inside, 0.0f, 0, false}));
      cases.push_back(norm_case({7, 1, 40, dtype, inside, 0.0f, 0, true}));
      cases.push_back(norm_case({100, 1, 997, dtype, inside, 0.0f, 0, true}));
      cases.push_back(norm_case({33, 1, 70, dtype, inside, 1.0f, 0, false}));
    }
    cases.push_back(norm_case({40, 5, 12, dtype, true, 0.0f, 29, false}));
    cases.push_back(norm_case({3, 2, 16, dtype, true, 1.0f, 1, false}));
  }
  cases.push_back(norm_case({40, 1, 85, DType::kF16, false, 0.0f, 0, true}));
  cases.push_back(norm_case({33, 1, 70, DType::kF16, false, 1.0f, 0, false}));
  cases.push_back(norm_case({40, 5, 12, DType::kF16, true, 1.0f, 29, false}));
  expect_agrees_and_repeats(cases);
}

KernelCase rope_case(int64_t rows, int64_t length, int64_t heads, int64_t head_size, bool inverse,
                     int64_t rotary = 0) {
  const auto run = [=](const Backend& backend, int) {
    const int64_t stride = heads * head_size + 3;
    Floats x = random_floats(rows * stride, 1);
    const Floats cos = random_floats(length * head_size / 2, 2);
    const Floats sin = random_floats(length * head_size / 2, 3);
    backend.rope({.rows = rows,
                  .length = length,
                  .heads = heads,
                  .head_size = head_size,
                  .rotary = rotary,
                  .x = x.data(),
                  .row_stride = stride,
                  .cos = cos.data(),
                  .sin = sin.data(),
                  .inverse = inverse});
    return std::vector<Floats>{x};
  };
  return {fmt::format("N{} H{} D{}", rows, heads, head_size), 0.0f, run};
}

TEST(Rope, GivesTheBitsOfRefAndRepeats) {
  expect_agrees_and_repeats({rope_case(2, 1, 1, 2, false), rope_case(40, 20, 3, 64, false),
                             rope_case(33, 11, 5, 22, true), rope_case(12, 6, 3, 20, true, 14)});
}

KernelCase glu_case(Activation activation, int64_t rows, int64_t cols, bool fused) {
  const auto run = [=](const Backend& backend, int) {
    Floats gu = random_floats(2 * rows * cols, 1);
    for (float& value : gu) value *= 100.0f;                   // both ends of the sigmoid
    for (size_t i = 0; i < gu.size(); i += 3) gu[i] *= 0.02f;  // and its middle
    const int64_t stride = fused ? 2 * cols : 0;
    float* u = gu.data() + (fused ? cols : rows * cols);
    Floats h(static_cast<size_t>(rows * cols));
    backend.glu_forward({.activation = activation,
                         .rows = rows,
                         .cols = cols,
                         .g = gu.data(),
                         .u = u,
                         .stride = stride,
                         .h = h.data()});
    const Floats dh = random_floats(rows * cols, 2);
    backend.glu_backward({.activation = activation,
                          .rows = rows,
                          .cols = cols,
                          .g = gu.data(),
                          .u = u,
                          .stride = stride,
                          .dh = dh.data(),
                          .dg = gu.data(),
                          .du = u,
                          .d_stride = stride});
    return std::vector<Floats>{h, gu};
  };
  return {fmt::format("{} N{} F{}{}", activation == Activation::kSilu ? "silu" : "gelu", rows, cols,
                      fused ? " fused" : ""),
          kF32Tolerance, run};
}

TEST(Glu, AgreesWithRefAndRepeats) {
  std::vector<KernelCase> cases;
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    cases.push_back(glu_case(activation, 1, 1, false));
    cases.push_back(glu_case(activation, 19, 77, true));
    cases.push_back(glu_case(activation, 40, 256, false));
  }
  expect_agrees_and_repeats(cases);
}

// Far out the cube would overflow and the slope would be 0 * infinity.
TEST(Glu, HugeGatesGiveFiniteSlopes) {
  for (const Backend* backend : {&ref_backend(), &cpu_backend()}) {
    const Floats g = {3e30f, -3e30f}, u = {1.0f, 1.0f}, dh = {1.0f, 1.0f};
    Floats dg(2), du(2);
    backend->glu_backward({.activation = Activation::kGeluTanh,
                           .rows = 1,
                           .cols = 2,
                           .g = g.data(),
                           .u = u.data(),
                           .dh = dh.data(),
                           .dg = dg.data(),
                           .du = du.data()});
    EXPECT_EQ(dg[0], 1.0f) << backend->name;
    EXPECT_NEAR(dg[1], 0.0f, 1e-5f) << backend->name;
    EXPECT_EQ(du[0], 3e30f) << backend->name;
    EXPECT_NEAR(du[1], 0.0f, 1e-5f) << backend->name;
  }
}

KernelCase embedding_case(DType dtype, bool accumulate, float scale = 1.0f) {
  const auto run = [=](const Backend& backend, int) {
    constexpr int64_t kRows = 50, kCols = 203, kVocabulary = 17;
    std::vector<int32_t> tokens;
    for (int32_t row = 0; row < kRows; ++row) tokens.push_back(row * row % 13);
    Typed w(dtype, random_floats(kVocabulary * kCols, 1));
    Typed out(dtype, Floats(kRows * kCols));
    backend.embedding_forward({.dtype = dtype,
                               .rows = kRows,
                               .cols = kCols,
                               .vocabulary = kVocabulary,
                               .scale = scale,
                               .tokens = tokens.data(),
                               .w = w.data(),
                               .out = out.data()});
    Floats dw = random_floats(kVocabulary * kCols, 3);
    backend.embedding_backward({.dtype = dtype,
                                .rows = kRows,
                                .cols = kCols,
                                .vocabulary = kVocabulary,
                                .scale = scale,
                                .ignored = accumulate ? 4 : -1,
                                .tokens = tokens.data(),
                                .dy = out.data(),
                                .dw = dw.data(),
                                .accumulate = accumulate});
    return std::vector<Floats>{out.values(), dw};
  };
  return {fmt::format("{}{} {}", name_of(dtype), accumulate ? " accumulate" : "", scale), 0.0f,
          run};
}

TEST(Embedding, GivesTheBitsOfRefAndRepeats) {
  expect_agrees_and_repeats(
      {embedding_case(DType::kF32, false), embedding_case(DType::kF32, true),
       embedding_case(DType::kBF16, false), embedding_case(DType::kBF16, true),
       embedding_case(DType::kF32, true, 6.9f), embedding_case(DType::kBF16, false, 55.5f),
       embedding_case(DType::kF16, true), embedding_case(DType::kF16, false, 55.5f)});
}

// A rank has zeros for tokens of others, so the sum over ranks has the bits of the whole.
TEST(Embedding, PartsOfTheVocabularyAddUpToTheWhole) {
  constexpr int64_t kRows = 37, kCols = 24, kVocabulary = 101, kRanks = 3;
  const Floats w = random_floats(kVocabulary * kCols, 1), dy = random_floats(kRows * kCols, 2);
  std::vector<int32_t> tokens;
  for (int64_t row = 0; row < kRows; ++row) {
    tokens.push_back(static_cast<int32_t>(row * 7919 % kVocabulary));
  }
  for (const Backend* backend : {&ref_backend(), &cpu_backend()}) {
    Floats whole(kRows * kCols), dw(kVocabulary * kCols, 9.0f);
    Floats sum(whole.size(), 0.0f), dw_of_parts(dw.size(), 9.0f);
    const auto both = [&](int64_t first, int64_t count, float* out, float* gradient) {
      backend->embedding_forward({.rows = kRows,
                                  .cols = kCols,
                                  .vocabulary = count,
                                  .first = first,
                                  .vocabulary_end = kVocabulary,
                                  .scale = 3.0f,
                                  .tokens = tokens.data(),
                                  .w = w.data() + first * kCols,
                                  .out = out});
      backend->embedding_backward({.rows = kRows,
                                   .cols = kCols,
                                   .vocabulary = count,
                                   .first = first,
                                   .vocabulary_end = kVocabulary,
                                   .scale = 3.0f,
                                   .tokens = tokens.data(),
                                   .dy = dy.data(),
                                   .dw = gradient + first * kCols});
    };
    Parallel(2).run([&] {
      both(0, kVocabulary, whole.data(), dw.data());
      for (int64_t rank = 0; rank < kRanks; ++rank) {
        const int64_t first = kVocabulary * rank / kRanks;
        Floats part(whole.size(), 9.0f);
        both(first, kVocabulary * (rank + 1) / kRanks - first, part.data(), dw_of_parts.data());
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
      }
    });
    EXPECT_EQ(sum, whole);
    EXPECT_EQ(dw_of_parts, dw);
  }
}

TEST(EmbeddingDeath, ATokenBeyondTheVocabularyIsABug) {
  Floats w(8), out(8);
  const int32_t token = 2;
  const EmbeddingForward op = {
      .rows = 1, .cols = 4, .vocabulary = 2, .tokens = &token, .w = w.data(), .out = out.data()};
  EXPECT_DEATH(cpu_backend().embedding_forward(op), "is_token");
}

KernelCase elementwise_case(int64_t count, DType dtype) {
  const auto run = [=](const Backend& backend, int) {
    Typed x(dtype, random_floats(count, 1));
    const Floats a = random_floats(count, 2);
    backend.add_residual(
        {.dtype = dtype, .count = count, .x = x.data(), .a = a.data(), .y = x.data()});
    Floats sum = random_floats(count, 3);
    backend.add({.count = count, .a = a.data(), .y = sum.data()});
    Floats filled(static_cast<size_t>(count));
    backend.fill({.count = count, .value = 2.5f, .y = filled.data()});
    Floats wide(static_cast<size_t>(count));
    backend.cast({.dtype = dtype, .count = count, .x = x.data(), .y = wide.data()});
    const int64_t rows = (count - 1) / 7 + 1, width = bytes_of(dtype);
    Typed every_seventh(dtype, Floats(static_cast<size_t>(rows)));
    backend.copy_rows({.rows = rows,
                       .row_bytes = width,
                       .x = x.data(),
                       .x_stride = 7 * width,
                       .y = every_seventh.data(),
                       .y_stride = width});
    return std::vector<Floats>{x.values(), sum, filled, wide, every_seventh.values()};
  };
  return {fmt::format("{} {}", count, name_of(dtype)), 0.0f, run};
}

TEST(Elementwise, GivesTheBitsOfRefAndRepeats) {
  std::vector<KernelCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t count : {1, 15, 16, 33, 70001})
      cases.push_back(elementwise_case(count, dtype));
  }
  for (const int64_t count : {15, 1033}) cases.push_back(elementwise_case(count, DType::kF16));
  expect_agrees_and_repeats(cases);
}

TEST(Elementwise, SoftCapAgreesWithRefAndRepeats) {
  const auto run = [](const Backend& backend, int) {
    Floats y = random_floats(1003, 1);
    for (float& value : y) value *= 200.0f;
    backend.soft_cap({.count = 1003, .cap = 30.0f, .y = y.data()});
    return std::vector<Floats>{y};
  };
  expect_agrees_and_repeats({{"soft cap", kF32Tolerance, run}});
}

// Rounded half up in magnitude, and NaN made canonical.
TEST(Elementwise, ASumIsStoredAsBf16AsAMasterBecomesAWeight) {
  const uint32_t bits[] = {0x3f808000u, 0x3f807fffu, 0xbf818000u, 0x7f7fffffu, 0x7f800001u,
                           0xffc12345u, 0x00000001u, 0x80008000u, 0x7f800000u, 0u};
  Floats x;
  for (int repeat = 0; repeat < 4; ++repeat) {
    for (const uint32_t one : bits) x.push_back(std::bit_cast<float>(one));
  }
  Halves y(x.size());  // zeros
  cpu_backend().add_residual({.dtype = DType::kBF16,
                              .count = static_cast<int64_t>(x.size()),
                              .x = y.data(),
                              .a = x.data(),
                              .y = y.data()});
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], to_bf16(x[i])) << i;
}

}  // namespace
}  // namespace strata::kernels
