// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/json.h"

// DeepSpeed JSON files: every key becomes an option of ours, or is ignored or refused with the
// reason. Nothing is dropped silently.
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

struct DeepspeedImport {
  std::vector<ImportLine> lines;  // in the order of the file; derived ones at the end
  std::vector<ImportedOption> options;

  bool is_refused() const;  // a line is
};

// Reads JSON with comments (//, /* */, #) and trailing commas. train_batch_size counts all `ranks`;
// its factors may come from `given`, in which the last entry for a name counts. Throws Error
// (kConfig) when the text is not such JSON. A key that cannot be followed becomes a line with
// kRefused.
DeepspeedImport import_deepspeed(std::string_view text, const std::string& name, int64_t ranks,
                                 std::span<const GivenOption> given = {});

// The lines as a table under a headline that names the file (key, value, and what became of it),
// and as a JSON array.
std::string import_report(const DeepspeedImport& import, const std::string& path);
Json import_json(const DeepspeedImport& import);

}  // namespace strata::config
