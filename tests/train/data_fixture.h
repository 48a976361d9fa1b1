// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/data.h"
#include "engine/text/text_files.h"
#include "engine/text/tokenizer.h"
#include "tests/support/byte_tokenizer.h"
#include "tests/support/log_capture.h"

// Data files in a folder of the test's own, and a tokenizer of bytes.
namespace strata::data {

namespace fs = std::filesystem;

class DataTest : public ::testing::Test {
 protected:
  DataTest()
      : folder_(fs::path(STRATA_BINARY_DIR) / "test-data" /
                ::testing::UnitTest::GetInstance()->current_test_info()->name()),
        tokenizer_(test::byte_tokenizer()) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  std::string write(const std::string& name, std::string_view text) const {
    fs::create_directories((folder_ / name).parent_path());
    text::write_text_file((folder_ / name).string(), text);
    return (folder_ / name).string();
  }

  template <class Id>
  std::string write_ids(const std::string& name, const std::vector<Id>& ids) const {
    return write(name, {reinterpret_cast<const char*>(ids.data()), ids.size() * sizeof(Id)});
  }

  Dataset open(const std::string& path, DataOptions options) const {
    if (options.vocabulary == 0) options.vocabulary = 300;
    return Dataset::open(path, &tokenizer_, options);
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

  fs::path folder_;
  text::Tokenizer tokenizer_;
};

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace strata::data
