"""Make golden/pipelines/: configurations of tokenizer.json that have every kind of step beside every other, and hashes of
what the library `tokenizers` makes of 3000 strings with each.

    python golden/make_pipelines.py [--check] [--new] [NAME...]
    python golden/make_pipelines.py --show NAME STRING

    vocabularies.json   small models, learned from this project's documents
    pieces.txt          what strings consist of, a class of pieces in each line
    NAME.json           a configuration: the tokenizer.json
    NAME.hashes         of its strings; the order is at `hashes` below
    examples.txt        of each configuration a string for the command line: name, string, ids, text of the ids
    refused.txt         configurations that ref/text refuses, and with which words; written by hand

Strings are not stored: `string` below makes them, and tests/ref/pipeline_strings.h does so again in C.  Steps are drawn
by a seed, so that few configurations have many pairs of kinds; some are written by hand, for errors that were found.
--show prints what the library makes of one string, step by step.  Needs tokenizers (0.23.3).
"""
import argparse
import json
import os
import pathlib
import struct
import sys

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "golden" / "pipelines"
STRINGS, DECODED_EVERY, DRAWN, SEED, CANDIDATES, TRIED = 3000, 10, 88, 23, 60, 64
ALL = (1 << 64) - 1


# ---- numbers -------------------------------------------------------------------------------------------------------------

def mix(seed, a, b):
    """A number of 64 bits from three: the finalizer of SplitMix64, after a sum with two odd factors."""
    x = (seed + 0x9E3779B97F4A7C15 * (a + 1) + 0xD1B54A32D192ED03 * (b + 1)) & ALL
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ALL
    x = (x ^ x >> 27) * 0x94D049BB133111EB & ALL
    return x ^ x >> 31


def fnv1a(data):
    """FNV-1a of 64 bits."""
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & ALL
    return h


class Draw:
    """Numbers in a row, for the choice of configurations."""

    def __init__(self, row):
        self.row, self.place = row, 0

    def below(self, n):
        self.place += 1
        return (mix(SEED, self.row, self.place) >> 8) % n

    def of(self, items):
        return items[self.below(len(items))]


# ---- strings -------------------------------------------------------------------------------------------------------------

