// SPDX-License-Identifier: Apache-2.0
// Planes that a caller replaces in parts while a store is open: in memory, on drives, on a device,
// in both recipes and over ranks they are read with the same bits, later steps see them, and what
// was read and is written again changes nothing. Wrong calls change nothing either.
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

constexpr int kPlanes = 3;

// Units of several checksum blocks and pieces, and tensors that begin and end within one.
struct TestTensor {
  const char* name;
  std::vector<int64_t> shape;
  int64_t count;
};
const std::vector<TestTensor> kModel[] = {
    {{"a.weight", {301, 300}, 301 * 300}, {"a.bias", {33}, 33}},
    {{"b.weight", {130, 65}, 130 * 65}},
    {{"c.bias", {129}, 129}, {"c.weight", {300, 301}, 300 * 301}},
};
constexpr int kModelUnits = 3;

int fill_model(void*, int32_t, int32_t unit, int32_t tensor, int64_t first, int64_t count,
               float* values) {
  for (int64_t i = 0; i < count; ++i) {
    values[i] = 0.1f * std::sin(0.7f * static_cast<float>(first + i) +
                                static_cast<float>(unit + 5 * tensor));
  }
  return 0;
}

// Of all planes, by unit and tensor.
using State = std::vector<std::vector<float>>;

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class CWrite : public CApi {
 protected:
  // In memory, partly and wholly on a drive, and on a device.
  std::vector<std::string> places() const {
    const std::string drive = ", \"nvme\": \"" + directory_ + "/nvme\"";
    std::vector<std::string> all;
    for (const std::string recipe : {"fp32", "bf16"}) {
      const std::string given =
          "{\"threads\": 1, \"clip\": 0, \"weight_decay\": 0.1, \"recipe\": \"" + recipe + "\"";
      const std::string device = ", \"device\": \"emulated\", \"device_memory\": ";
      const std::string least = recipe == "fp32" ? "2600KiB" : "2400KiB";
      for (const std::string& place :
           {std::string(), drive + ", \"host_memory\": \"2900KiB\"",
            drive + ", \"host_memory\": \"" + least + "\"", device + "\"16MiB\"",
            drive + ", \"host_memory\": \"2600KiB\"" + device + "\"2MiB\""}) {
        all.push_back(given + place + "}");
      }
    }
    return all;
  }
  static strata_store* opened(const std::string& json) {
    strata_store* store = nullptr;
    EXPECT_EQ(strata_store_open(json.c_str(), nullptr, &store), STRATA_OK) << text();
    for (int u = 0; u < kModelUnits; ++u) {
      std::vector<strata_tensor> tensors;
      for (const TestTensor& given : kModel[u]) {
        tensors.push_back(sized<strata_tensor>());
        tensors.back().name = given.name;
        tensors.back().shape = given.shape.data();
        tensors.back().rank = static_cast<int32_t>(given.shape.size());
      }
      auto unit = sized<strata_unit>();
      unit.name = kModel[u].front().name;
      unit.tensors = tensors.data();
      unit.tensor_count = tensors.size();
      EXPECT_EQ(strata_store_add_unit(store, &unit, nullptr), STRATA_OK) << text();
    }
    return store;
  }
  static strata_store* loaded_from(const std::string& json) {
    strata_store* store = opened(json);
    auto load = sized<strata_load>();
    load.fill = fill_model;
    EXPECT_EQ(strata_store_load(store, &load), STRATA_OK) << text() << json;
    return store;
  }
  // A gradient that depends on the elements and the step alone.
  static void step_once(strata_store* store, int salt, float share = 1) {
    auto view = sized<strata_view>();
    ASSERT_EQ(strata_store_begin(store), STRATA_OK) << text();
    for (int u = 0; u < kModelUnits; ++u) {
      ASSERT_EQ(strata_store_acquire(store, u, STRATA_FORWARD, &view), STRATA_OK) << text();
      ASSERT_EQ(strata_store_release(store), STRATA_OK) << text();
    }
    for (int u = kModelUnits; u-- > 0;) {
      ASSERT_EQ(strata_store_acquire(store, u, STRATA_BACKWARD, &view), STRATA_OK) << text();
      for (int t = 0; t < static_cast<int>(kModel[u].size()); ++t) {
        std::vector<float> values(static_cast<size_t>(kModel[u][t].count));
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = std::cos(0.3f * static_cast<float>(i) + static_cast<float>(salt + u));
        }
        ASSERT_EQ(strata_store_add_gradient(store, t, 0, std::ssize(values), STRATA_F32,
                                            values.data(), share),
                  STRATA_OK)
            << text();
      }
      ASSERT_EQ(strata_store_release(store), STRATA_OK) << text();
    }
    auto update = sized<strata_update>();
    update.lr = 0.01;
    ASSERT_EQ(strata_store_step(store, &update, nullptr), STRATA_OK) << text();
  }
  static strata_status write(strata_store* store, int unit, int tensor, int plane, int64_t first,
                             const std::vector<float>& values) {
    return strata_store_write_tensor(store, unit, tensor, plane, first, std::ssize(values),
                                     values.data());
  }
  static void for_tensors(const std::function<void(int, int, int)>& call) {
    for (int u = 0; u < kModelUnits; ++u) {
      for (int t = 0; t < static_cast<int>(kModel[u].size()); ++t) {
        for (int p = 0; p < kPlanes; ++p) call(u, t, p);
      }
    }
  }
  static State all_of(strata_store* store) {
    State state;
    for_tensors([&](int u, int t, int) {
      state.emplace_back(static_cast<size_t>(kModel[u][static_cast<size_t>(t)].count));
    });
    const auto keep = [](void* context, int32_t plane, int32_t unit, int32_t tensor, int64_t first,
                         int64_t count, const float* values) {
      int at = plane + kPlanes * tensor;
      for (int u = 0; u < unit; ++u) at += kPlanes * static_cast<int>(kModel[u].size());
      std::copy_n(values, count,
                  (*static_cast<State*>(context))[static_cast<size_t>(at)].begin() + first);
      return 0;
    };
    for (int p = 0; p < kPlanes; ++p) {
      EXPECT_EQ(strata_store_read(store, p, keep, &state), STRATA_OK) << text();
    }
    return state;
  }
  static void expect_same(const State& state, const State& expected, const std::string& where) {
    size_t i = 0;
    for_tensors([&](int u, int t, int p) {
      EXPECT_TRUE(same_bits(state[i], expected[i]))
          << "plane " << p << " of " << kModel[u][static_cast<size_t>(t)].name << where;
      ++i;
    });
  }
};

