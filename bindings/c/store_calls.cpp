// SPDX-License-Identifier: Apache-2.0
// The functions strata_store_*: each checks its handle and structs, and calls the store.
#include <fmt/format.h>

#include <algorithm>

#include "bindings/c/lent_transport.h"
#include "bindings/c/store.h"

using namespace strata;     // NOLINT: the functions below are outside of any namespace
using namespace strata::c;  // NOLINT

strata_status strata_store_open(const char* options, const strata_sinks* sinks,
                                strata_store** store) {
  return guarded("store_open", [&] {
    require_given(store, "store_open", "store");
    *store = nullptr;
    auto opened = std::make_unique<Store>(options, sinks_of(sinks, "store_open"));
    *store = as_handle<strata_store>(add_handle(std::move(opened), Store::kKind));
  });
}

strata_status strata_store_add_unit(strata_store* store, const strata_unit* unit, int32_t* index) {
  return with<Store>(store, "store_add_unit", [&](Store& self) {
    const int32_t added = self.add(read_struct(unit, "store_add_unit", "unit"));
    if (index != nullptr) *index = added;
  });
}

strata_status strata_store_join(strata_store* store, const strata_ranks* ranks) {
  return with<Store>(store, "store_join", [&](Store& self) {
    self.join(place_of(read_struct(ranks, "store_join", "ranks")));
  });
}

strata_status strata_store_plan(strata_store* store, strata_plan* plan) {
  return with<Store>(store, "store_plan", [&](Store& self) {
    report_plan(plan, "store_plan", [&]() -> PlanText& { return self.plan(); });
  });
}

strata_status strata_store_tensor(strata_store* store, int32_t unit, int32_t tensor,
                                  strata_tensor_info* info) {
  return with<Store>(store, "store_tensor", [&](Store& self) {
    require_given(info, "store_tensor", "info");
    const Out<strata_tensor_info> out(info, "store_tensor", "info");
    out.set(self.tensor(unit, tensor));
  });
}

strata_status strata_store_load(strata_store* store, const strata_load* load) {
  return with<Store>(store, "store_load",
                     [&](Store& self) { self.load(read_struct(load, "store_load", "load")); });
}

strata_status strata_store_begin(strata_store* store) {
  return with<Store>(store, "store_begin", [](Store& self) { self.session("begin").begin(); });
}

strata_status strata_store_acquire(strata_store* store, int32_t unit, int32_t pass,
                                   strata_view* view) {
  return with<Store>(store, "store_acquire", [&](Store& self) {
    require_given(view, "store_acquire", "view");
    const Out<strata_view> out(view, "store_acquire", "view");
    out.set(self.acquire(unit, pass));
  });
}

strata_status strata_store_acquire_on(strata_store* store, int32_t unit, int32_t pass, void* stream,
                                      strata_view* view) {
  return with<Store>(store, "store_acquire_on", [&](Store& self) {
    require_given(view, "store_acquire_on", "view");
    const Out<strata_view> out(view, "store_acquire_on", "view");
    out.set(self.acquire(unit, pass, stream));
  });
}

strata_status strata_store_copy(strata_store* store, void* to, const void* from, int64_t bytes) {
  return with<Store>(store, "store_copy", [&](Store& self) { self.copy(to, from, bytes); });
}

strata_status strata_store_order(strata_store* store, const strata_use* uses, size_t count,
                                 int32_t may_leave_out) {
  return with<Store>(store, "store_order",
                     [&](Store& self) { self.order(uses, count, may_leave_out != 0); });
}

strata_status strata_store_used(strata_store* store, int32_t unit, strata_view* view) {
  return with<Store>(store, "store_used", [&](Store& self) {
    require_given(view, "store_used", "view");
    const Out<strata_view> out(view, "store_used", "view");
    out.set(self.used(unit));
  });
}

strata_status strata_store_end_micro_batch(strata_store* store) {
  return with<Store>(store, "store_end_micro_batch",
                     [](Store& self) { self.session("end_micro_batch").end_micro_batch(); });
}

strata_status strata_store_begin_forward(strata_store* store) {
  return with<Store>(store, "store_begin_forward",
                     [](Store& self) { self.session("begin_forward").begin_forward(); });
}

strata_status strata_store_end_forward(strata_store* store) {
  return with<Store>(store, "store_end_forward",
                     [](Store& self) { self.session("end_forward").end_forward(); });
}

strata_status strata_store_use_seconds(strata_store* store, double* seconds, size_t count) {
  return with<Store>(store, "store_use_seconds", [&](Store& self) {
    require_given(seconds, "store_use_seconds", "seconds");
    const std::vector<double> all = self.session("use_seconds").use_seconds();
    if (all.size() != count) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("use_seconds: {} numbers: a micro-batch has {} uses "
                              "(give room for all)",
                              count, all.size()));
    }
    std::ranges::copy(all, seconds);
  });
}

