// SPDX-License-Identifier: Apache-2.0
// [[group]]: the first that matches a parameter takes it, and one that is left without any is
// refused for what is the cause.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/model/architecture.h"
#include "engine/train/run_plan.h"

namespace strata::train {
namespace {

model::ModelSpec small_spec() {
  model::Architecture at;
  at.model_type = "llama";
  at.layers = 1;
  at.hidden = 64;
  at.heads = 2;
  at.kv_heads = 2;
  at.head_size = 32;
  at.feed_forward = 128;
  at.vocabulary = 300;
  at.max_position = 64;
  return model::build_spec(at);
}

config::ParameterGroupOptions group(const char* match, double lr_factor = 1) {
  config::ParameterGroupOptions made;
  made.match = match;
  made.lr_factor = lr_factor;
  return made;
}

std::string refusal(const std::vector<config::ParameterGroupOptions>& groups,
                    const std::string& freeze = "") {
  config::Options options;
  options.groups = groups;
  options.freeze = freeze;
  model::ModelSpec spec = small_spec();
  try {
    apply_groups(spec, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "accepted";
}

TEST(ParameterGroups, TheFirstThatMatchesTakesAParameter) {
  config::Options options;
  options.groups = {group(".*q_proj.*", 0.5), group(".*proj.*")};
  model::ModelSpec spec = small_spec();
  apply_groups(spec, options);
  int seen = 0;
  for (const model::Segment& segment : spec.segments) {
    for (const model::Parameter& parameter : segment.parameters) {
      if (parameter.name.find("q_proj") == std::string::npos) continue;
      EXPECT_EQ(spec.groups[static_cast<size_t>(parameter.group)].lr_factor, 0.5);
      ++seen;
    }
  }
  EXPECT_EQ(seen, 1);
}

TEST(ParameterGroups, OneThatTakesNothingIsRefusedWithTheCause) {
  EXPECT_NE(refusal({group(".*norm.*"), group(".*input_layernorm.*")})
                .find("\".*input_layernorm.*\": earlier groups took all parameters of such names"),
            std::string::npos);
  EXPECT_NE(refusal({group(".*norm.*"), group("norms")})
                .find("no parameter has such a name (it must match a whole name"),
            std::string::npos);
  EXPECT_EQ(refusal({group(".*input_layernorm.*"), group(".*norm.*")}), "accepted");
}

TEST(ParameterGroups, OneThatChangesNothingThatIsTrainedIsRefused) {
  EXPECT_NE(refusal({group(".*proj.*", 0.5)}, ".*proj.*")
                .find("\".*proj.*\": --freeze leaves none of its parameters to train"),
            std::string::npos);
  EXPECT_EQ(refusal({group(".*proj.*", 0.5)}, ".*[qk]_proj.*"), "accepted");
  config::ParameterGroupOptions decaying = group(".*norm.*");
  decaying.weight_decay = 0.1;
  EXPECT_NE(refusal({decaying}).find("have no weight decay without --decay-all"),
            std::string::npos);
  decaying.match = ".*";  // matrices are among them
  EXPECT_EQ(refusal({decaying}), "accepted");
  decaying.match = ".*norm.*";
  decaying.weight_decay = 0.0;
  EXPECT_EQ(refusal({decaying}), "accepted") << "it is what it says";
}

}  // namespace
}  // namespace strata::train
