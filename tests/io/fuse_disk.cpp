// SPDX-License-Identifier: Apache-2.0
// A file system in memory that fails on demand: `fuse_disk MOUNTPOINT [cached]`.
//
// Writing "<direction> <kind> <index> <count>" to the file `faults` makes the next operations of
// that direction, from `index` on, fail `count` times. Directions: read, write, fsync (of files and
// directories), rename, reserve (fallocate), create (of files and directories), list, space
// (statfs). Kinds: eio, enospc, hang (until the next line of that direction), of reads and writes
// eagain, short, flip, misdirect, of writes stale and torn (the second half is lost), of reads slow
// (half a second). Every I/O
// comes here at once, and there is no fallocate; `cached`, the kernel holds what is written and
// sends it later, as it does with a disk. The count of inodes that statvfs tells is the count of
// bytes written.
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
#include <set>
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
  bool cached = false;  // constant
  std::mutex mu;
  std::map<std::string, std::shared_ptr<File>> files;  // by path; all guarded by mu
  std::set<std::string> directories = {"/"};
  std::map<uint64_t, std::shared_ptr<File>> open;
  std::map<uint64_t, std::string> open_directories;
  uint64_t written_bytes = 0;
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

// A hang ends with the next fault of its direction.
void hang(const std::string& direction) {
  Disk& d = disk();
  for (bool hangs = true; hangs;) {
    usleep(10'000);
    const std::lock_guard lock(d.mu);
    hangs = d.faults[direction].kind == "hang";
  }
}

std::shared_ptr<File> file_of(const char* path, const fuse_file_info* info) {
  Disk& d = disk();
  if (info != nullptr && info->fh != 0) {
    const auto at = d.open.find(info->fh);
    return at == d.open.end() ? nullptr : at->second;
  }
  const auto at = path == nullptr ? d.files.end() : d.files.find(path);
  return at == d.files.end() ? nullptr : at->second;
}

// The error of an operation without data, which may first hang.
int fail(const std::string& direction) {
  const std::string fault = next_fault(direction);
  if (fault == "hang") hang(direction);
  return fault == "eio" ? -EIO : fault == "enospc" ? -ENOSPC : 0;
}

// What lies in the directory, by name.
std::set<std::string> names_in(const Disk& d, const std::string& directory) {
  const std::string prefix = directory == "/" ? directory : directory + "/";
  std::set<std::string> names;
  const auto add = [&](const std::string& path) {
    if (path.size() <= prefix.size() || path.compare(0, prefix.size(), prefix) != 0) return;
    const std::string name = path.substr(prefix.size());
    if (name.find('/') == std::string::npos) names.insert(name);
  };
  for (const auto& [path, file] : d.files) add(path);
  for (const std::string& path : d.directories) add(path);
  return names;
}

// `path` where `from` is, or is above it, has become `to`.
std::string moved(const std::string& path, const std::string& from, const std::string& to) {
  if (path == from) return to;
  return path.compare(0, from.size() + 1, from + "/") == 0 ? to + path.substr(from.size()) : path;
}

int disk_getattr(const char* path, struct stat* info, fuse_file_info* fi) {
  std::memset(info, 0, sizeof *info);
  const std::lock_guard lock(disk().mu);
  if (path != nullptr && disk().directories.contains(path)) {
    info->st_mode = S_IFDIR | 0755;
    info->st_nlink = 2;
    return 0;
  }
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
  const auto at = d.files.find(path);
  if (at == d.files.end()) return -ENOENT;
  info->fh = std::strcmp(path, "/faults") == 0 ? kFaultsHandle : d.next_handle++;
  info->direct_io = !d.cached || info->fh == kFaultsHandle;
  d.open[info->fh] = at->second;
  return 0;
}

int disk_create(const char* path, mode_t, fuse_file_info* info) {
  const bool is_command = std::strcmp(path, "/faults") == 0;
  if (const int error = is_command ? 0 : fail("create"); error != 0) return error;
  {
    const std::lock_guard lock(disk().mu);
    disk().files[path] = std::make_shared<File>();
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
  return disk().files.erase(path) == 1 ? 0 : -ENOENT;
}

int disk_mkdir(const char* path, mode_t) {
  if (const int error = fail("create"); error != 0) return error;
  const std::lock_guard lock(disk().mu);
  return disk().directories.insert(path).second ? 0 : -EEXIST;
}

int disk_rmdir(const char* path) {
  const std::lock_guard lock(disk().mu);
  if (!names_in(disk(), path).empty()) return -ENOTEMPTY;
  return disk().directories.erase(path) == 1 ? 0 : -ENOENT;
}

int disk_rename(const char* from, const char* to, unsigned flags) {
  if (const int error = fail("rename"); error != 0) return error;
  Disk& d = disk();
  const std::lock_guard lock(d.mu);
  if (flags != 0) return -EINVAL;  // no exchange here
  if (d.directories.contains(to) && !names_in(d, to).empty()) return -ENOTEMPTY;
  d.files.erase(to);
  std::map<std::string, std::shared_ptr<File>> files;
  for (const auto& [path, file] : d.files) files[moved(path, from, to)] = file;
  std::set<std::string> directories;
  for (const std::string& path : d.directories) directories.insert(moved(path, from, to));
  d.files = std::move(files);
  d.directories = std::move(directories);
  return 0;
}

int disk_opendir(const char* path, fuse_file_info* info) {
  if (const int error = fail("list"); error != 0) return error;
  const std::lock_guard lock(disk().mu);
  info->fh = disk().next_handle++;
  disk().open_directories[info->fh] = path;
  return 0;
}

int disk_readdir(const char*, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info* info,
                 fuse_readdir_flags) {
  const std::lock_guard lock(disk().mu);
  for (const std::string& name : names_in(disk(), disk().open_directories[info->fh])) {
    fill(buffer, name.c_str(), nullptr, 0, fuse_fill_dir_flags{});
  }
  return 0;
}

int disk_releasedir(const char*, fuse_file_info* info) {
  const std::lock_guard lock(disk().mu);
  disk().open_directories.erase(info->fh);
  return 0;
}

int disk_truncate(const char* path, off_t bytes, fuse_file_info* info) {
  const std::lock_guard lock(disk().mu);
  const auto file = file_of(path, info);
  if (file == nullptr) return -ENOENT;
  file->bytes.resize(static_cast<size_t>(bytes));
  return 0;
}

int disk_fallocate(const char* path, int mode, off_t offset, off_t bytes, fuse_file_info* info) {
  if (mode != 0 || !disk().cached) return -EOPNOTSUPP;
  if (const int error = fail("reserve"); error != 0) return error;
  const std::lock_guard lock(disk().mu);
  const auto file = file_of(path, info);
  if (file == nullptr) return -ENOENT;
  file->bytes.resize(std::max(file->bytes.size(), static_cast<size_t>(offset + bytes)));
  return 0;
}

int disk_read(const char* path, char* out, size_t bytes, off_t offset, fuse_file_info* info) {
  const std::string fault = next_fault("read");
  if (fault == "hang") hang("read");
  if (fault == "slow") usleep(500'000);
  if (fault == "slower") usleep(4'000'000);
  if (fault == "eio") return -EIO;
  if (fault == "eagain") return -EAGAIN;
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
  if (fault == "hang") hang("write");
  if (fault == "eio") return -EIO;
  if (fault == "enospc") return -ENOSPC;
  if (fault == "eagain") return -EAGAIN;
  if (fault == "stale") return static_cast<int>(bytes);
  const std::lock_guard lock(disk().mu);
  const auto file = file_of(path, info);
  if (file == nullptr) return -ENOENT;
  auto to = static_cast<size_t>(offset);
  if (fault == "misdirect") to = to >= bytes ? to - bytes : to + bytes;
  const size_t count = fault == "short" || fault == "torn" ? bytes / 2 : bytes;
  if (file->bytes.size() < to + count) file->bytes.resize(to + count);
  disk().written_bytes += count;
  std::memcpy(file->bytes.data() + to, data, count);
  if (fault == "flip")
    file->bytes[to + count / 3] = static_cast<char>(file->bytes[to + count / 3] ^ 4);
  return static_cast<int>(fault == "torn" ? bytes : count);
}

int disk_statfs(const char*, struct statvfs* space) {
  if (const int error = fail("space"); error != 0) return error;
  std::memset(space, 0, sizeof *space);
  space->f_bsize = space->f_frsize = 4096;
  space->f_blocks = space->f_bfree = space->f_bavail = 1 << 16;
  space->f_namemax = 255;
  const std::lock_guard lock(disk().mu);
  space->f_files = disk().written_bytes;
  return 0;
}

void* disk_init(fuse_conn_info* connection, fuse_config* config) {
  if (disk().cached) connection->want |= FUSE_CAP_WRITEBACK_CACHE;
  config->hard_remove = 1;  // an unlinked open file keeps no name
  config->nullpath_ok = 1;
  return &disk();
}

int disk_fsync(const char*, int, fuse_file_info*) {
  return fail("fsync");
}

// A kernel that holds what is written tells the time of it; nobody asks for it.
int disk_utimens(const char*, const timespec*, fuse_file_info*) {
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
  operations.mkdir = disk_mkdir;
  operations.rmdir = disk_rmdir;
  operations.rename = disk_rename;
  operations.opendir = disk_opendir;
  operations.readdir = disk_readdir;
  operations.releasedir = disk_releasedir;
  operations.fallocate = disk_fallocate;
  operations.truncate = disk_truncate;
  operations.read = disk_read;
  operations.write = disk_write;
  operations.statfs = disk_statfs;
  operations.fsync = disk_fsync;
  operations.utimens = disk_utimens;
  operations.fsyncdir = disk_fsync;
  if (argc != 2 && argc != 3) return 2;
  std::string program = argv[0];
  std::string foreground = "-f";
  char* arguments[] = {program.data(), foreground.data(), argv[1]};
  Disk state;
  state.cached = argc == 3 && std::strcmp(argv[2], "cached") == 0;
  return fuse_main(3, arguments, &operations, &state);
}
