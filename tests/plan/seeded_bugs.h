// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>

#include "engine/plan/verifier.h"
#include "tests/plan/tiny_plans.h"

// Seeded bugs: edits of a plan that verifies cleanly, and the kind of violation that each must be.
namespace strata::plan::bugs {

using tiny::Shape;
using tiny::Tiny;

inline constexpr int kEmbed = 0, kMlp = 1, kHead = 2;
inline constexpr ValueKind kPlaneValue = ValueKind::kPlane;

// Finds and edits parts of one plan. Lookups that find nothing fail the test by throwing.
class Editor {
 public:
  explicit Editor(Tiny& tiny) : tiny_(tiny) {}

  Plan& plan() { return tiny_.plan; }
  Program& program(ProgramName name) { return tiny_.plan.programs[static_cast<size_t>(name)]; }
  Program& step() { return program(ProgramName::kStep); }

  Op& op(Program& in, OpKind kind, int segment, int which = 0) {
    for (Op& candidate : in.ops) {
      if (candidate.kind == kind && candidate.segment == segment && which-- == 0) return candidate;
    }
    throw std::logic_error("no such op");
  }
  Op& op(OpKind kind, int segment, int which = 0) { return op(step(), kind, segment, which); }

  Access& access(Program& in, const Op& op, Mode mode, ValueKind kind, int which = 0) {
    for (uint32_t i = op.access_begin; i < op.access_end; ++i) {
      Access& candidate = in.accesses[i];
      if (candidate.mode == mode && candidate.value.kind == kind && which-- == 0) return candidate;
    }
    throw std::logic_error("no such access");
  }
  Access& access(const Op& op, Mode mode, ValueKind kind, int which = 0) {
    return access(step(), op, mode, kind, which);
  }

  Wait& wait(const Op& op, Lane lane) {
    for (uint32_t i = op.wait_begin; i < op.wait_end; ++i) {
      if (step().waits[i].lane == lane) return step().waits[i];
    }
    throw std::logic_error("no such wait");
  }

  // A wait that always holds.
  void forget(const Op& op, Lane lane) {
    wait(op, lane) = {lane, -static_cast<int32_t>(step().lanes[static_cast<size_t>(lane)].size())};
  }

  void empty(ProgramName name) {
    program(name) = {};
    program(name).name = name;
  }

  // Removes an op and everything that counted it.
  void remove(Program& in, const Op& which) {
    const size_t at = static_cast<size_t>(&which - in.ops.data());
    const Lane lane = which.lane;
    std::vector<uint32_t>& list = in.lanes[static_cast<size_t>(lane)];
    const int place = static_cast<int>(std::find(list.begin(), list.end(), at) - list.begin());
    list.erase(list.begin() + place);
    for (std::vector<uint32_t>& each : in.lanes) {
      for (uint32_t& index : each) index -= index > at ? 1 : 0;
    }
    for (Wait& each : in.waits) {
      const int count = static_cast<int>(list.size());
      if (each.lane != lane) continue;
      if (each.count > place) each.count = each.count - 1 > 0 ? each.count - 1 : -count;
      if (each.count <= 0) each.count = std::max(each.count, -count);
    }
    in.ops.erase(in.ops.begin() + static_cast<int64_t>(at));
    number_collectives(in);
  }

  static void number_collectives(Program& in) {
    int32_t next = 0;
    for (const uint32_t index : in.lanes[static_cast<size_t>(Lane::kComm)]) {
      in.ops[index].number = next++;
    }
  }

  // Puts a copy of an op right behind it.
  void repeat(Program& in, const Op& which) {
    const size_t at = static_cast<size_t>(&which - in.ops.data());
    std::vector<uint32_t>& list = in.lanes[static_cast<size_t>(which.lane)];
    const int place = static_cast<int>(std::find(list.begin(), list.end(), at) - list.begin());
    for (std::vector<uint32_t>& each : in.lanes) {
      for (uint32_t& index : each) index += index > at ? 1 : 0;
    }
    list.insert(list.begin() + place + 1, static_cast<uint32_t>(at + 1));
    for (Wait& each : in.waits) {
      if (each.lane == which.lane && each.count > place) ++each.count;
    }
    const Op copy = which;
    in.ops.insert(in.ops.begin() + static_cast<int64_t>(at) + 1, copy);
  }

 private:
  Tiny& tiny_;
};

struct Bug {
  const char* name;
  const char* kind;
  Shape shape;
  std::function<void(Editor&)> seed;
};

inline void PrintTo(const Bug& bug, std::ostream* out) {
  *out << bug.name;
}

inline std::string bug_name(const testing::TestParamInfo<Bug>& info) {
  return info.param.name;
}

inline void expect_rejected(const Bug& bug) {
  Tiny tiny = tiny::make(bug.shape);
  ASSERT_TRUE(verify(tiny.plan, tiny.spec).ok());
  Editor editor(tiny);
  bug.seed(editor);
  const VerifyReport report = verify(tiny.plan, tiny.spec);
  bool found = false;
  std::string text;
  for (const Violation& violation : report.violations) {
    found |= violation.kind == bug.kind;
    text += violation.kind + " op " + std::to_string(violation.op) + ": " + violation.text + "\n";
  }
  EXPECT_TRUE(found) << "wanted " << bug.kind << ", found\n" << text;
}

}  // namespace strata::plan::bugs
