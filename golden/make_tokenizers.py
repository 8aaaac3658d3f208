"""Make golden/tokenizers/: small tokenizers with the rules of released ones, what the library `tokenizers` makes of texts
with them.

    python golden/make_tokenizers.py [--check]

The merges are learned here, from this project's documents; the rest of each file is as in the model's tokenizer.json.
Needs tokenizers (0.23.3).
"""
import argparse
import functools
import hashlib
import json
import os
import pathlib
import struct
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
import tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "golden" / "tokenizers"

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
          r"\s+(?!\S)|\s")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])


# ---- tokenizers ----------------------------------------------------------------------------------------------------------

def byte_level(pattern, **model):
    t = Tokenizer(models.BPE(**model))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    if pattern is None:
        t.pre_tokenizer = level
    else:
        t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), level])
    t.decoder = decoders.ByteLevel()
    return t


def gpt2():
    t = byte_level(None)
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t, ["<|endoftext|>"]


def llama3():
    return byte_level(LLAMA3, ignore_merges=True), ["<|begin_of_text|>", "<|end_of_text|>"]


def qwen2():
    t = byte_level(QWEN2)
    t.normalizer = normalizers.NFC()
    return t, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def cl100k():
    return byte_level(CL100K), ["<|endoftext|>", "<|fim_prefix|>"]


def o200k():
    return byte_level(O200K), ["<|startoftext|>", "<|endoftext|>"]


def deepseek():
    """Three splits in a row, and digits."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[\r\n]"), "isolated"), pre_tokenizers.Split(Regex(r"\s?\p{L}+"), "isolated"),
        pre_tokenizers.Split(Regex(r"\s?\p{P}+"), "isolated"), pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    return t, ["<|begin|>"]


BYTES = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]


def llama2():
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    return t, BYTES


def mistral():
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    return t, BYTES


def gemma():
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return t, BYTES


def unknown():
    """Characters without a token are one <unk>; pieces begin with a blank."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    t.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    return t, ["<unk>"]


FAMILIES = (gpt2, llama3, qwen2, cl100k, o200k, deepseek, llama2, mistral, gemma, unknown)
BEGIN = {"llama3": "<|begin_of_text|>", "llama2": "<s>", "mistral": "<s>", "gemma": "<s>"}


def learn(make):
    t, special = make()
    byte = make.__name__ in ("gpt2", "llama3", "qwen2", "cl100k", "o200k", "deepseek")
    whole = t.pre_tokenizer
    if not byte:                                # merges are learned within words, as sentencepiece does
        t.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    trainer = trainers.BpeTrainer(vocab_size=len(special) + (256 if byte else 100) + 400, special_tokens=special,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if byte else [], show_progress=False)
    files = sorted(str(p) for p in (ROOT / "docs").glob("*.md"))[:12] + [str(ROOT / "README.md")]
    lines = [line for f in files for line in open(f, encoding="utf-8")][:4000]
    lines += ["aé ﬀ 漢字かな Ω ночь 123 4567 ½ ٣ it's WE'LL\u017f"] * 20
    t.train_from_iterator(lines, trainer)
    if not byte:
        t.pre_tokenizer = whole if whole is not None else None
        document = json.loads(t.to_str())
        document["pre_tokenizer"] = json.loads(make()[0].to_str())["pre_tokenizer"]
        t = Tokenizer.from_str(json.dumps(document))
    t.add_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False), AddedToken("wide word", normalized=True)])
    if make.__name__ in BEGIN:
        name = BEGIN[make.__name__]
        t.post_processor = processors.TemplateProcessing(single=f"{name} $A", special_tokens=[(name, t.token_to_id(name))])
    return t


# ---- texts ---------------------------------------------------------------------------------------------------------------

CONTEXTS = ("{}", "a{} b", "1 {}'s\n")
CHUNK = 4096


