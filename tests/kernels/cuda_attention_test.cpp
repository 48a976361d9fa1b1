// SPDX-License-Identifier: Apache-2.0
// Into which parts a backward is cut for cuDNN, and that the parts are the whole, on a GPU.
#include "kernels/cuda/sizes.h"
#include "tests/kernels/drawn_case.h"
#include "tests/kernels/tested_device.h"

namespace strata::kernels {
namespace {

TEST(FusedParts, AreWholeSequencesOrKeyHeadsOfOne) {
  const auto parts = [](int64_t batch, int64_t length, int64_t heads, int64_t kv_heads) {
    const AttentionBackward op = {
        .batch = batch, .length = length, .heads = heads, .kv_heads = kv_heads, .head_size = 128};
    const cuda::FusedParts one = cuda::fused_parts(op, DType::kBF16);
    EXPECT_LE(one.bytes, cuda::bytes_needed(op, DType::kBF16));
    return std::pair(one.batch, one.kv_heads);
  };
  EXPECT_EQ(parts(8, 512, 32, 8), std::pair(int64_t{8}, int64_t{8})) << "one call";
  EXPECT_EQ(parts(7, 4096, 32, 8), std::pair(int64_t{1}, int64_t{8}));
  EXPECT_EQ(parts(7, 2048, 32, 8), std::pair(int64_t{4}, int64_t{8}));
  EXPECT_EQ(parts(2, 8192, 64, 8), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(parts(1, 16000, 64, 8), std::pair(int64_t{1}, int64_t{1})) << "beyond a part";
  EXPECT_EQ(parts(1, 131072, 64, 8), std::pair(int64_t{0}, int64_t{0})) << "not asked";
  EXPECT_EQ(parts(1, 1, 1, 1), std::pair(int64_t{1}, int64_t{1}));
  EXPECT_EQ(parts(1, 4096, 40, 40), std::pair(int64_t{1}, int64_t{37}));
  EXPECT_EQ(parts(1, 4095, 40, 40), std::pair(int64_t{1}, int64_t{36})) << "16 bytes of f32";
  EXPECT_EQ(parts(2, 8191, 18, 18).first, 0) << "the second sequence begins within 16 bytes";
  EXPECT_EQ(parts(2, 8191, 20, 20), std::pair(int64_t{1}, int64_t{8}));
}

// A plugin that finds cuDNN and never uses it would be right, and slow.
TEST(CudaAttention, OnTheDeviceIsOfCudnnWhereThatIs) {
  const TestedDevice* tested = tested_gpu();
  if (tested == nullptr) GTEST_SKIP() << "STRATA_TEST_PLUGIN names no folder of the plugin";
  if (tested->facts.software.find("cuDNN 9") == std::string::npos) {
    GTEST_SKIP() << tested->facts.software;
  }
  constexpr int64_t kRows = 2 * 256, kHeads = 4, kKeyHeads = 2, kSize = 64;
  Draw draw(DType::kBF16, DType::kBF16, 1);
  draw.aligned = true;
  const auto drawn = [&](int64_t heads, uint64_t seed) {
    return Drawn(draw, DType::kBF16, kRows * heads * kSize, seed);
  };
  Drawn q = drawn(kHeads, 1), k = drawn(kKeyHeads, 2), v = drawn(kKeyHeads, 3);
  Drawn o = drawn(kHeads, 4), d_o = drawn(kHeads, 5), dq = drawn(kHeads, 6);
  Drawn dk = drawn(kKeyHeads, 7), dv = drawn(kKeyHeads, 8);
  Drawn lse(draw, DType::kF32, kRows * kHeads, 9);
  const auto fused_by = [&](const auto& run) {
    const int64_t before = tested->device->fused_ops();
    run();
    return tested->device->fused_ops() - before;
  };
  const auto op_of = [&](auto op) {
    op.batch = 2;
    op.length = kRows / 2;
    op.heads = kHeads;
    op.kv_heads = kKeyHeads;
    op.head_size = kSize;
    op.scale = 0.125f;
    op.q = q;
    op.k = k;
    op.v = v;
    op.o = o;
    op.lse = lse.floats();
    return op;
  };
  AttentionForward forward = op_of(AttentionForward());
  const AttentionBackward backward =
      op_of(AttentionBackward{.d_o = d_o, .dq = dq, .dk = dk, .dv = dv});
  const Backend& backend = tested->backend;
  EXPECT_EQ(fused_by([&] { run_op<&Backend::attention_forward>(backend, draw, forward); }), 1);
  EXPECT_EQ(fused_by([&] { run_op<&Backend::attention_backward>(backend, draw, backward); }), 1);
  forward.cap = 2.0f;
  EXPECT_EQ(fused_by([&] { run_op<&Backend::attention_forward>(backend, draw, forward); }), 0);
}

// A backward whose scores are too many for one call of cuDNN's, against a call for each sequence
// and key head.
TEST(CudaAttention, OnTheDeviceABackwardInPartsEqualsItsParts) {
  const Backend* device = tested_device();
  if (device == nullptr) GTEST_SKIP() << "STRATA_TEST_PLUGIN names no folder of the plugin";
  constexpr int64_t kBatch = 2, kLength = 8192, kHeads = 12, kKeyHeads = 6, kSize = 64;
  constexpr int64_t kGroup = kHeads / kKeyHeads, kRows = kBatch * kLength;
  Draw draw(DType::kBF16, DType::kBF16, 1);
  draw.aligned = true;
  const auto drawn = [&](int64_t heads, uint64_t seed) {
    return Drawn(draw, DType::kBF16, kRows * heads * kSize, seed);
  };
  Drawn q = drawn(kHeads, 1), k = drawn(kKeyHeads, 2), v = drawn(kKeyHeads, 3);
  Drawn o = drawn(kHeads, 4), d_o = drawn(kHeads, 5);
  Drawn lse(draw, DType::kF32, kRows * kHeads, 6);
  AttentionForward forward = {.batch = kBatch,
                              .length = kLength,
                              .heads = kHeads,
                              .kv_heads = kKeyHeads,
                              .head_size = kSize,
                              .scale = 0.125f,
                              .q = q,
                              .k = k,
                              .v = v,
                              .o = o,
                              .lse = lse.floats()};
  const cuda::FusedParts cut = cuda::fused_parts({.batch = kBatch,
                                                  .length = kLength,
                                                  .heads = kHeads,
                                                  .kv_heads = kKeyHeads,
                                                  .head_size = kSize},
                                                 DType::kBF16);
  ASSERT_EQ(cut.batch, 1);
  ASSERT_EQ(cut.kv_heads, 4) << "and two heads remain";
  run_op<&Backend::attention_forward>(*device, draw, forward);
  const auto backward = [&](Drawn& dq, Drawn& dk, Drawn& dv, int64_t batch, int64_t heads) {
    for (int64_t first = 0; first < kBatch; first += batch) {
      for (int64_t head = 0; head < kKeyHeads; head += heads) {
        const auto part = [&](Drawn& whole, int64_t group) -> Interior {
          const int64_t at = (first * kLength * kKeyHeads + head) * group * kSize;
          return Interior(whole) + at;
        };
        run_op<&Backend::attention_backward>(
            *device, draw,
            AttentionBackward{.batch = batch,
                              .length = kLength,
                              .heads = heads * kGroup,
                              .kv_heads = heads,
                              .head_size = kSize,
                              .scale = 0.125f,
                              .q = part(q, kGroup),
                              .q_stride = kHeads * kSize,
                              .k = part(k, 1),
                              .k_stride = kKeyHeads * kSize,
                              .v = part(v, 1),
                              .v_stride = kKeyHeads * kSize,
                              .o = part(o, kGroup),
                              .o_stride = kHeads * kSize,
                              .lse = lse.floats() + (first * kHeads + head * kGroup) * kLength,
                              .d_o = part(d_o, kGroup),
                              .d_o_stride = kHeads * kSize,
                              .dq = part(dq, kGroup),
                              .dq_stride = kHeads * kSize,
                              .dk = part(dk, 1),
                              .dk_stride = kKeyHeads * kSize,
                              .dv = part(dv, 1),
                              .dv_stride = kKeyHeads * kSize});
      }
    }
  };
  Drawn whole[] = {drawn(kHeads, 7), drawn(kKeyHeads, 8), drawn(kKeyHeads, 9)};
  Drawn parts[] = {drawn(kHeads, 10), drawn(kKeyHeads, 11), drawn(kKeyHeads, 12)};
  backward(whole[0], whole[1], whole[2], kBatch, kKeyHeads);
  backward(parts[0], parts[1], parts[2], 1, 1);
  for (int i = 0; i < 3; ++i) {
    EXPECT_LE(largest_difference(whole[i].values(), parts[i].values()), kBf16Tolerance) << i;
  }
}

}  // namespace
}  // namespace strata::kernels
