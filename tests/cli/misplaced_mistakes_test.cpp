// SPDX-License-Identifier: Apache-2.0
// What is right in another place: a run as data, as a model or before its first checkpoint, another
// model for a run, files where a model is written, directories that hold no files. The message says
// what it is, and what to give.
#include "tests/cli/mistake.h"

namespace strata::cli::test {
namespace {

TEST_F(Mistakes, ARunForItsData) {
  make_run();
  const std::vector<std::string> says = {
      "open data: run: it is the directory of a run, which holds no data (give files or "
      "directories of text or records, such as those of the run: " STRATA_TEXT ")"};
  expect_refusals({
      {"train", {}, train({"--data", "run"}), kUsage, says},
      {"eval", {}, {"eval", "--model", "good", "--data", "run"}, kUsage, says},
      {"init", {}, {"init", "--data", "run", "--out", "out"}, kUsage, says},
      {"tokenize", {}, {"tokenize", "--model", "good", "--data", "run"}, kUsage, says},
  });
}

TEST_F(Mistakes, ARunBeforeItsFirstCheckpoint) {
  make_run();
  std::filesystem::remove_all(sandbox_ / "run/checkpoints");
  const Arguments eval = {"eval", "--data", STRATA_TEXT, "--resume", "run"};
  expect_refusal({"with a model",
                  {},
                  eval,
                  kUsage,
                  {"resume: run: the run has no checkpoint yet (give the model that it has "
                   "written: --model run/model)"}});
  std::filesystem::remove_all(sandbox_ / "run/model");
  const std::string none = "resume: run: the run has no checkpoint yet (continue it: strata train ";
  expect_refusals({
      {"eval", {}, eval, kUsage, {none}},
      {"generate", {}, {"generate", "--resume", "run", "--prompt", "a"}, kUsage, {none}},
      {"export", {}, {"export", "--resume", "run", "--out", "out"}, kUsage, {none}},
      {"a new run", {}, train({"--resume", "run"}), kUsage, {none}},
      {"for its model",
       {},
       {"eval", "--model", "run", "--data", STRATA_TEXT},
       kUsage,
       {"run: it is the directory of a run that has no checkpoint yet (continue it: strata train "
        "--resume run; or give the model that it began with)"}},
  });
}

TEST_F(Mistakes, AnotherModelThanTheRuns) {
  make_run();
  make_model(sandbox_, "other", {.seed = 7});
  const Arguments further = {"train", "--resume", "run", "--steps", "3", "--model"};
  const auto with = [&](Arguments all, const std::string& model) {
    all.push_back(model);
    return all;
  };
  const std::vector<std::string> says = {
      "--model other has another model.safetensors (checkpoint: good) (give "};
  expect_refusals({
      {"resume", {}, with(further, "other"), kUsage, says},
      {"eval",
       {},
       {"eval", "--resume", "run", "--model", "other", "--data", STRATA_TEXT},
       kUsage,
       says},
      {"export",
       {},
       {"export", "--resume", "run", "--model", "other", "--out", "out"},
       kUsage,
       says},
  });
  Process same(with(further, "./good/"), {.directory = sandbox_.path()});
  EXPECT_EQ(same.wait(), 0) << same.err();
  std::filesystem::copy(sandbox_ / "good", sandbox_ / "copy");
  Process copy({"eval", "--resume", "run", "--model", "copy", "--data", STRATA_TEXT},
               {.directory = sandbox_.path()});
  EXPECT_EQ(copy.wait(), 0) << copy.err();
  std::filesystem::rename(sandbox_ / "good", sandbox_ / "moved");
  Process moved({"train", "--resume", "run", "--steps", "4", "--model", "moved"},
                {.directory = sandbox_.path()});
  EXPECT_EQ(moved.wait(), 0) << moved.err();
}

TEST_F(Mistakes, OptionsOfStepsThatARunHasNot) {
  make_run();
  Process over({"train", "--resume", "run", "--lr", "1e-3"}, {.directory = sandbox_.path()});
  EXPECT_EQ(over.wait(), 0) << over.err();
  EXPECT_EQ(over.err(), "") << "no step has that rate";
  EXPECT_NE(over.out().find("nothing to do"), std::string::npos) << over.out();
}

// --force is named only where it helps.
TEST_F(Mistakes, AFileWhereAModelIsWritten) {
  make_run();
  const auto prepare = [](const Sandbox& sandbox) {
    write_text(sandbox / "file", "");
    std::filesystem::create_directory(sandbox / "full");
    write_text(sandbox / "full/notes", "");
  };
  const auto init = [](const std::string& out, bool force) {
    Arguments all = {"init", "--data", STRATA_TEXT, "--out", out};
    if (force) all.emplace_back("--force");
    return all;
  };
  const auto to = [](const std::string& out) {
    return Arguments{"export", "--resume", "run", "--out", out};
  };
  const auto says = [](const std::string& path) {
    return std::vector{"error: cannot write model: " + path +
                       ": it exists and is not a model directory (give another path)"};
  };
  prepare(sandbox_);
  expect_refusals({
      {"init", {}, init("file", false), kUsage, says("file")},
      {"init with force", {}, init("file", true), kUsage, says("file")},
      {"init over other files", {}, init("full", false), kUsage, says("full")},
      {"export", {}, to("file"), kUsage, says("file")},
      {"export over other files", {}, to("full"), kUsage, says("full")},
  });
}

TEST_F(Mistakes, OtherThings) {
  make_run();
  const std::string no_files = "nvme: /proc: its file system holds no files of its users (name a ";
  const std::string of_run =
      "run: it is the directory of a run (give its model: --model run/model)";
  expect_refusals({
      {"scratch in /proc", {}, train({"--nvme", "/proc"}), kUsage, {no_files}},
      {"plan in /proc", {}, {"plan", "--model", "good", "--nvme", "/proc"}, kUsage, {no_files}},
      {"bench of /proc", {}, {"bench", "io", "--nvme", "/proc"}, kUsage, {no_files}},
      {"a run's tokenizer", {}, {"tokenize", "--model", "run", "--text", "a"}, kUsage, {of_run}},
      {"no directory",
       {},
       {"tokenize", "--model", "nowhere", "--text", "a"},
       kUsage,
       {"nowhere: there is no such directory"}},
      {"an option before the command",
       {},
       {"--model", "good", "plan"},
       kUsage,
       {"command: it is missing before --model (give it first: strata train --model ...; strata "
        "--help"}},
      {"an empty text",
       [](const Sandbox& sandbox) { write_text(sandbox / "empty.txt", ""); },
       {"init", "--data", "empty.txt", "--out", "out"},
       kUsage,
       {"train tokenizer: empty.txt: it is empty (give data with text)"}},
      {"heads that are too large",
       {},
       {"init", "--data", STRATA_TEXT, "--out", "out", "--hidden", "100000"},
       kUsage,
       {"--hidden 100000 over --heads 8 is a head size of 12500, more than 4096"}},
  });
}

TEST_F(Mistakes, ARunThatThisUserMayNotLookInto) {
  Process trial({"--version"}, {.directory = sandbox_.path(), .obeys_permissions = true});
  if (trial.wait() != 0) GTEST_SKIP() << "root cannot be made to obey permissions here";
  const auto close = [](const Sandbox& sandbox) {
    std::filesystem::create_directory(sandbox / "closed");
    std::filesystem::permissions(sandbox / "closed", std::filesystem::perms(0));
  };
  const ProcessOptions obedient = {.obeys_permissions = true};
  const std::vector<std::string> says = {
      "cannot look into: closed: Permission denied (give a path that this user may use, or change"};
  close(sandbox_);
  expect_refusals({
      {"resume", {}, {"train", "--resume", "closed"}, kUsage, says, obedient},
      {"resume in place", {}, {"train", "--out", "closed", "--resume"}, kUsage, says, obedient},
      {"eval", {}, {"eval", "--resume", "closed", "--data", STRATA_TEXT}, kUsage, says, obedient},
  });
}

TEST_F(Mistakes, HelpAskedForByAWord) {
  for (const Arguments& asks :
       {Arguments{"train", "help"}, {"help", "train"}, {"train", "-help"}}) {
    Process process(asks, {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), 0) << process.err();
    EXPECT_NE(process.out().find("Usage: strata train"), std::string::npos) << process.out();
  }
  for (const Arguments& asks : {Arguments{"bench", "help"}, {"bench", "io", "help"}}) {
    Process process(asks, {.directory = sandbox_.path()});
    EXPECT_EQ(process.wait(), 0) << process.err();
    EXPECT_NE(process.out().find("Usage: strata bench io"), std::string::npos) << process.out();
  }
}

}  // namespace
}  // namespace strata::cli::test
