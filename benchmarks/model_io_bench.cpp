// SPDX-License-Identifier: Apache-2.0
// Loading and exporting a model directory against the drive's own sequential rate (O_DIRECT,
// --in-flight requests of 4 MiB at a time), which is measured before and after each of them: a
// ratio is to the mean of the two. Prints the median of --rounds, the smallest and the largest.
//
//   model_io_bench --dir DIR [--gb 3] [--rounds 3] [--in-flight 4] [--budget-mib 256]
//
// A new folder in DIR gets a bf16 directory in shards of 512 MB, then exports of it, and is removed
// at the end. Loading is checkpoint::ModelSource filling chunk after chunk (masters split, moments
// zeroed), exporting is checkpoint::ModelSink taking them, with its fsyncs and rename.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/print_log.h"
#include "engine/base/clock.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/checkpoint/model_sink.h"
#include "engine/checkpoint/model_source.h"
#include "engine/memory/arena.h"
#include "engine/model/architecture.h"
#include "engine/model_files/model_writer.h"
#include "engine/shard/layout.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kShardBytes = 512'000'000;
constexpr int64_t kRequestBytes = 4 * kMiB;

struct Settings {
  std::string directory;
  double gigabytes = 3;
  int rounds = 3;
  int in_flight = 4;
  int64_t budget_bytes = 256 * kMiB;
};

// About `bytes` of bf16 weights.
model::Architecture architecture_of(double bytes) {
  model::Architecture at;
  at.model_type = "llama";
  at.hidden = 2048;
  at.heads = 16;
  at.kv_heads = 8;
  at.head_size = 128;
  at.feed_forward = 5632;
  at.vocabulary = 32000;
  at.max_position = 2048;
  const double block = 2.0 * 2048 * (2048 * 3.0 + 3 * 5632);
  at.layers = std::max<int64_t>(1, static_cast<int64_t>((bytes - 2.0 * 2 * 32000 * 2048) / block));
  return at;
}

// Random bits would compress to nothing less, and cost time that is not measured.
void write_model(const std::string& path, const model::Architecture& architecture) {
  const model::ModelSpec spec = model::build_spec(architecture);
  model::ModelWriter writer(spec, model::write_config(architecture, DType::kBF16),
                            {.path = path, .dtype = DType::kBF16, .shard_bytes = kShardBytes});
  std::vector<uint16_t> tile(size_t{1} << 20);
  uint32_t state = 1;
  for (uint16_t& bits : tile) {
    state = state * 1664525u + 1013904223u;
    bits = static_cast<uint16_t>(0x3c00u + (state >> 23));
  }
  for (const model::Segment& segment : spec.segments) {
    for (const model::Parameter& parameter : segment.parameters) {
      const auto step = static_cast<int64_t>(tile.size());
      for (int64_t first = 0; first < parameter.numel; first += step) {
        writer.write(parameter, first, std::min(step, parameter.numel - first),
                     ConstWeightPlanes{.hi = tile.data()});
      }
    }
  }
  writer.finish();
}

