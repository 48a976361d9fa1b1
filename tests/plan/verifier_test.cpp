// SPDX-License-Identifier: Apache-2.0
// The verifier accepts small plans that were written by hand, in every way that a plan can differ.
#include "engine/plan/verifier.h"

#include <gtest/gtest.h>

#include "tests/plan/tiny_plans.h"

namespace strata::plan {
namespace {

using tiny::make;
using tiny::Shape;

std::string text_of(const VerifyReport& report) {
  std::string text;
  for (const Violation& v : report.violations) {
    text += v.kind + " program " + std::to_string(static_cast<int>(v.program)) + " op " +
            std::to_string(v.op) + ": " + v.text + "\n";
  }
  return text;
}

void expect_accepted(const Shape& shape) {
  const tiny::Tiny tiny = make(shape);
  const VerifyReport report = verify(tiny.plan, tiny.spec);
  EXPECT_TRUE(report.ok()) << text_of(report);
  EXPECT_GE(report.ops, 45);
  EXPECT_GT(report.accesses, report.ops);
}

TEST(Verifier, AcceptsEverythingOnNvme) {
  expect_accepted({});
}

TEST(Verifier, AcceptsResidentPlanes) {
  expect_accepted({.resident = true});
}

TEST(Verifier, AcceptsADiscreteDevice) {
  expect_accepted({.discrete = true});
}

TEST(Verifier, AcceptsATiedHead) {
  expect_accepted({.tied = true});
}

TEST(Verifier, AcceptsFrozenChunks) {
  expect_accepted({.frozen = true});
}

TEST(Verifier, AcceptsFrozenChunksThatComeFromTheirSource) {
  expect_accepted({.frozen = true, .in_source = true});
  expect_accepted({.resident = true, .frozen = true, .in_source = true});
  expect_accepted({.discrete = true, .frozen = true, .in_source = true});
}

TEST(Verifier, AcceptsSpilledGradients) {
  expect_accepted({.spills_gradients = true});
}

TEST(Verifier, AcceptsTwoSides) {
  expect_accepted({.two_sides = true});
  expect_accepted({.frozen = true, .in_source = true, .spills_gradients = true, .two_sides = true});
  expect_accepted({.two_sides = true, .mode = OptimizerMode::kInBackward});
}

TEST(Verifier, AcceptsUpdatesInBackward) {
  expect_accepted({.mode = OptimizerMode::kInBackward});
  expect_accepted({.tied = true, .mode = OptimizerMode::kInBackward});
}

TEST(Verifier, AcceptsOneMicroBatchAndMany) {
  expect_accepted({.micro_batches = 1});
  expect_accepted({.tied = true, .micro_batches = 5});
}

TEST(Verifier, AcceptsTwoRanks) {
  const tiny::Tiny zero = make({.world = 2, .rank = 0});
  const tiny::Tiny one = make({.world = 2, .rank = 1});
  EXPECT_TRUE(verify(zero.plan, zero.spec).ok()) << text_of(verify(zero.plan, zero.spec));
  EXPECT_TRUE(verify(one.plan, one.spec).ok()) << text_of(verify(one.plan, one.spec));
  const std::vector<Plan> plans = {zero.plan, one.plan};
  EXPECT_TRUE(verify_ranks(plans, zero.spec).ok()) << text_of(verify_ranks(plans, zero.spec));
}

}  // namespace
}  // namespace strata::plan
