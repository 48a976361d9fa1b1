// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "io/notices.h"

namespace strata::io {

struct VolumeOptions {
  std::vector<std::string> directories = {};  // striped over all of them
  std::vector<double> weights = {};           // relative speed of each; empty = equal
  uint32_t files_per_directory = 1;           // scratch files in each directory
  uint64_t bytes = 0;                         // capacity, a multiple of 4096
  uint64_t stripe_bytes = 1 << 20;            // a multiple of block_bytes
  uint64_t block_bytes = 64 << 10;            // of one checksum; a power of two >= 4096
  std::string owner = {};                     // written into the lock file: who holds the directory
  std::string lock_name = "strata.lock";      // ranks that share a directory need different names
  uint64_t zeros_limit_bytes = ~uint64_t{0};  // zeros that may reserve space without fallocate
  double zeros_deadline_s = 600;              // of one request that writes zeros
  bool allow_memory_filesystem = false;       // tmpfs would spend the RAM that scratch saves
  bool direct = true;                         // O_DIRECT where the file system has it
};

enum class Direction : uint8_t { kRead, kWrite };

inline const char* name_of(Direction direction) {
  return direction == Direction::kRead ? "read" : "write";
}

// One movement of bytes; owned by the caller and at a fixed address until `done`. The memory
// belongs to the channel from submit() until `done`.
//
// A transfer starts on a checksum block (VolumeOptions::block_bytes). It may end inside one: then
// that block's checksum covers only the bytes written, and a read of it must end at the same place.
// So extents start on multiples of block_bytes, and their sizes are multiples of 4096.
struct Transfer {
  Direction direction = Direction::kRead;
  uint64_t address = 0;  // multiple of block_bytes
  uint64_t bytes = 0;    // multiple of 4096, not 0
  void* data = nullptr;  // 4096-aligned
  uint64_t tag = 0;      // (chunk, plane, generation); a read must give the tag of the write
  bool done = false;     // set in Channel::poll(), on its thread
  std::unique_ptr<Error> error = {};  // set with `done` on failure; a read's memory is then garbage
  void* user = nullptr;
};

enum class Backend : uint8_t { kAuto, kUring, kThreads, kSimulated };

// One file of a volume.
struct ScratchFile {
  int fd = -1;
  std::string name = {};  // for messages: the file has no path of its own
  std::string directory = {};
  uint64_t bytes = 0;
  uint64_t zeroed_bytes = 0;  // zeros written to reserve it, where fallocate is missing
  bool direct = false;        // opened with O_DIRECT
  uint32_t alignment = 4096;  // of offsets, lengths and memory, from statx
};

// Where an address lies; `bytes` of the file are contiguous from there on.
struct Location {
  uint32_t file = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// Totals since construction. Bytes are counted as read when they arrive, and again under one of the
// four outcomes. When no transfer is in flight, read == verified + rejected + abandoned +
// unverified; the destructor checks this, so the program aborts if a caller got bytes that were not
// compared.
struct VolumeCounters {
  uint64_t bytes_read = 0;        // arrived from files
  uint64_t bytes_verified = 0;    // compared with their checksums and found right
  uint64_t bytes_rejected = 0;    // compared and found wrong
  uint64_t bytes_abandoned = 0;   // of requests and transfers that failed, of closed channels
  uint64_t bytes_unverified = 0;  // of channels that do not verify
  uint64_t bytes_written = 0;
  uint64_t rereads = 0;  // requests read again after EIO or a wrong checksum
};

class DirectoryLock;

// A flat address space [0, bytes) striped over scratch files.
//
// Guarantees: the files are preallocated in full, have mode 0600, are locked against a second run,
// disappear when the process dies (O_TMPFILE, or unlinked after opening where the file system lacks
// it) and use O_DIRECT where the file system has it. The volume holds one XXH3-64 checksum for each
// block in memory, seeded with (tag, block address), so a stale, torn, flipped or misdirected block
// is an error when it is read. A file that failed a write is poisoned: it is never read again.
// Not guaranteed: order or atomicity of overlapping transfers; the caller orders them.
// Threads: channels on several threads may use one volume; blocks they touch must be disjoint or
// ordered.
// Failure: construction throws Error (kConfig, kDoesNotFit, kIo, kDeadline) and leaves nothing
// behind.
// Memory: 8 bytes a block.
class Volume {
 public:
  explicit Volume(const VolumeOptions& options);
  ~Volume();
  Volume(const Volume&) = delete;
  Volume& operator=(const Volume&) = delete;

  uint64_t bytes() const { return bytes_; }
  uint64_t block_bytes() const { return block_bytes_; }
  uint64_t stripe_bytes() const { return stripe_bytes_; }
  uint32_t alignment() const { return alignment_; }
  const std::vector<ScratchFile>& files() const { return files_; }
  VolumeCounters counters() const;
  Notices& notices() { return notices_; }

  // For channels:
  Location locate(uint64_t address) const;
  void seal(uint64_t address, const void* data, uint64_t bytes, uint64_t tag);
  void forget(uint64_t address, uint64_t bytes);  // reads fail until it is written again
  // The first block of [address, address + bytes) whose checksum differs.
  struct Mismatch {
    bool found = false;
    bool never_written = false;
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t expected = 0;
    uint64_t actual = 0;
  };
  Mismatch verify(uint64_t address, const void* data, uint64_t bytes, uint64_t tag) const;
  void poison(uint32_t file);
  bool poisoned(uint32_t file) const;
  void count_read(uint64_t bytes) { bytes_read_.fetch_add(bytes, std::memory_order_relaxed); }
  void count_verified(uint64_t bytes) {
    bytes_verified_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_rejected(uint64_t bytes) {
    bytes_rejected_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_abandoned(uint64_t bytes) {
    bytes_abandoned_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_written(uint64_t bytes) { bytes_written_.fetch_add(bytes, std::memory_order_relaxed); }
  void count_unverified(uint64_t bytes) {
    bytes_unverified_.fetch_add(bytes, std::memory_order_relaxed);
  }
  void count_reread() { rereads_.fetch_add(1, std::memory_order_relaxed); }

 private:
  // Constant after construction.
  uint64_t bytes_ = 0;
  uint64_t block_bytes_ = 0;
  uint64_t stripe_bytes_ = 0;
  std::vector<std::unique_ptr<DirectoryLock>> locks_;
  std::vector<ScratchFile> files_;
  uint32_t alignment_ = 4096;        // the largest of the files'
  std::vector<uint32_t> pattern_;    // file of each stripe of one cycle
  std::vector<uint64_t> rank_;       // stripes of the same file before it in the cycle
  std::vector<uint64_t> per_cycle_;  // stripes of each file in one cycle

  // Not locked: callers order accesses to a block and its checksum.
  std::unique_ptr<uint64_t[]> checksums_;  // 0 = never written

  Notices notices_;
  std::unique_ptr<std::atomic<bool>[]> poisoned_;
  std::atomic<uint64_t> bytes_read_{0};
  std::atomic<uint64_t> bytes_verified_{0};
  std::atomic<uint64_t> bytes_rejected_{0};
  std::atomic<uint64_t> bytes_abandoned_{0};
  std::atomic<uint64_t> bytes_unverified_{0};
  std::atomic<uint64_t> bytes_written_{0};
  std::atomic<uint64_t> rereads_{0};
};

}  // namespace strata::io