TEST_F(CWrite, ValuesAreReadWithTheirBitsAndNothingElseChanges) {
  std::mt19937 random(7);
  const auto draw = [&](int64_t most) {
    return std::uniform_int_distribution<int64_t>(0, most)(random);
  };
  for (const std::string& place : places()) {
    strata_store* store = loaded_from(place);
    for (int round = 0; round < 3; ++round) {
      step_once(store, 2 + round);
      State expected = all_of(store);
      size_t i = 0;
      for_tensors([&](int u, int t, int p) {
        std::vector<float>& whole = expected[i++];
        const int64_t first = round == 0 ? 0 : draw(std::ssize(whole) - 1);
        const int64_t count = round == 0 ? std::ssize(whole) : draw(std::ssize(whole) - first);
        std::vector<float> values(static_cast<size_t>(count));
        for (float& value : values) {
          value = std::ldexp(static_cast<float>(draw(1 << 24)), -24 - static_cast<int>(draw(20)));
        }
        ASSERT_EQ(write(store, u, t, p, first, values), STRATA_OK) << text() << place;
        std::copy(values.begin(), values.end(), whole.begin() + first);
      });
      expect_same(all_of(store), expected, place);
    }
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
  }
}

// Passes see the written weights, and updates the written moments.
TEST_F(CWrite, AStoreGoesOnAsOneThatWasLoadedWithTheValues) {
  for (const std::string& place : places()) {
    strata_store* other = loaded_from(place);
    for (int i = 0; i < 3; ++i) step_once(other, i);
    const State given = all_of(other);
    for (int i = 5; i < 7; ++i) step_once(other, i);
    const State expected = all_of(other);
    EXPECT_EQ(strata_store_close(other), STRATA_OK);

    strata_store* store = loaded_from(place);
    for (int i = 10; i < 13; ++i) step_once(store, i);  // as many updates, and one is pending
    size_t i = 0;
    for_tensors([&](int u, int t, int p) {
      ASSERT_EQ(write(store, u, t, p, 0, given[i++]), STRATA_OK) << text();
    });
    for (int k = 5; k < 7; ++k) step_once(store, k);
    expect_same(all_of(store), expected, place);
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
  }
}

