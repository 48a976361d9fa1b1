// SPDX-License-Identifier: Apache-2.0
// A drive that hangs under the whole program: it ends within its deadline, with exit code 4 and the
// name of what hangs, and when the drive answers again the next run on it works.
#include "tests/cli/mistake.h"
#include "tests/support/fuse_mount.h"

namespace strata::cli::test {
namespace {

using strata::test::FuseMount;

// The deadline of a request of a second, what it has to come back, and the moment in which a ring
// closes; the rest is for a busy machine.
constexpr double kEndsWithinS = 1 + 4 + 4 + 20;

class Hangs : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(sandbox_ / "drive");
    setenv("XDG_CACHE_HOME", (sandbox_ / "cache").c_str(), 1);
    disk_.emplace(sandbox_ / "drive");
    if (!disk_->refusal().empty()) GTEST_SKIP() << disk_->refusal();
  }
  // What still stands in the kernel is let go before the process is waited for.
  void TearDown() override { disk_.reset(); }

  ProcessOptions here() const { return {.directory = sandbox_.path()}; }

  // The least that fits, which the program names when it refuses less: most state is on the drive.
  std::string least_budget(const Arguments& arguments) const {
    Process refused(arguments, here());
    EXPECT_EQ(refused.wait(), kDoesNotFit) << refused.out();
    return std::to_string(least_mib(refused.err())) + "MiB";
  }

