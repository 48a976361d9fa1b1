// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

// Devices that send each other memory without the host.
namespace strata::kernels {

class Queue;

// By which the devices of a group find each other: one of them makes it, all of them get it.
using PeersId = std::array<std::byte, 128>;

struct PeersOptions {
  PeersId id = {};
  int rank = 0;  // in the group
  int size = 1;
  // Called now and then while others are awaited, in join() and in exchange(); throws to end the
  // wait.
  std::function<void()> keep_waiting = {};
};

// A device's place among those of a group of ranks.
//
// Threads: exchange() belongs to the thread that issues to the queue; check() and abort() may be
// called by any. Failure: Error{kPeer} where a transfer or another device of the group has failed.
class Peers {
 public:
  virtual ~Peers() = default;

  struct Transfer {
    void* data = nullptr;  // of the device; only read where it is sent
    int64_t bytes = 0;     // more than 0
    int peer = 0;          // another rank
  };

  // Adds to the queue's open op: sends and receptions, which go on at the same time. What a rank
  // sends to another is what that rank receives from it, in the same order and sizes, in the calls
  // of one queue. Nothing that is received overlaps anything else of the call.
  virtual void exchange(Queue& queue, std::span<const Transfer> sends,
                        std::span<const Transfer> receives) = 0;

  // Throws where a transfer has failed since.
  virtual void check() = 0;

  // Ends transfers under way, so that their ops complete or fail. What they were to write is
  // undefined, and later calls throw.
  virtual void abort() = 0;
};

}  // namespace strata::kernels
