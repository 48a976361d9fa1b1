// SPDX-License-Identifier: Apache-2.0
#include "engine/train/resume_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "engine/base/blocking_call.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/option_table.h"
#include "engine/model_files/file.h"
#include "engine/plan/collectives.h"
#include "engine/train/run_plan.h"

namespace strata::train {
namespace {

using config::Json;

// They decide which samples a step sees, in which order and with which sums. The recipe and frozen
// parameters belong to the model's identity, which the reader of the checkpoint compares.
constexpr std::array<std::string_view, 15> kBreaking = {
    "micro_batch",     "accumulate",   "ranks",    "tensor_ranks", "context_ranks",
    "sequence_length", "shuffle",      "seed",     "samples",      "columns",
    "train_on",        "train_on_end", "as_chats", "bad_records",  "reduce_dtype"};

// Where things are, and what a new run in the same place is for. changed_model() compares models.
// Of shard_ranks it is the number of copies of the state that counts.
constexpr std::array<std::string_view, 18> kNotOfTheRun = {"out",
                                                           "config",
                                                           "deepspeed",
                                                           "resume",
                                                           "machine",
                                                           "data",
                                                           "eval_data",
                                                           "model",
                                                           "io",
                                                           "shard_ranks",
                                                           "trace_steps",
                                                           "trace_from",
                                                           "data_cache",
                                                           "collectives",
                                                           "pipeline_ranks",
                                                           "pipeline_chunks",
                                                           "pipeline_windows",
                                                           "pipeline_schedule"};

template <size_t N>
bool is_in(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string text_of(const Json& value, const std::string& name) {
  const config::OptionRow* row = config::find_option(name);
  const bool is_size = row != nullptr && row->type == config::OptionType::kSize;
  if (value.is_null()) return "not given";
  if (is_size && value.int64()) return format_bytes(*value.int64());
  if (const auto on = value.boolean()) return *on ? "on" : "off";
  return value.is_string() ? value.string() : value.dump();
}

std::string flag_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name == "groups" ? "[[group]]" : "--" + name;
}

std::string difference(const std::string& name, const Json& here, const char* whose,
                       const Json& other) {
  return fmt::format("{} {} ({}: {})", flag_of(name), text_of(here, name), whose,
                     text_of(other, name));
}

void compare(const std::string& name, const Json& saved, const Json& here, ResumeChanges& changes) {
  if (is_in(kNotOfTheRun, name) || saved.dump() == here.dump()) return;
  auto& list = is_in(kBreaking, name) ? changes.breaking : changes.allowed;
  list.push_back(difference(name, here, "checkpoint", saved));
}

bool are_one_directory(const Json& a, const Json& b) {
  std::error_code unknown;
  return a.is_string() && b.is_string() &&
         std::filesystem::equivalent(a.string(), b.string(), unknown);
}

// Machines have their own paths, memory and networks, and plans are compared.
bool may_differ_by_rank(const std::string& name) {
  if (name == "recipe") return false;
  const config::OptionRow* row = config::find_option(name);
  if (row == nullptr) return false;
  const auto is_beside = [&](const char* other) {
    return row->group == config::find_option(other)->group;
  };
  return config::is_path(*row) || is_beside("host-memory") || is_beside("ranks");
}

}  // namespace

int64_t number_in(const Json& options, const char* name, int64_t otherwise) {
  const Json* value = options.find(name);
  return value == nullptr ? otherwise : value->int64().value_or(otherwise);
}

namespace {

// Stages give the bits of one, so their number does not count.
int64_t ranks_of_stage(const Json& options) {
  const int64_t stages = std::max<int64_t>(1, number_in(options, "pipeline_ranks", 1));
  return number_in(options, "ranks", 1) / stages;
}

void compare_ranks(const Json& saved, const Json& here, ResumeChanges& changes) {
  const int64_t before = ranks_of_stage(saved), now = ranks_of_stage(here);
  if (before == now) return;
  const bool staged =
      number_in(saved, "pipeline_ranks", 1) * number_in(here, "pipeline_ranks", 1) > 1;
  changes.breaking.push_back(fmt::format("--ranks{} {} (checkpoint: {})",
                                         staged ? " / --pipeline-ranks" : "", now, before));
}

// The number of copies decides how gradients are summed. A checkpoint from before there could be
// several has one.
void compare_copies(const Json& saved, const config::Options& options, ResumeChanges& changes) {
  config::Options before;
  before.ranks = number_in(saved, "ranks", options.ranks);
  before.tensor_ranks = std::max<int64_t>(1, number_in(saved, "tensor_ranks", 1));
  before.pipeline_ranks = std::max<int64_t>(1, number_in(saved, "pipeline_ranks", 1));
  before.shard_ranks = number_in(saved, "shard_ranks", 0);
  if (before.copies() == options.copies()) return;
  const auto text = [](const config::Options& of) {
    return of.shard_ranks > 0 ? std::to_string(of.shard_ranks) : "not given";
  };
  changes.breaking.push_back(
      fmt::format("--shard-ranks {} (checkpoint: {})", text(options), text(before)));
}

std::string hash_text(uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

}  // namespace

Json about_data(const data::Dataset& data) {
  Json json = Json::object();
  json.set("tokens", data.token_count());
  json.set("samples", data.train().sample_count());
  json.set("hash", hash_text(data.train_fingerprint()));
  if (data.held_out_fingerprint() != 0)
    json.set("held_out_hash", hash_text(data.held_out_fingerprint()));
  return json;
}

Json about_run(const config::Options& options, const data::Dataset& data,
               const checkpoint::FrozenFingerprint& frozen, const plan::Mesh& mesh,
               const model::BatchShape& shape, const std::string& arithmetic) {
  Json about = Json::object();
  about.set("options", Json::parse(config::to_json(config::Command::kTrain, options), "options"));
  about.set("directory", std::filesystem::current_path().string());
  about.set("data", about_data(data));
  about.set("nested_ranks", int64_t{plan::nested_ranks(mesh)});
  about.set("arithmetic", arithmetic);
  if (mesh.context > 1) about.set("swaps_heads", int64_t{shape.swaps_heads});
  if (frozen.hash.empty()) return about;
  Json weights = Json::object();
  weights.set("hash", frozen.hash);
  weights.set("files", frozen.files);
  about.set("frozen_weights", weights);
  return about;
}

checkpoint::FrozenFingerprint frozen_of(const Json& about) {
  const Json* weights = about.find("frozen_weights");
  if (weights == nullptr || !weights->is_object()) return {};
  const auto text = [&](const char* name) {
    const Json* value = weights->find(name);
    return value != nullptr && value->is_string() ? value->string() : "";
  };
  return {.hash = text("hash"), .files = text("files")};
}

ResumeChanges changed_options(const Json& about, const config::Options& options) {
  ResumeChanges changes;
  const Json* saved = about.find("options");
  if (saved == nullptr || !saved->is_object()) return changes;
  const Json here = Json::parse(config::to_json(config::Command::kTrain, options), "options");
  const Json one(int64_t{1});
  for (const config::JsonMember& member : here.members()) {
    const Json* value = saved->find(member.name);
    // Checkpoints from before there were tensor or context ranks have one.
    const bool counts = member.name == "tensor_ranks" || member.name == "context_ranks";
    if (value == nullptr && counts) value = &one;
    if (value == nullptr) continue;
    if (member.name == "ranks") {
      compare_ranks(*saved, here, changes);
      continue;
    }
    compare(member.name, *value, member.value, changes);
  }
  compare_copies(*saved, options, changes);
  return changes;
}

void require_options_of(const std::string& first, const config::Options& options) {
  std::vector<std::string> unlike;
  const Json of_first = Json::parse(first, "options of rank 0");
  const Json here = Json::parse(config::to_json(config::Command::kTrain, options), "options");
  for (const config::JsonMember& member : here.members()) {
    const bool is_out = member.name == "out";  // the run is in one directory, that of rank 0
    if (!is_out && may_differ_by_rank(member.name)) continue;
    const Json* value = of_first.find(member.name);
    const Json other = value == nullptr ? Json() : *value;
    if (other.dump() == member.value.dump()) continue;
    if (is_out && are_one_directory(other, member.value)) continue;
    unlike.push_back(difference(member.name, member.value, "rank 0", other));
  }
  if (unlike.empty()) return;
  throw Error(ErrorCode::kConfig,
              fmt::format("options: they are not those of rank 0: {} (give all ranks the same)",
                          fmt::join(unlike, ", ")));
}

ResumeChanges changed_sums(const Json& about, const plan::Mesh& mesh,
                           const model::BatchShape& shape) {
  const auto text = [](int64_t ranks) {
    return ranks > 0 ? fmt::format("of machines of {} ranks", ranks) : "of single ranks";
  };
  const int64_t here = plan::nested_ranks(mesh);
  const int64_t saved = number_in(about, "nested_ranks", here);
  ResumeChanges changes;
  if (saved != here) {
    changes.breaking.push_back(fmt::format("sums {} (checkpoint: {})", text(here), text(saved)));
  }
  // Checkpoints from before there was a choice gathered keys. A new run has none.
  const bool is_new = about.find("options") == nullptr;
  const bool swapped = number_in(about, "swaps_heads", is_new ? shape.swaps_heads : 0) != 0;
  if (mesh.context > 1 && swapped != shape.swaps_heads) {
    const auto exchange = [](bool heads) { return heads ? "heads" : "keys"; };
    changes.breaking.push_back(fmt::format("context-exchange {} (checkpoint: {})",
                                           exchange(shape.swaps_heads), exchange(swapped)));
  }
  return changes;
}

ResumeChanges changed_arithmetic(const Json& about, const config::Options& options,
                                 const std::string& here) {
  const Json* saved = about.find("arithmetic");
  const Json* saved_options = about.find("options");
  if (saved == nullptr || saved_options == nullptr || saved->string() == here) return {};
  // Who gives another kind of device knows that it has other bits; changed_options() says so.
  const Json* before = saved_options->find("device");  // "cuda:1"; auto is the cpu
  std::string kind = before == nullptr || before->is_null() ? "auto" : before->string();
  kind = kind.substr(0, kind.find(':'));
  if (kind == "auto") kind = "cpu";
  if (kind != config::row_of(config::kind_of(options.device)).name) return {};
  return {{fmt::format("arithmetic of {} (checkpoint: of {})", here, saved->string())}, {}};
}

Json settled_options(Json options, const Json& of_checkpoint) {
  for (const std::string_view name : kBreaking) {
    if (const Json* saved = of_checkpoint.find(name)) options.set(std::string(name), *saved);
  }
  return options;
}

ResumeChanges changed_data(const Json& about, const data::Dataset& data) {
  ResumeChanges changes;
  const Json* saved = about.find("data");
  if (saved == nullptr || !saved->is_object()) return changes;
  const Json here = about_data(data);
  const auto differs = [&](const char* name) {
    const Json* value = saved->find(name);
    return value != nullptr && value->dump() != here.find(name)->dump();
  };
  const Json* held_out = saved->find("held_out_hash");
  // An older checkpoint has one hash of all that is trained on and held out.
  const auto is_of_all = [&] {
    return held_out == nullptr &&
           saved->find("hash")->dump() == Json(hash_text(data.fingerprint())).dump();
  };
  const auto number = [&](const char* name) {
    return fmt::format("{} (checkpoint: {})", here.find(name)->dump(), saved->find(name)->dump());
  };
  if (differs("tokens")) {
    changes.breaking.push_back("--data has another number of tokens, " + number("tokens"));
  } else if (differs("hash") && !is_of_all()) {
    changes.breaking.push_back("--data has other tokens, hash " + number("hash"));
  } else if (differs("samples")) {
    changes.breaking.push_back("another number of samples is left to train on, " +
                               number("samples") +
                               ", because --eval-every, --eval-fraction or --eval-data hold out "
                               "others");
  } else if (held_out != nullptr && here.find("held_out_hash") != nullptr &&
             differs("held_out_hash")) {
    changes.breaking.push_back("--eval-data has other tokens, hash " + number("held_out_hash"));
  }
  return changes;
}

namespace {

// Whether two files begin with the same bytes and are of one size, or neither is there.
bool are_alike(const std::filesystem::path& one, const std::filesystem::path& other) {
  constexpr int64_t kCompared = kMiB;
  std::error_code none;  // the sizes are then equal
  if (std::filesystem::file_size(one, none) != std::filesystem::file_size(other, none))
    return false;
  std::ifstream a(one, std::ios::binary);
  std::ifstream b(other, std::ios::binary);
  std::istreambuf_iterator<char> at(a), of_other(b);
  const std::istreambuf_iterator<char> end;
  for (int64_t i = 0; i < kCompared && at != end && of_other != end; ++i, ++at, ++of_other) {
    if (*at != *of_other) return false;
  }
  return true;
}

// A file of a model that another model has not, or has another of; empty when there is none.
std::string other_file(const std::string& model, const std::string& other) {
  const BlockingCall call("read", model);
  std::vector<std::string> files = {"config.json", "tokenizer.json", "tokenizer.model"};
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(model, ignored)) {
    const std::filesystem::path file = entry.path();
    if (file.extension() == ".safetensors") files.push_back(file.filename().string());
  }
  const std::filesystem::path one = model;
  const auto found = std::ranges::find_if_not(files, [&](const std::string& file) {
    return are_alike(one / file, other / std::filesystem::path(file));
  });
  return found == files.end() ? "" : *found;
}

}  // namespace

ResumeChanges changed_model(const Json& about, const checkpoint::FrozenFingerprint& here,
                            const std::string& path) {
  ResumeChanges changes;
  const std::string saved = frozen_of(about).hash;
  if (!saved.empty() && here.hash != saved) {
    changes.breaking.push_back(
        fmt::format("--model {} has other frozen weights, hash {} (checkpoint: {})", path,
                    here.hash.empty() ? "none" : here.hash, saved));
    return changes;
  }
  const Json* options = about.find("options");
  const Json* named = options == nullptr ? nullptr : options->find("model");
  if (named == nullptr || !named->is_string()) return changes;
  // A model that is gone from its place may have been moved to this one.
  if (!model::is_there(named->string())) return changes;
  const std::string file = other_file(path, named->string());
  if (!file.empty()) {
    changes.breaking.push_back(
        fmt::format("--model {} has another {} (checkpoint: {})", path, file, named->string()));
  }
  return changes;
}

model::ModelSpec spec_of_checkpoint(const checkpoint::CheckpointManifest& manifest,
                                    const model::ModelDirectory& model,
                                    const std::string& checkpoint) {
  model::ModelSpec spec = model.spec();
  const Json* saved = manifest.trainer.find("options");
  if (saved == nullptr) return spec;
  apply_groups(spec, config::options_from_json(config::Command::kTrain, saved->dump()));
  const checkpoint::FrozenFingerprint here =
      checkpoint::frozen_fingerprint(model, spec, frozen_of(manifest.trainer));
  const ResumeChanges changes = changed_model(manifest.trainer, here, model.path());
  if (changes.breaking.empty()) return spec;
  throw Error(ErrorCode::kConfig, fmt::format("resume: {}: {} (give the model that it was trained "
                                              "from)",
                                              checkpoint, changes.breaking.front()));
}

}  // namespace strata::train
