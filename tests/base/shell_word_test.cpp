// SPDX-License-Identifier: Apache-2.0
// Words of suggested commands, as a shell reads them.
#include "engine/base/shell_word.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(ShellWord, OnlyWhatAShellTreatsSpeciallyIsQuoted) {
  EXPECT_EQ(shell_word("/mnt/a-1/run_2.x:y=z,w"), "/mnt/a-1/run_2.x:y=z,w");
  EXPECT_EQ(shell_word("my run"), "'my run'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word("$HOME"), "'$HOME'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace strata
