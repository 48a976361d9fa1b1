// SPDX-License-Identifier: Apache-2.0
// `strata bench io` as a user runs it: what it prints, what it leaves, its exit codes, the machine
// profile that strata plan reads, and whether drives are enough for a run.
#include <nlohmann/json.hpp>

#include "engine/config/machine.h"
#include "tests/cli/bench_run.h"

namespace strata::cli::test {
namespace {

using nlohmann::json;

TEST_F(BenchTest, PrintsATableAndLeavesNothing) {
  ASSERT_EQ(run(bench({})), 0) << err_;
  for (const char* text : {"checksums on", "GiB/s", "read ", "write ", "mixed "}) {
    EXPECT_NE(out_.find(text), std::string::npos) << text << " is not in\n" << out_;
  }
  expect_empty_drive();
}

TEST_F(BenchTest, CsvHasARowForEachShapeAndEachOfItsFiles) {
  ASSERT_EQ(run(bench({"--csv", "--depth", "2,4", "--mode", "read,write", "--files", "1,2"})), 0)
      << err_;
  EXPECT_EQ(std::count(out_.begin(), out_.end(), '\n'), 1 + 8 + 4 * 1 + 4 * 2) << out_;
  std::istringstream lines(out_);
  int shapes = 0;
  for (std::string line; std::getline(lines, line); shapes += line.ends_with(",all")) {
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 25) << line;
  }
  EXPECT_EQ(shapes, 8) << out_;
  EXPECT_EQ(out_.rfind("mode,block_bytes,depth,", 0), 0u) << out_;
  EXPECT_NE(out_.find(",0,0,all\n"), std::string::npos) << "no rate limit" << out_;
  ASSERT_EQ(run(bench({"--csv", "--mode", "read", "--nvme-rate", "200MB,100MB"})), 0) << err_;
  EXPECT_NE(out_.find(",2e+08,1e+08,all\n"), std::string::npos) << out_;
}

TEST_F(BenchTest, ItsProfileIsWhatPlanReads) {
  make_model(sandbox_, "model", {});
  ASSERT_EQ(run(bench({"--profile", "machine.toml", "--mode", "read,write,mixed"})), 0) << err_;
  const config::Machine machine = config::read_machine(sandbox_ / "machine.toml");
  EXPECT_GT(machine.nvme_read_bytes_per_s, 0);
  EXPECT_GT(machine.nvme_write_bytes_per_s, 0);
  EXPECT_GT(machine.nvme_mixed_bytes_per_s, 0);
  EXPECT_GT(machine.nvme_latency_s, 0);
  EXPECT_GT(machine.matmul_flops_per_s, 0);
  EXPECT_EQ(run({"plan", "--model", "model", "--machine", "machine.toml", "--nvme", "drive"}), 0)
      << err_;
  EXPECT_FALSE(std::filesystem::exists(sandbox_ / "cache/strata/") &&
               std::filesystem::is_empty(sandbox_ / "cache/strata"));
  expect_empty_drive();
}

// What a file says of runs, their machine too, is none of its business.
TEST_F(BenchTest, ReadsTheFileOfARun) {
  write_text(sandbox_ / "run.toml",
             "model = \"m\"\nmachine = \"nowhere.toml\"\nhost_memory = \"1GiB\"\nsteps = 9\n"
             "sequence_length = 64\nio = \"threads\"\nnvme = \"nowhere\"\n[[group]]\n"
             "match = \".*\"\nlr_factor = 0.5\n");
  ASSERT_EQ(run(bench({"--config", "run.toml", "--mode", "read", "--json"})), 0) << err_;
  EXPECT_EQ(json::parse(out_)["results"][0]["backend"], "threads");
}

// A careful measurement is what later plans for the same directories use, by whatever name.
TEST_F(BenchTest, ACarefulResultIsFoundByLaterPlans) {
  make_model(sandbox_, "model", {});
  ASSERT_EQ(run(bench({"--seconds", "1", "--mode", "read,write,mixed", "--json"})), 0) << err_;
  EXPECT_NE(err_.find("not kept for later plans: no shape is like a run's"), std::string::npos);
  EXPECT_FALSE(json::parse(out_).contains("machine_profile"));
  ASSERT_EQ(run({"bench", "io", "--nvme", "drive", "--size", "64MiB", "--block", "1MiB", "--depth",
                 "8", "--seconds", "1", "--mode", "read,write,mixed", "--json"}),
            0)
      << err_;
  const json result = json::parse(out_);
  const std::string path = result["machine_profile"];
  const config::Machine machine = config::read_machine(path);
  EXPECT_EQ(machine.nvme_read_bytes_per_s, result["machine"]["nvme_read_bytes_per_s"]);
  EXPECT_EQ(run({"plan", "--model", "model", "--nvme", sandbox_ / "drive/../drive"}), 0) << err_;
  EXPECT_EQ(err_.find("measured in a few seconds"), std::string::npos) << err_;
}

TEST_F(BenchTest, ForAModelSaysWhetherTheDrivesAreEnough) {
  make_model(sandbox_, "model", {.layers = 8, .hidden = 128});
  for (const std::string entry : {"model.safetensors", "tokenizer.json"}) {
    std::filesystem::remove(sandbox_ / ("model/" + entry));  // config.json alone is needed
  }
  const Arguments ask = {"--mode", "read,write,mixed", "--machine",     STRATA_MACHINE, "--for",
                         "model",  "--json",           "--host-memory", "1GiB"};
  const auto with = [&](const Arguments& more) {
    Arguments all = bench(ask);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  ASSERT_EQ(run(with({"--tokens", "256"})), 0) << err_;
  EXPECT_EQ(json::parse(out_)["for"]["verdict"],
            "no drive is needed: all of the state fits in memory");
  EXPECT_NE(err_.find("no drive is needed"), std::string::npos) << err_;
  Arguments text = with({"--tokens", "1000", "--sequence-length", "100"});
  text.erase(std::find(text.begin(), text.end(), "--json"));
  ASSERT_EQ(run(text), 0) << err_;
  EXPECT_NE(out_.find("1000 tokens a step in sequences of 100"), std::string::npos) << out_;
  expect_empty_drive();
}

// Of the shape that the profile takes, in requests of a run, whatever is measured last.
TEST_F(BenchTest, TheLatencyIsThatOfTheShapeNearestToARun) {
  const auto measured = [&](const Arguments& more) {
    Arguments all = bench({"--profile", "machine.toml", "--json", "--mode", "read,write,mixed"});
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(run(all), 0) << err_;
    const json result = json::parse(out_);
    const config::Machine machine = config::read_machine(sandbox_ / "machine.toml");
    EXPECT_EQ(result["idle"]["depth"], 1);
    EXPECT_NEAR(machine.nvme_latency_s, result["idle"]["read_latency"]["p50_s"], 1e-9);
    return result;
  };
  json result = measured({"--files", "1,2"});
  EXPECT_EQ(result["idle"]["files_per_directory"], 1) << "the last shape has two";
  EXPECT_EQ(result["idle"]["block_bytes"], 1 << 20) << "64 KiB were measured";
  const uint64_t fillings = 2 * (64 << 20);
  uint64_t written = fillings;
  for (const json& shape : result["results"]) written += shape["bytes_written"].get<uint64_t>();
  EXPECT_EQ(result["bytes_written"], written) << "its files were still there";
  // Blocks of 4 KiB have checksums of their own size: the files are made again.
  Arguments small = {"bench", "io", "--nvme", "drive", "--size", "64MiB", "--block", "4KiB"};
  small.insert(small.end(), {"--depth", "4", "--seconds", "0.05", "--profile", "machine.toml"});
  small.insert(small.end(), {"--json", "--mode", "read,write,mixed"});
  ASSERT_EQ(run(small), 0) << err_;
  EXPECT_EQ(json::parse(out_)["idle"]["block_bytes"], 1 << 20);
}

// Blocks of another checksum size need files of their own, for which no bytes are left.
TEST_F(BenchTest, AShapeThatCannotBeFilledIsLeftOut) {
  ASSERT_EQ(
      run(bench({"--block", "64KiB,32KiB", "--mode", "read", "--write-limit", "100MiB", "--json"})),
      0)
      << err_;
  const json results = json::parse(out_)["results"];
  ASSERT_EQ(results.size(), 2u);
  EXPECT_GT(results[0]["bytes_read"], 0);
  EXPECT_EQ(results[1]["bytes_read"], 0);
  EXPECT_EQ(results[1]["write_limit_reached"], true);
  EXPECT_NE(err_.find("not measured: read 32 KiB x 4 on 1 file"), std::string::npos) << err_;
}

TEST_F(BenchTest, ADirectoryOfAnyNameIsInTheAnswers) {
  const std::string name = "dr\xff\"ive";
  std::filesystem::create_directory(sandbox_ / name);
  const auto measured = [&](const char* form) {
    return run({"bench", "io", "--nvme", name, "--size", "64MiB", "--mode", "read", "--seconds",
                "0.05", "--depth", "4", form});
  };
  ASSERT_EQ(measured("--json"), 0) << err_;
  EXPECT_EQ(json::parse(out_)["results"].size(), 1u);
  ASSERT_EQ(measured("--csv"), 0) << err_;
  EXPECT_NE(out_.find("dr\xff\"\"ive"), std::string::npos) << out_;
}

// The filling and the first writes take all of the limit: nothing is left for the mixed rate.
TEST_F(BenchTest, AQuestionWithoutTheRatesItNeedsIsAnError) {
  make_model(sandbox_, "model", {});
  const Arguments poor = {"--mode",   "read,write,mixed", "--write-limit",
                          "66048KiB", "--seconds",        "0.5"};  // the scratch and 8 blocks
  for (const Arguments& question :
       {Arguments{"--for", "model", "--tokens", "512"}, Arguments{"--profile", "p.toml"}}) {
    Arguments all = bench(poor);
    all.insert(all.end(), question.begin(), question.end());
    EXPECT_EQ(run(all), kUsage);
    EXPECT_NE(err_.find(question[0] + ": no shape has all of"), std::string::npos) << err_;
    EXPECT_NE(err_.find("not measured: mixed 64 KiB x 4 on 1 file (raise --write-limit"),
              std::string::npos)
        << err_;
    EXPECT_NE(out_.find("mixed"), std::string::npos) << out_;  // what there is, is printed
  }
  EXPECT_FALSE(std::filesystem::exists(sandbox_ / "p.toml"));
  expect_empty_drive();
}

// Said before and after, since the exit code is that of success.
TEST_F(BenchTest, ALimitThatWillEndItEarlyIsSaidAndWhatThereIsNotForIt) {
  const Arguments careful = {"bench",     "io",     "--nvme",           "drive",   "--size",
                             "64MiB",     "--mode", "read,write,mixed", "--depth", "8",
                             "--seconds", "1",      "--write-limit",    "80MiB"};
  ASSERT_EQ(run(careful), 0) << err_;
  const size_t warning = err_.find(
      "these measurements would write 1.46 GiB if each directory takes 1 GB a second, and may "
      "write "
      "80 MiB: the last ones will end early or not begin (give --write-limit 2GiB, or lower "
      "--seconds or --size)");
  EXPECT_NE(warning, std::string::npos) << err_;
  EXPECT_LT(warning, err_.find("read 1 MiB depth 8")) << "before anything is measured";
  EXPECT_NE(err_.find("--write-limit 80MiB: ended early: write 1024 KiB x 8 on 1 file; not "
                      "measured: mixed 1024 KiB x 8 on 1 file; for that reason no profile is "
                      "kept for later plans"),
            std::string::npos)
      << err_;
  EXPECT_EQ(out_.find("machine profile"), std::string::npos) << out_;
  Arguments enough = careful;
  enough.back() = "64GiB";
  ASSERT_EQ(run(enough), 0) << err_;
  EXPECT_EQ(err_.find("--write-limit"), std::string::npos) << err_;
  EXPECT_NE(out_.find("machine profile"), std::string::npos) << out_;
}

TEST_F(BenchTest, MoreTokensThanCanBePlannedAreRefusedAtOnce) {
  make_model(sandbox_, "model", {.layers = 2});
  const auto ask = [&](const std::string& tokens) {
    return run(bench({"--mode", "read,write,mixed", "--machine", STRATA_MACHINE, "--for", "model",
                      "--host-memory", "1GiB", "--tokens", tokens}));
  };
  EXPECT_EQ(ask("1000000000000"), kUsage);
  const std::string advice = "give at most --tokens ";
  const size_t at = err_.find(advice);
  ASSERT_NE(at, std::string::npos) << err_;
  EXPECT_EQ(out_, "") << "something was measured";
  const int64_t most = std::stoll(err_.substr(at + advice.size()));
  EXPECT_EQ(ask(std::to_string(most + 1)), kUsage) << err_;
  const int code = ask(std::to_string(most));
  EXPECT_TRUE(code == 0 || code == kDoesNotFit) << err_;
}

// What a refusal of the plan advises can be done here.
TEST_F(BenchTest, ARefusedPlanNamesOptionsOfBench) {
  make_model(sandbox_, "model", {.layers = 4});
  EXPECT_EQ(run(bench({"--mode", "read,write,mixed", "--machine", STRATA_MACHINE, "--for", "model",
                       "--host-memory", "1MiB", "--tokens", "65536"})),
            kDoesNotFit);
  EXPECT_NE(err_.find("--for: does not fit: "), std::string::npos) << err_;
  EXPECT_NE(err_.find("--host-memory"), std::string::npos) << err_;
  for (const char* flag : {"--accumulate", "--micro-batch", "--device-memory", "add --nvme"}) {
    EXPECT_EQ(err_.find(flag), std::string::npos) << err_;
  }
  EXPECT_NE(out_.find("mixed"), std::string::npos) << "what was measured is printed";
}

// What options say by themselves is refused in tests/config/bench_options_test.cpp.
TEST_F(BenchTest, WhatCannotWorkHereIsRefusedBeforeAnythingIsMeasured) {
  const struct {
    Arguments arguments;
    const char* text;
    int code = kUsage;
  } cases[] = {
      {bench({"--json", "--csv"}), "the answer has one format (give one)"},
      {bench({"--for", "model", "--tokens", "5", "--machine", "missing.toml"}), "missing.toml"},
      {bench({"--for", "nowhere", "--tokens", "5"}), "nowhere"},
      {bench({"--profile", "nowhere/machine.toml"}), "No such file or directory"},
      {bench({"--profile", "."}), "is a directory"},
      {bench({"--profile", "notes.txt"}), "exists and is not a machine profile"},
      {bench({"--block", "8MiB"}), "is too small: read at this block size"},
      {bench({"--write-limit", "1MiB"}), "limit on bytes written"},
      {{"bench", "io"}, "--nvme is missing"},
      {{"bench"}, "the subject is missing (strata bench io, strata bench link or"},
      {{"bench", "--nvme", "drive"},
       "the subject is missing (strata bench io, strata bench link or"},
      {{"bench", "oi", "--nvme", "drive"}, "oi: no such benchmark (did you mean io?)"},
      {{"bench", "io", "--nvme", "missing"}, "missing: No such file or directory"},
      {{"bench", "io", "--nvme", "/dev/shm"}, "it is on tmpfs"},
      {{"bench", "io", "--nvme", "drive,drive/../drive"}, "are the same directory"},
      {{"bench", "io", "--nvme", "drive", "--size", "1EiB"}, "--size"},
      {{"bench", "io", "--nvme", "drive", "--size", "512TiB", "--write-limit", "1024TiB"},
       "missing",
       kDoesNotFit},
  };
  write_text(sandbox_ / "notes.txt", "of somebody");
  for (const auto& [arguments, text, code] : cases) {
    EXPECT_EQ(run(arguments), code) << text << err_;
    EXPECT_NE(err_.find(text), std::string::npos) << text << " is not in\n" << err_;
    EXPECT_EQ((err_ + out_).find("GB/s"), std::string::npos) << "something was measured";
    expect_empty_drive();
  }
  EXPECT_EQ(read_text(sandbox_ / "notes.txt"), "of somebody");
}

TEST_F(BenchTest, TheFileOfARunSaysWhatIsMeasuredToo) {
  write_text(sandbox_ / "run.toml",
             "model = \"model\"\nlr = 1e-4\nhost_memory = \"1GiB\"\nnvme = [\"drive\"]\n"
             "size = \"64MiB\"\nblock = [\"64KiB\", \"128KiB\"]\ndepth = 4\nseconds = 0.05\n"
             "mode = \"read\"\ncsv = true\n");
  ASSERT_EQ(run({"bench", "io", "--config", "run.toml", "--depth", "2"}), 0) << err_;
  EXPECT_NE(out_.find("\nread,65536,2,1,"), std::string::npos) << out_;
  EXPECT_NE(out_.find("\nread,131072,2,1,"), std::string::npos) << out_;
  expect_empty_drive();
  write_text(sandbox_ / "run.toml", "nvme = [\"drive\"]\ndpeth = 4\nrounds = 0\n");
  EXPECT_EQ(run({"bench", "io", "--config", "run.toml", "--json", "--csv"}), kUsage);
  for (const char* text :
       {"3 problems", "run.toml:2:1: dpeth is not an option (did you mean depth?)",
        "run.toml:3:1: rounds \"0\"", "--json and --csv"}) {
    EXPECT_NE(err_.find(text), std::string::npos) << text << " is not in\n" << err_;
  }
  const Arguments several = {"bench",     "io",       "--nvme",  "drive,drive/../drive",
                             "--size",    "64MiB",    "--depth", "1024",
                             "--profile", "nowhere/p"};
  EXPECT_EQ(run(several), kUsage);
  for (const char* text : {"3 problems", "--mode: I/O benchmark: ", "are the same directory",
                           "--profile: nowhere/p"}) {
    EXPECT_NE(err_.find(text), std::string::npos) << text << " is not in\n" << err_;
  }
}

TEST_F(BenchTest, HelpNeedsNoSubject) {
  for (const Arguments& arguments : {Arguments{"bench", "--help"}, {"bench", "io", "-h"}}) {
    EXPECT_EQ(run(arguments), 0) << err_;
    EXPECT_NE(out_.find("Usage: strata bench io --nvme DIR"), std::string::npos) << out_;
  }
  EXPECT_EQ(run({"bench", "--help"}), 0);
  EXPECT_NE(out_.find("\n       strata bench link [options]\n"), std::string::npos) << out_;
}

TEST_F(BenchTest, AReadOnlyDirectoryIsRefused) {
  std::filesystem::permissions(sandbox_ / "drive", std::filesystem::perms(0555));
  Process process(bench({}), {.directory = sandbox_.path(), .obeys_permissions = true});
  EXPECT_EQ(process.wait(), kUsage);
  EXPECT_NE(process.err().find("Permission denied"), std::string::npos) << process.err();
}

TEST_F(BenchTest, AKilledOneLeavesNoSpaceTakenAndTheNextOneRuns) {
  Process process(bench({"--seconds", "60", "--mode", "read"}), {.directory = sandbox_.path()});
  // Its text is written when the lock is held.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (read_text(sandbox_ / "drive/strata.lock").find("bench io") == std::string::npos &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(run(bench({"--mode", "read"})), kUsage);
  EXPECT_NE(err_.find("in use by pid"), std::string::npos) << err_;
  EXPECT_NE(err_.find("strata bench io"), std::string::npos) << err_;
  process.kill(SIGKILL);
  process.wait();
  for (const auto& entry : std::filesystem::directory_iterator(sandbox_ / "drive")) {
    EXPECT_EQ(entry.path().filename(), "strata.lock");
  }
  EXPECT_EQ(run(bench({"--mode", "read"})), 0) << err_;
  expect_empty_drive();
}

// A fio that never ends of itself.
TEST_F(BenchTest, FioEndsWithTheBenchmarkThatStartedIt) {
  std::filesystem::create_directory(sandbox_ / "bin");
  write_text(sandbox_ / "bin/fio",
             "#!/bin/sh\n[ \"$1\" = --version ] && exit 0\necho $$ > pid\nexec sleep 600\n");
  std::filesystem::permissions(sandbox_ / "bin/fio", std::filesystem::perms(0755));
  const std::string path = getenv("PATH");
  const auto lives = [](const std::string& pid) {
    const std::string status = read_of_process(std::stoi(pid), "stat");
    return !status.empty() && status.find(") Z") == std::string::npos;
  };
  const auto within_a_minute = [](const auto& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!holds() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return holds();
  };
  for (const int signal : {SIGTERM, SIGKILL}) {
    std::filesystem::remove(sandbox_ / "pid");
    setenv("PATH", (sandbox_ / "bin:" + path).c_str(), 1);
    Process process(bench({"--compare-fio", "--mode", "read", "--rounds", "1"}),
                    {.directory = sandbox_.path()});
    setenv("PATH", path.c_str(), 1);
    std::string pid;
    ASSERT_TRUE(within_a_minute([&] {
      pid = read_text(sandbox_ / "pid");
      return pid.ends_with("\n");
    })) << process.err();
    pid.pop_back();
    EXPECT_TRUE(lives(pid));
    process.kill(signal);
    EXPECT_EQ(process.wait(), 128 + signal) << process.err();
    EXPECT_TRUE(within_a_minute([&] { return !lives(pid); })) << signal;
  }
}

TEST_F(BenchTest, WhatFioWroteIsCounted) {
  if (std::system("fio --version > /dev/null 2>&1") != 0) GTEST_SKIP() << "fio is missing";
  const int code = run(bench({"--compare-fio", "--mode", "read", "--rounds", "1", "--json"}));
  ASSERT_TRUE(code == 0 || code == 1) << err_;
  EXPECT_EQ(json::parse(out_)["bytes_written"], 2 * (64 << 20));  // each filled its files once
  expect_empty_drive();
}

}  // namespace
}  // namespace strata::cli::test
