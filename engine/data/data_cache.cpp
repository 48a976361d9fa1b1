// SPDX-License-Identifier: Apache-2.0
#include "engine/data/data_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <thread>
#include <utility>

#include "engine/base/blocking_call.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/running_clock.h"
#include "engine/base/units.h"
#include "engine/data/data_key.h"
#include "engine/data/disk_full.h"
#include "engine/text/text_files.h"
#include "io/scratch_file.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;
using config::Json;

constexpr const char* kAbout = "about.json";
constexpr config::JsonLimits kAboutLimits = {.bytes = 256 << 20, .values = 16 << 20};

// The counts of ReadData that about.json has.
struct Count {
  const char* name;
  int64_t ReadData::*member;
};
constexpr std::array<Count, 7> kCounts = {{{"records", &ReadData::record_count},
                                           {"split", &ReadData::split_count},
                                           {"cut", &ReadData::cut_count},
                                           {"cut_tokens", &ReadData::cut_tokens},
                                           {"targets", &ReadData::target_count},
                                           {"example_first", &ReadData::example_first},
                                           {"example_count", &ReadData::example_count}}};

Error unusable_cache(const std::string& path, int error) {
  return system_error(ErrorCode::kConfig, fmt::format("open token cache: {}", path), error,
                      "give a directory that this user may write by --data-cache DIR");
}

void sync_folder(const std::string& path) {
  const BlockingCall call("sync", path);
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0 || fsync(folder) != 0) {
    const int error = errno;
    if (folder >= 0) close(folder);
    throw_not_written(path, error);
  }
  close(folder);
}

// The lock of another user may be taken too.
int open_lock(const std::string& path) {
  int lock = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (lock < 0 && errno == ENOENT) {
    lock = open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
  }
  if (lock < 0) throw unusable_cache(path, errno);
  return lock;
}

// Whether it is a folder that a cache writes; other files of the user's may be beside it.
bool is_draft(const fs::path& path) {
  constexpr size_t kDigits = 32;  // of digest_of()
  const std::string name = path.stem().string();
  std::error_code ignored;
  return path.extension() == ".part" && name.size() == kDigits &&
         name.find_first_not_of("0123456789abcdef") == name.npos &&
         fs::symlink_status(path, ignored).type() == fs::file_type::directory;
}

// A damaged cache is no failure of the run: the caller makes it again.
struct Damage {
  std::string cause;
};

const Json& member(const Json& json, const char* name) {
  const Json* value = json.find(name);
  if (value == nullptr) throw Damage{fmt::format("{} is missing in {}", name, kAbout)};
  return *value;
}

int64_t number(const Json& json, const char* name) {
  const auto value = member(json, name).int64();
  if (!value || *value < 0) throw Damage{fmt::format("{} is no count in {}", name, kAbout)};
  return *value;
}

std::string hex(uint64_t value) {
  return fmt::format("{:016x}", value);
}

void require_file(const std::string& path, const char* name) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) throw Damage{fmt::format("{} is missing", name)};
}

void write_about(const std::string& path, const std::string& text) {
  LongArray file(1, std::ssize(text));
  file.write_to(path);
  file.append(text.data(), std::ssize(text));
  file.finish();
}

Json about_array(const LongArray& array) {
  Json json = Json::object();
  json.set("count", array.count());
  json.set("width", array.width());
  json.set("checksum", hex(array.written_checksum()));
  return json;
}

LongArray open_array(const std::string& path, const Json& about, const char* name) {
  const Json& json = member(member(about, "files"), name);
  const int64_t count = number(json, "count");
  const int64_t width = number(json, "width");
  require_file(path, name);
  LongArray array = LongArray::open(path, width, count);
  if (array.file_size() != count * width) throw Damage{fmt::format("{} has another size", name)};
  if (hex(array.read_checksum()) != member(json, "checksum").string()) {
    throw Damage{fmt::format("{} has another checksum", name)};
  }
  array.expect_random_reads();
  return array;
}

Json about_records(const ReadData& data) {
  Json json = Json::array();
  for (const RecordPlace& place : data.last_records) {
    Json one = Json::array();
    one.push_back(place.first_target);
    one.push_back(place.line);
    one.push_back(static_cast<int64_t>(place.file));
    json.push_back(std::move(one));
  }
  return json;
}

