// SPDX-License-Identifier: Apache-2.0
// The measurement of drives of strata.h.
#include <atomic>

#include "bindings/c/handles.h"

namespace strata::c {
namespace {

strata_latency latency_of(const DriveLatency& latency) {
  return {latency.p50_s, latency.p99_s, latency.p999_s, latency.max_s};
}

strata_drive_rates rates_of(const DriveRates& rates) {
  return {.struct_size = sizeof(strata_drive_rates),
          .mode = rates.mode.c_str(),
          .block_bytes = rates.block_bytes,
          .depth = rates.depth,
          .files = rates.files,
          .seconds = rates.seconds,
          .bytes_read = rates.bytes_read,
          .bytes_written = rates.bytes_written,
          .read_bytes_per_s = rates.read_bytes_per_s,
          .write_bytes_per_s = rates.write_bytes_per_s,
          .cpu_s_per_gb = rates.cpu_s_per_gb,
          .read = latency_of(rates.read),
          .write = latency_of(rates.write),
          .direct = rates.direct,
          .verified = rates.verified,
          .cut_short = rates.is_cut_short,
          .reserved = 0};
}

}  // namespace
}  // namespace strata::c

using namespace strata;     // NOLINT: the function below is outside of any namespace
using namespace strata::c;  // NOLINT

strata_status strata_bench_io(const char* options, const strata_sinks* sinks,
                              strata_measured measured, void* context) {
  return guarded("bench_io", [&] {
    require_given(options, "bench_io", "options");
    require_given(reinterpret_cast<const void*>(measured), "bench_io", "measured");
    require_not_cancelled("bench_io");
    std::atomic<bool> stop = false;
    const StopOnCancel scope(stop);
    const auto hand_on = [&](const DriveRates& rates) {
      const strata_drive_rates given = rates_of(rates);
      if (measured(context, &given) != 0) stop = true;
    };
    bench_io(options, sinks_of(sinks, "bench_io"), hand_on, &stop);
    if (stop)
      throw CallError(STRATA_ERROR_INTERRUPTED,
                      "bench_io: it was stopped (call it again for other shapes)");
  });
}
