// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "engine/base/blocking_call.h"
#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/shell_word.h"
#include "engine/base/units.h"
#include "engine/checkpoint/checkpoint_file.h"
#include "engine/checkpoint/checkpoint_list.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/checkpoint_slices.h"
#include "engine/checkpoint/disk_use.h"
#include "engine/model_files/file.h"
#include "engine/shard/layout.h"

namespace strata::checkpoint {
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kManifestTemporary = "manifest.json.tmp";
constexpr int64_t kManifestBytesMax = int64_t{1} << 28;

bool is_ours(const std::string& name) {
  if (name == kManifest || name == kManifestTemporary) return true;
  int rank = 0;
  char rest = 0;
  return std::sscanf(name.c_str(), "state-rank%d.bin%c", &rank, &rest) == 1 &&
         name == state_file_name(rank);
}

// Removes the files of a checkpoint and its directory. If the directory has other files, these and
// the directory stay.
void remove_checkpoint(const std::string& path) {
  const BlockingCall call("remove", path);
  std::error_code error;
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator at(path, error), end; at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  for (const std::string& name : names) {
    if (is_ours(name)) ::unlink((path + "/" + name).c_str());
  }
  if (::rmdir(path.c_str()) != 0 && errno != ENOENT) {
    log(LogLevel::kWarning, system_error(ErrorCode::kIo, "cannot remove: " + path, errno).what());
  }
}

std::string parent_of(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  return parent.empty() ? "." : parent.string();
}

void make_directory(const std::string& path) {
  const BlockingCall call("create", path);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    const bool full = errno == ENOSPC || errno == EDQUOT;
    throw system_error(full ? ErrorCode::kDoesNotFit : ErrorCode::kIo, "cannot create: " + path,
                       errno);
  }
}

int rename_with(const std::string& from, const std::string& to, unsigned flags) {
  const BlockingCall call("rename", from);
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0 ? 0 : errno;
}

// Gives `partial` its final name. An existing checkpoint of that name is exchanged in the same
// step, and removed afterwards.
void rename_checkpoint(const std::string& partial, const std::string& path) {
  int error = rename_with(partial, path, RENAME_NOREPLACE);
  if (error == EEXIST) error = rename_with(partial, path, RENAME_EXCHANGE);
  // The file system does not know these flags. A plain rename never replaces a directory that has
  // files.
  if (error == EINVAL) error = rename_with(partial, path, 0);
  if (error != 0) {
    throw system_error(ErrorCode::kIo, "cannot rename: " + partial + " to " + path, error);
  }
}

std::string read_text(const std::string& path) {
  const model::File file = model::File::open_to_read(path);
  const int64_t bytes = file.size();
  if (bytes > kManifestBytesMax) {
    throw Error(ErrorCode::kCorrupt,
                fmt::format("cannot read checkpoint: {}: it has {}, more than any "
                            "manifest (use another checkpoint)",
                            path, format_bytes(bytes)));
  }
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read_at(0, text.data(), bytes);
  return text;
}

CheckpointManifest make_manifest(const CheckpointContents& contents, int64_t step, uint64_t nonce) {
  CheckpointManifest manifest;
  manifest.step = step;
  manifest.updates = contents.history.updates;
  manifest.loss_scale = contents.history.loss_scale;
  manifest.nonce = nonce;
  manifest.run = contents.run;
  manifest.recipe = contents.recipe;
  manifest.world = contents.mesh.world;
  manifest.zero_stage = contents.mesh.zero_stage;
  manifest.tensor_ranks = contents.mesh.tensor;
  if (contents.mesh.tensor > 1) manifest.shard_ranks = contents.mesh.shards();
  manifest.model = model_identity(*contents.spec, contents.recipe);
  manifest.trainer = contents.trainer;
  for (const StateFile& file : contents.files) {
    if (file.name.empty()) continue;
    manifest.state_hash += file.state_hash;
    manifest.files.push_back(file);
  }
  std::sort(manifest.files.begin(), manifest.files.end(),
            [](const StateFile& a, const StateFile& b) { return a.rank < b.rank; });
  return manifest;
}

