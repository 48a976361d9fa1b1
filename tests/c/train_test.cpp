// SPDX-License-Identifier: Apache-2.0
// The train group of the C API: a whole run that a callback watches and stops, and a model that the
// caller drives.
#include <fstream>

#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

class CTrain : public CApi {
 protected:
  static std::string model_options(const std::string& more = "") {
    return "{\"model\": \"" STRATA_MODELS
           "/tinyllama\", \"sequence_length\": 8, \"threads\": 1, \"accumulate\": 2" +
           more + "}";
  }
  std::string run_options() {
    std::ofstream file(directory_ + "/tokens.bin", std::ios::binary);
    for (int i = 0; i <= 12 * 8; ++i) file << static_cast<char>(i * i % 59) << '\0';
    return model_options(", \"data\": \"" + directory_ + "/tokens.bin\", \"out\": \"" + directory_ +
                         "/run\", \"steps\": 6, \"eval_every\": 3, \"lr\": 1e-2, "
                         "\"machine\": \"" STRATA_MACHINE "\"");
  }
  static strata_train* open(const std::string& json) {
    strata_train* train = nullptr;
    EXPECT_EQ(strata_train_open(json.c_str(), STRATA_BINARY_DIR "/session-cache", nullptr, &train),
              STRATA_OK)
        << text();
    return train;
  }
};

struct Seen {
  std::vector<double> losses;
  int evaluations = 0;
  int64_t stop_at = 0;
};

int on_step(void* context, const strata_step_report* report) {
  auto& seen = *static_cast<Seen*>(context);
  seen.losses.push_back(report->loss);
  return report->step == seen.stop_at ? 1 : 0;
}

int on_evaluation(void* context, int64_t, double loss) {
  static_cast<Seen*>(context)->evaluations += std::isfinite(loss) ? 1 : 0;
  return 0;
}

TEST_F(CTrain, ARunReportsItsStepsAndLeavesAModel) {
  strata_train* train = open(run_options());
  Seen seen;
  auto callbacks = sized<strata_callbacks>();
  callbacks.context = &seen;
  callbacks.step = on_step;
  callbacks.evaluated = on_evaluation;
  auto result = sized<strata_run_result>();
  auto plan = sized<strata_plan>();
  EXPECT_EQ(strata_train_plan(train, &plan), STRATA_OK) << text();
  ASSERT_EQ(strata_train_run(train, &callbacks, &result), STRATA_OK) << text();
  ASSERT_EQ(seen.losses.size(), 6u);
  EXPECT_EQ(seen.evaluations, 2);
  EXPECT_EQ(result.last_step, 6);
  EXPECT_EQ(result.last_loss, seen.losses.back());
  EXPECT_LT(result.last_loss, result.first_loss);
  EXPECT_EQ(result.stopped, 0);
  EXPECT_NE(result.state_hash, 0u);
  EXPECT_TRUE(fs::exists(std::string(result.checkpoint) + "/manifest.json"));
  EXPECT_TRUE(fs::exists(std::string(result.model) + "/model.safetensors"));
  EXPECT_EQ(strata_train_run(train, nullptr, nullptr), STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_train_close(train), STRATA_OK);
}

TEST_F(CTrain, ACallbackStopsARunInGoodOrder) {
  strata_train* train = open(run_options());
  Seen seen;
  seen.stop_at = 2;
  auto callbacks = sized<strata_callbacks>();
  callbacks.context = &seen;
  callbacks.step = on_step;
  auto result = sized<strata_run_result>();
  ASSERT_EQ(strata_train_run(train, &callbacks, &result), STRATA_OK) << text();
  EXPECT_EQ(result.stopped, 1);
  EXPECT_EQ(result.last_step, 3);  // which had begun
  EXPECT_EQ(seen.losses.size(), 3u);
  EXPECT_STREQ(result.model, "");
  EXPECT_TRUE(fs::exists(std::string(result.checkpoint) + "/manifest.json"));
  EXPECT_EQ(strata_train_close(train), STRATA_OK);
}

