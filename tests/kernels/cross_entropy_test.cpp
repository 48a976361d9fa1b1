// SPDX-License-Identifier: Apache-2.0
// The chunked loss equals the plain loops within rounding: odd vocabularies, ignored targets,
// several chunks, bf16 weights, forward only, accumulation, dh over h; the same bits for any thread
// count. Parts of the vocabulary give the loss and the gradients of the whole.
#include <fmt/format.h>

#include "tests/kernels/vocabulary_parts.h"

namespace strata::kernels {
namespace {

struct Setting {
  int64_t rows, cols, vocabulary;
  DType dtype;
  bool gradients, accumulate, in_place;
  float cap = 0.0f;
  int parts = 0;  // of the vocabulary; 0: one call
};

std::vector<int32_t> targets_of(int64_t rows, int64_t vocabulary) {
  std::vector<int32_t> targets;
  for (int64_t row = 0; row < rows; ++row) {
    targets.push_back(row % 5 == 3 ? -1 : static_cast<int32_t>(row * 7919 % vocabulary));
  }
  return targets;
}

void run_on(const Backend& backend, int threads, LinearCrossEntropy op) {
  Scratch scratch(workspace_bytes(op, device_of(backend, threads)));
  op.workspace = scratch.lend();
  backend.linear_cross_entropy(op);
}

// The loss, the sum of all ranks' dh, dw, and the scores. Every rank has the same loss.
std::vector<Floats> outputs_of(const ResultsOfParts& parts, const Floats& dw) {
  Floats dh(parts.dh[0].size());
  for (const Floats& part : parts.dh) {
    for (size_t i = 0; i < dh.size(); ++i) dh[i] += part[i];
  }
  EXPECT_EQ(parts.loss, std::vector<double>(parts.loss.size(), parts.loss[0]));
  return {{static_cast<float>(parts.loss[0])}, dh, dw, parts.scores};
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
    const LinearCrossEntropy op = {.dtype = s.dtype,
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
    const auto run_one = [&](const LinearCrossEntropy& one) { run_on(backend, threads, one); };
    if (s.parts > 0) return outputs_of(run_by_parts(op, s.parts, run_one), dw);
    run_one(op);
    return std::vector<Floats>{{static_cast<float>(loss)}, dh, dw};
  };
  // Logits of magnitude 30 carry 2e-6 of rounding into exp.
  return {fmt::format("N{} C{} V{} {}{}{}{}{}{}", s.rows, s.cols, s.vocabulary, name_of(s.dtype),
                      s.gradients ? " gradients" : "", s.accumulate ? " accumulate" : "",
                      s.in_place ? " in place" : "", s.cap > 0 ? " capped" : "",
                      s.parts > 0 ? fmt::format(" in {} parts", s.parts) : ""),
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
                             loss_case({33, 24, 997, DType::kF16, true, true, false}),
                             loss_case({1100, 16, 50, DType::kF32, true, false, true})});
}

const Setting kByParts[] = {{1, 8, 11, DType::kF32, true, false, false},
                            {7, 40, 997, DType::kF32, true, false, false},
                            {7, 40, 997, DType::kF32, true, true, true},
                            {7, 40, 997, DType::kF32, true, true, true, 5.0f},
                            {7, 40, 997, DType::kF32, false, false, false, 5.0f},
                            {33, 24, 5000, DType::kBF16, true, false, true},
                            {33, 24, 5000, DType::kBF16, true, true, false, 30.0f},
                            {33, 24, 5000, DType::kBF16, false, false, false},
                            {7, 40, 997, DType::kF16, true, false, true},
                            {1100, 16, 50, DType::kF32, true, false, true}};

TEST(LinearCrossEntropy, OfPartsAgreesWithRefAndRepeats) {
  for (Setting setting : kByParts) {
    setting.parts = 3;
    expect_agrees_and_repeats({loss_case(setting)});
  }
}

TEST(LinearCrossEntropy, PartsOfTheVocabularyGiveTheWhole) {
  for (Setting setting : kByParts) {
    const auto whole = run_with_threads(loss_case(setting), ref_backend(), 1);
    const size_t compared = setting.gradients ? 3 : 1;
    for (setting.parts = 1; setting.parts <= 4; ++setting.parts) {
      const KernelCase one = loss_case(setting);
      for (const Backend* backend : {&ref_backend(), &cpu_backend(), &twin_backend()}) {
        SCOPED_TRACE(one.name + " on " + backend->name);
        const auto found = run_with_threads(one, *backend, 2);
        for (size_t i = 0; i < compared; ++i) {
          EXPECT_LE(largest_difference(found[i], whole[i]), one.tolerance) << "output " << i;
        }
      }
    }
  }
}

// Logit 0 of one rank, and logits -300, 300 and 1 of the other.
TEST(LinearCrossEntropy, LogitsOfPartsMayBeFarApart) {
  for (const Backend* backend : {&ref_backend(), &cpu_backend(), &twin_backend()}) {
    SCOPED_TRACE(backend->name);
    const Floats h = {1.0f, 1.0f}, w = {0.0f, -300.0f, 300.0f, 1.0f};
    const std::vector<int32_t> targets = {0, 2};
    Floats dh(2), dw(4);
    const LinearCrossEntropy whole = {.rows = 2,
                                      .cols = 1,
                                      .vocabulary = 4,
                                      .h = h.data(),
                                      .w = w.data(),
                                      .targets = targets.data(),
                                      .dh = dh.data(),
                                      .dw = dw.data()};
    ResultsOfParts parts;
    Parallel(1).run([&] {
      parts =
          run_by_parts(whole, 2, [&](const LinearCrossEntropy& op) { run_on(*backend, 1, op); });
    });
    EXPECT_EQ(parts.scores, (Floats{0.0f, 1.0f, 0.0f, 0.0f, 1.0f, 0.0f,  // rank 0 has target 0
                                    300.0f, 1.0f, 0.0f, 300.0f, 1.0f, 300.0f}));
    EXPECT_EQ(parts.loss, (std::vector<double>{300.0, 300.0}));
    EXPECT_EQ(parts.dh, (std::vector<Floats>{{0.0f, 0.0f}, {300.0f, 0.0f}}));
    EXPECT_EQ(dw, (Floats{-1.0f, 0.0f, 1.0f, 0.0f}));
  }
}

TEST(LinearCrossEntropy, ACallHasTheOperandsOfOneKind) {
  Floats floats(8);
  double loss = 0.0;
  const LinearCrossEntropy whole = {.rows = 1,
                                    .cols = 2,
                                    .vocabulary = 4,
                                    .w = floats.data(),
                                    .loss_sum = &loss,
                                    .dh = floats.data()};
  LinearCrossEntropy scoring = part_of(whole, 1, 2), second = scoring;
  scoring.scores = floats.data();
  scoring.loss_sum = nullptr;
  scoring.dh = nullptr;
  second.all_scores = floats.data();
  second.ranks = 2;
  EXPECT_TRUE(is_one_call(whole) && is_one_call(scoring) && is_one_call(second));
  const auto changed = [](LinearCrossEntropy op, const auto& change) {
    change(op);
    return is_one_call(op);
  };
  using Op = LinearCrossEntropy;
  EXPECT_FALSE(changed(whole, [](Op& op) { op.loss_sum = nullptr; }));
  EXPECT_FALSE(changed(whole, [](Op& op) { op.vocabulary_end = 5; }));
  EXPECT_FALSE(changed(scoring, [&](Op& op) { op.loss_sum = &loss; }));
  EXPECT_FALSE(changed(scoring, [&](Op& op) { op.dh = floats.data(); }));
  EXPECT_FALSE(changed(scoring, [&](Op& op) { op.all_scores = floats.data(); }));
  EXPECT_FALSE(changed(second, [](Op& op) { op.loss_sum = nullptr; }));
  EXPECT_FALSE(changed(second, [](Op& op) { op.ranks = 0; }));
  EXPECT_FALSE(changed(second, [](Op& op) { op.first = 3; }));
}

TEST(LinearCrossEntropyDeath, ATargetBeyondTheWholeVocabularyStops) {
  Floats floats(8);
  const int32_t target = 4;
  LinearCrossEntropy op = part_of(
      {.rows = 1, .cols = 2, .vocabulary = 4, .h = floats.data(), .w = floats.data()}, 0, 2);
  op.targets = &target;
  op.scores = floats.data();
  for (const Backend* backend : {&ref_backend(), &cpu_backend(), &twin_backend()}) {
    EXPECT_DEATH(Parallel(1).run([&] { run_on(*backend, 1, op); }), "targets");
  }
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