TEST_F(CWrite, WhatWasReadAndIsWrittenAgainChangesNoBit) {
  for (const std::string& place : places()) {
    State states[2];
    for (const bool writes : {false, true}) {
      strata_store* store = loaded_from(place);
      for (int i = 0; i < 4; ++i) {
        step_once(store, i);
        if (!writes) continue;
        const State state = all_of(store);
        size_t at = 0;
        for_tensors([&](int u, int t, int p) {
          ASSERT_EQ(write(store, u, t, p, 0, state[at++]), STRATA_OK) << text();
        });
      }
      states[writes ? 1 : 0] = all_of(store);
      EXPECT_EQ(strata_store_close(store), STRATA_OK);
    }
    expect_same(states[1], states[0], place);
  }
}

TEST_F(CWrite, AForwardReadsTheWrittenWeights) {
  for (const std::string& place : places()) {
    strata_store* store = loaded_from(place);
    const std::vector<float> values = {1.5f, -2.0f, 0.25f};  // the same in bf16
    ASSERT_EQ(write(store, 2, 1, STRATA_WEIGHTS, 4321, values), STRATA_OK) << text();
    auto info = sized<strata_tensor_info>();
    ASSERT_EQ(strata_store_tensor(store, 2, 1, &info), STRATA_OK) << text();
    ASSERT_EQ(strata_store_begin_forward(store), STRATA_OK) << text();
    auto view = sized<strata_view>();
    for (int u = 0; u < kModelUnits; ++u) {
      ASSERT_EQ(strata_store_acquire(store, u, STRATA_FORWARD, &view), STRATA_OK) << text();
      if (u == kModelUnits - 1) break;
      ASSERT_EQ(strata_store_release(store), STRATA_OK) << text();
    }
    const int64_t width = view.dtype == STRATA_BF16 ? 2 : 4;
    unsigned char seen[3 * 4];
    ASSERT_EQ(strata_store_copy(
                  store, seen,
                  static_cast<const char*>(view.weights) + (info.offset + 4321) * width, 3 * width),
              STRATA_OK)
        << text();
    const uint16_t halves[] = {0x3fc0, 0xc000, 0x3e80};
    const void* expected = width == 2 ? static_cast<const void*>(halves) : values.data();
    EXPECT_EQ(std::memcmp(seen, expected, static_cast<size_t>(3 * width)), 0) << place;
    EXPECT_EQ(strata_store_close(store), STRATA_OK);
  }
}

