// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "tests/cuda/fake_gpu.h"

// Ranks that are threads, each with a fake CUDA device that sends others memory.
namespace strata::test {

using Transfers = std::vector<kernels::Peers::Transfer>;

inline constexpr const char* kOp = "hand over";
inline constexpr int64_t kRoom = 1 << 16;  // of a piece of memory

inline std::unique_ptr<kernels::Device> make_device(int index) {
  return FakeGpu::plugin().make({.index = index});
}

inline kernels::PeersId make_id() {
  return make_device(0)->make_peers_id();
}

inline void await(kernels::Queue& queue, int64_t count) {
  while (queue.completed() < count) queue.sleep(count, 1.0);
}

// A rank with memory for its pieces, in and out.
struct Rank {
  Rank(int rank_in, int size_in, int device_index)
      : rank(rank_in),
        size(size_in),
        device(make_device(device_index)),
        memory(device->allocate(kBytes)) {}

  void join(const kernels::PeersId& id, std::function<void()> keep_waiting = {}) {
    peers = device->join(
        {.id = id, .rank = rank, .size = size, .keep_waiting = std::move(keep_waiting)});
    queue = device->make_queue("comm", 4);
  }
  std::byte* at(int64_t offset) const { return memory->data() + offset; }

  // Issues an op that exchanges. Returns its number.
  int64_t exchange(const Transfers& sends, const Transfers& receives) {
    queue->begin(kOp, {});
    peers->exchange(*queue, sends, receives);
    return queue->end();
  }
  // Sends a piece to the next rank, and receives that of the rank before.
  int64_t pass_on(int64_t from, int64_t to) {
    return exchange({{at(from), kRoom, (rank + 1) % size}},
                    {{at(to), kRoom, (rank + size - 1) % size}});
  }

  static constexpr int64_t kBytes = 32 * kRoom;
  const int rank;
  const int size;
  const std::unique_ptr<kernels::Device> device;
  const std::unique_ptr<kernels::DeviceMemory> memory;
  std::unique_ptr<kernels::Peers> peers;
  std::unique_ptr<kernels::Queue> queue;
};

// What each rank's thread ended with; "" where it ended well.
inline std::vector<std::string> on_ranks(int count, const std::function<void(int)>& body) {
  std::vector<std::string> said(static_cast<size_t>(count));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kPeer) << error.what();
        said[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  threads.clear();
  return said;
}

inline void expect_all_well(const std::vector<std::string>& said) {
  for (const std::string& one : said) EXPECT_EQ(one, "");
}

inline std::string said_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeer) << error.what();
    return error.what();
  }
  return "";
}

}  // namespace strata::test

#define EXPECT_SAYS(text, words) EXPECT_NE((text).find(words), std::string::npos) << (text)
