#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders the chats of chat_cases.py with every template of a folder, by Transformers and by Strata, and prints
where the texts, the generation blocks or the refusals differ. Needs jinja2 3.1.6 and transformers 5.23.0.

    cmake --build build --target render_chats
    python tests/reference/compare_chat_templates.py build/tests/template/render_chats FOLDER
"""
import argparse
import json
import os
import subprocess
import tempfile

import chat_cases


def shown(text, at):
    return repr(text[max(0, at - 40):at + 40])


def difference(expected, got, template):
    if isinstance(expected, Exception):
        return None if "error" in got else f"Transformers fails ({expected!r:.150}), we do not"
    text, spans = expected
    if "error" in got:
        return f"we fail: {got['error']}"
    if got["text"] != text:
        at = next((k for k, (a, b) in enumerate(zip(text, got["text"])) if a != b), min(len(text), len(got["text"])))
        return f"at {at}: expected {shown(text, at)}, got {shown(got['text'], at)}"
    if "generation" in template and not got["has_lost_blocks"] and got["generated"] != spans:
        return f"blocks: expected {spans}, got {got['generated']}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--shown", type=int, default=3, help="differences to print for each template")
    arguments = parser.parse_args()
    chat_cases.fix_date()
    jobs = list(chat_cases.jobs())
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", delete=False) as file:
        for job in jobs:
            file.write(json.dumps(job) + "\n")
    templates = agreeing = renderings = alike = refused = 0
    for name in sorted(os.listdir(arguments.folder)):
        path = os.path.join(arguments.folder, name)
        with open(path, encoding="utf-8", newline="") as source:
            template = source.read()
        run = subprocess.run([arguments.program, path, file.name], capture_output=True, text=True)
        if run.returncode != 0:
            print(f"{name}: {arguments.program} ends with {run.returncode}: {run.stderr}")
        rendered = [json.loads(line) for line in run.stdout.split("\n") if line]
        found = []
        for number, (job, got) in enumerate(zip(jobs, rendered)):
            expected = chat_cases.render(template, job)
            refused += isinstance(expected, Exception)
            cause = difference(expected, got, template)
            if cause:
                found.append(f"  chat {number}: {cause}")
        templates += 1
        renderings += len(jobs)
        alike += len(rendered) - len(found)
        agreeing += not found and len(rendered) == len(jobs)
        if found:
            print(f"{name}: {len(found)} of {len(jobs)} differ")
            print("\n".join(found[:arguments.shown]))
    os.unlink(file.name)
    print(f"{agreeing} of {templates} templates agree; {alike} of {renderings} renderings are alike, "
          f"of which {refused} are refused by Transformers")
    return 0 if alike == renderings else 1


if __name__ == "__main__":
    raise SystemExit(main())
