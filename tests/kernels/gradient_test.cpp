// SPDX-License-Identifier: Apache-2.0
// Every backward of the plain loops is the derivative of its forward, by central differences. The
// cpu backend is tied to these by the agreement tests.
#include "tests/kernels/gradient_check.h"

namespace strata::kernels {
namespace {

TEST(Gradient, MatMul) {
  constexpr int64_t kM = 3, kN = 4, kK = 5;
  Floats x = random_floats(kM * kK, 1), w = random_floats(kN * kK, 2), bias = random_floats(kN, 3);
  const Floats dy = random_floats(kM * kN, 4);
  const auto loss = [&] {
    Floats y(kM * kN);
    ref_backend().matmul_forward({.rows = kM,
                                  .outputs = kN,
                                  .inputs = kK,
                                  .x = x.data(),
                                  .w = w.data(),
                                  .bias = bias.data(),
                                  .y = y.data()});
    return weighted_sum(y, dy);
  };
  Floats dx(x.size()), dw(w.size()), dbias(bias.size());
  ref_backend().matmul_input(
      {.rows = kM, .outputs = kN, .inputs = kK, .dy = dy.data(), .w = w.data(), .dx = dx.data()});
  ref_backend().matmul_weight({.rows = kM,
                               .outputs = kN,
                               .inputs = kK,
                               .dy = dy.data(),
                               .x = x.data(),
                               .dw = dw.data(),
                               .dbias = dbias.data()});
  expect_gradient(x, dx, loss);
  expect_gradient(w, dw, loss);
  expect_gradient(bias, dbias, loss);
}

void check_rms_norm(int64_t groups, float offset) {
  const int64_t kRows = 3, kCols = 7;
  Floats x = random_floats(kRows * groups * kCols, 1), w = random_floats(kCols, 2);
  for (float& value : x)
    value += value > 0 ? 0.5f : -0.5f;  // away from 0, where the third derivative is large
  const Floats dy = random_floats(kRows * groups * kCols, 3);
  Floats rstd(static_cast<size_t>(kRows * groups));
  const auto loss = [&] {
    Floats y(x.size());
    ref_backend().rms_norm_forward({.rows = kRows,
                                    .groups = groups,
                                    .cols = kCols,
                                    .x = x.data(),
                                    .w = w.data(),
                                    .offset = offset,
                                    .y = y.data(),
                                    .rstd = rstd.data()});
    return weighted_sum(y, dy) + weighted_sum(x, dy);  // the second term: the residual branch
  };
  loss();
  const Floats kept = rstd;
  Floats dx(x.size()), dw(w.size());
  ref_backend().rms_norm_backward({.rows = kRows,
                                   .groups = groups,
                                   .cols = kCols,
                                   .x = x.data(),
                                   .w = w.data(),
                                   .offset = offset,
                                   .rstd = kept.data(),
                                   .dy = dy.data(),
                                   .dres = dy.data(),
                                   .dx = dx.data(),
                                   .dw = dw.data()});
  expect_gradient(x, dx, loss);
  expect_gradient(w, dw, loss);
}

TEST(Gradient, RmsNorm) {
  check_rms_norm(1, 0.0f);
}
TEST(Gradient, RmsNormOfHeadsWithOffset) {
  check_rms_norm(2, 1.0f);
}

TEST(Gradient, RopeInverseIsTheTranspose) {
  constexpr int64_t kRows = 4, kLength = 2, kHeads = 2, kSize = 6;
  Floats angle = random_floats(kLength * kSize / 2, 1), cos = angle, sin = angle;
  for (float& value : cos) value = std::cos(value);
  for (float& value : sin) value = std::sin(value);
  Floats x = random_floats(kRows * kHeads * kSize, 2);
  const Floats dy = random_floats(kRows * kHeads * kSize, 3);
  const auto rotated = [&](Floats values, bool inverse) {
    ref_backend().rope({.rows = kRows,
                        .length = kLength,
                        .heads = kHeads,
                        .head_size = kSize,
                        .x = values.data(),
                        .cos = cos.data(),
                        .sin = sin.data(),
                        .inverse = inverse});
    return values;
  };
  expect_gradient(x, rotated(dy, true), [&] { return weighted_sum(rotated(x, false), dy); });
  EXPECT_LE(largest_difference(rotated(rotated(x, false), true), x), 1e-6f);
}

void check_attention(int64_t window, float cap) {
  constexpr int64_t kBatch = 2, kLength = 5, kHeads = 4, kKvHeads = 2, kSize = 3;
  Floats q = random_floats(kBatch * kLength * kHeads * kSize, 1);
  Floats k = random_floats(kBatch * kLength * kKvHeads * kSize, 2);
  Floats v = random_floats(kBatch * kLength * kKvHeads * kSize, 3);
  const Floats d_o = random_floats(kBatch * kLength * kHeads * kSize, 4);
  Floats o(q.size()), lse(kBatch * kHeads * kLength);
  Scratch scratch(2 * kSize * 4);
  const auto loss = [&] {
    ref_backend().attention_forward({.batch = kBatch,
                                     .length = kLength,
                                     .heads = kHeads,
                                     .kv_heads = kKvHeads,
                                     .head_size = kSize,
                                     .scale = 0.7f,
                                     .cap = cap,
                                     .window = window,
                                     .q = q.data(),
                                     .k = k.data(),
                                     .v = v.data(),
                                     .o = o.data(),
                                     .lse = lse.data(),
                                     .workspace = scratch.lend()});
    return weighted_sum(o, d_o);
  };
  loss();
  Floats dq(q.size()), dk(k.size()), dv(v.size());
  ref_backend().attention_backward({.batch = kBatch,
                                    .length = kLength,
                                    .heads = kHeads,
                                    .kv_heads = kKvHeads,
                                    .head_size = kSize,
                                    .scale = 0.7f,
                                    .cap = cap,
                                    .window = window,
                                    .q = q.data(),
                                    .k = k.data(),
                                    .v = v.data(),
                                    .o = o.data(),
                                    .lse = lse.data(),
                                    .d_o = d_o.data(),
                                    .dq = dq.data(),
                                    .dk = dk.data(),
                                    .dv = dv.data(),
                                    .workspace = scratch.lend()});
  expect_gradient(q, dq, loss);
  expect_gradient(k, dk, loss);
  expect_gradient(v, dv, loss);
}

TEST(Gradient, Attention) {
  check_attention(0, 0.0f);
}
TEST(Gradient, AttentionWithWindow) {
  check_attention(2, 0.0f);
}
TEST(Gradient, AttentionWithCap) {
  check_attention(3, 0.5f);
}

void check_glu(Activation activation) {
  constexpr int64_t kRows = 2, kCols = 9;
  Floats g = random_floats(kRows * kCols, 1), u = random_floats(kRows * kCols, 2);
  for (float& value : g) value *= 4.0f;
  const Floats dh = random_floats(kRows * kCols, 3);
  const auto loss = [&] {
    Floats h(g.size());
    ref_backend().glu_forward({.activation = activation,
                               .rows = kRows,
                               .cols = kCols,
                               .g = g.data(),
                               .u = u.data(),
                               .h = h.data()});
    return weighted_sum(h, dh);
  };
  Floats dg(g.size()), du(u.size());
  ref_backend().glu_backward({.activation = activation,
                              .rows = kRows,
                              .cols = kCols,
                              .g = g.data(),
                              .u = u.data(),
                              .dh = dh.data(),
                              .dg = dg.data(),
                              .du = du.data()});
  expect_gradient(g, dg, loss);
  expect_gradient(u, du, loss);
}

TEST(Gradient, GluOfSilu) {
  check_glu(Activation::kSilu);
}
TEST(Gradient, GluOfGelu) {
  check_glu(Activation::kGeluTanh);
}

TEST(Gradient, Embedding) {
  constexpr int64_t kRows = 5, kCols = 3, kVocabulary = 4;
  const int32_t tokens[kRows] = {2, 0, 2, 3, 2};
  Floats w = random_floats(kVocabulary * kCols, 1);
  const Floats dy = random_floats(kRows * kCols, 2);
  const auto loss = [&] {
    Floats out(kRows * kCols);
    ref_backend().embedding_forward({.rows = kRows,
                                     .cols = kCols,
                                     .vocabulary = kVocabulary,
                                     .scale = 1.5f,
                                     .tokens = tokens,
                                     .w = w.data(),
                                     .out = out.data()});
    return weighted_sum(out, dy);
  };
  Floats dw(w.size(), 5.0f);
  ref_backend().embedding_backward({.rows = kRows,
                                    .cols = kCols,
                                    .vocabulary = kVocabulary,
                                    .scale = 1.5f,
                                    .tokens = tokens,
                                    .dy = dy.data(),
                                    .dw = dw.data()});
  expect_gradient(w, dw, loss);
  ref_backend().embedding_backward({.rows = kRows,
                                    .cols = kCols,
                                    .vocabulary = kVocabulary,
                                    .scale = 1.5f,
                                    .ignored = 2,
                                    .tokens = tokens,
                                    .dy = dy.data(),
                                    .dw = dw.data()});
  EXPECT_EQ(Floats(dw.begin() + 2 * kCols, dw.begin() + 3 * kCols), Floats(kCols, 0.0f));
  EXPECT_NE(dw[0], 0.0f);
}

void check_linear_cross_entropy(float cap) {
  constexpr int64_t kRows = 4, kCols = 3, kVocabulary = 6;
  const int32_t targets[kRows] = {5, -1, 0, 2};
  Floats h = random_floats(kRows * kCols, 1), w = random_floats(kVocabulary * kCols, 2);
  Floats dh(h.size()), dw(w.size());
  constexpr float kScale = 0.5f;
  const auto run = [&](bool gradients) {
    double loss = 0.0;
    LinearCrossEntropy op = {.rows = kRows,
                             .cols = kCols,
                             .vocabulary = kVocabulary,
                             .cap = cap,
                             .h = h.data(),
                             .w = w.data(),
                             .targets = targets,
                             .grad_scale = kScale,
                             .loss_sum = &loss,
                             .dh = gradients ? dh.data() : nullptr,
                             .dw = gradients ? dw.data() : nullptr};
    Scratch scratch(workspace_bytes(op, 1));
    op.workspace = scratch.lend();
    ref_backend().linear_cross_entropy(op);
    return loss * kScale;
  };
  run(true);
  const Floats dh_kept = dh, dw_kept = dw;
  expect_gradient(h, dh_kept, [&] { return run(false); });
  expect_gradient(w, dw_kept, [&] { return run(false); });
}

TEST(Gradient, LinearCrossEntropy) {
  check_linear_cross_entropy(0.0f);
}
TEST(Gradient, LinearCrossEntropyWithCap) {
  check_linear_cross_entropy(0.8f);
}

}  // namespace
}  // namespace strata::kernels
