// SPDX-License-Identifier: Apache-2.0
// `strata bench kernels` and `strata bench link`: what a device does alone, and the copies to it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <vector>

#include "bindings/cli/commands.h"
#include "engine/base/plural.h"
#include "engine/base/units.h"
#include "engine/config/json.h"
#include "engine/config/limits.h"
#include "engine/exec/devices.h"
#include "engine/exec/kernel_bench.h"
#include "engine/exec/link_bench.h"

namespace strata::cli {
namespace {

using config::DeviceKind;
using config::Json;

// The device that is measured.
struct BenchedDevice {
  std::string name;
  int64_t free_bytes = 0;  // of its memory
  std::unique_ptr<kernels::Device> device;
};

BenchedDevice open(const config::Options& a) {
  const config::Limits limits = config::read_limits();
  const int threads = static_cast<int>(a.threads > 0 ? a.threads : limits.cores);
  const DeviceKind kind = config::kind_of(a.device);
  const int index = a.first_device();
  const std::string cores = counted(threads, "thread");
  BenchedDevice opened = {"cpu: " + cores, limits.usable_bytes(), nullptr};
  if (kind == DeviceKind::kEmulated) opened.name = "emulated: on the CPU, " + cores;
  if (config::row_of(kind).is_gpu) {
    const auto gpus = exec::require_gpu(a.plugin_path, index);
    opened.name = fmt::format("{}:{}: {}", config::row_of(kind).name, index,
                              exec::text_of(gpus[static_cast<size_t>(index)]));
    opened.free_bytes = exec::free_bytes_of_gpu(a.plugin_path, index);
  }
  opened.device = exec::open_device({.kind = kind,
                                     .index = index,
                                     .interior = weight_dtype(a.recipe),
                                     .threads = threads,
                                     .plugin_path = a.plugin_path});
  if (opened.device == nullptr) {
    opened.device = kernels::make_host_device(kernels::cpu_backend(), threads);
  }
  return opened;
}

// With three digits: "9.79 GB/s", "900 TFLOP/s".
std::string rate_text(double rate, exec::Roof roof) {
  const bool bytes = roof == exec::Roof::kBytes, tera = !bytes && rate >= 1e12;
  const double value = rate / (tera ? 1e12 : 1e9);
  return fmt::format("{:.{}f} {}", value,
                     value < 10    ? 2
                     : value < 100 ? 1
                                   : 0,
                     bytes  ? "GB/s"
                     : tera ? "TFLOP/s"
                            : "GFLOP/s");
}

std::string kernels_text(const std::string& device, const config::Options& a,
                         const exec::KernelFigures& figures) {
  std::string text =
      fmt::format("device  {}\n\n{:<36}{:>12}{:>16}{:>14}\n", device,
                  fmt::format("op, {}", name_of(a.recipe)), "time", "rate", "of the roof");
  for (const exec::KernelRow& row : figures.rows) {
    const std::string share = row.share > 0 ? fmt::format("{:.2f}", row.share) : "-";
    fmt::format_to(std::back_inserter(text), "{:<36}{:>9.3f} ms{:>16}{:>14}\n", row.name,
                   1e3 * row.seconds, rate_text(row.rate, row.roof), share);
  }
  text += fmt::format("\nthe roof: a copy, {} read and written; the best product, {}\n",
                      rate_text(figures.copy_bytes_per_s, exec::Roof::kBytes),
                      rate_text(figures.product_flops_per_s, exec::Roof::kFlops));
  return text;
}

std::string kernels_json(const std::string& device, const config::Options& a,
                         const exec::KernelFigures& figures) {
  Json rows = Json::array();
  for (const exec::KernelRow& row : figures.rows) {
    Json one = Json::object();
    one.set("op", row.name);
    one.set("seconds", row.seconds);
    one.set(row.roof == exec::Roof::kBytes ? "bytes_per_s" : "flops_per_s", row.rate);
    one.set("share_of_roof", row.share > 0 ? Json(row.share) : Json());
    rows.push_back(std::move(one));
  }
  Json json = Json::object();
  json.set("kind", "strata bench kernels");
  json.set("device", device);
  json.set("recipe", name_of(a.recipe));
  json.set("memory_bytes", figures.memory_bytes);
  json.set("copy_bytes_per_s", figures.copy_bytes_per_s);
  json.set("product_flops_per_s", figures.product_flops_per_s);
  json.set("ops", std::move(rows));
  return json.dump(2) + "\n";
}

// The figures of copies of one size.
struct LinkRow {
  int64_t bytes = 0;
  exec::LinkFigures figures;
};

std::vector<LinkRow> measure_link(const config::Options& a, BenchedDevice& to) {
  constexpr int64_t kSizes[] = {64 * kKiB, kMiB, 16 * kMiB, 256 * kMiB};
  const int64_t free = std::min(to.free_bytes, config::read_limits().usable_bytes()) / 4;
  const int64_t most = a.device_memory > 0 ? a.device_memory : free;
  std::vector<exec::LinkBench> benches;
  for (const int64_t bytes : kSizes) {
    if (bytes > kSizes[0] && 2 * bytes > most) break;
    benches.push_back({.bytes = bytes, .pinned = true});
    benches.push_back({.bytes = bytes, .pinned = false});
  }
  std::vector<LinkRow> rows;
  for (exec::LinkBench& bench : benches) {
    bench.seconds = a.seconds / static_cast<double>(benches.size() + 1);
    rows.push_back({bench.bytes, exec::bench_link(*to.device, bench)});
  }
  return rows;
}

std::string link_text(const std::string& device, const std::vector<LinkRow>& rows,
                      const exec::LinkLatency& latency) {
  std::string text = fmt::format("device  {}\n\n{:>8}   {:<12}{:>15}{:>17}{:>15}\n", device, "copy",
                                 "host memory", "to the device", "from the device", "both at once");
  for (const LinkRow& row : rows) {
    const exec::LinkFigures& found = row.figures;
    fmt::format_to(
        std::back_inserter(text), "{:>8}   {:<12}{:>15}{:>17}{:>15}\n", format_bytes(row.bytes),
        found.pinned ? "pinned" : "not pinned",
        rate_text(found.upload_bytes_per_s, exec::Roof::kBytes),
        rate_text(found.download_bytes_per_s, exec::Roof::kBytes),
        found.both_bytes_per_s > 0 ? rate_text(found.both_bytes_per_s, exec::Roof::kBytes) : "-");
  }
  return text +
         fmt::format(
             "\nlatency: a copy of {} is seen to end after {:.1f} us to the device, {:.1f} us "
             "from it\n",
             format_bytes(exec::kSmallCopyBytes), 1e6 * latency.upload_s, 1e6 * latency.download_s);
}

std::string link_json(const std::string& device, const std::vector<LinkRow>& rows,
                      const exec::LinkLatency& latency) {
  Json copies = Json::array();
  for (const LinkRow& row : rows) {
    Json one = Json::object();
    one.set("bytes", row.bytes);
    one.set("pinned", row.figures.pinned);
    one.set("upload_bytes_per_s", row.figures.upload_bytes_per_s);
    one.set("download_bytes_per_s", row.figures.download_bytes_per_s);
    const double both = row.figures.both_bytes_per_s;
    one.set("both_bytes_per_s", both > 0 ? Json(both) : Json());
    copies.push_back(std::move(one));
  }
  Json json = Json::object();
  json.set("kind", "strata bench link");
  json.set("device", device);
  json.set("copies", std::move(copies));
  json.set("latency_bytes", exec::kSmallCopyBytes);
  json.set("upload_latency_s", latency.upload_s);
  json.set("download_latency_s", latency.download_s);
  return json.dump(2) + "\n";
}

}  // namespace

int run_bench_kernels(const config::Options& a) {
  const int64_t most = config::is_gpu(a.device) ? 4 * kGiB : kGiB;
  const BenchedDevice opened = open(a);
  const int64_t bytes =
      a.device_memory > 0 ? a.device_memory : std::min(most, opened.free_bytes / 2);
  const exec::KernelFigures figures = exec::bench_kernels(
      *opened.device, {.recipe = a.recipe, .bytes = bytes, .seconds = a.seconds});
  std::fputs((a.json ? kernels_json : kernels_text)(opened.name, a, figures).c_str(), stdout);
  return 0;
}

int run_bench_link(const config::Options& a) {
  BenchedDevice opened = open(a);
  const std::vector<LinkRow> rows = measure_link(a, opened);
  const exec::LinkLatency latency = exec::bench_latency(*opened.device, a.seconds / 10);
  std::fputs((a.json ? link_json : link_text)(opened.name, rows, latency).c_str(), stdout);
  return 0;
}

}  // namespace strata::cli
