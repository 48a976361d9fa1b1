// SPDX-License-Identifier: Apache-2.0
#include "bindings/cli/doctor_gpu.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/exec/devices.h"
#include "engine/exec/link_bench.h"

namespace strata::cli {
namespace {

using Status = DoctorLine::Status;
namespace fs = std::filesystem;

std::string first_word(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// "; PCIe 32.0 GT/s x16, NUMA node 0", as far as the system says it.
std::string place_of(const std::string& pci, const std::string& root) {
  const fs::path folder = fs::path(root + "/sys/bus/pci/devices") / pci;
  std::ifstream file(folder / "current_link_speed");
  std::string speed;
  std::getline(file, speed);
  const std::string width = first_word(folder / "current_link_width");
  const std::string node = first_word(folder / "numa_node");
  std::string text;
  if (!speed.empty() && !width.empty()) text += fmt::format("; {} x{}", speed, width);
  if (!node.empty() && node != "-1") text += ", NUMA node " + node;
  return text;
}

// "; copies 54.8 GB/s to it, 55.1 from it, 92.0 both at once", measured; where its memory is taken,
// nothing.
std::string link_of(int index, const std::string& plugin_path) {
  constexpr double kSeconds = 0.3;
  try {
    const auto device = exec::open_device(
        {.kind = config::DeviceKind::kCuda, .index = index, .plugin_path = plugin_path});
    const exec::LinkFigures link =
        exec::bench_link(*device, {.bytes = 64 * kMiB, .seconds = kSeconds});
    return fmt::format("; copies {:.1f} GB/s to it, {:.1f} from it, {:.1f} both at once",
                       1e-9 * link.upload_bytes_per_s, 1e-9 * link.download_bytes_per_s,
                       1e-9 * link.both_bytes_per_s);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kDoesNotFit) throw;
    return "";
  }
}

DoctorLine check_gpu(const kernels::DeviceFacts& facts, int index, const std::string& plugin_path,
                     const std::string& root) {
  const std::string subject = fmt::format("gpu {}", index);
  const std::string text = exec::text_of(facts);
  try {
    const int64_t free = exec::free_bytes_of_gpu(plugin_path, index);
    // An idle GPU may lower its link's speed until something is copied.
    const std::string link = link_of(index, plugin_path);
    std::string peers;
    const bool has_peers = exec::gpus_have_peers(plugin_path, peers);
    return {
        Status::kOk, subject,
        fmt::format("{}{}; {} free{}; {}{}", text, place_of(facts.pci, root), format_bytes(free),
                    link, has_peers ? "" : "no exchange between GPUs: ", peers),
        ""};
  } catch (const Error& error) {
    return {Status::kFail, subject,
            fmt::format("{}{}; {}", text, place_of(facts.pci, root), error.what()),
            "use --device cpu, or another GPU with --device cuda:N"};
  }
}

}  // namespace

// Those of display and 3D controllers.
std::set<int> numa_nodes_of_gpus(const std::string& root) {
  std::set<int> nodes;
  std::error_code ignored;
  for (fs::directory_iterator at(root + "/sys/bus/pci/devices", ignored), end;
       !ignored && at != end; at.increment(ignored)) {
    const bool is_display = first_word(at->path() / "class").starts_with("0x03");
    if (!is_display || first_word(at->path() / "vendor") != "0x10de") continue;
    const std::string node = first_word(at->path() / "numa_node");
    nodes.insert(node.empty() ? -1 : std::atoi(node.c_str()));
  }
  return nodes;
}

std::vector<DoctorLine> check_gpus(const std::string& plugin_path, const std::string& root) {
  std::string why;
  const std::vector<kernels::DeviceFacts> gpus = exec::list_gpus(plugin_path, why);
  std::vector<DoctorLine> lines;
  for (const kernels::DeviceFacts& facts : gpus) {
    lines.push_back(check_gpu(facts, static_cast<int>(lines.size()), plugin_path, root));
  }
  if (!lines.empty()) return lines;
  const bool has_one = !numa_nodes_of_gpus(root).empty();
  lines.push_back({has_one ? Status::kWarn : Status::kOk, "gpu", "no GPU is used: " + why,
                   has_one ? "do what the brackets say; until then runs use the CPU" : ""});
  return lines;
}

}  // namespace strata::cli
