// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>

#include "engine/model/spec.h"

namespace strata::model {

// Whether the files have a tensor with this name.
using HasTensor = std::function<bool(const std::string&)>;

// Gives parameters and their tensors the names that they have in the files: the family's names,
// names without the prefix that some files leave out, or, when config.json is `nested`, names with
// a prefix of the text model in a multimodal one. The family's names stay when the files have the
// embedding under none of these. Returns the name of the head's tensor, which the files of a tied
// model may have too.
std::string adopt_stored_names(ModelSpec& spec, bool nested, const HasTensor& has);

}  // namespace strata::model
