// SPDX-License-Identifier: Apache-2.0
// Failures of independent work: one is told as it is, several under one headline.
#include "engine/base/failures.h"

#include <gtest/gtest.h>

#include <functional>

namespace strata {
namespace {

std::function<void()> failing(ErrorCode code, const char* message) {
  return [=] { throw Error(code, message); };
}

TEST(Failures, NoneIsNoError) {
  Failures failures;
  EXPECT_TRUE(failures.collect([] {}));
  EXPECT_NO_THROW(failures.throw_if_any("cannot start"));
}

TEST(Failures, OneIsToldAsItIs) {
  Failures failures;
  EXPECT_FALSE(failures.collect(failing(ErrorCode::kDoesNotFit, "it is\ntoo large")));
  EXPECT_TRUE(failures.collect([] {}));
  try {
    failures.throw_if_any("cannot start");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
    EXPECT_STREQ(error.what(), "it is\ntoo large");
  }
}

TEST(Failures, SeveralStandUnderOneHeadlineWithTheCodeOfUsage) {
  Failures failures;
  failures.collect(failing(ErrorCode::kCorrupt, "damaged"));
  failures.collect(failing(ErrorCode::kConfig, "model: tensors:\n  a\n  b"));
  failures.collect(failing(ErrorCode::kDoesNotFit, "full"));
  try {
    failures.throw_if_any("cannot start");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_STREQ(error.what(),
                 "cannot start: 3 problems\n  damaged\n  model: tensors:\n    a\n    b\n  full");
  }
}

TEST(Failures, WhatIsNoErrorPassesThrough) {
  Failures failures;
  EXPECT_THROW(failures.collect([] { throw std::runtime_error("bug"); }), std::runtime_error);
}

}  // namespace
}  // namespace strata
