// SPDX-License-Identifier: Apache-2.0
#include "engine/train/plan_purposes.h"

namespace strata::train {
namespace {

constexpr std::string_view kWeightsWhy = "the weights that forward and backward use";
constexpr std::string_view kStateWhy =
    "Adam's two moments, and the bits that make the weights exact fp32";
constexpr std::string_view kGradientsWhy = "sums of gradients, until the update has used them";
constexpr std::string_view kInputsWhy =
    "the inputs of all blocks, for all sequences of a step, from which the backward computes the "
    "rest "
    "again";
constexpr std::string_view kKeptWhy =
    "what the forward computed, kept so that the backward need not compute it again";

constexpr PurposeText kPurposes[] = {
    {"weights", "weights", kWeightsWhy},
    {"weights, resident", "weights", kWeightsWhy},
    {"weights, copied", "copies of weights",
     "weights that lie in another memory, kept here too so that they need not come each time"},
    {"weights ring", "buffer for weights", "weights on their way to and from this memory"},
    {"optimizer state", "optimizer state", kStateWhy},
    {"optimizer state, resident", "optimizer state", kStateWhy},
    {"optimizer state ring", "buffer for optimizer state",
     "optimizer state on its way to and from this memory"},
    {"other sides", "second places for state",
     "an update writes new state beside the old one; then the two places change roles"},
    {"gradients, held", "gradients", kGradientsWhy},
    {"gradients, spilled", "gradients", kGradientsWhy},
    {"gradients, summed", "gradients", kGradientsWhy},
    {"gradient of the tied matrix", "gradient of the embedding",
     "the embedding is also the head, so its gradient has two parts"},
    {"gradient ring", "buffer for gradients", "gradients on their way to and from this memory"},
    {"activation checkpoints", "inputs of blocks", kInputsWhy},
    {"activation checkpoints, spilled", "inputs of blocks", kInputsWhy},
    {"activation ring", "buffer for inputs of blocks",
     "inputs of blocks on their way to and from this memory"},
    {"activations, kept", "kept activations", kKeptWhy},
    {"interiors, kept", "kept activations", kKeptWhy},
    {"activations", "activations", "outputs of the block in work"},
    {"activations across streams", "activations", "outputs that several later blocks read"},
    {"interiors", "inside of the block in work", "values between the operations of one block"},
    {"activation gradients", "gradients of activations",
     "what the backward passes from block to block"},
    {"workspace", "workspace", "scratch memory of the operations"},
    {"inputs and results", "inputs and results", "tokens, targets and losses of a step"},
    {"position tables", "position tables", "cosines and sines of rotary positions"},
    {"norm partials", "parts of the gradient norm", "sums of squares that clipping needs"},
    {"decision", "decision about the update", "whether the gradients are finite, and their norm"},
};

}  // namespace

PurposeText purpose_text(std::string_view purpose) {
  for (const PurposeText& text : kPurposes) {
    if (text.purpose == purpose) return text;
  }
  return {purpose, purpose, ""};
}

}  // namespace strata::train
