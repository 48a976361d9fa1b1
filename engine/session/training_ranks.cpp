// SPDX-License-Identifier: Apache-2.0
// What ranks that are processes do before a run: rank 0 gives its terms, and the others follow.
#include <fmt/format.h>
#include <malloc.h>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/weights_sample.h"
#include "engine/session/mesh_setup.h"
#include "engine/session/training.h"
#include "engine/train/executor_options.h"

namespace strata::session {

// Rank 0 says whether it is wanted, and its facts are those of all.
void Training::measure_network(bool is_wanted) {
  if (job_ == nullptr) return;
  facts_.network = job_->measure_network(is_wanted, train::group_options(options_));
  if (!leads() || facts_.network.bytes_per_s <= 0) return;
  log(LogLevel::kInfo,
      fmt::format("network: measured: each of the {} machines sends {:.3g} GB/s to "
                  "the others, and an exchange takes {} more",
                  job_->nodes(), facts_.network.bytes_per_s / 1e9,
                  format_duration(facts_.network.latency_s)));
}

void Training::follow() {
  job_->meet(read_node(options_, job_), options_.out);
  measure_network(false);
  train::JobTerms terms = job_->take();
  facts_ = std::move(terms.facts);
  facts_.ranks_on_node = job_->ranks_on_node();
  facts_.processes = true;
  facts_.only_rank = job_->rank();
  resumed_.path = terms.resume_from;
  resumed_.step = terms.resumed_step;
  resumed_.run = terms.run;
  lacks_evaluation_ = terms.lacks_evaluation;
  // What --resume names may be a run, of which rank 0 has found the checkpoint.
  options_.resume_checkpoint = resumed_.path;
  std::optional<config::Machine> ignored;
  open_places(ignored);
  take_mesh(terms, options_);
  options_.samples = samples_of(options_);
  train::require_options_of(terms.options, options_);
  read_samples();
  read_data();
  steps_ = train::planned_steps(options_, *data_);
  if (steps_ != facts_.steps || train::about_data(*data_).dump() != terms.data) {
    throw Error(ErrorCode::kConfig, "data: " + options_.data.front() +
                                        ": is not what rank 0 has read (give all ranks the same "
                                        "data, and do not change it while they start)");
  }
  const int64_t bytes = data_->bytes() + sample_bytes();
  if (bytes != facts_.data_bytes) {
    throw Error(ErrorCode::kConfig,
                fmt::format("data: tokens and prompts take {} here, and {} on rank 0 (give all "
                            "ranks the same --sample-prompts, and a --data-cache that all of them "
                            "can write)",
                            format_bytes(bytes), format_bytes(facts_.data_bytes)));
  }
  if (weights() != terms.weights) {
    throw Error(ErrorCode::kConfig,
                fmt::format("model: {}: its weights are not those with which rank 0 begins (give "
                            "all machines the same model, and the checkpoint of --resume)",
                            resumed_.path.empty() ? options_.model : resumed_.path));
  }
  plan_ = make_run_plan(model_->spec(), options_, facts_);
  malloc_trim(0);
}

// Each checkpoint has another nonce. Frozen weights are always the model's.
std::string Training::weights() const {
  std::string weights = checkpoint::weights_sample(*model_);
  if (!resumed_.path.empty()) {
    weights += fmt::format(" {:016x}", checkpoint::read_manifest(resumed_.path).nonce);
  }
  return weights;
}

}  // namespace strata::session