// Throws Damage unless the text is one that commit() wrote for this key.
Json read_about(const std::string& path, const Json& key) {
  require_file(path, kAbout);
  const std::string text = text::read_text_file(path, kAboutLimits.bytes);
  const size_t end = text.find('\n');
  if (end == std::string::npos || text.substr(end + 1) != digest_of(text.substr(0, end)) + "\n") {
    throw Damage{fmt::format("{} has another checksum", kAbout)};
  }
  Json about = Json::parse(std::string_view(text).substr(0, end), path, kAboutLimits);
  if (member(about, "key").dump() != key.dump()) throw Damage{"it is of other data"};
  return about;
}

}  // namespace

DataCache::DataCache(const std::string& directory, Json key)
    : directory_(directory), key_(std::move(key)), path_(directory + "/" + digest_of(key_.dump())) {
  const BlockingCall call("create", directory);
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) throw unusable_cache(directory, error.value());
  if (access(directory.c_str(), W_OK | X_OK) != 0) throw unusable_cache(directory, errno);
}

DataCache::~DataCache() {
  std::error_code ignored;
  if (is_begun_) fs::remove_all(path_ + ".part", ignored);
  if (lock_ >= 0) close(lock_);
}

std::optional<ReadData> DataCache::load(const std::string& name, int64_t vocabulary) const {
  const BlockingCall call("open", path_);
  if (!fs::exists(path_)) return std::nullopt;
  ReadData data;
  try {
    const Json about = read_about(file(kAbout), key_);
    data.tokens = std::make_unique<TokenSequence>(
        name, vocabulary, open_array(file("ids"), about, "ids"),
        open_array(file("masks"), about, "masks"), number(about, "masked"));
    const Json& files = member(about, "files");
    if (files.find("starts") != nullptr) {
      data.starts = std::make_unique<Numbers>(open_array(file("starts"), about, "starts"));
    }
    if (files.find("rows") != nullptr) {
      data.packing = std::make_unique<Packing>(
          Packing{.order = Numbers(open_array(file("order"), about, "order")),
                  .row_starts = Numbers(open_array(file("rows"), about, "rows"))});
    }
    for (const Json& warning : member(about, "warnings").items()) {
      data.warnings.push_back(warning.string());
    }
    for (const Json& place : member(about, "last_records").items()) {
      const Json::Array& items = place.items();
      data.last_records.push_back({items[0].int64().value(), items[1].int64().value(),
                                   static_cast<size_t>(items[2].int64().value())});
    }
    data.found = member(about, "found").string();
    for (const Count& count : kCounts) data.*count.member = number(about, count.name);
    data.known_fingerprint = std::stoull(member(about, "fingerprint").string(), nullptr, 16);
    data.kept_in = path_;
    return data;
  } catch (const Damage& damage) {
    // Without the lock, it may be another process that makes them again at this moment.
    if (!is_locked_) return std::nullopt;
    log(LogLevel::kWarning,
        fmt::format("data: {}: the tokens kept there are damaged: {} (they are made again; if "
                    "this happens often, give another disk by --data-cache DIR)",
                    path_, damage.cause));
  }
  return std::nullopt;
}

bool DataCache::try_lock() {
  const BlockingCall call("lock", path_);
  is_locked_ = flock(lock_, LOCK_EX | LOCK_NB) == 0;
  if (!is_locked_ && errno != EWOULDBLOCK && errno != EINTR) {
    throw unusable_cache(path_ + ".lock", errno);
  }
  return is_locked_;
}

fs::file_time_type DataCache::last_written() const {
  const BlockingCall call("read", path_);
  std::error_code ignored;  // what is not there was not written
  fs::file_time_type last = fs::file_time_type::min();
  for (fs::directory_iterator entry(path_ + ".part", ignored), end; entry != end;
       entry.increment(ignored)) {
    last = std::max(last, entry->last_write_time(ignored));
  }
  return last;
}

