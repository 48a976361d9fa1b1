// SPDX-License-Identifier: Apache-2.0
// `strata bench kernels` and `strata bench link` as a user runs them on the CPU and on the emulated
// device: a row for each op or copy, JSON of the same, and a refusal where there is no link.
#include <set>

#include "engine/config/json.h"
#include "tests/cli/bench_run.h"

namespace strata::cli::test {
namespace {

using config::Json;

// Adds what keeps it short.
Arguments measure(const std::string& subject, Arguments more) {
  more.insert(more.begin(), {"bench", subject, "--seconds", "0.05", "--device-memory", "4MiB"});
  return more;
}

class DeviceBench : public BenchTest {
 protected:
  Json json_of(const Arguments& arguments) {
    EXPECT_EQ(run(arguments), 0) << err_;
    return Json::parse(out_, "the answer");
  }
};

TEST_F(DeviceBench, HasARowForEachOpInEveryRecipe) {
  for (const std::string device : {"cpu", "emulated"}) {
    for (const std::string recipe : {"fp32", "bf16", "fp16"}) {
      SCOPED_TRACE(device + " " + recipe);
      const Json answer =
          json_of(measure("kernels", {"--device", device, "--recipe", recipe, "--json"}));
      EXPECT_EQ(answer.find("recipe")->string(), recipe);
      EXPECT_TRUE(answer.find("device")->string().starts_with(device + ": "));
      EXPECT_GT(*answer.find("copy_bytes_per_s")->number(), 1e6);
      EXPECT_GT(*answer.find("product_flops_per_s")->number(), 1e6);
      std::string names;
      for (const Json& row : answer.find("ops")->items()) {
        const std::string& name = row.find("op")->string();
        names += name + "\n";
        EXPECT_GT(*row.find("seconds")->number(), 0) << name;
        const Json* rate = row.find("bytes_per_s");
        if (rate == nullptr) rate = row.find("flops_per_s");
        EXPECT_GT(*rate->number(), 1e5) << name;
        const bool compared = !row.find("share_of_roof")->is_null();
        EXPECT_EQ(compared, recipe == "fp32" || !name.ends_with(" fp32")) << name;
      }
      for (const char* op :
           {"copy", "product, gradient of w", "add residual", "cast", "rms norm backward",
            "layer norm forward", "rope", "glu backward", "adamw", "sum of squares",
            "embedding forward", " and gradients", "attention backward 8x",
            "product by row, 8 rows", "attention over a cache, 16 x"}) {
        EXPECT_NE(names.find(op), std::string::npos) << op << " is not in\n" << names;
      }
    }
  }
}

TEST_F(DeviceBench, TheTableEndsWithTheRoof) {
  EXPECT_EQ(run(measure("kernels", {"--device", "cpu", "--threads", "1"})), 0) << err_;
  EXPECT_TRUE(out_.starts_with("device  cpu: 1 thread\n")) << out_;
  const std::string last = out_.substr(out_.rfind('\n', out_.size() - 2) + 1);
  EXPECT_TRUE(last.starts_with("the roof: a copy, ")) << last;
  EXPECT_NE(last.find(" GB/s read and written; the best product, "), std::string::npos) << last;
}

TEST_F(DeviceBench, TheLinkIsMeasuredByKindOfMemoryAndSize) {
  const Json answer = json_of(measure("link", {"--device", "emulated", "--json"}));
  std::set<std::pair<int64_t, bool>> seen;
  for (const Json& row : answer.find("copies")->items()) {
    seen.insert({*row.find("bytes")->int64(), *row.find("pinned")->boolean()});
    for (const char* rate : {"upload_bytes_per_s", "download_bytes_per_s"}) {
      EXPECT_GT(*row.find(rate)->number(), 1e5) << rate;
    }
    EXPECT_EQ(row.find("both_bytes_per_s")->number().has_value(), *row.find("pinned")->boolean());
  }
  EXPECT_EQ(seen, (std::set<std::pair<int64_t, bool>>{
                      {65536, false}, {65536, true}, {1 << 20, false}, {1 << 20, true}}));
  EXPECT_GT(*answer.find("upload_latency_s")->number(), 0);
  EXPECT_EQ(run(measure("link", {"--device", "emulated"})), 0) << err_;
  EXPECT_NE(out_.find("  64 KiB   not pinned "), std::string::npos) << out_;
  EXPECT_NE(out_.find("\nlatency: a copy of 4 KiB "), std::string::npos) << out_;
}

TEST_F(DeviceBench, WithoutAGpuThereIsNoLink) {
  setenv("STRATA_PLUGIN_PATH", sandbox_.path().c_str(), 1);
  EXPECT_EQ(run({"bench", "link"}), kUsage);
  EXPECT_NE(err_.find("--device auto, the CPU of this machine, has no link to measure"),
            std::string::npos)
      << err_;
  EXPECT_EQ(run({"bench", "link", "--device", "cpu"}), kUsage);
  EXPECT_NE(err_.find("(give --device cuda; strata doctor says"), std::string::npos) << err_;
  EXPECT_EQ(run({"bench", "link", "--recipe", "bf16"}), kUsage);
  EXPECT_NE(err_.find("--recipe is not an option of bench link"), std::string::npos) << err_;
  unsetenv("STRATA_PLUGIN_PATH");
}

}  // namespace
}  // namespace strata::cli::test
