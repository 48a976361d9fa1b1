// SPDX-License-Identifier: Apache-2.0
#include "engine/base/interrupted.h"

#include <gtest/gtest.h>

namespace strata {
namespace {

TEST(Uninterrupted, ACallIsMadeAgainUntilNoSignalInterruptsIt) {
  int calls = 0;
  const auto call = [&] {
    errno = calls < 2 ? EINTR : ENOSPC;
    return ++calls < 4 ? -1 : 0;
  };
  EXPECT_EQ(uninterrupted(call), -1);
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(uninterrupted(call), 0);
}

}  // namespace
}  // namespace strata
