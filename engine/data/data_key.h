// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace strata::data {

// A digest of what identifies files of data, in their order: for each its path, size, times of
// change, and a checksum of its first and last 64 KiB and of 64 blocks of 4 KiB between them. A
// file that changes elsewhere while its size and both times stay the same is taken for the same
// file: a program may set the modification time, but not the time of the last change of the inode.
// Throws Error when a file cannot be read.
std::string key_of_files(const std::vector<std::string>& paths);

// A checksum of the files of a model directory that can decide how text becomes tokens: all small
// files named .json, .jinja, .model or .txt, and those of additional_chat_templates.
std::string key_of_tokenizer(const std::string& model_directory);

// 32 hexadecimal digits.
std::string digest_of(const std::string& text);

}  // namespace strata::data
