// SPDX-License-Identifier: Apache-2.0
// Samples at evaluations: the texts that the model of that step writes, in the records and in the
// report; and they change no bit of the training.
#include <sys/stat.h>

#include "engine/config/json.h"
#include "tests/cli/mistake.h"
#include "tests/cli/program.h"

namespace strata::cli::test {
namespace {

class SamplesOfRuns : public testing::Test {
 protected:
  void SetUp() override {
    make_model(sandbox_, "model", {});
    write_text(sandbox_ / "prompts.txt", "The harbour\n\nA ship <b>\nSo\n");
  }

  Arguments training(const std::string& out, const Arguments& more) const {
    Arguments all = {"train",
                     "--model",
                     "model",
                     "--data",
                     data_,
                     "--out",
                     out,
                     "--machine",
                     STRATA_MACHINE,
                     "--sequence-length",
                     "32",
                     "--eval-every",
                     "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  std::string run(const Arguments& arguments) {
    Process process(arguments, {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), 0) << process.err();
    return process.out();
  }
  std::string train(const std::string& out, const Arguments& more) {
    return run(training(out, more));
  }
  static Arguments sampling(Arguments more) {
    more.insert(more.end(), {"--sample-prompts", "prompts.txt", "--sample-tokens", "6"});
    return more;
  }

  struct Records {
    std::string losses;                                 // of steps and evaluations, bit by bit
    std::map<int64_t, std::vector<std::string>> texts;  // by step
  };
  Records records(const std::string& name) const {
    Records all;
    std::istringstream metrics(read_text(sandbox_ / (name + "/metrics.jsonl")));
    for (std::string line; std::getline(metrics, line);) {
      const config::Json record = config::Json::parse(line, "metrics");
      for (const char* member : {"step", "loss", "grad_norm", "eval_loss"}) {
        const config::Json* value = record.find(member);
        if (value != nullptr) all.losses += member + (" " + value->dump()) + "\n";
      }
      const config::Json* samples = record.find("samples");
      if (samples == nullptr) continue;
      for (const config::Json& one : samples->items()) {
        all.texts[*record.find("step")->int64()].push_back(one.find("prompt")->string() +
                                                           one.find("text")->string());
      }
    }
    return all;
  }

  // Trains with and without samples; returns the records of the run with them.
  Records expect_same_training(const Arguments& more) {
    const std::string plain = train("plain", more);
    const std::string sampled = train("sampled", sampling(more));
    EXPECT_EQ(state_in(sampled), state_in(plain));
    const Records records_of_both = records("sampled");
    EXPECT_EQ(records_of_both.losses, records("plain").losses);
    EXPECT_TRUE(records("plain").texts.empty());
    EXPECT_EQ(records_of_both.texts.size(), 2u) << "at each evaluation";
    for (const auto& [step, texts] : records_of_both.texts) EXPECT_EQ(texts.size(), 3u) << step;
    return records_of_both;
  }

  // The texts are those that `strata generate` finds for the checkpoints of their steps.
  void expect_generated(const Arguments& options) {
    Arguments more = {"--steps", "4",    "--recipe",           "fp32", "--micro-batch",      "2",
                      "--lr",    "0.01", "--checkpoint-every", "2",    "--keep-checkpoints", "9"};
    more.insert(more.end(), options.begin(), options.end());
    const Records all = expect_same_training(more);
    for (const auto& [step, texts] : all.texts) {
      const std::string out = run({"generate", "--model", "model", "--resume",
                                   "sampled/checkpoints/step-00000" + std::to_string(step),
                                   "--recipe", "fp32", "--prompts-file", "prompts.txt",
                                   "--temperature", "0", "--max-new-tokens", "6", "--json"});
      std::istringstream lines(out);
      std::string line;
      for (const std::string& text : texts) {
        EXPECT_TRUE(std::getline(lines, line)) << out;
        EXPECT_EQ(config::Json::parse(line, "out").find("text")->string(), text) << step;
      }
    }
    EXPECT_NE(all.texts.at(2), all.texts.at(4)) << "the model has changed";
  }

  const Sandbox sandbox_;
  std::string data_ = STRATA_TEXT;
};

// In fp32, where a pass over a whole text and one with a cache have the same logits to 1e-5.
TEST_F(SamplesOfRuns, AreWhatTheModelOfTheirStepGenerates) {
  expect_generated({});
  run({"report", "sampled"});
  const std::string html = read_text(sandbox_ / "sampled/report.html");
  EXPECT_NE(html.find("<h2>Samples</h2>"), html.npos);
  EXPECT_NE(html.find("A ship &lt;b&gt;"), html.npos);
  run({"report", "plain"});
  EXPECT_EQ(read_text(sandbox_ / "plain/report.html").find("Samples"), std::string::npos);
}

TEST_F(SamplesOfRuns, ChangeNoBitOfTrainingOnDrives) {
  expect_same_training({"--steps", "4", "--nvme", ".", "--offload", "nvme"});
}

TEST_F(SamplesOfRuns, ChangeNoBitOfSeveralRanks) {
  expect_same_training({"--steps", "4", "--ranks", "2"});
}

// Each has logits of its part of the vocabulary.
TEST_F(SamplesOfRuns, OfTensorRanksAreThoseOfTheWholeModel) {
  expect_generated({"--ranks", "2", "--tensor-ranks", "2"});
}

TEST_F(SamplesOfRuns, ChangeNoBitOfTrainingOnADevice) {
  expect_same_training({"--steps", "4", "--device", "emulated"});
}

TEST_F(SamplesOfRuns, ChangeNoBitOfPackedRecords) {
  std::string records;
  for (int i = 0; i < 60; ++i) {
    records += R"({"prompt": "The ship )" + std::to_string(i) +
               R"(", "completion": " sails"})"
               "\n";
  }
  write_text(sandbox_ / "records.jsonl", records);
  data_ = "records.jsonl";
  expect_same_training({"--steps", "4", "--samples", "packed"});
}

