// SPDX-License-Identifier: Apache-2.0
// Any bytes as another program's YAML: refused with our Error, or lines for its keys, and options
// that the table of options accepts. Files that it names hold one entry.
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/config/foreign_import.h"
#include "engine/config/option_table.h"
#include "engine/config/option_values.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace strata::config;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto read = [](const std::string&) {
    return std::string(R"({"a": {"file_name": ".", "columns": {"prompt": "q"}}})");
  };
  try {
    const ConfigImport import = import_foreign(text, "fuzz", read);
    for (const ImportedOption& option : import.options) {
      Options scratch;
      STRATA_CHECK(assign(*find_option(option.name), option.values, scratch).empty());
    }
    import_report(import, "fuzz");
    import_json(import);
  } catch (const strata::Error& error) {
    STRATA_CHECK(error.code() == strata::ErrorCode::kConfig);
  }
  return 0;
}
