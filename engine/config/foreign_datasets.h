// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/config/foreign_import.h"

namespace strata::config {

// What entries about data of another program's file say in options of ours. All entries share one
// set of columns, since ours are the run's.
struct ForeignData {
  std::vector<std::string> paths;
  std::vector<std::string> columns;  // "prompt=question"
  std::string train_on_end;          // "off", or empty
  std::string refusal;               // empty: they can be followed
  std::string note;                  // what is done another way
  bool is_text = false;              // all of it is text to go on with
};

// A list of `datasets` of Axolotl.
ForeignData axolotl_data(const Json& list);

// Names of `dataset` of LLaMA-Factory, separated by commas, in dataset_info.json of `directory`.
ForeignData llama_factory_data(const std::string& names, const std::string& directory,
                               const ReadNamedFile& read);

// Gives each path its weight of `interleave_probs`, whose numbers are separated by commas.
void add_weights(std::string_view weights, ForeignData& data);

// Whether what --data names is files of records, or directories of which only these are read; by
// their names alone.
bool are_record_files(const std::vector<std::string>& paths);

}  // namespace strata::config