TEST_F(CWrite, MistakesChangeNothing) {
  strata_store* store = open(options(", \"freeze\": [\"out\"]"));
  const std::vector<float> values(7, 1);
  const auto refused = [&](strata_status status, const char* words) {
    EXPECT_EQ(status, STRATA_ERROR_USAGE);
    EXPECT_NE(text().find(words), std::string::npos) << text();
  };
  refused(write(store, 0, 0, STRATA_WEIGHTS, 0, values), "load it");
  load(store);
  const std::vector<float> before = plane(store, 0, STRATA_WEIGHTS);
  refused(write(store, 0, 0, 3, 0, values), "plane 3");
  refused(write(store, 0, 0, STRATA_WEIGHTS, 12 * 9 - 6, values), "7 elements from element 102");
  refused(write(store, 0, 0, STRATA_WEIGHTS, -1, values), "range");
  refused(write(store, 0, 0, STRATA_WEIGHTS, INT64_MAX, values), "range");
  refused(write(store, 0, 1, STRATA_WEIGHTS, 0, values), "tensor 1 of unit 0");
  refused(write(store, 2, 0, STRATA_WEIGHTS, 0, values), "frozen");
  refused(strata_store_write_tensor(store, 0, 0, STRATA_WEIGHTS, 0, -1, values.data()), "-1");
  refused(strata_store_write_tensor(store, 0, 0, STRATA_WEIGHTS, 0, 1, nullptr), "values");
  EXPECT_EQ(strata_store_write_tensor(store, 0, 0, STRATA_WEIGHTS, 0, 0, nullptr), STRATA_OK);
  ASSERT_EQ(strata_store_begin(store), STRATA_OK) << text();
  refused(write(store, 0, 0, STRATA_WEIGHTS, 0, values), "end it first");
  acquire(store, 0, STRATA_FORWARD);
  refused(write(store, 0, 0, STRATA_WEIGHTS, 0, values), "end it first");
  EXPECT_EQ(strata_store_discard(store), STRATA_OK) << text();
  EXPECT_EQ(plane(store, 0, STRATA_WEIGHTS), before);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CWrite, ACallbackCannotWriteToItsOwnStore) {
  strata_store* store = loaded(options());
  struct Context {
    strata_store* store;
    strata_status status;
  } context = {store, STRATA_OK};
  const auto visit = [](void* at, int32_t, int32_t, int32_t, int64_t, int64_t, const float* one) {
    auto& to = *static_cast<Context*>(at);
    to.status = strata_store_write_tensor(to.store, 0, 0, STRATA_WEIGHTS, 0, 1, one);
    return 0;
  };
  EXPECT_EQ(strata_store_read(store, STRATA_EXP_AVG, visit, &context), STRATA_OK) << text();
  EXPECT_EQ(context.status, STRATA_ERROR_BUSY);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CWrite, RanksWriteTheSameOrNothing) {
  constexpr int kRanks = 2;
  const std::string whole = "{\"recipe\": \"bf16\", \"threads\": 1, \"clip\": 0}";
  strata_store* one = loaded_from(whole);
  const std::vector<float> values(70'000, 0.3f);
  step_once(one, 0);
  ASSERT_EQ(write(one, 0, 0, STRATA_WEIGHTS, 1001, values), STRATA_OK) << text();
  ASSERT_EQ(write(one, 2, 1, STRATA_EXP_AVG, 77, values), STRATA_OK) << text();
  step_once(one, 1);
  const State expected = all_of(one);
  EXPECT_EQ(strata_store_close(one), STRATA_OK);
  for (const std::string stage : {"0", "1", "3"}) {
    const std::string meeting = directory_ + "/meet" + stage;
    const std::string json =
        "{\"recipe\": \"bf16\", \"threads\": 1, \"clip\": 0, \"ranks\": 2, "
        "\"host_memory\": \"2700KiB\", \"zero_stage\": " +
        stage + ", \"nvme\": \"" + directory_ + "/nvme\"}";
    const auto run = [&](int rank) {
      strata_store* store = opened(json);
      auto ranks = sized<strata_ranks>();
      ranks.rank = rank;
      ranks.directory = meeting.c_str();
      ASSERT_EQ(strata_store_join(store, &ranks), STRATA_OK) << text();
      auto load = sized<strata_load>();
      load.fill = fill_model;
      ASSERT_EQ(strata_store_load(store, &load), STRATA_OK) << text() << json;
      step_once(store, 0, 0.5f);
      const std::vector<float> other(70'000, rank == 0 ? 0.3f : 0.4f);
      EXPECT_EQ(write(store, 0, 0, STRATA_WEIGHTS, 1001, other), STRATA_ERROR_USAGE);
      EXPECT_NE(text().find("rank 1 writes other values"), std::string::npos) << text();
      EXPECT_EQ(write(store, 0, 0, STRATA_WEIGHTS, 1001 + rank, values), STRATA_ERROR_USAGE);
      EXPECT_EQ(write(store, 0, 0, STRATA_WEIGHTS, 1001, values), STRATA_OK) << text();
      EXPECT_EQ(write(store, 2, 1, STRATA_EXP_AVG, 77, values), STRATA_OK) << text();
      step_once(store, 1, 0.5f);
      expect_same(all_of(store), expected, " stage " + stage);
      EXPECT_EQ(strata_store_close(store), STRATA_OK);
    };
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) threads.emplace_back(run, rank);
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace strata::test
