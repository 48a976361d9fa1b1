// SPDX-License-Identifier: Apache-2.0
// Speed of a training step: against the machine, against a lower bound, against what was predicted,
// and against other programs. `step_bench --help` says what it takes.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <functional>
#include <map>
#include <optional>

#include "benchmarks/print_log.h"
#include "benchmarks/step_bench_sections.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/limits.h"
#include "engine/model/architecture.h"

namespace strata::bench {
namespace {

constexpr const char* kHelp =
    R"(usage: step_bench --nvme DIR [options]

  --nvme DIR            scratch directory on the drive to use
  --sections LIST       of resident,offload,optimizer,bytes,prediction,deepspeed,plans
                        (default: resident,offload,optimizer,bytes)
  --rounds N            alternations of what is compared (default 3)
  --steps N             steps of a burst; the first and the last are not counted (default 4)
  --shapes BxT[,BxT]    of resident (default 1x128,2x512)
  --shape BxT           micro-batch of offload (default 1x128)
  --accumulate N        micro-batches of a step of offload (default 4); more where the drive is
                        too slow for so little arithmetic
  --host-memory SIZE    of offload (default 768MiB)
  --rho F[,F]           of offload (default 1,2,4): time of the resident forward and backward over
                        the time in which the limited drive moves nine tenths of all planes
  --recipe fp32|bf16    (default fp32)
  --model H,L,A,K,F,V[,untied]  hidden, layers, heads, key-value heads, feed-forward, vocabulary
                        (default 768,12,12,4,2048,32000), and whether the head has its own matrix
  --threads N           (default: cores)
  --recompute           keep no activations, resident or offloaded
  --profile             where the time goes, by lane and kind of op; resident also by kernel
  --torch PYTHON --torch-script FILE          PyTorch, in turns with resident
  --deepspeed PYTHON --deepspeed-script FILE  DeepSpeed, for its section
  --allow-tmpfs         let DIR be memory
  --json FILE           all figures with their samples

A line is a median, with the smallest and the largest of its samples.
)";

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char letter : text) {
    if (letter == at) {
      parts.emplace_back();
    } else {
      parts.back() += letter;
    }
  }
  return parts;
}

[[noreturn]] void refuse(const std::string& flag, const std::string& value) {
  throw Error(ErrorCode::kUsage, fmt::format("{}: cannot use \"{}\" (see --help)", flag, value));
}

template <typename Number>
Number number_of(const std::string& flag, const std::string& text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number <= 0) refuse(flag, text);
  return number;
}

model::BatchShape shape_of(const std::string& flag, const std::string& text) {
  const std::vector<std::string> parts = split(text, 'x');
  if (parts.size() != 2) refuse(flag, text);
  return {number_of<int64_t>(flag, parts[0]), number_of<int64_t>(flag, parts[1])};
}

struct Arguments {
  Settings settings;
  Bench bench;
  std::vector<std::string> sections = {"resident", "offload", "optimizer", "bytes"};
  std::string json;
  bool help = false;
};

model::ModelSpec spec_of(const std::string& flag, const std::string& text) {
  std::vector<std::string> parts = split(text, ',');
  const bool is_untied = parts.back() == "untied";
  if (is_untied) parts.pop_back();
  if (parts.size() != 6) refuse(flag, text);
  model::Architecture a;
  a.model_type = "llama";
  int64_t* const fields[] = {&a.hidden,   &a.layers,       &a.heads,
                             &a.kv_heads, &a.feed_forward, &a.vocabulary};
  for (size_t i = 0; i < parts.size(); ++i) *fields[i] = number_of<int64_t>(flag, parts[i]);
  a.head_size = a.hidden / a.heads;
  a.max_position = 4096;
  a.tied = !is_untied;
  model::validate(a, flag);
  return model::build_spec(a);
}

using Setter = std::function<void(const std::string&, Arguments&)>;

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> kSetters = {
      {"--nvme", [](const auto& v, Arguments& a) { a.bench.directory = v; }},
      {"--sections", [](const auto& v, Arguments& a) { a.sections = split(v, ','); }},
      {"--rounds",
       [](const auto& v, Arguments& a) { a.settings.rounds = number_of<int>("--rounds", v); }},
      {"--steps",
       [](const auto& v, Arguments& a) {
         a.settings.steps = number_of<int>("--steps", v);
         if (a.settings.steps < 3) refuse("--steps", v);
       }},
      {"--shapes",
       [](const auto& v, Arguments& a) {
         a.settings.shapes.clear();
         for (const auto& one : split(v, ',')) {
           a.settings.shapes.push_back(shape_of("--shapes", one));
         }
       }},
      {"--shape", [](const auto& v, Arguments& a) { a.settings.shape = shape_of("--shape", v); }},
      {"--accumulate",
       [](const auto& v, Arguments& a) {
         a.settings.micro_batches = number_of<int>("--accumulate", v);
       }},
      {"--host-memory",
       [](const auto& v, Arguments& a) {
         const auto bytes = parse_bytes(v);
         if (!bytes) refuse("--host-memory", v);
         a.settings.host_bytes = *bytes;
       }},
      {"--rho",
       [](const auto& v, Arguments& a) {
         a.settings.rho.clear();
         for (const auto& one : split(v, ',')) {
           a.settings.rho.push_back(number_of<double>("--rho", one));
         }
       }},
      {"--recipe",
       [](const auto& v, Arguments& a) {
         if (v != "fp32" && v != "bf16") refuse("--recipe", v);
         a.settings.recipe = v == "fp32" ? Recipe::kFp32 : Recipe::kBf16;
       }},
      {"--model", [](const auto& v, Arguments& a) { a.bench.spec = spec_of("--model", v); }},
      {"--threads",
       [](const auto& v, Arguments& a) { a.bench.threads = number_of<int>("--threads", v); }},
      {"--torch", [](const auto& v, Arguments& a) { a.settings.torch.python = v; }},
      {"--torch-script", [](const auto& v, Arguments& a) { a.settings.torch.script = v; }},
      {"--deepspeed", [](const auto& v, Arguments& a) { a.settings.deepspeed.python = v; }},
      {"--deepspeed-script", [](const auto& v, Arguments& a) { a.settings.deepspeed.script = v; }},
      {"--json", [](const auto& v, Arguments& a) { a.json = v; }},
  };
  return kSetters;
}

