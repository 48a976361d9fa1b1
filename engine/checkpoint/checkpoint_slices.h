// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint_manifest.h"
#include "engine/model/spec.h"

// A checkpoint's files have the state of tensor slices, each as its ranks numbered it.
namespace strata::checkpoint {

// The slices of a model that were written, by tensor rank; without tensor ranks the model itself,
// whose offsets must have been assigned. Throws Error (kCorrupt) that names `source` when the model
// cannot be cut so.
std::vector<model::ModelSpec> stored_slices(const CheckpointManifest& manifest,
                                            const model::ModelSpec& whole,
                                            const std::string& source);

// Whether the files of a tensor rank have a parameter: what all tensor ranks have is in the first
// one's alone.
bool is_stored(const model::ModelSpec& slice, const model::Parameter& parameter);

// Throws Error (kCorrupt) unless every true element of every trainable parameter of the stored
// slices is in each plane of the recipe exactly once.
void check_coverage(const CheckpointManifest& manifest, const std::vector<model::ModelSpec>& slices,
                    const std::string& source);

}  // namespace strata::checkpoint
