// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/config/option_table.h"
#include "engine/config/options.h"

namespace strata::config {

// Where a value came from; a higher one overrides a lower one.
enum class SourceKind : uint8_t { kDefault, kRun, kImport, kFile, kFlag };

// Collects values for one command from several sources, and every problem on the way.
class OptionCollector {
 public:
  explicit OptionCollector(Command command);

  // `shown` is how the user wrote the name, with the place: "--lr" or "run.toml:3:1: lr". Keys of
  // other commands are checked and left out, so that commands can share a file; flags are refused.
  void set(SourceKind kind, std::string_view name, const std::vector<std::string>& values,
           const std::string& shown);
  void unknown(std::string_view name, const std::string& shown, bool flag);

  // The element `index` of [[group]], which may have no keys; and a key of it.
  ParameterGroupOptions& open_group(int index);
  void clear_groups() { options_.groups.clear(); }
  void set_group(int index, std::string_view key, const std::vector<std::string>& values,
                 const std::string& shown);

  void problem(std::string text) { problems_.push_back(std::move(text)); }

  // What has been collected, unchecked.
  const Options& so_far() const { return options_; }

  // The options, checked for conflicts. Throws one Error (kUsage) with all problems.
  Options finish();

 private:
  SourceKind& kind_of(std::string_view name);

  const Command command_;
  Options options_;
  std::vector<SourceKind> kinds_;  // by row of the table
  std::vector<std::string> problems_;
};

// Collects what the run before says where no other source does.
void collect_run(const RunOptions& run, OptionCollector& collector);

}  // namespace strata::config
