// SPDX-License-Identifier: Apache-2.0
// Threads that call one store at once: a call that is STRATA_OK was done as a whole, and one that
// is refused changed nothing. A second store, on which one thread makes the calls that succeeded,
// has the same bits after each step.
#include <random>
#include <thread>

#include "tests/c/c_fixture.h"
#include "tests/support/seeds.h"

namespace strata::test {
namespace {

constexpr int kThreads = kUnits;  // each writes to a unit of its own
constexpr int kPlanes = 3;
constexpr int kCalls = 40;  // of a thread, between two steps and in each backward

class Caller {
 public:
  Caller(strata_store* store, int unit, uint64_t seed)
      : store_(store), unit_(unit), random_(seed) {}

  // Between steps: reads and writes its unit, whose planes are `planes`, and makes wrong calls.
  void between_steps(std::vector<std::vector<float>>& planes) {
    for (int i = 0; i < kCalls; ++i) {
      const auto plane = static_cast<int32_t>(draw(kPlanes));
      std::vector<float>& expected = planes[static_cast<size_t>(plane)];
      const int64_t first = static_cast<int64_t>(draw(expected.size()));
      std::vector<float> values(1 + draw(expected.size() - static_cast<size_t>(first)));
      for (float& value : values) value = static_cast<float>(draw(1000)) / 1000;
      switch (draw(6)) {
        case 0:
          refused(strata_store_release(store_));
          break;
        case 1:
          refused(strata_store_write_tensor(store_, unit_, 0, plane, first + 1,
                                            std::ssize(expected) - first, expected.data()));
          break;
        case 2: {
          std::vector<float> read(expected.size());
          if (done(strata_store_read_tensor(store_, unit_, 0, plane, read.data(),
                                            std::ssize(read)))) {
            EXPECT_EQ(read, expected);
          }
          break;
        }
        default:
          if (done(strata_store_write_tensor(store_, unit_, 0, plane, first, std::ssize(values),
                                             values.data()))) {
            std::copy(values.begin(), values.end(), expected.begin() + first);
          }
      }
    }
  }

  // Within a unit's backward: adds quarters, which sums hold exactly in any order.
  void in_backward(std::vector<float>& sums) {
    auto view = sized<strata_view>();
    for (int i = 0; i < kCalls; ++i) {
      const int64_t first = static_cast<int64_t>(draw(sums.size()));
      std::vector<float> values(1 + draw(sums.size() - static_cast<size_t>(first)));
      for (float& value : values) value = static_cast<float>(draw(17)) - 8;
      switch (draw(6)) {
        case 0:
          refused(strata_store_begin(store_));
          break;
        case 1:
          refused(strata_store_acquire(store_, unit_, STRATA_FORWARD, &view));
          break;
        case 2:
          refused(strata_store_write_tensor(store_, unit_, 0, STRATA_WEIGHTS, 0, 1, values.data()));
          break;
        default:
          if (done(strata_store_add_gradient(store_, 0, first, std::ssize(values), STRATA_F32,
                                             values.data(), 0.25))) {
            for (size_t k = 0; k < values.size(); ++k) {
              sums[static_cast<size_t>(first) + k] += 0.25f * values[k];
            }
          }
      }
    }
  }
  int count() const { return count_; }  // of calls that were done

 private:
  size_t draw(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }
  bool done(strata_status status) {
    EXPECT_TRUE(status == STRATA_OK || status == STRATA_ERROR_BUSY) << text();
    count_ += status == STRATA_OK ? 1 : 0;
    return status == STRATA_OK;
  }
  static void refused(strata_status status) {
    EXPECT_TRUE(status == STRATA_ERROR_USAGE || status == STRATA_ERROR_CONFIG ||
                status == STRATA_ERROR_BUSY)
        << strata_status_name(status) << ": " << text();
  }

