#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/train/tokenizers: small tokenizers of the common kinds, and what the `tokenizers`
library (0.23) makes of texts that are hard to cut, so that the C++ tests need no Python.

    python tests/reference/make_tokenizer_reference.py [KIND...]

Some kinds need the charsmap that the package `sentencepiece` compiles.
"""
import base64
import io
import json
import os
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "train", "tokenizers")

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's the dog's own fault, isn't it? We've said so.",
    "In the beginning was the word, and the word was with the reader, and the reader read it aloud.",
    "She sells sea shells by the sea shore; the shells she sells are sea shells, I'm sure they're real.",
    "for (int i = 0; i < 10; ++i) {\n\tsum += values[i] * weights[i];\n}\nreturn sum / 10.0;\n",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. Das Wort und der Satz.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë.",
    "Съешь же ещё этих мягких французских булок да выпей чаю. Слово и дело.",
    "いろはにほへと ちりぬるを 我が世誰ぞ 常ならむ。 日本語の文章。 中文的句子也在这里。",
    "한국어 문장도 여기에 있습니다. 다람쥐 헌 쳇바퀴에 타고파.",
    "صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت. हिन्दी में एक वाक्य।",
    "1 12 123 1234 12345 3.14159 2026-11-21 0x1F ½ Ⅷ ٣٤٥ 1,000,000",
    "    indented\n\n\nparagraphs   with  many    spaces   \r\nand\ttabs\u00a0and nbsp\u3000wide",
] * 4

TEXTS = [
    "", " ", "  ", "\n", "\r\n", "\t\t", "a", " a", "a ", " a ", "  a  b   c    ", "\n\n\na\n b\n  c",
    "Hello, world!", "HELLO'S It'S don'T WE'RE we'Ve I'LL he'D i'M", "x'\u017f y'\u017fs '\u212a K's",
    "The dog's fault isn't ours.", "12345678901234567890", "a1b22c333d4444", "½Ⅷ٣٤٥ १२३",
    "\u00a0\u00a0a\u00a0", "\u3000\u3000x", "\u180e\u180ea \u180e", "\u200b\u200ba\u200b b", "\u0085a\u0085\u0085b",
    "\u2028line\u2029para", "\u1680ogham \u205fmath", "\x1c\x1d\x1e\x1fsep", "\x0b\x0cvt", "nul\x00byte",
    "e\u0301 vs \u00e9, a\u0308o\u0308", "\u1e9b\u0323 \ufb01 \u2460 \uff21", "\u0130stanbul I\u0307 ǅ Σίσυφος",
    "\u1112\u1161\u11ab \ud55c", "हिन्दी क्षत्रिय", "ไทยภาษา", "עִבְרִית", "صِف خَلقَ",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪 🏳️‍🌈", "a👍b👍👍 c", "\ufffd\ufffd", "\U0001d4d0\U00020000\U0010ffff", "\ufeffbom",
    "日本語の文章。中文的句子。", "한국어 문장", "Съешь же ещё", "Zwölf Boxkämpfer", "l'âme naïve",
    "<s>", "</s>", "<s>a</s>", "a <s> b", "<|end|>", "a<|end|>b", "x <|end|> y<|end|><|end|>", "<|en", "<|end|",
    "  <mask>  next", "a<mask>b", "word <one> wordy<one>x <one>", "<one>a", "_<one>", "é<one>", "NORM norm Norm",
    "▁a▁▁b ▁", "▁▁▁", "a▁", "<0x41><0xZZ>", "<0x0A>", "<unk>", "<unk>a<unk>", "tab\tx\t\ty", "....!!!???---",
    "a.b,c;d:e", "http://example.com/a?b=c&d=e#f", "C:\\path\\to\\file", "{\"key\": [1, 2.5, null]}",
    "snake_case camelCase PascalCase SCREAMING", "ÀÉÎ ÕÜ ẞß", "ﬁnance ﬂow", "x" * 70, "ab" * 60, "é" * 50,
    " " * 40 + "end", "\n" * 20 + "end", "the the the the", "wordwordwordword", "🙂" * 20,
    "def f(x):\n    return x  # comment\n\n\nprint(f(3))\n",
]


def random_texts(count):
    rng = random.Random(20240917)
    pool = (["the ", "The", " dog", "'s", "'T", "\n", "\r\n", "  ", "\t", " ", "1", "23", "456", ".", ",", "!", "-", "_", "é",
             "e\u0301", "ß", "Ж", "слово", "語", "한", "ा", "क", "\u200d", "👍", "\u00a0", "\u3000", "\u2009", "▁", "<s>", "<|end|>",
             "<mask>", "<one>", "NORM", "x", "Q", "İ", "ſ", "Ⅷ", "½", "٣", "ﬁ", "\u0301", "\x00", "\x7f", "\u0378", "\U000e0041"])
    return ["".join(rng.choice(pool) for _ in range(rng.randint(1, 24))) for _ in range(count)]


def added():
    return [AddedToken("<|end|>", special=True, normalized=False),
            AddedToken("<mask>", special=True, normalized=False, lstrip=True),
            AddedToken("<one>", single_word=True, normalized=False, rstrip=True),
            AddedToken("NORM", normalized=True)]


def train(model, pre, normalizer=None, size=620, specials=("<unk>", "<s>", "</s>"), alphabet=()):
    tokenizer = Tokenizer(model)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), initial_alphabet=list(alphabet),
                                  show_progress=False, min_frequency=2, limit_alphabet=260)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens(added())
    return tokenizer


def with_model_fields(tokenizer, **fields):
    data = json.loads(tokenizer.to_str())
    data["model"].update(fields)
    return Tokenizer.from_str(json.dumps(data))


def gpt2():
    t = train(models.BPE(), pre_tokenizers.ByteLevel(add_prefix_space=False), specials=["<s>", "</s>"],
              alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def gpt2_prefix():
    t = train(models.BPE(), pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                     pre_tokenizers.ByteLevel(add_prefix_space=True)]),
              specials=["<s>"], alphabet=pre_tokenizers.ByteLevel.alphabet(), size=500)
    t.decoder = decoders.ByteLevel()
    return t


def split_byte_level(pattern, normalizer=None):
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                   pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t = train(models.BPE(), pre, normalizer, specials=["<s>", "</s>"], alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.decoder = decoders.ByteLevel()
    return t


def llama3():
    t = with_model_fields(split_byte_level(LLAMA3), ignore_merges=True)
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", t.token_to_id("<s>"))])])
    return t


def llama2():
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    t = train(models.BPE(unk_token="<unk>"), pre_tokenizers.Split("▁", "merged_with_next"), normalizer,
              specials=["<unk>", "<s>", "</s>"] + byte_tokens, size=760)
    data = json.loads(t.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if a["content"] not in byte_tokens]
    data["pre_tokenizer"] = None
    data["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    t = Tokenizer.from_str(json.dumps(data))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", t.token_to_id("<s>")), ("</s>", t.token_to_id("</s>"))])
    return t


def metaspace(scheme, fuse):
    t = train(models.BPE(unk_token="<unk>"), pre_tokenizers.Sequence([
        pre_tokenizers.Metaspace(prepend_scheme=scheme), pre_tokenizers.Digits(individual_digits=False)]),
        normalizers.NFKC(), size=420)
    t = with_model_fields(t, unk_token="<unk>", fuse_unk=fuse)
    t.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return t


def lowercase():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\s+"), "removed"),
                                   pre_tokenizers.Split(Regex(r"[\p{P}\p{S}]"), "merged_with_previous"),
                                   pre_tokenizers.Split(Regex(r"[a-z]+"), "contiguous", invert=True)])
    t = train(models.BPE(unk_token="<unk>"), pre,
              normalizers.Sequence([normalizers.NFD(), normalizers.Replace(Regex(r"\p{Mn}"), ""), normalizers.Lowercase(),
                                    normalizers.Strip()]), size=380)
    return with_model_fields(t, unk_token="<unk>")


# Rules for a charsmap, in hexadecimal: ligatures, full-width letters, white space, accents, and a rule whose
# start is another rule.
CHARSMAP_RULES = ("FB01\t66 69\nFB02\t66 6C\n2460\t31\nFF21\t41\nFF22\t42\n9\t20\nA\t20\nD\t20\nA0\t20\n3000\t20\n200B\t\n"
                  "65 301\tE9\n61 308\tE4\nBD\t31 2044 32\n69 307\t69\n1F44D\t2B 31\n915 3B1\t47\n64 2A\t64\n")


def charsmap_model(**options):
    """A model with CHARSMAP_RULES, without the path of their file, which SentencePiece writes into it."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    rules = os.path.join(OUT, "rules.tsv")
    with open(rules, "w", encoding="utf-8") as file:
        file.write(CHARSMAP_RULES)
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(line for text in CORPUS for line in text.split("\n")), model_writer=model,
            minloglevel=2, num_threads=1, hard_vocab_limit=False, normalization_rule_tsv=rules, **options)
    finally:
        os.remove(rules)
    message = sentencepiece_model_pb2.ModelProto()
    message.ParseFromString(model.getvalue())
    message.normalizer_spec.ClearField("normalization_rule_tsv")
    return message.SerializeToString(deterministic=True)


