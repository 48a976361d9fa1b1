// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "engine/config/json.h"
#include "engine/data/data_read.h"

namespace strata::data {

// Tokens of one set of data on disk, in DIRECTORY/NAME, where NAME is the digest of `key`: ids,
// masks, starts, order and rows, which are arrays of little-endian numbers, and about.json, which
// has the key, the rest of ReadData, and a checksum of each file and of itself.
//
// Guarantees: a folder of this name is whole, since it is written as NAME.part, synced and renamed;
// what is damaged later is found when it is opened. One process at a time writes it, and others
// wait (flock on NAME.lock, so that a process that dies holds up nobody). Threads: one. Failure:
// Error that names the path.
class DataCache {
 public:
  // Makes the directory where it is missing.
  DataCache(const std::string& directory, config::Json key);
  // Removes what was begun and not committed.
  ~DataCache();
  DataCache(const DataCache&) = delete;
  DataCache& operator=(const DataCache&) = delete;

  // Reads the tokens; nullopt when they are not there or damaged. Warns of damage with the lock.
  std::optional<ReadData> load(const std::string& name, int64_t vocabulary) const;
  // Waits until no other process writes these tokens, or until one has written them: then there is
  // no lock. Throws Error (kIo) where one that has the lock writes nothing for
  // the longer of BlockingCall::deadline_s() and `least_patience_s`.
  void lock(double least_patience_s);
  bool is_locked() const { return is_locked_; }
  // Begins to write, with the lock: `data` has no tokens yet. Removes what other processes left.
  // Throws Error where damaged tokens cannot be removed, and (kDoesNotFit) where the disk has less
  // room than such a text probably needs.
  void begin(ReadData& data, int64_t text_bytes);
  // Writes what is left of `data`. Throws DiskFull where the disk has no room for it.
  void commit(ReadData& data);

  const std::string& path() const { return path_; }

 private:
  std::string file(const char* name) const { return path_ + "/" + name; }
  std::string draft(const char* name) const { return path_ + ".part/" + name; }
  bool try_lock();
  std::filesystem::file_time_type last_written() const;  // of the draft
  void remove_leftovers() const;

  const std::string directory_;
  const config::Json key_;
  const std::string path_;
  int lock_ = -1;
  bool is_locked_ = false;
  bool is_begun_ = false;
};

}  // namespace strata::data
