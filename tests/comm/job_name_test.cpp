// SPDX-License-Identifier: Apache-2.0
// A server of a job whose name the system's name service cannot find for a while.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <string_view>

#include "tests/comm/job_support.h"

namespace {

constexpr const char* kBusyName = "busy.test";
std::atomic<int> failures_left = 0;

}  // namespace

// In the place of the system's: kBusyName is this machine's, after some failures.
extern "C" int getaddrinfo(const char* node, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static const auto systems =
      reinterpret_cast<decltype(&getaddrinfo)>(dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool is_busy = node != nullptr && std::string_view(node) == kBusyName;
  if (is_busy && failures_left.fetch_sub(1) > 0) return EAI_AGAIN;
  return systems(is_busy ? "127.0.0.1" : node, service, hints, found);
}

namespace strata::comm {
namespace {

std::string busy_address(const JobServer& server) {
  return std::string(kBusyName) + ":" + parse_endpoint(server.address()).port;
}

TEST(JobName, ARankWaitsForTheNameService) {
  const JobServer server({.secret = kJobSecret});
  failures_left = 3;
  JobStore store({.address = busy_address(server), .secret = kJobSecret, .connect_s = 30});
  EXPECT_EQ(store.add("n", 1), 1);
}

TEST(JobName, WhenItNeverAnswersThatIsADeadline) {
  const JobServer server({.secret = kJobSecret});
  failures_left = 1 << 20;
  EXPECT_FAILURE(
      kDeadline, "cannot find the host: busy.test: ",
      JobStore({.address = busy_address(server), .secret = kJobSecret, .connect_s = 0.1}));
  EXPECT_FAILURE(kPeer, "cannot find the host: busy.test: ",
                 JobServer({.address = "busy.test:0", .secret = kJobSecret}));
}

}  // namespace
}  // namespace strata::comm
