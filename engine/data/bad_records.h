// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "engine/data/data_read.h"

namespace strata::data {

// How many records of the first file with bad ones are refused, for the error about one of them:
// "7 of 50 records of a.jsonl are refused (lines 4, 9, ...)", of the first 20,000, or of those of
// two seconds; and whether --bad-records skip would help. Empty where there is nothing to add.
std::string bad_records_text(const std::vector<std::string>& files,
                             const text::Tokenizer& tokenizer, const ReadOptions& options);

}  // namespace strata::data