std::string marked_path(const std::string& directory, int64_t step, std::string_view mark,
                        uint64_t nonce) {
  return fmt::format("{}{}{:016x}", checkpoint_path(directory, step), mark, nonce);
}

// Renames a checkpoint with the given mark and returns the new path.
std::string rename_entry(const std::string& directory, const Entry& entry, std::string_view mark) {
  const std::string to = marked_path(directory, entry.step, mark, random_nonce());
  const int error = rename_with(entry.path, to, 0);
  if (error == 0) return to;
  throw system_error(ErrorCode::kIo, "cannot rename: " + entry.path + " to " + to, error);
}

// Removes a checkpoint after renaming it to a leftover's name, so that a half-removed one never
// looks like a checkpoint.
void remove_whole(const std::string& directory, const Entry& entry) {
  remove_checkpoint(rename_entry(directory, entry, kPartialMark));
}

bool has_manifest(const std::string& path) {
  const BlockingCall call("look for", path);
  struct stat info {};
  return ::lstat((path + "/" + kManifest).c_str(), &info) == 0 || errno != ENOENT;
}

// Reads the manifest of a checkpoint and checks its files. Throws kCorrupt when the checkpoint is
// proved to be damaged, and other errors when that is not known.
CheckpointManifest read_whole(const Entry& entry) {
  if (!has_manifest(entry.path)) {
    throw Error(ErrorCode::kCorrupt, "cannot use checkpoint: " + entry.path +
                                         ": it has no manifest.json (use another checkpoint)");
  }
  CheckpointManifest manifest = read_manifest(entry.path);
  if (manifest.step != entry.step) {
    throw Error(ErrorCode::kCorrupt, fmt::format("cannot use checkpoint: {}: its manifest is of "
                                                 "step {} (rename the directory to that step)",
                                                 entry.path, manifest.step));
  }
  return manifest;
}

// Whether a checkpoint belongs to another run; false when it cannot be read.
bool is_of_other_run(const Entry& entry, const std::string& run) {
  try {
    return read_manifest(entry.path).run != run;
  } catch (const Error&) {
    return false;
  }
}

// The error for a checkpoint that cannot be read but may be whole, so that it is not replaced by an
// older one.
Error not_proved_damaged(const Error& error, const Entry& entry, const Entry* older) {
  return Error(
      error.code(),
      fmt::format("cannot use checkpoint: {}: it may be whole but cannot be read: {} "
                  "(correct that and resume again{})",
                  entry.path, error.what(),
                  older ? ", or name an older one: --resume " + shell_word(older->path) : ""));
}

}  // namespace

uint64_t random_nonce() {
  uint64_t nonce = 0;
  if (::getrandom(&nonce, sizeof nonce, 0) != static_cast<ssize_t>(sizeof nonce)) {
    throw system_error(ErrorCode::kIo, "cannot draw a random number", errno);
  }
  return nonce;
}

int64_t checkpoint_bytes(const model::ModelSpec& spec, Recipe recipe) {
  int64_t bytes = kMiB;  // names and the manifest's fixed part
  for (const model::Segment& segment : spec.segments) {
    const int64_t sliced = segment.trainable_numel - segment.whole_numel;
    const int64_t elements = sliced * spec.tensor.ranks + segment.whole_numel;
    // One thousandth more covers the manifest, which has 16 characters for each block.
    const int64_t state = elements * planes_of(recipe).bytes();
    bytes += state + state / 1000;
  }
  return bytes;
}

int64_t state_file_bytes(const model::ModelSpec& spec, Recipe recipe, int state_shards) {
  int64_t elements = 0;
  for (const model::Segment& segment : spec.segments) elements += segment.trainable_numel;
  return shard::share_of(elements, state_shards) * planes_of(recipe).bytes();
}

