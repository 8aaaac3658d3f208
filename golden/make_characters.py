"""Make golden/tokenizers/characters.json: what each normalizer and splitter of the library `tokenizers`, and classes of
its expressions, make of every code point of planes 0 and 1.

    python golden/make_characters.py [--check]

Every row is a step and a hash of each CHUNK of code points, surrogates left out.  The text of TEXT code points is these with
a q before each.  A tokenizer with the step, and a token for each byte, turns it into ids; the hash is FNV-1a of the ids of
the texts of the chunk, as numbers of 32 bits, each list with its length before it.  Needs tokenizers (0.23.3).
"""
import argparse
import json
import struct
import sys

from tokenizers import Tokenizer

from make_pipelines import LETTERS, ROOT, fnv1a
from make_published_tokenizers import filled
from published_tokenizers import BERT, CHARSMAP, KIMI, kind, split

OUT = ROOT / "golden" / "tokenizers" / "characters.json"
PLANES, CHUNK, TEXT = 0x20000, 1 << 13, 32

EXPRESSIONS = [r"\w+", r"[\w]+", r"\W", r"\d", r"\p{Han}+", r"[\p{Lu}\p{Lo}&&[^\p{Han}]]+", r"[[:punct:]]", r"[[:^alpha:]]+",
               r"[^(\s|[.,!?])]+", r"q\b", r"\p{Cn}", r"\p{Graph}", r"\p{^L}", r"\p{Greek}|\p{Cyrillic}", KIMI]


def steps():
    for name in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"):
        yield {"normalizer": kind(name)}
    yield {"normalizer": BERT}
    yield {"normalizer": BERT | {"clean_text": False, "handle_chinese_chars": False, "strip_accents": True, "lowercase": False}}
    yield {"normalizer": filled(CHARSMAP, {})}
    for name in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer"):
        yield {"pre_tokenizer": kind(name)}
    yield {"pre_tokenizer": kind("Punctuation", behavior="Contiguous")}
    yield {"pre_tokenizer": kind("Digits", individual_digits=True)}
    for expression in EXPRESSIONS:
        yield {"pre_tokenizer": split(expression)}


def document(step):
    """Pieces are told apart because a byte q gets a blank before it: ByteLevel puts one before each piece."""
    level = kind("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=False)
    before = [step["pre_tokenizer"]] if "pre_tokenizer" in step else []
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": step.get("normalizer"),
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": before + [level]}, "post_processor": None, "decoder": level,
            "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(LETTERS)}, "merges": []}}


def hashes(t):
    points = [c for c in range(PLANES) if not 0xD800 <= c < 0xE000]
    for first in range(0, len(points), CHUNK):
        data = b""
        for at in range(first, min(first + CHUNK, len(points)), TEXT):
            ids = t.encode("".join("q" + chr(c) for c in points[at:at + TEXT])).ids
            data += struct.pack(f"<{len(ids) + 1}i", len(ids), *ids)
        yield f"{fnv1a(data):016x}"


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--check", action="store_true", help="compare with the file, and write nothing")
    a = p.parse_args()
    rows = []
    for step in steps():
        doc = document(step)
        rows.append(json.dumps({"tokenizer": doc, "hashes": list(hashes(Tokenizer.from_str(json.dumps(doc))))}, ensure_ascii=False,
                               separators=(",", ":")))
        print(str(step)[:100], flush=True)
    text = "[\n" + ",\n".join(rows) + "\n]\n"
    same = OUT.exists() and OUT.read_text(encoding="utf-8") == text
    print("same" if same else "differs" if a.check else "written", OUT.name)
    if not a.check and not same:
        OUT.write_text(text, encoding="utf-8")
    sys.exit(1 if a.check and not same else 0)
