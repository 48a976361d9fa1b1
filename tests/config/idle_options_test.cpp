// SPDX-License-Identifier: Apache-2.0
// Options that do nothing beside the others are not taken silently: as flags that nobody means so
// they are refused together with other problems, and else there is a warning.
#include "engine/config/idle_options.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/config/option_table.h"

namespace strata::config {
namespace {

using Args = std::vector<std::string>;

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

// What a command says of options in its file and of flags: an error, or its warnings.
std::string said(Command command, Args args, const std::string& toml = "",
                 const std::string& deepspeed = "") {
  for (const char* name : {"model", "data", "out", "nvme"}) {
    const bool needs = takes(*find_option(name), command) &&
                       (std::string(name) != "nvme" || command == Command::kBench);
    if (needs) args.insert(args.end(), {"--" + std::string(name), "x"});
  }
  try {
    const Options options = resolve(command, {.toml = toml,
                                              .toml_name = "run.toml",
                                              .deepspeed = deepspeed,
                                              .deepspeed_name = deepspeed.empty() ? "" : "ds.json",
                                              .args = args});
    std::string text;
    for (const std::string& warning : options.warnings) text += "warning: " + warning + "\n";
    return text;
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
}

struct IdleCase {
  Command command;
  Args idle;       // the option that does nothing, and its value
  Args beside;     // flags with which that is so
  Args effective;  // flags with which it does something
  bool is_mistake;
};

const std::vector<IdleCase>& cases() {
  using enum Command;
  static const std::vector<IdleCase> all = {
      {kTrain, {"min-lr-ratio", "0.1"}, {"--schedule", "constant"}, {"--schedule", "linear"}, true},
      {kTrain, {"lr-batch", "8"}, {}, {"--lr-scaling", "linear"}, true},
      {kPlan, {"min-lr-ratio", "0.1"}, {"--schedule", "constant"}, {}, true},
      {kTrain, {"min-lr-ratio", "0.1"}, {"--warmup-ratio", "1"}, {"--warmup-ratio", "0.9"}, true},
      {kTrain,
       {"schedule", "linear"},
       {"--warmup-steps", "5", "--steps", "5"},
       {"--warmup-steps", "4", "--steps", "5"},
       false},
      {kTrain, {"decay-all", "on"}, {"--weight-decay", "0"}, {}, true},
      {kTrain, {"zero-stage", "2"}, {}, {"--ranks", "2"}, false},
      {kTrain, {"collectives", "mpi"}, {}, {"--ranks", "2"}, false},
      {kTrain, {"checkpoint-every", "9"}, {"--steps", "8"}, {"--steps", "9"}, false},
      {kLaunch,
       {"min-ranks", "1"},
       {"--max-restarts", "0"},
       {"--max-restarts", "1", "--nodes", "2"},
       true},
      {kLaunch,
       {"min-ranks", "1"},
       {"--max-restarts", "1"},
       {"--max-restarts", "1", "--nodes", "2"},
       false},
      {kTrain, {"eval-fraction", "0.1"}, {}, {"--eval-every", "5"}, true},
      {kTrain, {"eval-data", "a.jsonl"}, {}, {"--eval-every", "5"}, true},
      {kTrain, {"keep-best", "on"}, {}, {"--eval-every", "5"}, true},
      {kTrain, {"patience", "2"}, {}, {"--eval-every", "5"}, true},
      {kTrain, {"sample-prompts", "a.txt"}, {}, {"--eval-every", "5"}, true},
      {kTrain,
       {"trace-from", "6"},
       {"--trace-steps", "1", "--steps", "5"},
       {"--trace-steps", "1", "--steps", "6"},
       true},
      {kTrain, {"seed", "3"}, {"--shuffle", "off"}, {}, false},
      {kGenerate, {"seed", "3"}, {"--temperature", "0"}, {}, false},
      {kGenerate, {"top-k", "3"}, {"--temperature", "0"}, {}, true},
      {kGenerate, {"top-p", "0.3"}, {"--temperature", "0"}, {}, true},
      {kEval, {"io", "threads"}, {}, {"--nvme", "n"}, false},
      {kTrain, {"nvme", "n"}, {"--offload", "none"}, {"--offload", "auto"}, false},
      {kEval, {"nvme", "n"}, {"--offload", "host"}, {"--offload", "nvme"}, false},
      {kTrain, {"prefetch-depth", "3"}, {"--offload", "none"}, {}, false},
      {kTrain, {"io", "threads"}, {"--offload", "host", "--nvme", "n"}, {"--nvme", "n"}, false},
      {kTrain,
       {"nvme-rate", "1GB,1GB"},
       {"--offload", "none", "--nvme", "n"},
       {"--nvme", "n"},
       false},
      {kTrain,
       {"prefetch-depth", "3"},
       {"--offload", "none", "--device", "cpu"},
       {"--offload", "none", "--device", "emulated"},
       false},
      {kBench, {"rounds", "9"}, {}, {"--compare-fio"}, true},
      {kBench, {"rounds", "9"}, {}, {"--compare-checksums"}, true},
  };
  return all;
}

TEST(IdleOptions, AreRefusedOrToldAsFlagsAndToldInFiles) {
  for (const IdleCase& one : cases()) {
    const std::string flag = "--" + one.idle[0];
    SCOPED_TRACE(std::string(name_of(one.command)) + " " + flag);
    const std::string has_none = flag + " has no effect: ";
    Args args = {flag, one.idle[1]};
    args.insert(args.end(), one.beside.begin(), one.beside.end());
    const std::string of_flag = said(one.command, args);
    EXPECT_HAS(of_flag, (one.is_mistake ? "" : "warning: ") + has_none);
    EXPECT_EQ(of_flag.starts_with("cannot use the options"), one.is_mistake) << of_flag;
    const std::string toml = key_of(*find_option(one.idle[0])) + " = \"" + one.idle[1] + "\"\n";
    EXPECT_HAS(said(one.command, one.beside, toml), "warning: " + has_none);
    EXPECT_EQ(said(one.command, one.beside).find(has_none), std::string::npos) << "not given";
    Args effective = {flag, one.idle[1]};
    effective.insert(effective.end(), one.effective.begin(), one.effective.end());
    EXPECT_EQ(said(one.command, effective).find(has_none), std::string::npos);
  }
}

TEST(IdleOptions, AreRefusedTogetherWithTheRest) {
  const std::string error =
      said(Command::kTrain, {"--min-lr-ratio", "0.1", "--schedule", "constant", "--eval-fraction",
                             "0.2", "--steps", "0"});
  EXPECT_HAS(error, "3 problems");
  EXPECT_HAS(error, "(give --schedule linear or cosine)");
  EXPECT_HAS(error, "(give --eval-every N)");
  EXPECT_HAS(error, "--steps \"0\" is out of range");
}

TEST(IdleOptions, OfADeepspeedFileAreToldOnce) {
  const std::string text = said(Command::kTrain, {}, "", R"({"zero_optimization": {"stage": 3}})");
  EXPECT_EQ(text,
            "warning: --zero-stage has no effect: a single rank has data of its own, and shares "
            "nothing (raise --ranks); "
            "--zero-stage is given by ds.json: zero_optimization.stage\n");
}

TEST(IdleOptions, AreNotThoseOfOtherCommands) {
  EXPECT_EQ(said(Command::kPlan, {}, "eval_fraction = 0.1\ntop_k = 4\ntemperature = 0\n"), "");
}

std::string groups(const std::string& toml, const Args& args = {}) {
  return said(Command::kPlan, args, toml);
}

TEST(IdleGroups, ThatAreAsTheRestAreRefused) {
  EXPECT_HAS(groups("[[group]]\nmatch = \"a\"\n"), "[[group]] 1 has no effect");
  EXPECT_HAS(groups("[[group]]\nmatch = \"a\"\nlr_factor = 1\nfrozen = false\n"),
             "[[group]] 1 has no effect");
  // Kept from the one after it.
  const std::string later = "[[group]]\nmatch = \"b\"\nlr_factor = 2\n";
  EXPECT_EQ(groups("[[group]]\nmatch = \"a\"\n" + later), "");
  EXPECT_HAS(groups(later + "[[group]]\nmatch = \"a\"\n[[group]]\nmatch = \"c\"\n"), "2 problems");
}

TEST(IdleOptions, EpochsOfAPlanNeedData) {
  const auto warnings = [](const Args& args) {
    return resolve(Command::kPlan, {.args = args}).warnings;
  };
  const Args epochs = {"--model", "x", "--epochs", "2"};
  ASSERT_EQ(warnings(epochs).size(), 1u);
  EXPECT_HAS(warnings(epochs).front(), "--epochs has no effect: the length of a pass is not known");
  EXPECT_TRUE(warnings({"--model", "x", "--epochs", "2", "--data", "x"}).empty());
}

TEST(IdleGroups, ThatAreFrozenHaveNothingElse) {
  const std::string frozen = "[[group]]\nmatch = \"a\"\nfrozen = true\n";
  EXPECT_EQ(groups(frozen), "");
  EXPECT_HAS(groups(frozen + "lr_factor = 2\n"),
             "[[group]] 1 is frozen and cannot use its lr_factor (");
  EXPECT_HAS(groups(frozen + "weight_decay = 0\n"), "cannot use its weight_decay (");
  EXPECT_HAS(groups(frozen + "lr_factor = 2\nweight_decay = 0\n"),
             "cannot use its lr_factor and weight_decay (");
}

TEST(IdleGroups, RaiseNoRateBeyondItsBound) {
  const std::string group = "[[group]]\nmatch = \"a\"\nlr_factor = ";
  EXPECT_EQ(groups(group + "1000\n", {"--lr", "0.001"}), "");
  EXPECT_HAS(groups(group + "1000\n", {"--lr", "0.002"}),
             "[[group]] 1: --lr 0.002 times lr_factor 1000 is 2, more than 1, the most that --lr "
             "may be (lower one of them)");
  EXPECT_EQ(groups(group + "0\n"), "") << "its gradients count in the norm";
}

// What is switched off needs nothing to be evaluated.
TEST(IdleOptions, AreNotThoseThatAreOff) {
  for (const char* name : {"--keep-best", "--sample-prompts"}) {
    EXPECT_EQ(said(Command::kTrain, {name, "off"}), "") << name;
  }
}

}  // namespace
}  // namespace strata::config