def charsmap():
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(charsmap_model(vocab_size=300))
    return model.normalizer_spec.precompiled_charsmap


def train_unigram(normalizer, pre, specials, size=500):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(CORPUS, trainers.UnigramTrainer(
        vocab_size=size, special_tokens=specials, unk_token="<unk>", show_progress=False))
    tokenizer.add_tokens(added())
    return tokenizer


def t5():
    data = json.loads(normalizers.Sequence([normalizers.Nmt()]).__getstate__())
    data["normalizers"] = [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap()).decode()},
                           {"type": "Strip", "strip_left": False, "strip_right": True},
                           {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}]
    t = train_unigram(None, pre_tokenizers.Metaspace(prepend_scheme="always"), ["<pad>", "</s>", "<unk>"])
    file = json.loads(t.to_str())
    file["normalizer"] = data
    t = Tokenizer.from_str(json.dumps(file))
    t.decoder = decoders.Metaspace(prepend_scheme="always")
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", t.token_to_id("</s>"))])
    return t


def unigram_bytes():
    t = train_unigram(normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.StripAccents()]),
                      pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
                      ["<s>", "<pad>", "</s>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)], size=700)
    file = json.loads(t.to_str())
    file["added_tokens"] = [a for a in file["added_tokens"] if not a["content"].startswith("<0x")]
    file["model"]["byte_fallback"] = True
    t = Tokenizer.from_str(json.dumps(file))
    t.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    t.post_processor = processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>")))
    return t


def word_piece(normalizer, pre, characters_max):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=characters_max))
    t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.train_from_iterator(CORPUS, trainers.WordPieceTrainer(
        vocab_size=600, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False))
    t.add_tokens(added())
    t.decoder = decoders.WordPiece(cleanup=characters_max == 100)
    return t