const std::map<std::string, void (*)(Arguments&)>& switches() {
  static const std::map<std::string, void (*)(Arguments&)> kSwitches = {
      {"--recompute", [](Arguments& a) { a.settings.may_keep = false; }},
      {"--profile", [](Arguments& a) { a.settings.profile = a.bench.time_kernels = true; }},
      {"--allow-tmpfs", [](Arguments& a) { a.bench.allow_memory_filesystem = true; }},
      {"--help", [](Arguments& a) { a.help = true; }},
  };
  return kSwitches;
}

const std::map<std::string, void (*)(const Context&)>& sections() {
  static const std::map<std::string, void (*)(const Context&)> kSections = {
      {"resident", resident_section},     {"offload", offload_section},
      {"optimizer", optimizer_section},   {"bytes", bytes_section},
      {"prediction", prediction_section}, {"deepspeed", deepspeed_section},
      {"plans", plans_section},
  };
  return kSections;
}

Arguments read_arguments(const std::vector<std::string>& words) {
  Arguments arguments;
  arguments.bench.spec = spec_of("--model", "768,12,12,4,2048,32000");
  arguments.bench.threads = static_cast<int>(config::read_limits().cores);
  for (size_t i = 0; i < words.size(); ++i) {
    if (const auto found = switches().find(words[i]); found != switches().end()) {
      found->second(arguments);
      continue;
    }
    const auto setter = setters().find(words[i]);
    if (setter == setters().end() || i + 1 == words.size()) refuse("step_bench", words[i]);
    setter->second(words[++i], arguments);
  }
  if (arguments.help) return arguments;
  if (arguments.bench.directory.empty()) refuse("--nvme", "");
  for (const std::string& name : arguments.sections) {
    if (!sections().contains(name)) refuse("--sections", name);
    if (name == "deepspeed" && !arguments.settings.deepspeed) refuse("--deepspeed", "");
  }
  return arguments;
}

void print_machine(const config::Machine& machine, Report& report) {
  report.title("this machine, by the probe");
  report.note(fmt::format(
      "{} cores, products {:.0f} GFLOP/s (bf16 weights {:.0f}), blocks {:.0f} ({:.0f})",
      machine.cores, machine.matmul_flops_per_s / 1e9, machine.matmul_bf16_flops_per_s / 1e9,
      machine.step_flops_per_s / 1e9, machine.step_bf16_flops_per_s / 1e9));
  report.note(fmt::format(
      "memory {:.1f} GB/s, update {:.1f} GB/s, checksums {:.1f} GB/s, both lanes at {:.2f}",
      machine.memory_bytes_per_s / 1e9, machine.optimizer_bytes_per_s / 1e9,
      machine.checksum_bytes_per_s / 1e9, machine.overlap_speed));
  report.note(fmt::format(
      "drive {:.2f} GB/s read, {:.2f} written, {:.2f} both; {:.2f} core seconds a GB, {:.2f} ms",
      machine.nvme_read_bytes_per_s / 1e9, machine.nvme_write_bytes_per_s / 1e9,
      machine.nvme_mixed_bytes_per_s / 1e9, machine.cpu_s_per_io_gb, machine.nvme_latency_s * 1e3));
}

int run(const Arguments& arguments) {
  exec::ProbeOptions probe;
  probe.backend = &kernels::cpu_backend();
  probe.threads = arguments.bench.threads;
  probe.drive.directories = {arguments.bench.directory};
  probe.drive.allow_memory_filesystem = arguments.bench.allow_memory_filesystem;
  probe.drive.io_depth = arguments.bench.io_depth;
  Report report;
  const config::Machine machine = exec::probe_machine(probe);
  print_machine(machine, report);
  const Context context = {arguments.bench, arguments.settings, probe, machine, report};
  for (const std::string& name : arguments.sections) sections().at(name)(context);
  report.print_goals();
  if (!arguments.json.empty()) std::ofstream(arguments.json) << report.json() << "\n";
  return 0;
}

}  // namespace
}  // namespace strata::bench

int main(int count, char** words) {
  const strata::bench::PrintLog printing;
  try {
    const auto arguments = strata::bench::read_arguments({words + 1, words + count});
    if (arguments.help) {
      std::fputs(strata::bench::kHelp, stdout);
      return 0;
    }
    return strata::bench::run(arguments);
  } catch (const strata::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
}
