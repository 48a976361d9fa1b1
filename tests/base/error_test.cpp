// SPDX-License-Identifier: Apache-2.0
// Errors of system calls say what to do: by their errno, or in the caller's words.
#include "engine/base/error.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "engine/base/advice.h"

namespace strata {
namespace {

std::string text_of(int errno_value, const std::string& advice = "") {
  return system_error(ErrorCode::kIo, "cannot open: a", errno_value, advice).what();
}

TEST(SystemError, SaysWhatToDoByItsErrno) {
  EXPECT_EQ(text_of(ENOENT), "cannot open: a: No such file or directory (give a path that exists)");
  EXPECT_EQ(text_of(ENOSPC),
            "cannot open: a: No space left on device (free space there, or use another drive)");
  for (const int error : {EACCES, EROFS, ENOTDIR, EFBIG, EMFILE, ENOMEM, EIO, EINVAL, EBUSY}) {
    EXPECT_TRUE(text_of(error).ends_with(')')) << text_of(error);
  }
}

TEST(SystemError, TheCallersAdviceReplacesTheUsualOne) {
  EXPECT_EQ(text_of(ENOENT, "give a model"),
            "cannot open: a: No such file or directory (give a model)");
  EXPECT_EQ(text_of(EMFILE, "give a model"),
            "cannot open: a: Too many open files (raise the limit of open files: ulimit -n)");
}

TEST(SystemError, OfANetworkSaysNothingThatOnlyTheCallerKnows) {
  EXPECT_EQ(text_of(ECONNREFUSED), "cannot open: a: Connection refused");
}

TEST(Advice, IsAddedOnlyOnce) {
  EXPECT_EQ(with_advice("it is cut short", "fetch it again"), "it is cut short (fetch it again)");
  EXPECT_EQ(with_advice("it is short (free space)", "fetch it again"), "it is short (free space)");
}

}  // namespace
}  // namespace strata
