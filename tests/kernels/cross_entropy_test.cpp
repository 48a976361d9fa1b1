// SPDX-License-Identifier: Apache-2.0
// The chunked loss equals the plain loops within rounding: odd vocabularies, ignored targets,
// several chunks, bf16 weights, forward only, accumulation, dh over h; the same bits for any thread
// count.
#include <fmt/format.h>

#include "tests/kernels/kernel_case.h"

namespace strata::kernels {
namespace {

struct Setting {
  int64_t rows, cols, vocabulary;
  DType dtype;
  bool gradients, accumulate, in_place;
  float cap = 0.0f;
};

std::vector<int32_t> targets_of(int64_t rows, int64_t vocabulary) {
  std::vector<int32_t> targets;
  for (int64_t row = 0; row < rows; ++row) {
    targets.push_back(row % 5 == 3 ? -1 : static_cast<int32_t>(row * 7919 % vocabulary));
  }
  return targets;
}

KernelCase loss_case(const Setting& s) {
  const auto run = [=](const Backend& backend, int threads) {
    Floats h = random_floats(s.rows * s.cols, 1);
    for (float& value : h) value *= 3.0f;
    Typed w(s.dtype, random_floats(s.vocabulary * s.cols, 2));
    const auto targets = targets_of(s.rows, s.vocabulary);
    Floats dh = s.in_place ? h : Floats(h.size(), 9.0f);
    Floats dw = random_floats(s.vocabulary * s.cols, 3);
    double loss = -1.0;
    LinearCrossEntropy op = {.dtype = s.dtype,
                             .rows = s.rows,
                             .cols = s.cols,
                             .vocabulary = s.vocabulary,
                             .cap = s.cap,
                             .h = s.in_place ? dh.data() : h.data(),
                             .w = w.data(),
                             .targets = targets.data(),
                             .grad_scale = 0.25f,
                             .loss_sum = &loss,
                             .dh = s.gradients ? dh.data() : nullptr,
                             .dw = s.gradients ? dw.data() : nullptr,
                             .accumulate = s.accumulate};
    Scratch scratch(workspace_bytes(op, device_of(backend, threads)));
    op.workspace = scratch.lend();
    backend.linear_cross_entropy(op);
    return std::vector<Floats>{{static_cast<float>(loss)}, dh, dw};
  };
  // Logits of magnitude 30 carry 2e-6 of rounding into exp.
  return {fmt::format("N{} C{} V{} {}{}{}{}{}", s.rows, s.cols, s.vocabulary, name_of(s.dtype),
                      s.gradients ? " gradients" : "", s.accumulate ? " accumulate" : "",
                      s.in_place ? " in place" : "", s.cap > 0 ? " capped" : ""),
          1e-5f, run};
}

TEST(LinearCrossEntropy, AgreesWithRefAndRepeats) {
  expect_agrees_and_repeats({loss_case({1, 8, 1, DType::kF32, true, false, false}),
                             loss_case({7, 40, 997, DType::kF32, true, false, false}),
                             loss_case({7, 40, 997, DType::kF32, true, true, true}),
                             loss_case({33, 24, 5000, DType::kBF16, true, false, true}),
                             loss_case({33, 24, 5000, DType::kBF16, false, false, false}),
                             loss_case({7, 40, 997, DType::kF32, true, true, true, 5.0f}),
                             loss_case({33, 24, 5000, DType::kBF16, false, false, false, 30.0f}),
                             loss_case({1100, 16, 50, DType::kF32, true, false, true})});
}

TEST(LinearCrossEntropy, ChunkNeedsBoundedMemoryForAnyVocabulary) {
  EXPECT_EQ(cross_entropy_chunk_rows(32000), 256);
  EXPECT_EQ(cross_entropy_chunk_rows(997), 1024);
  EXPECT_EQ(cross_entropy_chunk_rows(128256), 128);
}

TEST(LinearCrossEntropy, WithoutTargetsThereIsNoLossAndNoGradient) {
  for (const Backend* backend : {&ref_backend(), &cpu_backend()}) {
    Floats h = random_floats(3 * 8, 1);
    Floats w = random_floats(20 * 8, 2);
    const std::vector<int32_t> targets(3, -1);
    Floats dh(24, 1.0f);
    Floats dw(160, 1.0f);
    double loss = 1.0;
    LinearCrossEntropy op = {.rows = 3,
                             .cols = 8,
                             .vocabulary = 20,
                             .h = h.data(),
                             .w = w.data(),
                             .targets = targets.data(),
                             .loss_sum = &loss,
                             .dh = dh.data(),
                             .dw = dw.data()};
    Scratch scratch(workspace_bytes(op, 1));
    op.workspace = scratch.lend();
    Parallel(1).run([&] { backend->linear_cross_entropy(op); });
    EXPECT_EQ(loss, 0.0);
    EXPECT_EQ(dh, Floats(24, 0.0f));
    EXPECT_EQ(dw, Floats(160, 0.0f));
  }
}

}  // namespace
}  // namespace strata::kernels
