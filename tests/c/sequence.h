// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/c/store_model.h"

// Random calls of the C API on two stores, many of them wrong.
namespace strata::test {

// Stores that the sequences of several threads call.
using Shared = std::array<std::atomic<strata_store*>, 2>;

class Sequence {
 public:
  // With `shared` other threads call the same stores, so that nothing is predicted.
  Sequence(uint64_t seed, std::string directory, Shared* shared = nullptr)
      : random_(seed), directory_(std::move(directory)), shared_(shared), slots_(1 + draw(2)) {}
  ~Sequence() {
    if (shared_ == nullptr) {
      for (strata_store* store : stores_) strata_store_close(store);
    }
  }
  void call();
  int64_t steps() const { return steps_; }    // that were done
  int64_t saves() const { return saves_; }    // that were loaded again
  int64_t orders() const { return orders_; }  // that were declared

 private:
  using Phase = StoreModel::Phase;

  size_t draw(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }
  bool chance(double share) { return std::bernoulli_distribution(share)(random_); }

  // A handle: as a rule the slot's, sometimes null, closed, of nothing, or of the other kind.
  strata_store* handle(int slot, bool& is_right) {
    is_right = models_[slot].open;
    if (chance(0.95)) return stores_[slot];
    is_right = false;
    static int nothing = 0;
    strata_store* wrong[] = {nullptr, closed_, reinterpret_cast<strata_store*>(&nothing),
                             reinterpret_cast<strata_store*>(uintptr_t{1} << 40)};
    return wrong[draw(4)];
  }
  void expect(strata_status status, bool succeeds, const char* call) const {
    if (shared_ != nullptr && (status == STRATA_OK || status == STRATA_ERROR_BUSY)) return;
    if (shared_ != nullptr) succeeds = false;
    ASSERT_EQ(status == STRATA_OK, succeeds) << call << ": " << text();
    if (succeeds) return;
    ASSERT_TRUE(status == STRATA_ERROR_USAGE || status == STRATA_ERROR_CONFIG ||
                status == STRATA_ERROR_HANDLE)
        << call << ": " << strata_status_name(status) << ": " << text();
    ASSERT_NE(text(), "");
  }
  // A call that its callback stops, if it comes that far.
  void expect_stopped(strata_status status, bool comes_far, const char* call) const {
    if (shared_ != nullptr && status == STRATA_ERROR_INTERRUPTED) return;
    if (shared_ != nullptr || !comes_far) return expect(status, false, call);
    ASSERT_EQ(status, STRATA_ERROR_INTERRUPTED) << call << ": " << text();
  }
  template <typename T>
  T maybe_wrong(bool& is_right) {
    T value = sized<T>();
    if (chance(0.97)) return value;
    is_right = false;
    value.struct_size = draw(sizeof(T) / 2);
    return value;
  }
  std::vector<float> weights_of(strata_store* store) const {
    std::vector<float> values(12 * 9);
    expect(strata_store_read_tensor(store, 0, 0, STRATA_WEIGHTS, values.data(), std::ssize(values)),
           true, "read_tensor");
    return values;
  }

  void call_on(int slot);
  void open(int slot);
  void add_unit(int slot);
  void declare(int slot);
  void plan(int slot);
  void load(int slot);
  void load_saved(int slot);
  void save(int slot);
  void unload(int slot);
  void acquire(int slot);
  void look_at_uses(int slot, strata_store* store, strata_view view);
  void release(int slot);
  void begin(int slot, Phase phase);
  void end_micro_batch(int slot);
  void end(int slot);
  void end_step(int slot);
  void end_forward(int slot);
  void discard(int slot);
  void read(int slot);
  void write(int slot);
  void other(int slot);

  std::mt19937_64 random_;
  const std::string directory_;
  Shared* shared_;
  const size_t slots_;  // stores that it calls
  StoreModel models_[2];
  strata_store* stores_[2] = {nullptr, nullptr};
  strata_store* closed_ = nullptr;
  std::optional<Saved> saved_;
  int64_t steps_ = 0;
  int64_t saves_ = 0;
  int64_t orders_ = 0;
};

}  // namespace strata::test
