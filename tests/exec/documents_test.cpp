// SPDX-License-Identifier: Apache-2.0
// Documents that share a row give the losses and gradients that each gives in a row of its own, in
// every family: attention and learned positions begin anew with each document.
#include <gtest/gtest.h>

#include "engine/base/units.h"
#include "kernels/backend.h"
#include "tests/support/seeds.h"
#include "tests/support/small_run.h"
#include "tests/support/temporary_directory.h"

namespace strata::exec {
namespace {

constexpr int64_t kLength = 12;
constexpr int64_t kDocuments[] = {5, 3, 4};  // tokens of each

struct Document {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;
};

// The documents of a step.
std::vector<Document> documents_of(int64_t step, int64_t vocabulary) {
  const Philox random(7);
  std::vector<Document> documents;
  uint64_t at = static_cast<uint64_t>(step) * 100;
  for (const int64_t length : kDocuments) {
    Document& document = documents.emplace_back();
    for (int64_t t = 0; t < length; ++t, ++at) {
      const auto id = [&](uint64_t stream) {
        return static_cast<int32_t>(random.u64(at, stream) % static_cast<uint64_t>(vocabulary));
      };
      document.tokens.push_back(id(0));
      document.targets.push_back(t == 1 ? -1 : id(1));
    }
  }
  return documents;
}

void append(const Document& document, Instance& instance) {
  instance.tokens.insert(instance.tokens.end(), document.tokens.begin(), document.tokens.end());
  instance.targets.insert(instance.targets.end(), document.targets.begin(), document.targets.end());
}

// All documents in one row, and where they start behind it; or each in its row, with padding.
void fill(const plan::PlanInput& input, int64_t step, Instance& instance) {
  instance.tokens.clear();
  instance.targets.clear();
  std::vector<int32_t> starts;
  for (const Document& document : documents_of(step, input.spec->architecture.vocabulary)) {
    starts.insert(starts.end(), document.tokens.size(), static_cast<int32_t>(starts.size()));
    append(document, instance);
    if (input.shape.documents) continue;
    const size_t rows = round_up(std::ssize(instance.tokens), kLength);
    instance.tokens.resize(rows, 0);
    instance.targets.resize(rows, -1);
  }
  if (input.shape.documents) {
    instance.tokens.insert(instance.tokens.end(), starts.begin(), starts.end());
  }
  instance.target_count = std::ranges::count_if(instance.targets, [](int id) { return id >= 0; });
}

TEST(Documents, ThatShareARowTrainAsIfEachWereAlone) {
  for (uint64_t seed = 1; seed <= test::seeds(30); ++seed) {
    SCOPED_TRACE(seed);
    test::Draw draw(400 + seed);
    const model::ModelSpec spec = test::random_spec(draw, 1, false);
    SCOPED_TRACE(spec.architecture.model_type);
    plan::PlanInput input = test::random_input(draw, spec, 1);
    input.recipe = Recipe::kFp32;
    input.device = {.threads = 2};
    input.micro_batches = 1;
    test::TemporaryDirectory directory;
    const auto run = [&](model::BatchShape shape, const kernels::Backend& backend) {
      input.shape = shape;
      test::RunOptions options = {.backend = &backend, .directory = directory.path()};
      options.fill = [&](int64_t step, Instance& instance) { fill(input, step, instance); };
      return test::small_run(input, test::all_in_memory(input), options);
    };
    for (const kernels::Backend* backend : {&kernels::ref_backend(), &kernels::cpu_backend()}) {
      const auto together = run({.rows = 1, .length = kLength, .documents = true}, *backend);
      const auto alone = run({.rows = 3, .length = kLength}, *backend);
      for (size_t step = 0; step < alone.losses.size(); ++step) {
        EXPECT_NEAR(together.losses[step], alone.losses[step], 1e-5 * alone.losses[step]);
        EXPECT_NEAR(together.norms[step], alone.norms[step], 1e-5 * alone.norms[step]);
      }
      const auto mixed = run({.rows = 1, .length = kLength}, *backend);
      EXPECT_GT(std::abs(mixed.losses[0] - alone.losses[0]), 1e-5) << "documents see each other";
    }
  }
}

}  // namespace
}  // namespace strata::exec
