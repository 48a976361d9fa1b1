#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/train/sentence_piece: small models of SentencePiece (0.2), and what it makes of texts that
are hard to cut, so that the C++ tests need no Python.

    python tests/reference/make_sentence_piece_reference.py
"""
import io
import json
import os
import random

import sentencepiece

from make_tokenizer_reference import CORPUS, TEXTS, charsmap_model, random_texts

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "train", "sentence_piece")


SIZE = 0  # of the vocabulary, instead of each kind's own


def plain_model(**options):
    options["vocab_size"] = SIZE or options["vocab_size"]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(line for text in CORPUS for line in text.split("\n")), model_writer=model, minloglevel=2,
        num_threads=1, hard_vocab_limit=False, **options)
    return model.getvalue()


def charsmap_sized(**options):
    options["vocab_size"] = SIZE or options["vocab_size"]
    return charsmap_model(**options)


KINDS = {
    # As Llama 2: byte fallback, spaces kept.
    "bpe_bytes": lambda: plain_model(
        model_type="bpe", vocab_size=700, byte_fallback=True, split_digits=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, allow_whitespace_only_pieces=True),
    # As Gemma: symbols of the user, no space in front.
    "bpe_symbols": lambda: plain_model(
        model_type="bpe", vocab_size=720, byte_fallback=True, normalization_rule_name="identity", add_dummy_prefix=False,
        remove_extra_whitespaces=False, user_defined_symbols=["\n", "\n\n", "▁▁", "▁▁▁", "the", "<mask>"],
        control_symbols=["<start_of_turn>"]),
    "bpe_unknown": lambda: charsmap_sized(model_type="bpe", vocab_size=420),
    # As T5 and ALBERT: Unigram with a charsmap.
    "unigram": lambda: charsmap_sized(model_type="unigram", vocab_size=420, user_defined_symbols=["<mask>", "NORM", " x"]),
    "unigram_bytes": lambda: charsmap_sized(model_type="unigram", vocab_size=650, byte_fallback=True),
    "unigram_suffix": lambda: plain_model(model_type="unigram", vocab_size=400, treat_whitespace_as_suffix=True,
                                          normalization_rule_name="identity", unk_surface="?"),
}


def main():
    for number, (name, make) in enumerate(KINDS.items()):
        folder = os.path.join(OUT, name)
        os.makedirs(folder, exist_ok=True)
        data = make()
        with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
            file.write(data)
        model = sentencepiece.SentencePieceProcessor(model_proto=data)
        rng = random.Random(number)
        texts = [text for text in TEXTS + random_texts(60) if "<s>" not in text and "</s>" not in text]
        cases = [{"text": text, "ids": model.encode(text), "plain": model.decode(model.encode(text))} for text in texts]
        for _ in range(40):
            ids = [rng.randrange(model.get_piece_size()) for _ in range(rng.randint(1, 12))]
            cases.append({"ids": ids, "plain": model.decode(ids)})
        with open(os.path.join(folder, "cases.json"), "w", encoding="utf-8") as file:
            json.dump(cases, file, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main()
