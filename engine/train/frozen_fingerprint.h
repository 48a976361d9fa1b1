// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "engine/model/model_directory.h"
#include "engine/model/spec.h"

namespace strata::train {

// Which frozen weights a run has, as 16 hexadecimal digits; empty where nothing is frozen. Equal
// for equal values, whatever their names of files, shards and dtypes.
//
// A checkpoint holds no frozen weights, only this: it tells another model's from its own.
// Parameters of up to 4 Mi elements are hashed whole, larger ones at places spread over them:
// milliseconds where reading all would take minutes, but a few changed rows of a large matrix can
// go unnoticed. What changes in the files during a run is FrozenSource's.
//
// Threads: any. Failure: Error (kIo, kCorrupt). `spec` is of `model`, with groups applied.
std::string frozen_fingerprint(const model::ModelDirectory& model, const model::ModelSpec& spec);

}  // namespace strata::train
