// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/config/options.h"
#include "engine/data/data_records.h"

// What files of data hold, by their names and first bytes.
namespace strata::data {

enum class FileKind : uint8_t { kTokens, kRecords, kText };
// Throws Error (kConfig) for files that are of another kind by their names.
FileKind kind_of_file(const std::string& path);

// Throws Error (kConfig) for a file of text whose first line is a record.
void refuse_records_in_text(const std::string& path);

// What samples are made of where nothing is said: whole records, several in one, where each file's
// first record has a prompt, else a stretch of all tokens. Files that cannot be read count as text:
// read_data() says what is wrong with them.
config::SampleLayout natural_layout(const std::vector<std::string>& files,
                                    const RecordRules& rules);

}  // namespace strata::data