strata_status strata_store_add_gradient(strata_store* store, int32_t tensor, int64_t first,
                                        int64_t count, int32_t dtype, const void* values,
                                        double scale) {
  return with<Store>(store, "store_add_gradient", [&](Store& self) {
    self.add_gradient(tensor, first, count, dtype, values, scale);
  });
}

strata_status strata_store_release(strata_store* store) {
  return end_with<Store>(store, "store_release", [](Store& self) { self.release(); });
}

strata_status strata_store_step(strata_store* store, const strata_update* update,
                                strata_step_result* result) {
  return with<Store>(store, "store_step", [&](Store& self) {
    const strata_update given = read_struct(update, "store_step", "update");
    const Out<strata_step_result> out(result, "store_step", "result");
    UpdateSettings settings = {.lr = given.lr};
    if (given.has_clip != 0) settings.clip = given.clip;
    if (given.has_decay != 0) settings.weight_decay = given.weight_decay;
    if (given.gradient_scale != 0) settings.gradient_scale = given.gradient_scale;
    if (given.group_count > 0) require_given(given.groups, "store_step", "groups");
    for (size_t i = 0; i < given.group_count; ++i) {
      const auto group = item_of(given.groups, i, "store_step", "groups");
      settings.groups.push_back({group.lr, group.weight_decay});
    }
    out.set(result_of(self.session("step").end(settings)));
    self.end_step();
  });
}

strata_status strata_store_discard(strata_store* store) {
  return end_with<Store>(store, "store_discard", [](Store& self) {
    self.session("discard").discard();
    self.end_step();
  });
}

strata_status strata_store_save(strata_store* store, const char* directory, const char** path) {
  return with<Store>(store, "store_save", [&](Store& self) {
    require_given(directory, "store_save", "directory");
    self.path_ = self.session("save").save(directory);
    if (path != nullptr) *path = self.path_.c_str();
  });
}

strata_status strata_store_read(strata_store* store, int32_t plane, strata_visit visit,
                                void* context) {
  return with<Store>(store, "store_read", [&](Store& self) {
    require_given(reinterpret_cast<const void*>(visit), "store_read", "visit");
    std::atomic<bool> stop = false;
    const StopOnCancel scope(stop);
    self.read(plane, [&](int unit, int tensor, int64_t first, std::span<const float> values) {
      if (stop) return;
      const int asked =
          visit(context, plane, unit, tensor, first, std::ssize(values), values.data());
      if (asked != 0) stop = true;
    });
    if (stop)
      throw CallError(STRATA_ERROR_INTERRUPTED, "read: it was stopped (call it again to read)");
  });
}

strata_status strata_store_read_tensor(strata_store* store, int32_t unit, int32_t tensor,
                                       int32_t plane, float* values, int64_t count) {
  return with<Store>(store, "store_read_tensor", [&](Store& self) {
    const auto size = static_cast<size_t>(std::max<int64_t>(count, 0));
    self.read_tensor(unit, tensor, plane, {values, size});
  });
}

strata_status strata_store_write_tensor(strata_store* store, int32_t unit, int32_t tensor,
                                        int32_t plane, int64_t first, int64_t count,
                                        const float* values) {
  return with<Store>(store, "store_write_tensor", [&](Store& self) {
    self.write_tensor(unit, tensor, plane, first, count, values);
  });
}

strata_status strata_store_statistics(strata_store* store, strata_statistics* statistics) {
  return with<Store>(store, "store_statistics", [&](Store& self) {
    require_given(statistics, "store_statistics", "statistics");
    const Out<strata_statistics> out(statistics, "store_statistics", "statistics");
    const UnitStatistics all = self.session("statistics").statistics();
    out.set({.struct_size = 0,
             .steps = all.steps,
             .updates = all.updates,
             .host_bytes = all.host_bytes,
             .nvme_bytes = all.nvme_bytes,
             .nvme_bytes_read = all.nvme_bytes_read,
             .nvme_bytes_written = all.nvme_bytes_written,
             .last_step_s = all.last_step_s,
             .last_stall_s = all.last_stall_s,
             .device_bytes = all.device_bytes});
  });
}

strata_status strata_store_unload(strata_store* store) {
  return end_with<Store>(store, "store_unload", [](Store& self) {
    self.end_step();
    self.session("unload").close();
  });
}

strata_status strata_store_close(strata_store* store) {
  return close<Store>(store, "store_close");
}
