// SPDX-License-Identifier: Apache-2.0
// `strata bench io --baseline` passes only where it has compared: like with like, and every shape
// of the baseline.
#include <nlohmann/json.hpp>

#include "bindings/cli/bench_baseline.h"
#include "tests/cli/bench_run.h"

namespace strata::cli::test {
namespace {

using nlohmann::json;

class BaselineTest : public BenchTest {
 protected:
  // A limited drive: a baseline with its rate is one of other conditions everywhere else.
  static Arguments limited(const Arguments& more) {
    Arguments all = bench(more);
    all.insert(all.end(), {"--nvme-rate", "50MB,500MB"});
    return all;
  }

  json measured(const std::string& modes) {
    EXPECT_EQ(run(limited({"--json", "--mode", modes})), 0) << err_;
    return json::parse(out_);
  }

  // Of a drive that any other is faster than, at any moment.
  static json slowest(json result) {
    for (json& entry : result["results"]) {
      for (const char* rate : {"read_bytes_per_s", "write_bytes_per_s"}) {
        if (entry[rate] > 0) entry[rate] = 1;
      }
      for (const char* latency : {"read_latency", "write_latency"}) {
        if (entry[latency]["p99_s"] > 0) entry[latency]["p99_s"] = 1e6;
      }
    }
    return result;
  }
};

TEST_F(BaselineTest, ASlowerDriveIsMetAndAFasterOneIsNot) {
  json then = measured("read");
  EXPECT_EQ(then["rate_limit"], "read 0.05 GB/s, write 0.5 GB/s");
  ASSERT_EQ(then["results"].size(), 1u);
  EXPECT_LT(then["results"][0]["read_bytes_per_s"], 80e6);
  for (const char* key : {"p50_s", "p99_s", "p999_s", "max_s"}) {
    EXPECT_GT(then["results"][0]["read_latency"][key], 0.0) << key;
  }
  then = slowest(then);
  write_text(sandbox_ / "slow.json", then.dump());
  then["results"][0]["read_bytes_per_s"] = 1e15;
  write_text(sandbox_ / "fast.json", then.dump());
  EXPECT_EQ(run(limited({"--mode", "read", "--baseline", "slow.json"})), 0) << out_;
  EXPECT_EQ(run(limited({"--mode", "read", "--baseline", "fast.json"})), 1) << err_;
  EXPECT_NE(out_.find("SLOWER"), std::string::npos) << out_;
  expect_empty_drive();
}

TEST_F(BaselineTest, ARequestThatTakesThreeTimesAsLongIsSlower) {
  json then = slowest(measured("read"));
  const Arguments compared = {"--mode", "read", "--baseline", "then.json"};
  write_text(sandbox_ / "then.json", then.dump());
  EXPECT_EQ(run(limited(compared)), 0) << out_;
  then["results"][0]["read_latency"]["p99_s"] = 1e-9;
  write_text(sandbox_ / "then.json", then.dump());
  EXPECT_EQ(run(limited(compared)), 1) << out_;
  EXPECT_NE(out_.find("SLOWER (p99)"), std::string::npos) << out_;
  then["results"][0].erase("read_latency");  // as none was written down
  then["results"][0].erase("write_latency");
  write_text(sandbox_ / "then.json", then.dump());
  EXPECT_EQ(run(limited(compared)), 0) << out_;
}

TEST_F(BaselineTest, WhatIsNoBaselineIsRefusedBeforeAnythingIsMeasured) {
  write_text(sandbox_ / "empty.json", "");
  write_text(sandbox_ / "no_json.json", "fast");
  write_text(sandbox_ / "no_shape.json", "{\"results\": [{}]}");
  write_text(sandbox_ / "no_results.json", "{\"results\": []}");
  const std::pair<const char*, const char*> cases[] = {
      {"missing.json", "cannot open missing.json: No such file"},
      {".", "is a directory"},
      {"empty.json", "is empty"},
      {"no_json.json", "not a result of `strata bench io --json`"},
      {"no_shape.json", "not a result of `strata bench io --json`"},
      {"no_results.json", "has no measured shape"},
  };
  for (const auto& [path, text] : cases) {
    EXPECT_EQ(run(bench({"--baseline", path})), kUsage) << path;
    EXPECT_NE(err_.find(text), std::string::npos) << path << ": " << err_;
    EXPECT_EQ(out_, "") << path;
  }
  expect_empty_drive();
}

TEST_F(BaselineTest, OnlyLikeIsComparedWithLike) {
  write_text(sandbox_ / "then.json", slowest(measured("read")).dump());
  const auto refused = [&](const Arguments& arguments, const std::string& text) {
    EXPECT_EQ(run(arguments), kUsage);
    EXPECT_NE(err_.find(text), std::string::npos) << text << " is not in\n" << err_;
    EXPECT_EQ(out_, "") << text;
  };
  const Arguments same = {"--mode", "read", "--baseline", "then.json"};
  refused(bench(same), "another rate limit: read 0.05 GB/s, write 0.5 GB/s then, none now");
  Arguments raw = limited(same);
  raw.emplace_back("--no-checksums");
  refused(raw, "was measured with checksums");
  refused(limited({"--mode", "write", "--baseline", "then.json"}), "has none of these shapes");
  for (const char* tolerance : {"nan", "-nan", "2", "-0.1"}) {
    Arguments wrong = limited(same);
    wrong.push_back(std::string("--tolerance=") + tolerance);
    refused(wrong, "--tolerance");
  }
  json other = json::parse(read_text(sandbox_ / "then.json"));
  other["results"][0]["backend"] = "simulated";
  other["scratch_bytes"] = 1 << 30;
  write_text(sandbox_ / "other.json", other.dump());
  EXPECT_EQ(run(limited({"--mode", "read", "--baseline", "other.json", "--tolerance", "1"})), 0);
  for (const char* text : {"other conditions: backend: simulated then", "scratch: 1 GiB then"}) {
    EXPECT_NE(out_.find(text), std::string::npos) << text << " is not in\n" << out_;
  }
}

TEST_F(BaselineTest, AShapeThatIsNotMeasuredAnyMoreFails) {
  json then = slowest(measured("read,write"));
  json more = then;
  more["results"].push_back(then["results"][0]);
  more["results"][2]["depth"] = 77;
  write_text(sandbox_ / "more.json", more.dump());
  write_text(sandbox_ / "then.json", then.dump());
  // Shapes that this run was told to leave out are said, not missed.
  EXPECT_EQ(run(limited({"--mode", "read", "--baseline", "more.json", "--tolerance", "1"})), 0)
      << err_;
  EXPECT_NE(out_.find("read 64 KiB x 77 on 1 file"), std::string::npos) << out_;
  EXPECT_NE(out_.find("not asked for, not compared"), std::string::npos) << out_;
  // Asked for, but the limit on bytes written leaves nothing.
  EXPECT_EQ(run(limited({"--mode", "read,write", "--baseline", "then.json", "--tolerance", "1",
                         "--write-limit", "64MiB"})),
            1)
      << err_;
  EXPECT_NE(out_.find("NOT MEASURED"), std::string::npos) << out_;
}

// A file may hold shapes of several runs: each is compared under its own conditions.
TEST_F(BaselineTest, EachShapeHasItsOwnConditions) {
  json then = {{"directories", {"a", "b"}}, {"scratch_bytes", 1 << 20}};
  const auto add = [&](const char* mode, const char* backend, bool verified, double seconds) {
    then["results"].push_back({{"mode", mode},
                               {"block_bytes", 64 << 10},
                               {"depth", 4},
                               {"files_per_directory", 1},
                               {"read_bytes_per_s", 1e9},
                               {"write_bytes_per_s", 0},
                               {"backend", backend},
                               {"verified", verified},
                               {"seconds", seconds}});
  };
  add("read", "threads", true, 5);
  add("write", "io_uring", false, 1.05);
  write_text(sandbox_ / "then.json", then.dump());
  const Baseline baseline = read_baseline(sandbox_ / "then.json");
  const auto shape = [](io::BenchMode mode) {
    return io::BenchShape{.mode = mode, .block_bytes = 64 << 10, .depth = 4};
  };
  io::BenchOptions options;
  options.directories = {"a"};
  options.bytes = 1 << 20;
  const auto refusal = [&](io::Backend backend, bool verify, io::BenchMode mode) {
    options.backend = backend;
    options.verify = verify;
    try {
      check_comparable(baseline, options, {.shapes = {shape(mode)}});
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  using enum io::BenchMode;
  EXPECT_EQ(refusal(io::Backend::kThreads, true, kRead), "");
  EXPECT_EQ(refusal(io::Backend::kUring, false, kWrite), "");
  EXPECT_NE(refusal(io::Backend::kAuto, true, kWrite).find("without checksums"), std::string::npos);
  EXPECT_NE(refusal(io::Backend::kAuto, false, kRead).find("with checksums"), std::string::npos);
  EXPECT_NE(
      refusal(io::Backend::kUring, true, kRead).find("with the backend threads, not io_uring"),
      std::string::npos);
  std::vector<io::BenchResult> results(2);
  for (io::BenchResult& result : results) {
    result.shape = shape(&result == results.data() ? kRead : kWrite);
    result.seconds = 1;
    result.bytes_read = 1'000'000'000;
    result.backend = "io_uring";
  }
  const std::string table = compare_with_baseline(baseline, options, results, {}).table;
  for (const char* text :
       {"other conditions: backend: threads then, io_uring now",
        "other conditions: read 64 KiB x 4 on 1 file was measured for: 5 s then, 1 s now",
        "other conditions: directories: 2 then, 1 now"}) {
    EXPECT_NE(table.find(text), std::string::npos) << text << " is not in\n" << table;
  }
  EXPECT_EQ(table.find("write 64 KiB x 4 on 1 file was measured"), std::string::npos) << table;
  EXPECT_EQ(table.find("scratch"), std::string::npos) << table;
}

TEST_F(BaselineTest, WithoutAnOptionAboutShapesAllOfThemAreExpected) {
  write_text(sandbox_ / "then.json", measured("read,write").dump());
  const Baseline baseline = read_baseline(sandbox_ / "then.json");
  ASSERT_EQ(baseline.rates.size(), 2u);
  io::BenchResult read;
  read.shape = {.mode = io::BenchMode::kRead, .block_bytes = 64 << 10, .depth = 4};
  read.seconds = 1;
  read.bytes_read = uint64_t{1} << 40;
  BaselineQuestion question = {.shapes = {read.shape}, .shapes_given = true, .tolerance = 0.1};
  EXPECT_FALSE(compare_with_baseline(baseline, {}, {read}, question).failed());
  question.shapes_given = false;
  const BaselineVerdict verdict = compare_with_baseline(baseline, {}, {read}, question);
  EXPECT_TRUE(verdict.failed());
  EXPECT_EQ(verdict.missing, 1);
  EXPECT_EQ(verdict.compared, 1);
}

}  // namespace
}  // namespace strata::cli::test
