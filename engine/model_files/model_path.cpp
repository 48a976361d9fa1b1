// SPDX-License-Identifier: Apache-2.0
#include "engine/model_files/model_path.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/shell_word.h"
#include "engine/model_files/file.h"

namespace strata::model {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHub = "huggingface.co/";

// Whether the name of a file in the directory has this ending.
bool has_file(const std::string& directory, std::string_view ending) {
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename().string().ends_with(ending)) return true;
  }
  return false;
}

bool is_word(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  };
  return !text.empty() && text.front() != '.' && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), fits);
}

// OWNER/NAME at the start of `text`, which follows the hub's address; empty when there is none.
std::string hub_id(std::string_view text) {
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return "";
  const std::string_view name = text.substr(slash + 1, text.find('/', slash + 1) - slash - 1);
  if (!is_word(text.substr(0, slash)) || !is_word(name)) return "";
  return std::string(text.substr(0, slash + 1)) + std::string(name);
}

std::string fetch_it(const std::string& id, std::string_view flag) {
  const std::string name = id.substr(id.find('/') + 1);
  return fmt::format("fetch it with \"hf download {} --local-dir {}\", and give {} {}", id, name,
                     flag, name);
}

void refuse_address(const std::string& path, std::string_view flag) {
  if (path.find("://") == std::string::npos && !path.starts_with(kHub)) return;
  const size_t hub = path.find(kHub);
  const std::string id = hub == std::string::npos ? "" : hub_id(path.substr(hub + kHub.size()));
  refuse_model(path, "it is an address, and nothing is downloaded (" +
                         (id.empty() ? "fetch the model, and give the directory that it is in"
                                     : fetch_it(id, flag)) +
                         ")");
}

void refuse_unreachable(const std::string& path) {
  if (access(path.c_str(), F_OK) == 0 || errno != EACCES) return;
  throw system_error(ErrorCode::kConfig, "cannot open model: " + path, EACCES,
                     "change the permissions of the directories that it is in");
}

[[noreturn]] void refuse_missing(const std::string& path, std::string_view flag) {
  const std::string id = hub_id(path);
  const bool may_be_name = !id.empty() && id == path && !is_there(path.substr(0, path.find('/')));
  refuse_model(path, may_be_name
                         ? "there is no such directory, and nothing is downloaded (if it is a "
                           "name on the Hugging Face hub, " +
                               fetch_it(id, flag) + ")"
                         : "there is no such directory (give a Hugging Face model directory)");
}

[[noreturn]] void refuse_file(const std::string& path) {
  if (path.ends_with(".gguf")) {
    refuse_model(path,
                 "GGUF files are not supported (give the Hugging Face directory with "
                 "safetensors files that it was made from)");
  }
  const bool of_model = path.ends_with(".safetensors") || path.ends_with("config.json");
  refuse_model(path,
               of_model ? "it is not a directory (give the one that it is in, with its config.json)"
                        : "it is not a directory (give a Hugging Face model directory)");
}

// A file that shows that a folder is not a model directory, and what the folder is instead.
struct Mark {
  std::string_view ending;
  const char* cause;
};

constexpr Mark kMarks[] = {
    {"adapter_config.json",
     "PEFT adapters are not supported (merge it into its model with PEFT's "
     "merge_and_unload() and save_pretrained(), and give that directory)"},
    {".gguf",
     "GGUF files are not supported (give the Hugging Face directory with safetensors "
     "files that it was made from)"},
    {"params.json",
     "it has the model in its publisher's own format (give the directory in Hugging Face's, with "
     "config.json and model.safetensors)"},
};

void refuse_marked(const std::string& path) {
  for (const Mark& mark : kMarks) {
    if (has_file(path, mark.ending)) refuse_model(path, mark.cause);
  }
}

// Refuses folders of this program and of the hub's that are not model directories.
void refuse_folder_of_ours(const std::string& path, std::string_view flag) {
  const std::string trimmed = path.substr(0, path.find_last_not_of('/') + 1);
  const std::string by = std::string(flag) + " ";
  if (is_there(path + "/run.json")) {
    if (is_there(path + "/model/config.json")) {
      refuse_model(path, "it is the directory of a run (give its model: " + by +
                             shell_word(trimmed + "/model") + ")");
    }
    refuse_model(
        path, has_file(path + "/checkpoints", "")
                  ? "it is the directory of a run that has not written its model yet (use its "
                    "newest checkpoint by --resume " +
                        shell_word(trimmed) + ", or give the model that it began with)"
                  : "it is the directory of a run that has no checkpoint yet (continue it: strata "
                    "train --resume " +
                        shell_word(trimmed) + "; or give the model that it began with)");
  }
  if (is_there(path + "/manifest.json")) {
    refuse_model(path, "it is a checkpoint (give the model that its run began with, and --resume " +
                           shell_word(trimmed) + ")");
  }
  if (is_there(path + "/snapshots")) {
    refuse_model(path, "it is a model's folder in the hub's cache (give " + by + trimmed +
                           "/snapshots/REVISION)");
  }
}

}  // namespace

void refuse_broken_links(const std::string& path) {
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    const fs::path target = fs::read_symlink(at->path(), ignored);
    if (ignored || fs::exists(at->path(), ignored)) continue;
    refuse_model(path,
                 fmt::format("{} is a link to {}, which is not there (fetch the file again, or "
                             "copy the model with the files that its links lead to: cp -rL)",
                             at->path().filename().string(), target.string()));
  }
}

void require_model_directory(const std::string& path, std::string_view flag) {
  refuse_address(path, flag);
  refuse_unreachable(path);
  if (!is_there(path)) refuse_missing(path, flag);
  std::error_code error;
  if (!fs::is_directory(path, error)) refuse_file(path);
  refuse_unreachable(path + "/config.json");
  if (is_there(path + "/config.json")) return;
  refuse_broken_links(path);
  refuse_folder_of_ours(path, flag);
  refuse_marked(path);
  refuse_model(path, "there is no config.json in it (give a Hugging Face model directory)");
}

void refuse_without_weights(const std::string& path) {
  if (is_there(path + "/pytorch_model.bin") || is_there(path + "/pytorch_model.bin.index.json")) {
    refuse_model(path,
                 "it has pytorch_model.bin only, which is never read (convert it to safetensors)");
  }
  refuse_marked(path);
  if (has_file(path, ".incomplete")) {
    refuse_model(path, "its download is incomplete (fetch the model again)");
  }
  if (has_file(path, ".safetensors")) {
    refuse_model(
        path,
        "its safetensors files have no model.safetensors.index.json (fetch that too, or name a "
        "single file model.safetensors)");
  }
  refuse_model(
      path,
      "there is neither model.safetensors nor model.safetensors.index.json in it (fetch the "
      "whole model)");
}

}  // namespace strata::model
