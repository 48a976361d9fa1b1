// SPDX-License-Identifier: Apache-2.0
// What the engine says reaches the sinks of the caller that it works for, on every thread that it
// starts, and nobody else's; a system call that hangs is reported once, and may go on.
#include "engine/base/environment.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>

#include "engine/base/blocking_call.h"
#include "engine/base/threads.h"
#include "tests/support/log_capture.h"

namespace strata {
namespace {

using test::LogCapture;

TEST(Environment, WithoutOneNothingIsSaidOrWatched) {
  testing::internal::CaptureStderr();
  log(LogLevel::kWarning, "nobody hears this");
  report_hang(Error(ErrorCode::kDeadline, "nor this"));
  const std::string path = "a file";
  { const BlockingCall call("read", path); }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(BlockingCall::deadline_s(), 600);
}

TEST(Environment, TheInnermostScopeOfAThreadHears) {
  const LogCapture outer;
  {
    const LogCapture inner;
    log(LogLevel::kInfo, "one");
    EXPECT_EQ(inner.text(), "one\n");
  }
  log(LogLevel::kInfo, "two");
  EXPECT_EQ(outer.text(), "two\n");
}

TEST(Environment, AThreadSpeaksToThatOfItsStarter) {
  const LogCapture first;
  std::jthread thread;
  {
    const LogCapture second;
    thread = start_thread([] { log(LogLevel::kInfo, "from a thread"); });
    thread.join();
    EXPECT_EQ(second.text(), "from a thread\n");
  }
  EXPECT_EQ(first.text(), "");
}

TEST(Environment, ACallThatHangsIsReportedOnceAndGoesOn) {
  std::promise<std::string> reported;
  std::atomic<int> reports = 0;
  Environment environment({.hang =
                               [&](const Error& error) {
                                 if (++reports == 1) reported.set_value(error.what());
                               },
                           .hang_after_s = 0.02});
  const Environment::Scope scope(&environment);
  EXPECT_EQ(BlockingCall::deadline_s(), 0.02);
  const std::string path = "a file";
  {
    const BlockingCall call("read", path);
    const std::string text = reported.get_future().get();
    EXPECT_TRUE(text.starts_with("read: a file: no answer for ")) << text;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // ten more looks
  }
  EXPECT_EQ(reports, 1);
}

}  // namespace
}  // namespace strata
