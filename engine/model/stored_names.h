// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "engine/model/spec.h"

namespace strata::model {

// Whether the files have a tensor of that name.
using HasTensor = std::function<bool(const std::string&)>;

// Gives parameters and their tensors the names that the files have them under: those of the family,
// or without the prefix that some files leave out, or, where config.json is `nested`, with one of
// the prefixes of a text model beside others. Where the files have no such embedding, the family's
// names stay. Returns the name of the head's tensor, which a tied model may have too.
std::string adopt_stored_names(ModelSpec& spec, bool nested, const HasTensor& has);

}  // namespace strata::model
