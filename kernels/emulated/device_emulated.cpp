// SPDX-License-Identifier: Apache-2.0
#include "kernels/emulated/device_emulated.h"

#include "kernels/emulated/peers_emulated.h"
#include "kernels/emulated/queue_emulated.h"
#include "kernels/issue_table.h"

namespace strata::kernels {
namespace emulated {
namespace {

template <auto Member>
struct Enqueue {
  using Op = typename OpOf<decltype(Member)>::type;
  static void op(Queue& queue, const Op& op) {
    static_cast<EmulatedQueue&>(queue).issue<Member>(op);
  }
};

class EmulatedDevice : public Device {
 public:
  EmulatedDevice(const Backend& backend, const EmulatedOptions& options)
      : shared_(backend, options),
        description_{.name = "emulated",
                     .discrete = true,
                     .kernels = backend.kernels,
                     .threads = options.threads,
                     .interior = options.interior} {
    require_possible(description_);
  }

  const DeviceDescription& description() const override { return description_; }
  const DeviceOps& ops() const override {
    static constexpr DeviceOps kOps = make_issue_table<Enqueue>("emulated");
    return kOps;
  }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    return emulated::allocate(shared_.space, bytes);
  }
  PeersId make_peers_id() override { return make_hub_id(); }
  std::unique_ptr<Peers> join(const PeersOptions& options) override { return join_hub(options); }
  std::unique_ptr<Queue> make(const QueueOptions& options) override {
    return std::make_unique<EmulatedQueue>(shared_, options.name, options.depth);
  }

 private:
  Shared shared_;
  const DeviceDescription description_;
};

}  // namespace
}  // namespace emulated

std::unique_ptr<Device> make_emulated_device(const Backend& backend,
                                             const EmulatedOptions& options) {
  return std::make_unique<emulated::EmulatedDevice>(backend, options);
}

}  // namespace strata::kernels
