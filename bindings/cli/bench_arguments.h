// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "io/bench_io.h"

namespace strata::cli {

// What the user asked of `strata bench io`, as text where it has units.
struct IoArguments {
  std::vector<std::string> directories;
  std::string size = "2GiB";
  std::vector<std::string> blocks = {"1MiB"};
  std::vector<uint32_t> depths = {16};
  std::vector<uint32_t> files = {1};
  std::vector<std::string> modes = {"read", "write", "mixed", "training"};
  double seconds = 5;
  std::string write_limit = "64GiB";
  std::string backend = "auto";
  std::vector<std::string> rates;
  double deadline_s = 600;
  bool no_checksums = false;
  bool json = false;
  bool csv = false;
  bool compare_fio = false;
  bool compare_checksums = false;
  uint32_t rounds = 21;
  std::string baseline;
  double tolerance = 0.1;
  std::string profile;
  std::string model;  // --for
  int64_t tokens = 0;
  int64_t sequence_length = 512;
  std::string host_memory;
  std::string machine;
  bool shapes_given = false;  // --mode, --block, --depth or --files
};

void declare(CLI::App& io, IoArguments& a);

// Throws Error (kUsage, kConfig) for what cannot be read or cannot work, and for options that
// contradict each other. Makes nothing.
void check(const IoArguments& a);
io::BenchOptions options_of(const IoArguments& a);
// Shapes with the same volume follow each other, so that it is filled once.
std::vector<io::BenchShape> shapes_of(const IoArguments& a);
uint64_t bytes_of(const std::string& flag, const std::string& text);

// Whether a result has the read, write and mixed rates that a machine profile needs.
bool measures_drives(const IoArguments& a);

}  // namespace strata::cli
