// SPDX-License-Identifier: Apache-2.0
// The store of the C API: AdamW's numbers, the same bits on a drive, gradients of every type, steps
// that are discarded or skipped, checkpoints, planes out and in, and what a callback may stop.
#include <bit>
#include <cstring>
#include <fstream>

#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

TEST_F(CApi, AStepIsAdamW) {
  strata_store* store = loaded(options(", \"weight_decay\": 0.1"));
  const std::vector<float> before = plane(store, 1, STRATA_WEIGHTS);
  const strata_step_result result = step(store, 0.01);
  EXPECT_EQ(result.step, 1);
  EXPECT_EQ(result.applied, 1);
  const std::vector<float> after = plane(store, 1, STRATA_WEIGHTS);
  for (size_t i = 0; i < before.size(); ++i) {
    const double g = before[i];  // the gradient; the first update moves by lr * sign(g)
    const double expected = before[i] * (1 - 0.01 * 0.1) - 0.01 * g / (std::abs(g) + 1e-8);
    ASSERT_NEAR(after[i], expected, 1e-6) << i;  // of f32 near 0.1
  }
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CApi, StateOnADriveHasTheBitsOfStateInMemory) {
  strata_store* memory = loaded(options(", \"accumulate\": 1"));
  strata_store* drive = loaded(options(on_drive()));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(drive).grad_norm, step(memory).grad_norm);
  EXPECT_EQ(state(drive), state(memory));
  auto statistics = sized<strata_statistics>();
  EXPECT_EQ(strata_store_statistics(drive, &statistics), STRATA_OK);
  EXPECT_GT(statistics.nvme_bytes_written, 0);
  EXPECT_LE(statistics.host_bytes, 240 << 10);
  EXPECT_EQ(statistics.updates, 3);
  EXPECT_EQ(strata_store_close(memory), STRATA_OK);
  EXPECT_EQ(strata_store_close(drive), STRATA_OK);
}

TEST_F(CApi, GradientsOfEveryTypeAreScaledAndSummed) {
  strata_store* store = loaded(options(", \"accumulate\": 2"));
  ASSERT_EQ(strata_store_begin(store), STRATA_OK);
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    for (int unit = 0; unit < kUnits; ++unit) {
      acquire(store, unit, STRATA_FORWARD);
      EXPECT_EQ(strata_store_release(store), STRATA_OK);
    }
    for (int unit = kUnits; unit-- > 0;) {
      const strata_view view = acquire(store, unit, STRATA_BACKWARD);
      // 1.5 in each type.
      const std::vector<float> f32(static_cast<size_t>(view.count), 1.5f);
      const std::vector<uint16_t> bf16(f32.size(), 0x3fc0), f16(f32.size(), 0x3e00);
      const void* values[] = {f32.data(), bf16.data(), f16.data()};
      for (int dtype = STRATA_F32; dtype <= STRATA_F16; ++dtype) {
        EXPECT_EQ(strata_store_add_gradient(store, 0, 1, view.count - 1, dtype,
                                            values[dtype - STRATA_F32], 0.5),
                  STRATA_OK)
            << text();
      }
      EXPECT_EQ(view.gradient[0], 0.0f);
      EXPECT_EQ(view.gradient[1], 2.25f * static_cast<float>(micro_batch + 1));
      EXPECT_EQ(view.gradient[view.count - 1], view.gradient[1]);
      EXPECT_EQ(strata_store_add_gradient(store, 0, view.count, 1, STRATA_F32, f32.data(), 1),
                STRATA_ERROR_USAGE);
      EXPECT_EQ(strata_store_add_gradient(store, 0, INT64_MAX, 1, STRATA_F32, f32.data(), 1),
                STRATA_ERROR_USAGE);
      EXPECT_EQ(strata_store_release(store), STRATA_OK);
    }
  }
  EXPECT_EQ(strata_store_discard(store), STRATA_OK) << text();
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CApi, DiscardedAndSkippedStepsChangeNothing) {
  strata_store* store = loaded(options(on_drive()));
  step(store);
  const auto before = state(store);
  ASSERT_EQ(strata_store_begin(store), STRATA_OK);
  acquire(store, 0, STRATA_FORWARD);
  EXPECT_EQ(strata_store_discard(store), STRATA_OK) << text();
  EXPECT_EQ(state(store), before);
  EXPECT_EQ(step(store, 0.01, NAN).applied, 0);
  EXPECT_EQ(state(store), before);
  EXPECT_EQ(step(store).applied, 1);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CApi, ACheckpointGoesOnExactly) {
  strata_store* store = loaded(options());
  step(store);
  const char* path = nullptr;
  ASSERT_EQ(strata_store_save(store, (directory_ + "/checkpoints").c_str(), &path), STRATA_OK);
  auto load = sized<strata_load>();
  const std::string saved = path;
  load.checkpoint = saved.c_str();
  strata_store* other = open(options(on_drive()));
  ASSERT_EQ(strata_store_load(other, &load), STRATA_OK) << text();
  EXPECT_EQ(step(other).step, 2);
  step(store);
  EXPECT_EQ(state(other), state(store));
  ASSERT_EQ(strata_store_unload(other), STRATA_OK);
  EXPECT_EQ(strata_store_begin(other), STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_store_load(other, &load), STRATA_OK);
  EXPECT_EQ(step(other).step, 2);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
  EXPECT_EQ(strata_store_close(other), STRATA_OK);
}

