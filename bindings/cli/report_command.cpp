// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>

#include "bindings/cli/commands.h"
#include "engine/base/error.h"
#include "engine/report/report.h"
#include "engine/text/text_files.h"

namespace strata::cli {

int run_report(const config::Options& options) {
  const report::RunRecord run = report::read_run(options.run);
  const std::string path = options.out.empty() ? run.path + "/report.html" : options.out;
  if (std::filesystem::is_directory(path)) {
    throw Error(ErrorCode::kUsage, "report: " + path + ": is a directory (give --out a file)");
  }
  text::write_text_file(path, report::report_html(run));
  if (options.json) {
    config::Json json = config::Json::object();
    json.set("report", path);
    json.set("state", report::state_of(run));
    json.set("steps", static_cast<int64_t>(run.steps.size()));
    std::puts(json.dump().c_str());
  } else {
    std::printf("%s: %zu steps of %s, %s\n", path.c_str(), run.steps.size(), run.path.c_str(),
                report::state_of(run).c_str());
  }
  return 0;
}

}  // namespace strata::cli
