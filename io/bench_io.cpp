// SPDX-License-Identifier: Apache-2.0
#include "io/bench_io.h"

#include <sys/resource.h>

#include <algorithm>
#include <limits>

#include "engine/base/clock.h"
#include "engine/base/units.h"

namespace strata::io {
namespace {

constexpr uint64_t kScratchTag = 1;

Error refused_bench(const std::string& what) {
  return Error(ErrorCode::kConfig, "I/O benchmark: " + what);
}

uint64_t stripe_bytes_of(const BenchShape& shape) {
  return std::max<uint64_t>(shape.block_bytes, 1 << 20);
}

uint64_t checksum_bytes_of(const BenchShape& shape) {
  return std::min<uint64_t>(shape.block_bytes, 64 << 10);
}

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

// Issues blocks round the volume, with one in flight for each transfer of its lane, until told to
// stop.
class Sweep {
 public:
  Sweep(Volume& volume, const ChannelOptions& options, const BenchShape& shape,
        const std::atomic<bool>* stop)
      : shape_(shape),
        memory_(static_cast<std::byte*>(options.regions[0].data)),
        blocks_(volume.bytes() / shape.block_bytes),
        stop_(stop),
        transfers_(options.max_transfers),
        idle_(options.max_transfers),
        channel_(volume, options) {
    for (uint64_t i = 0; i < idle_.size(); ++i) idle_[i] = idle_.size() - 1 - i;
  }

  uint64_t blocks() const { return blocks_; }
  const Channel& channel() const { return channel_; }

