// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/bench_io.h"
#include "io/bench_statistics.h"
#include "io/fio_process.h"
#include "io/scratch_file.h"

namespace strata::io {

// Measures a shape with fio: the same directories, number of files, block size, depth, mix and
// O_DIRECT, in one job on io_uring with registered files and memory. Its files have no names, so
// they disappear with this process however it ends. It holds a lock of its own on each directory.
//
// Failure: the constructor throws Error(kConfig) when fio is missing or a directory cannot be used.
// measure() throws Error(kDoesNotFit) without room for the files, Error(kIo) when fio fails,
// Error(kDeadline) when fio still runs `deadline_s` after its time, and Error(kInterrupted) when it
// is stopped. fio ends when this process ends.
class FioBench {
 public:
  FioBench(const BenchOptions& options, uint32_t files_per_directory);
  ~FioBench();
  FioBench(const FioBench&) = delete;
  FioBench& operator=(const FioBench&) = delete;

  // Writes no more than `write_allowance_bytes`; sets FioResult::limit_reached when that ends the
  // run. When the allowance does not cover layout_bytes() and a block, nothing runs.
  FioResult measure(const BenchShape& shape, uint64_t write_allowance_bytes);
  // A run that failed without reporting what it wrote counts with everything that it was allowed to
  // write.
  uint64_t bytes_written() const { return bytes_written_; }
  // The bytes that the first measure() writes to fill the files.
  uint64_t layout_bytes() const;

 private:
  struct Job {
    std::vector<std::string> arguments;
    double seconds = 0;  // expected duration
    uint64_t most_bytes_written = 0;
  };
  uint64_t file_bytes() const;
  void lay_out();
  FioResult run_job(const Job& job);
  void create_files();
  void close_files();

  BenchOptions options_;
  const uint32_t files_per_directory_;
  std::vector<std::unique_ptr<DirectoryLock>> locks_;
  std::vector<ScratchFile> files_;
  bool laid_out_ = false;
  uint64_t bytes_written_ = 0;
};

// Our engine against fio by turns. A second fio run in every round is the control: it shows the
// noise in a ratio of equals.
struct FioComparison {
  BenchShape shape;
  bool verified = true;
  double strata_bytes_per_s = 0;  // medians
  double fio_bytes_per_s = 0;
  double strata_cpu_s_per_gb = 0;
  double fio_cpu_s_per_gb = 0;
  Interval ratio;    // strata / fio
  Interval control;  // fio / fio
};
// One round of the comparison: rates in bytes/s, processor time in s/GB.
struct FioRound {
  double strata = 0;
  double fio = 0;          // the run next to ours
  double another_fio = 0;  // the control
  double strata_cpu = 0;
  double fio_cpu = 0;
};
FioComparison comparison_of(const BenchShape& shape, const std::vector<FioRound>& rounds);

// The verdict is kSlower when the whole interval of the ratio lies below kFioParity, and kNone with
// fewer than kFioLeastRounds rounds.
inline constexpr double kFioParity = 0.97;
inline constexpr uint32_t kFioLeastRounds = 7;
enum class FioVerdict : uint8_t { kNone, kAsFast, kSlower };
FioVerdict verdict_of(const FioComparison& comparison);

// Runs fewer rounds when the bench's limit on bytes written, which includes fio's, or
// `options.stop` ends it early. Throws Error (kConfig, kInterrupted) when not even one round was
// completed.
FioComparison compare_with_fio(IoBench& bench, FioBench& fio, const BenchShape& shape,
                               const BenchOptions& options, uint32_t rounds);

}  // namespace strata::io