void DataCache::lock(double least_patience_s) {
  if (lock_ < 0) lock_ = open_lock(path_ + ".lock");
  if (try_lock()) return;
  const double patience_s = std::max(least_patience_s, BlockingCall::deadline_s());
  log(LogLevel::kInfo,
      fmt::format("data: {}: another run makes the same tokens (wait until it has them)", path_));
  fs::file_time_type written = last_written();
  RunningClock clock(1);
  for (double seen_s = clock.now_s(); !try_lock();) {
    {
      const BlockingCall call("look for", path_);
      if (fs::exists(path_)) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    clock.tick();
    if (const fs::file_time_type newest = last_written(); newest != written) {
      written = newest;
      seen_s = clock.now_s();
    } else if (clock.now_s() - seen_s > patience_s) {
      throw Error(ErrorCode::kIo,
                  fmt::format("data: {}: another run that makes the same tokens has written "
                              "nothing there for {} (end that run, or give another directory by "
                              "--data-cache DIR)",
                              path_, format_duration(patience_s)));
    }
  }
}

// Folders that processes left which ended while they wrote.
void DataCache::remove_leftovers() const {
  const BlockingCall call("remove", path_);
  std::error_code error;
  fs::remove_all(path_, error);  // damaged, or not there
  if (error) throw unusable_cache(path_, error.value());
  std::error_code ignored;
  fs::remove_all(path_ + ".part", ignored);
  for (const fs::directory_entry& entry : fs::directory_iterator(directory_, ignored)) {
    if (!is_draft(entry.path())) continue;
    fs::path name = entry.path();
    const int other = open(name.replace_extension(".lock").c_str(), O_RDONLY | O_CLOEXEC);
    if (other < 0) continue;
    if (flock(other, LOCK_EX | LOCK_NB) == 0) fs::remove_all(entry.path(), ignored);
    close(other);
  }
}

void DataCache::begin(ReadData& data, int64_t text_bytes) {
  STRATA_CHECK(is_locked_);
  remove_leftovers();
  // A token of most texts has 3 bytes or more. Where it has less, writing stops when the disk is
  // nearly full.
  const int64_t needed = text_bytes / 3 * data.tokens->ids().width() + text_bytes / 16;
  const auto free = static_cast<int64_t>(io::free_space(directory_).bytes);
  if (free < needed) {
    throw Error(ErrorCode::kDoesNotFit,
                fmt::format("write tokens: {}: about {} are needed for {} of text, and {} are free "
                            "(free some space, or give another disk by --data-cache DIR)",
                            directory_, format_bytes(needed), format_bytes(text_bytes),
                            format_bytes(free)));
  }
  const std::string folder = path_ + ".part";
  std::error_code error;
  fs::create_directory(folder, error);
  if (error) throw unusable_cache(folder, error.value());
  is_begun_ = true;
  data.tokens->write_to(draft("ids"), draft("masks"));
  if (data.starts) data.starts->array().write_to(draft("starts"));
  if (!data.packing) return;
  data.packing->order.array().write_to(draft("order"));
  data.packing->row_starts.array().write_to(draft("rows"));
}

void DataCache::commit(ReadData& data) {
  STRATA_CHECK(is_begun_);
  Json about = Json::object();
  about.set("key", key_);
  for (const Count& count : kCounts) about.set(count.name, data.*count.member);
  about.set("found", data.found);
  about.set("masked", data.tokens->masked_count());
  about.set("fingerprint", hex(data.fingerprint()));
  about.set("last_records", about_records(data));
  Json warnings = Json::array();
  for (const std::string& warning : data.warnings) warnings.push_back(warning);
  about.set("warnings", std::move(warnings));
  data.tokens->finish();
  Json files = Json::object();
  files.set("ids", about_array(data.tokens->ids()));
  files.set("masks", about_array(data.tokens->masks()));
  const auto add = [&](const char* name, LongArray& array) {
    array.finish();
    files.set(name, about_array(array));
  };
  if (data.starts) add("starts", data.starts->array());
  if (data.packing) add("order", data.packing->order.array());
  if (data.packing) add("rows", data.packing->row_starts.array());
  about.set("files", std::move(files));
  const std::string text = about.dump();
  write_about(draft(kAbout), text + "\n" + digest_of(text) + "\n");
  sync_folder(path_ + ".part");
  if (rename((path_ + ".part").c_str(), path_.c_str()) != 0) throw_not_written(path_, errno);
  is_begun_ = false;
  sync_folder(directory_);
}

}  // namespace strata::data
