// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/plan/rates.h"

namespace strata::plan {

// A drive on a virtual clock with three queues (read_weights, read_state, write), served in this
// order of priority and each in order of arrival. A request of higher priority takes over at the
// end of the current quantum, so a running transfer delays it by at most kQuantumBytes.
//
// Use: only advance() moves the time, by at most next_s(). Afterwards, take the finished requests,
// then add new ones. Nothing is allocated after construction while no queue has more than `depth`
// requests.
class DriveModel {
 public:
  static constexpr int kQueueCount = 3;
  static constexpr double kQuantumBytes = 1 << 20;

  struct Finished {
    int queue = 0;
    int64_t number = 0;
  };

  DriveModel(const Rates& rates, int depth);

  void add(int queue, int64_t number, double bytes);
  double next_s() const;  // until a request or a quantum ends; infinite when idle
  void advance(double dt_s);
  const std::vector<Finished>& finished() const { return finished_; }  // by the last advance()

  // The current rates, in bytes a second.
  double read_rate() const { return rate_of(true); }
  double write_rate() const { return rate_of(false); }

 private:
  struct Request {
    int64_t number = 0;
    double bytes = 0;
    double left = 0;
  };
  struct Queue {
    std::vector<Request> ring;
    size_t head = 0;
    size_t count = 0;
    Request& front() { return ring[head]; }
  };
  // One direction, or both of a half-duplex drive.
  struct Server {
    int first = 0;  // queues [first, last)
    int last = 0;
    int current = -1;    // queue in service
    double segment = 0;  // bytes of its front request until the next choice
    double rate = 0;
  };

  Server& server_of(int queue) { return servers_[queue >= servers_[0].last ? 1 : 0]; }
  void choose(Server& server);
  void set_rates();
  double rate_of(bool reads) const;

  // Constant after construction.
  Rates rates_;

  std::array<Queue, kQueueCount> queues_;
  std::array<Server, 2> servers_;
  std::vector<Finished> finished_;
};

}  // namespace strata::plan
