// SPDX-License-Identifier: Apache-2.0
#include "engine/session/mesh_setup.h"

#include <utility>

#include "engine/config/mesh_option.h"
#include "engine/data/data.h"
#include "engine/train/mesh_choice.h"

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
  options.tensor_ranks = terms.tensor_ranks;
  options.pipeline_ranks = terms.pipeline_ranks;
  options.shard_ranks = terms.shard_ranks;
  options.accumulate = terms.accumulate;
}

}  // namespace strata::session
