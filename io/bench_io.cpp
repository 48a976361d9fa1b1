// SPDX-License-Identifier: Apache-2.0
#include "io/bench_io.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/base/units.h"

namespace strata::io {
namespace {

constexpr uint64_t kTag = 1;

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

struct FreeDeleter {
  void operator()(char* data) const { std::free(data); }
};
using Memory = std::unique_ptr<char, FreeDeleter>;

// Bytes that a drive cannot compress.
Memory make_memory(uint64_t bytes) {
  Memory memory(static_cast<char*>(std::aligned_alloc(4096, bytes)));
  if (memory == nullptr) {
    throw Error(ErrorCode::kDoesNotFit,
                "allocate benchmark buffers: " + format_bytes(static_cast<int64_t>(bytes)) +
                    ": not enough memory (use smaller blocks or less depth)");
  }
  const Philox random(7);
  auto* words = reinterpret_cast<uint64_t*>(memory.get());
  for (uint64_t i = 0; i < bytes / 8; ++i) words[i] = random.u64(i);
  return memory;
}

// Issues blocks round the volume, `width` of them under way, until told to stop.
class Sweep {
 public:
  Sweep(Volume& volume, Channel& channel, const BenchShape& shape, char* memory, uint64_t width)
      : channel_(channel),
        shape_(shape),
        memory_(memory),
        blocks_(volume.bytes() / shape.block_bytes),
        transfers_(width),
        idle_(width) {
    for (uint64_t i = 0; i < width; ++i) idle_[i] = width - 1 - i;
  }

  uint64_t blocks() const { return blocks_; }

  // Goes on for `budget` blocks or while `more()`, whichever ends first; then lets what is in
  // flight finish. Returns what is left of the budget.
  template <class More>
  uint64_t run(BenchMode mode, uint64_t budget, More more) {
    for (bool going = true; going || channel_.in_flight() > 0;) {
      going = going && budget > 0 && more();
      for (; going && budget > 0 && !idle_.empty(); --budget) submit(mode);
      if (channel_.poll() == 0) {
        channel_.wait(0.1);
        continue;
      }
      collect();
    }
    return budget;
  }

 private:
  void submit(BenchMode mode) {
    const uint64_t index = idle_.back();
    idle_.pop_back();
    const bool write = mode == BenchMode::kWrite || (mode == BenchMode::kMixed && next_ % 2 == 1);
    const uint64_t block = mode == BenchMode::kMixed ? mixed_block(next_) : next_ % blocks_;
    ++next_;
    Transfer& transfer = transfers_[index];
    transfer.direction = write ? Direction::kWrite : Direction::kRead;
    transfer.address = block * shape_.block_bytes;
    transfer.bytes = shape_.block_bytes;
    transfer.data = memory_ + index * shape_.block_bytes;
    transfer.tag = kTag;
    busy_.push_back(index);
    channel_.submit(&transfer);
  }

  // Reads go in order through the first half of the scratch, writes through the second.
  uint64_t mixed_block(uint64_t n) const {
    const uint64_t half = blocks_ / 2;
    return n / 2 % half + n % 2 * half;
  }

  void collect() {
    for (size_t i = 0; i < busy_.size();) {
      Transfer& transfer = transfers_[busy_[i]];
      if (!transfer.done) {
        ++i;
        continue;
      }
      if (transfer.error) throw Error(*transfer.error);
      idle_.push_back(busy_[i]);
      busy_[i] = busy_.back();
      busy_.pop_back();
    }
  }

