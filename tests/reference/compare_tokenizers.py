#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `strata tokenize` with the `tokenizers` library, and tokenizer.model with `sentencepiece`, on random
strings; or measures both on one thread.

    python tests/reference/compare_tokenizers.py --strata build/bindings/cli/strata --text bible.txt --text code.py \\
        [--strings 125000] [--kind bert]... [--speed ROUNDS]

Tokenizers of eight kinds are trained on the texts. A string is random Unicode, characters that combine, code, prose, control characters, added
tokens side by side, or very long words. Those that differ and have characters newer than this Python's Unicode are counted
apart: the libraries know other versions of Unicode. --speed gives the medians of alternating rounds, in processor seconds.
"""
import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import unicodedata

import make_tokenizer_reference as reference

os.environ["TOKENIZERS_PARALLELISM"] = "false"
KINDS = ["gpt2", "llama2", "llama3", "qwen2", "gemma", "gemma_words", "metaspace_first", "t5", "unigram_bytes", "bert", "bert_cased"]
TRAINERS = ["BpeTrainer", "UnigramTrainer", "WordPieceTrainer"]
VOCABULARY = 8000
TRAINED_ON = 1_000_000  # characters of each text
MODELS = ["bpe_bytes", "bpe_symbols", "unigram", "unigram_bytes"]


def unicode_string(rng, tokens):
    planes = [(0x20, 0x7F), (0x80, 0x2FF), (0x300, 0x36F), (0x370, 0x1FFF), (0x2000, 0x2FFF), (0x3000, 0xD7FF),
              (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x10FFFF)]
    return "".join(chr(rng.randint(*rng.choice(planes))) for _ in range(rng.randint(1, 40)))


def control_string(rng, tokens):
    pool = [chr(c) for c in range(33)] + ["\x7f", "\x85", "\xa0", "\u200b", "\u2028", "\u3000", "\ufeff", "\ufffd", "a", "B", "é", "▁"]
    return "".join(rng.choice(pool) for _ in range(rng.randint(1, 40)))


COMPOSED = [chr(c) for c in range(0x110000) if unicodedata.combining(chr(c)) or unicodedata.decomposition(chr(c))]


def composed_string(rng, tokens):
    return "".join(rng.choice(COMPOSED) if rng.random() < 0.8 else rng.choice("aeoAE가ᄀ한") for _ in range(rng.randint(1, 24)))


def token_string(rng, tokens):
    return "".join(rng.choice(tokens + [" ", "a", "  ", "_", "é", "<", "|"]) for _ in range(rng.randint(1, 16)))


def long_word(rng, tokens):
    unit = "".join(chr(rng.choice([rng.randint(97, 122), rng.randint(0xC0, 0x24F), rng.randint(0x4E00, 0x9FFF)]))
                   for _ in range(rng.randint(1, 6)))
    return unit * rng.randint(20, 120)


def strings(texts, tokens, count, seed):
    rng = random.Random(seed)

    def prose(rng, tokens):
        text = rng.choice(texts)
        at = rng.randrange(len(text))
        return text[at:at + rng.randint(1, 300)]

    def mixed(rng, tokens):
        return "".join(rng.choice(kinds[:-1])(rng, tokens)[:20] for _ in range(3))

    kinds = [unicode_string, composed_string, control_string, token_string, prose, prose, long_word, mixed]
    return [kinds[k % len(kinds)](rng, tokens) for k in range(count)]


def run_strata(program, model, path, *options):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([program, "tokenize", "--model", model, "--data", path, *options], check=True, stdout=subprocess.PIPE)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done.stdout.decode(), after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def write_records(path, texts):
    with open(path, "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")


def compare(name, program, folder, encode, tokens, texts, arguments):
    path = os.path.join(folder, "texts.jsonl")
    unequal, newer, first, done = 0, 0, None, 0
    while done < arguments.strings:  # in parts that fit into memory
        some = strings(texts, tokens, min(25000, arguments.strings - done), f"{name} {done}")
        write_records(path, some)
        lines = run_strata(program, folder, path, "--special", "off")[0].split("\n")
        for text, line, ids in zip(some, lines, encode(some), strict=False):
            if line == " ".join(map(str, ids)):
                continue
            if any(unicodedata.category(character) == "Cn" for character in text):
                newer += 1
                continue
            unequal += 1
            first = first or (text, line, ids)
        done += len(some)
    print(f"{name}: of {done} {unequal} unequal, and {newer} that have characters which Unicode "
          f"{unicodedata.unidata_version} lacks", flush=True)
    if first:
        print(f"  {json.dumps(first[0])}\n  strata    {first[1]}\n  reference {' '.join(map(str, first[2]))}", flush=True)
    return unequal


def measure(name, program, folder, encode, texts, rounds):
    path, empty = os.path.join(folder, "texts.jsonl"), os.path.join(folder, "empty.jsonl")
    write_records(empty, ["a"])
    for label, text in texts.items():
        records = [text[at:at + 4000] for at in range(0, len(text), 4000)]
        write_records(path, records)
        size = len(text.encode())
        ours, theirs = [], []
        for _ in range(rounds):
            ours.append(run_strata(program, folder, path, "--count")[1] - run_strata(program, folder, empty, "--count")[1])
            start = time.process_time()
            encode(records)
            theirs.append(time.process_time() - start)
        a, b = statistics.median(ours), statistics.median(theirs)
        print(f"{name} {label}: strata {size / a / 1e6:.1f} MB/s, reference {size / b / 1e6:.1f} MB/s, "
              f"{b / a:.2f} times (of {rounds} rounds)", flush=True)


def trained(name, texts):
    """A tokenizer of the kind, as reference.KINDS makes them, but with a larger vocabulary."""
    reference.CORPUS = [line for text in texts for line in text[:TRAINED_ON].splitlines()]
    originals = {trainer: getattr(reference.trainers, trainer) for trainer in TRAINERS}

    def larger(original):
        def make(**options):
            options["vocab_size"] = VOCABULARY
            options.pop("limit_alphabet", None)
            return original(**options)
        return make
    try:
        for trainer, original in originals.items():
            setattr(reference.trainers, trainer, larger(original))
        return reference.gemma(words=True) if name == "gemma_words" else reference.KINDS[name]()
    finally:
        for trainer, original in originals.items():
            setattr(reference.trainers, trainer, original)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strata", required=True)
    parser.add_argument("--text", action="append", required=True)
    parser.add_argument("--strings", type=int, default=125000)
    parser.add_argument("--kind", action="append")
    parser.add_argument("--speed", type=int, default=0)
    parser.add_argument("--keep", default="", help="a folder in which trained tokenizers stay")
    arguments = parser.parse_args()
    texts = {os.path.basename(path): open(path, encoding="utf-8").read() for path in arguments.text}
    unequal = 0
    with tempfile.TemporaryDirectory() as temporary:
        for name in arguments.kind or KINDS + ["sp_" + model for model in MODELS]:
            folder = os.path.join(arguments.keep or temporary, name)
            os.makedirs(folder, exist_ok=True)
            if name.startswith("sp_"):
                import sentencepiece
                import make_sentence_piece_reference as pieces
                path = os.path.join(folder, "tokenizer.model")
                if not os.path.exists(path):
                    reference.CORPUS = pieces.CORPUS = [text[:TRAINED_ON] for text in texts.values()]
                    pieces.SIZE = VOCABULARY
                    with open(path, "wb") as file:
                        file.write(pieces.KINDS[name[3:]]())
                encode = sentencepiece.SentencePieceProcessor(model_file=path).encode
                tokens = ["<mask>", "NORM", " x", "▁▁", "\n\n"]
            else:
                path = os.path.join(folder, "tokenizer.json")
                if not os.path.exists(path):
                    trained(name, list(texts.values())).save(path)
                tokenizer = reference.Tokenizer.from_file(path)

                def encode(some, tokenizer=tokenizer):
                    return [one.ids for one in tokenizer.encode_batch_fast(some, add_special_tokens=False)]
                tokens = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
            if arguments.speed:
                measure(name, arguments.strata, folder, encode, texts, arguments.speed)
            else:
                unequal += compare(name, arguments.strata, folder, encode, tokens, list(texts.values()), arguments)
    sys.exit(1 if unequal else 0)


if __name__ == "__main__":
    main()
