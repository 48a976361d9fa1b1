// SPDX-License-Identifier: Apache-2.0
// Spans of a simulation and the trace file made of them.
#include "engine/plan/timeline.h"

#include <gtest/gtest.h>

#include "tests/plan/program_builder.h"

namespace strata::plan {
namespace {

TEST(Timeline, NamesSayKindSegmentChunksAndMicroBatch) {
  model::ModelSpec spec;
  spec.segments.resize(2);
  spec.segments[1].name = "b0.attn";
  Op op;
  op.kind = OpKind::kDecide;
  EXPECT_EQ(span_name(op, spec), "decide");
  op.kind = OpKind::kBackward;
  op.segment = 1;
  op.micro_batch = 3;
  EXPECT_EQ(span_name(op, spec), "backward b0.attn mb3");
  op.kind = OpKind::kOptimize;
  op.micro_batch = -1;
  op.chunk = 7;
  op.chunk_count = 1;
  EXPECT_EQ(span_name(op, spec), "optimize b0.attn c7");
  op.chunk_count = 2;
  EXPECT_EQ(span_name(op, spec), "optimize b0.attn c7-8");
}

TEST(Timeline, OpsWithoutLengthAreLeftOut) {
  const Plan plan =
      ProgramBuilder(ProgramName::kStep).add({Lane::kCompute}).add({Lane::kWrite}).plan();
  const double duration_s[] = {0.5, 0};
  const auto result =
      simulate(plan, ProgramName::kStep, duration_s, {.copies = 2, .keep_times = true});
  const auto spans = spans_of(plan.program(ProgramName::kStep), {}, result);
  ASSERT_EQ(spans.size(), 2u);
  EXPECT_EQ(spans[1].lane, Lane::kCompute);
  EXPECT_EQ(spans[1].name, "forward");
  EXPECT_EQ(spans[1].start_s, 0.5);
  EXPECT_EQ(spans[1].end_s, 1.0);
}

TEST(Timeline, OverlappingOpsOfALaneTakeRowsOfTheirOwn) {
  const Span spans[] = {{Lane::kWrite, "b", 0.001, 0.003},
                        {Lane::kWrite, "a \"1\"", 0, 0.002},
                        {Lane::kWrite, "c", 0.002, 0.004},
                        {Lane::kCompute, "d", 0, 0.001}};
  EXPECT_EQ(trace_json("rank 0", spans), R"({"displayTimeUnit":"ms","traceEvents":[
{"ph":"M","pid":1,"tid":0,"name":"process_name","args":{"name":"rank 0"}},
{"ph":"M","pid":1,"tid":6000,"name":"thread_name","args":{"name":"write"}},
{"ph":"X","pid":1,"tid":6000,"ts":0.000,"dur":2000.000,"name":"a \"1\""},
{"ph":"M","pid":1,"tid":0,"name":"thread_name","args":{"name":"compute"}},
{"ph":"X","pid":1,"tid":0,"ts":0.000,"dur":1000.000,"name":"d"},
{"ph":"M","pid":1,"tid":6001,"name":"thread_name","args":{"name":"write"}},
{"ph":"X","pid":1,"tid":6001,"ts":1000.000,"dur":2000.000,"name":"b"},
{"ph":"X","pid":1,"tid":6000,"ts":2000.000,"dur":2000.000,"name":"c"}
]}
)");
}

}  // namespace
}  // namespace strata::plan
