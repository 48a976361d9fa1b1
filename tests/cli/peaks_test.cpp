// SPDX-License-Identifier: Apache-2.0
// --host-memory holds at the kernel's peak, whatever the files are that a command reads and copies;
// plan and train see this machine the same way.
#include "engine/config/json.h"
#include "engine/model/architecture.h"
#include "engine/model_files/model_writer.h"
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

constexpr int64_t kMiB = 1 << 20;

class Peaks : public Mistakes {
 protected:
  // Ends with `code` and, by the kernel's count, within the budget.
  void expect_within(const Arguments& arguments, int64_t budget_bytes, int code = 0) {
    Arguments all = arguments;
    all.insert(all.end(), {"--host-memory", std::to_string(budget_bytes)});
    Process process(all, {.directory = sandbox_.path(), .wrap = wrap_});
    EXPECT_EQ(process.wait(), code) << process.err();
    EXPECT_LE(process.peak_bytes(), budget_bytes) << process.err();
    err_ = process.err();
  }
  // What the refusal of a smaller budget names.
  int64_t least_budget(const Arguments& arguments) {
    Arguments all = arguments;
    all.insert(all.end(), {"--host-memory", "1MiB"});
    Process process(all, {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), kDoesNotFit) << process.err();
    return least_mib(process.err()) * kMiB;
  }
  std::string err_;
  std::vector<std::string> wrap_;
};

TEST_F(Peaks, OfALineOfManyMegabytes) {
  std::string text;
  while (text.size() < 24 * kMiB) text += "a line of words \\n";
  write_text(sandbox_ / "long.jsonl", "{\"text\": \"" + text + "\"}\n");
  const Arguments run = train({"--data", "long.jsonl", "--data-cache", "cache"});
  expect_within(run, 128 * kMiB, kDoesNotFit);
  EXPECT_NE(err_.find("long.jsonl:1: the line has more than"), std::string::npos) << err_;
  expect_within(run, 224 * kMiB);
}

TEST_F(Peaks, OfMeasuringTheMachineForTheFirstTime) {
  wrap_ = {"env", "XDG_CACHE_HOME=" + sandbox_.path()};
  const Arguments run = {"train", "--model",           "good", "--data",  STRATA_TEXT, "--out",
                         "out",   "--sequence-length", "32",   "--steps", "2",         "--nvme",
                         "."};
  const int64_t least = least_budget(run);
  expect_within(run, least);
  EXPECT_NE(err_.find("machine: measured"), std::string::npos) << err_;
}

TEST_F(Peaks, OfALargeFileBesideTheWeights) {
  write_text(sandbox_ / "good/notes.md", "");
  std::filesystem::resize_file(sandbox_ / "good/notes.md", 160 * kMiB);
  expect_within(train({}), 96 * kMiB);
  EXPECT_EQ(std::filesystem::file_size(sandbox_ / "out/model/notes.md"), 160u * kMiB);
}

TEST_F(Peaks, OfALongFileOfMetricsAtResume) {
  make_run();
  {  // not held here, since the peak of a process begins with that of the one it came from
    std::ofstream file(sandbox_ / "run/metrics.jsonl");
    for (int k = 0; k < 128; ++k) {
      file << "{\"step\": 1, \"note\": \"" << std::string(kMiB - 64, 'x') << "\"}\n";
    }
  }
  std::filesystem::remove_all(sandbox_ / "run/checkpoints/step-000002");
  Arguments resume = train({"--resume"});
  resume[4] = "run";
  expect_within(resume, 96 * kMiB);
  EXPECT_GT(std::filesystem::file_size(sandbox_ / "run/metrics.jsonl"), 127u * kMiB);
}

// Tokens of three letters and of what is joined of earlier ones.
std::string wide_tokenizer(const config::Json& narrow, int64_t tokens) {
  std::string vocabulary;
  std::string merges;
  int64_t id = 0;
  const auto add = [&](const std::string& token) {
    vocabulary += (id == 0 ? "" : ", ") + config::Json(token).dump() + ": " + std::to_string(id);
    ++id;
  };
  for (const config::JsonMember& token : narrow.find("model")->find("vocab")->members()) {
    add(token.name);  // in the order of their ids
  }
  std::vector<std::string> joined = {"a", "b", "c"};
  size_t left = 0;
  while (id < tokens) {
    for (const char* letter : {"a", "b", "c"}) {
      merges += (merges.empty() ? "[\"" : ", [\"") + joined[left] + "\", \"" + letter + "\"]";
      joined.push_back(joined[left] + letter);
      if (left > 200 || narrow.find("model")->find("vocab")->find(joined.back()) == nullptr) {
        add(joined.back());
      }
    }
    ++left;
  }
  std::string text = "{\"model\": {\"type\": \"BPE\", \"vocab\": {" + vocabulary +
                     "}, \"merges\": [" + merges + "]}";
  for (const char* member : {"added_tokens", "pre_tokenizer", "decoder"}) {
    text += std::string(", \"") + member + "\": " + narrow.find(member)->dump();
  }
  return text + "}";
}

TEST_F(Peaks, OfATokenizerOfManyTokens) {
  constexpr int64_t kTokens = 262144;
  const std::string path = sandbox_ / "good/tokenizer.json";
  const config::Json narrow = config::Json::parse(read_text(path), path);
  model::Architecture wide = model::read_architecture_file(sandbox_ / "good/config.json");
  wide.vocabulary = kTokens + 2;  // the last three go beyond it
  model::init_model(wide, 0, {.path = sandbox_ / "wide", .dtype = DType::kBF16},
                    {{"tokenizer.json", wide_tokenizer(narrow, kTokens)}});
  const Arguments eval = {"eval",      "--model",           "wide", "--data",
                          STRATA_TEXT, "--sequence-length", "16"};
  const Arguments generate = {"generate", "--model",          "wide", "--prompt",
                              "abc",      "--max-new-tokens", "2"};
  for (const Arguments& arguments : {eval, generate}) {
    SCOPED_TRACE(arguments[0]);
    expect_within(arguments, least_budget(arguments));
  }
}

TEST_F(Peaks, ArePlannedWithTheMemoryAndCoresOfThisMachine) {
  const std::string too_much = std::to_string(int64_t{1} << 50);
  const Arguments plan = {"plan", "--model",       "good",  "--sequence-length", "32", "--ranks",
                          "512",  "--host-memory", too_much};
  Process process(plan, {.directory = sandbox_.path()});
  EXPECT_EQ(process.wait(), kDoesNotFit) << process.err();
  EXPECT_NE(process.err().find("host-memory: 1024 TiB is more than the "), std::string::npos);
  EXPECT_NE(process.err().find("planning with what is available"), std::string::npos)
      << process.err();
  EXPECT_NE(process.err().find("ranks: 512 are more than the "), std::string::npos);
}

}  // namespace
}  // namespace strata::cli::test
