// SPDX-License-Identifier: Apache-2.0
#include "io/volume.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "engine/base/check.h"
#include "engine/base/units.h"
#include "io/checksum.h"
#include "io/scratch_file.h"

namespace strata::io {
namespace {

constexpr uint64_t kMaxBytes = uint64_t{1} << 50;
// The least stripes in one cycle when the weights differ, in all and for each directory, before the
// files of a directory share them. A weight is met to within half a stripe.
constexpr uint32_t kCycleStripes = 256;
constexpr uint32_t kCycleStripesOfEach = 64;

Error refused(const std::string& what) {
  return Error(ErrorCode::kConfig, "scratch volume: " + what);
}

void check_options(const VolumeOptions& options) {
  const uint64_t block = options.block_bytes;
  if (options.directories.empty()) throw refused("no directory is named (name one: --nvme DIR)");
  if (options.directories.size() > 64) throw refused("more than 64 directories (name at most 64)");
  if (options.files_per_directory == 0 || options.files_per_directory > 64) {
    throw refused("files_per_directory must be from 1 to 64");
  }
  if (block < 4096 || block > (64u << 20) || (block & (block - 1)) != 0) {
    throw refused("block_bytes " + std::to_string(block) +
                  " must be a power of two from 4 KiB to 64 MiB");
  }
  if (options.stripe_bytes == 0 || options.stripe_bytes % block != 0) {
    throw refused("stripe_bytes " + std::to_string(options.stripe_bytes) +
                  " must be a multiple of block_bytes " + std::to_string(block));
  }
  if (options.bytes == 0 || options.bytes % 4096 != 0 || options.bytes > kMaxBytes) {
    throw refused("bytes " + std::to_string(options.bytes) +
                  " must be a multiple of 4096 up to 1 PiB, not 0");
  }
  if (options.lock_name.empty() || options.lock_name.find('/') != std::string::npos) {
    throw refused("lock_name must be a plain file name");
  }
  if (options.weights.empty()) return;
  if (options.weights.size() != options.directories.size()) {
    throw refused(std::to_string(options.weights.size()) + " weights for " +
                  std::to_string(options.directories.size()) + " directories (give one for each)");
  }
  for (const double weight : options.weights) {
    if (!std::isfinite(weight) || weight <= 0)
      throw refused("a weight is not a positive number (give one for each directory, above 0)");
  }
}

// How many stripes of a cycle each directory gets: at least one, in proportion to its weight.
std::vector<uint64_t> stripes_per_cycle(const std::vector<double>& weights, size_t directories) {
  const bool equal =
      std::all_of(weights.begin(), weights.end(), [&](double w) { return w == weights[0]; });
  if (weights.empty() || equal) return std::vector<uint64_t>(directories, 1);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  const double cycle =
      static_cast<double>(std::max<size_t>(kCycleStripes, kCycleStripesOfEach * directories));
  std::vector<uint64_t> counts;
  for (const double weight : weights) {
    counts.push_back(
        std::max<uint64_t>(1, static_cast<uint64_t>(std::lround(cycle * weight / sum))));
  }
  return counts;
}

// Spreads each directory's stripes evenly over the cycle: the next stripe goes to the directory
// that is furthest behind its share.
std::vector<uint32_t> interleave(const std::vector<uint64_t>& counts) {
  const uint64_t total = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  std::vector<uint64_t> used(counts.size(), 0);
  std::vector<uint32_t> pattern;
  for (uint64_t position = 0; position < total; ++position) {
    size_t best = 0;
    double best_lag = -1e300;
    for (size_t i = 0; i < counts.size(); ++i) {
      const double due =
          static_cast<double>((position + 1) * counts[i]) / static_cast<double>(total);
      const double lag = (due - static_cast<double>(used[i])) / static_cast<double>(counts[i]);
      if (used[i] < counts[i] && lag > best_lag) {
        best = i;
        best_lag = lag;
      }
    }
    ++used[best];
    pattern.push_back(static_cast<uint32_t>(best));
  }
  return pattern;
}

// Gives the stripes of a directory to its files by turns. Repeats the cycle of directories until
// every file of a directory has as many stripes as the others.
std::vector<uint32_t> spread_over_files(const std::vector<uint32_t>& directory_pattern,
                                        size_t directories, uint32_t files_per_directory) {
  std::vector<uint32_t> next(directories, 0);
  std::vector<uint32_t> pattern;
  pattern.reserve(directory_pattern.size() * files_per_directory);
  for (uint32_t cycle = 0; cycle < files_per_directory; ++cycle) {
    for (const uint32_t directory : directory_pattern) {
      const uint32_t file = next[directory]++ % files_per_directory;
      pattern.push_back(file * static_cast<uint32_t>(directories) + directory);
    }
  }
  return pattern;
}

// Checks free space before any byte is reserved, so that a volume that is far too large does not
// first fill the disk.
void check_space(const std::vector<std::unique_ptr<DirectoryLock>>& locks,
                 const std::vector<uint64_t>& need, bool allow_memory) {
  struct Device {
    uint64_t need = 0;
    uint64_t free = 0;
    std::string directories;
  };
  std::map<uint64_t, Device> devices;
  for (size_t i = 0; i < locks.size(); ++i) {
    const FreeSpace space = free_space(*locks[i]);
    if (space.memory && !allow_memory) {
      throw refused(
          locks[i]->directory() +
          ": it is on tmpfs or ramfs, which use the memory that scratch should save (name a "
          "directory on a drive)");
    }
    Device& device = devices[space.device];
    for (size_t file = i; file < need.size(); file += locks.size()) device.need += need[file];
    device.free = space.bytes;
    device.directories += (device.directories.empty() ? "" : ", ") + locks[i]->directory();
  }
  for (const auto& [id, device] : devices) {
    if (device.need <= device.free) continue;
    const auto text = [](uint64_t bytes) { return format_bytes(static_cast<int64_t>(bytes)); };
    throw Error(ErrorCode::kDoesNotFit, "reserve scratch: " + device.directories + ": needs " +
                                            text(device.need) + ", free " + text(device.free) +
                                            ", missing " + text(device.need - device.free) +
                                            " (free space there, or name another directory)");
  }
}

}  // namespace

Volume::Volume(const VolumeOptions& options)
    : bytes_(options.bytes),
      block_bytes_(options.block_bytes),
      stripe_bytes_(options.stripe_bytes) {
  check_options(options);
  // File f is in directory f % directories, so that neighbouring stripes go to different drives.
  const size_t directories = options.directories.size();
  const size_t count = directories * options.files_per_directory;
  const std::vector<uint64_t> shares = stripes_per_cycle(options.weights, directories);
  for (size_t file = 0; file < count; ++file) per_cycle_.push_back(shares[file % directories]);
  pattern_ = spread_over_files(interleave(shares), directories, options.files_per_directory);
  std::vector<uint64_t> seen(count, 0);
  for (const uint32_t file : pattern_) rank_.push_back(seen[file]++);

  std::vector<uint64_t> file_bytes(count, 0);
  const uint64_t stripes = (bytes_ + stripe_bytes_ - 1) / stripe_bytes_;
  for (size_t file = 0; file < count; ++file) {
    file_bytes[file] = stripes / pattern_.size() * per_cycle_[file] * stripe_bytes_;
  }
  for (uint64_t i = 0; i < stripes % pattern_.size(); ++i) file_bytes[pattern_[i]] += stripe_bytes_;
  if (count == 1) file_bytes[0] = bytes_;
  for (uint64_t& bytes : file_bytes) bytes = std::max<uint64_t>(bytes, 4096);

  for (const std::string& directory : options.directories) {
    locks_.push_back(std::make_unique<DirectoryLock>(directory, options.lock_name, options.owner));
  }
  check_space(locks_, file_bytes, options.allow_memory_filesystem);
  uint64_t zeros_limit_bytes = options.zeros_limit_bytes;
  try {
    for (size_t file = 0; file < count; ++file) {
      files_.push_back(create_scratch(*locks_[file % directories],
                                      {.bytes = file_bytes[file],
                                       .index = static_cast<uint32_t>(file / directories),
                                       .count = options.files_per_directory,
                                       .direct = options.direct,
                                       .zeros_limit_bytes = zeros_limit_bytes,
                                       .zeros_deadline_s = options.zeros_deadline_s,
                                       .leftover_name = options.lock_name + ".scratch"}));
      zeros_limit_bytes -= files_.back().zeroed_bytes;
      alignment_ = std::max(alignment_, files_.back().alignment);
    }
    const uint64_t blocks = (bytes_ + block_bytes_ - 1) / block_bytes_;
    checksums_ = std::make_unique<uint64_t[]>(blocks);
    poisoned_ = std::make_unique<std::atomic<bool>[]>(count);
  } catch (...) {
    for (const ScratchFile& file : files_) close(file.fd);
    throw;
  }
}

Volume::~Volume() {
  for (const ScratchFile& file : files_) close(file.fd);
  const VolumeCounters totals = counters();
  STRATA_CHECK(totals.bytes_read == totals.bytes_verified + totals.bytes_rejected +
                                        totals.bytes_abandoned + totals.bytes_unverified);
}

VolumeCounters Volume::counters() const {
  return {.bytes_read = bytes_read_,
          .bytes_verified = bytes_verified_,
          .bytes_rejected = bytes_rejected_,
          .bytes_abandoned = bytes_abandoned_,
          .bytes_unverified = bytes_unverified_,
          .bytes_written = bytes_written_,
          .rereads = rereads_};
}

Location Volume::locate(uint64_t address) const {
  const uint64_t stripe = address / stripe_bytes_;
  const uint64_t within = address % stripe_bytes_;
  const uint64_t position = stripe % pattern_.size();
  const uint32_t file = pattern_[position];
  if (files_.size() == 1) return {file, address, bytes_ - address};
  const uint64_t row = stripe / pattern_.size() * per_cycle_[file] + rank_[position];
  return {file, row * stripe_bytes_ + within, std::min(stripe_bytes_ - within, bytes_ - address)};
}

void Volume::seal(uint64_t address, const void* data, uint64_t bytes, uint64_t tag) {
  const char* from = static_cast<const char*>(data);
  for (uint64_t at = 0; at < bytes; at += block_bytes_) {
    checksums_[(address + at) / block_bytes_] =
        checksum_block(from + at, std::min(block_bytes_, bytes - at), tag, address + at);
  }
}

void Volume::forget(uint64_t address, uint64_t bytes) {
  for (uint64_t at = 0; at < bytes; at += block_bytes_)
    checksums_[(address + at) / block_bytes_] = 0;
}

Volume::Mismatch Volume::verify(uint64_t address, const void* data, uint64_t bytes,
                                uint64_t tag) const {
  const char* from = static_cast<const char*>(data);
  for (uint64_t at = 0; at < bytes; at += block_bytes_) {
    const uint64_t covered = std::min(block_bytes_, bytes - at);
    const uint64_t expected = checksums_[(address + at) / block_bytes_];
    const uint64_t actual = checksum_block(from + at, covered, tag, address + at);
    if (actual == expected) continue;
    return {.found = true,
            .never_written = expected == 0,
            .address = address + at,
            .bytes = covered,
            .expected = expected,
            .actual = actual};
  }
  return {};
}

void Volume::poison(uint32_t file) {
  poisoned_[file].store(true, std::memory_order_release);
}

bool Volume::poisoned(uint32_t file) const {
  return poisoned_[file].load(std::memory_order_acquire);
}

}  // namespace strata::io
