// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

namespace strata {

// How ranks that exchange lie on machines. Rank r of a job is on machine r / ranks_on_node.
//
// Returns how many of a group's ranks are on one machine: they follow each other in `ranks`, and
// every machine has as many. Where machines differ in that, 1: each rank counts as on its own.
// `ranks_on_node` of 0: all are on one machine. A pure function, so that ranks and plans agree.
int ranks_together(std::span<const int> ranks, int64_t ranks_on_node);

// Bytes of values that a rank has sent to others, without what calls say of themselves.
struct SentBytes {
  int64_t within = 0;   // to ranks of its machine
  int64_t between = 0;  // to those of others
  int64_t all() const { return within + between; }
  SentBytes& operator+=(const SentBytes& more) {
    within += more.within;
    between += more.between;
    return *this;
  }
  SentBytes operator-(const SentBytes& before) const {
    return {within - before.within, between - before.between};
  }
  SentBytes operator*(int64_t times) const { return {within * times, between * times}; }
  bool operator==(const SentBytes&) const = default;
};

}  // namespace strata
