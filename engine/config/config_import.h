// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/config/deepspeed_json.h"
#include "engine/config/json.h"

// What becomes of the keys of another program's file: each becomes an option of ours, or is ignored
// or refused with the reason. Nothing is dropped silently.
namespace strata::config {

enum class ImportFate : uint8_t { kBecame, kIgnored, kRefused };

struct ImportLine {
  std::string key;    // "zero_optimization.stage"
  std::string value;  // as in the file
  ImportFate fate = ImportFate::kIgnored;
  std::string became;  // "--zero-stage 3"; only with kBecame
  std::string why;     // empty when the value alone is the reason

  std::string text() const;  // `became` and `why`
};

struct ImportedOption {
  std::string name;
  std::vector<std::string> values;
  std::string key;  // where it comes from
};

// An option that a stronger source gives: a flag, or a key of the --config file.
struct GivenOption {
  std::string name;
  std::string text;
  std::string shown;  // as the user wrote it: "--lr" or "run.toml:3:1: lr"
};

struct ConfigImport {
  std::vector<ImportLine> lines;  // in the order of the file; derived ones at the end
  std::vector<ImportedOption> options;

  bool is_refused() const;  // a line is
};

// The lines as a table under a headline that names the file (key, value, and what became of it),
// and as a JSON array.
std::string import_report(const ConfigImport& import, const std::string& path);
Json import_json(const ConfigImport& import);

// Writes down what becomes of keys, one after another.
class ImportWriter {
 protected:
  explicit ImportWriter(std::span<const GivenOption> given) : given_(given) {}

  void ignore(const Leaf& leaf, std::string_view why);
  void refuse(const Leaf& leaf, std::string_view why);
  // The key becomes the option, unless the option does not take these values, which is refused, or
  // a stronger source gives it.
  void set(const Leaf& leaf, std::string_view option, const std::vector<std::string>& values,
           std::string_view note = "");
  static void mark_overridden(ImportLine& line, std::string_view by);

  // The option that a stronger source gives; null when none does.
  const GivenOption* given_elsewhere(std::string_view option) const;

  ConfigImport import_;

 private:
  // The given option that overrides one of the file: the same option, or one that excludes it.
  const GivenOption* stronger_than(std::string_view option) const;

  const std::span<const GivenOption> given_;
};

}  // namespace strata::config
