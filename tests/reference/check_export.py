#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that Transformers loads exported directories and computes the logits that we do from them.

    python3 tests/reference/check_export.py DIRECTORY...

Each directory holds an exported model and logits.json: tokens [rows][T] and our logits [positions][rows][V].
The export tests leave such directories in build/export, and the test Exports.TransformersComputesTheSameLogits
checks them all where it finds a Python. Exit code 1 when loading reports anything missing or
unexpected, or when logits differ by more than 1e-4 of the largest. Needs torch and transformers.
"""
import json
import pathlib
import sys

import torch
from transformers import AutoModelForCausalLM

TOLERANCE = 1e-4


def check(directory):
    model, info = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True,
                                                       attn_implementation="eager")
    problems = {key: sorted(map(str, value)) for key, value in info.items() if value}
    stored = json.loads((directory / "logits.json").read_text())
    with torch.no_grad():
        logits = model.to(torch.float64)(input_ids=torch.tensor(stored["tokens"])).logits
    found = torch.tensor(stored["logits"], dtype=torch.float64)
    wanted = logits[:, stored["positions"], :].transpose(0, 1)
    difference = float((found - wanted).abs().max() / wanted.abs().max())
    good = not problems and found.shape == wanted.shape and difference <= TOLERANCE
    print(f"{directory}: {model.config.architectures[0]}, {model.config.dtype}, logits differ by {difference:.1e} "
          f"of the largest{', loading reports ' + str(problems) if problems else ''}: {'ok' if good else 'FAILED'}")
    return good, difference


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    results = [check(pathlib.Path(argument)) for argument in sys.argv[1:]]
    largest = max(difference for _, difference in results)
    print(f"{len(results)} directories, logits differ by at most {largest:.1e}")
    sys.exit(0 if all(good for good, _ in results) else 1)


if __name__ == "__main__":
    main()
