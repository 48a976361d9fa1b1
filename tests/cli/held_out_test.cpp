// SPDX-License-Identifier: Apache-2.0
// Files to evaluate on change nothing of the training, neither from the beginning nor later.
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

class HeldOut : public testing::Test {
 protected:
  void SetUp() override {
    make_model(sandbox_, "model", {});
    std::string records;
    for (int k = 0; k < 40; ++k) {
      records += R"({"prompt": "Where is ship )" + std::to_string(k) +
                 R"(?", "completion": " In the harbour."})"
                 "\n";
    }
    write_text(sandbox_ / "q.jsonl", records);
    write_text(sandbox_ / "held.jsonl", "{\"text\": \"The harbour lies behind the long wall.\"}\n");
    write_text(sandbox_ / "held.txt", "The harbour lies behind the long wall and keeps the boats.");
  }

  int start(const Arguments& arguments) {
    Process process(arguments, {.directory = sandbox_.path()});
    const int code = process.wait();
    out_ = process.out();
    err_ = process.err();
    return code;
  }
  int train(const std::string& out, const Arguments& more) {
    Arguments all = {"train",      "--model",  "model",     "--data",       "q.jsonl",
                     "--schedule", "constant", "--machine", STRATA_MACHINE, "--sequence-length",
                     "32",         "--out",    out};
    all.insert(all.end(), more.begin(), more.end());
    return start(all);
  }

  const Sandbox sandbox_;
  std::string out_;
  std::string err_;
};

TEST_F(HeldOut, FilesDoNotChangeTheTraining) {
  ASSERT_EQ(train("alone", {"--steps", "2"}), 0) << err_;
  const std::string state = state_in(out_);
  ASSERT_EQ(train("stream", {"--steps", "2", "--samples", "stream"}), 0) << err_;
  EXPECT_NE(state_in(out_), state) << "other samples would tell";
  for (const char* file : {"held.jsonl", "held.txt"}) {
    const std::string out = std::string("with_") + file;
    ASSERT_EQ(train(out, {"--steps", "2", "--eval-data", file, "--eval-every", "1"}), 0) << err_;
    EXPECT_EQ(state_in(out_), state) << file;
    EXPECT_NE(out_.find("held-out loss"), std::string::npos);
  }
}

TEST_F(HeldOut, FilesMayComeLaterButNotBecomeOthers) {
  const auto resume = [&](const Arguments& more) {
    Arguments all = {"train", "--resume", "run"};
    all.insert(all.end(), more.begin(), more.end());
    return start(all);
  };
  ASSERT_EQ(train("whole", {"--steps", "3"}), 0) << err_;
  const std::string state = state_in(out_);
  ASSERT_EQ(train("run", {"--steps", "1"}), 0) << err_;
  const Arguments held = {"--steps", "2", "--eval-data", "held.txt", "--eval-every", "1"};
  ASSERT_EQ(resume(held), 0) << err_;
  const Arguments other = {"--steps", "3", "--eval-data", "held.jsonl"};
  ASSERT_EQ(resume(other), kUsage);
  EXPECT_NE(err_.find("--eval-data has other tokens, hash "), std::string::npos);
  ASSERT_EQ(resume({"--steps", "3"}), 0) << err_;
  EXPECT_EQ(state_in(out_), state);
}

TEST_F(HeldOut, EvalMeasuresTheFilesOfADirectoryThatAreForValidation) {
  std::filesystem::create_directories(sandbox_ / "hub");
  std::filesystem::create_directories(sandbox_ / "only");
  std::filesystem::copy(sandbox_ / "q.jsonl", sandbox_ / "hub/train.jsonl");
  for (const char* folder : {"hub", "only"}) {
    std::filesystem::copy(sandbox_ / "held.jsonl",
                          sandbox_ / (std::string(folder) + "/validation.jsonl"));
  }
  const auto loss = [&](const char* data) {
    EXPECT_EQ(start({"eval", "--model", "model", "--sequence-length", "32", "--data", data}), 0)
        << err_;
    return out_;
  };
  const std::string held_out = loss("held.jsonl");
  EXPECT_EQ(loss("hub"), held_out);
  EXPECT_NE(err_.find("eval: hub: its files for validation are measured: hub/validation.jsonl"),
            std::string::npos)
      << err_;
  EXPECT_EQ(loss("only"), held_out);
  EXPECT_NE(loss("hub/train.jsonl"), held_out);
}

TEST_F(HeldOut, WeightsOfDataToEvaluateOnHaveNoEffect) {
  const Arguments eval = {"eval", "--model", "model", "--sequence-length", "32", "--data"};
  Arguments weighted = eval, plain = eval;
  weighted.emplace_back("q.jsonl:0.9,held.jsonl:0.1");
  plain.emplace_back("q.jsonl,held.jsonl");
  ASSERT_EQ(start(plain), 0) << err_;
  EXPECT_EQ(err_, "");
  ASSERT_EQ(start(weighted), 0) << err_;
  EXPECT_NE(err_.find("the weights of --data have no effect"), std::string::npos);
  ASSERT_EQ(train("run", {"--steps", "1", "--eval-data", "held.txt:0.5", "--eval-every", "1"}), 0);
  EXPECT_NE(err_.find("eval-data: held.txt: its weight has no effect"), std::string::npos);
}

}  // namespace
}  // namespace strata::cli::test
