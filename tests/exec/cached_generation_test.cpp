// SPDX-License-Identifier: Apache-2.0
// With a cache of keys and values, logits equal those of passes over the whole text, for models of
// every family; and their bits depend on the text alone: not on how it is divided among passes, on
// other texts, on placement, device or threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>

#include "engine/exec/executor.h"
#include "engine/plan/builder.h"
#include "engine/plan/verifier.h"
#include "kernels/emulated/device_emulated.h"
#include "tests/support/random_runs.h"
#include "tests/support/random_state.h"
#include "tests/support/seeds.h"
#include "tests/support/temporary_directory.h"

namespace strata {
namespace {

using TextTokens = std::vector<int32_t>;
using TextLogits = std::vector<std::vector<float>>;  // by position

struct CachedSetting {
  const kernels::Backend* backend;
  int threads = 1;
  std::string directory;
};

// An executor for generation with random weights.
class CachedModel {
 public:
  CachedModel(const plan::PlanInput& input, const plan::Placement& placement,
              const CachedSetting& setting)
      : input_(input), source_(*input.spec, 5), plan_(plan::build_plan(input, placement)) {
    const plan::VerifyReport report = plan::verify(plan_, *input.spec);
    for (const plan::Violation& violation : report.violations) {
      ADD_FAILURE() << violation.kind << ": " << violation.text;
    }
    exec::ExecutorOptions options;
    options.backend = setting.backend;
    options.threads = setting.threads;
    options.volume.directories = {setting.directory};
    options.volume.allow_memory_filesystem = true;
    options.io_backend = io::Backend::kThreads;
    options.frozen = &source_;
    if (input.device.discrete) {
      device_ = kernels::make_emulated_device(*setting.backend, {.threads = setting.threads});
      options.device = device_.get();
    }
    executor_ = std::make_unique<exec::Executor>(plan_, *input.spec, options);
    exec::Instance load;
    load.program = plan::ProgramName::kLoad;
    load.source = &source_;
    executor_->run(load);
    generate_.program = plan::ProgramName::kGenerate;
  }

  int64_t vocabulary() const { return input_.spec->architecture.vocabulary; }

  // The logits after each token, by passes over all of them.
  TextLogits over_the_whole(const TextTokens& text) {
    TextLogits logits;
    for (size_t i = 0; i < text.size(); ++i) {
      generate_.tokens = text;
      generate_.tokens.resize(static_cast<size_t>(input_.shape.length));
      generate_.logit_position = {static_cast<int32_t>(i)};
      generate_.logits.resize(static_cast<size_t>(vocabulary()));
      executor_->run(generate_);
      logits.push_back(generate_.logits);
    }
    return logits;
  }

  struct Part {
    int32_t row, text;
    int64_t first, count;
  };
  // One pass over parts of texts; adds to logits[text] those after each part's last token.
  void pass(const std::vector<Part>& parts, const std::vector<TextTokens>& texts,
            std::vector<TextLogits>& logits) {
    TextTokens tokens, rows, positions;
    generate_.logit_position.clear();
    for (const Part& part : parts) {
      for (int64_t i = part.first; i < part.first + part.count; ++i) {
        tokens.push_back(texts[static_cast<size_t>(part.text)][static_cast<size_t>(i)]);
        rows.push_back(part.row);
        positions.push_back(static_cast<int32_t>(i));
      }
      generate_.logit_position.push_back(static_cast<int32_t>(tokens.size()) - 1);
    }
    generate_.token_count = std::ssize(tokens);
    generate_.logit_count = std::ssize(parts);
    generate_.tokens = tokens;
    generate_.tokens.insert(generate_.tokens.end(), rows.begin(), rows.end());
    generate_.tokens.insert(generate_.tokens.end(), positions.begin(), positions.end());
    generate_.tokens.resize(static_cast<size_t>(3 * input_.shape.length));
    generate_.logit_position.resize(static_cast<size_t>(input_.shape.cache_rows));
    generate_.logits.resize(static_cast<size_t>(input_.shape.cache_rows * vocabulary()));
    executor_->run(generate_);
    auto from = generate_.logits.begin();
    for (const Part& part : parts) {
      TextLogits& of = logits[static_cast<size_t>(part.text)];
      of.resize(texts[static_cast<size_t>(part.text)].size());
      of[static_cast<size_t>(part.first + part.count - 1)] = {from, from + vocabulary()};
      from += vocabulary();
    }
  }

