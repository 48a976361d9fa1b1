// SPDX-License-Identifier: Apache-2.0
#include "engine/exec/drive_probe.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <thread>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/threads.h"
#include "engine/base/units.h"
#include "engine/memory/arena.h"
#include "io/checksum.h"
#include "io/drive_weights.h"
#include "io/drives.h"

namespace strata::exec {
namespace {

constexpr const char* kLockName = "strata-probe.lock";  // not the lock of a run
constexpr uint64_t kTransferBytes = 4 * kMiB;
constexpr int64_t kLeastFileBytes = 2 * kTransferBytes;  // one each for a reader and a writer
constexpr int64_t kSmallFileBytes = 32 * kMiB;           // of which half of the room is taken
// In the mixed phase, reads and writes are never more than this many transfers apart.
constexpr int64_t kLead = 4;

int64_t free_bytes(const std::string& directory) {
  struct statvfs info = {};
  if (statvfs(directory.c_str(), &info) != 0) {
    throw system_error(ErrorCode::kConfig, "cannot measure the drive: " + directory, errno,
                       "give a directory that exists");
  }
  return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
}

// The size of the files: a quarter of the free space, or half of it when there is little.
int64_t file_bytes(const DriveProbeOptions& options) {
  const auto count = static_cast<int64_t>(options.directories.size());
  int64_t bytes = options.file_bytes;
  for (const std::string& directory : options.directories) {
    const int64_t room = free_bytes(directory) * count;
    if (room / 2 < kLeastFileBytes) {
      throw Error(ErrorCode::kDoesNotFit,
                  fmt::format("cannot measure the drive: {}: {} free, needs {} (make room, or use "
                              "another directory)",
                              directory, format_bytes(room / count),
                              format_bytes(2 * kLeastFileBytes / count)));
    }
    bytes = std::min(bytes, std::max(room / 4, std::min(room / 2, kSmallFileBytes)));
  }
  return std::max(bytes, kLeastFileBytes) / kLeastFileBytes * kLeastFileBytes;
}

io::VolumeOptions volume_options(const DriveProbeOptions& options,
                                 const std::vector<double>& weights, int64_t bytes) {
  io::VolumeOptions volume;
  volume.weights = weights;
  volume.directories = options.directories;
  volume.bytes = static_cast<uint64_t>(bytes);
  volume.owner = "measuring the drive";
  volume.lock_name = kLockName;
  volume.allow_memory_filesystem = options.allow_memory_filesystem;
  volume.direct = options.direct;
  return volume;
}

struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;
};

// One I/O lane: a thread with a channel that moves the same range repeatedly.
class LaneProbe {
 public:
  LaneProbe(io::Volume& volume, const DriveProbeOptions& options)
      : bytes_(static_cast<uint64_t>(options.transfer_bytes)),
        buffer_(options.transfer_bytes * slots(options)),
        transfers_(static_cast<size_t>(slots(options))),
        channel_(volume, channel_options(options)) {
    for (int64_t i = 0; i < buffer_.bytes(); ++i) {
      buffer_.data()[i] = static_cast<std::byte>((i * 2654435761u) >> 13);
    }
  }

  // Runs until `until_s`, but at least for one pass over `least`. With `other`, keeps pace with it.
  void run(io::Direction direction, Range range, double until_s, uint64_t least,
           const LaneProbe* other) {
    moved_.store(0);
    uint64_t submitted = 0;
    uint64_t next = range.begin;
    const double begin_s = now_s();
    const auto more = [&] { return now_s() < until_s || submitted < least; };
    while (true) {
      for (io::Transfer& transfer : transfers_) {
        const bool free = !transfer.user;
        if (!free || !more() || (other && ahead_of(*other))) continue;
        transfer.direction = direction;
        transfer.address = next;
        transfer.bytes = bytes_;
        transfer.data = buffer_.data() + (&transfer - transfers_.data()) * bytes_;
        transfer.tag = 1;
        transfer.done = false;
        transfer.user = this;
        channel_.submit(&transfer);
        submitted += bytes_;
        next += bytes_;
        if (next + bytes_ > range.end) next = range.begin;
      }
      if (channel_.in_flight() == 0 && !more()) break;
      channel_.wait(0.001);
      channel_.poll();
      collect();
    }
    seconds_ = now_s() - begin_s;
  }

