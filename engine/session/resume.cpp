// SPDX-License-Identifier: Apache-2.0
#include "engine/session/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/shell_word.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_reader.h"
#include "engine/checkpoint/model_source.h"
#include "engine/config/option_table.h"
#include "engine/model_files/file.h"
#include "engine/train/run_plan.h"

namespace strata::session {
namespace {

namespace fs = std::filesystem;
using config::Json;

std::string hex(uint64_t nonce) {
  return fmt::format("{:016x}", nonce);
}

std::string text_of(const Json* object, const char* name) {
  const Json* value = object == nullptr ? nullptr : object->find(name);
  return value != nullptr && value->is_string() ? value->string() : "";
}

// Whether the option has paths, which count from the directory where the run was started.
bool has_paths(std::string_view name) {
  const config::OptionRow* row = config::find_option(name);
  return row != nullptr && (config::is_path(*row) || name == "chat_template");
}

// Whether both are there and the same.
bool are_one(const std::string& path, const std::string& other) {
  const BlockingCall call("look at", path);
  std::error_code unequal;
  return fs::equivalent(path, other, unequal);
}

// The path as it is from here: one that is not there is kept. A share of --data stands behind it.
// "off", and the names of chat templates, are no paths.
std::string path_from_here(std::string_view option, const std::string& text,
                           const std::string& directory) {
  if (text == "off" || (option == "chat_template" && !text.ends_with(".jinja"))) return text;
  const std::string path = (fs::path(directory) / text).string();
  const BlockingCall call("look for", path);
  std::error_code missing;
  const bool is_there =
      fs::exists(path, missing) || fs::exists(path.substr(0, path.rfind(':')), missing);
  return is_there ? fs::path(path).lexically_normal().string() : text;
}

// What a run or a checkpoint says of itself, with the paths of its options as they are from here,
// where the run may have been started in another directory.
Json with_paths_from_here(Json about) {
  const std::string directory = text_of(&about, "directory");
  const Json* found = about.find("options");
  if (directory.empty() || found == nullptr || !found->is_object()) return about;
  if (are_one(directory, fs::current_path().string())) return about;
  Json options = *found;
  for (config::JsonMember& member : options.members()) {
    if (!has_paths(member.name)) continue;
    if (member.value.is_string()) {
      member.value = Json(path_from_here(member.name, member.value.string(), directory));
    } else if (member.value.is_array()) {
      for (Json& item : member.value.items()) {
        if (item.is_string()) item = Json(path_from_here(member.name, item.string(), directory));
      }
    }
  }
  about.set("options", std::move(options));
  return about;
}

// The parts of run.json that identify its run.
struct RunRecord {
  std::optional<std::string> run;  // nullopt: there is no run.json
  std::string from;                // a checkpoint of another run
  std::string from_nonce;          // of that checkpoint
};

RunRecord record_of(const std::optional<train::RunDirectory>& directory) {
  const std::optional<Json> json = directory ? directory->read_run() : std::nullopt;
  if (!json) return {};
  const Json* from = json->find("from");
  return {text_of(&*json, "run"), text_of(from, "checkpoint"), text_of(from, "nonce")};
}

Resumed new_run(const std::string& checkpoint) {
  return {.path = checkpoint, .run = hex(checkpoint::random_nonce())};
}

Resumed resume_named(const std::string& path, const std::optional<train::RunDirectory>& directory) {
  const std::string run = checkpoint::read_manifest(path).run;
  const bool is_here = directory && are_one(path + "/..", directory->checkpoints());
  // Without a nonce, only its place shows that a checkpoint belongs to the run.
  const bool may_be_own = directory && (is_here || !run.empty());
  if (!may_be_own || record_of(directory).run.value_or(run) != run) return new_run(path);
  return {.path = path, .run = run, .is_new = false, .is_own = is_here};
}

// Resumes a run that began with a checkpoint of another run and has none of its own yet.
Resumed resume_begin(const RunRecord& record, const std::string& out) {
  std::string cause = "another checkpoint is there now";
  try {
    if (hex(checkpoint::read_manifest(record.from).nonce) == record.from_nonce) {
      return {.path = record.from, .run = *record.run, .is_new = false};
    }
  } catch (const Error& error) {
    cause = error.what();
  }
  throw Error(ErrorCode::kConfig,
              fmt::format("resume: {}: it has no checkpoint yet, and {}, which it began with, "
                          "cannot be used: {} (restore it, or name a checkpoint)",
                          out, record.from, cause));
}

Resumed resume_newest(const std::string& out, const std::optional<train::RunDirectory>& directory) {
  const RunRecord record = record_of(directory);
  checkpoint::FoundCheckpoint found;
  if (directory) {
    found = checkpoint::find_checkpoint(directory->checkpoints(),
                                        checkpoint::CheckpointCheck::kBlocks, record.run);
  }
  for (const checkpoint::SkippedCheckpoint& skipped : found.skipped) {
    log(LogLevel::kWarning,
        fmt::format("resume: {} is skipped{}: {}", skipped.path,
                    found.path.empty() ? "" : ", resuming from " + found.path, skipped.reason));
  }
  if (!found.path.empty()) {
    return {.path = found.path,
            .run = checkpoint::read_manifest(found.path).run,
            .is_new = false,
            .is_own = true,
            .passes_over = !found.skipped.empty()};
  }
  if (!found.skipped.empty()) {
    throw Error(ErrorCode::kCorrupt, "resume: " + out +
                                         ": no checkpoint can be used (add --force "
                                         "instead of --resume to start over)");
  }
  if (!record.from.empty()) return resume_begin(record, out);
  std::error_code missing;
  if (directory && !fs::is_empty(directory->model(), missing) && !missing) {
    throw Error(
        ErrorCode::kConfig,
        fmt::format("resume: {}: it has no checkpoint, only {}, the model that it trained "
                    "(restore its checkpoints, or add --force instead of --resume to delete "
                    "that model and start over)",
                    out, directory->model()));
  }
  log(LogLevel::kInfo, "resume: " + out + " has no checkpoint yet; starting from the model");
  return new_run("");
}

// Reads what a checkpoint says about its run. Throws Error when it is not a checkpoint of this
// model.
void read_about(const model::ModelDirectory& model, const config::Options& options,
                Resumed& resumed) {
  model::ModelSpec spec = model.spec();
  train::apply_groups(spec, options);
  checkpoint::ModelSource frozen(model, spec);
  const checkpoint::CheckpointReader reader(resumed.path, spec, options.recipe, frozen);
  resumed.step = reader.manifest().step;
  resumed.about = with_paths_from_here(reader.manifest().trainer);
  resumed.frozen = checkpoint::frozen_fingerprint(model, spec, train::frozen_of(resumed.about));
}

// Refuses to resume when the run directory has checkpoints that the run would set aside: those of
// later steps, or of another run.
void refuse_left_behind(const config::Options& options, const train::RunDirectory& directory,
                        const Resumed& resumed) {
  const checkpoint::FoundCheckpoint newest =
      checkpoint::find_checkpoint(directory.checkpoints(), checkpoint::CheckpointCheck::kManifest);
  if (resumed.is_new ? newest.path.empty() : newest.step <= resumed.step) return;
  const std::string of = resumed.is_new ? "another run" : fmt::format("step {}", resumed.step);
  throw Error(ErrorCode::kConfig,
              fmt::format("resume: {} is of {}, but {} {} step {} (add --force to delete the {} "
                          "checkpoints, or choose another --out)",
                          options.resume_checkpoint, of, directory.path(),
                          resumed.is_new ? "has checkpoints up to" : "goes up to", newest.step,
                          resumed.is_new ? "other" : "later"));
}

// A run that was to end earlier than it did is a mistake, and would be noted as its end.
void require_steps_ahead(const config::Options& options, const Resumed& resumed) {
  if (options.steps == 0 || options.steps >= resumed.step || options.force) return;
  throw Error(
      ErrorCode::kUsage,
      fmt::format("resume: {}: --steps {} is fewer than the {} that are done (give more, or "
                  "leave it out to go on to the run's own end)",
                  resumed.path, options.steps, resumed.step));
}

// The run that a checkpoint named RUN/checkpoints/step-000123 or RUN/best is of; empty if it is not
// in a run.
std::string run_around(const std::string& checkpoint) {
  fs::path folder = fs::path(checkpoint).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // it had a slash at its end
  folder = folder.parent_path();
  if (folder.filename() == train::kCheckpointsFolder) folder = folder.parent_path();
  const std::string run = folder.empty() ? "." : folder.string();
  return train::RunDirectory::is_run(run) ? run : "";
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

// What the run or the checkpoint that is resumed says of itself.
struct Written {
  config::Json about;
  std::string source;   // a path, for messages
  std::string run;      // its directory
  bool is_run = false;  // from run.json, else from a manifest

  const Json* options() const { return about.find("options"); }
};

// Nothing without --resume, or where --out has no run yet. Throws Error when it cannot be read.
std::optional<Written> written_of(const config::Options& given) {
  if (!given.resume) return std::nullopt;
  const std::string& named = given.resume_checkpoint;
  const bool is_run = named.empty() || train::RunDirectory::is_run(named);
  const std::string& from = named.empty() ? given.out : named;
  if (named.empty() && !train::RunDirectory::is_run(from)) return std::nullopt;
  const std::string source = from + (is_run ? "/run.json" : "/manifest.json");
  return Written{.about = with_paths_from_here(is_run ? Json::read_file(source)
                                                      : checkpoint::read_manifest(named).trainer),
                 .source = source,
                 .run = is_run ? from : run_around(named),
                 .is_run = is_run};
}

// The options in the newest checkpoint of a run; an empty object where there is none yet, or none
// that can be read, which is reported when it is opened.
Json newest_options(const Written& written) {
  try {
    const std::string nonce = text_of(&written.about, "run");
    const std::string path =
        checkpoint::find_checkpoint(written.run + "/" + train::kCheckpointsFolder,
                                    checkpoint::CheckpointCheck::kManifest,
                                    nonce.empty() ? std::nullopt : std::optional(nonce))
            .path;
    if (path.empty()) return Json::object();
    const Json trainer = checkpoint::read_manifest(path).trainer;
    const Json* options = trainer.find("options");
    return options == nullptr ? Json::object() : *options;
  } catch (const Error&) {
    return Json::object();
  }
}

// The options of the next steps, which resumed the run last; `written` has options.
Json options_in(const Written& written) {
  Json options = *written.options();
  if (written.is_run) options = train::settled_options(options, newest_options(written));
  // Runs from before there was a choice made a stream of all records, and say one chunk without
  // stages too.
  if (options.find("samples") == nullptr) options.set("samples", "stream");
  const Json* ranks = options.find("pipeline_ranks");
  if (ranks == nullptr || ranks->int64() == 1) {
    std::erase_if(options.members(),
                  [](const config::JsonMember& each) { return each.name == "pipeline_chunks"; });
  }
  return options;
}

// Whether a command is about the data of the run.
bool is_data_of(const Json& of_run, const config::Options& given) {
  const Json* data = of_run.find("data");
  if (data == nullptr || !data->is_array()) return given.data.empty();
  return std::ranges::equal(
      data->items(), given.data, [](const Json& one, const std::string& other) {
        std::error_code ignored;
        return one.is_string() &&
               (one.string() == other || fs::equivalent(one.string(), other, ignored));
      });
}

}  // namespace

config::RunOptions options_of_run(const config::Options& given) {
  try {
    const std::optional<Written> written = written_of(given);
    if (!written) return {};
    if (written->options() == nullptr) return {"", written->source, written->run};
    return {options_in(*written).dump(), written->source, written->run};
  } catch (const Error&) {
    if (given.model.empty() || given.data.empty() || given.out.empty()) throw;
    return {};
  }
}

config::RunOptions model_of_run(config::Command command, const config::Options& given) {
  if (given.resume_checkpoint.empty()) return {};
  std::optional<Written> written;
  try {
    written = written_of(given);
  } catch (const Error&) {
    if (given.model.empty()) throw;  // else it is reported later, with other mistakes
  }
  if (!written || written->options() == nullptr) return {};
  const Json options = options_in(*written);
  std::vector<const char*> names = {"model", "recipe"};
  if (command != config::Command::kGenerate || given.chat) {
    names.insert(names.end(), {"chat_template", "chat_date"});
  }
  if (given.is_given("eval-fraction") && is_data_of(options, given)) {  // what the run holds out
    names.insert(names.end(), {"samples", "sequence_length", "columns", "train_on", "train_on_end",
                               "as_chats", "bad_records"});
  }
  Json of_model = Json::object();
  for (const char* name : names) {
    const Json* value = options.find(name);
    if (value != nullptr && takes(*config::find_option(name), command)) of_model.set(name, *value);
  }
  return {of_model.dump(), written->source};
}

config::Options with_checkpoint(config::Options options) {
  std::string& named = options.resume_checkpoint;
  if (named.empty() || !train::RunDirectory::is_run(named)) return options;
  const checkpoint::FoundCheckpoint found = checkpoint::find_checkpoint(
      named + "/" + train::kCheckpointsFolder, checkpoint::CheckpointCheck::kManifest);
  for (const checkpoint::SkippedCheckpoint& skipped : found.skipped) {
    log(LogLevel::kWarning, fmt::format("resume: {} is skipped: {}", skipped.path, skipped.reason));
  }
  if (found.path.empty()) {
    const std::string model = named + "/model";
    throw Error(ErrorCode::kConfig,
                fmt::format("resume: {}: {} ({})", named,
                            found.skipped.empty() ? "the run has no checkpoint yet"
                                                  : "no checkpoint of the run can be used",
                            model::is_there(model)
                                ? "give the model that it has written: --model " + shell_word(model)
                                : "continue it: strata train --resume " + shell_word(named)));
  }
  named = found.path;
  return options;
}

config::Options with_run(config::Options options) {
  if (are_one(options.resume_checkpoint, options.out)) options.resume_checkpoint.clear();
  return with_checkpoint(std::move(options));
}

void check_changes(const train::ResumeChanges& changes, const std::string& checkpoint,
                   const config::Options& options) {
  const std::string breaking = joined(changes.breaking);
  if (!breaking.empty() && !options.force) {
    throw Error(ErrorCode::kUsage,
                fmt::format("resume: {}: resuming with these options would not continue the same "
                            "run: {} (give what the checkpoint was made with, or add --force to "
                            "use the new values)",
                            checkpoint, breaking));
  }
  if (!breaking.empty())
    log(LogLevel::kWarning, "resume: this does not continue the same run: " + breaking);
}

void log_changes(const Resumed& resumed) {
  if (resumed.changes.empty()) return;
  log(LogLevel::kInfo, "resume: from here on " + resumed.changes);
}

Resumed find_resumed(const config::Options& options,
                     const std::optional<train::RunDirectory>& directory,
                     const model::ModelDirectory& model) {
  if (!options.resume) return new_run("");
  const bool is_named = !options.resume_checkpoint.empty();
  Resumed resumed = is_named ? resume_named(options.resume_checkpoint, directory)
                             : resume_newest(options.out, directory);
  if (resumed.path.empty()) return resumed;
  read_about(model, options, resumed);
  require_steps_ahead(options, resumed);
  train::ResumeChanges changes = train::changed_options(resumed.about, options);
  for (std::string& change :
       train::changed_model(resumed.about, resumed.frozen, model.path()).breaking) {
    changes.breaking.push_back(std::move(change));
  }
  check_changes(changes, resumed.path, options);
  resumed.changes = joined(changes.allowed);
  // Without a name, the newest usable checkpoint is taken, so later ones are damaged.
  if (directory && is_named && !options.force) refuse_left_behind(options, *directory, resumed);
  return resumed;
}

void require_no_run(const std::string& directory, int64_t step) {
  const auto refuse = [](const std::string& path, const std::string& cause) {
    throw Error(ErrorCode::kConfig, "save: " + path + ": " + cause + " (choose another directory)");
  };
  if (train::RunDirectory::is_folder_of_run(directory)) {
    refuse(directory, "it belongs to a run, which removes other files there");
  }
  const std::string path = checkpoint::checkpoint_path(directory, step);
  if (!model::is_there(path)) return;
  std::string cause = "it is a checkpoint of a run";
  try {
    const checkpoint::CheckpointManifest manifest = checkpoint::read_manifest(path);
    if (manifest.run.empty() && manifest.trainer.members().empty()) return;  // of an earlier save
  } catch (const Error& error) {
    cause = std::string("it exists and is not a whole checkpoint: ") + error.what();
  }
  refuse(path, cause);
}

void add_to_run(const Resumed& resumed, Json& run) {
  if (!resumed.run.empty()) run.set("run", resumed.run);
  if (resumed.path.empty() || resumed.is_own) return;
  Json from = Json::object();
  from.set("checkpoint", fs::canonical(resumed.path).string());
  from.set("nonce", hex(checkpoint::read_manifest(resumed.path).nonce));
  run.set("from", std::move(from));
}

}  // namespace strata::session