PIECES = [
    ["the", "model", "of", "device", "Hello", "WORLD", "camelCase", "don't", "we'll", "I'M", "x", "a", "ing", "tokenizer's"],
    [" ", "  ", "   ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "\u1680", " \n "],
    ["0", "7", "12", "123", "12345", "2026", "1234567", "\u0663", "\u00bd", "\u00b2", "\u2167", "\u0968", "\uff15", "3.14"],
    [".", ",", "!", "?!", "...", "'", "\"", "-", "--", "_", "(", ")]", "\u00ab", "\u2019", "\u2026", "\u3002", "$", "+", "=",
     "\u20ac", "`", "^", "|", "\\", "/", "@", "#", "##", "&", "~", "\u00bf"],
    ["\u00e9", "\u00c9cole", "\u00df", "\u1e9e", "\u00c5ngstr\u00f6m", "\u0130stanbul", "\u0131", "\ufb01n", "\u01c5", "\u0142",
     "\u00fcber", "\ufb00", "\u017f", "\u0149", "\u00c6\u0152", "\uff21\uff22", "\u00aa", "\u2126"],
    ["\u03a3", "\u03c3\u03c2", "\u039f\u0394\u039f\u03a3", "\u1fb3", "\u1f88", "\u0390", "\u03ce", "\u03d2"],
    ["\u0436", "\u043d\u043e\u0447\u044c", "\u0419", "\u0401\u043b\u043a\u0430", "\u0457", "\u1c80"],
    ["\u6f22", "\u5b57\u5178", "\u304b\u306a", "\u30ab\u30ca", "\u304b\u3099", "\u4e00", "\u2f00", "\uf900", "\u3400", "\u3021",
     "\U00020000", "\uff76\uff9e"],
    ["\ud55c", "\ud55c\uad6d\uc5b4", "\u1112\u1161\u11ab", "\uac00", "\u1100\u1161"],
    ["\u0633\u0644\u0627\u0645", "\u0644\u0627", "\ufefb", "\u0640", "\u0627\u064b", "\u05e9\u05dc\u05d5\u05dd", "\ufb2a"],
    ["\u0928\u092e\u0938\u094d\u0924\u0947", "\u0915\u093c", "\u0958", "\u0e01\u0e33", "\u0e44\u0e17\u0e22", "\u0b9a"],
    ["\u0301", "\u0300", "\u0327", "\u0334", "\u0345", "e\u0301", "a\u0328\u0308", "o\u0308\u0304", "q\u0307\u0323", "\u0344",
     "\u20dd", "\u1dc0", "\u1ab0"],
    ["\U0001f600", "\U0001f469\u200d\U0001f4bb", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "\u263a",
     "\U0001fae8"],
    ["\u0001", "\u007f", "\u009f", "\u200b", "\u200d", "\ufeff", "\ufffd", "\u00ad", "\u2060", "\u202e", "\ufffe", "\u0008",
     "\U000e0001", "\ue000"],
    ["\u2581", "\u2581\u2581", "\u0120", "\u010a", "##ing", "</w>", "<0x41>", "<0xE2>", "<unk>", "<s>", "</s>", "[SEP]", "Ge"],
]


def byte_letter(byte):
    """The letter of a byte, as GPT-2 has it: those that print stand for themselves, the others follow from 256 on."""
    own = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    return chr(byte) if byte in own else chr(256 + [b for b in range(256) if b not in own].index(byte))


LETTERS = [byte_letter(b) for b in range(256)]


def code_point(r):
    """Small ones as often as all; a surrogate is U+FFFD."""
    c = (r >> 1) % (0x800 if r & 1 else 0x110000)
    return "\ufffd" if 0xD800 <= c < 0xE000 else chr(c)


class Strings:
    """The strings of a configuration.  Seed: FNV-1a of its name.  String s has mix(seed, s, 0) % 16 pieces, every 64th
    string eight times as many.  Piece p, from 1, is chosen by r = mix(seed, s, p): its class by r % (classes + 4), its
    place in the class by r >> 8; after the piece comes a blank if r >> 61 is 0 or 1.  The last four classes are tokens of
    the model in the order of the file, added tokens (a blank if there are none), letters of bytes, and code points."""

    def __init__(self, name, document):
        vocab = document["model"]["vocab"]
        self.seed = fnv1a(name.encode())
        self.classes = PIECES + [[v[0] for v in vocab] if isinstance(vocab, list) else list(vocab),
                                 [a["content"] for a in document["added_tokens"]] or [" "], LETTERS]

    def string(self, s):
        out = []
        for p in range(mix(self.seed, s, 0) % 16 * (8 if s % 64 == 63 else 1)):
            r = mix(self.seed, s, p + 1)
            kind, place = r % (len(self.classes) + 1), r >> 8
            out.append(code_point(place) if kind == len(self.classes) else self.classes[kind][place % len(self.classes[kind])])
            if r >> 61 < 2:
                out.append(" ")
        return "".join(out)


# ---- vocabularies --------------------------------------------------------------------------------------------------------

SPECIAL = ["<unk>", "<s>", "</s>"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def lines():
    files = sorted(str(p) for p in (ROOT / "docs").glob("*.md"))[:12] + [str(ROOT / "README.md")]
    found = [line for f in files for line in open(f, encoding="utf-8")][:3000]
    return found + [" ".join(row) for row in PIECES] * 12


def learned(model, splitter, trainer):
    t = Tokenizer(model)
    t.pre_tokenizer = splitter
    t.train_from_iterator(lines(), trainer)
    return json.loads(t.to_str())["model"]


def vocabularies():
    """Models as in a file.  Those of BPE: on bytes, on characters, with bytes for others, with a sign at parts of words."""
    level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    space = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always", split=True)
    words = pre_tokenizers.BertPreTokenizer()
    bpe = {"special_tokens": SPECIAL, "show_progress": False}
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    unk = {"unk_token": "<unk>"}
    return {
        "bytes": learned(models.BPE(), level, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, **bpe)),
        "holes": learned(models.BPE(), level, trainers.BpeTrainer(vocab_size=240, limit_alphabet=110, **bpe)),
        "characters": learned(models.BPE(), space, trainers.BpeTrainer(vocab_size=300, limit_alphabet=130, **bpe)),
        "fallback": learned(models.BPE(), space, trainers.BpeTrainer(
            vocab_size=480, limit_alphabet=90, special_tokens=SPECIAL + BYTES, show_progress=False)),
        "prefix": learned(models.BPE(continuing_subword_prefix="##"), words, trainers.BpeTrainer(
            vocab_size=400, limit_alphabet=90, continuing_subword_prefix="##", **bpe)),
        "suffix": learned(models.BPE(end_of_word_suffix="</w>"), words, trainers.BpeTrainer(
            vocab_size=400, limit_alphabet=90, end_of_word_suffix="</w>", **bpe)),
        "unigram": learned(models.Unigram(), space, trainers.UnigramTrainer(
            vocab_size=260, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False)),
        "wordpiece": learned(models.WordPiece(**unk), words, trainers.WordPieceTrainer(
            vocab_size=400, limit_alphabet=90, **bpe)),
        "wordlevel": learned(models.WordLevel(**unk), words, trainers.WordLevelTrainer(vocab_size=250, **bpe)),
    }


def without(model, gone):
    """A model of BPE without some tokens, and without the merges that need them."""
    kept = [name for name in model["vocab"] if not gone(name)]
    vocab = {name: i for i, name in enumerate(kept)}
    merges = [m for m in model["merges"] if m[0] in vocab and m[1] in vocab and "".join(m) in vocab]
    return model | {"vocab": vocab, "merges": merges}


# What a model may be: its kind, its vocabulary, and what is changed in it.
MODELS = [
    ("BPE", "bytes", {}), ("BPE", "bytes", {"ignore_merges": True}), ("BPE", "bytes", {"unk_token": "<unk>"}),
    ("BPE holes", "holes", {}), ("BPE holes", "holes", {"unk_token": "<unk>"}),
    ("BPE holes", "holes", {"unk_token": "<unk>", "fuse_unk": True}),
    ("BPE characters", "characters", {}), ("BPE characters", "characters", {"unk_token": "<unk>"}),
    ("BPE characters", "characters", {"unk_token": "<unk>", "fuse_unk": True}),
    ("BPE characters", "characters", {"unk_token": "<unk>", "ignore_merges": True}),
    ("BPE fallback", "fallback", {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}),
    ("BPE fallback", "fallback", {"unk_token": "<unk>", "byte_fallback": True, "ignore_merges": True}),
    ("BPE fallback", "some", {"unk_token": "<unk>", "byte_fallback": True}),
    ("BPE fallback", "some", {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}),
    ("BPE fallback", "some", {"byte_fallback": True}),
    ("BPE prefix", "prefix", {"unk_token": "<unk>"}), ("BPE prefix", "prefix", {}),
    ("BPE suffix", "suffix", {"unk_token": "<unk>", "fuse_unk": True}), ("BPE suffix", "suffix", {}),
    ("Unigram", "unigram", {}), ("Unigram", "ties", {}), ("Unigram", "unigram", {"unk_id": 7}),
    ("Unigram fallback", "unigram bytes", {"byte_fallback": True}),
    ("Unigram fallback", "unigram bytes", {"byte_fallback": True, "unk_id": 2}),
    ("WordPiece", "wordpiece", {}), ("WordPiece", "wordpiece", {"max_input_chars_per_word": 5}),
    ("WordPiece", "wordpiece", {"continuing_subword_prefix": ""}),
    ("WordPiece", "wordpiece", {"unk_token": "</s>"}),
    ("WordLevel", "wordlevel", {}), ("WordLevel", "wordlevel", {"unk_token": "</s>"}),
]


def model_of(bases, vocabulary, changes):
    if vocabulary == "some":
        model = without(bases["fallback"], lambda name: name in BYTES and BYTES.index(name) % 5 == 3)
    elif vocabulary == "ties":
        model = bases["unigram"] | {"vocab": [[name, float(round(score))] for name, score in bases["unigram"]["vocab"]]}
    elif vocabulary == "unigram bytes":
        model = bases["unigram"] | {"vocab": bases["unigram"]["vocab"] + [[name, -11.5] for name in BYTES]}
    else:
        model = bases[vocabulary]
    return model | changes


# ---- steps ---------------------------------------------------------------------------------------------------------------

def step(kind, **options):
    return {"type": kind} | options


def options(kind, **choices):
    """All steps of a kind that choose one value of each option."""
    found = [step(kind)]
    for name, values in choices.items():
        found = [f | {name: v} for f in found for v in values]
    return found


BOTH = (False, True)
BEHAVIORS = ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")


def text(t):
    return {"String": t}


def regex(t):
    return {"Regex": t}


NORMALIZERS = [
    [step("NFC")], [step("NFD")], [step("NFKC")], [step("NFKD")], [step("Lowercase")], [step("StripAccents")],
    options("Strip", strip_left=BOTH, strip_right=BOTH),
    [step("Replace", pattern=p, content=c) for p, c in (
        (text(" "), "\u2581"), (text("the"), "THE "), (text("``"), '"'), (text("a"), ""), (text("\n"), "\u00e9"))],
    [step("Replace", pattern=regex(p), content=c) for p, c in (
        (r" {2,}", " "), (r"\s+", " "), (r"[0-9]", "0"), (r"(\p{Lu})", "<up>"), (r"\p{P}", ""))],
    [step("Prepend", prepend="\u2581"), step("Prepend", prepend="go ")], [step("Nmt")], [step("ByteLevel")],
    options("BertNormalizer", clean_text=BOTH, handle_chinese_chars=BOTH, strip_accents=(None, False, True), lowercase=BOTH),
]

SPLITTERS = [
    options("ByteLevel", add_prefix_space=BOTH, trim_offsets=[True], use_regex=BOTH),
    [step("Whitespace")], [step("WhitespaceSplit")], [step("BertPreTokenizer")],
    options("Punctuation", behavior=BEHAVIORS), options("Digits", individual_digits=BOTH),
    options("Split", pattern=[text(" "), text("\u2581"), text("e")], behavior=BEHAVIORS, invert=BOTH),
    options("Split", pattern=[regex(r"\p{L}+"), regex(r"[0-9]{3}"), regex(r"\s+(?!\S)|\s"), regex(r"[\r\n]"),
                              regex(r"\p{N}{1,3}"), regex(r"[^\s\p{L}\p{N}]+")], behavior=BEHAVIORS, invert=BOTH),
    options("Metaspace", replacement=["\u2581", "_"], prepend_scheme=("always", "first", "never"), split=BOTH),
    [step("CharDelimiterSplit", delimiter=d) for d in ("e", " ", "\u2581")], options("FixedLength", length=(1, 3, 5)),
]


def processors(draw, document):
    """Tokens around a text; the second and third token of every vocabulary are for that."""
    def special(name):
        return {"SpecialToken": {"id": name, "type_id": 0}}
    names = list_of_names(document)
    ids = {name: {"id": name, "ids": [names.index(name)], "tokens": [name]} for name in ("<s>", "</s>")}
    ids["both"] = {"id": "both", "ids": [1, 2], "tokens": ["<s>", "</s>"]}
    body, pair = {"Sequence": {"id": "A", "type_id": 0}}, [{"Sequence": {"id": x, "type_id": 0}} for x in "AB"]
    singles = [[special("<s>"), body], [body, special("</s>")], [special("<s>"), body, special("</s>")], [special("both"), body],
               [body, special("</s>"), body], [special("</s>")], [body]]
    ends = {"sep": ["</s>", 2], "cls": ["<s>", 1]}
    template = step("TemplateProcessing", single=draw.of(singles), pair=pair, special_tokens=ids)
    level = step("ByteLevel", add_prefix_space=True, trim_offsets=bool(draw.below(2)), use_regex=True)
    bert = step("BertProcessing", **ends)
    roberta = step("RobertaProcessing", **ends, trim_offsets=True, add_prefix_space=bool(draw.below(2)))
    return draw.of([None, [template], [level], [bert], [roberta], [level, template], [bert, template]])


WITH_BYTES = [step("Replace", pattern=text("\u2581"), content=" "), step("ByteFallback"), step("Fuse"),
              step("Strip", content=" ", start=1, stop=0)]
DECODERS = [
    [None],
    [[step("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True)]],
    [[s] for s in options("Metaspace", replacement=["\u2581", "_"], prepend_scheme=("always", "first", "never"), split=BOTH)],
    [[s] for s in options("WordPiece", prefix=["##", "", "\u2581"], cleanup=BOTH)],
    [[s] for s in options("CTC", pad_token=["<unk>", "e"], word_delimiter_token=["|", "\u2581"], cleanup=BOTH)],
    [[step("BPEDecoder", suffix="</w>")], [step("BPEDecoder", suffix="e")]],
    [WITH_BYTES, [step("ByteFallback"), step("Fuse")], [step("ByteFallback")]],
    [[step("Fuse"), step("Strip", content=c, start=a, stop=b)] for c, a, b in ((" ", 2, 1), ("a", 1, 1), ("\n", 0, 3))],
    [[step("Strip", content=c, start=a, stop=b)] for c, a, b in ((" ", 1, 0), ("e", 1, 2))],
    [[step("Replace", pattern=p, content=c)] for p, c in (
        (text("\u0120"), " "), (regex(r"\p{N}"), "N"), (text("</w>"), " "), (text("e"), ""))],
]

CONTENTS = ["<mask>", "  ", "wide word", "the", "\u00c9", "ing", "\n\n", "<|x|>", "<|x|>y", "12", "Stra\u00dfe", "don", " x",
            "\u2581the", "e\u0301", "A", ".", "\U0001f600", "Model"]


def added(draw, document):
    """Some tokens with flags of all kinds, and special ones of the vocabulary."""
    tokens = [(name, {"special": True, "normalized": False}) for name in SPECIAL[:draw.below(4)]]
    left = list(CONTENTS)
    for _ in range(draw.of((0, 0, 2, 3, 5))):
        flags = {name: draw.below(3) == 0 for name in ("single_word", "lstrip", "rstrip", "special")}
        tokens.append((left.pop(draw.below(len(left))), flags | {"normalized": draw.below(2) == 0}))
    return tokens


def list_of_names(document):
    vocab = document["model"]["vocab"]
    return [v[0] for v in vocab] if isinstance(vocab, list) else list(vocab)


# ---- configurations ------------------------------------------------------------------------------------------------------

CUTS = {"truncation": [None, {"direction": "Right", "max_length": 7, "strategy": "LongestFirst", "stride": 0},
                       {"direction": "Left", "max_length": 9, "strategy": "LongestFirst", "stride": 2}],
        "padding": [None, {"strategy": {"Fixed": 12}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 2,
                           "pad_type_id": 0, "pad_token": "</s>"},
                    {"strategy": "BatchLongest", "direction": "Left", "pad_to_multiple_of": 8, "pad_id": 0,
                     "pad_type_id": 0, "pad_token": "<unk>"}]}


def in_a_row(steps, name):
    if not steps:
        return None
    return steps[0] if len(steps) == 1 else step("Sequence", **{name: list(steps)})


def configuration(model, normalizers=(), splitters=(), processor=None, decoder=None, tokens=(), truncation=None, padding=None):
    """A tokenizer.json, as the library writes it."""
    t = Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": truncation, "padding": padding, "added_tokens": [],
        "normalizer": in_a_row(normalizers, "normalizers"), "pre_tokenizer": in_a_row(splitters, "pretokenizers"),
        "post_processor": in_a_row(processor, "processors"), "decoder": in_a_row(decoder, "decoders"), "model": model}))
    for content, flags in tokens:
        t.add_tokens([AddedToken(content, **flags)])
    return json.loads(t.to_str())


def drawn(bases, row):
    """One candidate, and what it consists of: kinds of steps, by the part that they belong to."""
    draw = Draw(row)
    kind, vocabulary, changes = draw.of(MODELS)
    model = model_of(bases, vocabulary, changes)
    document = {"model": model}
    normalizers = [draw.below(len(NORMALIZERS)) for _ in range(draw.of((0, 1, 1, 2, 3)))]
    splitters = [draw.below(len(SPLITTERS)) for _ in range(draw.of((0, 1, 2, 2, 3, 3)))]
    decoder = draw.below(len(DECODERS))
    processor = processors(draw, document)
    tokens = added(draw, document)
    cuts = {name: draw.of(choices + [None] * 3) for name, choices in CUTS.items()}
    parts = {"model": [kind], "normalizer": normalizers, "splitter": splitters, "decoder": [decoder],
             "processor": [p["type"] for p in processor or []] or [None],
             "added": [flag for _, flags in tokens for flag in flags if flags[flag]] or [None],
             "truncation": [cuts["truncation"] is not None], "padding": [cuts["padding"] is not None]}
    return parts, lambda: configuration(model, [draw.of(NORMALIZERS[i]) for i in normalizers],
                                        [draw.of(SPLITTERS[i]) for i in splitters], processor, draw.of(DECODERS[decoder]),
                                        tokens, **cuts)


def pairs(parts):
    """Each kind beside each of another part; in one part, each before each that follows it."""
    flat = [(part, kind, i) for part, kinds in parts.items() for i, kind in enumerate(kinds)]
    return {(a[:2], b[:2]) for i, a in enumerate(flat) for b in flat[i + 1:]}


def says_much(name, document):
    """Whether most strings have ids of their own, and the library gives some for each."""
    t, strings = library(document), Strings(name, document)
    if any(a["normalized"] and t.normalizer and not t.normalizer.normalize_str(a["content"]) for a in document["added_tokens"]):
        return False                    # the library breaks where a token to find is empty
    ids = [encoded(t, strings.string(s), s % 2 == 1)[0] for s in range(TRIED)]
    return None not in ids and len({tuple(i) for i in ids}) > TRIED // 2


def chosen(bases):
    """Of some candidates the one with the most pairs that no configuration has yet, again and again."""
    have = set()
    for n in range(DRAWN):
        candidates = [drawn(bases, n * CANDIDATES + i) for i in range(CANDIDATES)]
        candidates.sort(key=lambda c: -len(pairs(c[0]) - have))
        for parts, make in candidates:
            name, document = f"drawn-{n:02d}", make()
            if says_much(name, document):
                break
        have |= pairs(parts)
        yield name, document
    print(len(have), "pairs of kinds")


def by_hand(bases):
    """Errors that were found, as small as they were found; and steps in the order of released files."""
    level, level_regex = (step("ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=r) for r in BOTH)
    bytes_, holes = bases["bytes"], bases["holes"]
    some = model_of(bases, "some", {"unk_token": "<unk>", "byte_fallback": True})
    digits, unk = step("Digits", individual_digits=False), {"unk_token": "<unk>"}
    letters = step("Split", pattern=regex(r"\p{L}+"), behavior="Isolated", invert=False)
    threes = step("Split", pattern=regex("[0-9]{3}"), behavior="Isolated", invert=False)
    decode = [step("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True)]
    blanks = [("<r>", {"rstrip": True, "normalized": False}), ("  ", {"normalized": False}), ("<l>", {"lstrip": True})]
    body = {"Sequence": {"id": "A", "type_id": 0}}
    twice = [step("TemplateProcessing", single=[body, body], pair=[body, {"Sequence": {"id": "B", "type_id": 0}}],
                  special_tokens={})]
    space = step("Metaspace", replacement="\u2581", prepend_scheme="always", split=False)
    bert = {"clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    nothing = model_of(bases, "wordlevel", {"unk_token": "none"})
    yield "bytes-unknown", configuration(holes | unk, (), [level_regex], None, decode)
    yield "bytes-left-out", configuration(holes, (), [level_regex], None, decode)
    yield "level-then-digits", configuration(bytes_, (), [level_regex, digits, threes], None, decode)
    yield "level-then-letters", configuration(bytes_, (), [level_regex, letters], None, decode)
    yield "level-twice", configuration(bytes_, (), [level_regex, level], None, decode)
    yield "cut-at-seven", configuration(bytes_, (), [level_regex], None, decode, truncation=CUTS["truncation"][1])
    yield "padded-to-twelve", configuration(bytes_, (), [level_regex], None, decode, padding=CUTS["padding"][1])
    yield "strips-then-blanks", configuration(bytes_, (), [level_regex], None, decode, blanks)
    yield "fallback-after-unknown", configuration(some, [step("Replace", pattern=text(" "), content="\u2581")], (), None,
                                                  WITH_BYTES[:3])
    yield "text-twice", configuration(bytes_, (), [level_regex], twice, decode)
    yield "no-decoder", configuration(bases["wordlevel"], (), [step("Whitespace")])
    yield "whole-metaspace", configuration(bases["characters"] | unk, (), [space], None, [space])
    yield "bert", configuration(bases["wordpiece"], [step("BertNormalizer", **bert)], [step("BertPreTokenizer")],
                                [step("BertProcessing", sep=["</s>", 2], cls=["<s>", 1])],
                                [step("WordPiece", prefix="##", cleanup=True)],
                                [(name, {"special": True, "normalized": False}) for name in SPECIAL])
    yield "t5", configuration(bases["unigram"], [step("NFKC"), step("Replace", pattern=regex(" {2,}"), content=" ")],
                              [step("WhitespaceSplit"), space | {"split": True}], None, [space | {"split": True}])
    yield "equal-scores", configuration(model_of(bases, "ties", {}), (), [space | {"split": True}], None, [space])
    yield "whole-words", configuration(model_of(bases, "fallback", {"ignore_merges": True, "byte_fallback": True}),
                                       [step("Replace", pattern=text(" "), content="\u2581")], (), None, WITH_BYTES[:3])
    yield "scripts", configuration(bases["wordlevel"], (), [step("UnicodeScripts")])
    yield "without-unknown", configuration(nothing, (), [step("Whitespace")])


def configurations(bases):
    yield from by_hand(bases)
    yield from chosen(bases)


def written(document):
    """Parts on lines of their own; a vocabulary and a list of merges are one line each."""
    def flat(value):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    model = ",\n".join(f"  {flat(k)}: {flat(v)}" for k, v in document["model"].items())
    parts = [f" {flat(k)}: {flat(v)}" for k, v in document.items() if k != "model"]
    return "{\n" + ",\n".join(parts + [f' "model": {{\n{model}\n }}']) + "\n}\n"


# ---- hashes --------------------------------------------------------------------------------------------------------------

def hash_of_ids(ids):
    return fnv1a(struct.pack(f"<{len(ids)}i", *ids))


def library(document, limits=False):
    """What to ask the library.  Without limits a text is neither cut nor filled, whatever the file says."""
    t = Tokenizer.from_str(json.dumps(document))
    if not limits:
        t.no_truncation()
        t.no_padding()
    return t


def obeys(s):
    """Whether the limits of the file are obeyed for a string."""
    return s % 3 == 2


REFUSED, BROKEN = 0, 1                  # instead of a hash: the library refuses the string; it stops with a panic


def asked(question):
    """What the library answers, and REFUSED or BROKEN if it gives none."""
    try:
        return question(), None
    except Exception:                   # which of its errors it is differs by model
        return None, REFUSED
    except BaseException as e:          # a panic is no Exception
        if type(e).__name__ != "PanicException":
            raise
        return None, BROKEN


def encoded(t, string, special):
    return asked(lambda: t.encode(string, add_special_tokens=special).ids)


def any_ids(name, document, s):
    """Ids that no text gives: drawn from the vocabulary and the added tokens."""
    seed = fnv1a(name.encode())
    ids = list(range(len(document["model"]["vocab"]))) + [a["id"] for a in document["added_tokens"]]
    return [ids[(mix(seed, s, p + 1) >> 8) % len(ids)] for p in range(mix(seed, s, 0) % 16)]


def hashes(name, document):
    """64 bits for each string: FNV-1a of its ids as numbers of 32 bits, with the tokens around a text if its number is odd,
    and for each third string cut and filled as `truncation` and `padding` say.  Then, for each tenth string, of the text of its ids without special tokens and with them; for string 10k with an odd k,
    of the text of `any_ids`.  REFUSED and BROKEN stand where there is nothing to hash."""
    t, limited, strings = library(document), library(document, True), Strings(name, document)
    all_ids = [encoded(limited if obeys(s) else t, strings.string(s), s % 2 == 1) for s in range(STRINGS)]
    rows = [none if ids is None else hash_of_ids(ids) for ids, none in all_ids]
    for s in range(0, STRINGS, DECODED_EVERY):
        ids = any_ids(name, document, s) if s // DECODED_EVERY % 2 else all_ids[s][0] or []
        for skip in (True, False):
            back, none = asked(lambda: t.decode(ids, skip_special_tokens=skip))
            rows.append(none if back is None else fnv1a(back.encode()))
    return struct.pack(f"<{len(rows)}Q", *rows)


def example(name, document):
    """The first string, with even number, that a line and a shell can hold: name, string, ids and text, with tabs between."""
    t, strings = library(document), Strings(name, document)
    for s in range(0, STRINGS, 2):
        string, (ids, _) = strings.string(s), encoded(t, strings.string(s), False)
        if ids and 12 < len(string) < 60 and string.isprintable() and not string.startswith("-"):
            back, none = asked(lambda: t.decode(ids, skip_special_tokens=False))
            if none is None and back.isprintable() and "\ufffd" not in back:
                return "\t".join((name, string, " ".join(map(str, ids)), back)) + "\n"
    return ""


def show(name, s):
    """What the library makes of a string, step by step."""
    document = json.loads((OUT / f"{name}.json").read_text(encoding="utf-8"))
    t, string = library(document, obeys(s)), Strings(name, document).string(s)
    print("string     ", ascii(string))
    normal = t.normalizer.normalize_str(string) if t.normalizer else string
    print("normalized ", ascii(normal), "(as a whole; added tokens are found first)")
    if t.pre_tokenizer:
        print("split      ", [ascii(p)[1:-1] for p, _ in t.pre_tokenizer.pre_tokenize_str(normal)])
    ids, none = encoded(t, string, s % 2 == 1)
    if ids is None:
        return print("refused" if none == REFUSED else "the library breaks")
    print("ids        ", *ids)
    print("tokens     ", [ascii(t.id_to_token(i))[1:-1] for i in ids])
    if s % DECODED_EVERY == 0:
        if s // DECODED_EVERY % 2:
            ids = any_ids(name, document, s)
            print("decoded ids", *ids)
            print("tokens     ", [ascii(t.id_to_token(i))[1:-1] for i in ids])
        for skip in (True, False):
            print("back       ", ascii(t.decode(ids, skip_special_tokens=skip)), "" if skip else "(with special tokens)")


# ---- files ---------------------------------------------------------------------------------------------------------------

def files():
    path = OUT / "vocabularies.json"
    bases = vocabularies() if NEW or not path.exists() else json.loads(path.read_text(encoding="utf-8"))
    rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False, separators=(',', ':'))}" for k, v in bases.items())
    yield path, ("{\n" + rows + "\n}\n").encode()
    yield OUT / "pieces.txt", "".join(json.dumps(row) + "\n" for row in PIECES).encode()
    names, examples = [], ""
    for name, document in configurations(bases):
        names.append(name)
        if not ONLY or name in ONLY:
            yield OUT / f"{name}.json", written(document).encode()
            yield OUT / f"{name}.hashes", hashes(name, document)
            examples += example(name, document)
    if not ONLY:
        yield OUT / "examples.txt", examples.encode()
    for path in sorted(OUT.glob("*.json")) + sorted(OUT.glob("*.hashes")):
        if path.stem not in names + ["vocabularies"]:
            yield path, None


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--check", action="store_true", help="compare with the files, and write nothing")
    p.add_argument("--new", action="store_true", help="learn the vocabularies again")
    p.add_argument("--show", nargs=2, metavar=("NAME", "STRING"), help="what the library makes of one string")
    p.add_argument("name", nargs="*", help="these alone")
    a = p.parse_args()
    NEW, ONLY = a.new, a.name
    if a.show:
        sys.exit(show(a.show[0], int(a.show[1])))
    OUT.mkdir(exist_ok=True)
    wrong = 0
    for path, data in files():
        there = path.read_bytes() if path.exists() else None
        if there != data or ONLY:
            did = "same" if there == data else "differs" if a.check else "written" if data else "removed"
            print(did, path.relative_to(ROOT), flush=True)
        wrong += there != data
        if not a.check and there != data:
            path.write_bytes(data) if data else path.unlink()
    print(wrong, "files differ" if a.check else "files written")
    sys.exit(1 if a.check and wrong else 0)
