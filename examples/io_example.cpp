// SPDX-License-Identifier: Apache-2.0
// The I/O engine on its own: writes 1 GiB to scratch on the named drives, reads it back verified,
// and prints the rates. Usage: io_example DIRECTORY [DIRECTORY...]
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/environment.h"
#include "io/channel.h"

using namespace strata;
using namespace strata::io;

constexpr uint64_t kExtentBytes = 8 << 20;
constexpr uint64_t kExtents = 128;
constexpr size_t kBuffers = 8;

// Moves every extent once, with up to kBuffers of them in flight. The tag says what an extent is;
// reading it under another tag would be an error.
static void move_all(Channel& channel, Direction direction, char* memory) {
  std::vector<Transfer> transfers(kBuffers);
  const double start_s = now_s();
  for (uint64_t next = 0; next < kExtents || channel.in_flight() > 0;) {
    for (size_t i = 0; i < kBuffers && next < kExtents; ++i) {
      Transfer& transfer = transfers[i];
      if (next >= kBuffers && !transfer.done) continue;  // still in flight
      transfer.direction = direction;
      transfer.address = next * kExtentBytes;
      transfer.bytes = kExtentBytes;
      transfer.data = memory + i * kExtentBytes;
      transfer.tag = next++;
      channel.submit(&transfer);
    }
    if (channel.poll() == 0) channel.wait(1.0);
    for (const Transfer& transfer : transfers) {
      if (transfer.error) throw Error(*transfer.error);
    }
  }
  const double rate = kExtents * kExtentBytes / (now_s() - start_s);
  std::printf("%-5s %.2f GB/s (%s)\n", name_of(direction), rate / 1e9, channel.backend_name());
}

int main(int argc, char** argv) try {
  Environment environment({.log = [](LogLevel, std::string_view line) {
    std::fprintf(stderr, "%s\n", printable(line).c_str());
  }});
  const Environment::Scope scope(&environment);
  VolumeOptions options;
  options.directories.assign(argv + 1, argv + argc);
  options.bytes = kExtents * kExtentBytes;
  Volume volume(options);
  const std::unique_ptr<char, void (*)(void*)> memory(
      static_cast<char*>(std::aligned_alloc(4096, kBuffers * kExtentBytes)), &std::free);
  if (memory == nullptr) throw Error(ErrorCode::kDoesNotFit, "64 MiB of memory are not there");
  for (uint64_t i = 0; i < kBuffers * kExtentBytes; ++i) memory.get()[i] = static_cast<char>(i * i);
  Channel channel(volume, {.depth = 16, .regions = {{memory.get(), kBuffers * kExtentBytes}}});
  move_all(channel, Direction::kWrite, memory.get());
  move_all(channel, Direction::kRead, memory.get());
  std::printf("%.2f GB read, all verified\n", volume.counters().bytes_verified / 1e9);
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
