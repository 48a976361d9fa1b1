// SPDX-License-Identifier: Apache-2.0
// Tiled attention equals the plain loops within rounding: lengths off the tile, head sizes off the
// vector, grouped heads, windows, fused buffers; the same bits for any thread count.
#include <fmt/format.h>

#include <algorithm>

#include "tests/kernels/kernel_case.h"

namespace strata::kernels {
namespace {

struct AttentionShape {
  int64_t batch, length, heads, kv_heads, head_size, window;
};

constexpr AttentionShape kAttentionShapes[] = {
    {1, 1, 1, 1, 8, 0},    {2, 7, 4, 2, 6, 0},     {1, 64, 2, 1, 16, 0},  {1, 65, 5, 5, 40, 0},
    {2, 130, 4, 2, 64, 0}, {1, 150, 12, 4, 32, 0}, {1, 70, 8, 8, 128, 0}, {2, 200, 4, 2, 16, 50},
    {1, 200, 3, 3, 24, 1}, {1, 140, 16, 8, 8, 64}, {3, 33, 9, 3, 20, 0}};

// q, k, v side by side in one buffer, as a fused projection leaves them.
struct Fused {
  int64_t q_cols, kv_cols, stride;
  Floats qkv;
};

Fused fused(const AttentionShape& s, uint64_t seed) {
  const int64_t q_cols = s.heads * s.head_size;
  const int64_t kv_cols = s.kv_heads * s.head_size;
  const int64_t stride = q_cols + 2 * kv_cols;
  return {q_cols, kv_cols, stride, random_floats(s.batch * s.length * stride, seed)};
}

enum class Documents : uint8_t { kOne, kDrawn };

KernelCase attention_case(const AttentionShape& s, float spread, float cap = 0.0f,
                          Documents documents = Documents::kOne) {
  const auto run = [=](const Backend& backend, int threads) {
    const std::vector<int32_t> starts = drawn_starts(s.batch, s.length, 17);
    const int32_t* given_starts = documents == Documents::kOne ? nullptr : starts.data();
    Fused in = fused(s, 1);
    for (float& value : in.qkv) value *= spread;
    const int64_t rows = s.batch * s.length;
    Floats o(static_cast<size_t>(rows * in.q_cols));
    Floats lse(static_cast<size_t>(s.batch * s.heads * s.length));
    AttentionForward forward = {.batch = s.batch,
                                .length = s.length,
                                .heads = s.heads,
                                .kv_heads = s.kv_heads,
                                .head_size = s.head_size,
                                .scale = 1.0f / std::sqrt(static_cast<float>(s.head_size)),
                                .cap = cap,
                                .window = s.window,
                                .starts = given_starts,
                                .q = in.qkv.data(),
                                .q_stride = in.stride,
                                .k = in.qkv.data() + in.q_cols,
                                .k_stride = in.stride,
                                .v = in.qkv.data() + in.q_cols + in.kv_cols,
                                .v_stride = in.stride,
                                .o = o.data(),
                                .lse = lse.data()};
    Scratch forward_scratch(workspace_bytes(forward, device_of(backend, threads)));
    forward.workspace = forward_scratch.lend();
    backend.attention_forward(forward);
    Floats d_o = random_floats(rows * in.q_cols, 2);
    Floats d_qkv(in.qkv.size(), -7.0f);
    AttentionBackward backward = {.batch = s.batch,
                                  .length = s.length,
                                  .heads = s.heads,
                                  .kv_heads = s.kv_heads,
                                  .head_size = s.head_size,
                                  .scale = forward.scale,
                                  .cap = cap,
                                  .window = s.window,
                                  .starts = given_starts,
                                  .q = forward.q,
                                  .q_stride = in.stride,
                                  .k = forward.k,
                                  .k_stride = in.stride,
                                  .v = forward.v,
                                  .v_stride = in.stride,
                                  .o = o.data(),
                                  .lse = lse.data(),
                                  .d_o = d_o.data(),
                                  .dq = d_qkv.data(),
                                  .dq_stride = in.stride,
                                  .dk = d_qkv.data() + in.q_cols,
                                  .dk_stride = in.stride,
                                  .dv = d_qkv.data() + in.q_cols + in.kv_cols,
                                  .dv_stride = in.stride};
    Scratch backward_scratch(workspace_bytes(backward, device_of(backend, threads)));
    backward.workspace = backward_scratch.lend();
    backend.attention_backward(backward);
    return std::vector<Floats>{o, lse, d_qkv};
  };
  // Scores of magnitude up to spread^2 * sqrt(D) enter exp: an f32 score's rounding times that is
  // the error.
  return {fmt::format("B{} T{} H{} K{} D{} window {} spread {} cap {}{}", s.batch, s.length,
                      s.heads, s.kv_heads, s.head_size, s.window, spread, cap,
                      documents == Documents::kOne ? "" : ", documents"),
          spread > 1.0f ? 5e-5f : 3e-6f, run};
}

TEST(Attention, AgreesWithRefAndRepeats) {
  std::vector<KernelCase> cases;
  for (const AttentionShape& shape : kAttentionShapes) {
    cases.push_back(attention_case(shape, 1.0f));
    cases.push_back(attention_case(shape, 1.0f, 0.0f, Documents::kDrawn));
  }
  cases.push_back(
      attention_case({1, 100, 4, 2, 32, 0}, 6.0f));  // scores near 100: exp must not overflow
  // Scores near 100 lie flat at the cap; those of the others are bent.
  cases.push_back(attention_case({1, 100, 4, 2, 32, 0}, 6.0f, 50.0f));
  cases.push_back(attention_case({2, 70, 4, 1, 24, 20}, 1.0f, 0.5f));
  expect_agrees_and_repeats(cases);
}

// A later token must not move an earlier output, bit for bit, whatever shares its tile.
TEST(Attention, FutureTokensDoNotReachThePast) {
  const AttentionShape s = {1, 100, 2, 1, 16, 0};
  Fused in = fused(s, 3);
  const auto outputs = [&](int64_t changed_from) {
    Floats qkv = in.qkv;
    std::fill(qkv.begin() + changed_from * in.stride, qkv.end(), 0.5f);
    Floats o(static_cast<size_t>(s.length * in.q_cols));
    Floats lse(static_cast<size_t>(s.heads * s.length));
    AttentionForward op = {.batch = 1,
                           .length = s.length,
                           .heads = s.heads,
                           .kv_heads = s.kv_heads,
                           .head_size = s.head_size,
                           .q = qkv.data(),
                           .q_stride = in.stride,
                           .k = qkv.data() + in.q_cols,
                           .k_stride = in.stride,
                           .v = qkv.data() + in.q_cols + in.kv_cols,
                           .v_stride = in.stride,
                           .o = o.data(),
                           .lse = lse.data()};
    Scratch scratch(workspace_bytes(op, 2));
    op.workspace = scratch.lend();
    Parallel(2).run([&] { cpu_backend().attention_forward(op); });
    o.resize(static_cast<size_t>(50 * in.q_cols));
    return o;
  };
  EXPECT_TRUE(same_bits(outputs(50), outputs(100)));
  EXPECT_FALSE(same_bits(outputs(49), outputs(100)));
}

}  // namespace
}  // namespace strata::kernels