std::string checkpoint_path(const std::string& directory, int64_t step) {
  return fmt::format("{}/{}{:06}", directory, kPrefix, step);
}

std::string partial_path(const std::string& directory, int64_t step, uint64_t nonce) {
  return marked_path(directory, step, kPartialMark, nonce);
}

CheckpointCommit::CheckpointCommit(const std::string& directory, int64_t step, int64_t bytes)
    : directory_(directory),
      step_(step),
      nonce_(random_nonce()),
      partial_(partial_path(directory, step, nonce_)) {
  make_directory(directory_);
  model::sync_directory(parent_of(directory_));
  model::require_free_space(directory_, bytes, "checkpoint");
  make_directory(partial_);
}

CheckpointCommit::~CheckpointCommit() {
  if (!committed_) remove_checkpoint(partial_);
}

std::string CheckpointCommit::commit(const CheckpointContents& contents) {
  STRATA_CHECK(!committed_);
  const CheckpointManifest manifest = make_manifest(contents, step_, nonce_);
  check_coverage(manifest, stored_slices(manifest, *contents.spec, partial_), partial_);
  const std::string text = to_text(manifest);
  model::sync_directory(partial_);
  const std::string temporary = partial_ + "/" + kManifestTemporary;
  write_small_file(temporary, text);
  const int error = rename_with(temporary, partial_ + "/" + kManifest, 0);
  if (error != 0) throw system_error(ErrorCode::kIo, "cannot rename: " + temporary, error);
  model::sync_directory(partial_);
  if (to_text(read_manifest(partial_)) != text) {
    throw Error(ErrorCode::kCorrupt,
                "cannot commit checkpoint: " + partial_ +
                    ": its manifest reads back differently (the drive "
                    "returns wrong bytes: see smartctl, and use another drive)");
  }
  const std::string path = checkpoint_path(directory_, step_);
  rename_checkpoint(partial_, path);
  committed_ = true;
  model::sync_directory(directory_);
  remove_checkpoint(partial_);  // after an exchange, this is the replaced checkpoint
  return path;
}

namespace {

// Names the newest checkpoint near a path that has none: of the run that the path is, or in which
// it lies.
[[noreturn]] void refuse_no_checkpoint(const std::string& path) {
  struct stat info {};
  const auto is_there = [&](const std::string& name) { return ::lstat(name.c_str(), &info) == 0; };
  const bool is_run = is_there(path + "/checkpoints");
  const std::string parent =
      std::filesystem::path(path + "/.").lexically_normal().parent_path().parent_path().string();
  std::error_code ignored;
  std::vector<Entry> entries;
  for (const std::string& folder : {path + "/checkpoints", path, parent, parent + "/checkpoints"}) {
    const std::string existing = folder.empty() ? "." : folder;
    if (!std::filesystem::is_directory(existing, ignored)) continue;
    if (entries.empty()) entries = list(existing, Kind::kWhole);
  }
  const std::string cause = is_run ? "it is a run, not a checkpoint"
                            : std::filesystem::is_regular_file(path, ignored)
                                ? "it is a file, not a checkpoint"
                            : is_there(path + "/config.json")
                                ? "it is a model (--model begins with one), not a checkpoint"
                            : is_there(path) ? "it has no manifest.json, so it is not a checkpoint"
                                             : "no such checkpoint";
  throw Error(ErrorCode::kConfig,
              "cannot read checkpoint: " + path + ": " + cause +
                  (entries.empty() ? " (give a run, or one of RUN/checkpoints)"
                                   : "; the newest is " + entries.front().path + " (--resume " +
                                         shell_word(entries.front().path) + ")"));
}

}  // namespace

