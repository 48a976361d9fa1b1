// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "engine/data/data_records.h"

// Files of data for what makes no samples of them: `init` and `tokenize`.
namespace strata::data {

// Calls `use` with the JSON of each record of a file, the number of its line, and the kind of the
// file's first record; where bad records are skipped, `refuse` with the causes of those before the
// first that has a kind. Memory: a record of at most 64 MiB. Failure: Error that names the file and
// line.
using UseRecord = std::function<void(std::string_view item, int64_t line, RecordKind kind)>;
using RefuseRecord = std::function<void(int64_t line, const std::string& cause)>;
void for_each_record(const std::string& path, const RecordRules& rules, const UseRecord& use,
                     const RefuseRecord& refuse);

// Calls `use` with what the records of a file say, without templates, or with the blocks of a text,
// of 16 MiB. Failure: as for_each_record(); Error for a file of tokens.
void for_each_plain_text(const std::string& path, const RecordRules& rules,
                         const std::function<void(std::string_view)>& use);

}  // namespace strata::data
