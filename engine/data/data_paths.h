// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace strata::data {

// What one item of --data names. Of a directory these are its texts, or its files of records: those
// named for training ("train.jsonl", "train-00001.jsonl", "train/a.jsonl"), or where none is named
// so, all that are not named for validation or tests. Files named for validation ("valid",
// "validation", "val", "dev", "eval") are held out; those named for tests are not read.
struct DataItem {
  std::string path;
  double weight = 0;  // in a mixture; 0: none is given
  std::vector<std::string> files;
  std::vector<std::string> held_out;
};

// The items that --data names: "PATH" or "PATH:WEIGHT". Throws Error (kConfig) when a path cannot
// be read, holds nothing to read, or only some items have a weight. `evaluates`: those of
// --eval-data, where a directory may have only files for validation.
std::vector<DataItem> data_items(const std::vector<std::string>& given, bool evaluates = false);

// Files below the directory that look like data but are in none of the item's lists.
std::vector<std::string> files_left_out(const DataItem& item);

// The size of all files of the items; a missing file has none.
int64_t bytes_of(const std::vector<std::string>& given);

// The size of these files.
int64_t bytes_of_files(const std::vector<std::string>& files);

// Whether the items are token files, which are not held in memory. Reads only names.
bool are_token_files(const std::vector<std::string>& given);

Error bad_data(const std::string& path, const std::string& cause);

}  // namespace strata::data
