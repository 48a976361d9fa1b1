// SPDX-License-Identifier: Apache-2.0
// Stores whose units are used in an order of their own: several at once, uses that are left out,
// and forwards alone.
#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

// "in" is used by "out" again.
const std::vector<Use> kOrder = {{{0}, STRATA_FORWARD},    {{1}, STRATA_FORWARD},
                                 {{2, 0}, STRATA_FORWARD}, {{2, 0}, STRATA_BACKWARD},
                                 {{1}, STRATA_BACKWARD},   {{0}, STRATA_BACKWARD}};

class COrder : public CApi {
 protected:
  static strata_status declare(strata_store* store, int32_t may_leave_out,
                               const std::vector<Use>& order = kOrder) {
    const std::vector<strata_use> uses = uses_of(order);
    return strata_store_order(store, uses.data(), uses.size(), may_leave_out);
  }
  static strata_store* ordered(const std::string& json, int32_t may_leave_out = 0) {
    strata_store* store = open(json);
    EXPECT_EQ(declare(store, may_leave_out), STRATA_OK) << text();
    auto load = sized<strata_load>();
    load.fill = fill;
    EXPECT_EQ(strata_store_load(store, &load), STRATA_OK) << text();
    return store;
  }
  // The gradient of every unit of a use is its weights. Leaves out the use with this index.
  static strata_step_result ordered_step(strata_store* store, size_t left_out) {
    EXPECT_EQ(strata_store_begin(store), STRATA_OK) << text();
    for (size_t i = 0; i < kOrder.size(); ++i) {
      if (i == left_out) continue;
      acquire(store, kOrder[i].units.front(), kOrder[i].pass);
      for (const int32_t unit : kOrder[i].units) {
        auto view = sized<strata_view>();
        EXPECT_EQ(strata_store_used(store, unit, &view), STRATA_OK) << text();
        for (int64_t k = 0; view.gradient != nullptr && k < view.count; ++k) {
          view.gradient[k] += static_cast<const float*>(view.weights)[k];
        }
      }
      EXPECT_EQ(strata_store_release(store), STRATA_OK);
    }
    EXPECT_EQ(strata_store_end_micro_batch(store), STRATA_OK) << text();
    auto update = sized<strata_update>();
    update.lr = 0.01;
    auto result = sized<strata_step_result>();
    EXPECT_EQ(strata_store_step(store, &update, &result), STRATA_OK) << text();
    return result;
  }
};

TEST_F(COrder, AUnitThatIsUsedTwiceHasTheSumOfItsGradients) {
  strata_store* store = ordered(options());
  const std::vector<float> in = plane(store, 0, STRATA_WEIGHTS);
  const std::vector<float> mid = plane(store, 1, STRATA_WEIGHTS);
  const std::vector<float> out = plane(store, 2, STRATA_WEIGHTS);
  double squares = 0;
  for (const float g : in) squares += 4.0 * g * g;
  for (const float g : mid) squares += static_cast<double>(g) * g;
  for (const float g : out) squares += static_cast<double>(g) * g;
  EXPECT_NEAR(ordered_step(store, kOrder.size()).grad_norm, std::sqrt(squares), 1e-6);
  std::vector<double> seconds(kOrder.size());
  EXPECT_EQ(strata_store_use_seconds(store, seconds.data(), seconds.size()), STRATA_OK) << text();
  for (const double each : seconds) EXPECT_GT(each, 0);
  EXPECT_EQ(strata_store_use_seconds(store, seconds.data(), 1), STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(COrder, UsesThatAreLeftOutHaveTheSameBitsOnADrive) {
  strata_store* memory = ordered(options(), 1);
  strata_store* drive = ordered(options(on_drive()), 1);
  for (const size_t left_out : {size_t{4}, kOrder.size() - 1, size_t{1}}) {
    const strata_step_result result = ordered_step(memory, left_out);
    EXPECT_EQ(result.left_out, 1);
    EXPECT_EQ(ordered_step(drive, left_out).grad_norm, result.grad_norm);
  }
  EXPECT_EQ(state(drive), state(memory));
  EXPECT_EQ(strata_store_close(memory), STRATA_OK);
  EXPECT_EQ(strata_store_close(drive), STRATA_OK);
}

TEST_F(COrder, AMistakeDoesNotEndTheAddingOfUnits) {
  strata_store* store = nullptr;
  ASSERT_EQ(strata_store_open(options().c_str(), nullptr, &store), STRATA_OK);
  EXPECT_EQ(declare(store, 0, {{{9}, STRATA_FORWARD}}), STRATA_ERROR_CONFIG);
  add_units(store);
  EXPECT_EQ(declare(store, 0), STRATA_OK) << text();
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(COrder, ABackwardThatAForwardDoesNotHaveLeavesNothingOut) {
  strata_store* store = ordered(options(), 1);
  EXPECT_EQ(strata_store_begin_forward(store), STRATA_OK) << text();
  auto view = sized<strata_view>();
  EXPECT_EQ(strata_store_acquire(store, 0, STRATA_BACKWARD, &view), STRATA_ERROR_CONFIG);
  acquire(store, kOrder[0].units.front(), STRATA_FORWARD);
  EXPECT_EQ(strata_store_release(store), STRATA_OK);
  EXPECT_EQ(strata_store_end_forward(store), STRATA_OK) << text();
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(COrder, MistakesChangeNothing) {
  strata_store* store = open(options());
  EXPECT_EQ(declare(store, 0, {{{0}, STRATA_BACKWARD}}), STRATA_ERROR_CONFIG);
  EXPECT_NE(text().find("has no backward use"), std::string::npos) << text();
  EXPECT_EQ(declare(store, 0, {{{0}, 7}}), STRATA_ERROR_USAGE);
  EXPECT_EQ(declare(store, 0, {{{0, 9}, STRATA_FORWARD}}), STRATA_ERROR_CONFIG);
  EXPECT_EQ(strata_store_order(store, nullptr, 2, 0), STRATA_ERROR_USAGE);
  EXPECT_EQ(declare(store, 0), STRATA_OK) << text();
  auto view = sized<strata_view>();
  EXPECT_EQ(strata_store_used(store, 0, &view), STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_store_begin_forward(store), STRATA_ERROR_USAGE);
  auto load = sized<strata_load>();
  load.fill = fill;
  EXPECT_EQ(strata_store_load(store, &load), STRATA_OK) << text();
  EXPECT_EQ(declare(store, 0), STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_store_end_forward(store), STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_store_begin_forward(store), STRATA_OK) << text();
  for (size_t i = 0; i < 3; ++i) {
    acquire(store, kOrder[i].units.front(), STRATA_FORWARD);
    EXPECT_EQ(strata_store_used(store, 1, &view), i == 1 ? STRATA_OK : STRATA_ERROR_USAGE);
    EXPECT_EQ(strata_store_release(store), STRATA_OK);
  }
  EXPECT_EQ(strata_store_end_forward(store), STRATA_OK) << text();
  EXPECT_EQ(ordered_step(store, kOrder.size()).step, 1);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

}  // namespace
}  // namespace strata::test
