// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/machine_probe_drives.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <functional>

#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/memory/arena.h"
#include "io/channel.h"

namespace strata::exec {
namespace {

// Transfers as long as a plane of a chunk is, and enough of them at once to keep the requests'
// depth.
constexpr int64_t kTransferBytes = 4 * kMiB;
constexpr size_t kTransfersAtOnce = 8;

double core_seconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class DriveProbe {
 public:
  DriveProbe(const ProbeOptions& options, int64_t volume_bytes)
      : volume_(io::VolumeOptions{.directories = options.nvme,
                                  .bytes = static_cast<uint64_t>(volume_bytes),
                                  .owner = "machine probe"}),
        arena_(static_cast<int64_t>(kTransfersAtOnce) * kTransferBytes),
        channel_(volume_, {.backend = options.io,
                           .regions = {{arena_.data(), static_cast<uint64_t>(arena_.bytes())}},
                           .verify = false}),
        slots_(kTransfersAtOnce) {}

  // Moves transfers one after the other over the volume for about `seconds`, and at least once over
  // it. `direction` says of each what it does. Returns bytes per second.
  double rate(double seconds, const std::function<io::Direction(int64_t)>& direction) {
    const int64_t per_pass = static_cast<int64_t>(volume_.bytes()) / kTransferBytes;
    const double start_s = now_s();
    int64_t started = 0;
    int64_t finished = 0;
    while (true) {
      const bool more = started < per_pass || now_s() - start_s < seconds;
      if (!more && finished == started) break;
      for (size_t slot = 0; more && slot < kTransfersAtOnce; ++slot) {
        io::Transfer& transfer = slots_[slot];
        if (transfer.user != nullptr) continue;
        start(slot, direction(started), started % per_pass);
        ++started;
      }
      channel_.wait(1.0);
      channel_.poll();
      finished += collect();
    }
    return static_cast<double>(finished * kTransferBytes) / (now_s() - start_s);
  }

  // The median time of one request of 1 MiB on an idle drive.
  double latency_s() {
    constexpr int kCount = 21;
    std::vector<double> times;
    for (int index = 0; index < kCount; ++index) {
      const double start_s = now_s();
      start(0, io::Direction::kRead, index % 4);
      while (collect() == 0) {
        channel_.wait(1.0);
        channel_.poll();
      }
      times.push_back(now_s() - start_s);
    }
    std::nth_element(times.begin(), times.begin() + kCount / 2, times.end());
    return times[kCount / 2];
  }

  void use_bytes(int64_t bytes) { bytes_ = bytes; }

 private:
  void start(size_t slot, io::Direction direction, int64_t position) {
    io::Transfer& transfer = slots_[slot];
    transfer.direction = direction;
    transfer.address = static_cast<uint64_t>(position * kTransferBytes);
    transfer.bytes = static_cast<uint64_t>(bytes_);
    transfer.data = arena_.data() + static_cast<int64_t>(slot) * kTransferBytes;
    transfer.done = false;
    transfer.user = this;  // in flight
    channel_.submit(&transfer);
  }

  int64_t collect() {
    int64_t count = 0;
    for (io::Transfer& transfer : slots_) {
      if (transfer.user == nullptr || !transfer.done) continue;
      if (transfer.error) throw Error(*transfer.error);
      transfer.user = nullptr;
      ++count;
    }
    return count;
  }

  io::Volume volume_;
  const memory::Arena arena_;
  io::Channel channel_;
  std::vector<io::Transfer> slots_;
  int64_t bytes_ = kTransferBytes;
};

}  // namespace

void probe_drives(const ProbeOptions& options, double seconds, config::Machine& machine) {
  constexpr int64_t kLeast = static_cast<int64_t>(kTransfersAtOnce) * kTransferBytes;
  const int64_t volume_bytes =
      std::max(kLeast, 2 * options.bytes_max / kTransferBytes * kTransferBytes);
  DriveProbe probe(options, volume_bytes);
  const auto read = [](int64_t) { return io::Direction::kRead; };
  const auto write = [](int64_t) { return io::Direction::kWrite; };
  const auto alternate = [](int64_t index) {
    return index % 2 == 0 ? io::Direction::kRead : io::Direction::kWrite;
  };
  probe.rate(0, write);  // the first writes into new extents are slower than all later ones
  const double share_s = seconds / 3;
  machine.nvme_write_bytes_per_s = probe.rate(share_s, write);
  const double start_s = now_s();
  const double start_core_s = core_seconds();
  machine.nvme_read_bytes_per_s = probe.rate(share_s, read);
  const double read_gb = machine.nvme_read_bytes_per_s * (now_s() - start_s) * 1e-9;
  machine.cpu_s_per_io_gb = (core_seconds() - start_core_s) / read_gb;
  machine.nvme_mixed_bytes_per_s = probe.rate(share_s, alternate);
  probe.use_bytes(kMiB);
  machine.nvme_latency_s = probe.latency_s();
}

}  // namespace strata::exec
