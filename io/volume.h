// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace strata::io {

struct VolumeOptions {
  std::vector<std::string> directories;  // one scratch file in each; striped over all of them
  std::vector<double> weights;           // relative speed of each; empty = equal
  uint64_t bytes = 0;                    // capacity, a multiple of 4096
  uint64_t stripe_bytes = 1 << 20;       // a multiple of block_bytes
  uint64_t block_bytes = 64 << 10;       // what one checksum covers; a multiple of the DIO alignment
  std::string owner;                     // written into the lock file: who holds the directory
};

// A flat address space [0, bytes) striped over scratch files.
//
// Guarantees: preallocated in full, 0600, locked against a second run, gone when the process dies
// (O_TMPFILE, or unlinked after opening where the file system lacks it), O_DIRECT where the file system
// has it. Holds one XXH3-64 per block in memory, seeded with (tag, block address): a stale, torn, flipped
// or misdirected block is an error when it is read. A file that failed a write is poisoned: never read
// again.
// Not guaranteed: order or atomicity of overlapping transfers; the caller orders them.
// Threads: channels on several threads may use one volume; blocks they touch must be disjoint or ordered.
// Failure: construction throws Error (kConfig, kDoesNotFit, kIo) and leaves nothing behind.
class Volume;

enum class Direction : uint8_t { kRead, kWrite };

// One planned movement; owned by the caller and at a fixed address until `done`.
struct Transfer {
  Direction direction = Direction::kRead;
  uint64_t address = 0;   // multiple of 4096
  uint64_t bytes = 0;     // multiple of 4096
  void* data = nullptr;   // 4096-aligned
  uint64_t tag = 0;       // (chunk, plane, generation); a read must name the tag of the write
  bool done = false;
  std::unique_ptr<Error> error;  // set with `done` when it failed
  void* user = nullptr;
};

enum class Backend : uint8_t { kAuto, kUring, kThreads, kSimulated };

}  // namespace strata::io
