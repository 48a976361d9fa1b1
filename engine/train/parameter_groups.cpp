// SPDX-License-Identifier: Apache-2.0
// Applies [[group]], --freeze and --decay-all to a model's parameters.
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/model/freeze.h"
#include "engine/model/name_pattern.h"
#include "engine/train/run_plan.h"

namespace strata::train {
namespace {

// Moves matching parameters that no earlier group took to new groups, one for each of the model's
// `given` groups.
void apply_group(model::ModelSpec& spec, const config::ParameterGroupOptions& wanted, int given) {
  const model::NamePattern pattern("group match", wanted.match);
  std::vector<int> moved(static_cast<size_t>(given), -1);
  bool matched = false;
  bool taken = false;
  for (model::Segment& segment : spec.segments) {
    for (model::Parameter& parameter : segment.parameters) {
      if (!pattern.matches(parameter)) continue;
      if (parameter.group >= given) {
        taken = true;
        continue;
      }
      matched = true;
      int& group = moved[static_cast<size_t>(parameter.group)];
      if (group < 0) {
        model::ParameterGroup made = spec.groups[static_cast<size_t>(parameter.group)];
        made.name = wanted.match;
        made.lr_factor = wanted.lr_factor;
        made.weight_decay = wanted.weight_decay;
        made.given = 0;
        group = static_cast<int>(spec.groups.size());
        spec.groups.push_back(made);
      }
      parameter.group = group;
      parameter.frozen = parameter.frozen || wanted.frozen;
    }
  }
  if (matched) return;
  if (taken) {
    pattern.refuse(
        "earlier groups took all parameters of such names (put this [[group]] before them, or "
        "leave it out)");
  }
  pattern.refuse("no parameter has such a name (it must match a whole name, such as \"" +
                 spec.segments.back().parameters.front().name + "\")");
}

void require_trained(const model::ModelSpec& spec) {
  for (const model::Segment& segment : spec.segments) {
    if (segment.trainable_numel > 0) return;
  }
  throw Error(ErrorCode::kConfig,
              "[[group]]: frozen groups leave nothing to train (freeze fewer parameters)");
}

// Throws for a group that changes nothing of what is trained.
void refuse_idle_group(const model::ModelSpec& spec, const config::ParameterGroupOptions& wanted) {
  int64_t trained = 0;
  int64_t decaying = 0;
  for (const model::Segment& segment : spec.segments) {
    for (const model::Parameter& parameter : segment.parameters) {
      const model::ParameterGroup& group = spec.groups[static_cast<size_t>(parameter.group)];
      if (parameter.frozen || group.name != wanted.match) continue;
      ++trained;
      decaying += group.decays;
    }
  }
  const model::NamePattern pattern("group match", wanted.match);
  if (trained == 0) {
    pattern.refuse("--freeze leaves none of its parameters to train (leave out this [[group]])");
  }
  if (decaying == 0 && wanted.weight_decay > 0.0) {
    pattern.refuse(
        "it matches only norms and biases, which have no weight decay without --decay-all (add "
        "that, or leave out weight_decay)");
  }
}

}  // namespace

void apply_groups(model::ModelSpec& spec, const config::Options& options) {
  const int given = static_cast<int>(spec.groups.size());
  if (options.decay_all) {
    for (model::ParameterGroup& group : spec.groups) group.decays = true;
  }
  for (const config::ParameterGroupOptions& wanted : options.groups)
    apply_group(spec, wanted, given);
  const int shards = static_cast<int>(options.shards());
  model::assign_offsets(spec, shards);
  if (!options.freeze.empty()) model::freeze_parameters(spec, options.freeze, shards);
  require_trained(spec);
  for (const config::ParameterGroupOptions& wanted : options.groups) {
    if (!wanted.frozen) refuse_idle_group(spec, wanted);
  }
}

}  // namespace strata::train
