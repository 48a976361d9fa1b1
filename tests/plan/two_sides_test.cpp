// SPDX-License-Identifier: Apache-2.0
// What updates change on NVMe has two sides, in plans of random models, and nothing else has.
#include <gtest/gtest.h>

#include "engine/base/units.h"
#include "engine/plan/builder.h"
#include "engine/plan/verifier.h"
#include "tests/support/random_runs.h"
#include "tests/support/seeds.h"

namespace strata::plan {
namespace {

bool changes(const Access& access, const Plan& plan, const model::ModelSpec& spec) {
  if (access.value.kind != ValueKind::kPlane) return false;
  const model::Segment& segment = spec.segments[static_cast<size_t>(access.value.segment)];
  return access.first < segment.trainable_numel * width_of(access.value.plane, plan.recipe);
}

TEST(TwoSides, AreOfWhatUpdatesChange) {
  for (uint64_t seed = 1; seed <= test::seeds(20); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test::Draw draw(500 + seed);
    const model::ModelSpec spec = test::random_spec(draw, 2, true);
    const PlanInput input = test::random_input(draw, spec, 2);
    Placement placement = test::random_placement(draw, input);
    placement.two_sides = false;
    const Plan one = build_plan(input, placement);
    placement.two_sides = true;
    const Plan two = build_plan(input, placement);
    ASSERT_TRUE(verify(two, spec).ok());
    EXPECT_EQ(one.sides.bytes, 0);
    for (const Program& program : two.programs) {
      for (const Access& access : program.accesses) {
        if (access.arena != Arena::kNvme) continue;
        EXPECT_EQ(two.sides.contain(access.offset), changes(access, two, spec));
        EXPECT_EQ(access.side == Side::kOther, access.value.generation != Generation::kOld);
      }
    }
    // Frozen weights that lie apart from others begin on a checksum block of their own.
    const int64_t apart = 64 * kKiB * static_cast<int64_t>(spec.segments.size());
    const size_t nvme = static_cast<size_t>(Arena::kNvme);
    EXPECT_GE(two.arenas.bytes[nvme], one.arenas.bytes[nvme] + two.sides.bytes);
    EXPECT_LE(two.arenas.bytes[nvme], one.arenas.bytes[nvme] + two.sides.bytes + apart);
    const auto host = static_cast<size_t>(Arena::kHost);
    EXPECT_EQ(two.arenas.bytes[host], one.arenas.bytes[host]);
  }
}

}  // namespace
}  // namespace strata::plan