 private:
  const plan::PlanInput input_;
  test::RandomSource source_;
  const plan::Plan plan_;
  std::unique_ptr<kernels::Device> device_;
  std::unique_ptr<exec::Executor> executor_;
  exec::Instance generate_;
};

class CachedGeneration : public ::testing::Test {
 protected:
  static constexpr int64_t kLongest = 20;

  // A model of a family with everything frozen.
  static model::ModelSpec spec_of(test::Draw& draw, const model::Family& family) {
    model::Architecture at = test::random_architecture(draw);
    test::become_family(draw, family, at);
    model::ModelSpec spec = model::build_spec(at);
    for (model::Segment& segment : spec.segments) {
      for (model::Parameter& parameter : segment.parameters) parameter.frozen = true;
    }
    model::assign_offsets(spec, 1);
    return spec;
  }

  static plan::PlanInput input_of(const model::ModelSpec& spec, Recipe recipe,
                                  const model::BatchShape& shape) {
    plan::PlanInput input;
    input.spec = &spec;
    input.recipe = recipe;
    input.shape = shape;
    input.mode = plan::OptimizerMode::kInBackward;
    input.device.threads = 2;
    input.inference = true;
    input.frozen_in_source = true;
    input.nvme_budget = int64_t{1} << 40;
    return input;
  }

  static std::vector<TextTokens> texts_of(test::Draw& draw, int64_t count, int64_t vocabulary) {
    std::vector<TextTokens> texts;
    for (int64_t i = 0; i < count; ++i) {
      TextTokens& text = texts.emplace_back();
      const int64_t length = i == 0 ? kLongest : draw.between(1, kLongest);
      while (std::ssize(text) < length) {
        text.push_back(static_cast<int32_t>(draw.below(vocabulary)));
      }
    }
    return texts;
  }

  // Random parts of random texts in each pass, as many rows at a time as the plan has.
  static std::vector<TextLogits> by_random_passes(test::Draw& draw, const plan::PlanInput& input,
                                                  CachedModel& model,
                                                  const std::vector<TextTokens>& texts,
                                                  int64_t part_max) {
    std::vector<TextLogits> logits(texts.size());
    std::vector<int64_t> done(texts.size(), 0);
    std::map<int32_t, int32_t> text_of_row;
    int32_t next = 0;
    for (;;) {
      std::vector<CachedModel::Part> parts;
      int64_t room = input.shape.length;
      for (int32_t row = 0; row < input.shape.cache_rows; ++row) {
        if (!text_of_row.contains(row)) {
          if (next == std::ssize(texts)) continue;
          text_of_row[row] = next++;
        }
        const int32_t text = text_of_row[row];
        const auto at = static_cast<size_t>(text);
        const int64_t left = std::ssize(texts[at]) - done[at];
        const int64_t count = std::min({left, room, draw.between(1, part_max)});
        if (count == 0) continue;
        parts.push_back({row, text, done[at], count});
        room -= count;
        done[at] += count;
        if (count == left) text_of_row.erase(row);
      }
      if (parts.empty()) return logits;
      model.pass(parts, texts, logits);
    }
  }

