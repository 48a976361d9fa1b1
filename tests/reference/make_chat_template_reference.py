#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the references of tests/template, so that the C++ tests need no Python: what Transformers renders of
the chats of chat_cases.py with the templates of tests/data/template, and of the short templates of
template_expressions.py.

    pip install transformers==5.23.0 jinja2==3.1.6
    python tests/reference/make_chat_template_reference.py
"""
import json
import os
import re

import chat_cases
import template_expressions

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "template")


def hash_of(expected):
    """FNV-1a of 64 bits over the text and the ranges of generation blocks; "-" for a refusal."""
    if isinstance(expected, Exception):
        return "-"
    text, spans = expected
    value = 0xcbf29ce484222325
    for byte in text.encode() + b"".join(b"|%d,%d" % tuple(span) for span in spans):
        value = (value ^ byte) * 0x100000001b3 & 0xffffffffffffffff
    return f"{value:016x}"


def write_chats():
    """A chat a line, with what else the template gets; every chat is rendered without and with a prompt."""
    jobs = list(chat_cases.jobs())
    with open(os.path.join(OUT, "chats.jsonl"), "w", encoding="utf-8") as file:
        for job in jobs[::2]:
            kept = {name: value for name, value in job.items() if value is not None and name != "add_generation_prompt"}
            file.write(json.dumps(kept, ensure_ascii=False, separators=(",", ":")) + "\n")
    expected = {}
    for name in sorted(os.listdir(OUT)):
        if name.endswith(".jinja"):
            with open(os.path.join(OUT, name), encoding="utf-8", newline="") as file:
                template = file.read()
            expected[name] = " ".join(hash_of(chat_cases.render(template, job)) for job in jobs)
            print(name, sum(one != "-" for one in expected[name].split()), "of", len(jobs), "rendered")
    with open(os.path.join(OUT, "expected.json"), "w", encoding="utf-8") as file:
        json.dump(expected, file, indent=1)
        file.write("\n")


def write_expressions():
    """[template, text, blocks] or [template] where it is refused, a line each; the variables come first."""
    with open(os.path.join(OUT, "expressions.jsonl"), "w", encoding="utf-8") as file:
        file.write(json.dumps(template_expressions.VARIABLES) + "\n")
        refused = 0
        for template in template_expressions.templates():
            expected = chat_cases.render(template, {"messages": [], "tools": None, "documents": None,
                                                    "variables": template_expressions.VARIABLES,
                                                    "add_generation_prompt": False})
            # An address is no text that can be repeated.
            if not isinstance(expected, Exception) and re.search(r" at 0x|<class ", expected[0]):
                expected = ValueError("address")
            refused += isinstance(expected, Exception)
            row = [template] if isinstance(expected, Exception) else [template, *expected]
            file.write(json.dumps(row, ensure_ascii=True) + "\n")
    print(len(template_expressions.templates()), "short templates, of which", refused, "are refused")


if __name__ == "__main__":
    chat_cases.fix_date()
    os.makedirs(OUT, exist_ok=True)
    write_chats()
    write_expressions()