struct Planes {
  std::vector<float> values[3][kUnits];
  int calls_left = 1 << 30;
};

int keep(void* context, int32_t plane, int32_t unit, int32_t, int64_t first, int64_t count,
         const float* values) {
  auto& planes = *static_cast<Planes*>(context);
  std::vector<float>& to = planes.values[plane][unit];
  to.resize(static_cast<size_t>(first + count));
  std::copy_n(values, count, to.begin() + first);
  return --planes.calls_left < 0 ? 1 : 0;
}

int give(void* context, int32_t plane, int32_t unit, int32_t, int64_t first, int64_t count,
         float* values) {
  const std::vector<float>& from = static_cast<Planes*>(context)->values[plane][unit];
  std::copy_n(from.begin() + first, count, values);
  return 0;
}

TEST_F(CApi, PlanesThatWereReadAndGivenGoOnExactly) {
  strata_store* store = loaded(options());
  step(store);
  step(store);
  Planes planes;
  for (int p = STRATA_WEIGHTS; p <= STRATA_EXP_AVG_SQ; ++p) {
    ASSERT_EQ(strata_store_read(store, p, keep, &planes), STRATA_OK) << text();
  }
  auto load = sized<strata_load>();
  load.fill = give;
  load.context = &planes;
  load.fills_moments = 1;
  load.updates = 2;
  strata_store* other = open(options(on_drive()));
  ASSERT_EQ(strata_store_load(other, &load), STRATA_OK) << text();
  EXPECT_EQ(state(other), state(store));
  step(store);
  step(other);
  EXPECT_EQ(state(other), state(store));
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
  EXPECT_EQ(strata_store_close(other), STRATA_OK);
}

