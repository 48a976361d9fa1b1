// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/drive_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/check.h"

namespace strata::plan {
namespace {

constexpr int kWriteQueue = DriveModel::kQueueCount - 1;

}  // namespace

DriveModel::DriveModel(const Rates& rates, int depth) : rates_(rates) {
  for (Queue& queue : queues_) queue.ring.resize(static_cast<size_t>(depth));
  servers_[0] = {.first = 0, .last = rates.half_duplex ? kQueueCount : kWriteQueue};
  servers_[1] = {.first = servers_[0].last, .last = kQueueCount};
  finished_.reserve(servers_.size());
}

void DriveModel::add(int queue, int64_t number, double bytes) {
  STRATA_CHECK((queue == kWriteQueue ? rates_.write_bytes_per_s : rates_.read_bytes_per_s) > 0);
  Queue& q = queues_[static_cast<size_t>(queue)];
  STRATA_CHECK(q.count < q.ring.size());
  q.ring[(q.head + q.count) % q.ring.size()] = {number, bytes, bytes};
  ++q.count;
  Server& server = server_of(queue);
  if (server.current < 0) {
    choose(server);
    set_rates();
  } else if (queue < server.current) {
    const Request& request = queues_[static_cast<size_t>(server.current)].front();
    const double served = request.bytes - request.left;
    // Without the small term, rounding could grant a whole quantum at the end of the last one.
    const double boundary = std::ceil(served / kQuantumBytes - 1e-9) * kQuantumBytes;
    server.segment = std::min(request.left, std::max(0.0, boundary - served));
  }
}

void DriveModel::choose(Server& server) {
  server.current = -1;
  for (int i = server.first; i < server.last; ++i) {
    Queue& queue = queues_[static_cast<size_t>(i)];
    if (queue.count == 0) continue;
    server.current = i;
    server.segment = queue.front().left;
    return;
  }
}

void DriveModel::set_rates() {
  const bool both = servers_[0].current >= 0 && servers_[1].current >= 0;
  const double alone = rates_.read_bytes_per_s + rates_.write_bytes_per_s;
  const double share = both && rates_.mixed_bytes_per_s > 0 ? rates_.mixed_bytes_per_s / alone : 1;
  for (Server& server : servers_) {
    const bool writes = server.current == kWriteQueue;
    server.rate = share * (writes ? rates_.write_bytes_per_s : rates_.read_bytes_per_s);
  }
}

double DriveModel::next_s() const {
  double next = std::numeric_limits<double>::infinity();
  for (const Server& server : servers_) {
    if (server.current >= 0) next = std::min(next, server.segment / server.rate);
  }
  return next;
}

void DriveModel::advance(double dt_s) {
  finished_.clear();
  bool chose = false;
  for (Server& server : servers_) {
    if (server.current < 0) continue;
    Queue& queue = queues_[static_cast<size_t>(server.current)];
    Request& request = queue.front();
    if (dt_s < server.segment / server.rate) {
      const double moved = dt_s * server.rate;
      server.segment = std::max(0.0, server.segment - moved);
      request.left = std::max(0.0, request.left - moved);
      continue;
    }
    const bool ends = server.segment >= request.left;
    request.left -= server.segment;
    if (ends) {
      finished_.push_back({server.current, request.number});
      queue.head = (queue.head + 1) % queue.ring.size();
      --queue.count;
    }
    choose(server);
    chose = true;
  }
  if (chose) set_rates();
}

double DriveModel::rate_of(bool reads) const {
  double rate = 0;
  for (const Server& server : servers_) {
    if (server.current >= 0 && (server.current != kWriteQueue) == reads) rate += server.rate;
  }
  return rate;
}

}  // namespace strata::plan
