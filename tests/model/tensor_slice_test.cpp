// SPDX-License-Identifier: Apache-2.0
// The vocabulary of tensor ranks: parts that follow each other and are almost equal, with the same
// places in every rank's buffers; a vocabulary smaller than the ranks is refused.
#include "engine/model/tensor_slice.h"

#include <gtest/gtest.h>

#include "engine/model/segment_layout.h"
#include "tests/support/small_run.h"

namespace strata::model {
namespace {

Architecture small(int64_t vocabulary, bool tied) {
  test::Draw draw(3);
  Architecture at = test::sliceable_architecture(draw, 8);
  at.vocabulary = vocabulary;
  at.tied = tied;
  return at;
}

const Parameter& matrix_of(const ModelSpec& spec, bool head) {
  return head ? parameter_of(spec.segments.back(), ParameterRole::kHead)
              : parameter_of(spec.segments.front(), ParameterRole::kEmbedding);
}

TEST(TensorSlice, PartsOfTheVocabularyFollowEachOtherAndLieAtTheSamePlaces) {
  for (const int64_t vocabulary : {8, 101, 1000}) {
    const ModelSpec whole = build_spec(small(vocabulary, false));
    for (const int ranks : {2, 4, 8}) {
      SCOPED_TRACE(std::to_string(vocabulary) + " tokens, " + std::to_string(ranks) + " ranks");
      const std::vector<ModelSpec> slices = tensor_slices(whole, ranks, 1);
      int64_t next = 0;
      for (const ModelSpec& slice : slices) {
        const TokenRange own = own_tokens(slice);
        EXPECT_EQ(own.first, next);
        EXPECT_GE(own.count, vocabulary / ranks);
        EXPECT_LE(own.count, own.most);
        EXPECT_LE(own.most, vocabulary / ranks + 1);
        next += own.count;
        for (const bool head : {false, true}) {
          const Parameter& matrix = matrix_of(slice, head);
          EXPECT_FALSE(matrix.whole);
          EXPECT_EQ(matrix.shape[0], own.count);
          EXPECT_EQ(matrix.stored.first, own.first);
          EXPECT_EQ(whole_index(matrix, 0), own.first * matrix.shape[1]);
        }
        for (size_t s = 0; s < whole.segments.size(); ++s) {
          const Segment &here = slice.segments[s], &first = slices.front().segments[s];
          EXPECT_EQ(here.numel(), first.numel());
          EXPECT_EQ(here.whole_numel, first.whole_numel);
          for (size_t p = 0; p < here.parameters.size(); ++p) {
            EXPECT_EQ(here.parameters[p].offset, first.parameters[p].offset);
          }
        }
      }
      EXPECT_EQ(next, vocabulary);
    }
  }
}

// A chunk of the loss can have more rows where a rank has a token less.
TEST(TensorSlice, BuffersSufficeForEveryShareOfTheVocabulary) {
  const ModelSpec whole = build_spec(small(32769, false));
  const BatchShape shape{1, 512};
  const kernels::DeviceDescription device{.threads = 2};
  for (const ModelSpec& slice : tensor_slices(whole, 2, 1)) {
    const int head = static_cast<int>(slice.segments.size()) - 1;
    const SegmentLayout layout = segment_layout(slice, head, shape, Recipe::kFp32, device);
    const kernels::LinearCrossEntropy loss{.rows = shape.tokens(),
                                           .cols = whole.architecture.hidden,
                                           .vocabulary = own_tokens(slice).count};
    EXPECT_GE(layout.forward_scratch.bytes, kernels::workspace_bytes(loss, device));
    EXPECT_GE(layout.backward_scratch.bytes, kernels::workspace_bytes(loss, device));
  }
}

TEST(TensorSlice, AVocabularyOfFewerTokensThanRanksIsRefused) {
  const ModelSpec whole = build_spec(small(7, true));
  EXPECT_EQ(tensor_slices(whole, 4, 1).size(), 4U);
  try {
    tensor_slices(whole, 8, 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the model has 7 tokens"), std::string::npos);
  }
}

}  // namespace
}  // namespace strata::model
