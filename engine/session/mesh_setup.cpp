// SPDX-License-Identifier: Apache-2.0
#include "engine/session/mesh_setup.h"

#include <utility>

#include "engine/config/json.h"
#include "engine/config/mesh_option.h"
#include "engine/data/data.h"
#include "engine/train/mesh_choice.h"
#include "engine/train/resume_check.h"

namespace strata::session {

// The mesh decides what a rank reads of the data, so the data is not known yet.
std::string settle_mesh(const model::ModelDirectory& model, train::RunFacts facts,
                        config::Options& options) {
  if (!config::chooses_mesh(options)) return "";
  facts.data_bytes = data::Dataset::least_bytes(model.architecture().vocabulary);
  train::MeshChoice choice = train::choose_mesh({model.spec(), options, facts}, {});
  options = std::move(choice.options);
  return train::mesh_line(choice.compared);
}

void take_mesh(const train::JobTerms& terms, config::Options& options) {
  if (!config::chooses_mesh(options)) return;
  options.mesh.clear();
  const config::Json first = config::Json::parse(terms.options, "options of rank 0");
  const auto take = [&](const char* name, int64_t& option) {
    option = train::number_in(first, name, option);
  };
  take("tensor_ranks", options.tensor_ranks);
  take("pipeline_ranks", options.pipeline_ranks);
  take("context_ranks", options.context_ranks);
  take("shard_ranks", options.shard_ranks);
  take("accumulate", options.accumulate);
}

}  // namespace strata::session
