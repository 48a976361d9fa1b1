// SPDX-License-Identifier: Apache-2.0
// The order in which a caller uses its segments: the default, and what is refused.
#include <gtest/gtest.h>

#include <limits>

#include "engine/base/error.h"
#include "engine/model/external.h"
#include "engine/model/footprint.h"

namespace strata::model {
namespace {

const std::vector<ExternalSegment> kSegments = {{"a", {{"w", {3, 3}}}}, {"b", {{"w", {4}}}}};

TEST(ExternalSpec, GoesForwardAndBackWithoutAnOrder) {
  const ModelSpec spec = external_spec(kSegments);
  ASSERT_EQ(spec.uses.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(spec.uses[i].backward, i >= 2);
    EXPECT_EQ(spec.uses[i].segments, std::vector<int>{i < 2 ? i : 3 - i});
  }
}

TEST(ExternalSpec, CountsBackwardUses) {
  const ModelSpec spec = external_spec(kSegments, {{{0, 1}, true}, {{1}}, {{1}, true}});
  EXPECT_EQ(spec.segments[0].backward_uses, 1);
  EXPECT_EQ(spec.segments[1].backward_uses, 2);
  EXPECT_EQ(backward_ops(spec, {}, 1), 2);
}

TEST(ExternalSpec, RefusesWrongOrders) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::pair<std::vector<ExternalUse>, const char*> wrong[] = {
      {{{{}, true}}, "use 0: has no units"},
      {{{{0, 1}, true}, {{2}}}, "use 1: there is no unit 2 (give 0 to 1)"},
      {{{{-1}, true}}, "use 0: there is no unit -1"},
      {{{{1, 0, 1}, true}}, "use 0: names b twice"},
      {{{{0, 1}, true, kNan}}, "use 0: nan operations"},
      {{{{0, 1}, true, -1}}, "use 0: -1 operations"},
      {{{{0}}, {{0}, true}, {{1}}}, "b: has no backward use"},
  };
  for (const auto& [uses, text] : wrong) {
    try {
      external_spec(kSegments, uses);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace strata::model