TEST_F(CTrain, AModelIsDrivenStepByStep) {
  strata_train* train = open(model_options(", \"recipe\": \"fp32\""));
  EXPECT_EQ(strata_train_run(train, nullptr, nullptr), STRATA_ERROR_USAGE);
  ASSERT_EQ(strata_train_load(train, nullptr), STRATA_OK) << text();
  std::vector<int32_t> tokens(16), targets(16);
  for (int i = 0; i < 16; ++i) {
    tokens[static_cast<size_t>(i)] = i * i % 59;
    targets[static_cast<size_t>(i)] = (i * i + 1) % 59;
  }
  auto batch = sized<strata_batch>();
  batch.tokens = tokens.data();
  batch.targets = targets.data();
  batch.count = 16;
  double before = 0, after = 0;
  ASSERT_EQ(strata_train_evaluate(train, &batch, &before), STRATA_OK) << text();
  auto result = sized<strata_step_result>();
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(strata_train_step(train, &batch, 1e-2, &result), STRATA_OK) << text();
  }
  EXPECT_EQ(result.step, 4);
  ASSERT_EQ(strata_train_evaluate(train, &batch, &after), STRATA_OK);
  EXPECT_LT(after, before);
  batch.count = 15;
  EXPECT_EQ(strata_train_step(train, &batch, 1e-2, nullptr), STRATA_ERROR_CONFIG);
  batch.tokens = nullptr;
  EXPECT_EQ(strata_train_step(train, &batch, 1e-2, nullptr), STRATA_ERROR_USAGE);

  std::vector<float> logits(4096, NAN);
  int64_t vocabulary = 0;
  ASSERT_EQ(strata_train_logits(train, tokens.data(), 3, logits.data(), 4096, &vocabulary),
            STRATA_OK)
      << text();
  EXPECT_FALSE(std::isnan(logits[static_cast<size_t>(vocabulary - 1)]));
  EXPECT_TRUE(std::isnan(logits[static_cast<size_t>(vocabulary)]));
  std::vector<float> some(3, -1.0f);
  EXPECT_EQ(strata_train_logits(train, tokens.data(), 3, some.data(), 2, nullptr), STRATA_OK);
  EXPECT_EQ(some, (std::vector<float>{logits[0], logits[1], -1.0f}));
  const int64_t size = std::exchange(vocabulary, 0);
  EXPECT_EQ(strata_train_logits(train, nullptr, 0, nullptr, 0, &vocabulary), STRATA_OK) << text();
  EXPECT_EQ(vocabulary, size);
  const char* path = nullptr;
  ASSERT_EQ(strata_train_save(train, (directory_ + "/saved").c_str(), &path), STRATA_OK) << text();
  const std::string saved = path;
  EXPECT_EQ(strata_train_load(train, saved.c_str()), STRATA_OK) << text();
  EXPECT_NE(strata_train_load(train, (directory_ + "/nowhere").c_str()), STRATA_OK);
  batch.tokens = tokens.data();
  batch.count = 16;
  EXPECT_EQ(strata_train_evaluate(train, &batch, &after), STRATA_OK) << "what was loaded stays";
  ASSERT_EQ(strata_train_export(train, (directory_ + "/exported").c_str()), STRATA_OK) << text();
  EXPECT_TRUE(fs::exists(directory_ + "/exported/model.safetensors"));
  EXPECT_EQ(strata_train_close(train), STRATA_OK);
}

TEST_F(CTrain, WrongOptionsAreAllNamed) {
  strata_train* train = nullptr;
  EXPECT_EQ(strata_train_open("{\"modell\": \"x\", \"eps\": 0}", nullptr, nullptr, &train),
            STRATA_ERROR_USAGE);
  EXPECT_NE(text().find("modell"), std::string::npos) << text();
  EXPECT_NE(text().find("eps"), std::string::npos) << text();
  EXPECT_EQ(train, nullptr);
}

}  // namespace
}  // namespace strata::test
