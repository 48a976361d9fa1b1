// SPDX-License-Identifier: Apache-2.0
// Stores on a device with memory of its own: gradients that are added from host memory, copies, and
// the state of a store on the host.
#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

constexpr const char* kOnDevice = ", \"device\": \"emulated\", \"device_memory\": \"1MiB\"";

class CDevice : public CApi {
 protected:
  static strata_store* loaded(const std::string& more) {
    strata_store* store = open(options(more));
    auto load = sized<strata_load>();
    load.fill = fill;
    EXPECT_EQ(strata_store_load(store, &load), STRATA_OK) << text();
    return store;
  }

  // A gradient that depends on the weights, all by copies and in two halves.
  static void add_gradient(strata_store* store, int32_t unit, const strata_view& view) {
    auto info = sized<strata_tensor_info>();
    ASSERT_EQ(strata_store_tensor(store, unit, 0, &info), STRATA_OK) << text();
    std::vector<float> values(static_cast<size_t>(info.count));
    const auto* weights = static_cast<const float*>(view.weights) + info.offset;
    ASSERT_EQ(strata_store_copy(store, values.data(), weights, info.count * 4), STRATA_OK)
        << text();
    for (float& value : values) value = 2 * value + 1;
    const int64_t half = info.count / 2;
    for (const auto& [first, count] :
         {std::pair<int64_t, int64_t>{0, half}, {half, info.count - half}}) {
      ASSERT_EQ(
          strata_store_add_gradient(store, 0, first, count, STRATA_F32, values.data() + first, 0.5),
          STRATA_OK)
          << text();
    }
  }

  static void step(strata_store* store) {
    ASSERT_EQ(strata_store_begin(store), STRATA_OK) << text();
    auto view = sized<strata_view>();
    for (int32_t unit = 0; unit < kUnits; ++unit) {
      ASSERT_EQ(strata_store_acquire(store, unit, STRATA_FORWARD, &view), STRATA_OK) << text();
      ASSERT_EQ(strata_store_release(store), STRATA_OK) << text();
    }
    for (int32_t unit = kUnits; unit-- > 0;) {
      ASSERT_EQ(strata_store_acquire(store, unit, STRATA_BACKWARD, &view), STRATA_OK) << text();
      add_gradient(store, unit, view);
      ASSERT_EQ(strata_store_release(store), STRATA_OK) << text();
    }
    auto update = sized<strata_update>();
    update.lr = 0.01;
    auto result = sized<strata_step_result>();
    ASSERT_EQ(strata_store_step(store, &update, &result), STRATA_OK) << text();
    ASSERT_EQ(result.applied, 1);
  }

  static std::vector<float> state(strata_store* store) {
    std::vector<float> all;
    for (int32_t unit = 0; unit < kUnits; ++unit) {
      auto info = sized<strata_tensor_info>();
      EXPECT_EQ(strata_store_tensor(store, unit, 0, &info), STRATA_OK);
      std::vector<float> values(static_cast<size_t>(info.count));
      for (const int32_t plane : {STRATA_WEIGHTS, STRATA_EXP_AVG, STRATA_EXP_AVG_SQ}) {
        EXPECT_EQ(strata_store_read_tensor(store, unit, 0, plane, values.data(), info.count),
                  STRATA_OK)
            << text();
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  }
};

TEST_F(CDevice, HasTheStateOfAStoreOnTheHost) {
  std::vector<std::vector<float>> states;
  for (const std::string& more : {std::string(), std::string(kOnDevice), kOnDevice + on_drive()}) {
    strata_store* store = loaded(more);
    for (int i = 0; i < 3; ++i) step(store);
    states.push_back(state(store));
    auto counts = sized<strata_statistics>();
    EXPECT_EQ(strata_store_statistics(store, &counts), STRATA_OK) << text();
    EXPECT_EQ(counts.device_bytes > 0, !more.empty());
    EXPECT_LE(counts.device_bytes, 1 << 20);
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
  }
  EXPECT_EQ(states[1], states[0]);
  EXPECT_EQ(states[2], states[0]);
}

TEST_F(CDevice, ViewsSayWhereTheyLie) {
  for (const bool on_device : {false, true}) {
    strata_store* store = loaded(on_device ? kOnDevice : "");
    ASSERT_EQ(strata_store_begin(store), STRATA_OK) << text();
    auto view = sized<strata_view>();
    ASSERT_EQ(strata_store_acquire(store, 0, STRATA_FORWARD, &view), STRATA_OK) << text();
    EXPECT_EQ(view.on_device, on_device ? 1 : 0);
    EXPECT_EQ(strata_store_close(store), STRATA_OK);  // within a use
  }
}

TEST_F(CDevice, CopiesOfOtherMemoryAreRefused) {
  strata_store* store = loaded(kOnDevice);
  float values[2] = {1, 2};
  EXPECT_EQ(strata_store_copy(store, values, values + 1, 4), STRATA_ERROR_USAGE);
  ASSERT_EQ(strata_store_begin(store), STRATA_OK) << text();
  auto view = sized<strata_view>();
  ASSERT_EQ(strata_store_acquire(store, 0, STRATA_FORWARD, &view), STRATA_OK) << text();
  EXPECT_EQ(strata_store_copy(store, values, values + 1, 4), STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_store_copy(store, values, view.weights, -4), STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_store_copy(store, nullptr, view.weights, 4), STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_store_copy(store, values, view.weights, int64_t{1} << 40), STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_store_copy(store, nullptr, nullptr, 0), STRATA_OK);
  EXPECT_EQ(strata_store_copy(store, values, view.weights, 8), STRATA_OK) << text();
  float expected[2];
  fill(nullptr, STRATA_WEIGHTS, 0, 0, 0, 2, expected);
  EXPECT_EQ(values[0], expected[0]);
  EXPECT_EQ(values[1], expected[1]);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CDevice, AStoreOnTheHostTakesAnyStream) {
  strata_store* store = loaded("");
  ASSERT_EQ(strata_store_begin(store), STRATA_OK) << text();
  auto view = sized<strata_view>();
  ASSERT_EQ(strata_store_acquire_on(store, 0, STRATA_FORWARD, &view, &view), STRATA_OK) << text();
  float value = 0;
  EXPECT_EQ(strata_store_copy(store, &value, view.weights, 4), STRATA_OK) << text();
  EXPECT_EQ(value, *static_cast<const float*>(view.weights));
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

}  // namespace
}  // namespace strata::test
