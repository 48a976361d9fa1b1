// SPDX-License-Identifier: Apache-2.0
// Files with options through pipes, as a shell's <(command): each is read once, and its report is
// whole. One to which nobody writes is refused by every command that reads it.
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

using nlohmann::json;

class Pipes : public testing::Test {
 protected:
  void SetUp() override {
    make_model(sandbox_, "good", {});
    write_text(sandbox_ / "run.toml", "sequence_length = 32\nsteps = 20\n");
    write_text(sandbox_ / "ds.json",
               R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}, "steps_per_print": 5})");
    write_text(sandbox_ / "wrong.json", R"({"gradient_clipping": 1, "steps_per_prnt": 5})");
  }

  // `strata ARGUMENTS` with files that a shell passes as pipes.
  int run(const Arguments& arguments, const std::string& pipes) {
    const ProcessOptions shell = {.directory = sandbox_.path(),
                                  .wrap = {"bash", "-c", "exec \"$@\" " + pipes, "bash"}};
    Process process(arguments, shell);
    const int code = process.wait();
    out_ = process.out();
    err_ = process.err();
    return code;
  }

  static Arguments plan(const Arguments& more) {
    Arguments all = {"plan", "--model", "good", "--machine", STRATA_MACHINE};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  const Sandbox sandbox_;
  std::string out_;
  std::string err_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(Pipes, AreReadOnceAndReportedWhole) {
  ASSERT_EQ(run(plan({}), "--config <(cat run.toml) --deepspeed <(sleep 0.2; cat ds.json)"), 0)
      << err_;
  EXPECT_HAS(err_, "What became of /dev/fd/");
  EXPECT_HAS(err_, "--lr 1e-04");
  EXPECT_HAS(err_, "steps_per_print");
  EXPECT_HAS(out_, "parameters");
}

TEST_F(Pipes, ARefusedOneHasItsTable) {
  EXPECT_EQ(run(plan({}), "--config <(cat run.toml) --deepspeed <(cat wrong.json)"), kUsage);
  EXPECT_HAS(err_, "What became of /dev/fd/");
  EXPECT_HAS(err_, "--clip 1");
  EXPECT_HAS(err_, "did you mean steps_per_print?");
  EXPECT_EQ(out_, "");
}

TEST_F(Pipes, ARefusalAsJsonIsTheAnswer) {
  EXPECT_EQ(run(plan({"--json", "--deepspeed", "wrong.json"}), ""), kUsage);
  const json lines = json::parse(out_)["deepspeed"];
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[0]["became"], "--clip 1");
  EXPECT_EQ(lines[1]["fate"], "refused");
  EXPECT_TRUE(err_.starts_with("strata: error: ")) << err_;
}

TEST_F(Pipes, APlanAndARunAsJsonHaveTheTable) {
  const Arguments train = {
      "train", "--model", "good", "--data",    STRATA_TEXT,   "--out", "run", "--sequence-length",
      "32",    "--steps", "1",    "--machine", STRATA_MACHINE};
  for (Arguments arguments : {plan({}), train}) {
    arguments.insert(arguments.end(), {"--json", "--deepspeed", "ds.json"});
    ASSERT_EQ(run(arguments, ""), 0) << err_;
    const json lines = json::parse(out_)["deepspeed"];
    ASSERT_GE(lines.size(), 3u);
    EXPECT_EQ(lines[1]["key"], "optimizer.params.lr");
    EXPECT_EQ(lines[1]["value"], "1e-04");
    EXPECT_EQ(lines[1]["fate"], "became");
    EXPECT_EQ(lines[1]["became"], "--lr 1e-04");
    EXPECT_TRUE(lines[1]["why"].is_null());
    EXPECT_EQ(err_.find("optimizer.params.lr"), std::string::npos) << "it is said twice: " << err_;
  }
  ASSERT_EQ(run(plan({"--json"}), ""), 0) << err_;
  EXPECT_FALSE(json::parse(out_).contains("deepspeed"));
}

TEST_F(Pipes, WithoutAWriterAreRefused) {
  ASSERT_EQ(mkfifo((sandbox_ / "pipe").c_str(), 0600), 0);
  const std::vector<Arguments> all = {
      plan({"--config", "pipe"}),
      plan({"--deepspeed", "pipe"}),
      {"plan", "--model", "good", "--machine", "pipe"},
      {"bench", "io", "--nvme", ".", "--config", "pipe"},
      {"bench", "io", "--nvme", ".", "--block", "64KiB", "--baseline", "pipe"},
  };
  std::vector<std::unique_ptr<Process>> processes;
  for (const Arguments& arguments : all) {
    processes.push_back(
        std::make_unique<Process>(arguments, ProcessOptions{.directory = sandbox_.path()}));
  }
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(processes[i]->wait(), kUsage) << i;
    EXPECT_HAS(processes[i]->err(), "cannot read pipe: no program wrote to this pipe for 2 s");
    EXPECT_EQ(processes[i]->out(), "");
  }
}

TEST_F(Pipes, AnEmptyOneIsNoAnswer) {
  EXPECT_EQ(run(plan({}), "--config <(true)"), kUsage);
  EXPECT_HAS(err_, "nothing came out of the pipe");
}

}  // namespace
}  // namespace strata::cli::test
