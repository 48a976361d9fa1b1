// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/doctor_drive.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "bindings/cli/doctor_gpu.h"
#include "engine/base/plural.h"
#include "io/drives.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using io::entries_of;
using Status = DoctorLine::Status;

constexpr double kHotCelsius = 70;  // for a drive that does not state its limit

std::string read_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  while (!line.empty() && line.back() == ' ') line.pop_back();  // model names are padded
  return line;
}

std::optional<double> read_number(const fs::path& path) {
  const std::string line = read_line(path);
  char* end = nullptr;
  const double value = std::strtod(line.c_str(), &end);
  if (end == line.c_str()) return std::nullopt;
  return value;
}

// The controller of a drive. For an NVMe drive with several paths, it is beside the drive in its
// subsystem.
fs::path controller_of(const fs::path& drive) {
  std::error_code error;
  const fs::path device = fs::canonical(drive / "device", error);
  if (error) return {};
  for (const fs::path& entry : entries_of(device, "nvme")) {
    if (!fs::exists(entry / "device", error)) continue;
    const fs::path controller = fs::canonical(entry, error);
    if (!error && fs::exists(controller / "device/current_link_speed", error)) return controller;
  }
  return device;
}

void check_link(const std::string& name, const fs::path& controller,
                std::vector<DoctorLine>& lines) {
  const fs::path pci = controller / "device";
  const std::string speed = read_line(pci / "current_link_speed");
  const std::string width = read_line(pci / "current_link_width");
  if (speed.empty() || width.empty()) return;
  const std::string best_speed = read_line(pci / "max_link_speed");
  const std::string best_width = read_line(pci / "max_link_width");
  const bool reduced =
      (!best_speed.empty() && speed != best_speed) || (!best_width.empty() && width != best_width);
  const std::string text = fmt::format("PCIe {} x{}", speed, width);
  if (!reduced) {
    lines.push_back({Status::kOk, name, text, ""});
    return;
  }
  lines.push_back({Status::kWarn, name,
                   fmt::format("{}, the drive can {} x{}", text, best_speed, best_width),
                   "move it to a slot with more or faster lanes, or check the BIOS (an idle link "
                   "may be slower: check again under load)"});
}

// A drive and a GPU on two nodes exchange over the link between the processors.
void check_node(const std::string& name, const fs::path& controller, const std::string& root,
                std::vector<DoctorLine>& lines) {
  const std::optional<double> node = read_number(controller / "device/numa_node");
  if (!node || *node < 0) return;
  const std::string text = fmt::format("NUMA node {:.0f}", *node);
  const std::set<int> of_gpus = numa_nodes_of_gpus(root);
  if (of_gpus.empty() || of_gpus.contains(-1) || of_gpus.contains(static_cast<int>(*node))) {
    lines.push_back({Status::kOk, name, text, ""});
    return;
  }
  lines.push_back(
      {Status::kWarn, name,
       fmt::format("{}, and GPUs are on {} {}", text,
                   plural(static_cast<int64_t>(of_gpus.size()), "node"), fmt::join(of_gpus, ", ")),
       "use drives on the node of a run's GPU: others reach it over the link between "
       "the processors"});
}

void check_temperature(const std::string& name, const fs::path& controller,
                       std::vector<DoctorLine>& lines) {
  std::vector<fs::path> sensors = entries_of(controller, "hwmon");
  for (const fs::path& sensor : entries_of(controller / "hwmon", "hwmon"))
    sensors.push_back(sensor);
  for (const fs::path& sensor : sensors) {
    const std::optional<double> milli = read_number(sensor / "temp1_input");
    if (!milli) continue;
    const double limit = read_number(sensor / "temp1_max").value_or(1000 * kHotCelsius) / 1000;
    const bool hot = *milli / 1000 >= limit;
    lines.push_back({hot ? Status::kWarn : Status::kOk, name,
                     fmt::format("{:.0f} degrees C, {} its limit of {:.0f}", *milli / 1000,
                                 hot ? "above" : "below", limit),
                     hot ? "cool it: drives slow down when they are hot" : ""});
    return;
  }
}

}  // namespace

std::vector<DoctorLine> check_drives(const std::string& directory, const std::string& root) {
  const std::vector<fs::path> drives = io::drives_of(directory, root);
  if (drives.empty()) {
    return {{Status::kOk, directory,
             "no block device of its own, so nothing is known about the drive", ""}};
  }
  std::vector<DoctorLine> lines;
  for (const fs::path& drive : drives) {
    const std::string name = drive.filename().string();
    const std::string model = read_line(drive / "device/model");
    const bool disk = read_number(drive / "queue/rotational").value_or(0) != 0;
    lines.push_back({disk ? Status::kWarn : Status::kOk, directory,
                     "on " + name + (model.empty() ? "" : ", " + model) +
                         (disk ? ": reports rotating disks" : ""),
                     disk ? "use an NVMe drive (virtual drives may report this wrongly)" : ""});
    const fs::path controller = controller_of(drive);
    if (controller.empty()) continue;
    check_link(name, controller, lines);
    check_node(name, controller, root, lines);
    check_temperature(name, controller, lines);
  }
  return lines;
}

}  // namespace strata::cli
