// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

// What a fake device has, and how it fails: a text of words separated by spaces.
//
//   devices=2        how many there are (1); 0: none is found
//   driver=0         the driver is too old
//   compute=75       the compute capability (90); the plugin is built for 8.0 and 9.0
//   memory=BYTES     of each device (8 GiB)
//   delay_us=300     each command of a stream begins up to that much later, drawn from seed=N
//   unified=1        kernels reach registered host memory too
//   pageable=0       copies with host memory that is not registered are refused
//   nccl=21703       the version of NCCL (22803); 0: it is not installed. Read once in a process
//   cudnn=91002      the version of cuDNN (91900); 0: it is not installed, read once in a process
//   graph=0          cuDNN supports no graph of attention; 2: each needs 1 TiB of scratch
//   malloc@2         the second cudaMalloc is out of memory
//   register@1       cudaHostRegister is refused
//   launch@5         the fifth launch of a kernel is refused; no later call fails
//   kernel@9         the ninth kernel stops at an illegal address; all later calls fail
//   hang@8           the eighth kernel never ends, unless fake_cuda_let_go() is called
//   copy@3           the third copy is refused
//   copying@3        the third copy finds an uncorrectable error of memory; all later calls fail
//   lost@7           at the seventh kernel the device is gone; all later calls fail
//   product@4        the fourth product fails; algorithm@1: no algorithm is found for it
//   graph@1          cuDNN finds too little memory to build the first graph of attention
//   fused@1          cuDNN refuses to run the first graph of attention
//   nccl@5           the fifth call of NCCL fails, of those that do more than ask or abort
//   absent@2         the second rank that joins a group of NCCL never comes to the others
//   exchanging@3     the third exchange by NCCL fails after its call
//   stuck@3          the third exchange by NCCL never ends, unless its communicator is aborted
namespace fake_cuda {

class Faults {
 public:
  // Throws std::invalid_argument for a word that is none of these.
  void configure(const std::string& text);

  int64_t setting(const std::string& name) const;

  // Counts an event; whether it is the one that fails.
  bool fails(const std::string& name);

  // Counts a call of an API function, and says how many there were.
  void count_call(const char* name);
  int64_t calls(const std::string& name) const;

 private:
  mutable std::mutex mu_;
  std::map<std::string, int64_t> settings_;  // Guarded by mu_, like all below
  std::map<std::string, int64_t> fails_at_;
  std::map<std::string, int64_t> happened_;
  std::map<std::string, int64_t> calls_;
};

}  // namespace fake_cuda