std::vector<std::string> shards_of(const std::string& path) {
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

int64_t bytes_of_files(const std::vector<std::string>& files) {
  int64_t bytes = 0;
  for (const std::string& file : files) bytes += static_cast<int64_t>(fs::file_size(file));
  return bytes;
}

void drop_caches(const std::vector<std::string>& files) {
  for (const std::string& file : files) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    ::fdatasync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

// Sequential O_DIRECT requests over a file from a few threads; returns the bytes that moved.
int64_t direct_pass(const std::string& path, int64_t bytes, bool write, int in_flight) {
  const int fd = ::open(path.c_str(), (write ? O_WRONLY : O_RDONLY) | O_DIRECT | O_CLOEXEC);
  if (fd < 0) throw system_error(ErrorCode::kIo, "cannot open: " + path, errno);
  std::atomic<int64_t> next = 0;
  std::atomic<int64_t> moved = 0;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < in_flight; ++i) {
    threads.emplace_back([&] {
      memory::Arena buffer(kRequestBytes);  // huge pages: small ones would slow the drive
      std::memset(buffer.data(), 0x5a, kRequestBytes);
      for (int64_t at = next.fetch_add(kRequestBytes); at < bytes;
           at = next.fetch_add(kRequestBytes)) {
        const auto count = static_cast<size_t>(
            write ? kRequestBytes : std::min(kRequestBytes, round_up(bytes - at, 4096)));
        const ssize_t got =
            write ? ::pwrite(fd, buffer.data(), count, at) : ::pread(fd, buffer.data(), count, at);
        if (got < 0) failed = errno;
        if (got < 0) return;
        moved += got;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (write) ::fdatasync(fd);
  ::close(fd);
  if (failed != 0) throw system_error(ErrorCode::kIo, "cannot read or write: " + path, failed);
  return moved;
}

double raw_read_rate(const std::vector<std::string>& files, int in_flight) {
  const double begin = now_s();
  int64_t bytes = 0;
  for (const std::string& file : files) {
    bytes += direct_pass(file, static_cast<int64_t>(fs::file_size(file)), false, in_flight);
  }
  return static_cast<double>(bytes) / (now_s() - begin);
}

double raw_write_rate(const std::string& path, int64_t bytes, int in_flight) {
  {
    const model::File file = model::File::create(path);
    file.allocate(round_up(bytes, kRequestBytes));
  }
  const double begin = now_s();
  const int64_t moved = direct_pass(path, bytes, true, in_flight);
  const double rate = static_cast<double>(moved) / (now_s() - begin);
  fs::remove(path);
  return rate;
}

// The memory of one chunk's state, as an executor holds it.
class ChunkBuffers {
 public:
  explicit ChunkBuffers(int64_t elements)
      : elements_(round_up(elements, 4096)), memory_(elements_ * kBytesOfElement) {}
  exec::ChunkState state_of(const shard::Chunk& chunk) {
    std::byte* memory = memory_.data();
    exec::ChunkState state;
    state.segment = chunk.segment;
    state.hi_first = state.state_first = chunk.offset;
    state.hi_count = state.state_count = chunk.numel;
    state.exp_avg = reinterpret_cast<float*>(memory);
    state.exp_avg_sq = state.exp_avg + elements_;
    state.hi = memory + elements_ * 8;
    state.lo = reinterpret_cast<uint16_t*>(memory + elements_ * 10);
    return state;
  }

 private:
  static constexpr int64_t kBytesOfElement = 12;

  // Constant after construction
  const int64_t elements_;
  const memory::Arena memory_;
};

// Rates, of the drive before and after ours.
struct Round {
  double read_before, load, read_after;
  double write_before, write_export, write_after;
  double load_ratio() const { return load / ((read_before + read_after) / 2); }
  double export_ratio() const { return write_export / ((write_before + write_after) / 2); }
};

Round measure(const Settings& settings, const std::string& source_path) {
  const auto files = shards_of(source_path);
  const int64_t bytes = bytes_of_files(files);
  const model::ModelDirectory source = model::ModelDirectory::open(source_path);
  const shard::Layout layout = shard::make_layout(source.spec(), 1);
  int64_t largest = 0;
  for (const shard::Chunk& chunk : layout.chunks) largest = std::max(largest, chunk.numel);
  ChunkBuffers buffers(largest);
  Round round{};
  drop_caches(files);
  round.read_before = raw_read_rate(files, settings.in_flight);
  double begin = now_s();
  checkpoint::ModelSource reader(source, source.spec());
  for (size_t k = 0; k < layout.chunks.size(); ++k) {
    std::vector<exec::ChunkState> next;
    for (size_t i = k; i < std::min(k + 4, layout.chunks.size()); ++i) {
      next.push_back(buffers.state_of(layout.chunks[i]));
    }
    reader.expect(next);
    reader.read(next.front());
  }
  round.load = static_cast<double>(bytes) / (now_s() - begin);
  drop_caches(files);
  round.read_after = raw_read_rate(files, settings.in_flight);
  round.write_before = raw_write_rate(settings.directory + "/raw", bytes, settings.in_flight);
  begin = now_s();
  checkpoint::ModelSink sink(source, source.spec(), {.path = settings.directory + "/export"});
  for (const shard::Chunk& chunk : layout.chunks) sink.write(buffers.state_of(chunk));
  sink.finish();
  round.write_export = static_cast<double>(bytes) / (now_s() - begin);
  fs::remove_all(settings.directory + "/export");
  round.write_after = raw_write_rate(settings.directory + "/raw", bytes, settings.in_flight);
  return round;
}

std::string spread(const std::vector<Round>& rounds, double (Round::*ratio)() const) {
  std::vector<double> values;
  for (const Round& round : rounds) values.push_back((round.*ratio)());
  std::sort(values.begin(), values.end());
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", values[values.size() / 2], values.front(),
                     values.back());
}

// Nothing outside a folder of the bench's own is touched.
void run(Settings settings) {
  fs::create_directories(settings.directory);
  settings.directory += "/model_io_bench.XXXXXX";
  if (::mkdtemp(settings.directory.data()) == nullptr) {
    throw system_error(ErrorCode::kIo, "cannot create: " + settings.directory, errno);
  }
  const std::string source = settings.directory + "/model";
  write_model(source, architecture_of(settings.gigabytes * 1e9));
  fmt::print("{} files, {:.2f} GB bf16\n", shards_of(source).size(),
             static_cast<double>(bytes_of_files(shards_of(source))) / 1e9);
  fmt::print("{:>6} {:>8} {:>8} {:>8} {:>8}   {:>8} {:>8} {:>8} {:>8}   GB/s\n", "round", "read",
             "load", "read", "ratio", "write", "export", "write", "ratio");
  std::vector<Round> rounds;
  for (int i = 0; i < settings.rounds; ++i) {
    const Round one = measure(settings, source);
    fmt::print("{:>6} {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f}   {:>8.2f} {:>8.2f} {:>8.2f} {:>8.2f}\n",
               i + 1, one.read_before / 1e9, one.load / 1e9, one.read_after / 1e9, one.load_ratio(),
               one.write_before / 1e9, one.write_export / 1e9, one.write_after / 1e9,
               one.export_ratio());
    rounds.push_back(one);
  }
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const int64_t peak = int64_t{usage.ru_maxrss} * 1024;
  fmt::print("load   {} of the drive's read rate\nexport {} of its write rate\n",
             spread(rounds, &Round::load_ratio), spread(rounds, &Round::export_ratio));
  fmt::print("peak   {} of memory, {} the budget of {}\n", format_bytes(peak),
             peak <= settings.budget_bytes ? "within" : "BEYOND",
             format_bytes(settings.budget_bytes));
  fs::remove_all(settings.directory);
}

Settings settings_of(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--dir") settings.directory = argv[i + 1];
    if (name == "--gb") settings.gigabytes = std::atof(argv[i + 1]);
    if (name == "--rounds") settings.rounds = std::max(1, std::atoi(argv[i + 1]));
    if (name == "--in-flight") settings.in_flight = std::max(1, std::atoi(argv[i + 1]));
    if (name == "--budget-mib") settings.budget_bytes = std::atoll(argv[i + 1]) * kMiB;
  }
  if (settings.directory.empty()) {
    throw Error(ErrorCode::kUsage, "model_io_bench: no directory (give --dir DIR, on the drive)");
  }
  return settings;
}

}  // namespace
}  // namespace strata

int main(int argc, char** argv) {
  const strata::bench::PrintLog printing;
  try {
    strata::run(strata::settings_of(argc, argv));
    return 0;
  } catch (const strata::Error& error) {
    fmt::print(stderr, "model_io_bench: {}\n", error.what());
    return error.exit_code();
  }
}
