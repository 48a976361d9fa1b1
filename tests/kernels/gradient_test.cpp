// SPDX-License-Identifier: Apache-2.0
// Every backward is the derivative of its forward, by central differences: those of the plain
// loops, and those of the GPU where STRATA_TEST_PLUGIN names the plugin's folder
// (tests/gpu/run.sh). The cpu backend is tied to the plain loops by the agreement tests.
#include <optional>

#include "tests/kernels/gradient_check.h"
#include "tests/kernels/tested_device.h"

namespace strata::kernels {
namespace {

// Runs ops of a backend with scratch that it keeps.
class Ops {
 public:
  explicit Ops(const Backend& backend) : backend_(backend) {}

  template <auto Member, typename Op>
  void run(Op op) const {
    if constexpr (requires { op.workspace; }) op.workspace = lend(op);
    (backend_.*Member)(op);
  }

 private:
  template <typename Op>
  Workspace lend(const Op& op) const {
    const DeviceDescription device = device_of(backend_, 1);
    const int64_t bytes = workspace_bytes(op, device);
    if (!scratch_ || scratch_->lend().bytes < bytes) {
      scratch_.emplace(bytes, workspace_alignment(device));
    }
    return {scratch_->lend().data, bytes};
  }

  const Backend& backend_;
  mutable std::optional<Scratch> scratch_;
};

class Gradient : public testing::TestWithParam<const Backend* (*)()> {
 protected:
  void SetUp() override {
    const Backend* backend = GetParam()();
    if (backend == nullptr) GTEST_SKIP() << "STRATA_TEST_PLUGIN names no folder of the plugin";
    on_.emplace(*backend);
  }
  const Ops& on() const { return *on_; }