def code_points():
    return [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


class Draw:
    """The generator of tests/ref/test_tokenizer.c: x = x * A + C mod 2^64, its upper bits."""

    def __init__(self, seed):
        self.x = seed

    def below(self, n):
        self.x = (self.x * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        return (self.x >> 33) % n


PIECES = ("a b c the ing  '  's 'LL 're it's 'S ſ \n \r\n \t   0 1 12 123 12345 ٣ ½ ² Ⅷ é e\u0301 ﬀ Ω ж ночь 漢 字 か が か\u3099 한 ᄒ\u1161\u11ab 😀 "
          "👩\u200d💻 \u00a0 \u2003 \u3000 \u0085 \u200b . , !! ?? -- __ == /* */ <mask> <s> </s> <|endoftext|> wide word <0x41> ▁ ▁▁ # $ % Ġ "
          "\u0300 \u0301 \u0327 A B THE Hello WORLD camelCase snake_case \ufffd \u0001 \u007f \u00ff \u2028 İ ı ß ẞ \u1e9b\u0323").split(" ")
PIECES = [p for p in PIECES if p] + [" ", "  ", "   "]


def fuzzed(index):
    d = Draw(index)
    return "".join(chr_of(d) if d.below(4) == 0 else PIECES[d.below(len(PIECES))] for _ in range(d.below(24)))


def chr_of(d):
    c = d.below(0x800 if d.below(2) else 0x110000)
    return "\ufffd" if 0xD800 <= c < 0xE000 else chr(c)


def digest(ids):
    return struct.pack(f"<{len(ids) + 1}i", len(ids), *ids)


def short(h):
    return h.hexdigest()[:16]


@functools.cache
def all_fuzzed():
    return [fuzzed(i) for i in range(100000)]


def digests(t):
    """Of each chunk of code points, in all contexts; then of each 1000 fuzzed texts."""
    rows, points = [], code_points()
    for first in range(0, len(points), CHUNK):
        h = hashlib.sha256()
        texts = [c.format(chr(p)) for p in points[first:first + CHUNK] for c in CONTEXTS]
        for e in t.encode_batch(texts, add_special_tokens=False):
            h.update(digest(e.ids))
        rows.append(short(h))
    fuzz = []
    for first in range(0, 100000, 1000):
        h = hashlib.sha256()
        for e in t.encode_batch(all_fuzzed()[first:first + 1000], add_special_tokens=True):
            h.update(digest(e.ids))
        fuzz.append(short(h))
    return rows, fuzz


# ---- single steps --------------------------------------------------------------------------------------------------------

# A model with few tokens: letters of bytes, sentencepiece's blank, bytes, and parts of words.
NAMES = ("a b ab \u0120 \u0120a <unk> 1 \u00c2 \u00b2 \u2581 \u2581a <0xC3> <0xA9> x ##b b</w> ##b</w> A <s> c \u010a the e the\u0120 . n't ' "
         "\u00c3 \u00a9 | <0x41> aa bb").split(" ")
FEW = dict(type="BPE", vocab={name: i for i, name in enumerate(NAMES)},
           merges=["a b", "\u0120 a", "\u2581 a"], unk_token=None)
LEVEL = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
WHOLE = LEVEL | dict(use_regex=False)


def in_a_row(kind, *steps):
    lists = dict(pre_tokenizer="pretokenizers", normalizer="normalizers", decoder="decoders", post_processor="processors")
    return {kind: {"type": "Sequence", lists[kind]: list(steps)}}


def metaspace(scheme, split=True):
    return dict(type="Metaspace", replacement="\u2581", prepend_scheme=scheme, split=split)


def split_at(pattern, behavior, invert=False):
    return dict(type="Split", pattern=pattern, behavior=behavior, invert=invert)


def added(*tokens):
    usual = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    new = [content for content, _ in tokens if content not in NAMES]
    return dict(added_tokens=[usual | dict(id=(NAMES + new).index(content), content=content) | flags for content, flags in tokens])


TWICE = dict(type="TemplateProcessing", single=[dict(SpecialToken=dict(id="<s>", type_id=0)), dict(Sequence=dict(id="A", type_id=0)),
                                                dict(Sequence=dict(id="A", type_id=1))],
             pair=[], special_tokens={"<s>": dict(id="<s>", ids=[NAMES.index("<s>")], tokens=["<s>"])})
CUT = dict(direction="Right", max_length=3, strategy="LongestFirst", stride=0)
PAD = dict(strategy=dict(Fixed=6), direction="Left", pad_to_multiple_of=None, pad_id=NAMES.index("<s>"), pad_type_id=0,
           pad_token="<s>")

# A name, the file without its model, changes of the model, texts.
ENCODED = [
    ("a byte without a token is unknown", dict(pre_tokenizer=LEVEL), dict(unk_token="<unk>"), ["a\f\fa", "\f", "a ab"]),
    ("unknown bytes fuse", dict(pre_tokenizer=LEVEL), dict(unk_token="<unk>", fuse_unk=True), ["a\u0001\u0002a", "\f\u0001"]),
    ("a byte without a token is left out", dict(pre_tokenizer=LEVEL), {}, ["a\f\fa"]),
    ("digits behind ByteLevel are letters", in_a_row("pre_tokenizer", LEVEL, dict(type="Digits", individual_digits=True)), {}, ["a \u00b2a"]),
    ("an expression behind ByteLevel", in_a_row("pre_tokenizer", LEVEL, split_at(dict(Regex=r"\p{L}a"), "Removed")), {}, ["ab ab", "b a"]),
    ("ByteLevel twice", in_a_row("pre_tokenizer", LEVEL, WHOLE), dict(unk_token="<unk>"), ["a\u00b2 a"]),
    ("truncation", dict(pre_tokenizer=LEVEL, truncation=CUT, post_processor=TWICE), {}, ["a b 1", "a"]),
    ("truncation at the left, padding", dict(pre_tokenizer=LEVEL, truncation=CUT | dict(direction="Left"), padding=PAD), {}, ["a b 1", "", "a"]),
    ("a token of blanks behind one with rstrip", added(("<r>", dict(rstrip=True)), ("  ", {})) | dict(pre_tokenizer=LEVEL), {},
     ["<r>  x", "<r>     x", "<r>x"]),
    ("blanks that another token took", added(("<l>", dict(lstrip=True)), ("  ", dict(lstrip=True, rstrip=True))) | dict(pre_tokenizer=LEVEL), {},
     ["a  <l>", "a     <l>", "    "]),
    ("single_word", added(("x", dict(single_word=True)), ("ab", dict(single_word=True, normalized=True))) | dict(pre_tokenizer=LEVEL), {},
     ["x", "xx", "x a", "ax", "x_", "x.", "ab", "\u00e9ab", "ab\u0301", "ab\u200d", "ab ab"]),
    ("an unknown one waits for bytes", {}, dict(unk_token="<unk>", byte_fallback=True), ["z\u00e9", "z\u00e9z\u00e9a", "\u00e9\u00eaz"]),
    ("an unknown one fuses across bytes", {}, dict(unk_token="<unk>", byte_fallback=True, fuse_unk=True), ["z\u00e9z", "zz\u00e9za"]),
    ("the text twice", dict(pre_tokenizer=LEVEL, post_processor=TWICE), {}, ["ab", ""]),
    ("prefix and suffix", {}, dict(continuing_subword_prefix="##", end_of_word_suffix="</w>", merges=["a ##b"]),
     ["a", "ab", "abb", "b"]),
    ("a word that is a token", {}, dict(ignore_merges=True), ["the", "thea"]),
    ("a sign before the first piece", in_a_row("pre_tokenizer", split_at(dict(String="b"), "Isolated"), metaspace("first")), {}, ["aba", "ba a"]),
    ("a sign before each piece", in_a_row("pre_tokenizer", split_at(dict(String="b"), "Isolated"), metaspace("always")), {}, ["aba", "ba a"]),
    ("no sign", dict(pre_tokenizer=metaspace("never", False)), {}, ["aba", " a a"]),
    ("a sign where the text before is gone", dict(pre_tokenizer=metaspace("first"), normalizer=dict(type="Replace", pattern=dict(String="b"), content="")), {},
     ["ba", "a", "ab a"]),
    ("matches of nothing cut", dict(pre_tokenizer=split_at(dict(Regex="x*"), "Isolated")), {}, ["abxxab", "ab"]),
    ("a line's beginning", dict(pre_tokenizer=split_at(dict(Regex="^a"), "Removed")), {}, ["ab\nab", "bab"]),
    ("a number of times, or not at all", dict(pre_tokenizer=split_at(dict(Regex="a{2}?b"), "Removed")), {}, ["aab", "ab", "b"]),
] + [(f"{behavior}, inverted {invert}", dict(pre_tokenizer=split_at(dict(String="a"), behavior, invert)), dict(merges=["a a", "b b", "a b"]),
      ["aabbaba", "ba", "bb"])
     for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous") for invert in (False, True)]

DECODED = [
    ("no decoder", {}, ["a b", "\u2581a a", ""]),
    ("ByteLevel", dict(decoder=LEVEL), ["\u00c3 \u00a9 \u0120a", "\u00c3 a", "\u2581 \u0120"]),
    ("Metaspace drops all signs of the first token", dict(decoder=metaspace("always", False)), ["\u2581 \u2581a", "\u2581a \u2581a"]),
    ("Metaspace keeps them", dict(decoder=metaspace("never")), ["\u2581 \u2581a"]),
    ("Strip", in_a_row("decoder", dict(type="Fuse"), dict(type="Strip", content="a", start=2, stop=1)), ["a a a b a a", "a b a", "b"]),
    ("Replace", dict(decoder=dict(type="Replace", pattern=dict(Regex="a+"), content="-")), ["a a ab", "b"]),
    ("bytes", dict(decoder=dict(type="ByteFallback")), ["<0xC3> <0xA9> a", "<0xA9> a <0xC3>", "<0xC3> <0xA9> <0xC3>", "<0x41> a"]),
    ("WordPiece", dict(decoder=dict(type="WordPiece", prefix="##", cleanup=True)), ["a ##b ab", "##b . n't ' a", "the ' the"]),
    ("BPEDecoder", dict(decoder=dict(type="BPEDecoder", suffix="</w>")), ["a b</w> a", "b</w> b</w>"]),
    ("CTC", dict(decoder=dict(type="CTC", pad_token="<s>", word_delimiter_token="|", cleanup=True)), ["a a <s> a | b ' b", "<s>"]),
]


def steps():
    """What single steps make of short texts."""
    rows = []
    for name, file, model, texts in ENCODED:
        file = dict(version="1.0") | file | dict(model=FEW | model)
        t = Tokenizer.from_str(json.dumps(file))
        rows.append(dict(name=name, file=file, encoded=[[text, t.encode(text).ids] for text in texts]))
    for name, file, tokens in DECODED:
        file = dict(version="1.0") | file | dict(model=FEW)
        t = Tokenizer.from_str(json.dumps(file))
        lists = [[NAMES.index(n) for n in names.split(" ") if n] for names in tokens]
        rows.append(dict(name=name, file=file, decoded=[[t.decode(ids), ids] for ids in lists]))
    return "[" + ",\n".join(json.dumps(row) for row in rows) + "]\n"


# ---- files ---------------------------------------------------------------------------------------------------------------

def files():
    yield OUT / "pieces.txt", "".join(json.dumps(p) + "\n" for p in PIECES)
    if not ONLY or "steps" in ONLY:
        yield OUT / "steps.json", steps()
    for make in (f for f in FAMILIES if not ONLY or f.__name__ in ONLY):
        path = OUT / f"{make.__name__}.json"
        t = Tokenizer.from_file(str(path)) if path.exists() and not NEW else learn(make)
        points, fuzz = digests(t)
        yield path, json.dumps(json.loads(t.to_str()), ensure_ascii=False, indent=0) + "\n"
        yield OUT / f"{make.__name__}.digests", "\n".join(points + ["fuzzed"] + fuzz) + "\n"


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--check", action="store_true", help="compare with the files, and write nothing")
    p.add_argument("--new", action="store_true", help="learn the merges again")
    p.add_argument("family", nargs="*", help="these alone, or steps")
    a = p.parse_args()
    NEW, ONLY = a.new, a.family
    OUT.mkdir(exist_ok=True)
    wrong = 0
    for path, text in files():
        same = path.exists() and path.read_text(encoding="utf-8") == text
        print("same" if same else "differs" if a.check else "written", path.relative_to(ROOT), flush=True)
        wrong += not same
        if not a.check and not same:
            path.write_text(text, encoding="utf-8")
    sys.exit(1 if a.check and wrong else 0)