TEST_F(CApi, CallbacksThatStopEndTheCall) {
  strata_store* store = loaded(options());
  Planes planes;
  planes.calls_left = 0;
  EXPECT_EQ(strata_store_read(store, STRATA_WEIGHTS, keep, &planes), STRATA_ERROR_INTERRUPTED);
  EXPECT_EQ(step(store).applied, 1);  // the state is as before
  auto load = sized<strata_load>();
  load.fill = [](void*, int32_t, int32_t unit, int32_t, int64_t, int64_t, float*) { return unit; };
  EXPECT_EQ(strata_store_load(store, &load), STRATA_ERROR_INTERRUPTED);
  EXPECT_EQ(strata_store_begin(store), STRATA_ERROR_USAGE);
  load.fill = fill;
  EXPECT_EQ(strata_store_load(store, &load), STRATA_OK);
  EXPECT_EQ(step(store).step, 1);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CApi, PlansAreTextsAndRefusalsNameWhatFits) {
  strata_store* store = open(options(on_drive()));
  auto plan = sized<strata_plan>();
  ASSERT_EQ(strata_store_plan(store, &plan), STRATA_OK) << text();
  EXPECT_EQ(plan.fits, 1);
  EXPECT_NE(std::string(plan.text).find("nvme"), std::string::npos) << plan.text;
  EXPECT_EQ(plan.json[0], '{');
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
  store = open(options(", \"host_memory\": \"64KiB\""));
  EXPECT_EQ(strata_store_plan(store, &plan), STRATA_ERROR_DOES_NOT_FIT);
  EXPECT_EQ(plan.fits, 0);
  EXPECT_NE(text().find("KiB"), std::string::npos) << text();
  EXPECT_EQ(text(), plan.text);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
  store = open(options());  // which knows no limit and no tokens
  ASSERT_EQ(strata_store_plan(store, &plan), STRATA_OK) << text();
  const std::string told = std::string(plan.text) + plan.json;
  for (const char* there : {"without a limit", "1 micro-batch that the caller computes",
                            "\"host_memory_bytes\": null", "\"predicted_tokens_per_s\": null"}) {
    EXPECT_NE(told.find(there), std::string::npos) << there << told;
  }
  EXPECT_EQ(told.find("tokens/s"), std::string::npos) << told;
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CApi, ALoadThatIsRefusedLeavesTheStep) {
  strata_store* store = loaded(options(", \"freeze\": [\"out\"]"));
  const char* path = nullptr;
  ASSERT_EQ(strata_store_save(store, directory_.c_str(), &path), STRATA_OK) << text();
  auto load = sized<strata_load>();  // of what is trained alone
  load.checkpoint = path;
  auto nowhere = sized<strata_load>();
  nowhere.checkpoint = "/nowhere/step-1";
  nowhere.fill = fill;
  EXPECT_EQ(strata_store_begin(store), STRATA_OK) << text();
  const auto refuse = [&] {
    EXPECT_EQ(strata_store_load(store, &load), STRATA_ERROR_USAGE);
    EXPECT_EQ(strata_store_load(store, &nowhere), STRATA_ERROR_CONFIG);
  };
  for (int unit = 0; unit < kUnits; ++unit) {
    acquire(store, unit, STRATA_FORWARD);
    refuse();
    EXPECT_EQ(strata_store_release(store), STRATA_OK) << text();
  }
  for (int unit = kUnits; unit-- > 0;) {
    acquire(store, unit, STRATA_BACKWARD);
    refuse();
    const float value = 1;
    EXPECT_EQ(strata_store_add_gradient(store, 0, 0, 1, STRATA_F32, &value, 1),
              unit == kUnits - 1 ? STRATA_ERROR_USAGE : STRATA_OK);
    EXPECT_EQ(strata_store_release(store), STRATA_OK) << text();
  }
  auto update = sized<strata_update>();
  auto result = sized<strata_step_result>();
  EXPECT_EQ(strata_store_step(store, &update, &result), STRATA_OK) << text();
  EXPECT_DOUBLE_EQ(result.grad_norm, std::sqrt(2.0));
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CApi, ADamagedCheckpointLeavesTheStepToo) {
  strata_store* store = loaded(options(on_drive()));
  step(store);
  const char* path = nullptr;
  ASSERT_EQ(strata_store_save(store, (directory_ + "/saved").c_str(), &path), STRATA_OK) << text();
  const std::string saved = path;
  const auto before = state(store);
  auto load = sized<strata_load>();
  load.checkpoint = saved.c_str();
  const auto flip = [&] {  // a bit near the end
    std::fstream file(saved + "/state-rank00000.bin", std::ios::in | std::ios::out);
    const auto byte =
        static_cast<std::streamoff>(fs::file_size(saved + "/state-rank00000.bin")) - 4096;
    file.seekg(byte);
    const int value = file.get();
    file.seekp(byte);
    file.put(static_cast<char>(value ^ 1));
  };
  flip();
  ASSERT_EQ(strata_store_begin(store), STRATA_OK) << text();
  acquire(store, 0, STRATA_FORWARD);
  expect_refused(strata_store_load(store, &load), STRATA_ERROR_CORRUPT, "checksum");
  EXPECT_EQ(strata_store_discard(store), STRATA_OK) << text();
  EXPECT_EQ(state(store), before);
  flip();
  EXPECT_EQ(strata_store_load(store, &load), STRATA_OK) << text();
  EXPECT_EQ(step(store).step, 2);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CApi, AStoreThatDoesNotFitDoesNotLoad) {
  strata_store* store = open(options(", \"host_memory\": \"64KiB\""));
  auto load = sized<strata_load>();
  load.fill = fill;
  EXPECT_EQ(strata_store_load(store, &load), STRATA_ERROR_DOES_NOT_FIT);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

}  // namespace
}  // namespace strata::test
