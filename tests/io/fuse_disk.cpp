// SPDX-License-Identifier: Apache-2.0
// A file system in memory whose reads and writes fail on demand: `fuse_disk MOUNTPOINT`.
//
// Writing "<direction> <kind> <index> <count>" to the file `faults` makes the next I/Os of that
// direction, from `index` on, fail `count` times. Kinds: eio, enospc, short, flip, stale,
// misdirect, hang.
#define FUSE_USE_VERSION 31
#include <fuse.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

constexpr uint64_t kFaultsHandle = 1;

struct File {
  std::vector<char> bytes;
};

struct Fault {
  std::string kind;
  int64_t index = 0;
  int64_t count = 0;
};

struct Disk {
  std::mutex mu;
  std::map<std::string, std::shared_ptr<File>> files;  // all guarded by mu
  std::map<uint64_t, std::shared_ptr<File>> open;
  uint64_t next_handle = kFaultsHandle + 1;
  std::map<std::string, Fault> faults;  // by direction
};

Disk& disk() {
  return *static_cast<Disk*>(fuse_get_context()->private_data);
}

// The fault of this I/O, if any. Counts down.
std::string next_fault(const std::string& direction) {
  Disk& d = disk();
  const std::lock_guard lock(d.mu);
  Fault& fault = d.faults[direction];
  if (fault.count == 0 || fault.index-- > 0) return "";
  --fault.count;
  return fault.kind;
}

std::shared_ptr<File> file_of(const char* path, const fuse_file_info* info) {
  Disk& d = disk();
  if (info != nullptr && info->fh != 0) {
    const auto at = d.open.find(info->fh);
    return at == d.open.end() ? nullptr : at->second;
  }
  const auto at = path == nullptr ? d.files.end() : d.files.find(path + 1);
  return at == d.files.end() ? nullptr : at->second;
}

int disk_getattr(const char* path, struct stat* info, fuse_file_info* fi) {
  std::memset(info, 0, sizeof *info);
  if (path != nullptr && std::string(path) == "/") {
    info->st_mode = S_IFDIR | 0755;
    info->st_nlink = 2;
    return 0;
  }
  const std::lock_guard lock(disk().mu);
  const auto file = file_of(path, fi);
  if (file == nullptr) return -ENOENT;
  info->st_mode = S_IFREG | 0600;
  info->st_nlink = 1;
  info->st_size = static_cast<off_t>(file->bytes.size());
  return 0;
}

int disk_open(const char* path, fuse_file_info* info) {
  Disk& d = disk();
  const std::lock_guard lock(d.mu);
  const auto at = d.files.find(path + 1);
  if (at == d.files.end()) return -ENOENT;
  info->fh = std::strcmp(path, "/faults") == 0 ? kFaultsHandle : d.next_handle++;
  info->direct_io = 1;
  d.open[info->fh] = at->second;
  return 0;
}

int disk_create(const char* path, mode_t, fuse_file_info* info) {
  {
    const std::lock_guard lock(disk().mu);
    disk().files[path + 1] = std::make_shared<File>();
  }
  return disk_open(path, info);
}

int disk_release(const char*, fuse_file_info* info) {
  const std::lock_guard lock(disk().mu);
  disk().open.erase(info->fh);
  return 0;
}

int disk_unlink(const char* path) {
  const std::lock_guard lock(disk().mu);
  return disk().files.erase(path + 1) == 1 ? 0 : -ENOENT;
}

int disk_truncate(const char* path, off_t bytes, fuse_file_info* info) {
  const std::lock_guard lock(disk().mu);
  const auto file = file_of(path, info);
  if (file == nullptr) return -ENOENT;
  file->bytes.resize(static_cast<size_t>(bytes));
  return 0;
}

int disk_read(const char* path, char* out, size_t bytes, off_t offset, fuse_file_info* info) {
  const std::string fault = next_fault("read");
  if (fault == "hang") sleep(3600);
  if (fault == "eio") return -EIO;
  const std::lock_guard lock(disk().mu);
  const auto file = file_of(path, info);
  if (file == nullptr) return -ENOENT;
  auto from = static_cast<size_t>(offset);
  if (fault == "misdirect") from = from >= bytes ? from - bytes : from + bytes;
  if (from >= file->bytes.size()) return 0;
  size_t count = std::min(bytes, file->bytes.size() - from);
  if (fault == "short") count = count / 2;
  std::memcpy(out, file->bytes.data() + from, count);
  if (fault == "flip") out[count / 3] = static_cast<char>(out[count / 3] ^ 4);
  return static_cast<int>(count);
}

int disk_write(const char* path, const char* data, size_t bytes, off_t offset,
               fuse_file_info* info) {
  if (info->fh == kFaultsHandle) {
    char direction[16];
    char kind[16];
    long long index = 0;
    long long count = 0;
    const std::string line(data, bytes);
    if (std::sscanf(line.c_str(), "%15s %15s %lld %lld", direction, kind, &index, &count) != 4)
      return -EINVAL;
    const std::lock_guard lock(disk().mu);
    disk().faults[direction] = {kind, index, count};
    return static_cast<int>(bytes);
  }
  const std::string fault = next_fault("write");
  if (fault == "hang") sleep(3600);
  if (fault == "eio") return -EIO;
  if (fault == "enospc") return -ENOSPC;
  if (fault == "stale") return static_cast<int>(bytes);
  const std::lock_guard lock(disk().mu);
  const auto file = file_of(path, info);
  if (file == nullptr) return -ENOENT;
  auto to = static_cast<size_t>(offset);
  if (fault == "misdirect") to = to >= bytes ? to - bytes : to + bytes;
  const size_t count = fault == "short" ? bytes / 2 : bytes;
  if (file->bytes.size() < to + count) file->bytes.resize(to + count);
  std::memcpy(file->bytes.data() + to, data, count);
  if (fault == "flip")
    file->bytes[to + count / 3] = static_cast<char>(file->bytes[to + count / 3] ^ 4);
  return static_cast<int>(count);
}

int disk_statfs(const char*, struct statvfs* space) {
  std::memset(space, 0, sizeof *space);
  space->f_bsize = space->f_frsize = 4096;
  space->f_blocks = space->f_bfree = space->f_bavail = 1 << 16;
  space->f_namemax = 255;
  return 0;
}

void* disk_init(fuse_conn_info*, fuse_config* config) {
  config->hard_remove = 1;  // an unlinked open file keeps no name
  config->nullpath_ok = 1;
  return &disk();
}

int disk_fsync(const char*, int, fuse_file_info*) {
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  fuse_operations operations{};
  operations.init = disk_init;
  operations.getattr = disk_getattr;
  operations.open = disk_open;
  operations.create = disk_create;
  operations.release = disk_release;
  operations.unlink = disk_unlink;
  operations.truncate = disk_truncate;
  operations.read = disk_read;
  operations.write = disk_write;
  operations.statfs = disk_statfs;
  operations.fsync = disk_fsync;
  if (argc != 2) return 2;
  std::string program = argv[0];
  std::string foreground = "-f";
  char* arguments[] = {program.data(), foreground.data(), argv[1]};
  Disk state;
  return fuse_main(3, arguments, &operations, &state);
}