def bert():
    t = word_piece(normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer(), 100)
    t.post_processor = processors.BertProcessing(("[SEP]", t.token_to_id("[SEP]")), ("[CLS]", t.token_to_id("[CLS]")))
    return t


def bert_cased():
    t = word_piece(normalizers.BertNormalizer(lowercase=False, handle_chinese_chars=False),
                   pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(),
                                            pre_tokenizers.CharDelimiterSplit("x")]), 12)
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[
        ("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))])
    return t


def gemma(words=False):
    """Tokens may go on over the border of words, unless `words`: then they are like those of the real Gemma."""
    byte_tokens = [f"<0x{b:02X}>" for b in range(256)]
    t = train(models.BPE(unk_token="<unk>"), pre_tokenizers.Split("▁" if words else " ", "merged_with_next"),
              normalizers.Replace(" ", "▁"), specials=["<pad>", "<eos>", "<bos>", "<unk>"] + byte_tokens, size=760)
    data = json.loads(t.to_str())
    data["added_tokens"] = [a for a in data["added_tokens"] if a["content"] not in byte_tokens]
    data["model"].update(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    t = Tokenizer.from_str(json.dumps(data))
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁▁", normalized=False)])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", t.token_to_id("<bos>"))])
    return t


KINDS = {
    "gpt2": gpt2, "gpt2_prefix": gpt2_prefix, "llama3": llama3, "o200k": lambda: split_byte_level(O200K),
    "qwen2": lambda: split_byte_level(LLAMA3.replace("{1,3}", ""), normalizers.NFC()), "llama2": llama2,
    "metaspace_first": lambda: metaspace("first", True), "metaspace_always": lambda: metaspace("always", False),
    "lowercase": lowercase, "t5": t5, "unigram_bytes": unigram_bytes, "bert": bert, "bert_cased": bert_cased, "gemma": gemma,
}


def cases_of(tokenizer, texts, rng):
    cases = []
    for text in texts:
        ids = tokenizer.encode(text).ids
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                      "plain": tokenizer.decode(ids, skip_special_tokens=True)})
    for _ in range(40):  # ids that no text gives: decoders meet broken characters
        ids = [rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randint(1, 12))]
        cases.append({"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                      "plain": tokenizer.decode(ids, skip_special_tokens=True)})
    return cases


def main():
    for number, (name, make) in enumerate(KINDS.items()):
        if len(sys.argv) > 1 and name not in sys.argv[1:]:
            continue
        tokenizer = make()
        folder = os.path.join(OUT, name)
        os.makedirs(folder, exist_ok=True)
        data = json.loads(tokenizer.to_str())
        if name == "gpt2":  # merges as older files spell them
            data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]
        with open(os.path.join(folder, "tokenizer.json"), "w", encoding="utf-8") as file:
            json.dump(data, file, ensure_ascii=False, separators=(",", ":"))
        check = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        cases = cases_of(check, TEXTS + random_texts(60), random.Random(number))
        with open(os.path.join(folder, "cases.json"), "w", encoding="utf-8") as file:
            json.dump(cases, file, ensure_ascii=False, separators=(",", ":"))


if __name__ == "__main__":
    main()