  // Issues up to `budget` blocks while `more()` holds. Then it waits for the blocks in flight,
  // except after an interruption, since a rate-limited drive would take minutes. Returns the rest
  // of the budget.
  template <class More>
  uint64_t run(BenchMode mode, uint64_t budget, More more) {
    for (bool going = true; going || channel_.in_flight() > 0;) {
      if (stop_ != nullptr && *stop_) break;
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
    transfer.tag = kScratchTag;
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

  const BenchShape shape_;
  std::byte* memory_;
  const uint64_t blocks_;
  const std::atomic<bool>* stop_;
  std::vector<Transfer> transfers_;
  std::vector<uint64_t> idle_;
  std::vector<uint64_t> busy_;
  uint64_t next_ = 0;
  Channel channel_;  // destroyed first: it may still hold transfers
};

}  // namespace

const char* name_of(BenchMode mode) {
  static constexpr const char* kNames[] = {"read", "write", "mixed"};
  return kNames[static_cast<int>(mode)];
}

double process_cpu_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

Cliff find_cliff(const BenchResult& result) {
  constexpr size_t kLeastSamples = 20;
  constexpr double kShare = 0.6;  // noise of a shared machine alone costs a quarter
  const size_t count = result.samples.size();
  if (count < kLeastSamples) return {};
  std::vector<double> sums = {0};
  for (const BenchSample& sample : result.samples) {
    sums.push_back(sums.back() + sample.read_bytes_per_s + sample.write_bytes_per_s);
  }
  const auto mean = [&sums](size_t begin, size_t end) {
    return (sums[end] - sums[begin]) / static_cast<double>(end - begin);
  };
  Cliff cliff;
  const size_t window = count / 10;
  for (size_t begin = 0; begin + window <= count; ++begin) {
    cliff.best_bytes_per_s = std::max(cliff.best_bytes_per_s, mean(begin, begin + window));
  }
  cliff.tail_bytes_per_s = mean(count - count / 4, count);
  cliff.found = cliff.tail_bytes_per_s < kShare * cliff.best_bytes_per_s;
  return cliff;
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
    throw refused_bench("seconds must be positive");
  }
}

IoBench::~IoBench() = default;

BenchResult IoBench::measure(const BenchShape& shape, double seconds, bool verify) {
  check(shape, options_.bytes);
  const bool is_first = bytes_written_ == 0;  // the first measurement always runs
  if (fills_for(shape, verify) && !is_first && write_allowance() < options_.bytes) {
    BenchResult nothing;
    nothing.shape = shape;
    nothing.write_limit_reached = true;
    return nothing;
  }
  prepare(shape, verify);
  if (stopped()) {
    BenchResult nothing;
    nothing.shape = shape;
    nothing.interrupted = true;
    return nothing;
  }
  BenchResult result = sweep(shape, seconds, verify);
  result.interrupted = stopped();
  // An interrupted write also leaves blocks that cannot be verified.
  if ((!verify && result.bytes_written > 0) || result.interrupted) {
    sealed_[1] = false;
    if (shape.mode != BenchMode::kMixed) sealed_[0] = false;
  }
  return result;
}

uint64_t IoBench::write_allowance() const {
  const uint64_t written = bytes_written_ + bytes_charged_;
  return options_.write_limit_bytes - std::min(options_.write_limit_bytes, written);
}

bool IoBench::direct() const {
  return std::all_of(volume_->files().begin(), volume_->files().end(),
                     [](const ScratchFile& file) { return file.direct; });
}

ChannelOptions IoBench::channel_options(const BenchShape& shape, bool verify, uint32_t transfers,
                                        const BenchMemory& memory) {
  return {.backend = options_.backend,
          .depth = shape.depth,
          .request_bytes = shape.block_bytes,
          .max_transfers = transfers,
          .regions = {{memory.data(), transfers * shape.block_bytes}},
          .limiter = limiter_.get(),
          .deadline_s = options_.deadline_s,
          .verify = verify};
}

void IoBench::check(const BenchShape& shape, uint64_t scratch_bytes) {
  if (shape.block_bytes < 4096 || (shape.block_bytes & (shape.block_bytes - 1)) != 0 ||
      shape.block_bytes > (64u << 20)) {
    throw refused_bench("block size " + std::to_string(shape.block_bytes) +
                        " must be a power of two from 4 KiB to 64 MiB");
  }
  if (shape.depth == 0 || shape.depth > 1024) throw refused_bench("depth must be from 1 to 1024");
  if (shape.files == 0 || shape.files > 64) {
    throw refused_bench("files_per_directory " + std::to_string(shape.files) +
                        " must be from 1 to 64");
  }
  // An even number of stripes: a mixed load reads one half and writes the other.
  const uint64_t two_stripes = 2 * stripe_bytes_of(shape);
  uint64_t least = std::max(shape.block_bytes * shape.depth * 8, two_stripes);
  least = (least + two_stripes - 1) / two_stripes * two_stripes;
  if (scratch_bytes < least) {
    throw refused_bench("scratch of " + format_bytes(static_cast<int64_t>(scratch_bytes)) +
                        " is too small: " + name_of(shape.mode) +
                        " at this block size and depth needs " +
                        format_bytes(static_cast<int64_t>(least)) +
                        " (raise the size, use smaller blocks, or leave out that mode)");
  }
}

bool IoBench::same_volume(const BenchShape& a, const BenchShape& b) {
  return a.files == b.files && stripe_bytes_of(a) == stripe_bytes_of(b) &&
         checksum_bytes_of(a) == checksum_bytes_of(b);
}

bool IoBench::has_volume_for(const BenchShape& shape) const {
  return volume_ != nullptr && files_ == shape.files &&
         volume_->block_bytes() == checksum_bytes_of(shape) &&
         volume_->stripe_bytes() == stripe_bytes_of(shape);
}

// Whether the blocks that the shape reads must first be written with checksums.
bool IoBench::must_fill(const BenchShape& shape) const {
  const bool reads_first_half = shape.mode != BenchMode::kWrite;
  const bool reads_second_half = reads_first_half && shape.mode != BenchMode::kMixed;
  return (reads_first_half && !sealed_[0]) || (reads_second_half && !sealed_[1]);
}

bool IoBench::fills_for(const BenchShape& shape, bool verify) const {
  return !has_volume_for(shape) || (verify && must_fill(shape));
}

// Makes a volume for the shape if needed, and writes what the shape will read.
void IoBench::prepare(const BenchShape& shape, bool verify) {
  if (!fills_for(shape, verify)) return;
  if (!has_volume_for(shape)) {
    make_volume(shape, stripe_bytes_of(shape), checksum_bytes_of(shape));
  }
  fill();
}

void IoBench::make_volume(const BenchShape& shape, uint64_t stripe_bytes, uint64_t checksum_bytes) {
  volume_.reset();  // frees its space and its lock first
  const uint64_t bytes = options_.bytes / (2 * stripe_bytes) * 2 * stripe_bytes;
  const uint64_t allowance = write_allowance();
  try {
    volume_ = std::make_unique<Volume>(
        VolumeOptions{.directories = options_.directories,
                      .weights = options_.weights,
                      .files_per_directory = shape.files,
                      .bytes = bytes,
                      .stripe_bytes = stripe_bytes,
                      .block_bytes = checksum_bytes,
                      .owner = options_.owner,
                      .lock_name = options_.lock_name,
                      .zeros_limit_bytes = allowance - std::min(allowance, bytes),
                      .zeros_deadline_s = options_.deadline_s,
                      .allow_memory_filesystem = options_.allow_memory_filesystem});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDoesNotFit) throw;
    throw Error(error.code(), error.what() + std::string("; or lower the size"));
  }
  files_ = shape.files;
  for (const ScratchFile& file : volume_->files()) bytes_written_ += file.zeroed_bytes;
}

// Writes the whole volume once, with checksums, because reading blocks that were never written
// costs a drive nothing.
void IoBench::fill() {
  if (write_allowance() < volume_->bytes()) {
    const uint64_t bytes = volume_->bytes();
    volume_.reset();
    throw refused_bench("filling the scratch of " + format_bytes(static_cast<int64_t>(bytes)) +
                        " would write more than is left of the limit on bytes written, " +
                        format_bytes(static_cast<int64_t>(options_.write_limit_bytes)) +
                        " (raise --write-limit, or lower --size)");
  }
  const BenchShape shape = {
      .mode = BenchMode::kWrite, .block_bytes = volume_->stripe_bytes(), .depth = 8};
  constexpr uint32_t kWidth = 16;
  const BenchMemory memory(shape.block_bytes * kWidth);
  Sweep sweep(*volume_, channel_options(shape, true, kWidth, memory), shape, options_.stop);
  sweep.run(BenchMode::kWrite, sweep.blocks(), [] { return true; });
  bytes_written_ += sweep.channel().stats().bytes_written;
  sealed_[0] = sealed_[1] = !stopped();
}

BenchResult IoBench::sweep(const BenchShape& shape, double seconds, bool verify) {
  // Twice the depth: some blocks are being hashed while the drive works on `depth` others.
  const uint32_t width = shape.depth * 2;
  const BenchMemory memory(width * shape.block_bytes);
  Sweep sweep(*volume_, channel_options(shape, verify, width, memory), shape, options_.stop);
  const Channel& channel = sweep.channel();

  BenchResult result;
  result.shape = shape;
  result.backend = channel.backend_name();
  result.verified = verify;
  result.direct = direct();
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
    return at_s < seconds;
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
