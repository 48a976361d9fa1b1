// SPDX-License-Identifier: Apache-2.0
// Where a handle reports to: lines of stores and runs arrive in the log callback with the caller's
// context, and nowhere else (the fixture finds stdout and stderr empty); a drive that does not
// answer is reported, once, and the wait for it goes on.
#include <dlfcn.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>

#include "tests/c/c_fixture.h"
#include "tests/support/refuse_io_uring.h"

namespace strata::test {
namespace {

std::atomic<bool> holds_reads = false;  // of pread(), at most for 10 s

// What the callbacks were given.
struct Told {
  std::mutex mu;
  std::vector<std::pair<int32_t, std::string>> lines;
  std::vector<std::string> hangs;
  std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> is_by_another_thread = false;

  bool has(int32_t level, const std::string& words) {
    const std::lock_guard lock(mu);
    return std::ranges::any_of(lines, [&](const auto& line) {
      return line.first == level && line.second.find(words) != std::string::npos;
    });
  }
};

Told& told_of(void* context) {
  return *static_cast<Told*>(context);
}

strata_sinks sinks_to(Told& told) {
  auto sinks = sized<strata_sinks>();
  sinks.context = &told;
  sinks.log = [](void* context, int32_t level, const char* line) {
    const std::lock_guard lock(told_of(context).mu);
    told_of(context).lines.emplace_back(level, line);
  };
  sinks.hang = [](void* context, const char* text) {
    Told& heard = told_of(context);
    {
      const std::lock_guard lock(heard.mu);
      heard.hangs.emplace_back(text);
    }
    heard.is_by_another_thread = std::this_thread::get_id() != heard.caller;
    holds_reads = false;
  };
  return sinks;
}

class CSinks : public CApi {};

// A store without io_uring says so. It is refused to one thread and those that it starts.
TEST_F(CSinks, LinesOfAStoreArriveInTheCallback) {
  bool is_refused = false;
  std::thread([&] {
    is_refused = refuse_io_uring(1);
    for (const bool has_log : {true, false}) {
      Told told;
      strata_sinks sinks = sinks_to(told);
      if (!has_log) sinks.log = nullptr;
      strata_store* store = nullptr;
      ASSERT_EQ(strata_store_open(options(on_drive()).c_str(), &sinks, &store), STRATA_OK)
          << text();
      add_units(store);
      load(store);
      EXPECT_EQ(step(store).applied, 1);
      EXPECT_EQ(strata_store_close(store), STRATA_OK);
      if (!is_refused) return;
      EXPECT_EQ(told.has(1, "io_uring is not available, a thread pool does the I/O"), has_log);
      for (const auto& [level, line] : told.lines) EXPECT_FALSE(line.ends_with("\n")) << line;
    }
  }).join();
  if (!is_refused) GTEST_SKIP() << "the kernel takes no filter of system calls";
}

TEST_F(CSinks, LinesOfARunArriveInTheCallback) {
  std::ofstream file(directory_ + "/tokens.bin", std::ios::binary);
  for (int i = 0; i <= 12 * 8; ++i) file << static_cast<char>(i * i % 59) << '\0';
  file.close();
  Told told, other;
  const strata_sinks sinks = sinks_to(told), unused = sinks_to(other);
  const std::string json = "{\"model\": \"" STRATA_MODELS
                           "/tinyllama\", \"sequence_length\": 8, \"threads\": 1, \"steps\": 1, "
                           "\"checkpoint_every\": 9, \"lr_scaling\": \"linear\", \"lr_batch\": 4, "
                           "\"data\": \"" +
                           directory_ + "/tokens.bin\", \"out\": \"" + directory_ +
                           "/run\", \"machine\": \"" STRATA_MACHINE "\"}";
  strata_train *train = nullptr, *idle = nullptr;
  ASSERT_EQ(strata_train_open(json.c_str(), nullptr, &sinks, &train), STRATA_OK) << text();
  EXPECT_TRUE(told.has(1, "checkpoint-every"));
  ASSERT_EQ(strata_train_open(json.c_str(), nullptr, &unused, &idle), STRATA_OK) << text();
  const size_t count = other.lines.size();
  EXPECT_FALSE(told.has(0, "of this run"));
  EXPECT_EQ(strata_train_run(train, nullptr, nullptr), STRATA_OK) << text();
  EXPECT_TRUE(told.has(0, "of this run")) << told.lines.size();
  EXPECT_EQ(other.lines.size(), count);  // of a handle that did nothing more
  EXPECT_EQ(strata_train_close(train), STRATA_OK);
  EXPECT_EQ(strata_train_close(idle), STRATA_OK);
}

TEST_F(CSinks, MoreThreadsThanCpusPrintNothing) {
  for (const unsigned times : {2, 4}) {
    strata_store* store = loaded(R"({"recipe": "fp32", "threads": )" +
                                 std::to_string(times * std::thread::hardware_concurrency()) + "}");
    EXPECT_EQ(step(store).applied, 1);
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
  }
}

TEST_F(CSinks, ADriveThatDoesNotAnswerIsReportedAndWaitedFor) {
  const std::string path = directory_ + "/weights";
  const std::vector<float> weights(64, 0.5f);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(weights.data()), 64 * sizeof(float));
  Told told;
  strata_sinks sinks = sinks_to(told);
  sinks.hang_after_s = 0.05;
  strata_store* store = nullptr;
  ASSERT_EQ(strata_store_open(options().c_str(), &sinks, &store), STRATA_OK) << text();
  const int64_t count = std::ssize(weights);
  auto tensor = sized<strata_tensor>();
  tensor.name = "weight";
  tensor.shape = &count;
  tensor.rank = 1;
  tensor.source = path.c_str();
  auto unit = sized<strata_unit>();
  unit.name = "unit";
  unit.tensors = &tensor;
  unit.tensor_count = 1;
  ASSERT_EQ(strata_store_add_unit(store, &unit, nullptr), STRATA_OK) << text();
  auto load = sized<strata_load>();
  holds_reads = true;
  EXPECT_EQ(strata_store_load(store, &load), STRATA_OK) << text();
  EXPECT_FALSE(holds_reads.exchange(false));
  ASSERT_EQ(told.hangs.size(), 1u);
  EXPECT_TRUE(told.hangs[0].starts_with("read: " + path + ": no answer for ")) << told.hangs[0];
  EXPECT_TRUE(told.is_by_another_thread);
  EXPECT_EQ(plane(store, 0, STRATA_WEIGHTS), weights);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CSinks, WrongSinksAreRefused) {
  strata_store* store = nullptr;
  auto sinks = sized<strata_sinks>();
  sinks.hang_after_s = -1;
  EXPECT_EQ(strata_store_open(options().c_str(), &sinks, &store), STRATA_OK) << text();
  add_units(store);
  EXPECT_EQ(strata_store_plan(store, nullptr), STRATA_ERROR_CONFIG);
  EXPECT_NE(text().find("hang_after_s"), std::string::npos) << text();
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
  sinks.struct_size = 8;
  EXPECT_EQ(strata_store_open(options().c_str(), &sinks, &store), STRATA_ERROR_CONFIG);
  EXPECT_EQ(store, nullptr);
}

}  // namespace
}  // namespace strata::test

// Stands before the library's calls of pread(), because this program exports it.
extern "C" ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
  using Pread = ssize_t (*)(int, void*, size_t, off_t);
  static const auto next = reinterpret_cast<Pread>(dlsym(RTLD_NEXT, "pread"));
  for (int i = 0; i < 1000 && strata::test::holds_reads; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return next(fd, data, bytes, offset);
}