  // `logits` may lack positions.
  static void expect_near(const TextLogits& logits, const TextLogits& wanted, float tolerance) {
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i].empty()) continue;
      float largest = 0, difference = 0;
      for (size_t c = 0; c < wanted[i].size(); ++c) {
        largest = std::max(largest, std::fabs(wanted[i][c]));
        difference = std::max(difference, std::fabs(wanted[i][c] - logits[i][c]));
      }
      EXPECT_LE(difference, tolerance * largest) << "position " << i;
    }
  }

  static void expect_same(const TextLogits& logits, const TextLogits& wanted) {
    for (size_t i = 0; i < logits.size(); ++i) {
      EXPECT_TRUE(logits[i].empty() || logits[i] == wanted[i]) << "position " << i;
    }
  }

  void expect_all(uint64_t seed, const model::Family& family, Recipe recipe,
                  const kernels::Backend& backend) {
    test::Draw draw(seed);
    const model::ModelSpec spec = spec_of(draw, family);
    const std::vector<TextTokens> texts = texts_of(draw, 4, spec.architecture.vocabulary);
    CachedSetting setting = {&backend, 1, directory_.path()};
    const plan::PlanInput whole = input_of(spec, recipe, {1, kLongest});
    CachedModel uncached(whole, test::all_in_memory(whole), setting);
    const plan::PlanInput one =
        input_of(spec, recipe, {.length = 1, .cache_rows = 1, .cache_positions = kLongest});
    CachedModel alone(one, test::all_in_memory(one), setting);
    const std::vector<TextLogits> wanted = by_random_passes(draw, one, alone, texts, 1);
    // bf16 rounds what leaves a segment, where other sums may fall on the other side.
    const float tolerance = recipe == Recipe::kFp32 ? 1e-5f : 3e-2f;
    for (size_t i = 0; i < texts.size(); ++i) {
      expect_near(uncached.over_the_whole(texts[i]), wanted[i], tolerance);
    }
    for (int trial = 0; trial < 3; ++trial) {
      SCOPED_TRACE("trial " + std::to_string(trial));
      plan::PlanInput input = input_of(spec, recipe,
                                       {.length = draw.between(4, 12),
                                        .cache_rows = draw.between(1, 4),
                                        .cache_positions = kLongest});
      input.device.discrete = trial == 2;
      input.frozen_in_source = draw.coin();
      setting.threads = static_cast<int>(draw.between(1, 2));
      const plan::Placement placement =
          trial == 0 ? plan::smallest_placement(input) : test::random_placement(draw, input);
      CachedModel model(input, placement, setting);
      const std::vector<TextLogits> found = by_random_passes(draw, input, model, texts, 12);
      for (size_t i = 0; i < texts.size(); ++i) expect_same(found[i], wanted[i]);
    }
  }

  const test::TemporaryDirectory directory_;
};

TEST_F(CachedGeneration, EqualsPassesOverTheWholeTextForEveryFamily) {
  for (const model::Family& family : model::families()) {
    for (uint64_t seed = 1; seed <= test::seeds(2); ++seed) {
      SCOPED_TRACE(family.model_type + std::string(", seed ") + std::to_string(seed));
      expect_all(seed, family, Recipe::kFp32, kernels::cpu_backend());
    }
  }
}

TEST_F(CachedGeneration, HasTheSameBitsInBf16) {
  for (const model::Family& family : model::families()) {
    SCOPED_TRACE(family.model_type);
    expect_all(3, family, Recipe::kBf16, kernels::cpu_backend());
  }
}

TEST_F(CachedGeneration, IsTheSameOnThePlainLoops) {
  for (const model::Family& family : model::families()) {
    SCOPED_TRACE(family.model_type);
    expect_all(4, family, Recipe::kFp32, kernels::ref_backend());
  }
}

TEST_F(CachedGeneration, KeysAndValuesAreInTheLedger) {
  test::Draw draw(1);
  const model::ModelSpec spec = spec_of(draw, model::families()[0]);
  const plan::PlanInput input =
      input_of(spec, Recipe::kFp32, {.length = 8, .cache_rows = 3, .cache_positions = 100});
  const plan::Plan plan = plan::build_plan(input, plan::smallest_placement(input));
  int64_t bytes = 0;
  for (const plan::LedgerLine& line : plan.arenas.lines) {
    if (line.purpose == "keys and values") bytes += line.bytes;
  }
  int64_t wanted = 0;
  for (int s = 0; s < static_cast<int>(spec.segments.size()); ++s) {
    wanted += model::cache_bytes(spec, s, input.shape, input.device);
  }
  EXPECT_GT(wanted, 0);
  EXPECT_EQ(bytes, wanted);
}

}  // namespace
}  // namespace strata
