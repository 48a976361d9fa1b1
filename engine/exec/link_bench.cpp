// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/link_bench.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/units.h"
#include "engine/exec/op_timer.h"
#include "engine/exec/probe_values.h"
#include "io/bench_statistics.h"

namespace strata::exec {
namespace {

constexpr int kDepth = 4;

// The rate of copies in both directions at once, by the clock: up from the first half of the
// host's memory, down to the second.
double both_rate(kernels::Device& device, std::byte* host, std::byte* there,
                 const LinkBench& bench) {
  const int64_t bytes = bench.bytes, copies = std::clamp<int64_t>(256 * kMiB / bytes, 2, 64);
  const auto to = device.make_queue("probe", kDepth), from = device.make_queue("probe", kDepth);
  const kernels::MemoryRange up[] = {{host, bytes, false}, {there, bytes, true}};
  const kernels::MemoryRange down[] = {{host + bytes, bytes, true}, {there + bytes, bytes, false}};
  std::vector<double> times;
  const double end_s = now_s() + bench.seconds / 3;
  while (times.size() < 3 || now_s() < end_s) {
    const double begin_s = now_s();
    to->begin("probe", up);
    from->begin("probe", down);
    for (int64_t i = 0; i < copies; ++i) {
      to->copy(there, host, bytes);
      from->copy(host + bytes, there + bytes, bytes);
    }
    const int64_t last = to->end(), last_back = from->end();
    await(*to, last);
    await(*from, last_back);
    times.push_back(now_s() - begin_s);
  }
  return 2.0 * static_cast<double>(copies * bytes) / io::median_of(times);
}

}  // namespace

LinkFigures bench_link(kernels::Device& device, const LinkBench& bench) {
  const memory::Arena arena(2 * bench.bytes);
  const auto pinned = bench.pinned ? device.pin(arena.data(), arena.bytes()) : nullptr;
  const auto block = device.allocate(2 * bench.bytes);
  std::byte *const host = arena.data(), *const there = block->data();
  const kernels::MemoryRange ranges[] = {{host, bench.bytes, true}, {there, bench.bytes, true}};
  LinkFigures figures = {.pinned = pinned != nullptr};
  {
    OpTimer timer(device);
    const auto rate = [&](std::byte* to, const std::byte* from) {
      const auto copy = [&](kernels::Queue& queue) { queue.copy(to, from, bench.bytes); };
      return static_cast<double>(bench.bytes) /
             timer.median("probe", ranges, copy, bench.seconds / 3);
    };
    figures.upload_bytes_per_s = rate(there, host);
    figures.download_bytes_per_s = rate(host, there);
  }
  // A thread that copies memory which is not pinned waits for it, so directions would take turns.
  if (figures.pinned) figures.both_bytes_per_s = both_rate(device, host, there, bench);
  return figures;
}

LinkLatency bench_latency(kernels::Device& device, double seconds) {
  const PinnedBlock host(device, kSmallCopyBytes);
  const auto block = device.allocate(kSmallCopyBytes);
  const auto queue = device.make_queue("probe", kDepth);
  const kernels::MemoryRange ranges[] = {host.range(), {block->data(), kSmallCopyBytes, true}};
  const auto latency = [&](std::byte* to, const std::byte* from) {
    std::vector<double> times;
    const double end_s = now_s() + seconds / 2;
    while (times.size() < 10 || now_s() < end_s) {
      const double begin_s = now_s();
      queue->begin("probe", ranges);
      queue->copy(to, from, kSmallCopyBytes);
      await(*queue, queue->end());
      times.push_back(now_s() - begin_s);
    }
    return io::median_of(times);
  };
  const double upload_s = latency(block->data(), host.data());
  return {upload_s, latency(host.data(), block->data())};
}

}  // namespace strata::exec
