// SPDX-License-Identifier: Apache-2.0
// The options of `bench io` are rows like all others: flags and the TOML file that commands share
// give the same values, lists have their parts checked, conflicts are reported together.
#include <gtest/gtest.h>

#include <map>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/config/option_rules.h"
#include "engine/config/option_table.h"
#include "engine/config/option_values.h"
#include "engine/config/options.h"

namespace strata::config {
namespace {

using Args = std::vector<std::string>;

Options bench(Args args, const std::string& toml = "") {
  args.insert(args.end(), {"--nvme", "d"});
  return resolve(Command::kBench, {.toml = toml, .toml_name = "run.toml", .args = args});
}

std::string bench_error(const Args& args, const std::string& toml = "") {
  try {
    bench(args, toml);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), 2);
    return error.what();
  }
  return "no error";
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST(BenchOptions, FlagsReachTheirFields) {
  const Options options =
      bench({"--size",     "4GiB",      "--block",     "64KiB,1MiB",  "--depth=4,16",
             "--files",    "2",         "--mode",      "write,read",  "--seconds",
             "0.5",        "--backend", "io_uring",    "--tolerance", "0.2",
             "--baseline", "then.json", "--nvme-rate", "1GB,2GB",     "--csv"});
  EXPECT_EQ(options.size, 4 * kGiB);
  EXPECT_EQ(options.blocks, (std::vector<int64_t>{64 * kKiB, kMiB}));
  EXPECT_EQ(options.depths, (std::vector<int64_t>{4, 16}));
  EXPECT_EQ(options.files, (std::vector<int64_t>{2}));
  EXPECT_EQ(options.modes, (std::vector<std::string>{"write", "read"}));
  EXPECT_EQ(options.seconds, 0.5);
  EXPECT_EQ(options.io, IoBackend::kUring);
  EXPECT_EQ(options.tolerance, 0.2);
  EXPECT_EQ(options.baseline, "then.json");
  EXPECT_EQ(options.nvme_rate.write_bytes_per_s, 2000000000);
  EXPECT_TRUE(options.csv);
  EXPECT_TRUE(options.is_given("mode"));
  EXPECT_FALSE(options.is_given("rounds"));
}

TEST(BenchOptions, TomlAndFlagsAgreeForEveryOption) {
  // What is not the default, and what a file must say beside it.
  const std::map<std::string_view, std::string> values = {
      {"sequence-length", "128"},
      {"host-memory", "1GiB"},
      {"nvme", "x,y"},
      {"nvme-rate", "1GB,2GB"},
      {"io-deadline", "7"},
      {"size", "1GiB"},
      {"block", "4KiB,64KiB"},
      {"depth", "1,3"},
      {"files", "2,64"},
      {"mode", "mixed,read"},
      {"seconds", "0.25"},
      {"write-limit", "1GiB"},
      {"io", "threads"},
      {"no-checksums", "on"},
      {"compare-fio", "on"},
      {"compare-checksums", "on"},
      {"rounds", "7"},
      {"baseline", "x"},
      {"tolerance", "0.5"},
      {"for", "x"},
      {"tokens", "9"},
      {"profile", "x"},
      {"machine", "x"},
      {"csv", "on"},
      {"json", "on"},
  };
  for (const OptionRow& row : option_table()) {
    if (!takes(row, Command::kBench) || row.name == "config" || row.name == "help") continue;
    ASSERT_TRUE(values.contains(row.name)) << row.name;
    const std::string& text = values.at(row.name);
    Options by_flag;
    ASSERT_EQ(assign(row, {text}, by_flag), "") << row.name;
    EXPECT_NE(value_text(row, by_flag), value_text(row, Options())) << row.name;
    std::string toml = key_of(row) + " = \"" + text + "\"\n";
    if (row.name != "nvme") toml += "nvme = \"d\"\n";
    if (row.name == "for") toml += "tokens = 9\n";
    const Options by_toml = resolve(Command::kBench, {.toml = toml, .toml_name = "t"});
    EXPECT_EQ(value_text(row, by_toml), value_text(row, by_flag)) << row.name;
    const Options back = options_from_json(Command::kBench, to_json(Command::kBench, by_toml));
    if (row.type == OptionType::kSwitch) continue;  // not in JSON
    EXPECT_EQ(value_text(row, back), value_text(row, by_flag)) << row.name;
  }
}

TEST(BenchOptions, AFileMayHaveLists) {
  const Options options =
      bench({}, "block = [\"1MiB\", \"4MiB\"]\ndepth = [4, 16]\nmode = [\"read\", \"write\"]\n");
  EXPECT_EQ(options.blocks, (std::vector<int64_t>{kMiB, 4 * kMiB}));
  EXPECT_EQ(options.depths, (std::vector<int64_t>{4, 16}));
  EXPECT_EQ(options.modes, (std::vector<std::string>{"read", "write"}));
  EXPECT_EQ(bench({}, "depth = 8").depths, (std::vector<int64_t>{8}));
}

TEST(BenchOptions, ItSharesTheFileOfARun) {
  const std::string toml =
      "model = \"m\"\nlr = 1e-4\nsequence_length = 64\nhost_memory = \"1GiB\"\ndepth = 4\n"
      "tokens = 4096\n[[group]]\nmatch = \"x\"\n";
  const Options options = bench({}, toml);
  EXPECT_EQ(options.sequence_length, 64);
  EXPECT_EQ(options.depths, (std::vector<int64_t>{4}));
  EXPECT_EQ(options.model, "");
  EXPECT_EQ(bench({"--for", "m"}, toml).tokens, 4096);
  EXPECT_HAS(bench_error({}, "lr = -1\n"), "lr = \"-1\" is out of range");
  const Args plan = {"--model", "m"};
  EXPECT_EQ(resolve(Command::kPlan, {.toml = "depth = 4", .toml_name = "t", .args = plan}).depths,
            Options().depths);
}

TEST(BenchOptions, AFlagOverridesWhatTheFileSaysInAnotherWay) {
  const Options csv = bench({"--csv"}, "json = true");
  EXPECT_TRUE(csv.csv);
  EXPECT_FALSE(csv.json);
  EXPECT_EQ(bench({"--compare-fio"}, "baseline = \"then.json\"").baseline, "");
  EXPECT_TRUE(bench({}, "json = false\ncsv = true").csv);
}

TEST(BenchOptions, WhatCannotBeMeantIsRefused) {
  const std::vector<std::pair<Args, const char*>> cases = {
      {{"--depth", "4,0"},
       "has a part that is out of range (give whole numbers, 1 to 1024, separated by commas, "
       "each once)"},
      {{"--depth", "5000"}, "has a part that is out of range"},
      {{"--depth", "4,x"}, "has a part that is not a whole number"},
      {{"--depth", ""}, "has a part that is not a whole number"},
      {{"--depth", "4,4"}, "names 4 twice"},
      {{"--block", "1MiB,1024KiB"}, "names 1024KiB twice"},
      {{"--block", "many"}, "has a part that is not a size (give sizes, 4KiB to 64MiB"},
      {{"--block", "128MiB"}, "has a part that is out of range"},
      {{"--block", "5000"}, "--block 5000 is not a power of two"},
      {{"--mode", "raed,write"}, "has the unknown part raed (did you mean read?)"},
      {{"--mode", "read,write,read"}, "names read twice"},
      {{"--files", "65"}, "whole numbers, 1 to 64"},
      {{"--seconds", "0"}, "--seconds \"0\" is out of range"},
      {{"--seconds", "-1"}, "--seconds \"-1\" is out of range"},
      {{"--write-limit", "none"}, "is not a size"},
      {{"--rounds", "0"}, "--rounds \"0\" is out of range"},
      {{"--backend", "magic"}, "--backend"},
      {{"--nvme-rate", "1GB"}, "--nvme-rate"},
      {{"--nvme-rate", "0,0"}, "is out of range"},
      {{"--for", "model"}, "(give --tokens N)"},
      {{"--for", "model", "--tokens", "0"}, "--tokens \"0\" is out of range"},
      {{"--for", "model", "--tokens", "5", "--mode", "read"}, "read, write and mixed"},
      {{"--for", "model", "--tokens", "5", "--no-checksums"}, "with checksums"},
      {{"--for", "model", "--tokens", "5", "--host-memory", "lots"}, "is not a size"},
      {{"--profile", "x", "--nvme-rate", "1GB,1GB"}, "leave out --nvme-rate"},
      {{"--compare-fio", "--nvme-rate", "1GB,1GB"}, "--nvme-rate does not limit fio"},
      {{"--compare-fio", "--baseline", "x"}, "are two comparisons (give one)"},
      {{"--compare-fio", "--compare-checksums"}, "are two comparisons (give one)"},
      {{"--compare-checksums", "--no-checksums"}, "contradict each other"},
      {{"--xylophone"}, "--xylophone is not an option (strata bench io --help lists them)"},
      {{"--sise=1GiB"}, "--sise is not an option (did you mean --size?)"},
      {{"--bs", "1MiB"}, "(did you mean --block?)"},
      {{"--iodepth=4"}, "(did you mean --depth?)"},
      {{"--runtime", "4"}, "(did you mean --seconds?)"},
      {{"--ioengine", "libaio"}, "(did you mean --io?)"},
      {{"--lr", "1"}, "--lr is not an option of bench io (it belongs to train"},
      {{"--model", "m"}, "tokenize; did you mean --for?)"},
      {{"io"}, "unexpected argument \"io\""},
  };
  for (const auto& [arguments, text] : cases) EXPECT_HAS(bench_error(arguments), text);
  for (const char* key : {"mode", "block", "depth", "files", "nvme"}) {
    EXPECT_HAS(bench_error({}, std::string(key) + " = []"), "is empty");
  }
}

TEST(BenchOptions, ConflictsAreReportedTogether) {
  const std::string error =
      bench_error({"--csv", "--json", "--compare-fio", "--profile", "p", "--dpeth", "4", "--rounds",
                   "0", "--tokens", "5", "--mode", "read"});
  EXPECT_HAS(error, "cannot use the options: 7 problems");
  EXPECT_HAS(error, "--dpeth is not an option (did you mean --depth?)");
  EXPECT_HAS(error, "--rounds \"0\" is out of range (give a whole number, 1 to 1000)");
  EXPECT_HAS(error, "--json and --csv exclude each other: the answer has one format (give one)");
  EXPECT_HAS(error, "--csv and --compare-fio exclude each other: a comparison has no CSV");
  EXPECT_HAS(error, "--profile and --compare-fio exclude each other");
  EXPECT_HAS(error, "--profile needs the modes read, write and mixed, with checksums");
  EXPECT_HAS(error, "--tokens has no meaning without --for (give both or none)");
}

TEST(BenchOptions, WhatSaysNothingAloneIsRefusedAsAFlag) {
  for (const DetailOf& detail : option_details()) {
    const OptionRow& row = *find_option(detail.detail);
    if (!takes(row, Command::kBench)) continue;
    const std::string text = row.type == OptionType::kSize ? "1GiB" : "1";
    const std::string flag = "--" + std::string(detail.detail);
    EXPECT_HAS(bench_error({flag, text}), flag + " has no meaning without --");
    EXPECT_EQ(bench_error({}, key_of(row) + " = \"" + text + "\""), "no error");
  }
  EXPECT_EQ(bench_error({"--for", "m", "--tokens", "5", "--machine", "x"}), "no error");
}

// One thing with one name in a file that commands share, and the other name that it has had.
TEST(BenchOptions, TheBackendIsTheIoOfRuns) {
  EXPECT_EQ(bench({"--io", "uring"}).io, IoBackend::kUring);
  EXPECT_EQ(bench({"--backend=io_uring"}).io, IoBackend::kUring);
  EXPECT_EQ(bench({}, "io = \"threads\"").io, IoBackend::kThreads);
  EXPECT_EQ(bench({}, "backend = \"threads\"").io, IoBackend::kThreads);
  EXPECT_HAS(bench_error({"--io", "threads", "--backend", "uring"}), "--backend is given twice");
  EXPECT_HAS(bench_error({}, "io = \"auto\"\nbackend = \"auto\""),
             "run.toml:1:1: io is given twice");
}

TEST(BenchOptions, TheHelpSaysUnitsRangesAndDefaults) {
  const std::string text = help_text(Command::kBench);
  EXPECT_HAS(text, "Usage: strata bench io --nvme DIR[,DIR] [options]");
  EXPECT_HAS(text, "default 1MiB)");
  EXPECT_HAS(text, "--mode read,write,mixed");
  EXPECT_HAS(text, "(at least 1 byte, such as 24GiB; default 64GiB)");
  EXPECT_HAS(text, "--io auto|uring|threads");
  EXPECT_HAS(text, "(0.05 to 86400 seconds; default 5)");
  EXPECT_EQ(help_text(Command::kModels).find("TOML"), std::string::npos) << "it takes no --config";
  EXPECT_EQ(nearest_command("benhc"), "bench");
}

}  // namespace
}  // namespace strata::config
