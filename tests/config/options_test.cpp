// SPDX-License-Identifier: Apache-2.0
// Options: flags and TOML give the same values, everything wrong is reported at once and by name,
// and JSON carries them to and fro.
#include "engine/config/options.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/config/option_table.h"
#include "engine/config/option_values.h"
#include "tests/config/train_options.h"

namespace strata::config {
namespace {

TEST(Options, FlagsReachTheirFields) {
  const Options options = train(
      {"--steps",     "20",        "--lr=3e-4", "--betas",      "0.8,0.95",  "--host-memory",
       "1GiB",        "--nvme",    "/a,/b",     "--nvme-rate",  "2GB/s,1GB", "--recipe",
       "fp32",        "--shuffle", "off",       "--clip",       "0",         "--optimizer-mode",
       "in-backward", "--freeze",  "embed.*",   "--zero-stage", "0"});
  EXPECT_EQ(options.model, "m");
  EXPECT_EQ(options.steps, 20);
  EXPECT_EQ(options.lr, 3e-4);
  EXPECT_EQ(options.betas.first, 0.8);
  EXPECT_EQ(options.betas.second, 0.95);
  EXPECT_EQ(options.host_memory, kGiB);
  EXPECT_EQ(options.nvme, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(options.nvme_rate.read_bytes_per_s, 2000000000);
  EXPECT_EQ(options.nvme_rate.write_bytes_per_s, 1000000000);
  EXPECT_EQ(options.recipe, Recipe::kFp32);
  EXPECT_FALSE(options.shuffle);
  EXPECT_EQ(options.clip, 0);
  EXPECT_EQ(options.optimizer_mode, OptimizerMode::kInBackward);
  EXPECT_EQ(options.freeze, "embed.*");
  EXPECT_EQ(options.zero_stage, 0);
  EXPECT_TRUE(options.is_given("lr"));
  EXPECT_FALSE(options.is_given("eps"));
}

TEST(Options, TomlAndFlagsAgreeForEveryOption) {
  for (const OptionRow& row : option_table()) {
    if (!takes(row, Command::kTrain) || row.type == OptionType::kSwitch) continue;
    if (row.name == "config") continue;  // not in a file
    Options wanted;
    std::string text = value_text(row, wanted);
    if (row.type == OptionType::kString || row.type == OptionType::kList) text = "x";
    if (!assign(row, {text}, wanted).empty()) {  // the default stands for something else
      text = row.type == OptionType::kSize ? "1GiB" : "1";
    }
    if (row.type == OptionType::kRates) text = "1000000,2000000";
    if (row.name == "chat-date") text = "2024-02-29";
    if (row.name == "mesh") text = "auto";
    Options by_flag;
    Options by_toml;
    ASSERT_EQ(assign(row, {text}, by_flag), "") << row.name;
    // Required options stand in the file alone, to see that it counts there.
    Args args = {"--nvme", "n"};
    if (row.name == "nvme") args.clear();
    std::string toml = key_of(row) + " = \"" + text + "\"\n";
    for (const char* need : {"model", "data", "out"}) {
      if (row.name != need) toml += std::string(need) + " = \"x\"\n";
    }
    if (row.name == "warmup-steps") toml += "epochs = 1.0\n";
    if (row.name == "device-memory") toml += "device = \"emulated\"\n";
    by_toml = resolve(Command::kTrain, {.toml = toml, .toml_name = "t", .args = args});
    EXPECT_EQ(value_text(row, by_toml), value_text(row, by_flag)) << row.name;
    EXPECT_TRUE(by_toml.is_given(row.name)) << row.name;
  }
}

TEST(Options, TomlHasNumbersListsAndBooleans) {
  const Options options = train(
      {},
      "steps = 7\nlr = 1\nbetas = [0.5, 0.25]\nnvme = [\"/a,b\", \"/c\"]\n"
      "shuffle = false\nhost_memory = \"2GiB\"\ndevice = \"emulated\"\ndevice_memory = 4194304\n"
      "resume = true\n");
  EXPECT_EQ(options.steps, 7);
  EXPECT_EQ(options.lr, 1.0);
  EXPECT_EQ(options.betas.second, 0.25);
  EXPECT_EQ(options.nvme, (std::vector<std::string>{"/a,b", "/c"}));
  EXPECT_FALSE(options.shuffle);
  EXPECT_EQ(options.host_memory, 2 * kGiB);
  EXPECT_EQ(options.device_memory, 4 * kMiB);
  EXPECT_TRUE(options.resume);
  EXPECT_EQ(options.resume_checkpoint, "");
}

TEST(Options, AFileHasEachOptionOnceHoweverItIsSpelled) {
  EXPECT_EQ(train({}, "host-memory = \"2GiB\"").host_memory, 2 * kGiB);
  const std::string error = train_error({}, "host-memory = \"2GiB\"\nhost_memory = \"1GiB\"\n");
  EXPECT_HAS(error, "run.toml:2:1: host_memory is given twice (keep one: run.toml:1:1 has it too)");
  EXPECT_HAS(train_error({}, "vocab_size = 300\nvocab-size = 300\n"), "is given twice");
  EXPECT_HAS(train_error({}, "a-b = 1\na_b = 1\n"), "a_b is not an option");
}

TEST(Options, AFileNamesNoFileAndAsksForNoHelp) {
  EXPECT_HAS(train_error({}, "config = \"x\""),
             "run.toml:1:1: config cannot be given in a file (give --config on the command line)");
  EXPECT_HAS(train_error({}, "help = true"),
             "run.toml:1:1: help cannot be given in a file (give --help on the command line)");
}

TEST(Options, FlagsOverrideTheFile) {
  EXPECT_EQ(train({"--lr", "0.5"}, "lr = 0.25").lr, 0.5);
  const Options options = train({"--epochs", "2"}, "steps = 7");
  EXPECT_EQ(options.steps, 0);
  EXPECT_EQ(options.epochs, 2);
}

TEST(Options, GroupsComeFromTheFile) {
  const Options options = train({},
                                "[[group]]\nmatch = \"norm\"\nweight_decay = 0\n"
                                "[[group]]\nmatch = \"embed\"\nlr_factor = 0.1\n"
                                "[[group]]\nmatch = \"v_proj\"\nfrozen = true\n");
  ASSERT_EQ(options.groups.size(), 3u);
  EXPECT_EQ(options.groups[0].match, "norm");
  EXPECT_EQ(options.groups[0].weight_decay, 0.0);
  EXPECT_EQ(options.groups[0].lr_factor, 1.0);
  EXPECT_FALSE(options.groups[1].weight_decay.has_value());
  EXPECT_EQ(options.groups[1].lr_factor, 0.1);
  EXPECT_TRUE(options.groups[2].frozen);
  const std::string error = train_error({}, "[[group]]\nlr_facto = 0.1\n");
  EXPECT_HAS(error, "run.toml:2:1: lr_facto is not a key of [[group]] (did you mean lr_factor?)");
  EXPECT_HAS(error, "[[group]] 1 has no match");
}

TEST(Options, AGroupWithoutKeysHasNoMatch) {
  EXPECT_HAS(train_error({}, "[[group]]\n"), "[[group]] 1 has no match");
  EXPECT_HAS(train_error({}, "[[group]]\nmatch = \"x\"\n[[group]]\n"), "[[group]] 2 has no match");
  EXPECT_HAS(train_error({}, "lr = 1\n[memory]\n"),
             "run.toml:2:1: the table memory is not supported (move its keys");
  EXPECT_HAS(train_error({}, "[group]\n"), "the table group is not supported");
  EXPECT_EQ(train_error({}, ""), "no error");
  EXPECT_THROW(options_from_json(Command::kPlan, R"({"model": "m", "groups": [{}]})"), Error);
}

TEST(Options, ResumeTakesAValueOrNone) {
  EXPECT_TRUE(train({"--resume"}).resume);
  EXPECT_EQ(train({"--resume", "--steps", "3"}).resume_checkpoint, "");
  EXPECT_EQ(train({"--resume", "runs/a"}).resume_checkpoint, "runs/a");
  EXPECT_FALSE(train({}).resume);
}

TEST(Options, EveryProblemIsInOneError) {
  const std::string error =
      train_error({"--lrr", "1", "--steps", "0", "--eps", "nan", "--clip", "inf", "--betas",
                   "0.9,1", "--recipe", "bf61", "--offload", "nvme", "--micro-batch", "1.5"},
                  "sequence_lenght = 4\nepochs = -1\n");
  EXPECT_HAS(error, "10 problems");
  EXPECT_HAS(error, "--lrr is not an option (did you mean --lr?)");
  EXPECT_HAS(error, "--steps \"0\" is out of range (give a whole number, at least 1)");
  EXPECT_HAS(error, "--eps \"nan\" is not a finite number");
  EXPECT_HAS(error, "--clip \"inf\" is not a finite number");
  EXPECT_HAS(error, "--betas \"0.9,1\" is out of range");
  EXPECT_HAS(error, "--recipe \"bf61\" is unknown (did you mean bf16?)");
  EXPECT_HAS(error, "--offload nvme needs a directory (give --nvme DIR)");
  EXPECT_HAS(error, "--micro-batch \"1.5\" is not a whole number");
  EXPECT_HAS(error,
             "run.toml:1:1: sequence_lenght is not an option (did you mean sequence_length?)");
  EXPECT_HAS(error, "run.toml:2:1: epochs \"-1\" is out of range");
}

TEST(Options, ConflictsAreNamed) {
  EXPECT_HAS(train_error({"--steps", "1", "--epochs", "1"}), "--steps and --epochs set the same");
  EXPECT_HAS(train_error({"--warmup-steps", "1", "--warmup-ratio", "0.1"}), "set the same thing");
  EXPECT_HAS(train_error({"--eval-data", "a", "--eval-fraction", "0.1"}), "set the same thing");
  EXPECT_HAS(train_error({"--steps", "3", "--warmup-steps", "4"}), "more than --steps 3");
  EXPECT_HAS(train_error({"--nvme-rate", "1GB,1GB"}), "--nvme-rate has no effect without drives");
  EXPECT_HAS(train_error({"--optimizer-mode", "in-backward"}), "give --clip 0");
  EXPECT_HAS(train_error({"--tensor-ranks", "2"}),
             "--tensor-ranks 2 does not divide --ranks 1 (give --ranks a multiple of 2, or");
  EXPECT_HAS(train_error({"--ranks", "4", "--tensor-ranks", "2", "--shard-ranks", "4"}),
             "does not divide --ranks 4 / --tensor-ranks 2 = 2");
  EXPECT_HAS(train_error({"--ranks", "4", "--tensor-ranks", "2", "--context-ranks", "3"}),
             "--context-ranks 3 does not divide --ranks / --tensor-ranks = 2 (give --ranks a "
             "multiple of 6, or");
  EXPECT_HAS(train_error({"--ranks", "2", "--context-ranks", "2", "--sequence-length", "66"}),
             "--sequence-length 66 is not 4 equal pieces, two for each of --context-ranks 2 (give "
             "a multiple of 4)");
  EXPECT_HAS(train_error({"--ranks", "2", "--context-ranks", "2", "--sample-prompts", "a"}),
             "no rank has the whole text with --context-ranks 2");
  EXPECT_HAS(train_error({"--lr-scaling", "sqrt"}), "give --lr-batch N");
  EXPECT_HAS(train_error({"--host-memory", "0.5"}), "has no unit: 0.5GiB or 0.5MiB?");
  EXPECT_HAS(train_error({"--steps", "99999999999999999999"}), "is more than 9223372036854775807");
  EXPECT_HAS(train_error({"--offload", "disk"}), "did you mean nvme?");
  EXPECT_HAS(train_error({"-m", "start"}), "see strata train --help for all options");
  EXPECT_HAS(train_error({"--lr-scaling", "linear", "--lr-batch", "1", "--lr", "0.1",
                          "--accumulate", "20"}),
             "--lr 0.1 becomes 2 with 20 samples in a step");
  EXPECT_HAS(train_error({"--optimizer-mode", "in-backward", "--clip", "0", "--recipe", "fp16"}),
             "cannot scale the loss");
  EXPECT_HAS(train_error({"--device", "cpu", "--device-memory", "1GiB"}), "use --host-memory");
  EXPECT_HAS(train_error({"--device-memory", "1GiB"}), "--device auto, the CPU of this machine");
  EXPECT_HAS(train_error({"--device-memory", "1GiB", "--machine", "gpu.toml"}), "--host-memory");
  EXPECT_HAS(train_error({}, "steps = 1\nepochs = 1.0"), "set the same thing");
}

TEST(Options, AFlagThatTakesTheCpuSilencesTheDeviceMemoryOfAFile) {
  const char* file = "device = \"emulated\"\ndevice_memory = \"1GiB\"\n";
  EXPECT_EQ(train({}, file).device_memory, kGiB);
  const Options options = train({"--device", "cpu"}, file);
  EXPECT_EQ(options.device_memory, 0);
  EXPECT_FALSE(options.is_given("device-memory"));
  EXPECT_HAS(train_error({}, "device = \"cpu\"\ndevice_memory = \"1GiB\"\n"), "--host-memory");
}

TEST(Options, WhatCannotBeReadIsRefused) {
  EXPECT_HAS(train_error({"--steps"}), "--steps needs a value");
  EXPECT_HAS(train_error({"--steps", "1", "--steps", "2"}), "--steps is given twice");
  EXPECT_HAS(train_error({"extra"}), "unexpected argument \"extra\"");
  EXPECT_HAS(train_error({"-lr", "1e-4"}), "unexpected argument \"-lr\" (write --lr)");
  EXPECT_HAS(train_error({"\u2013lr", "1e-4"}), "(write --lr)");
  EXPECT_HAS(train_error({"--host-memory", "-1"}), "is not a size");
  EXPECT_HAS(train_error({"--host-memory", "0"}), "is out of range");
  EXPECT_HAS(train_error({"--host-memory", "24"}),
             "--host-memory \"24\" has no unit: 24GiB or 24MiB? (give a size such as 24GiB)");
  EXPECT_EQ(train({"--host-memory", "83886080"}).host_memory, 80 * kMiB);
  EXPECT_EQ(train({"--host-memory", "24B"}).host_memory, 24);
  EXPECT_HAS(train_error({"--nvme-rate", "2,1", "--nvme", "a"}), "suffix");
  EXPECT_HAS(train_error({"--nvme-rate", "2GB", "--nvme", "a"}),
             "--nvme-rate \"2GB\" needs two rates: how fast to read, and how fast to write (give "
             "two sizes a second with a comma between, each at least 64 KiB, such as "
             "2GB,1GB)");
  EXPECT_HAS(train_error({"--nvme", "a,,b"}), "empty part");
  EXPECT_HAS(train_error({"--nvme", "a,a"}), "names a twice");
  EXPECT_HAS(train_error({"--lr", "1e3"}), "is out of range (give a number, above 0, at most 1)");
  EXPECT_HAS(train_error({"--lr", "0"}), "--lr \"0\" is out of range");
  EXPECT_HAS(train_error({"--freeze", ""}), "is empty");
  EXPECT_HAS(train_error({"--top-k", "3"}), "not an option of train (it belongs to generate)");
  EXPECT_HAS(train_error({}, "lr = [1, 2]"), "takes one value, not a list");
  EXPECT_HAS(train_error({}, "a = 1\nlr 3"), "run.toml:2:");
  EXPECT_HAS(train_error({}, "lr = 1\nlr = 1"), "run.toml:2:");
  EXPECT_HAS(train_error({}, "lr = 2020-01-01"), "dates");
  EXPECT_HAS(train_error({}, "[memory]\nlr = 1"), "[[group]] is the only table");
  EXPECT_HAS(train_error({}, "lr = nan"), "is not a finite number");
}

TEST(Options, CommandsShareAFile) {
  const std::string toml = "model = \"m\"\ntop_k = 3\nkeep_checkpoints = 4\n";
  const Options plan = resolve(Command::kPlan, {.toml = toml, .toml_name = "t", .args = {}});
  EXPECT_EQ(plan.model, "m");
  EXPECT_FALSE(plan.is_given("top-k"));
  EXPECT_HAS(train_error({}, "top_k = -3"), "top_k = \"-3\" is out of range");
}

TEST(Options, MissingOnesAreNamed) {
  try {
    resolve(Command::kTrain, {});
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_HAS(text, "--model is missing");
    EXPECT_HAS(text, "--data is missing");
    EXPECT_HAS(text, "--out is missing");
  }
}

std::string error_of(Command command, const Args& args) {
  try {
    resolve(command, {.args = args});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Options, ShapesOfANewModelMustDivide) {
  const std::string error = error_of(Command::kInit, {"--data", "d", "--out", "o", "--hidden",
                                                      "100", "--heads", "8", "--kv-heads", "3"});
  EXPECT_HAS(error, "--hidden 100 is not a multiple of --heads 8");
  EXPECT_HAS(error, "--heads 8 is not a multiple of --kv-heads 3");
  const Args wide = {"--data", "d", "--out", "o", "--hidden", "100000", "--heads", "8"};
  EXPECT_HAS(error_of(Command::kInit, wide),
             "--hidden 100000 over --heads 8 is a head size of 12500, more than 4096 (lower the");
}

TEST(Options, HelpWinsOverEverythingElse) {
  const Args args = {"--nonsense", "--help"};
  EXPECT_TRUE(resolve(Command::kTrain, {.args = args}).help);
}

TEST(Options, ACommandLineReadsItsFile) {
  const std::string path = testing::TempDir() + "options_test.toml";
  std::ofstream(path) << "lr = 0.125\n";
  EXPECT_EQ(resolve_command_line(Command::kTrain, with_required({"--config", path})).lr, 0.125);
  EXPECT_EQ(resolve_command_line(Command::kTrain, with_required({"--config=" + path})).lr, 0.125);
  std::remove(path.c_str());
  EXPECT_THROW(resolve_command_line(Command::kTrain, with_required({"--config", path})), Error);
}

TEST(Options, JsonCarriesEveryOption) {
  const Options options = train(
      {"--warmup-ratio", "0.1", "--nvme", "/a,/b", "--clip", "0.5", "--resume", "--host-memory",
       "123456789", "--schedule", "linear", "--nvme-rate", "1GB,2GB", "--freeze", "a\"b\\c"},
      "[[group]]\nmatch = \"x\"\nweight_decay = 0.5\n");
  const std::string json = to_json(Command::kTrain, options);
  const Options back = options_from_json(Command::kTrain, json);
  for (const OptionRow& row : option_table()) {
    EXPECT_EQ(value_text(row, back), value_text(row, options)) << row.name;
  }
  ASSERT_EQ(back.groups.size(), 1u);
  EXPECT_EQ(back.groups[0].weight_decay, 0.5);
  EXPECT_EQ(to_json(Command::kTrain, back), json);
  const Json object = Json::parse(json, "test");
  EXPECT_EQ(object.find("host_memory")->int64(), 123456789);
  EXPECT_TRUE(object.find("steps")->is_null());
}

TEST(Options, ACommaWithinAPathStandsBehindABackslash) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(train({"--nvme", "/a\\,b,/c"}).nvme, (Paths{"/a,b", "/c"}));
  EXPECT_EQ(train({"--nvme", "/a\\,b"}).nvme, Paths{"/a,b"});
  EXPECT_EQ(train({}, "nvme = [\"/a,b\"]").nvme, Paths{"/a,b"});
  EXPECT_EQ(train({}, "nvme = \"/a,/b\"").nvme, (Paths{"/a", "/b"}));
  const std::string json = to_json(Command::kTrain, train({"--nvme", "/a\\,b"}));
  EXPECT_EQ(options_from_json(Command::kTrain, json).nvme, Paths{"/a,b"});
}

TEST(Options, SpacesAroundTheCommasOfAListAreDropped) {
  using Paths = std::vector<std::string>;
  EXPECT_EQ(train({"--nvme", "/a, /b c ,/d"}).nvme, (Paths{"/a", "/b c", "/d"}));
  EXPECT_EQ(train({"--nvme", " /a"}).nvme, Paths{" /a"});
  EXPECT_EQ(train({}, "nvme = [\" /a\", \"/b \"]").nvme, (Paths{" /a", "/b "}));
  EXPECT_EQ(train({"--betas", "0.9, 0.95"}).betas.second, 0.95);
  EXPECT_HAS(train_error({"--nvme", "/a, "}), "has an empty part");
}

TEST(Options, AWordWithoutAFlagGetsTheAdviceThatFits) {
  const std::string name = "each value needs the name of its option, such as ";
  const struct {
    Command command;
    Args args;
    std::string says;
  } cases[] = {
      {Command::kPlan, {"llama"}, name + "--model llama)"},
      {Command::kTrain, {"--model", "m", "a.txt"}, name + "--data a.txt)"},
      {Command::kTrain, {"--model=m", "a.txt"}, name + "--data a.txt)"},
      {Command::kTrain, {"--data", "a", "b"}, "(join several values by commas: --data a,b)"},
      {Command::kTrain, {"--data=a", "b"}, "(join several values by commas: --data a,b)"},
      {Command::kTrain, {"--model", "m", "--data", "d", "--out", "o", "7"}, "see strata train --h"},
      {Command::kTrain, {"--json", "x"}, "leave it out: --json takes no value)"},
      {Command::kEval, {"--resume", "run", "--steps", "1", "a.txt"}, name + "--data a.txt)"},
      {Command::kGenerate, {"--model", "m", "hello"}, name + "--prompt hello)"},
      {Command::kGenerate, {"--prompt", "Once", "upon"}, "(quote values that contain spaces)"},
      {Command::kExport, {"run"}, name + "--resume run)"},
      {Command::kReport, {"--run", "a", "b.html"}, name + "--out b.html)"},
      {Command::kDoctor, {"./d"}, name + "--nvme ./d)"},
      {Command::kModels, {"llama"}, "(see strata models --help)"},
  };
  for (const auto& [command, args, says] : cases) EXPECT_HAS(error_of(command, args), says);
}

// A problem speaks of flags, whatever the user wrote.
TEST(Options, AProblemSaysWhichKeyOfAFileItIsAbout) {
  EXPECT_HAS(train_error({}, "offload = \"nvme\""),
             "--offload nvme needs a directory (give --nvme DIR); --offload is given by "
             "run.toml:1:1: offload");
  EXPECT_HAS(train_error({"--clip", "1"}, "optimizer_mode = \"in-backward\""),
             "deferred); --optimizer-mode is given by run.toml:1:1: optimizer_mode");
  const std::string flag = train_error({"--offload", "nvme"});
  EXPECT_EQ(flag.find("is given by"), std::string::npos) << flag;
  const Options options = train({}, "zero_stage = 2");
  ASSERT_EQ(options.warnings.size(), 1u);
  EXPECT_HAS(options.warnings[0], "; --zero-stage is given by run.toml:1:1: zero_stage");
}

TEST(Options, TheDateOfChatsIsADay) {
  EXPECT_EQ(train({"--chat-date", "2024-02-29"}).chat_date, "2024-02-29");
  for (const char* date : {"2023-02-29", "2024-2-29", "29.2.2024", "2024-02-2x", "today"}) {
    EXPECT_HAS(train_error({"--chat-date", date}), "is not a date (give year, month and day");
  }
}

// What files and flags say comes before it, also where they say the same thing in another way.
TEST(Options, ARunGivesWhatNothingElseDoes) {
  const Options before = train({"--lr", "1e-3", "--epochs", "2", "--threads", "3", "--resume"},
                               "eps = 1e-6\n[[group]]\nmatch = \"x\"\nfrozen = true\n");
  const Args args = {"--out", "other", "--steps", "7", "--resume", "step-1"};
  const auto run = [&](const Options& so_far) {
    EXPECT_EQ(so_far.resume_checkpoint, "step-1");
    return RunOptions{to_json(Command::kTrain, before), "run.json"};
  };
  const Options options = resolve(
      Command::kTrain, {.run = run, .toml = "eps = 1e-5\n", .toml_name = "run.toml", .args = args});
  EXPECT_EQ(options.model, "m");
  EXPECT_EQ(options.out, "other");
  EXPECT_EQ(options.resume_checkpoint, "step-1");
  EXPECT_EQ(options.lr, 1e-3);
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.eps, 1e-5);
  EXPECT_EQ(options.steps, 7);
  EXPECT_EQ(options.epochs, 0);
  ASSERT_EQ(options.groups.size(), 1u);
  EXPECT_TRUE(options.groups[0].frozen);
}

TEST(Options, JsonChangesTheOptionsOfARun) {
  const Options before = train({"--lr", "1e-3", "--epochs", "2", "--threads", "3"},
                               "[[group]]\nmatch = \"x\"\nfrozen = true\n");
  const auto run = [&](const Options& so_far) {
    EXPECT_EQ(so_far.out, "run");
    return RunOptions{to_json(Command::kTrain, before), "run.json"};
  };
  const auto changed_by = [&](const std::string& more) {
    return options_from_json(Command::kTrain, R"({"out": "run", "resume": true)" + more + "}", run);
  };
  EXPECT_EQ(changed_by("").lr, 1e-3);
  EXPECT_EQ(changed_by("").groups.size(), 1u);
  const Options options = changed_by(R"(, "lr": 5e-5, "steps": 7, "threads": null, "groups": [])");
  EXPECT_EQ(options.lr, Options().lr);
  EXPECT_EQ(options.steps, 7);
  EXPECT_EQ(options.epochs, 0);
  EXPECT_EQ(options.threads, 3);
  EXPECT_TRUE(options.groups.empty());
}

TEST(Options, JsonIsCheckedLikeTheRest) {
  try {
    options_from_json(Command::kPlan, R"({"modle": "m", "lr": "fast", "steps": 1.5, "groups": 3})");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_HAS(text, "5 problems");
    EXPECT_HAS(text, "modle is not an option (did you mean model?)");
    EXPECT_HAS(text, "lr \"fast\" is not a finite number");
    EXPECT_HAS(text, "steps \"1.5\" is not a whole number");
    EXPECT_HAS(text, "groups is not an array");
    EXPECT_HAS(text, "--model is missing");
  }
  EXPECT_THROW(options_from_json(Command::kPlan, "[]"), Error);
}

}  // namespace
}  // namespace strata::config