CheckpointManifest read_manifest(const std::string& path) {
  const BlockingCall call("read", path);
  const std::string file = path + "/" + kManifest;
  struct stat info {};
  if (::lstat(file.c_str(), &info) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
    refuse_no_checkpoint(path);
  }
  CheckpointManifest manifest = parse_manifest(read_text(file), file);
  for (const StateFile& state : manifest.files) {
    const std::string name = path + "/" + state.name;
    const bool there = ::lstat(name.c_str(), &info) == 0;
    if (!there && errno != ENOENT) {
      throw system_error(ErrorCode::kIo, "cannot read checkpoint: " + name, errno);
    }
    if (there && !S_ISREG(info.st_mode)) {
      throw Error(ErrorCode::kConfig, "cannot read checkpoint: " + name +
                                          ": it is not a regular file (use another checkpoint)");
    }
    if (there && info.st_size == state.bytes) continue;
    throw Error(ErrorCode::kCorrupt,
                "cannot read checkpoint: " + name + ": " +
                    (there ? fmt::format("it has {} bytes, not {}", info.st_size, state.bytes)
                           : "it is missing") +
                    " (use another checkpoint)");
  }
  return manifest;
}

FoundCheckpoint find_checkpoint(const std::string& directory, CheckpointCheck check,
                                const std::optional<std::string>& run) {
  FoundCheckpoint found;
  const std::vector<Entry> entries = list(directory, Kind::kWhole);
  for (size_t i = 0; i < entries.size(); ++i) {
    const Entry* older = i + 1 < entries.size() ? &entries[i + 1] : nullptr;
    try {
      const CheckpointManifest manifest = read_whole(entries[i]);
      if (run && manifest.run != *run) continue;
      if (check == CheckpointCheck::kBlocks && older != nullptr) verify_checkpoint(entries[i].path);
      found.path = entries[i].path;
      found.step = entries[i].step;
      return found;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorrupt) throw not_proved_damaged(error, entries[i], older);
      found.skipped.push_back({entries[i].path, error.what()});
    }
  }
  return found;
}

void keep_last(const std::string& directory, int64_t count, std::optional<int64_t> also) {
  STRATA_CHECK(count >= 1);
  for (const Entry& entry : list(directory, Kind::kAside)) remove_whole(directory, entry);
  int64_t kept = 0;
  for (const Entry& entry : list(directory, Kind::kWhole)) {
    try {
      if (read_manifest(entry.path).step != entry.step) continue;
    } catch (const Error&) {
      continue;  // not known to be ours
    }
    if (++kept <= count || entry.step == also || is_link(entry.path)) continue;
    remove_whole(directory, entry);
  }
}

void set_aside(const std::string& directory, int64_t step, const std::string& run) {
  for (const Entry& entry : list(directory, Kind::kWhole)) {
    if (entry.step <= step && !is_of_other_run(entry, run)) continue;
    // Only the link of a linked checkpoint gets another name; nothing removes what it leads to.
    const std::string aside = rename_entry(directory, entry, kAsideMark);
    log(LogLevel::kInfo, "checkpoints: " + entry.path + " is now " + aside +
                             ", and will be removed after the next checkpoint");
  }
}

HeldCheckpoints held_checkpoints(const std::string& directory, int64_t step,
                                 const std::string& run) {
  HeldCheckpoints held;
  for (const Entry& entry : list(directory, Kind::kWhole)) {
    if (entry.step > step || is_of_other_run(entry, run)) {
      held.aside_bytes += bytes_below(entry.path);
    } else {
      ++held.kept;
    }
  }
  for (const Entry& entry : list(directory, Kind::kAside)) {
    held.aside_bytes += bytes_below(entry.path);
  }
  for (const Entry& entry : list(directory, Kind::kPartial)) {
    held.leftover_bytes += bytes_below(entry.path);
  }
  return held;
}

std::vector<std::string> collect_leftovers(const std::string& directory) {
  std::vector<std::string> paths;
  for (const Entry& entry : list(directory, Kind::kPartial)) {
    remove_checkpoint(entry.path);
    paths.push_back(entry.path);
  }
  return paths;
}

}  // namespace strata::checkpoint
