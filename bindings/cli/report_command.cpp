// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "bindings/cli/commands.h"
#include "engine/base/error.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/report/report.h"
#include "engine/text/text_files.h"

namespace strata::cli {

namespace {

// Whether something is there that is no page, so that nothing else is lost by a wrong --out. A
// device such as /dev/null would be replaced by the page.
bool is_other_file(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::file_status status = std::filesystem::status(path, unknown);
  if (!std::filesystem::exists(status)) return false;
  if (!std::filesystem::is_regular_file(status)) return true;
  constexpr std::string_view kBegin = "<!doctype html>";
  std::string begin(kBegin.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(file.gcount()));
  return !begin.empty() && begin != kBegin;
}

// A path that cannot be written is a wrong option.
void write_page(const std::string& path, const std::string& html) {
  const std::string parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent;
  if (::access(folder.c_str(), W_OK | X_OK) != 0) {
    throw system_error(ErrorCode::kUsage, "report: " + folder, errno, "give another --out");
  }
  text::write_text_file(path, html);
}

}  // namespace

int run_report(const config::Options& options) {
  const report::RunRecord run = report::read_run(options.run);
  const std::string path = options.out.empty() ? run.path + "/report.html" : options.out;
  if (std::filesystem::is_directory(path)) {
    throw Error(ErrorCode::kUsage, "report: " + path + ": is a directory (give --out a file)");
  }
  if (is_other_file(path)) {
    throw Error(ErrorCode::kUsage,
                "report: " + path + ": exists and is not a report (give another --out)");
  }
  write_page(path, report::report_html(run));
  if (options.json) {
    config::Json json = config::Json::object();
    json.set("report", path);
    json.set("state", report::state_of(run));
    json.set("steps", static_cast<int64_t>(run.steps.size()));
    std::puts(json.dump().c_str());
  } else {
    std::printf("%s: %s of %s, %s\n", path.c_str(), counted(std::ssize(run.steps), "step").c_str(),
                run.path.c_str(), report::state_of(run).c_str());
  }
  return 0;
}

}  // namespace strata::cli
