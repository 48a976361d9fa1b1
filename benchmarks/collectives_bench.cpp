// SPDX-License-Identifier: Apache-2.0
// How long sums over ranks take: groups by TCP, by shared memory and by MPI, and MPI's own
// MPI_Allreduce, which does not promise an order of additions. They take turns, so that other work
// of the machine meets all.
//
//   mpirun --bind-to none -n 2 build/benchmarks/collectives_bench [ROUNDS] [MEGABYTES...]
#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/comm/group_mpi.h"
#include "engine/comm/group_tcp.h"
#include "engine/comm/job_server.h"

namespace strata {
namespace {

struct Contender {
  const char* name;
  std::function<void(float*, int64_t)> sum;
  std::vector<double> seconds = {};
};

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// The sum of 1 + 2 + ... over the ranks, in each element.
void check(const std::vector<float>& values, int size, const char* name) {
  const auto wanted = static_cast<float>(size * (size + 1) / 2);
  if (std::ranges::all_of(values, [&](float value) { return value == wanted; })) return;
  throw Error(ErrorCode::kIo, fmt::format("{}: the sum is wrong", name));
}

void measure(std::vector<Contender>& all, comm::Group& group, int rounds, int64_t megabytes) {
  std::vector<float> values(static_cast<size_t>(megabytes * 1'000'000 / 4));
  for (Contender& one : all) one.seconds.clear();
  for (int round = -1; round < rounds; ++round) {  // the first to warm up
    for (size_t i = 0; i < all.size(); ++i) {
      Contender& one = all[(i + static_cast<size_t>(round + 1)) % all.size()];
      std::ranges::fill(values, static_cast<float>(group.rank() + 1));
      group.barrier();
      const double begin_s = now_s();
      one.sum(values.data(), static_cast<int64_t>(values.size()));
      group.barrier();
      if (round >= 0) one.seconds.push_back(now_s() - begin_s);
      check(values, group.size(), one.name);
    }
  }
  if (group.rank() > 0) return;
  const double base = median_of(all.front().seconds);
  for (const Contender& one : all) {
    const double median = median_of(one.seconds);
    fmt::print("{:>4} MB  {:<14} {:8.2f} ms  ({:.2f} to {:.2f})  {:6.2f} GB/s  {:5.2f} of {}\n",
               megabytes, one.name, 1e3 * median, 1e3 * std::ranges::min(one.seconds),
               1e3 * std::ranges::max(one.seconds), 1e-3 * static_cast<double>(megabytes) / median,
               median / base, all.front().name);
  }
}

void run(int rounds, const std::vector<int64_t>& sizes) {
  std::string why;
  const comm::MpiPlugin* plugin = comm::load_mpi_plugin(STRATA_BINARY_DIR "/bindings/cli", why);
  if (plugin == nullptr) throw Error(ErrorCode::kConfig, why);
  const auto mpi = plugin->start();
  const std::string secret = "a benchmark on one machine";
  std::unique_ptr<comm::JobServer> server;
  std::array<char, 64> address = {};
  if (mpi->rank() == 0) {
    server = std::make_unique<comm::JobServer>(
        comm::JobServerOptions{.secret = secret, .size = mpi->size()});
    server->address().copy(address.data(), address.size() - 1);
    fmt::print("{}, {} ranks, {} rounds; time of a sum: median (least to most)\n",
               plugin->version(), mpi->size(), rounds);
  }
  MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_CHAR, 0, MPI_COMM_WORLD);
  {
    comm::JobStore store(
        {.address = address.data(), .secret = secret, .rank = mpi->rank(), .size = mpi->size()});
    const auto by_tcp = comm::make_tcp_group(store, {.name = "tcp"});
    const auto by_memory =
        comm::make_tcp_group(store, {.name = "memory", .ranks_on_node = mpi->size()});
    const auto by_mpi = comm::make_mpi_group(store, *mpi, {.name = "mpi"});
    std::vector<Contender> all = {
        {"tcp", [&](float* data, int64_t count) { by_tcp->all_reduce_sum(data, count); }},
        {"memory", [&](float* data, int64_t count) { by_memory->all_reduce_sum(data, count); }},
        {"mpi", [&](float* data, int64_t count) { by_mpi->all_reduce_sum(data, count); }},
        {"MPI_Allreduce", [&](float* data, int64_t count) {
           MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM,
                         MPI_COMM_WORLD);
         }}};
    for (const int64_t megabytes : sizes) measure(all, *by_mpi, rounds, megabytes);
    by_mpi->barrier();
  }
  mpi->finish();
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  std::vector<int64_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::atoll(argv[i]));
  if (sizes.empty()) sizes = {1, 16, 256};
  try {
    strata::run(rounds, sizes);
    return 0;
  } catch (const strata::Error& error) {
    fmt::print(stderr, "collectives_bench: {}\n", error.what());
    return error.exit_code();
  }
}
