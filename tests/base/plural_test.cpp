// SPDX-License-Identifier: Apache-2.0
// Counts of things are written as people say them.
#include "engine/base/plural.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Plural, OneIsSingular) {
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(12000, "token"), "12000 tokens");
  EXPECT_EQ(counted(1, "directory"), "1 directory");
  EXPECT_EQ(counted(2, "directory"), "2 directories");
  EXPECT_EQ(counted(2, "micro-batch"), "2 micro-batches");
  EXPECT_EQ(plural(1, "drive"), "drive");
  EXPECT_EQ(plural(8, "drive"), "drives");
}

}  // namespace
}  // namespace strata
