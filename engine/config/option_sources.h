// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/config/option_table.h"
#include "engine/config/options.h"

namespace strata::config {

// Where a value came from. A later kind overrides an earlier one.
enum class SourceKind : uint8_t { kDefault, kRun, kImport, kFile, kFlag };

// Collects the options of one command from several sources, and all problems with them.
class OptionCollector {
 public:
  explicit OptionCollector(Command command);

  // `shown` is the name as the user wrote it, with its place: "--lr" or "run.toml:3:1: lr". A key
  // of another command is checked and then ignored, so that commands can share a file; a flag of
  // another command is a problem.
  void set(SourceKind kind, std::string_view name, const std::vector<std::string>& values,
           const std::string& shown);
  void unknown(std::string_view name, const std::string& shown, bool flag);

  // open_group() adds the element `index` of [[group]], which may have no keys; set_group() sets
  // one of its keys.
  ParameterGroupOptions& open_group(int index);
  void clear_groups() { options_.groups.clear(); }
  void set_group(int index, std::string_view key, const std::vector<std::string>& values,
                 const std::string& shown);

  void problem(std::string text) { problems_.push_back(std::move(text)); }

  // The options collected so far, unchecked.
  const Options& so_far() const { return options_; }
  Options given_so_far() const;  // the same, which know what is given

  // Returns the options after checking for conflicts. Throws one Error (kUsage) with all problems.
  Options finish(const FindGpu& gpu = nullptr);

 private:
  SourceKind& kind_of(std::string_view name);
  std::string with_sources(std::string text) const;
  void take_back(std::string_view name);
  void choose_device(const FindGpu& gpu);

  const Command command_;
  Options options_;
  std::vector<SourceKind> kinds_;   // by row of the table
  std::vector<std::string> shown_;  // likewise
  std::vector<std::string> problems_;
};

// Collects the options of the resumed run, which any other source overrides.
void collect_run(const RunOptions& run, OptionCollector& collector);

}  // namespace strata::config
