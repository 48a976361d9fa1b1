// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/doctor_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iterator>

#include "bindings/cli/doctor_gpu.h"
#include "bindings/cli/doctor_mpi.h"
#include "bindings/cli/doctor_storage.h"
#include "bindings/cli/process_sinks.h"
#include "engine/config/json.h"

namespace strata::cli {
namespace {

constexpr std::array<const char*, 3> kStatusNames = {"OK", "WARN", "FAIL"};

const char* name_of(DoctorLine::Status status) {
  return kStatusNames[static_cast<size_t>(status)];
}

auto count_of(const std::vector<DoctorLine>& lines, DoctorLine::Status status) {
  return std::count_if(lines.begin(), lines.end(),
                       [status](const DoctorLine& line) { return line.status == status; });
}

// For printing the findings so far when a hanging drive ends the program.
StorageCheck* open_check = nullptr;
bool prints_json = false;

// Prints the findings and returns the exit code.
int print(const std::vector<DoctorLine>& lines) {
  const std::string text = prints_json ? doctor_json(lines) : doctor_table(lines);
  std::fwrite(text.data(), 1, text.size(), stdout);
  return doctor_exit_code(lines);
}

int print_open_check(int) {
  open_check->lines.push_back({DoctorLine::Status::kFail, open_check->checking,
                               "the drive hangs: it does not answer, and the directories after it "
                               "were not checked",
                               "see dmesg, and use another drive"});
  return print(open_check->lines);
}

}  // namespace

std::string doctor_table(const std::vector<DoctorLine>& lines) {
  std::string text;
  for (const DoctorLine& line : lines) {
    fmt::format_to(std::back_inserter(text), "{:<5} {:<28} {}\n", name_of(line.status),
                   line.subject, line.text);
    if (!line.fix.empty()) {
      fmt::format_to(std::back_inserter(text), "{:<5} {:<28} fix: {}\n", "", "", line.fix);
    }
  }
  fmt::format_to(std::back_inserter(text), "\n{} OK, {} WARN, {} FAIL\n",
                 count_of(lines, DoctorLine::Status::kOk),
                 count_of(lines, DoctorLine::Status::kWarn),
                 count_of(lines, DoctorLine::Status::kFail));
  return text;
}

std::string doctor_json(const std::vector<DoctorLine>& lines) {
  config::Json items = config::Json::array();
  for (const DoctorLine& line : lines) {
    config::Json item = config::Json::object();
    item.set("status", name_of(line.status));
    item.set("subject", line.subject);
    item.set("text", line.text);
    item.set("fix", line.fix);
    items.push_back(std::move(item));
  }
  return items.dump(2) + "\n";
}

int doctor_exit_code(const std::vector<DoctorLine>& lines) {
  return count_of(lines, DoctorLine::Status::kFail) > 0 ? 2 : 0;
}

int run_doctor(const config::Options& options, const Environment& environment) {
  StorageCheck check{.lines = check_machine(environment), .checking = {}};
  open_check = &check;
  prints_json = options.json;
  set_hang_report(print_open_check);
  for (DoctorLine& line : check_gpus(options.plugin_path)) check.lines.push_back(std::move(line));
  check.lines.push_back(check_mpi(options.plugin_path));
  check_storage(options.nvme, "", check);
  return print(check.lines);
}

}  // namespace strata::cli