  strata_store* const store_;
  const int unit_;
  std::mt19937_64 random_;
  int count_ = 0;
};

class CThreads : public CApi {
 protected:
  template <typename Call>
  static void on_threads(std::vector<Caller>& callers, const Call& call) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] { call(callers[static_cast<size_t>(t)], t); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  // The backward of one unit: threads add to the gradient of `store`, and `replay` gets their sum.
  static void backward(strata_store* store, strata_store* replay, int unit,
                       std::vector<Caller>& callers) {
    const strata_view view = acquire(store, unit, STRATA_BACKWARD);
    const auto size = static_cast<size_t>(view.count);
    std::vector<std::vector<float>> sums(kThreads, std::vector<float>(size));
    on_threads(callers, [&](Caller& caller, int t) { caller.in_backward(sums[t]); });
    for (int t = 1; t < kThreads; ++t) {
      for (size_t i = 0; i < size; ++i) sums[0][i] += sums[static_cast<size_t>(t)][i];
    }
    EXPECT_EQ(std::vector<float>(view.gradient, view.gradient + size), sums[0]);
    acquire(replay, unit, STRATA_BACKWARD);
    EXPECT_EQ(strata_store_add_gradient(replay, 0, 0, view.count, STRATA_F32, sums[0].data(), 1),
              STRATA_OK)
        << text();
    for (strata_store* one : {store, replay}) {
      EXPECT_EQ(strata_store_release(one), STRATA_OK) << text();
    }
  }
  static void step(strata_store* store, strata_store* replay, std::vector<Caller>& callers) {
    for (strata_store* one : {store, replay}) {
      EXPECT_EQ(strata_store_begin(one), STRATA_OK) << text();
      for (int unit = 0; unit < kUnits; ++unit) {
        acquire(one, unit, STRATA_FORWARD);
        EXPECT_EQ(strata_store_release(one), STRATA_OK) << text();
      }
    }
    for (int unit = kUnits; unit-- > 0;) backward(store, replay, unit, callers);
    auto update = sized<strata_update>();
    update.lr = 0.01;
    double norms[2];
    for (const int i : {0, 1}) {
      auto result = sized<strata_step_result>();
      EXPECT_EQ(strata_store_step(i == 0 ? store : replay, &update, &result), STRATA_OK) << text();
      EXPECT_EQ(result.applied, 1);
      norms[i] = result.grad_norm;
    }
    EXPECT_EQ(norms[0], norms[1]);
  }
};

TEST_F(CThreads, WhatSucceedsIsDoneAndNothingElse) {
  for (uint64_t seed = 1; seed <= seeds(3) && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    strata_store* store = loaded(options(seed % 2 == 0 ? "" : on_drive()));
    strata_store* replay = loaded(options());
    std::vector<Caller> callers;
    for (int t = 0; t < kThreads; ++t) {
      callers.emplace_back(store, t, 100 * seed + static_cast<uint64_t>(t));
    }
    std::vector<std::vector<float>> planes[kUnits];
    for (int round = 0; round < 3 && !HasFailure(); ++round) {
      for (int unit = 0; unit < kUnits; ++unit) {
        planes[unit].clear();
        for (int p = 0; p < kPlanes; ++p) planes[unit].push_back(plane(replay, unit, p));
      }
      on_threads(callers, [&](Caller& caller, int t) { caller.between_steps(planes[t]); });
      for (int unit = 0; unit < kUnits; ++unit) {
        for (int p = 0; p < kPlanes; ++p) {
          const std::vector<float>& values = planes[unit][static_cast<size_t>(p)];
          EXPECT_EQ(
              strata_store_write_tensor(replay, unit, 0, p, 0, std::ssize(values), values.data()),
              STRATA_OK)
              << text();
        }
      }
      EXPECT_EQ(state(store), state(replay));
      step(store, replay, callers);
      EXPECT_EQ(state(store), state(replay));
    }
    for (const Caller& caller : callers) EXPECT_GT(caller.count(), 0);
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
    EXPECT_EQ(strata_store_close(replay), STRATA_OK);
  }
}

}  // namespace
}  // namespace strata::test
