// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/text/tokenizer.h"

namespace strata::text {

class TokenizerFields;

// Read the steps of a tokenizer.json: each function reads one {"type": ...} object, which may be a
// Sequence, and appends its steps. All throw Error that names the member for anything malformed or
// not supported.
void read_normalizer(const TokenizerFields& step, std::vector<NormalizeStep>* steps);
void read_pre_tokenizer(const TokenizerFields& step, TokenizerDefinition* definition);
void read_decoder(const TokenizerFields& step, std::vector<DecodeStep>* steps);

Error unsupported_type(const TokenizerFields& step, const std::string& type);

}  // namespace strata::text
