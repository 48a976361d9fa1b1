// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "engine/data/data_records.h"
#include "engine/template/masked_chat.h"

namespace strata::data {

// Whether a chat has tools, calls of tools, or reasoning of its last answer, of which its texts say
// nothing: neither the names of the functions nor the first words of the reasoning. Templates may
// leave out earlier reasoning on purpose.
bool loses_words(const ChatRecord& record, const std::vector<templates::MaskedChat>& texts);

}  // namespace strata::data
