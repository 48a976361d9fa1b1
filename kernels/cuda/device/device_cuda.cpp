// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/device/device_cuda.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "kernels/cuda/device/ops.h"
#include "kernels/cuda/device/peers_cuda.h"
#include "kernels/cuda/device/queue_cuda.h"

namespace strata::kernels::cuda {
namespace {

std::string device_text(int index) {
  return fmt::format("device {}", index);
}

// Whether the plugin has kernels for a GPU: machine code of its generation, or PTX, which is of the
// newest architecture that it is built for.
bool has_kernels(const cudaDeviceProp& properties) {
  const int capability = 10 * properties.major + properties.minor;
  int newest = 0;
  for (const int built : {STRATA_CUDA_CODE}) {
    if (built / 10 == properties.major && built <= capability) return true;
    newest = std::max(newest, built);
  }
  return newest <= capability;
}

// Each GPU of a machine is asked for itself: others may work.
void require_kernels(int index) {
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, index), device_text(index));
  if (has_kernels(properties)) return;
  throw Error(
      ErrorCode::kConfig,
      fmt::format("cuda: device {}, {}: the plugin has no kernels for compute {}.{} (run cmake "
                  "-DSTRATA_CUDA_ARCHITECTURES={}{} build, and build again, or use --device cpu)",
                  index, properties.name, properties.major, properties.minor, properties.major,
                  properties.minor));
}

class CudaMemory : public DeviceMemory {
 public:
  CudaMemory(int index, int64_t bytes) : index_(index) {
    const OnDevice scope(index, device_text(index));
    const auto size = static_cast<size_t>(bytes);
    const cudaError_t error = cudaMalloc(&data_, size);
    if (error == cudaErrorMemoryAllocation) refuse(bytes);
    check(error, fmt::format("allocation of {}", format_bytes(bytes)));
    try {
      check(cudaMemset(data_, 0, size), "clearing of the device's memory");
      check(cudaDeviceSynchronize(), "clearing of the device's memory");
    } catch (...) {
      cudaFree(data_);
      throw;
    }
  }
  ~CudaMemory() override {
    const OnDevice scope(index_);
    cudaFree(data_);
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  std::byte* data() const override { return static_cast<std::byte*>(data_); }

 private:
  [[noreturn]] static void refuse(int64_t bytes) {
    cudaGetLastError();  // this one is not sticky
    size_t free = 0, total = 0;
    cudaMemGetInfo(&free, &total);
    throw Error(ErrorCode::kDoesNotFit,
                fmt::format("cannot allocate {} of the GPU's memory: {} of {} are free (lower "
                            "--device-memory, or end other programs on the GPU)",
                            format_bytes(bytes), format_bytes(static_cast<int64_t>(free)),
                            format_bytes(static_cast<int64_t>(total))));
  }

  const int index_;
  void* data_ = nullptr;
};

class Registered : public PinnedMemory {
 public:
  Registered(int index, std::byte* data) : index_(index), data_(data) {}
  ~Registered() override {
    const OnDevice scope(index_);
    cudaHostUnregister(data_);
  }
  Registered(const Registered&) = delete;
  Registered& operator=(const Registered&) = delete;

 private:
  const int index_;
  std::byte* const data_;
};

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, index), fmt::format("device {}", index));
  return properties;
}

// Whether its kernels reach pinned memory of the host where the host does, and no memory is nearer.
bool is_unified(const cudaDeviceProp& properties) {
  return properties.integrated != 0 && properties.canUseHostPointerForRegisteredMem != 0;
}

std::string pci_of(const cudaDeviceProp& properties) {
  return fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                     properties.pciDeviceID);
}

class CudaDevice : public Device {
 public:
  explicit CudaDevice(const PluginDeviceOptions& options)
      : index_(use(options.index)),
        shared_(index_),
        description_(describe_cuda(options.interior, options.unified)) {
    require_possible(description_);
    const cudaDeviceProp properties = properties_of(index_);
    if (description_.discrete || is_unified(properties)) return;
    throw Error(ErrorCode::kConfig,
                fmt::format("device: unified: {} has memory of its own, or cannot read the host's "
                            "(use --device cuda)",
                            properties.name));
  }

