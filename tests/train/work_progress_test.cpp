// SPDX-License-Identifier: Apache-2.0
// Progress of loading and evaluating: rare plain lines, or a line that is redrawn and erased.
#include "engine/train/work_progress.h"

#include <gtest/gtest.h>

namespace strata::train {
namespace {

TEST(WorkLine, OutsideATerminalShortWorkPrintsNothing) {
  WorkLine line(false);
  EXPECT_EQ(line.at("loading", 1, 3, 100.0), "");
  EXPECT_EQ(line.at("loading", 2, 3, 109.0), "");
  EXPECT_EQ(line.at("loading", 3, 3, 109.5), "");
}

TEST(WorkLine, OutsideATerminalLongWorkPrintsALineNowAndThen) {
  WorkLine line(false);
  EXPECT_EQ(line.at("evaluating", 1, 100, 0.0), "");
  EXPECT_EQ(line.at("evaluating", 25, 100, 20.0), "evaluating 25%, ETA 1 min\n");
  EXPECT_EQ(line.at("evaluating", 26, 100, 21.0), "");
  EXPECT_EQ(line.at("evaluating", 50, 100, 40.0), "evaluating 50%, ETA 40 s\n");
  EXPECT_EQ(line.at("evaluating", 95, 100, 50.0), "evaluating 95%, ETA 3 s\n") << "whole seconds";
  EXPECT_EQ(line.at("loading", 1, 2, 45.0), "") << "another piece of work has its own clock";
}

TEST(WorkLine, OnATerminalItIsRedrawnAndErased) {
  WorkLine line(true);
  EXPECT_EQ(line.at("loading", 1, 100, 0.0), "");
  EXPECT_EQ(line.at("loading", 50, 100, 1.0), "\rloading 50%, ETA 1 s\x1b[K");
  EXPECT_EQ(line.at("loading", 51, 100, 1.01), "") << "not more often than can be seen";
  EXPECT_EQ(line.at("loading", 100, 100, 2.0), "\r\x1b[K");
}

}  // namespace
}  // namespace strata::train
