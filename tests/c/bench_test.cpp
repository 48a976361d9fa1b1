// SPDX-License-Identifier: Apache-2.0
// The measurement of drives through the C API.
#include "tests/c/c_fixture.h"

namespace strata::test {
namespace {

struct Measured {
  std::vector<strata_drive_rates> rates;
  std::vector<std::string> modes;
  size_t stop_at = 0;
};

int on_rates(void* context, const strata_drive_rates* rates) {
  auto& measured = *static_cast<Measured*>(context);
  measured.rates.push_back(*rates);
  measured.modes.emplace_back(rates->mode);
  return measured.rates.size() == measured.stop_at ? 1 : 0;
}

class CBench : public CApi {
 protected:
  std::string drives(const std::string& more) const {
    return "{\"nvme\": [\"" + directory_ +
           "/nvme\"], \"size\": \"8MiB\", \"block\": [\"64KiB\"], " +
           "\"depth\": [2, 8], \"files\": [1], \"seconds\": 0.1" + more + "}";
  }
};

TEST_F(CBench, EveryShapeIsMeasured) {
  Measured measured;
  const std::string given = drives(", \"mode\": [\"read\", \"mixed\"]");
  ASSERT_EQ(strata_bench_io(given.c_str(), nullptr, on_rates, &measured), STRATA_OK) << text();
  EXPECT_EQ(measured.modes, (std::vector<std::string>{"read", "mixed", "read", "mixed"}));
  EXPECT_EQ(measured.rates[0].depth, 2);
  EXPECT_EQ(measured.rates[3].depth, 8);
  for (const strata_drive_rates& rates : measured.rates) {
    EXPECT_EQ(rates.struct_size, sizeof(strata_drive_rates));
    EXPECT_GT(rates.read_bytes_per_s, 0);
    EXPECT_GT(rates.read.p50_s, 0);
    EXPECT_LE(rates.read.p50_s, rates.read.max_s);
    EXPECT_EQ(rates.verified, 1);
  }
  EXPECT_EQ(measured.rates[0].bytes_written, 0);
  EXPECT_GT(measured.rates[1].write_bytes_per_s, 0);
  EXPECT_TRUE(fs::is_empty(directory_ + "/nvme"));
}

TEST_F(CBench, ACallbackStopsIt) {
  Measured measured;
  measured.stop_at = 1;
  EXPECT_EQ(strata_bench_io(drives("").c_str(), nullptr, on_rates, &measured),
            STRATA_ERROR_INTERRUPTED);
  EXPECT_EQ(measured.rates.size(), 1u);
}

TEST_F(CBench, MistakesAreNamed) {
  Measured measured;
  EXPECT_EQ(strata_bench_io(nullptr, nullptr, on_rates, &measured), STRATA_ERROR_USAGE);
  EXPECT_EQ(strata_bench_io(drives("").c_str(), nullptr, nullptr, nullptr), STRATA_ERROR_USAGE);
  EXPECT_NE(text().find("measured"), std::string::npos) << text();
  EXPECT_EQ(strata_bench_io(drives(", \"baseline\": \"x\"").c_str(), nullptr, on_rates, &measured),
            STRATA_ERROR_USAGE);
  EXPECT_NE(text().find("baseline: only the program"), std::string::npos) << text();
  EXPECT_EQ(strata_bench_io("{\"nvme\": [\"/nowhere\"]}", nullptr, on_rates, &measured),
            STRATA_ERROR_USAGE);
  EXPECT_NE(text().find("/nowhere"), std::string::npos) << text();
  EXPECT_TRUE(measured.rates.empty());
}

}  // namespace
}  // namespace strata::test