TEST_F(SamplesOfRuns, OfAResumedRunAreThoseOfOneThatWasNotStopped) {
  train("whole", sampling({"--steps", "4"}));
  train("parts", sampling({"--steps", "4", "--checkpoint-every", "3"}));
  std::filesystem::remove_all(sandbox_ / "parts/checkpoints/step-000004");
  std::filesystem::remove_all(sandbox_ / "parts/model");
  run({"train", "--resume", "parts"});
  EXPECT_EQ(records("parts").texts, records("whole").texts);
  run({"train", "--resume", "parts", "--steps", "6", "--sample-tokens", "1"});
  EXPECT_EQ(records("parts").texts.size(), 3u);
  // Where the file is gone, the run can go on without it.
  std::filesystem::remove(sandbox_ / "prompts.txt");
  run({"train", "--resume", "parts", "--steps", "8", "--sample-prompts", "off"});
  EXPECT_EQ(records("parts").texts.size(), 3u);
}

TEST_F(SamplesOfRuns, OfChatsAreAnswersToWhatTheTemplateWrites) {
  write_text(sandbox_ / "t.jinja",
             "{% for m in messages %}[{{ m.role }}] {{ m.content }} {% endfor %}"
             "{{ '[assistant]' if add_generation_prompt }}");
  write_text(sandbox_ / "prompts.jsonl",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"A ship?\"}]}\n"
             "{\"prompt\": \"[user] A ship? [assistant]\"}\n");
  train("chats", {"--steps", "2", "--sample-prompts", "prompts.jsonl", "--sample-tokens", "6",
                  "--chat-template", "t.jinja"});
  const std::vector<std::string> texts = records("chats").texts.at(2);
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_EQ(texts[1],
            "[user] A ship? [assistant]" + texts[0].substr(std::string("A ship?").size()));
  // The model is given to others with the template that it was trained with.
  run({"export", "--resume", "chats", "--out", "exported"});
  const std::string used = read_text(sandbox_ / "t.jinja");
  EXPECT_EQ(read_text(sandbox_ / "chats/model/chat_template.jinja"), used);
  EXPECT_EQ(read_text(sandbox_ / "exported/chat_template.jinja"), used);
}

TEST_F(SamplesOfRuns, OfAChatSeeItsToolsAndKnownRolesAlone) {
  write_text(sandbox_ / "t.jinja",
             "{{ raise_exception('no tools') if not tools }}{{ messages[0].content }}");
  const auto outcome = [&](const std::string& line) {
    write_text(sandbox_ / "prompts.jsonl", line + "\n");
    Process process({"generate", "--model", "model", "--chat", "--prompts-file", "prompts.jsonl",
                     "--chat-template", "t.jinja", "--max-new-tokens", "2"},
                    {.directory = sandbox_.path()});
    return process.wait() == 0 ? "" : process.err();
  };
  const std::string messages = R"({"messages":[{"role":"user","content":"A ship?"}])";
  EXPECT_EQ(outcome(messages + R"(,"tools":[{"name":"f"}]})"), "");
  EXPECT_NE(outcome(messages + "}").find("no tools"), std::string::npos);
  EXPECT_NE(outcome(R"({"messages":[{"role":"robot","content":"A"}]})").find("the role \"robot\""),
            std::string::npos);
}

TEST_F(SamplesOfRuns, PromptsThatCannotBeUsedAreRefusedBeforeTheRun) {
  const auto refused = [&](const Arguments& more) {
    Process process(training("none", more), {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), kUsage) << process.out();
    EXPECT_FALSE(std::filesystem::exists(sandbox_ / "none"));
    return process.err();
  };
  EXPECT_NE(
      refused({"--sample-prompts", "nowhere.txt"}).find("sample-prompts: cannot open nowhere.txt"),
      std::string::npos);
  write_text(sandbox_ / "latin1.txt", "So\ncaf\xe9\n");
  EXPECT_NE(refused({"--sample-prompts", "latin1.txt"}).find("latin1.txt:2: not UTF-8 (convert"),
            std::string::npos);
  write_text(sandbox_ / "long.txt", read_text(STRATA_TEXT).substr(0, 300) + "\n");
  std::string text = read_text(sandbox_ / "long.txt");
  std::replace(text.begin(), text.end() - 1, '\n', ' ');
  write_text(sandbox_ / "long.txt", "So\n" + text);
  EXPECT_NE(refused({"--sample-prompts", "long.txt"}).find("prompt 2 has "), std::string::npos);
  ASSERT_EQ(mkfifo((sandbox_ / "pipe").c_str(), 0600), 0);
  EXPECT_NE(refused({"--sample-prompts", "pipe"}).find("it is a pipe"), std::string::npos);
  EXPECT_NE(refused({"--sample-prompts", "/dev/zero"}).find("it has more than 1 MiB"),
            std::string::npos);
  EXPECT_NE(refused({"--sample-tokens", "3"}).find("--sample-prompts"), std::string::npos);
  std::filesystem::remove(sandbox_ / "model/tokenizer.json");
  write_tokens(sandbox_ / "tokens.bin");
  data_ = "tokens.bin";
  EXPECT_NE(refused({"--sample-prompts", "prompts.txt"}).find("tokenizer"), std::string::npos);
}

}  // namespace
}  // namespace strata::cli::test
