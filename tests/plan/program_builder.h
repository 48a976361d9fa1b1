// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>

#include "engine/plan/plan.h"

namespace strata::plan {

// Programs by hand: ops with a lane, an amount and waits.
class ProgramBuilder {
 public:
  explicit ProgramBuilder(ProgramName name) { program_.name = name; }

  struct OpSpec {
    Lane lane = Lane::kCompute;
    int64_t bytes = 0;
    double flops = 0;
    Predicate predicate = Predicate::kAlways;
  };

  ProgramBuilder& add(const OpSpec& spec, std::initializer_list<Wait> waits = {}) {
    Op op;
    op.kind = kind_on(spec.lane);
    op.lane = spec.lane;
    op.predicate = spec.predicate;
    op.bytes = spec.bytes;
    op.flops = spec.flops;
    op.wait_begin = static_cast<uint32_t>(program_.waits.size());
    program_.waits.insert(program_.waits.end(), waits);
    op.wait_end = static_cast<uint32_t>(program_.waits.size());
    program_.lanes[static_cast<size_t>(spec.lane)].push_back(
        static_cast<uint32_t>(program_.ops.size()));
    program_.ops.push_back(op);
    return *this;
  }

  // The last op reads so many bytes.
  ProgramBuilder& reads(int64_t bytes) {
    last().access_begin = static_cast<uint32_t>(program_.accesses.size());
    Access access;
    access.value.kind = ValueKind::kPlane;
    access.mode = Mode::kRead;
    access.bytes = bytes;
    program_.accesses.push_back(access);
    last().access_end = static_cast<uint32_t>(program_.accesses.size());
    return *this;
  }

  Op& last() { return program_.ops.back(); }

  Plan plan(int io_depth = 8) const {
    Plan plan;
    plan.io_depth = io_depth;
    plan.programs[static_cast<size_t>(program_.name)] = program_;
    return plan;
  }

 private:
  static OpKind kind_on(Lane lane) {
    constexpr OpKind kKinds[kLaneCount] = {OpKind::kForward,  OpKind::kOptimize, OpKind::kUpload,
                                           OpKind::kDownload, OpKind::kFetch,    OpKind::kFetch,
                                           OpKind::kSpill,    OpKind::kGather,   OpKind::kGather,
                                           OpKind::kOptimize, OpKind::kSend};
    static_assert(std::size(kKinds) == kLaneCount);
    return kKinds[static_cast<size_t>(lane)];
  }

  Program program_;
};

}  // namespace strata::plan
