// SPDX-License-Identifier: Apache-2.0
// Operations of the C API: waited for, looked at and cancelled by several threads, in the midst of
// each call that a cancel ends, and closed at any time.
#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

// What the work of a test does and sees.
struct Job {
  strata_store* store = nullptr;
  strata_train* train = nullptr;
  strata_operation* operation = nullptr;
  std::string directory;
  std::atomic<bool> has_begun = false;
  std::atomic<bool> may_end = false;
  std::atomic<int> over_count = 0;
  std::atomic<strata_status> over_status = -1;
  std::atomic<strata_status> seen = -1;
  strata_run_result result = sized<strata_run_result>();

  // Called by work that is to be cancelled; ends by itself after some seconds.
  void wait() {
    has_begun = true;
    for (int k = 0; k < 5000 && !may_end; ++k)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

Job& job_of(void* context) {
  return *static_cast<Job*>(context);
}

void on_over(void* context, strata_status status) {
  ++job_of(context).over_count;
  job_of(context).over_status = status;
}

class COperation : public CApi {
 protected:
  static strata_operation* start(strata_work work, Job& job) {
    strata_operation* operation = nullptr;
    EXPECT_EQ(strata_operation_start(work, on_over, &job, &operation), STRATA_OK) << text();
    return operation;
  }
  static strata_operation_state state_after(strata_operation* operation, double seconds) {
    auto state = sized<strata_operation_state>();
    EXPECT_EQ(strata_operation_wait(operation, seconds, &state), STRATA_OK) << text();
    return state;
  }
  // Cancels it when its work has begun, and lets the work go on.
  static strata_operation_state cancelled(strata_operation* operation, Job& job) {
    while (!job.has_begun && state_after(operation, 0).is_over == 0) std::this_thread::yield();
    EXPECT_EQ(state_after(operation, 0).is_over, 0) << state_after(operation, 0).text;
    EXPECT_EQ(state_after(operation, 0.01).is_over, 0);
    EXPECT_EQ(strata_operation_cancel(operation), STRATA_OK) << text();
    job.may_end = true;
    const strata_operation_state state = state_after(operation, -1);
    EXPECT_EQ(state.is_over, 1);
    EXPECT_EQ(job.over_count, 1);
    EXPECT_EQ(job.over_status, state.status);
    return state;
  }
};

TEST_F(COperation, WorkRunsBesideTheCallerAndIsWaitedFor) {
  Job job;
  job.store = loaded(options());
  job.directory = directory_ + "/saved";
  strata_operation* operation = start(
      [](void* context) {
        Job& one = job_of(context);
        one.wait();
        return strata_store_save(one.store, one.directory.c_str(), nullptr);
      },
      job);
  while (!job.has_begun) std::this_thread::yield();
  EXPECT_EQ(state_after(operation, 0).is_over, 0);
  job.may_end = true;
  strata_operation_state state = state_after(operation, -1);
  EXPECT_EQ(state.is_over, 1);
  EXPECT_EQ(state.status, STRATA_OK) << state.text;
  EXPECT_STREQ(state.text, "");
  EXPECT_TRUE(fs::exists(job.directory));
  EXPECT_EQ(job.over_count, 1);
  state = state_after(operation, 0);
  EXPECT_EQ(state.is_over, 1) << "it stays over";
  EXPECT_EQ(strata_operation_close(operation), STRATA_OK);
  EXPECT_EQ(strata_operation_close(operation), STRATA_ERROR_HANDLE);
  EXPECT_NE(text().find("it was closed (pass one that strata_operation_start() made)"),
            std::string::npos)
      << text();
  EXPECT_EQ(strata_store_close(job.store), STRATA_OK);
}

TEST_F(COperation, AFailureKeepsItsText) {
  Job job;
  strata_operation* operation = start([](void*) { return strata_store_begin(nullptr); }, job);
  const strata_operation_state state = state_after(operation, -1);
  EXPECT_EQ(state.status, STRATA_ERROR_HANDLE);
  EXPECT_NE(std::string(state.text).find("store_begin: handle: it is null"), std::string::npos);
  EXPECT_EQ(strata_operation_close(operation), STRATA_OK);
  Job other;
  operation = start([](void*) -> strata_status { throw 7; }, other);
  EXPECT_EQ(state_after(operation, -1).status, STRATA_ERROR_INTERNAL);
  EXPECT_EQ(strata_operation_close(operation), STRATA_OK);
}

TEST_F(COperation, CancelEndsALoadAndTheStoreLoadsAgain) {
  Job job;
  job.store = open(options());
  strata_operation* operation = start(
      [](void* context) {
        auto load = sized<strata_load>();
        load.context = context;
        load.fill = [](void* given, int32_t plane, int32_t unit, int32_t tensor, int64_t first,
                       int64_t count, float* values) {
          if (!job_of(given).has_begun) job_of(given).wait();
          return fill(nullptr, plane, unit, tensor, first, count, values);
        };
        return strata_store_load(job_of(context).store, &load);
      },
      job);
  EXPECT_EQ(cancelled(operation, job).status, STRATA_ERROR_INTERRUPTED);
  EXPECT_EQ(strata_operation_close(operation), STRATA_OK);
  auto load = sized<strata_load>();
  load.fill = fill;
  EXPECT_EQ(strata_store_load(job.store, &load), STRATA_OK) << text();
  step(job.store);
  EXPECT_EQ(strata_store_close(job.store), STRATA_OK);
}

TEST_F(COperation, CancelEndsAReadWithoutLoss) {
  Job job;
  job.store = loaded(options());
  const auto before = state(job.store);
  strata_operation* operation = start(
      [](void* context) {
        return strata_store_read(
            job_of(context).store, STRATA_WEIGHTS,
            [](void* given, int32_t, int32_t, int32_t, int64_t, int64_t, const float*) {
              job_of(given).wait();
              return 0;
            },
            context);
      },
      job);
  EXPECT_EQ(cancelled(operation, job).status, STRATA_ERROR_INTERRUPTED);
  EXPECT_EQ(strata_operation_close(operation), STRATA_OK);
  EXPECT_EQ(state(job.store), before);
  EXPECT_EQ(strata_store_close(job.store), STRATA_OK);
}

// A step in an operation: what begins after the cancel is refused, and discard gives the step back.
TEST_F(COperation, CallsAfterACancelAreRefusedAndChangeNothing) {
  Job job;
  job.store = loaded(options());
  const auto before = state(job.store);
  strata_operation* operation = start(
      [](void* context) {
        Job& one = job_of(context);
        strata_status status = strata_store_begin(one.store);
        auto view = sized<strata_view>();
        if (status == STRATA_OK) status = strata_store_acquire(one.store, 0, STRATA_FORWARD, &view);
        one.wait();
        if (status == STRATA_OK) status = strata_store_release(one.store);
        if (status == STRATA_OK)
          one.seen = strata_store_acquire(one.store, 1, STRATA_FORWARD, &view);
        const strata_status ended = strata_store_discard(one.store);
        return status == STRATA_OK ? ended : status;
      },
      job);
  const strata_operation_state state_then = cancelled(operation, job);
  EXPECT_EQ(state_then.status, STRATA_OK) << state_then.text;
  EXPECT_EQ(job.seen, STRATA_ERROR_INTERRUPTED);
  EXPECT_EQ(strata_operation_close(operation), STRATA_OK);
  EXPECT_EQ(state(job.store), before);
  step(job.store);
  EXPECT_EQ(strata_store_close(job.store), STRATA_OK);
}

TEST_F(COperation, CancelStopsARunWithACheckpoint) {
  Job job;
  {
    std::ofstream file(directory_ + "/tokens.bin", std::ios::binary);
    for (int i = 0; i <= 12 * 8; ++i) file << static_cast<char>(i * i % 59) << '\0';
  }
  const std::string json = "{\"model\": \"" STRATA_MODELS
                           "/tinyllama\", \"sequence_length\": 8, \"threads\": 1, \"data\": \"" +
                           directory_ + "/tokens.bin\", \"out\": \"" + directory_ +
                           "/run\", \"steps\": 50, \"machine\": \"" STRATA_MACHINE "\"}";
  ASSERT_EQ(
      strata_train_open(json.c_str(), STRATA_BINARY_DIR "/session-cache", nullptr, &job.train),
      STRATA_OK)
      << text();
  strata_operation* operation = start(
      [](void* context) {
        auto callbacks = sized<strata_callbacks>();
        callbacks.context = context;
        callbacks.step = [](void* given, const strata_step_report* report) {
          if (report->step == 2) job_of(given).wait();
          return 0;
        };
        return strata_train_run(job_of(context).train, &callbacks, &job_of(context).result);
      },
      job);
  EXPECT_EQ(cancelled(operation, job).status, STRATA_OK);
  EXPECT_EQ(strata_operation_close(operation), STRATA_OK);
  EXPECT_EQ(job.result.stopped, 1);
  EXPECT_GE(job.result.last_step, 2);
  EXPECT_LE(job.result.last_step, 3);
  EXPECT_TRUE(fs::exists(std::string(job.result.checkpoint) + "/manifest.json"));
  EXPECT_EQ(strata_train_close(job.train), STRATA_OK);
}

TEST_F(COperation, CancelEndsAMeasurementOfDrives) {
  Job job;
  job.directory = "{\"nvme\": [\"" + directory_ +
                  "/nvme\"], \"mode\": [\"read\"], \"block\": [\"64KiB\"], \"depth\": [1, 2, 4], "
                  "\"files\": [1], \"seconds\": 0.05, \"size\": \"8MiB\"}";
  strata_operation* operation = start(
      [](void* context) {
        return strata_bench_io(
            job_of(context).directory.c_str(), nullptr,
            [](void* given, const strata_drive_rates*) {
              job_of(given).wait();
              return 0;
            },
            context);
      },
      job);
  EXPECT_EQ(cancelled(operation, job).status, STRATA_ERROR_INTERRUPTED);
  EXPECT_EQ(strata_operation_close(operation), STRATA_OK);
}

TEST_F(COperation, ManyThreadsMayWaitCancelAndLook) {
  Job job;
  strata_operation* operation = start(
      [](void* context) -> strata_status {
        job_of(context).wait();
        return STRATA_OK;
      },
      job);
  std::vector<std::jthread> threads;
  for (int k = 0; k < 4; ++k) {
    threads.emplace_back([&] { EXPECT_EQ(state_after(operation, -1).is_over, 1); });
    threads.emplace_back([&] {
      for (int n = 0; n < 100; ++n) state_after(operation, 0);
      EXPECT_EQ(strata_operation_cancel(operation), STRATA_OK);
    });
  }
  job.may_end = true;
  threads.clear();
  EXPECT_EQ(strata_operation_close(operation), STRATA_OK);
}

TEST_F(COperation, CannotWaitForItself) {
  Job job;
  strata_operation* operation = start(
      [](void* context) {
        Job& one = job_of(context);
        one.wait();
        one.seen = strata_operation_close(one.operation);
        return strata_operation_wait(one.operation, -1, nullptr);
      },
      job);
  job.operation = operation;
  job.may_end = true;
  EXPECT_EQ(state_after(operation, -1).status, STRATA_ERROR_USAGE);
  EXPECT_EQ(job.seen, STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_operation_close(operation), STRATA_OK);
}

TEST_F(COperation, WrongArgumentsAreRefused) {
  strata_operation* operation = nullptr;
  EXPECT_EQ(strata_operation_start(nullptr, nullptr, nullptr, &operation), STRATA_ERROR_USAGE);
  EXPECT_EQ(operation, nullptr);
  EXPECT_EQ(strata_operation_start([](void*) -> strata_status { return STRATA_OK; }, nullptr,
                                   nullptr, nullptr),
            STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_operation_close(nullptr), STRATA_OK);
  EXPECT_EQ(strata_operation_wait(nullptr, 0, nullptr), STRATA_ERROR_HANDLE);
  EXPECT_EQ(strata_operation_cancel(nullptr), STRATA_ERROR_HANDLE);
  strata_store* store = open(options());
  EXPECT_EQ(strata_operation_wait(reinterpret_cast<strata_operation*>(store), 0, nullptr),
            STRATA_ERROR_HANDLE);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
  Job job;
  operation = start([](void*) -> strata_status { return STRATA_OK; }, job);
  EXPECT_EQ(strata_operation_wait(operation, NAN, nullptr), STRATA_ERROR_CONFIG);
  auto state = sized<strata_operation_state>();
  state.struct_size = 4;
  EXPECT_EQ(strata_operation_wait(operation, 0, &state), STRATA_ERROR_CONFIG);
  EXPECT_EQ(strata_operation_wait(operation, 1e300, nullptr), STRATA_OK);
  EXPECT_EQ(strata_operation_close(operation), STRATA_OK) << text();
}

}  // namespace
}  // namespace strata::test
