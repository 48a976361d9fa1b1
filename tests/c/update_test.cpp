// SPDX-License-Identifier: Apache-2.0
// The update of a step: gradients of a scaled loss, and a caller that was built with an older
// strata_update.
#include <cstddef>
#include <limits>
#include <thread>

#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

class CUpdate : public CApi {
 protected:
  static strata_step_result step_scaled(strata_store* store, double scale, float factor,
                                        double clip = 0.05) {
    auto update = sized<strata_update>();
    update.lr = 0.01;
    update.has_clip = -1;  // any number but 0 is yes
    update.clip = clip;
    update.gradient_scale = scale;
    auto result = sized<strata_step_result>();
    EXPECT_EQ(strata_store_begin(store), STRATA_OK) << text();
    passes(store, factor);
    EXPECT_EQ(strata_store_step(store, &update, &result), STRATA_OK) << text();
    return result;
  }
};

TEST_F(CUpdate, GradientsOfALossTimesAPowerOfTwoGiveTheSameBits) {
  strata_store* plain = loaded(options());
  strata_store* scaled = loaded(options(on_drive()));
  for (const double scale : {65536.0, 1.0 / 1024, 2.0}) {
    for (const double clip : {0.0, 0.05}) {
      const strata_step_result expected = step_scaled(plain, 0, 1, clip);
      const strata_step_result result = step_scaled(scaled, scale, static_cast<float>(scale), clip);
      EXPECT_EQ(result.grad_norm, expected.grad_norm);
      EXPECT_GT(result.grad_norm, 0.05);  // so that clipping is by the norm without the scale
      EXPECT_EQ(result.applied, 1);
    }
  }
  EXPECT_EQ(state(scaled), state(plain));
  EXPECT_EQ(strata_store_close(plain), STRATA_OK);
  EXPECT_EQ(strata_store_close(scaled), STRATA_OK);
}

TEST_F(CUpdate, OtherScalesRoundOnce) {
  strata_store* plain = loaded(options());
  strata_store* scaled = loaded(options());
  const double expected = step_scaled(plain, 1, 1, 0).grad_norm;
  EXPECT_NEAR(step_scaled(scaled, 3, 3, 0).grad_norm, expected, 1e-7 * expected);  // of f32
  for (const int plane : {STRATA_EXP_AVG, STRATA_EXP_AVG_SQ}) {
    const std::vector<float> is = this->plane(scaled, 1, plane), was = this->plane(plain, 1, plane);
    for (size_t i = 0; i < is.size(); ++i) {
      ASSERT_NEAR(is[i], was[i], 1e-6 * std::abs(was[i])) << i;  // some roundings of f32
    }
  }
  EXPECT_EQ(strata_store_close(plain), STRATA_OK);
  EXPECT_EQ(strata_store_close(scaled), STRATA_OK);
}

TEST_F(CUpdate, GradientsThatAreNotFiniteOrBecomeSoUpdateNothing) {
  strata_store* store = loaded(options());
  const auto before = state(store);
  EXPECT_EQ(step_scaled(store, 1024, INFINITY).applied, 0);
  EXPECT_EQ(step_scaled(store, 1e-20, 1e25f).applied, 0);  // 1e45, which no f32 is
  EXPECT_EQ(state(store), before);
  const strata_step_result result = step_scaled(store, 1e20, 1e25f);
  EXPECT_EQ(result.applied, 1);
  EXPECT_LT(result.grad_norm, 1e7);
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CUpdate, AScaleOutOfRangeIsRefusedAndTheStepGoesOn) {
  strata_store* store = loaded(options());
  ASSERT_EQ(strata_store_begin(store), STRATA_OK) << text();
  passes(store);
  auto update = sized<strata_update>();
  for (const double scale : {-1.0, 1e-31, 1e31, std::numeric_limits<double>::infinity(),
                             std::numeric_limits<double>::quiet_NaN()}) {
    update.gradient_scale = scale;
    EXPECT_EQ(strata_store_step(store, &update, nullptr), STRATA_ERROR_CONFIG);
    EXPECT_NE(text().find("gradient_scale"), std::string::npos) << text();
  }
  update.gradient_scale = 1;
  EXPECT_EQ(strata_store_step(store, &update, nullptr), STRATA_OK) << text();
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
}

TEST_F(CUpdate, RanksGiveOneScale) {
  const std::string meeting = directory_ + "/meet";
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      strata_store* store = open(options(", \"ranks\": 2"));
      auto ranks = sized<strata_ranks>();
      ranks.rank = rank;
      ranks.directory = meeting.c_str();
      EXPECT_EQ(strata_store_join(store, &ranks), STRATA_OK) << text();
      load(store);
      EXPECT_EQ(step_scaled(store, 2, 1).applied, 1);
      auto update = sized<strata_update>();
      update.gradient_scale = rank == 0 ? 2 : 4;
      EXPECT_EQ(strata_store_begin(store), STRATA_OK) << text();
      passes(store);
      EXPECT_EQ(strata_store_step(store, &update, nullptr), STRATA_ERROR_PEER);
      EXPECT_EQ(strata_store_close(store), STRATA_OK);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// What lies behind its struct is not looked at.
TEST_F(CUpdate, ACallerOfTheOlderStructIsServed) {
  strata_store* store = loaded(options());
  strata_store* plain = loaded(options());
  auto update = sized<strata_update>();
  update.struct_size = offsetof(strata_update, gradient_scale);
  update.lr = 0.01;
  update.gradient_scale = -5;
  ASSERT_EQ(strata_store_begin(store), STRATA_OK) << text();
  passes(store);
  update.struct_size -= 4;  // that of no version
  EXPECT_EQ(strata_store_step(store, &update, nullptr), STRATA_ERROR_CONFIG);
  update.struct_size += 8;
  EXPECT_EQ(strata_store_step(store, &update, nullptr), STRATA_ERROR_CONFIG);
  update.struct_size -= 4;
  EXPECT_EQ(strata_store_step(store, &update, nullptr), STRATA_OK) << text();
  step(plain, 0.01);
  EXPECT_EQ(state(store), state(plain));
  EXPECT_EQ(strata_store_close(store), STRATA_OK);
  EXPECT_EQ(strata_store_close(plain), STRATA_OK);
}

}  // namespace
}  // namespace strata::test
