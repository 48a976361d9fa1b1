// SPDX-License-Identifier: Apache-2.0
// Random sequences of calls of the C API, many of them wrong: no call crashes, hangs or leaks, and
// a model of the store's states predicts which calls succeed.
//
// STRATA_SEEDS multiplies the number of sequences. STRATA_C_SEQUENCES sets it instead, for short
// ones, from the seed STRATA_C_FIRST on.
#include <atomic>
#include <random>
#include <thread>

#include "tests/c/c_fixture.h"
#include "tests/support/seeds.h"

namespace strata::test {
namespace {

// What a store is, by what was called.
struct Model {
  bool open = false;
  int units = 0;
  bool planned = false;  // or an attempt that opened the session
  bool loaded = false;
  bool in_step = false;
  size_t passes = 0;  // done in the step
  bool acquired = false;
  bool on_drive = false;
  int64_t steps = 0;
};

// Stores that the sequences of several threads call.
using Shared = std::array<std::atomic<strata_store*>, 2>;

class Sequence {
 public:
  // With `shared` other threads call the same stores, so that nothing is predicted.
  Sequence(uint64_t seed, std::string drive, Shared* shared = nullptr)
      : random_(seed), drive_(std::move(drive)), shared_(shared), slots_(1 + draw(2)) {}
  ~Sequence() {
    if (shared_ == nullptr) {
      for (strata_store* store : stores_) strata_store_close(store);
    }
  }
  void call();
  int64_t steps() const { return steps_; }  // that were done

 private:
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
  template <typename T>
  T maybe_wrong(bool& is_right) {
    T value = sized<T>();
    if (chance(0.97)) return value;
    is_right = false;
    value.struct_size = draw(sizeof(T));
    return value;
  }

  void call_on(int slot);
  void open(int slot);
  void add_unit(int slot);
  void load(int slot);
  void acquire(int slot);
  void release(int slot);
  void end(int slot);
  void other(int slot);