  // One request at a time.
  double latency_s(Range range) {
    std::vector<double> times;
    for (uint64_t at = range.begin; at + kMiB <= range.end && times.size() < 9;
         at += 3 * kTransferBytes) {
      io::Transfer& transfer = transfers_[0];
      transfer.direction = io::Direction::kRead;
      transfer.address = at;
      transfer.bytes = kMiB;
      transfer.data = buffer_.data();
      transfer.tag = 1;
      transfer.done = false;
      const double begin_s = now_s();
      channel_.submit(&transfer);
      while (!transfer.done) {
        channel_.wait(0.001);
        channel_.poll();
      }
      if (transfer.error) throw Error(*transfer.error);
      times.push_back(now_s() - begin_s);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  uint64_t moved() const { return moved_.load(); }
  double rate() const { return static_cast<double>(moved()) / seconds_; }
  double seconds() const { return seconds_; }

 private:
  static int64_t slots(const DriveProbeOptions& options) {
    return options.io_depth * kMiB / options.transfer_bytes + 2;
  }

  static io::ChannelOptions channel_options(const DriveProbeOptions& options) {
    io::ChannelOptions channel;
    channel.backend = options.backend;
    channel.depth = static_cast<uint32_t>(options.io_depth);
    channel.deadline_s = options.deadline_s;
    return channel;
  }

  bool ahead_of(const LaneProbe& other) const {
    return static_cast<int64_t>(moved()) - static_cast<int64_t>(other.moved()) >
           kLead * static_cast<int64_t>(kTransferBytes);
  }

  void collect() {
    for (io::Transfer& transfer : transfers_) {
      if (!transfer.user || !transfer.done) continue;
      if (transfer.error) throw Error(*transfer.error);
      transfer.user = nullptr;
      moved_.fetch_add(transfer.bytes);
    }
  }

  const uint64_t bytes_;  // of a transfer
  memory::Arena buffer_;
  std::vector<io::Transfer> transfers_;  // `user` is set while it is in flight
  io::Channel channel_;
  std::atomic<uint64_t> moved_{0};
  double seconds_ = 0;
};

// Reads and writes equal numbers of bytes until `until_s`; returns the rate of both together.
double mixed_rate(LaneProbe& reader, LaneProbe& writer, Range written, double until_s) {
  const uint64_t half = written.end / 2 / kTransferBytes * kTransferBytes;
  std::exception_ptr failure;
  std::jthread other = start_thread([&] {
    try {
      writer.run(io::Direction::kWrite, {half, written.end}, until_s, 0, &reader);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  std::exception_ptr own_failure;
  try {
    reader.run(io::Direction::kRead, {0, half}, until_s, 0, &writer);
  } catch (...) {
    own_failure = std::current_exception();
  }
  other.join();
  for (const std::exception_ptr& one : {own_failure, failure}) {
    if (one) std::rethrow_exception(one);
  }
  return static_cast<double>(reader.moved() + writer.moved()) /
         std::max(reader.seconds(), writer.seconds());
}

}  // namespace

DriveFigures probe_drive(const DriveProbeOptions& options, double seconds) {
  const auto bytes = static_cast<uint64_t>(file_bytes(options));
  DriveFigures figures;
  figures.count = std::ssize(io::drives_below(options.directories));
  figures.weights = probe_weights(options, seconds / 8);
  io::Volume volume(volume_options(options, figures.weights, static_cast<int64_t>(bytes)));
  LaneProbe reader(volume, options);
  LaneProbe writer(volume, options);
  const double cpu_begin_s = process_cpu_s();
  uint64_t moved = 0;

  const double phase_s = seconds / 4;

  // On some file systems the first write of a block is slower. A run writes each block many times.
  writer.run(io::Direction::kWrite, {0, bytes}, now_s() + phase_s,
             std::min<uint64_t>(bytes, kSmallFileBytes), nullptr);
  const Range written = {0, std::min(bytes, writer.moved())};
  moved += writer.moved();
  writer.run(io::Direction::kWrite, written, now_s() + phase_s, 0, nullptr);
  figures.write_bytes_per_s = writer.rate();
  moved += writer.moved();

  reader.run(io::Direction::kRead, written, now_s() + phase_s, 0, nullptr);
  figures.read_bytes_per_s = reader.rate();
  moved += reader.moved();

  figures.mixed_bytes_per_s = mixed_rate(reader, writer, written, now_s() + phase_s);
  moved += reader.moved() + writer.moved();
  figures.cpu_s_per_byte = (process_cpu_s() - cpu_begin_s) / static_cast<double>(moved);
  figures.latency_s = reader.latency_s(written);
  return figures;
}

std::vector<double> probe_weights(const DriveProbeOptions& options, double seconds) {
  return io::measure_weights({.directories = options.directories,
                              .deadline_s = options.deadline_s,
                              .seconds = seconds,
                              .lock_name = kLockName,
                              .allow_memory_filesystem = options.allow_memory_filesystem})
      .weights;
}

double process_cpu_s() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double probe_checksum(double seconds, int64_t memory_bytes) {
  constexpr int64_t kBlockBytes = 64 * kKiB;
  const memory::Arena data(std::min(32 * kMiB, memory_bytes / kBlockBytes * kBlockBytes));
  std::memset(data.data(), 0x5c, static_cast<size_t>(data.bytes()));
  uint64_t sum = 0;
  int64_t bytes = 0;
  const double begin_s = now_s();
  while (now_s() - begin_s < seconds) {
    for (int64_t at = 0; at < data.bytes(); at += kBlockBytes) {
      sum |= io::checksum_block(data.data() + at, kBlockBytes, 1, static_cast<uint64_t>(at));
    }
    bytes += data.bytes();
  }
  const double rate = static_cast<double>(bytes) / (now_s() - begin_s);
  STRATA_CHECK(sum != 0);
  return rate;
}

}  // namespace strata::exec
