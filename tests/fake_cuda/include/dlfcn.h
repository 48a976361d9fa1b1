// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// The dynamic loader as the CUDA device sees it. The libraries are NCCL, of nccl_api.cpp, and those
// that cuDNN, of cudnn_api.cpp, is loaded from.
extern "C" bool fake_nccl_is_installed();
extern "C" void* fake_nccl_function(const char* name);
extern "C" bool fake_cudnn_is_installed();

constexpr int RTLD_LOCAL = 0;
constexpr int RTLD_NOW = 2;

inline thread_local std::string fake_missing_library;

inline void* dlopen(const char* file, int) {
  static char library = 0;
  const std::string name = file;
  const bool is_cudnn = name == "libcudnn_graph.so.9" || name == "libcudnn.so.9";
  if (name == "libcudart.so.13" || (is_cudnn && fake_cudnn_is_installed()) ||
      (name == "libnccl.so.2" && fake_nccl_is_installed())) {
    return &library;
  }
  fake_missing_library = name + ": cannot open shared object file: No such file or directory";
  return nullptr;
}
inline void* dlsym(void*, const char* name) {
  return fake_nccl_function(name);
}
inline const char* dlerror() {
  return fake_missing_library.c_str();
}
