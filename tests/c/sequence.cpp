// SPDX-License-Identifier: Apache-2.0
#include "tests/c/sequence.h"

#include <algorithm>
#include <cmath>

namespace strata::test {
namespace {

// Orders of the three units: again in another's use, again before its backward, and mixed.
const std::vector<Use> kOrders[] = {{{{0}, STRATA_FORWARD},
                                     {{1}, STRATA_FORWARD},
                                     {{2, 0}, STRATA_FORWARD},
                                     {{2, 0}, STRATA_BACKWARD},
                                     {{1}, STRATA_BACKWARD},
                                     {{0}, STRATA_BACKWARD}},
                                    {{{0}, STRATA_FORWARD},
                                     {{1}, STRATA_FORWARD},
                                     {{2}, STRATA_FORWARD},
                                     {{2}, STRATA_BACKWARD},
                                     {{1}, STRATA_FORWARD},
                                     {{1}, STRATA_BACKWARD},
                                     {{0}, STRATA_FORWARD},
                                     {{0}, STRATA_BACKWARD}},
                                    {{{1}, STRATA_FORWARD},
                                     {{0}, STRATA_FORWARD},
                                     {{0}, STRATA_BACKWARD},
                                     {{2}, STRATA_FORWARD},
                                     {{2}, STRATA_BACKWARD},
                                     {{1}, STRATA_BACKWARD}}};
const std::vector<Use> kWrongOrders[] = {{{{0}, STRATA_BACKWARD}},
                                         {{{0}, 7}},
                                         {{{}, STRATA_FORWARD}},
                                         {{{0, 0}, STRATA_FORWARD}},
                                         {{{9}, STRATA_FORWARD}}};

int stop_fill(void*, int32_t, int32_t, int32_t, int64_t, int64_t, float*) {
  return 1;
}

int stop_visit(void*, int32_t, int32_t, int32_t, int64_t, int64_t, const float*) {
  return 1;
}

}  // namespace

void Sequence::open(int slot) {
  StoreModel& model = models_[slot];
  bool is_right = true;
  if (model.open) {
    closed_ = stores_[slot];
    expect(strata_store_close(stores_[slot]), true, "close");
    model = {};
    stores_[slot] = nullptr;
    return;
  }
  const bool drives = slot == 1;  // a scratch directory has one owner
  const int micro_batches = chance(0.7) ? 1 : 2;
  std::string json = "{\"recipe\": \"fp32\", \"threads\": 1, \"clip\": 0, \"accumulate\": " +
                     std::to_string(micro_batches) +
                     (drives ? on_drive(directory_) : std::string()) + "}";
  if (chance(0.1)) {
    is_right = false;
    json = json.substr(0, draw(json.size()));
    if (json.empty()) json = "[";
  }
  expect(strata_store_open(json.c_str(), nullptr, &stores_[slot]), is_right, "open");
  model.open = is_right;
  model.on_drive = drives;
  model.micro_batches = micro_batches;
}

void Sequence::add_unit(int slot) {
  StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && !model.sealed && model.units < kUnits;
  const std::string name = "unit" + std::to_string(model.units);
  auto tensor = maybe_wrong<strata_tensor>(is_right);
  tensor.name = name.c_str();
  tensor.shape = kShapes[model.units % kUnits].data();
  tensor.rank = model.units % kUnits < 2 ? 2 : 1;
  auto unit = maybe_wrong<strata_unit>(is_right);
  unit.name = name.c_str();
  unit.tensors = &tensor;
  unit.tensor_count = chance(0.97) ? 1 : 0;
  unit.frozen = model.units == kUnits - 1 && chance(0.2) ? -1 : 0;  // any number but 0 is yes
  is_right = is_right && unit.tensor_count == 1;
  if (model.open && model.units >= kUnits && !model.sealed) return;  // there are enough
  expect(strata_store_add_unit(store, &unit, nullptr), is_right, "add_unit");
  if (!is_right) return;
  ++model.units;
  model.frozen = unit.frozen != 0;
}

void Sequence::declare(int slot) {
  StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  if (model.units < kUnits) return;  // the orders are of all units
  const bool is_wrong = chance(0.2);
  const std::vector<Use>& order = is_wrong ? kWrongOrders[draw(5)] : kOrders[draw(3)];
  is_right = is_right && !is_wrong && !model.planned;
  std::vector<strata_use> uses = uses_of(order);
  for (strata_use& use : uses) use.seconds = chance(0.5) ? 0 : 1e-3;
  const bool may_leave_out = chance(0.5);
  expect(strata_store_order(store, uses.data(), uses.size(), may_leave_out ? 1 : 0), is_right,
         "order");
  if (!is_right) return;
  model.sealed = true;
  model.order = order;
  model.may_leave_out = may_leave_out;
  ++orders_;
}

void Sequence::plan(int slot) {
  StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && model.units > 0;
  expect(strata_store_plan(store, nullptr), is_right, "plan");
  if (is_right) model.plan();
}

void Sequence::load(int slot) {
  StoreModel& model = models_[slot];
  if (model.open && model.units > 0 && model.units < kUnits) return;  // the budget is for all units
  if (chance(0.3)) return plan(slot);
  if (model.loaded && chance(0.9)) return;
  if (saved_ && chance(0.5)) return load_saved(slot);
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  auto load = maybe_wrong<strata_load>(is_right);
  load.fill = chance(0.97) ? fill : nullptr;
  is_right = is_right && load.fill != nullptr && model.units > 0;
  const bool stops = load.fill != nullptr && chance(0.03);
  if (stops) load.fill = stop_fill;
  const strata_status status = strata_store_load(store, &load);
  stops ? expect_stopped(status, is_right, "load") : expect(status, is_right, "load");
  if (!is_right) return;
  model.load(0);
  if (stops) model.unload();
}

// Of this store or the other one: where state lies is not in a checkpoint.
void Sequence::load_saved(int slot) {
  StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  auto load = maybe_wrong<strata_load>(is_right);
  const bool is_there = chance(0.9);
  const std::string path = is_there ? saved_->path : saved_->path + "0";
  load.checkpoint = path.c_str();
  load.fill = chance(0.5) ? fill : nullptr;
  if (is_right && model.units > 0) model.sealed = true;
  const bool can_fill = load.fill != nullptr || !model.frozen;
  const bool comes_far = is_right && model.units > 0 && can_fill;
  is_right = comes_far && is_there && model.frozen == saved_->frozen;
  const strata_status status = strata_store_load(store, &load);
  expect(status, is_right, "load of a checkpoint");
  if (comes_far) model.plan();
  if (!is_right || status != STRATA_OK) return;
  model.load(saved_->steps);
  ++saves_;
  if (shared_ != nullptr) return;
  ASSERT_EQ(weights_of(store), saved_->weights);
}

void Sequence::save(int slot) {
  const StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && model.is_ready();
  const char* path = nullptr;
  const std::string to = directory_ + "/saved" + std::to_string(slot);
  const strata_status status = strata_store_save(store, to.c_str(), &path);
  expect(status, is_right, "save");
  if (shared_ != nullptr || !is_right || status != STRATA_OK) return;
  saved_ = {.path = path, .steps = model.steps, .frozen = model.frozen, .weights = {}};
  saved_->weights = weights_of(store);
}

void Sequence::unload(int slot) {
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && models_[slot].sealed;
  expect(strata_store_unload(store), is_right, "unload");
  if (is_right) models_[slot].unload();
}

void Sequence::acquire(int slot) {
  StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  auto unit = static_cast<int32_t>(draw(kUnits + 2));
  int32_t pass = static_cast<int32_t>(draw(3)) - 1;
  if (chance(0.9) && !model.is_done()) {
    const bool is_later = model.may_leave_out && chance(0.1);
    const Use& use = is_later ? model.order[draw(model.order.size())] : model.next_use();
    unit = use.units.front();
    pass = use.pass;
  }
  const size_t found = model.found(unit, pass);
  is_right = is_right && model.loaded && found < model.passes.size();
  auto view = maybe_wrong<strata_view>(is_right);
  const strata_status status = chance(0.5)
                                   ? strata_store_acquire(store, unit, pass, &view)
                                   : strata_store_acquire_on(store, unit, pass, nullptr, &view);
  expect(status, is_right, "acquire");
  if (!is_right || status != STRATA_OK) return;
  model.acquire(found);
  look_at_uses(slot, store, view);
}

// What a caller does with an acquired use, whose first unit has `view`.
void Sequence::look_at_uses(int slot, strata_store* store, strata_view view) {
  StoreModel& model = models_[slot];
  const std::vector<int32_t> units = model.next_use().units;
  int32_t unit = units.front();
  if (chance(0.3)) {
    unit = static_cast<int32_t>(draw(kUnits + 1));
    const bool is_of_use = std::ranges::count(units, unit) > 0;
    const strata_status status = strata_store_used(store, unit, &view);
    expect(status, is_of_use, "used");
    if (!is_of_use) unit = units.front();
    if (shared_ != nullptr && status != STRATA_OK) return;
  }
  const bool backward = model.next_use().pass == STRATA_BACKWARD && !model.is_frozen(unit);
  ASSERT_TRUE(shared_ != nullptr || (view.gradient != nullptr) == backward);
  const float value = chance(0.01) ? INFINITY : 0.25f;
  const int64_t at = chance(0.9) ? static_cast<int64_t>(draw(static_cast<size_t>(view.count)))
                                 : view.count + static_cast<int64_t>(draw(9)) - 3;
  const bool adds = backward && at < view.count;
  expect(strata_store_add_gradient(store, 0, at, 1, STRATA_F32, &value, 1), adds, "add_gradient");
  if (adds && std::isinf(value)) model.has_infinity = true;
  if (shared_ != nullptr) return;  // another thread may have released it
  std::vector<float> copy(static_cast<size_t>(view.count));
  const int64_t bytes = view.count * int64_t{sizeof(float)};
  expect(strata_store_copy(store, copy.data(), view.weights, bytes), true, "copy");
  expect(strata_store_copy(store, copy.data(), copy.data(), bytes), false, "copy");
}

void Sequence::release(int slot) {
  StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && model.acquired;
  expect(strata_store_release(store), is_right, "release");
  if (is_right) model.release();
}

void Sequence::begin(int slot, Phase phase) {
  StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && model.is_ready();
  phase == Phase::kStep ? expect(strata_store_begin(store), is_right, "begin")
                        : expect(strata_store_begin_forward(store), is_right, "begin_forward");
  if (is_right) model.begin(phase);
}

void Sequence::end_micro_batch(int slot) {
  StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && model.can_end_micro_batch();
  expect(strata_store_end_micro_batch(store), is_right, "end_micro_batch");
  if (is_right) model.end_micro_batch();
}

void Sequence::end_step(int slot) {
  StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  auto update = maybe_wrong<strata_update>(is_right);
  update.lr = chance(0.95) ? 1e-3 : NAN;
  is_right = is_right && !std::isnan(update.lr) && model.can_end(Phase::kStep);
  auto result = sized<strata_step_result>();
  expect(strata_store_step(store, &update, &result), is_right, "step");
  if (!is_right) return;
  if (shared_ == nullptr) {  // others may step a shared store meanwhile
    model.leave_out_until(model.passes.size());
    ASSERT_EQ(result.step, ++model.steps);
    ASSERT_EQ(result.left_out, model.left_out);
    ASSERT_EQ(result.applied, model.has_infinity ? 0 : 1);
    ++steps_;
  }
  model.has_seconds = true;
  model.end();
}

void Sequence::end_forward(int slot) {
  StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && model.can_end(Phase::kForward);
  expect(strata_store_end_forward(store), is_right, "end_forward");
  if (is_right) model.end();
}

void Sequence::discard(int slot) {
  StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  is_right = is_right && model.loaded && model.phase != Phase::kBetween;
  expect(strata_store_discard(store), is_right, "discard");
  if (is_right) model.end();
}

// Begins or ends a step or a forward, as a rule what the store's phase wants.
void Sequence::end(int slot) {
  if (chance(0.1)) return discard(slot);
  const Phase phase = models_[slot].phase;
  const bool is_forward = chance(phase == Phase::kForward ? 0.95 : 0.05);
  if (phase != Phase::kBetween) return is_forward ? end_forward(slot) : end_step(slot);
  begin(slot, chance(0.2) ? Phase::kForward : Phase::kStep);
}

void Sequence::read(int slot) {
  const StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  const bool between = is_right && model.is_ready();
  std::vector<float> values(12 * 9);
  const auto read_tensor = [&](int32_t unit, int64_t count) {
    return strata_store_read_tensor(store, unit, 0, STRATA_EXP_AVG, values.data(), count);
  };
  switch (draw(5)) {
    case 0:
      return expect(read_tensor(0, std::ssize(values)), between, "read_tensor");
    case 4:
      return write(slot);
    case 1:
      return expect(read_tensor(0, 5), false, "read_tensor");
    case 2:
      return expect(read_tensor(kUnits - 1, kShapes[kUnits - 1][0]), between && !model.frozen,
                    "read_tensor");
    default:
      return expect_stopped(strata_store_read(store, STRATA_WEIGHTS, stop_visit, nullptr), between,
                            "read");
  }
}

// A part of a plane, as a rule within the tensor.
void Sequence::write(int slot) {
  const StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  std::vector<float> values(1 + draw(12 * 9));
  for (float& value : values) value = static_cast<float>(draw(1000)) / 1000;
  const auto first = static_cast<int64_t>(draw(12 * 9));
  const auto plane = static_cast<int32_t>(draw(chance(0.9) ? 3 : 4));
  is_right = is_right && model.is_ready() && plane <= STRATA_EXP_AVG_SQ &&
             first + std::ssize(values) <= 12 * 9;
  const strata_status status =
      strata_store_write_tensor(store, 0, 0, plane, first, std::ssize(values), values.data());
  expect(status, is_right, "write_tensor");
  if (shared_ != nullptr || !is_right || status != STRATA_OK) return;
  std::vector<float> read(12 * 9);
  ASSERT_EQ(strata_store_read_tensor(store, 0, 0, plane, read.data(), std::ssize(read)), STRATA_OK)
      << text();
  ASSERT_TRUE(std::equal(values.begin(), values.end(), read.begin() + first));
}

void Sequence::other(int slot) {
  const StoreModel& model = models_[slot];
  bool is_right = false;
  strata_store* store = handle(slot, is_right);
  auto statistics = sized<strata_statistics>();
  auto info = sized<strata_tensor_info>();
  auto ranks = sized<strata_ranks>();
  const bool is_more = chance(0.3);
  std::vector<double> seconds(model.order.size() + 1);
  switch (draw(5)) {
    case 0:
      return expect(strata_store_statistics(store, &statistics), is_right && model.is_ready(),
                    "statistics");
    case 1:
      return expect(strata_store_tensor(store, is_more ? model.units : 0, 0, &info),
                    is_right && model.sealed && !is_more, "tensor");
    case 2:
      return expect(
          strata_store_use_seconds(store, seconds.data(), model.order.size() + (is_more ? 1 : 0)),
          is_right && model.loaded && model.has_seconds && !is_more, "use_seconds");
    case 3:
      return expect(strata_store_join(store, &ranks), false, "join");
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
  const StoreModel& model = models_[slot];
  // As a rule what brings the store on, sometimes anything.
  if (!model.open && chance(0.8)) return open(slot);
  if (model.open && !model.sealed && model.units < kUnits && chance(0.8)) return add_unit(slot);
  if (model.open && !model.planned && chance(0.2)) return declare(slot);
  if (model.open && !model.loaded && chance(0.6)) return load(slot);
  if (model.acquired && chance(0.9)) return release(slot);
  if (model.phase != Phase::kBetween && chance(0.8)) {
    if (chance(model.may_leave_out ? 0.1 : 0.02)) return end_micro_batch(slot);
    return model.is_done() ? end(slot) : acquire(slot);
  }
  using Call = void (Sequence::*)(int);
  constexpr Call kSeldom[] = {&Sequence::open,    &Sequence::add_unit, &Sequence::load,
                              &Sequence::declare, &Sequence::unload,   &Sequence::end_micro_batch};
  constexpr Call kOften[] = {&Sequence::acquire, &Sequence::release, &Sequence::read,
                             &Sequence::other,   &Sequence::end,     &Sequence::end};
  if (chance(0.02)) return save(slot);
  chance(0.15) ? (this->*kSeldom[draw(6)])(slot) : (this->*kOften[draw(6)])(slot);
}

}  // namespace strata::test
