// SPDX-License-Identifier: Apache-2.0
// Processes that make the same tokens wait for each other, one that is killed leaves nothing that
// others take for whole, and none holds the tokens in memory.
#include <fcntl.h>
#include <malloc.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>

#include "engine/base/environment.h"
#include "engine/base/units.h"
#include "tests/train/data_fixture.h"

namespace strata::data {
namespace {

class DataCacheProcesses : public DataTest {
 protected:
  DataOptions cached() const {
    DataOptions options = {.length = 64, .samples = config::SampleLayout::kPacked};
    options.cache = {
        .directory = cache_, .is_given = true, .memory_text_bytes = 0, .patience_s = 0};
    return options;
  }

  std::string write_records(int64_t bytes) const {
    const std::string path = folder_ / "a.jsonl";
    std::ofstream file(path, std::ios::binary);
    for (int64_t k = 0; file.tellp() < bytes; ++k) {
      file << fmt::format("{{\"prompt\":\"{}\",\"completion\":\"{}\"}}\n", k * k,
                          std::string(static_cast<size_t>(k * 13 % 90), 'c'));
    }
    return path;
  }

  // Runs `work` in a process of its own, which ends with 0 where it returns true.
  static pid_t start(const std::function<bool()>& work) {
    const pid_t child = fork();
    if (child != 0) return child;
    bool is_done = false;
    try {
      is_done = work();
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
    }
    _exit(is_done ? 0 : 1);
  }
  static int end_of(pid_t child) {
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
  }

  size_t count_of(const std::string& extension) const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(cache_)) {
      count += entry.path().extension() == extension;
    }
    return count;
  }

  const std::string cache_ = folder_ / "cache";
};

TEST_F(DataCacheProcesses, OneMakesTheTokensAndOthersWait) {
  const std::string path = write_records(600'000);
  const uint64_t hash =
      open(path, {.length = 64, .samples = config::SampleLayout::kPacked}).fingerprint();
  std::vector<pid_t> children;
  for (int k = 0; k < 4; ++k) {
    children.push_back(start([&] { return open(path, cached()).fingerprint() == hash; }));
  }
  for (const pid_t child : children) EXPECT_EQ(end_of(child), 0);
  EXPECT_EQ(count_of(""), 1u);
  EXPECT_EQ(count_of(".part"), 0u);
}

TEST_F(DataCacheProcesses, OneThatIsKilledLeavesNothingWhole) {
  const std::string path = write_records(600'000);
  const uint64_t hash =
      open(path, {.length = 64, .samples = config::SampleLayout::kPacked}).fingerprint();
  int killed = 0;
  for (int k = 0; k < 12; ++k) {
    const pid_t child = start([&] { return open(path, cached()).fingerprint() == hash; });
    while (!fs::exists(cache_) && waitpid(child, nullptr, WNOHANG) == 0) usleep(200);
    usleep(static_cast<useconds_t>(10'000 * k));
    kill(child, SIGKILL);
    killed += WIFSIGNALED(end_of(child));
    if (count_of("") > 0) break;  // it was made in that time
  }
  EXPECT_GT(killed, 0);
  EXPECT_EQ(open(path, cached()).fingerprint(), hash);
  EXPECT_EQ(count_of(""), 1u);
  EXPECT_EQ(count_of(".part"), 0u);
}

// A process that is stopped holds its lock and writes no more.
TEST_F(DataCacheProcesses, AnotherThatHangsIsWaitedForUntilTheDeadline) {
  const std::string path = write_records(10'000);
  open(path, cached());
  std::string name;
  for (const auto& entry : fs::directory_iterator(cache_)) name = entry.path().stem();
  fs::remove_all(cache_ + "/" + name);
  const int other = ::open((cache_ + "/" + name + ".lock").c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  Environment environment({.hang_after_s = 0.4});
  const Environment::Scope scope(&environment);
  try {
    open(path, cached());
    ADD_FAILURE() << "the tokens were made by two";
  } catch (const Error& error) {
    const std::string said = ": another run that makes the same tokens has written nothing there ";
    EXPECT_NE(std::string(error.what()).find(name + said + "for 0.4 s (end that run"),
              std::string::npos)
        << error.what();
  }
  close(other);
  EXPECT_GT(open(path, cached()).train().sample_count(), 0);
}

// What another process left is removed by the next that writes, also for other data.
TEST_F(DataCacheProcesses, LeftoversAreRemovedUnlessTheirProcessLives) {
  const std::string path = write_records(10'000);
  const std::string left = cache_ + "/" + std::string(32, '0');
  const std::string written = cache_ + "/" + std::string(32, 'a');
  fs::create_directories(left + ".part/below");
  fs::create_directories(written + ".part");
  write("cache/" + std::string(32, '0') + ".lock", "");
  const int other = ::open((written + ".lock").c_str(), O_RDWR | O_CREAT, 0644);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  open(path, cached());
  EXPECT_FALSE(fs::exists(left + ".part"));
  EXPECT_TRUE(fs::exists(written + ".part"));
  close(other);
}

// Downloads, for instance, have such names too.
TEST_F(DataCacheProcesses, FilesOfTheUserStay) {
  const std::string no_lock = cache_ + "/" + std::string(32, '1') + ".part";
  write("cache/film.part", "a");
  write("cache/photos.part/one", "b");
  write("cache/" + std::string(32, '2') + ".part", "a file");
  fs::create_directories(no_lock);
  open(write_records(10'000), cached());
  EXPECT_TRUE(fs::exists(cache_ + "/film.part"));
  EXPECT_TRUE(fs::exists(cache_ + "/photos.part/one"));
  EXPECT_TRUE(fs::exists(cache_ + "/" + std::string(32, '2') + ".part"));
  EXPECT_TRUE(fs::exists(no_lock));
  EXPECT_FALSE(fs::exists(cache_ + "/film.lock"));
}

// The peak of a process's memory, above that at its start.
TEST_F(DataCacheProcesses, MemoryDoesNotGrowWithTheData) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  const std::string path = write_records(24 << 20);
  const auto peak_kib = [] {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6));
    }
    return -1LL;
  };
  const auto grows_by_less_than = [&](int64_t bytes, const DataOptions& options) {
    return end_of(start([&] {
             malloc_trim(0);  // what tests before it have freed
             std::ofstream("/proc/self/clear_refs") << "5";
             const long long before = peak_kib();
             const Dataset data = open(path, options);
             const int64_t grown = (peak_kib() - before) * 1024;
             if (grown >= bytes) fmt::print(stderr, "memory grew by {}\n", format_bytes(grown));
             return grown < bytes && data.train().sample_count() > 0;
           })) == 0;
  };
  constexpr int64_t kMost = 38 * kMiB;  // of it 20 MiB while records are packed
  EXPECT_TRUE(grows_by_less_than(kMost, cached()));
  EXPECT_TRUE(grows_by_less_than(12 * kMiB, cached())) << "they are read";
  DataOptions in_memory = cached();
  in_memory.cache = {};
  EXPECT_FALSE(grows_by_less_than(kMost, in_memory)) << "the test would see it";
}

}  // namespace
}  // namespace strata::data
