"""Make golden/tokenizers/published/: the sections of released tokenizer.json files (published_tokenizers.py) over small
vocabularies, and hashes of what the library `tokenizers` makes of strings with them.

    python golden/make_published_tokenizers.py [--check] [NAME...]

    NAME.json   the tokenizer.json
    list.json   of each: its name, models that use it, the source, what is expected, and hashes

`expected` is "equal", or "refused: " and the words of the refusal.  The vocabularies are those of golden/pipelines, and so
are the strings: string s is number s of the configuration "published-NAME" (`Strings` of make_pipelines.py).  A hash is of
BLOCK strings in a row: of the count and the ids of each, with special tokens if s is odd; then of the text that these ids
become, with special tokens and without.  Needs tokenizers (0.23.3).
"""
import argparse
import base64
import json
import struct
import sys

from charsmap import charsmap
from make_pipelines import Strings, fnv1a, library
from published_tokenizers import PUBLISHED
import make_pipelines

ROOT = make_pipelines.ROOT
OUT = ROOT / "golden" / "tokenizers" / "published"
STRINGS, BLOCK = 600, 30

# What sentencepiece's nmt_nfkc does, for some characters.
REPLACED = {"\u00a0": " ", "\u3000": " ", "\u2003": " ", "\t": " ", "\n": " ", "\r": " ", "\u200b": " ", "\u0001": "", "\u007f": "",
            "\ufb01": "fi", "\ufb00": "ff", "\u00bd": "1\u20442", "\u00b2": "2", "\u2167": "VIII", "\u00aa": "a", "\uff21": "A",
            "\uff15": "5", "e\u0301": "\u00e9", "\u304b\u3099": "\u304c", "\u2126": "\u03a9", "\u2026": "...", "\ufefb": "\u0644\u0627",
            "\uff76\uff9e": "\u30ac", "\u01c5": "D\u017e", "\u0e33": "\u0e4d\u0e32"}

EXPECTED = {}                                   # name: words of a refusal


ONLY = []


def filled(o, ids):
    """Templates get their tokens, processors their ids, and the table of replacements is made."""
    if isinstance(o, list):
        return [filled(x, ids) for x in o]
    if not isinstance(o, dict):
        return o
    o = {k: filled(v, ids) for k, v in o.items()}
    if o.get("type") == "Precompiled":
        o["precompiled_charsmap"] = base64.b64encode(charsmap(REPLACED)).decode()
    if o.get("type") in ("RobertaProcessing", "BertProcessing"):
        o |= {k: [o[k], ids[o[k]]] for k in ("sep", "cls")}
    if o.get("type") == "TemplateProcessing":
        names = [p for p in o["single"] if p != "$A"]
        o["single"] = [{"Sequence": {"id": "A", "type_id": 0}} if p == "$A" else {"SpecialToken": {"id": p, "type_id": 0}}
                       for p in o["single"]]
        o["pair"] = o["single"] + [{"Sequence": {"id": "B", "type_id": 1}}]
        o["special_tokens"] = {n: {"id": n, "ids": [ids[n]], "tokens": [n]} for n in sorted(set(names))}
    return o


def document(entry, bases):
    model = json.loads(json.dumps(bases[entry["base"]])) | entry["flags"]
    unigram = isinstance(model["vocab"], list)
    if entry["base"] == "wordpiece" and not entry["flags"]:
        model["vocab"] = {"[UNK]" if k == "<unk>" else k: v for k, v in model["vocab"].items()}
        model["unk_token"] = "[UNK]"
    ids = {v[0]: i for i, v in enumerate(model["vocab"])} if unigram else dict(model["vocab"])
    if model.get("unk_token") and model["unk_token"] not in ids:        # CLIP's unknown token is its last
        ids[model["unk_token"]] = model["vocab"][model["unk_token"]] = len(ids)
    for name in entry["inside"]:
        ids[name] = model["vocab"][name] = len(ids)
    for name, _ in entry["tokens"]:
        ids.setdefault(name, len(ids))
    added = [{"id": ids[name], "content": name, "single_word": "w" in flags, "lstrip": "l" in flags, "rstrip": "r" in flags,
              "normalized": "n" in flags, "special": "s" in flags} for name, flags in entry["tokens"]]
    if entry["without_type"]:
        del model["type"]
    parts = {k: filled(entry[k], ids) for k in ("normalizer", "pre_tokenizer", "post_processor", "decoder")}
    return ({"version": "1.0", "truncation": None, "padding": None} | entry["top"] |
            {"added_tokens": sorted(added, key=lambda a: a["id"])} | parts | {"model": model})


def text_hash_input(text):
    data = text.encode()
    return struct.pack("<i", len(data)) + data


def hashes(name, doc):
    t, strings, rows = library(doc), Strings("published-" + name, doc), []
    for first in range(0, STRINGS, BLOCK):
        data = b""
        for s in range(first, first + BLOCK):
            ids = t.encode(strings.string(s), add_special_tokens=s % 2 == 1).ids
            data += struct.pack(f"<{len(ids) + 1}i", len(ids), *ids)
            # The library's BPEDecoder stops at no tokens.
            for skip in (False, True) if ids else ():
                try:
                    data += text_hash_input(t.decode(ids, skip_special_tokens=skip))
                except BaseException as e:
                    if type(e).__name__ != "PanicException":
                        raise
        rows.append(f"{fnv1a(data):016x}")
    return rows


def files():
    bases = json.loads((ROOT / "golden/pipelines/vocabularies.json").read_text(encoding="utf-8"))
    path = OUT / "list.json"
    old = {e["name"]: e for e in json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}
    rows = []
    for entry in PUBLISHED:
        name = entry["name"]
        row = {k: entry[k] for k in ("name", "models", "source")} | {"expected": "equal"}
        if name in EXPECTED:
            row["expected"] = "refused: " + EXPECTED[name]
        if not ONLY or name in ONLY:
            doc = document(entry, bases)
            row["hashes"] = hashes(name, doc)
            yield OUT / f"{name}.json", json.dumps(doc, ensure_ascii=False, separators=(",", ":")) + "\n"
        else:
            row = old[name]
        rows.append(row)
    yield path, "[\n" + ",\n".join(json.dumps(r, ensure_ascii=False) for r in rows) + "\n]\n"


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--check", action="store_true", help="compare with the files, and write nothing")
    p.add_argument("name", nargs="*", help="these alone")
    a = p.parse_args()
    ONLY = a.name
    OUT.mkdir(exist_ok=True)
    wrong = 0
    for path, text in files():
        same = path.exists() and path.read_text(encoding="utf-8") == text
        print("same" if same else "differs" if a.check else "written", path.relative_to(ROOT), flush=True)
        wrong += not same
        if not a.check and not same:
            path.write_text(text, encoding="utf-8")
    sys.exit(1 if a.check and wrong else 0)
