// SPDX-License-Identifier: Apache-2.0
// Footprints are whole pages, grow with the batch, and equal what can be counted by hand from the
// shapes.
#include "engine/model/footprint.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/model/architecture.h"
#include "engine/model/segment_layout.h"

namespace strata::model {
namespace {

Architecture make_architecture(bool tied) {
  Architecture a;
  a.model_type = "llama";
  a.hidden = 128;
  a.layers = 1;
  a.heads = 8;
  a.kv_heads = 2;
  a.head_size = 16;
  a.feed_forward = 256;
  a.vocabulary = 1000;
  a.max_position = 512;
  a.tied = tied;
  return a;
}

ModelSpec make_spec(bool tied) {
  return build_spec(make_architecture(tied));
}

// The spec without the variants' own parameters: sizes of buffers do not depend on these.
ModelSpec make_spec_of_variants() {
  ModelSpec spec = make_spec(false);
  spec.architecture.block = {
      .pre_norm = false, .post_norm = true, .qk_norm = QkNorm::kHead, .norm_offset = true};
  return spec;
}

enum { kEmbed, kAttention, kMlp, kHead };

TEST(Footprint, InteriorsHoldWhatBackwardReadsAndNoMore) {
  const ModelSpec spec = make_spec(false);
  const BatchShape shape{2, 64};
  const int64_t tokens = 128;
  const Footprint attention = footprint(spec, kAttention, shape, Recipe::kFp32, {.threads = 2});
  EXPECT_EQ(attention.interior_bytes, tokens * 4 * ((8 + 2 * 2) * 16 + 8 * 16 + 8));
  EXPECT_EQ(footprint(spec, kMlp, shape, Recipe::kFp32, {.threads = 2}).interior_bytes,
            tokens * 4 * 2 * 256);
  EXPECT_EQ(footprint(spec, kEmbed, shape, Recipe::kFp32, {.threads = 2}).interior_bytes, 0);
  EXPECT_EQ(footprint(spec, kHead, shape, Recipe::kFp32, {.threads = 2}).interior_bytes, 0);
}

TEST(Footprint, ANormedBranchIsKeptWholeAndNormedHeadsAreNormedAgain) {
  const BatchShape shape{2, 64};
  const int64_t tokens = 128;
  const ModelSpec plain = make_spec(false), normed = make_spec_of_variants();
  const auto size = [&](const ModelSpec& spec, int segment) {
    return footprint(spec, segment, shape, Recipe::kFp32, {.threads = 2});
  };
  for (const int segment : {kAttention, kMlp}) {
    EXPECT_EQ(size(normed, segment).interior_bytes - size(plain, segment).interior_bytes,
              round_up(tokens * 4 * (128 + 1), kPageBytes))
        << segment;
    // The output is needed, so recomputing is all of forward.
    EXPECT_EQ(size(normed, segment).recompute_flops, size(normed, segment).forward_flops);
    EXPECT_LT(size(plain, segment).recompute_flops, size(plain, segment).forward_flops);
    EXPECT_EQ(size(normed, segment).backward_flops, size(plain, segment).backward_flops);
  }
  const int64_t turned = tokens * 4 * (8 + 2) * 16;
  EXPECT_GE(size(normed, kAttention).recompute_workspace_bytes,
            size(plain, kAttention).recompute_workspace_bytes + turned);
  EXPECT_GE(size(normed, kAttention).backward_workspace_bytes,
            size(plain, kAttention).backward_workspace_bytes + turned);
}

TEST(Footprint, OnlyWindowedLayersSaveOperations) {
  Architecture a = make_architecture(false);
  a.layers = 2;
  a.window = 16;
  a.windowed = {0, 1};
  const ModelSpec spec = build_spec(a);
  const Footprint full = footprint(spec, 1, {1, 64}, Recipe::kFp32, {});
  const Footprint windowed = footprint(spec, 3, {1, 64}, Recipe::kFp32, {});
  const double pairs = 64.0 * 64 / 2 - (64.0 * 16 - 16.0 * 16 / 2);
  EXPECT_EQ(full.forward_flops - windowed.forward_flops, 2 * 2.0 * 8 * 16 * pairs);
}

TEST(Footprint, OperationsAreCountedFromTheProducts) {
  const ModelSpec spec = make_spec(true);
  const BatchShape shape{2, 64};
  const double tokens = 128;
  const Footprint mlp = footprint(spec, kMlp, shape, Recipe::kBf16, {});
  EXPECT_EQ(mlp.recompute_flops, 2 * tokens * 128 * 512);
  EXPECT_EQ(mlp.forward_flops, 2 * tokens * 128 * 768);
  EXPECT_EQ(mlp.backward_flops, 4 * tokens * 128 * 768);
  EXPECT_EQ(mlp.product_flops, 2 * tokens * 128 * 768);
  const Footprint attention = footprint(spec, kAttention, shape, Recipe::kBf16, {});
  const double pairs = 2 * 2.0 * 8 * 16 * 64 * 64 / 2;  // of one of the two products, causal half
  EXPECT_EQ(attention.recompute_flops, 2 * tokens * 128 * 192 + 2 * pairs);
  EXPECT_EQ(attention.backward_flops, 4 * tokens * 128 * (192 + 128) + 5 * pairs);
  const Footprint head = footprint(spec, kHead, shape, Recipe::kBf16, {});
  EXPECT_EQ(head.forward_flops, 2 * tokens * 128 * 1000);
  EXPECT_EQ(head.backward_flops, 6 * tokens * 128 * 1000);
}

TEST(Footprint, AFrozenMatrixSavesItsGradientsProduct) {
  ModelSpec spec = make_spec(false);
  for (Parameter& parameter : spec.segments[kMlp].parameters) parameter.frozen = true;
  assign_offsets(spec, 1);
  const Footprint mlp = footprint(spec, kMlp, {2, 64}, Recipe::kFp32, {});
  EXPECT_EQ(mlp.backward_flops, 2.0 * 128 * 128 * 768);
  EXPECT_EQ(mlp.product_flops, 0);
}

TEST(Footprint, AllSizesAreWholePages) {
  const ModelSpec spec = make_spec(true);
  for (const Recipe recipe : {Recipe::kFp32, Recipe::kBf16}) {
    for (const BatchShape shape : {BatchShape{1, 1}, BatchShape{3, 17}, BatchShape{2, 100}}) {
      EXPECT_EQ(boundary_bytes(spec, shape, recipe) % kPageBytes, 0);
      for (int i = kEmbed; i <= kHead; ++i) {
        const Footprint size = footprint(spec, i, shape, recipe, {.threads = 3});
        EXPECT_EQ(size.interior_bytes % kPageBytes, 0);
        EXPECT_EQ(size.forward_workspace_bytes % kPageBytes, 0);
        EXPECT_EQ(size.recompute_workspace_bytes % kPageBytes, 0);
        EXPECT_EQ(size.backward_workspace_bytes % kPageBytes, 0);
        EXPECT_LE(size.recompute_workspace_bytes, size.forward_workspace_bytes);
      }
    }
  }
  EXPECT_EQ(boundary_bytes(spec, {2, 64}, Recipe::kBf16), 128 * 128 * 2);
}

// The last ranks may have fewer rows than the first, or none.
TEST(Footprint, RanksOfASliceDivideTheRows) {
  ModelSpec spec = make_spec(false);
  EXPECT_EQ(own_rows(spec, {2, 64}, 100).count, 100);
  spec.tensor = {.rank = 3, .ranks = 4};
  EXPECT_EQ(boundary_bytes(spec, {2, 64}, Recipe::kBf16), 128 * 32 * 2);
  EXPECT_EQ(own_rows(spec, {2, 64}, 128).first, 96);
  EXPECT_EQ(own_rows(spec, {2, 64}, 128).count, 32);
  EXPECT_EQ(own_rows(spec, {2, 64}, 100).count, 4);  // of a pass with fewer tokens
  EXPECT_EQ(own_rows(spec, {1, 5}, 5).count, 0);     // 2, 2, 1 and none
  spec.tensor.rank = 2;
  EXPECT_EQ(own_rows(spec, {1, 5}, 5).first, 4);
  EXPECT_EQ(own_rows(spec, {1, 5}, 5).count, 1);
}

TEST(Footprint, ScratchIsThatOfTheDevicesKernels) {
  const ModelSpec spec = make_spec(false);
  const auto scratch = [&](const kernels::DeviceDescription& device) {
    return segment_layout(spec, kMlp, {2, 64}, Recipe::kFp32, device).forward_scratch.bytes;
  };
  EXPECT_GT(scratch({.threads = 2}), scratch({.threads = 1}));
  EXPECT_GT(scratch({.threads = 1}), 0);
  EXPECT_EQ(scratch({.kernels = kernels::KernelSet::kRef}), 0);
}

std::string refusal_of(const kernels::DeviceDescription& device) {
  try {
    require_taken(make_spec(false), {}, device);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "";
}

TEST(Footprint, WhatADeviceDoesNotTakeIsRefused) {
  EXPECT_EQ(refusal_of({}), "");
  EXPECT_EQ(refusal_of({.head_size_max = 16, .head_size_multiple = 8, .column_multiple = 32}), "");
  EXPECT_EQ(refusal_of({.name = "small", .head_size_max = 15}),
            "model: head size of 16: the kernels of device small take at most 15 (use another "
            "device)");
  EXPECT_EQ(refusal_of({.head_size_multiple = 32}),
            "model: head size of 16: the kernels of device cpu take multiples of 32 (use another "
            "device)");
  EXPECT_EQ(refusal_of({.column_multiple = 64}),
            "model: width of all key heads of 32: the kernels of device cpu take multiples of 64 "
            "(use another device)");
  EXPECT_EQ(refusal_of({.interior = DType::kBF16}),
            "device: cpu: its kernels do not support interiors in BF16 (use F32)");
}

TEST(Layout, MatricesSideBySideAreOneProduct) {
  ModelSpec spec = make_spec(false);
  SegmentLayout layout = segment_layout(spec, kAttention, {1, 8}, Recipe::kFp32, {});
  ASSERT_EQ(layout.into.size(), 1u);
  EXPECT_EQ(layout.into[0].outputs, 192);
  ASSERT_EQ(segment_layout(spec, kMlp, {1, 8}, Recipe::kFp32, {}).into.size(), 1u);

  spec.segments[kAttention].parameters[2].frozen = true;  // k
  assign_offsets(spec, 1);
  layout = segment_layout(spec, kAttention, {1, 8}, Recipe::kFp32, {});
  ASSERT_EQ(layout.into.size(), 3u);
  EXPECT_EQ(layout.into[1].column, 128);
  EXPECT_TRUE(layout.into[1].frozen);
  EXPECT_EQ(layout.into[2].column, 160);
}

void check_spans(const ModelSpec& spec) {
  for (const int i : {kAttention, kMlp, kHead}) {
    const SegmentLayout s = segment_layout(spec, i, {2, 33}, Recipe::kBf16, {.threads = 2});
    const auto check = [](std::vector<Span> spans, int64_t total) {
      std::erase_if(spans, [](const Span& span) { return span.bytes == 0; });
      std::sort(spans.begin(), spans.end(),
                [](const Span& a, const Span& b) { return a.offset < b.offset; });
      int64_t end = 0;
      for (const Span& span : spans) {
        EXPECT_GE(span.offset, end);
        EXPECT_EQ(span.offset % 64, 0);
        end = span.offset + span.bytes;
      }
      EXPECT_LE(end, total);
    };
    check({s.projected, s.attended, s.log_sum_exp, s.unnormed, s.post_rstd}, s.interior_bytes);
    check({s.normed, s.activated, s.turned, s.gathered, s.forward_scratch, s.own_interior},
          s.forward_bytes);
    check({s.grad, s.branch, s.inner, s.rstd, s.turned_again, s.head_rstd, s.backward_scratch},
          s.backward_bytes);
    check({s.later_grad, s.later_branch, s.later_input, s.later_inner, s.later_keys},
          s.operand_bytes);
  }
}

TEST(Layout, SpansOfABufferDoNotOverlap) {
  check_spans(make_spec(false));
  check_spans(make_spec_of_variants());
}

}  // namespace
}  // namespace strata::model