 private:
  std::optional<Ops> on_;
};

const Backend* plain_loops() {
  return &ref_backend();
}

INSTANTIATE_TEST_SUITE_P(PlainLoops, Gradient, testing::Values(plain_loops));
INSTANTIATE_TEST_SUITE_P(OnTheDevice, Gradient, testing::Values(tested_device));

TEST_P(Gradient, MatMul) {
  const Ops& on = this->on();
  constexpr int64_t kM = 3, kN = 4, kK = 5;
  Floats x = random_floats(kM * kK, 1), w = random_floats(kN * kK, 2), bias = random_floats(kN, 3);
  const Floats dy = random_floats(kM * kN, 4);
  const auto loss = [&] {
    Floats y(kM * kN);
    on.run<&Backend::matmul_forward>(MatMulForward{.rows = kM,
                                                   .outputs = kN,
                                                   .inputs = kK,
                                                   .x = x.data(),
                                                   .w = w.data(),
                                                   .bias = bias.data(),
                                                   .y = y.data()});
    return weighted_sum(y, dy);
  };
  Floats dx(x.size()), dw(w.size()), dbias(bias.size());
  on.run<&Backend::matmul_input>(MatMulInput{
      .rows = kM, .outputs = kN, .inputs = kK, .dy = dy.data(), .w = w.data(), .dx = dx.data()});
  on.run<&Backend::matmul_weight>(MatMulWeight{.rows = kM,
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

void check_rms_norm(const Ops& on, int64_t groups, float offset) {
  const int64_t kRows = 3, kCols = 7;
  Floats x = random_floats(kRows * groups * kCols, 1), w = random_floats(kCols, 2);
  for (float& value : x)
    value += value > 0 ? 0.5f : -0.5f;  // away from 0, where the third derivative is large
  const Floats dy = random_floats(kRows * groups * kCols, 3);
  Floats rstd(static_cast<size_t>(kRows * groups));
  const auto loss = [&] {
    Floats y(x.size());
    on.run<&Backend::rms_norm_forward>(RmsNormForward{.rows = kRows,
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
  on.run<&Backend::rms_norm_backward>(RmsNormBackward{.rows = kRows,
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

TEST_P(Gradient, RmsNorm) {
  check_rms_norm(on(), 1, 0.0f);
}
TEST_P(Gradient, RmsNormOfHeadsWithOffset) {
  check_rms_norm(on(), 2, 1.0f);
}

TEST_P(Gradient, RopeInverseIsTheTranspose) {
  const Ops& on = this->on();
  constexpr int64_t kRows = 4, kLength = 2, kHeads = 2, kSize = 6;
  Floats angle = random_floats(kLength * kSize / 2, 1), cos = angle, sin = angle;
  for (float& value : cos) value = std::cos(value);
  for (float& value : sin) value = std::sin(value);
  Floats x = random_floats(kRows * kHeads * kSize, 2);
  const Floats dy = random_floats(kRows * kHeads * kSize, 3);
  const auto rotated = [&](Floats values, bool inverse) {
    on.run<&Backend::rope>(Rope{.rows = kRows,
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

void check_attention(const Ops& on, int64_t window, float cap) {
  constexpr int64_t kBatch = 2, kLength = 5, kHeads = 4, kKvHeads = 2, kSize = 3;
  Floats q = random_floats(kBatch * kLength * kHeads * kSize, 1);
  Floats k = random_floats(kBatch * kLength * kKvHeads * kSize, 2);
  Floats v = random_floats(kBatch * kLength * kKvHeads * kSize, 3);
  const Floats d_o = random_floats(kBatch * kLength * kHeads * kSize, 4);
  Floats o(q.size()), lse(kBatch * kHeads * kLength);
  const auto loss = [&] {
    on.run<&Backend::attention_forward>(AttentionForward{.batch = kBatch,
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
                                                         .lse = lse.data()});
    return weighted_sum(o, d_o);
  };
  loss();
  Floats dq(q.size()), dk(k.size()), dv(v.size());
  on.run<&Backend::attention_backward>(AttentionBackward{.batch = kBatch,
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
                                                         .dv = dv.data()});
  expect_gradient(q, dq, loss);
  expect_gradient(k, dk, loss);
  expect_gradient(v, dv, loss);
}

TEST_P(Gradient, Attention) {
  check_attention(on(), 0, 0.0f);
}
TEST_P(Gradient, AttentionWithWindow) {
  check_attention(on(), 2, 0.0f);
}
TEST_P(Gradient, AttentionWithCap) {
  check_attention(on(), 3, 0.5f);
}

void check_glu(const Ops& on, Activation activation) {
  constexpr int64_t kRows = 2, kCols = 9;
  Floats g = random_floats(kRows * kCols, 1), u = random_floats(kRows * kCols, 2);
  for (float& value : g) value *= 4.0f;
  const Floats dh = random_floats(kRows * kCols, 3);
  const auto loss = [&] {
    Floats h(g.size());
    on.run<&Backend::glu_forward>(GluForward{.activation = activation,
                                             .rows = kRows,
                                             .cols = kCols,
                                             .g = g.data(),
                                             .u = u.data(),
                                             .h = h.data()});
    return weighted_sum(h, dh);
  };
  Floats dg(g.size()), du(u.size());
  on.run<&Backend::glu_backward>(GluBackward{.activation = activation,
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

TEST_P(Gradient, GluOfSilu) {
  check_glu(on(), Activation::kSilu);
}
TEST_P(Gradient, GluOfGelu) {
  check_glu(on(), Activation::kGeluTanh);
}

TEST_P(Gradient, Embedding) {
  const Ops& on = this->on();
  constexpr int64_t kRows = 5, kCols = 3, kVocabulary = 4;
  const int32_t tokens[kRows] = {2, 0, 2, 3, 2};
  Floats w = random_floats(kVocabulary * kCols, 1);
  const Floats dy = random_floats(kRows * kCols, 2);
  const auto loss = [&] {
    Floats out(kRows * kCols);
    on.run<&Backend::embedding_forward>(EmbeddingForward{.rows = kRows,
                                                         .cols = kCols,
                                                         .vocabulary = kVocabulary,
                                                         .scale = 1.5f,
                                                         .tokens = tokens,
                                                         .w = w.data(),
                                                         .out = out.data()});
    return weighted_sum(out, dy);
  };
  Floats dw(w.size(), 5.0f);
  on.run<&Backend::embedding_backward>(EmbeddingBackward{.rows = kRows,
                                                         .cols = kCols,
                                                         .vocabulary = kVocabulary,
                                                         .scale = 1.5f,
                                                         .tokens = tokens,
                                                         .dy = dy.data(),
                                                         .dw = dw.data()});
  expect_gradient(w, dw, loss);
  on.run<&Backend::embedding_backward>(EmbeddingBackward{.rows = kRows,
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

void check_linear_cross_entropy(const Ops& on, float cap) {
  constexpr int64_t kRows = 4, kCols = 3, kVocabulary = 6;
  const int32_t targets[kRows] = {5, -1, 0, 2};
  Floats h = random_floats(kRows * kCols, 1), w = random_floats(kVocabulary * kCols, 2);
  Floats dh(h.size()), dw(w.size());
  constexpr float kScale = 0.5f;
  const auto run = [&](bool gradients) {
    double loss = 0.0;
    const LinearCrossEntropy op = {.rows = kRows,
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
    on.run<&Backend::linear_cross_entropy>(op);
    return loss * kScale;
  };
  run(true);
  const Floats dh_kept = dh, dw_kept = dw;
  expect_gradient(h, dh_kept, [&] { return run(false); });
  expect_gradient(w, dw_kept, [&] { return run(false); });
}

TEST_P(Gradient, LinearCrossEntropy) {
  check_linear_cross_entropy(on(), 0.0f);
}
TEST_P(Gradient, LinearCrossEntropyWithCap) {
  check_linear_cross_entropy(on(), 0.8f);
}

}  // namespace
}  // namespace strata::kernels
