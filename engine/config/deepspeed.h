// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/json.h"

// DeepSpeed JSON files, for those who have one: every key becomes an option of ours, or is ignored
// or refused with the reason. Nothing is dropped silently.
namespace strata::config {

enum class ImportFate : uint8_t { kBecame, kIgnored, kRefused };

struct ImportLine {
  std::string key;    // "zero_optimization.stage"
  std::string value;  // as in the file
  ImportFate fate = ImportFate::kIgnored;
  std::string became;  // "--zero-stage 3"; empty unless that is its fate
  std::string why;     // empty where the file's value alone is the reason

  std::string text() const;  // both
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

// Reads the text: JSON with comments (//, /* */, #) and trailing commas; numbers like 5e8 are
// whole. `ranks` is for train_batch_size, which counts all ranks and holds with the factors of
// `given`, of which the last of a name counts. Throws Error (kConfig) where it is not that; keys
// that cannot be followed are lines with kRefused.
DeepspeedImport import_deepspeed(std::string_view text, const std::string& name, int64_t ranks,
                                 std::span<const GivenOption> given = {});

// Three columns: the key, its value, and what became of it.
std::string import_table(const DeepspeedImport& import);
// The table under a headline that names the file, and its lines as a JSON array.
std::string import_report(const DeepspeedImport& import, const std::string& path);
Json import_json(const DeepspeedImport& import);

// What follows a comment or is a comma before a closing bracket, made blank; lines and columns
// stay.
std::string without_comments(std::string_view text);
// The text as JSON. Throws Error (kConfig) that also says what may stand in such a file.
Json parse_deepspeed(std::string_view text, const std::string& name);

}  // namespace strata::config