  std::mt19937_64 random_;
  const std::string drive_;
  Shared* shared_;
  const size_t slots_;  // stores that it calls
  Model models_[2];
  strata_store* stores_[2] = {nullptr, nullptr};
  strata_store* closed_ = nullptr;
  int64_t steps_ = 0;
};

void Sequence::open(int slot) {
  Model& model = models_[slot];
  bool is_right = true;
  if (model.open) {
    closed_ = stores_[slot];
    expect(strata_store_close(stores_[slot]), true, "close");
    model = {};
    stores_[slot] = nullptr;
    return;
  }
  const bool drives = slot == 1;  // a scratch directory has one owner
  std::string json = "{\"recipe\": \"fp32\", \"threads\": 1, \"clip\": 0" +
                     (drives ? drive_ : std::string()) + "}";
  if (chance(0.1)) {
    is_right = false;
    json = json.substr(0, draw(json.size()));
    if (json.empty()) json = "[";
  }
  expect(strata_store_open(json.c_str(), nullptr, &stores_[slot]), is_right, "open");
  model.open = is_right;
  model.on_drive = drives;
}

void Sequence::add_unit(int slot) {
  Model& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && !model.planned && model.units < kUnits;
  const std::string name = "unit" + std::to_string(model.units);
  auto tensor = maybe_wrong<strata_tensor>(is_right);
  tensor.name = name.c_str();
  tensor.shape = kShapes[model.units % kUnits].data();
  tensor.rank = model.units % kUnits < 2 ? 2 : 1;
  auto unit = maybe_wrong<strata_unit>(is_right);
  unit.name = name.c_str();
  unit.tensors = &tensor;
  unit.tensor_count = chance(0.97) ? 1 : 0;
  is_right = is_right && unit.tensor_count == 1;
  if (model.open && model.units >= kUnits && !model.planned) return;  // there are enough
  expect(strata_store_add_unit(store, &unit, nullptr), is_right, "add_unit");
  if (is_right) ++model.units;
}

void Sequence::load(int slot) {
  Model& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  const bool is_its_own = is_right;
  if (is_right && model.units > 0 && model.units < kUnits) return;  // the budget is for all units
  if (chance(0.3)) {
    expect(strata_store_plan(store, nullptr), is_right && model.units > 0, "plan");
    if (is_its_own && model.units > 0) model.planned = true;
    return;
  }
  if (model.loaded && chance(0.9)) return;
  auto load = maybe_wrong<strata_load>(is_right);
  load.fill = chance(0.97) ? fill : nullptr;
  is_right = is_right && load.fill != nullptr && model.units > 0;
  expect(strata_store_load(store, &load), is_right, "load");
  if (!is_right) return;
  const Model before = model;
  model = {.open = true, .units = before.units, .planned = true, .loaded = true};
  model.on_drive = before.on_drive;
}

void Sequence::acquire(int slot) {
  Model& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  const int passes = static_cast<int>(model.passes);
  const bool forward = passes < model.units;
  int unit = forward ? passes : 2 * model.units - 1 - passes;
  int32_t pass = forward ? STRATA_FORWARD : STRATA_BACKWARD;
  is_right =
      is_right && model.loaded && model.in_step && !model.acquired && passes < 2 * model.units;
  if (chance(0.05)) {
    unit += 1 + static_cast<int>(draw(5));
    is_right = false;
  } else if (chance(0.05)) {
    pass = pass == STRATA_FORWARD ? STRATA_BACKWARD : chance(0.5) ? STRATA_FORWARD : -1;
    is_right = false;
  }
  auto view = maybe_wrong<strata_view>(is_right);
  const strata_status status = strata_store_acquire(store, unit, pass, &view);
  expect(status, is_right, "acquire");
  if (!is_right || status != STRATA_OK) return;
  model.acquired = true;
  const float value = 0.25f;
  const bool backward = pass == STRATA_BACKWARD;
  ASSERT_TRUE(shared_ != nullptr || (view.gradient != nullptr) == backward);
  const int64_t at = chance(0.9) ? static_cast<int64_t>(draw(static_cast<size_t>(view.count)))
                                 : view.count + static_cast<int64_t>(draw(9)) - 3;
  expect(strata_store_add_gradient(store, 0, at, 1, STRATA_F32, &value, 1),
         backward && at < view.count, "add_gradient");
}

void Sequence::release(int slot) {
  Model& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && model.acquired;
  expect(strata_store_release(store), is_right, "release");
  if (!is_right) return;
  model.acquired = false;
  ++model.passes;
}

void Sequence::end(int slot) {
  Model& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && model.loaded;
  if (chance(0.1)) {
    is_right = is_right && model.in_step;
    expect(strata_store_discard(store), is_right, "discard");
  } else if (model.in_step) {
    auto update = maybe_wrong<strata_update>(is_right);
    update.lr = chance(0.95) ? 1e-3 : NAN;
    is_right = is_right && !model.acquired && !std::isnan(update.lr) &&
               static_cast<int>(model.passes) == 2 * model.units;
    auto result = sized<strata_step_result>();
    expect(strata_store_step(store, &update, &result), is_right, "step");
    if (is_right && shared_ == nullptr) {  // others may step a shared store meanwhile
      ASSERT_EQ(result.step, ++model.steps);
      ++steps_;
    }
  } else {
    expect(strata_store_begin(store), is_right, "begin");
    if (is_right) model.in_step = true;
    return;
  }
  if (is_right) model.in_step = model.acquired = false, model.passes = 0;
}

void Sequence::other(int slot) {
  Model& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  const bool between = is_right && model.loaded && !model.in_step;
  auto statistics = sized<strata_statistics>();
  std::vector<float> values(12 * 9);
  switch (draw(4)) {
    case 0:
      return expect(strata_store_statistics(store, &statistics), between, "statistics");
    case 1:
      return expect(
          strata_store_read_tensor(store, 0, 0, STRATA_EXP_AVG, values.data(), std::ssize(values)),
          between, "read_tensor");
    case 2:
      return expect(strata_store_read_tensor(store, 0, 0, STRATA_EXP_AVG, values.data(), 5), false,
                    "read_tensor");
    default:
      return expect(strata_train_close(reinterpret_cast<strata_train*>(store)), store == nullptr,
                    "train_close");
  }
}

void Sequence::call() {
  const int slot = static_cast<int>(draw(slots_));
  if (shared_ == nullptr) return call_on(slot);
  strata_store* before = (*shared_)[static_cast<size_t>(slot)];
  stores_[slot] = before;
  if (before == nullptr) models_[slot] = {};
  models_[slot].open = before != nullptr;
  call_on(slot);
  strata_store* after = stores_[slot];
  if (after == before) return;
  if (!(*shared_)[static_cast<size_t>(slot)].compare_exchange_strong(before, after)) {
    strata_store_close(after);  // another thread opened or closed one meanwhile
  }
}

void Sequence::call_on(int slot) {
  const Model& model = models_[slot];
  // As a rule what brings the store on, sometimes anything.
  if (!model.open && chance(0.8)) return open(slot);
  if (model.open && !model.planned && model.units < kUnits && chance(0.8)) return add_unit(slot);
  if (model.open && !model.loaded && chance(0.6)) return load(slot);
  if (model.acquired && chance(0.9)) return release(slot);
  if (model.in_step && chance(0.8)) {
    return static_cast<int>(model.passes) < 2 * model.units ? acquire(slot) : end(slot);
  }
  switch (draw(40)) {
    case 0:
      return open(slot);
    case 1:
      return add_unit(slot);
    case 2:
      return load(slot);
    default:
      break;
  }
  switch (draw(5)) {
    case 0:
      return acquire(slot);
    case 1:
      return release(slot);
    case 2:
      return other(slot);
    default:
      return end(slot);
  }
}

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* given = std::getenv(name);
  return given == nullptr ? otherwise : std::atoll(given);
}

TEST_F(CApi, RandomCallsDoWhatTheStatesOfAStoreSay) {
  const int64_t wanted = from_environment("STRATA_C_SEQUENCES", 0);
  const int64_t sequences = wanted > 0 ? wanted : static_cast<int64_t>(seeds(10));
  const int64_t first = from_environment("STRATA_C_FIRST", 1);
  const uint64_t calls = wanted > 0 ? 40 : 1000;  // the most of a sequence
  int64_t steps = 0;
  for (int64_t seed = first; seed < first + sequences && !HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Sequence sequence(static_cast<uint64_t>(seed), on_drive());
    const uint64_t count = 1 + static_cast<uint64_t>(seed) * 7919 % calls;
    for (uint64_t i = 0; i < count && !HasFatalFailure(); ++i) sequence.call();
    steps += sequence.steps();
  }
  EXPECT_GT(steps,
            wanted > 0 ? sequences / 50 : sequences);  // the calls come far enough to matter
}

TEST_F(CApi, RandomCallsOfThreadsAreDoneOrRefused) {
  constexpr int kThreads = 3, kCalls = 200;
  for (uint64_t seed = 1; seed <= seeds(4) && !HasFailure(); ++seed) {
    Shared shared = {nullptr, nullptr};
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        Sequence sequence(100 * seed + thread, on_drive(), &shared);
        for (int i = 0; i < kCalls && !HasFatalFailure(); ++i) sequence.call();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (std::atomic<strata_store*>& store : shared) strata_store_close(store);
  }
}

}  // namespace
}  // namespace strata::test
