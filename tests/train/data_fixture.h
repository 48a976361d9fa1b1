// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/batch.h"
#include "engine/data/data.h"
#include "engine/text/text_files.h"
#include "engine/text/tokenizer.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/log_capture.h"
#include "tests/support/temporary_directory.h"

// Data files in a folder of the test's own, and a tokenizer of bytes.
namespace strata::data {

namespace fs = std::filesystem;

class DataTest : public ::testing::Test {
 protected:
  // A text of so many bytes, of short words.
  static std::string words(size_t bytes) {
    std::string text(bytes, 'a');
    for (size_t k = 7; k < bytes; k += 8) text[k] = ' ';
    return text;
  }

  std::string write(const std::string& name, std::string_view text) const {
    const std::string path = folder_ / name;
    fs::create_directories(fs::path(path).parent_path());
    text::write_text_file(path, text);
    return path;
  }

  template <class Id>
  std::string write_ids(const std::string& name, const std::vector<Id>& ids) const {
    return write(name, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id)});
  }

  Dataset open(const std::string& path, const DataOptions& options) const {
    return open(std::vector{path}, options);
  }

  Dataset open(const std::vector<std::string>& paths, DataOptions options) const {
    if (options.vocabulary == 0) options.vocabulary = 300;
    if (options.chat_template.empty()) options.chat_template = "chatml";
    return Dataset::open(paths, &tokenizer_, options);
  }

  // The warnings that opening gives.
  std::string warnings_of(const std::string& path, const DataOptions& options) const {
    const test::LogCapture captured;
    open(path, options);
    return captured.text();
  }

  // The error that opening gives.
  std::string error_of(const std::string& path, const DataOptions& options) const {
    try {
      open(path, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), 2);
      return error.what();
    }
    return "no error";
  }

  // Everything that training sees of the data, as one text.
  static std::string told_of(const Dataset& data) {
    std::string told =
        fmt::format("{} tokens, hash {:x}\n", data.token_count(), data.fingerprint());
    for (const TokenSource* source : {&data.train(), &data.held_out()}) {
      if (source->sample_count() > 0) told += told_of(*source);
    }
    return told;
  }

  static std::string told_of(const TokenSource& source) {
    const auto length = static_cast<size_t>(source.length());
    std::vector<int32_t> tokens(3 * length), targets(3 * length), starts(3 * length);
    const Batches batches(source, {.rows = 3, .accumulate = 2, .seed = 11});
    std::string told =
        fmt::format("{} samples, {} updates\n", source.sample_count(), batches.updates_in(9));
    for (int64_t step = 0; step < 9; ++step) {
      for (int64_t batch = 0; batch < 2; ++batch) {
        batches.fill(step, batch, 0, tokens.data(), targets.data(), starts.data());
        told += fmt::format("{} | {} | {}\n", fmt::join(tokens, " "), fmt::join(targets, " "),
                            fmt::join(starts, " "));
      }
      told += fmt::format("{} targets\n", batches.target_count(step));
    }
    return told;
  }

  const test::TemporaryDirectory folder_;
  text::Tokenizer tokenizer_ = test::byte_tokenizer();
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A report without its line breaks, whose places depend on the lengths of paths.
inline std::string unwrapped(std::string report) {
  const std::string wrap = "\n" + std::string(9, ' ');
  for (size_t at = 0; (at = report.find(wrap, at)) != std::string::npos;) {
    report.replace(at, wrap.size(), " ");
  }
  return report;
}

}  // namespace strata::data