  // Runs while the drive hangs from that request on, and is sent `signal` when it does; then the
  // drive answers again.
  void expect_it_ends(const Arguments& arguments, const std::string& direction,
                      const std::string& index, int signal = 0) {
    SCOPED_TRACE(arguments[0] + " while a " + direction + " hangs");
    ASSERT_TRUE(disk_->fault(direction + " hang " + index + " 1"));
    Process process(arguments, here());
    if (signal != 0) {
      ASSERT_TRUE(process.prints_error(direction + " 64 KiB")) << process.err();
      std::this_thread::sleep_for(std::chrono::seconds(1));
      process.kill(signal);
    }
    const auto start = std::chrono::steady_clock::now();
    const std::chrono::duration<double> limit(kEndsWithinS);
    while (!process.has_left() && std::chrono::steady_clock::now() - start < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(process.has_left()) << process.err();
    const std::string err = process.err();
    ASSERT_TRUE(disk_->fault(direction + " none 0 0"));
    EXPECT_EQ(process.wait(), signal == 0 ? kFailed : 128 + signal) << err;
    out_ = process.out();
    EXPECT_NE(err.find("scratch file in drive"), std::string::npos) << err;
    EXPECT_NE(err.find("error: "), std::string::npos) << err;
    EXPECT_NE(err.find(direction), std::string::npos) << err;
    EXPECT_NE(err.find("at offset "), std::string::npos) << err;
  }

  // Whether it ended with an error of such a call (empty: of any), while that direction hangs from
  // a request on: the thread itself stays in the kernel until the disk answers.
  bool ends_for(const Arguments& arguments, const std::string& fault, const std::string& call) {
    SCOPED_TRACE(arguments[0] + ": " + fault);
    EXPECT_TRUE(disk_->fault(fault));
    Process process(arguments, here());
    const auto start = std::chrono::steady_clock::now();
    const bool ended = process.prints_error("so this process must end", kEndsWithinS);
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    EXPECT_LT(passed.count(), kEndsWithinS) << "nothing watched the call that hung";
    EXPECT_TRUE(disk_->fault(fault.substr(0, fault.find(' ')) + " none 0 0"));
    EXPECT_EQ(process.wait(), ended ? kFailed : 0) << process.err();
    const std::string err = process.err();
    if (!ended) return false;
    // While a file's bytes do not come, the kernel may hold up those who open it.
    const bool opens = call == "read" && err.find("error: open: ") != std::string::npos;
    for (const std::string& part :
         {"error: " + (opens          ? "open: "
                       : call.empty() ? ""
                                      : call + ": "),
          std::string("drive"), std::string("no answer for "), std::string("see dmesg")}) {
      EXPECT_NE(err.find(part), std::string::npos) << err;
    }
    return true;
  }

  const Sandbox sandbox_;
  std::optional<FuseMount> disk_;
  std::string out_;
};

TEST_F(Hangs, BenchIoEndsAndTheNextRunWorks) {
  Arguments bench = {"bench", "io", "--nvme", "drive", "--size", "8MiB", "--block", "64KiB"};
  bench.insert(bench.end(), {"--depth", "4", "--seconds", "0.2", "--io-deadline", "1"});
  bench.insert(bench.end(), {"--mode", "read,write,mixed"});
  for (const char* backend : {"auto", "threads"}) {
    Arguments all = bench;
    all.insert(all.end(), {"--backend", backend});
    expect_it_ends(all, "read", "100");
    expect_it_ends(all, "write", "20");  // of 128 of zeros, that reserve
    expect_it_ends(all, "write", "200");
    *(std::find(all.begin(), all.end(), "--io-deadline") + 1) = "60";
    Process next(all, here());
    EXPECT_EQ(next.wait(), 0) << next.err();
  }
}

// The writes, before the first read; also where a user does not wait for the deadline.
TEST_F(Hangs, BenchIoPrintsWhatWasMeasured) {
  const auto bench = [](const std::string& backend, const std::string& deadline) {
    return Arguments{"bench",   "io",         "--nvme",  "drive", "--size",        "8MiB",
                     "--block", "64KiB",      "--depth", "4",     "--seconds",     "0.2",
                     "--mode",  "write,read", "--io",    backend, "--io-deadline", deadline};
  };
  for (const char* backend : {"auto", "threads"}) {
    SCOPED_TRACE(backend);
    expect_it_ends(bench(backend, "2"), "read", "40");
    EXPECT_NE(out_.find("\nwrite "), std::string::npos) << out_;
    EXPECT_EQ(out_.find("\nread "), std::string::npos) << out_;
    expect_it_ends(bench(backend, "600"), "read", "40", SIGINT);
    EXPECT_NE(out_.find("\nwrite "), std::string::npos) << out_;
  }
}

// At whichever of its files and reads it hangs.
TEST_F(Hangs, OfTheModelsFilesEndACommand) {
  make_model(sandbox_, "good", {.layers = 2, .hidden = 32, .vocabulary = 300});
  const std::string model = sandbox_ / "drive/model";
  std::filesystem::create_directory(model);
  for (const auto& entry : std::filesystem::directory_iterator(sandbox_ / "good")) {
    write_text(model + "/" + entry.path().filename().string(), read_text(entry.path().string()));
  }
  Arguments generate = {"generate",         "--model", "drive/model",   "--prompt", "A ship",
                        "--max-new-tokens", "1",       "--io-deadline", "1"};
  Arguments run = train({"--io-deadline", "1"}, "drive/model");
  for (const Arguments& arguments : {generate, run}) {
    int reads = 0;
    while (ends_for(arguments, "read hang " + std::to_string(reads) + " 1", "read")) ++reads;
    EXPECT_GE(reads, 4) << "config.json, header, weights, tokenizer.json at the least";
  }
}

TEST_F(Hangs, OfTheDriveThatAnExportIsWrittenToEndIt) {
  make_model(sandbox_, "good", {.layers = 2, .hidden = 32, .vocabulary = 300});
  Process once(train_into("drive/run"), here());
  ASSERT_EQ(once.wait(), 0) << once.err();
  std::filesystem::remove_all(sandbox_ / "drive/run/model");
  Arguments there = train({"--resume", "--io-deadline", "1"});  // which exports again
  there[4] = "drive/run";
  EXPECT_TRUE(ends_for(there, "write hang 5 1", "reserve space"));
  EXPECT_TRUE(ends_for(there, "fsync hang 1 1", "sync"));
  Process next(there, here());
  EXPECT_EQ(next.wait(), 0) << next.err();
}

// At whichever of the calls that make a checkpoint it hangs, there and in the rest of the run's
// directory; the checkpoints before it are whole.
TEST_F(Hangs, OfTheDriveThatCheckpointsAreWrittenToEndTheRun) {
  make_model(sandbox_, "good", {.layers = 2, .hidden = 32, .vocabulary = 300});
  Arguments run = train({"--io-deadline", "1", "--checkpoint-every", "1"});
  run[4] = "drive/run";
  Process first(run, here());
  ASSERT_EQ(first.wait(), 0) << first.err();
  run.push_back("--resume");
  int steps = 2;
  const auto ends = [&](const std::string& fault, const std::string& call) {
    Arguments further = run;
    *(std::find(further.begin(), further.end(), "--steps") + 1) = std::to_string(++steps);
    return ends_for(further, fault, call);
  };
  int syncs = 0;
  while (ends("fsync hang " + std::to_string(syncs) + " 1", "sync")) ++syncs;
  EXPECT_GE(syncs, 5) << "run.json, plan.txt, state, its manifest and the model at the least";
  for (const char* write : {"1", "4", "8"}) {
    EXPECT_TRUE(ends(std::string("write hang ") + write + " 1", "write")) << write;
  }
  *(std::find(run.begin(), run.end(), "--steps") + 1) = std::to_string(steps);
  Process next(run, here());
  EXPECT_EQ(next.wait(), 0) << next.err();
}

// At any call on directories: that of the run, and that of scratch.
TEST_F(Hangs, OfADirectoryEndTheRun) {
  make_model(sandbox_, "good", {.layers = 2, .hidden = 32, .vocabulary = 300});
  Arguments run = train({"--io-deadline", "1", "--nvme", "drive", "--force"});
  for (const std::string call : {"create", "list", "space", "rename"}) {
    int calls = 0;
    do {
      run[4] = "drive/" + call + std::to_string(calls);
      calls += 2;
    } while (ends_for(run, call + " hang " + std::to_string(calls - 2) + " 1", ""));
    EXPECT_GE(calls, 6) << call;
  }
}

// Of data, and of a run with a model that its next start takes away.
TEST_F(Hangs, OfListsOfDataAndOfAnOlderModelEndTheRun) {
  make_model(sandbox_, "good", {.layers = 2, .hidden = 32, .vocabulary = 300});
  Arguments run = train({"--io-deadline", "1"});
  run[4] = "drive/run";
  Process first(run, here());
  ASSERT_EQ(first.wait(), 0) << first.err();
  std::filesystem::create_directories(sandbox_ / "drive/texts/more");
  write_text(sandbox_ / "drive/texts/more/a.txt", read_text(STRATA_TEXT));
  Arguments of_data = train({"--io-deadline", "1", "--force"});
  of_data[4] = "of-data";
  *(std::find(of_data.begin(), of_data.end(), "--data") + 1) = "drive/texts";
  run.emplace_back("--resume");
  *(std::find(run.begin(), run.end(), "--steps") + 1) = "30";
  for (const Arguments& each : {of_data, run}) {
    int calls = 0;
    while (ends_for(each, "list hang " + std::to_string(calls) + " 1", "")) ++calls;
    EXPECT_GE(calls, 2);
  }
}

TEST_F(Hangs, TrainEndsAndTheNextRunResumes) {
  make_model(sandbox_, "good", {.layers = 4, .hidden = 96, .vocabulary = 400});
  for (const char* ranks : {"1", "2"}) {
    SCOPED_TRACE(ranks);
    Arguments run =
        train({"--nvme", "drive", "--offload", "nvme", "--host-memory", "1MiB", "--steps", "40",
               "--checkpoint-every", "10", "--io-deadline", "1", "--ranks", ranks});
    run[4] = std::string("of-") + ranks;
    *(std::find(run.begin(), run.end(), "--host-memory") + 1) = least_budget(run);
    expect_it_ends(run, "read", "100");
    run.push_back("--resume");
    expect_it_ends(run, "write", "60");
    Process next(run, here());
    EXPECT_EQ(next.wait(), 0) << next.err();
  }
}

}  // namespace
}  // namespace strata::cli::test