  const DeviceDescription& description() const override { return description_; }
  const DeviceOps& ops() const override {
    static constexpr DeviceOps kOps = {.name = "cuda",
#define STRATA_OP(member, Op) .member = issue_##member,
                                       STRATA_KERNEL_OPS(STRATA_OP)
#undef STRATA_OP
    };
    return kOps;
  }
  int64_t fused_ops() const override {
    return shared_.attention.ops();
  }
  int numa_node() const override {
    std::ifstream file("/sys/bus/pci/devices/" + pci_of(properties_of(index_)) + "/numa_node");
    int node = -1;
    return file >> node ? node : -1;
  }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    return std::make_unique<CudaMemory>(index_, bytes);
  }
  std::unique_ptr<PinnedMemory> pin(std::byte* data, int64_t bytes) override {
    const OnDevice scope(index_, device_text(index_));
    const cudaError_t error =
        cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable);
    if (error == cudaSuccess) return std::make_unique<Registered>(index_, data);
    cudaGetLastError();  // not sticky
    if (!description_.discrete) {
      throw Error(
          ErrorCode::kDoesNotFit,
          fmt::format("{} of host memory cannot be pinned for the GPU, which computes in it "
                      "(lower --host-memory, or raise the limit on locked memory: ulimit "
                      "-l)",
                      format_bytes(bytes)));
    }
    return nullptr;
  }
  PeersId make_peers_id() override {
    return cuda::make_peers_id(index_);
  }
  std::unique_ptr<Peers> join(const PeersOptions& options) override {
    return join_peers(index_, options);
  }
  std::unique_ptr<Queue> make(const QueueOptions& options) override {
    return std::make_unique<CudaQueue>(shared_, options.name, options.depth, options.first);
  }

 private:
  // Makes the device's context.
  static int use(int index) {
    const OnDevice scope(index, device_text(index));
    check(cudaFree(nullptr), device_text(index));
    require_kernels(index);
    return index;
  }

  const int index_;
  Shared shared_;
  const DeviceDescription description_;
};

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

DeviceFacts facts_of(int index) {
  const cudaDeviceProp properties = properties_of(index);
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "version of the driver");
  check(cudaRuntimeGetVersion(&runtime), "version of the runtime");
  DeviceFacts facts;
  facts.name = properties.name;
  facts.pci = pci_of(properties);
  const std::string attention = FusedAttention::software();
  const std::string libraries = fmt::format("cuBLASLt {}, ", cublasLtGetVersion());
  facts.software = fmt::format("compute {}.{}, driver for CUDA {}, runtime {}, {}",
                               properties.major, properties.minor, version_text(driver),
                               version_text(runtime), libraries + attention);
  facts.arithmetic =
      fmt::format("{} with {} multiprocessors, {}", facts.name, properties.multiProcessorCount,
                  libraries + attention.substr(0, attention.find(',')));
  facts.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  facts.processors = properties.multiProcessorCount;
  facts.unified = is_unified(properties);
  return facts;
}

}  // namespace

std::unique_ptr<Device> make_device(const PluginDeviceOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

int64_t free_bytes(int index) {
  size_t free = 0, total = 0;
  require_kernels(index);
  const OnDevice scope(index, device_text(index));
  check(cudaMemGetInfo(&free, &total), "memory of " + device_text(index));
  return static_cast<int64_t>(free);
}

std::vector<DeviceFacts> list_devices(std::string& why) {
  std::vector<DeviceFacts> devices;
  try {
    int count = 0;
    check(cudaGetDeviceCount(&count), "no GPU can be used");
    for (int i = 0; i < count; ++i) devices.push_back(facts_of(i));
  } catch (const Error& error) {
    why = error.what();
    devices.clear();
  }
  return devices;
}

}  // namespace strata::kernels::cuda
