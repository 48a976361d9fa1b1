// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "bindings/c/strata.h"

// What tests of the C API share: a small model in a store, and its steps.
namespace strata::test {

namespace fs = std::filesystem;

inline constexpr int kUnits = 3;
inline constexpr std::array<int64_t, kUnits> kShapes[] = {{12, 9, 0}, {96, 80, 0}, {7, 0, 0}};

// Units that are in memory together for a pass.
struct Use {
  std::vector<int32_t> units;
  int32_t pass;
};

template <typename T>
T sized() {
  T value = {};
  value.struct_size = sizeof(T);
  return value;
}

inline std::vector<strata_use> uses_of(const std::vector<Use>& order) {
  std::vector<strata_use> uses;
  for (const Use& use : order) {
    uses.push_back(sized<strata_use>());
    uses.back().units = use.units.data();
    uses.back().unit_count = use.units.size();
    uses.back().pass = use.pass;
  }
  return uses;
}

inline int fill(void* context, int32_t plane, int32_t unit, int32_t tensor, int64_t first,
                int64_t count, float* values) {
  for (int64_t i = 0; i < count; ++i) {
    values[i] = 0.1f * std::sin(0.7f * static_cast<float>(first + i) + static_cast<float>(unit));
  }
  return plane == STRATA_WEIGHTS && tensor == 0 ? 0 : 1;
}

// Options of a store that has less memory than its state takes.
inline std::string on_drive(const std::string& directory) {
  return ", \"host_memory\": \"240KiB\", \"nvme\": \"" + directory + "/nvme\"";
}

inline std::string text() {
  return strata_error_text();
}

// The call fails with this status, and the text has these words.
inline void expect_refused(strata_status status, strata_status expected, const char* words) {
  EXPECT_EQ(status, expected) << text();
  EXPECT_NE(text().find(words), std::string::npos) << text();
}

class CApi : public testing::Test {
 protected:
  CApi() : directory_(std::string(STRATA_BINARY_DIR) + "/c-api-" + std::to_string(getpid())) {
    fs::remove_all(directory_);
    fs::create_directories(directory_ + "/nvme");
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
  }
  ~CApi() override {
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    fs::remove_all(directory_);
  }

  static std::string options(const std::string& more = "") {
    return "{\"recipe\": \"fp32\", \"threads\": 1, \"clip\": 0" + more + "}";
  }
  std::string on_drive() const { return test::on_drive(directory_); }
  static void add_units(strata_store* store) {
    constexpr const char* kNames[] = {"in", "mid", "out"};
    for (int unit = 0; unit < kUnits; ++unit) {
      auto tensor = sized<strata_tensor>();
      tensor.name = kNames[unit];
      tensor.shape = kShapes[unit].data();
      tensor.rank = unit < 2 ? 2 : 1;
      auto given = sized<strata_unit>();
      given.name = kNames[unit];
      given.tensors = &tensor;
      given.tensor_count = 1;
      int32_t index = -1;
      ASSERT_EQ(strata_store_add_unit(store, &given, &index), STRATA_OK) << text();
      ASSERT_EQ(index, unit);
    }
  }
  static strata_store* open(const std::string& json) {
    strata_store* store = nullptr;
    EXPECT_EQ(strata_store_open(json.c_str(), nullptr, &store), STRATA_OK) << text();
    add_units(store);
    return store;
  }
  static void load(strata_store* store) {
    auto load = sized<strata_load>();
    load.fill = fill;
    EXPECT_EQ(strata_store_load(store, &load), STRATA_OK) << text();
  }
  static strata_store* loaded(const std::string& json) {
    strata_store* store = open(json);
    load(store);
    return store;
  }
  static strata_view acquire(strata_store* store, int unit, int pass) {
    auto view = sized<strata_view>();
    EXPECT_EQ(strata_store_acquire(store, unit, pass, &view), STRATA_OK) << text();
    return view;
  }
  // The gradient of a unit is its weights times `factor`.
  static void passes(strata_store* store, float factor = 1) {
    for (int unit = 0; unit < kUnits; ++unit) {
      EXPECT_EQ(acquire(store, unit, STRATA_FORWARD).gradient, nullptr);
      EXPECT_EQ(strata_store_release(store), STRATA_OK);
    }
    for (int unit = kUnits; unit-- > 0;) {
      const strata_view view = acquire(store, unit, STRATA_BACKWARD);
      for (int64_t i = 0; i < view.count; ++i) {
        view.gradient[i] += factor * static_cast<const float*>(view.weights)[i];
      }
      EXPECT_EQ(strata_store_release(store), STRATA_OK);
    }
  }
  static strata_step_result step(strata_store* store, double lr = 0.01, float factor = 1) {
    auto update = sized<strata_update>();
    update.lr = lr;
    auto result = sized<strata_step_result>();
    EXPECT_EQ(strata_store_begin(store), STRATA_OK) << text();
    passes(store, factor);
    EXPECT_EQ(strata_store_step(store, &update, &result), STRATA_OK) << text();
    return result;
  }
  static std::vector<float> plane(strata_store* store, int unit, int plane) {
    auto info = sized<strata_tensor_info>();
    EXPECT_EQ(strata_store_tensor(store, unit, 0, &info), STRATA_OK) << text();
    std::vector<float> values(static_cast<size_t>(info.count));
    EXPECT_EQ(strata_store_read_tensor(store, unit, 0, plane, values.data(), info.count), STRATA_OK)
        << text();
    return values;
  }
  static std::vector<std::vector<float>> state(strata_store* store) {
    std::vector<std::vector<float>> all;
    for (int unit = 0; unit < kUnits; ++unit) {
      for (int p = STRATA_WEIGHTS; p <= STRATA_EXP_AVG_SQ; ++p)
        all.push_back(plane(store, unit, p));
    }
    return all;
  }

  const std::string directory_;
};

}  // namespace strata::test