  Channel& channel_;
  const BenchShape shape_;
  char* memory_;
  const uint64_t blocks_;
  std::vector<Transfer> transfers_;
  std::vector<uint64_t> idle_;
  std::vector<uint64_t> busy_;
  uint64_t next_ = 0;
};

}  // namespace

const char* name_of(BenchMode mode) {
  static constexpr const char* kNames[] = {"read", "write", "mixed", "training"};
  return kNames[static_cast<int>(mode)];
}

double process_cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

LatencySummary summarize(const LatencyHistogram& histogram) {
  return {.count = histogram.count(),
          .p50_s = histogram.percentile_s(0.5),
          .p99_s = histogram.percentile_s(0.99),
          .p999_s = histogram.percentile_s(0.999),
          .max_s = histogram.max_s()};
}

IoBench::IoBench(const BenchOptions& options) : options_(options) {
  limiter_ = std::make_unique<RateLimiter>(options.limits);
  if (!(options.seconds > 0) || !(options.sample_s > 0)) {
    throw Error(ErrorCode::kConfig, "I/O benchmark: seconds must be positive");
  }
}

IoBench::~IoBench() = default;

BenchResult IoBench::measure(const BenchShape& shape) {
  prepare(shape);
  return shape.mode == BenchMode::kTraining ? training(shape) : sweep(shape);
}

uint64_t IoBench::write_allowance() const {
  return options_.write_limit_bytes - std::min(options_.write_limit_bytes, bytes_written_);
}

ChannelOptions IoBench::channel_options(const BenchShape& shape, char* memory, uint64_t bytes) {
  return {.backend = options_.backend,
          .depth = shape.depth,
          .request_bytes = shape.block_bytes,
          .max_transfers = shape.depth * 4,
          .regions = {{memory, bytes}},
          .limiter = limiter_.get(),
          .verify = options_.verify};
}

// Makes the volume for a shape and writes all of it once: reading what was never written costs a
// drive nothing.
void IoBench::prepare(const BenchShape& shape) {
  const auto refuse = [](const std::string& what) {
    throw Error(ErrorCode::kConfig, "I/O benchmark: " + what);
  };
  if (shape.block_bytes < 4096 || (shape.block_bytes & (shape.block_bytes - 1)) != 0 ||
      shape.block_bytes > (64u << 20)) {
    refuse("block size " + std::to_string(shape.block_bytes) +
           " must be a power of two from 4 KiB to 64 MiB");
  }
  if (shape.depth == 0 || shape.depth > 1024) refuse("depth must be from 1 to 1024");
  const uint64_t least = shape.block_bytes * shape.depth * 8;
  if (options_.bytes < least) {
    refuse("scratch of " + format_bytes(static_cast<int64_t>(options_.bytes)) +
           " is too small, this shape wants " + format_bytes(static_cast<int64_t>(least)) +
           " (raise the size)");
  }
  const uint64_t checksum_bytes = std::min<uint64_t>(shape.block_bytes, 64 << 10);
  const uint64_t stripe_bytes = std::max<uint64_t>(shape.block_bytes, 1 << 20);
  if (volume_ != nullptr && files_ == shape.files && volume_->block_bytes() == checksum_bytes &&
      volume_->stripe_bytes() == stripe_bytes) {
    return;
  }
  // An even number of blocks: a mixed load reads one half and writes the other.
  const uint64_t bytes = options_.bytes / (2 * stripe_bytes) * 2 * stripe_bytes;
  if (write_allowance() < bytes) {
    refuse("filling scratch of " + format_bytes(static_cast<int64_t>(bytes)) +
           " exceeds the limit on bytes written of " +
           format_bytes(static_cast<int64_t>(options_.write_limit_bytes)) +
           " (raise it, or shrink the scratch)");
  }
  volume_.reset();  // frees its space and its lock first
  volume_ = std::make_unique<Volume>(
      VolumeOptions{.directories = options_.directories,
                    .files_per_directory = shape.files,
                    .bytes = bytes,
                    .stripe_bytes = stripe_bytes,
                    .block_bytes = checksum_bytes,
                    .owner = "strata bench io",
                    .allow_memory_filesystem = options_.allow_memory_filesystem});
  files_ = shape.files;
  BenchShape fill = shape;
  fill.block_bytes = stripe_bytes;
  fill.depth = 8;
  const uint64_t memory_bytes = fill.block_bytes * 16;
  const Memory memory = make_memory(memory_bytes);
  ChannelOptions options = channel_options(fill, memory.get(), memory_bytes);
  options.verify = true;  // seals every block, whatever the measurements do
  Channel channel(*volume_, options);
  Sweep sweep(*volume_, channel, fill, memory.get(), 16);
  sweep.run(BenchMode::kWrite, sweep.blocks(), [] { return true; });
  bytes_written_ += channel.stats().bytes_written;
}

BenchResult IoBench::sweep(const BenchShape& shape) {
  // Twice the depth: some blocks are verified or sealed while `depth` of them are with the drive.
  const uint64_t width = uint64_t{shape.depth} * 2;
  const uint64_t memory_bytes = width * shape.block_bytes;
  const Memory memory = make_memory(memory_bytes);
  Channel channel(*volume_, channel_options(shape, memory.get(), memory_bytes));
  Sweep sweep(*volume_, channel, shape, memory.get(), width);

  BenchResult result;
  result.shape = shape;
  result.backend = channel.backend_name();
  result.verified = options_.verify;
  result.direct = std::all_of(volume_->files().begin(), volume_->files().end(),
                              [](const ScratchFile& file) { return file.direct; });
  uint64_t budget = std::numeric_limits<uint64_t>::max();
  if (shape.mode != BenchMode::kRead) {
    budget = write_allowance() / shape.block_bytes * (shape.mode == BenchMode::kMixed ? 2 : 1);
  }
  const double cpu_start_s = process_cpu_s();
  const double start_s = now_s();
  BenchSample last;
  uint64_t last_read = 0;
  uint64_t last_written = 0;
  budget = sweep.run(shape.mode, budget, [&] {
    const double at_s = now_s() - start_s;
    const ChannelStats& stats = channel.stats();
    if (at_s - last.at_s >= options_.sample_s) {
      const double span_s = at_s - last.at_s;
      last = {
          .at_s = at_s,
          .read_bytes_per_s = static_cast<double>(stats.bytes_read - last_read) / span_s,
          .write_bytes_per_s = static_cast<double>(stats.bytes_written - last_written) / span_s};
      last_read = stats.bytes_read;
      last_written = stats.bytes_written;
      result.samples.push_back(last);
    }
    return at_s < options_.seconds;
  });
  result.write_limit_reached = budget == 0;
  result.seconds = now_s() - start_s;
  result.cpu_s = process_cpu_s() - cpu_start_s;

  const ChannelStats& stats = channel.stats();
  result.bytes_read = stats.bytes_read;
  result.bytes_written = stats.bytes_written;
  result.read = summarize(stats.read_latency);
  result.write = summarize(stats.write_latency);
  for (size_t i = 0; i < stats.files.size(); ++i) {
    result.files.push_back(
        {.name = volume_->files()[i].name,
         .read_bytes_per_s = static_cast<double>(stats.files[i].bytes_read) / result.seconds,
         .write_bytes_per_s = static_cast<double>(stats.files[i].bytes_written) / result.seconds});
  }
  bytes_written_ += stats.bytes_written;
  return result;
}

}  // namespace strata::io
