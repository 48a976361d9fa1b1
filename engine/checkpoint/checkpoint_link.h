// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

// A symbolic link, such as RUN/best, that names one checkpoint of RUN/checkpoints.
namespace strata::checkpoint {

// The step of the checkpoint that the link names; nullopt when there is no link, or when its
// checkpoint is gone.
std::optional<int64_t> linked_step(const std::string& link);

// Makes the link name the checkpoint of a step, in one rename: it names the old one or the new one
// at any time. Throws Error (kIo).
void link_checkpoint(const std::string& link, const std::string& directory, int64_t step);

// Removes the link if its checkpoint is gone.
void remove_dangling(const std::string& link);

}  // namespace strata::checkpoint
