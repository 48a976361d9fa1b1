// SPDX-License-Identifier: Apache-2.0
// The rate at which ranks on several machines gather and reduce: bytes that each rank sends, and
// receives at the same time, over the time of the calls. network_vs_iperf3.py runs it beside
// iperf3.
//
//   network_bench RANK RANKS HOST:PORT OWN_ADDRESS SECONDS KILOBYTES...
//
// HOST:PORT is where rank 0 listens. Of each size, a rank sends so much in a call. Rank 0 prints a
// line for each call and size: its name, the kilobytes, and bytes per second.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/comm/gather_each.h"
#include "engine/comm/group_tcp.h"
#include "engine/comm/job_server.h"

namespace strata {
namespace {

constexpr const char* kSecret = "a benchmark on a network of its own";

// All ranks make as many calls.
double bytes_per_s(comm::Group& group, int64_t bytes, double seconds,
                   const std::function<void()>& call) {
  const auto time = [&](int64_t calls) {
    group.barrier();
    const double begin_s = now_s();
    for (int64_t i = 0; i < calls; ++i) call();
    return std::ranges::max(comm::gather_each(group, now_s() - begin_s));
  };
  time(2);  // connections are slow at first
  const double one_s = time(3) / 3;
  const int64_t calls = std::clamp<int64_t>(static_cast<int64_t>(seconds / one_s), 3, 100'000);
  return static_cast<double>(calls * bytes) / time(calls);
}

void measure(comm::Group& group, int64_t kilobytes, double seconds) {
  // Parts are as long as all others of the group together need, so that a rank sends `bytes`.
  const int64_t part = kilobytes * 1000 / (group.size() - 1) / 4;
  const int64_t bytes = 4 * part * (group.size() - 1);
  std::vector<float> whole(static_cast<size_t>(part * group.size()), 1);
  std::vector<float> sum(static_cast<size_t>(part));
  const double gather =
      bytes_per_s(group, bytes, seconds, [&] { group.gather(whole.data(), 4 * part); });
  const double reduce = bytes_per_s(group, bytes, seconds, [&] {
    group.reduce({.whole = whole.data(), .part_numel = part, .out = sum.data()});
  });
  if (group.rank() > 0) return;
  fmt::print("gather {} {:.0f}\nreduce {} {:.0f}\n", kilobytes, gather, kilobytes, reduce);
}

void run(char** arguments, int count) {
  const int rank = std::atoi(arguments[0]), ranks = std::atoi(arguments[1]);
  const std::string address = arguments[2], own_address = arguments[3];
  const double seconds = std::atof(arguments[4]);
  std::unique_ptr<comm::JobServer> server;
  if (rank == 0) {
    server = std::make_unique<comm::JobServer>(
        comm::JobServerOptions{.address = address, .secret = kSecret, .size = ranks});
  }
  comm::JobStore store({.address = address, .secret = kSecret, .rank = rank, .size = ranks});
  const auto group = comm::make_tcp_group(store, {}, own_address);
  for (int i = 5; i < count; ++i) measure(*group, std::atoll(arguments[i]), seconds);
  group->barrier();
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  if (argc < 7) {
    fmt::print(stderr, "network_bench RANK RANKS HOST:PORT OWN_ADDRESS SECONDS KILOBYTES...\n");
    return 2;
  }
  try {
    strata::run(argv + 1, argc - 1);
    return 0;
  } catch (const strata::Error& error) {
    fmt::print(stderr, "network_bench: {}\n", error.what());
    return error.exit_code();
  }
}
