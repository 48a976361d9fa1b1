// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"
#include "engine/comm/group_local.h"
#include "engine/comm/group_tcp.h"
#include "engine/comm/job_server.h"
#include "engine/comm/job_store.h"
#include "tests/comm/job_support.h"
#include "tests/comm/mpi_world.h"

// The ranks of a group, whatever they exchange by, for tests of what all groups do.
namespace strata::comm {

// kTcp: each rank as on a machine of its own; kMemory: all on one; kMixed: two on each.
enum class Backend : uint8_t { kLocal, kTcp, kMemory, kMixed, kMpi };

// Of processes that exchange by TCP or by memory; 0: other ranks.
inline int ranks_on_node(Backend backend, int count) {
  switch (backend) {
    case Backend::kTcp:
      return 1;
    case Backend::kMemory:
      return count;
    case Backend::kMixed:
      return 2;
    default:
      return 0;
  }
}

// Ranks whose sums are made before those of others: all on a machine, where machines have as many.
inline int near_of(Backend backend, int count) {
  const int on_node = ranks_on_node(backend, count);
  return on_node == 0 ? count : count % on_node == 0 ? on_node : 1;
}

// Every group behaves the same, whatever its ranks exchange by.
class GroupOf : public testing::TestWithParam<Backend> {
 protected:
  std::vector<std::string> run_ranks(int count, const GroupOptions& options,
                                     const std::function<void(Group&)>& body) const;
  void run_ranks(int count, const std::function<void(Group&)>& body) const {
    for (const std::string& error : run_ranks(count, {}, body)) EXPECT_EQ(error, "");
  }
};

// What `body` throws; "" for nothing.
inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    const char* kind = error.code() == ErrorCode::kPeer       ? "peer: "
                       : error.code() == ErrorCode::kDeadline ? "deadline: "
                                                              : "other: ";
    return kind + std::string(error.what());
  }
  return "";
}

// The same as run_ranks() where ranks are the processes of mpirun.
inline std::vector<std::string> run_processes(int count, const GroupOptions& options,
                                              const std::function<void(Group&)>& body) {
  test::MpiWorld& world = test::MpiWorld::get();
  return world.run_job(count, [&](test::MpiWorld::Member& member) {
    return error_of([&] {
      member.groups.push_back(make_mpi_group(member.store, world.mpi(), {.group = options}));
      body(*member.groups.back());
    });
  });
}

// Runs `body` on a thread a rank and returns what each threw. `on_node`: as processes, of which so
// many are on each machine; 0: as threads of one process.
inline std::vector<std::string> run_threads(int count, int on_node, const GroupOptions& options,
                                            const std::function<void(Group&)>& body) {
  const JobServer server({.secret = kJobSecret, .size = count});
  std::vector<std::unique_ptr<JobStore>> stores(static_cast<size_t>(count));
  auto groups = make_local_groups(count, options);
  std::vector<std::string> errors(static_cast<size_t>(count));
  std::vector<std::jthread> threads;
  for (int r = 0; r < count; ++r) {
    threads.emplace_back([&, r] {
      auto& group = groups[static_cast<size_t>(r)];
      errors[static_cast<size_t>(r)] = error_of([&] {
        if (on_node > 0) {
          auto& store = stores[static_cast<size_t>(r)];
          store = std::make_unique<JobStore>(options_of(server, r, count));
          group = make_tcp_group(*store, {.ranks_on_node = on_node, .group = options});
        }
        body(*group);
      });
    });
  }
  threads.clear();
  return errors;
}

inline std::vector<std::string> GroupOf::run_ranks(int count, const GroupOptions& options,
                                                   const std::function<void(Group&)>& body) const {
  if (GetParam() == Backend::kMpi) return run_processes(count, options, body);
  const int on_node = ranks_on_node(GetParam(), count);
  EXPECT_EQ(on_node == 0, GetParam() == Backend::kLocal);
  return run_threads(count, on_node, options, body);
}

}  // namespace strata::comm
