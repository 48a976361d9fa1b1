// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

// Memory through which two processes of one machine pass bytes, and by which they wake each other.
namespace strata::comm {

// Wakes the process that owns it. A sleeper takes the count of rings, looks for work, and sleeps
// while the count is the same. Threads: ring() any of any process; sleep() the owner's.
class Doorbell {
 public:
  void ring();
  uint32_t rings() const { return rings_.load(std::memory_order_acquire); }
  void sleep(uint32_t seen, double timeout_s);

 private:
  std::atomic<uint32_t> rings_;
  std::atomic<uint32_t> sleepers_;
};

// Bytes from one process to another, in their order. One thread writes and one reads.
class NodeRing {
 public:
  static constexpr int64_t kBytes = int64_t{256} << 10;

  // Move as many bytes as there is room or content for, at most `bytes`, and return how many.
  int64_t write(const std::byte* from, int64_t bytes);
  int64_t read(std::byte* to, int64_t bytes);

 private:
  alignas(64) std::atomic<uint64_t> written_;  // bytes since the beginning
  alignas(64) std::atomic<uint64_t> read_;
  alignas(64) std::byte data_[kBytes];
};

// A process's memory that others of its machine and user map: its doorbell, and a ring for each
// other that writes to it. Zero-filled memory is a segment whose rings are empty.
class NodeSegment {
 public:
  // Makes the memory of this process. Throws Error{kConfig} where the system refuses it.
  explicit NodeSegment(int rings);
  // Maps that of another process by its name(). Throws Error{kConfig} where it cannot, as when the
  // two have process numbers of different namespaces.
  explicit NodeSegment(const std::string& name);
  ~NodeSegment();
  NodeSegment(const NodeSegment&) = delete;
  NodeSegment& operator=(const NodeSegment&) = delete;

  // By which others find it until keep_alone() is called.
  std::string name() const;
  // Nobody maps it any more; those who have keep it.
  void keep_alone();

  Doorbell& bell() { return head().bell; }
  NodeRing& ring(int index) {
    return *reinterpret_cast<NodeRing*>(memory_ + sizeof(Head) +
                                        static_cast<size_t>(index) * sizeof(NodeRing));
  }

 private:
  // Before the rings.
  struct alignas(64) Head {
    uint64_t nonce[2];  // of the name, so that no other memory is taken for it
    Doorbell bell;
  };
  Head& head() const { return *reinterpret_cast<Head*>(memory_); }
  static int64_t bytes_of(int rings) {
    return static_cast<int64_t>(sizeof(Head)) + rings * static_cast<int64_t>(sizeof(NodeRing));
  }
  void map(int file);

  int file_ = -1;
  int64_t bytes_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace strata::comm
