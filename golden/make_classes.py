"""Make ref/text/classes.h: the classes of characters that a tokenizer.json can name, and what normalizers and splitters
do with single characters, all asked of the library `tokenizers`.

    python golden/make_classes.py [--check]

Oniguruma, Rust and each of Rust's packages have a Unicode version of their own, so each table says whose it is.
Needs tokenizers (0.23.3).
"""
import argparse
import pathlib
import sys

from tokenizers import Regex, normalizers, pre_tokenizers
import tokenizers

from charsmap import charsmap

OUT = pathlib.Path(__file__).resolve().parent.parent / "ref" / "text" / "classes.h"
POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
ALL = "".join(map(chr, POINTS))

CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co").split()
PROPERTIES = ("Alpha Blank Lower Upper XDigit Emoji").split()
SCRIPTS = """Arabic Armenian Bengali Bopomofo Braille Cherokee Common Coptic Cyrillic Devanagari Ethiopic Georgian Glagolitic
Gothic Greek Gujarati Gurmukhi Han Hangul Hebrew Hiragana Inherited Javanese Kannada Katakana Khmer Lao Latin Malayalam
Mongolian Myanmar Nko Ogham Oriya Runic Sinhala Syriac Tamil Telugu Thaana Thai Tibetan Tifinagh Yi""".split()

STEPS = "s w_more rust_more numeric punctuation control bert_mark mark reordered composing extends".split()


# ---- classes -------------------------------------------------------------------------------------------------------------

def of_expression(expression):
    """Characters that Oniguruma matches, one by one."""
    kept = normalizers.Replace(Regex(expression), "").normalize_str(ALL)
    return set(POINTS) - set(map(ord, kept))


def of_splitter(splitter):
    """Characters that are a piece of their own: a character twice is split in two only if it is in the class."""
    return {c for c in POINTS if len(splitter.pre_tokenize_str(chr(c) * 2)) == 2}


def removed_by(splitter):
    return {c for c in POINTS if not splitter.pre_tokenize_str(chr(c))}


def dropped_by(normalizer):
    """Characters of which nothing is left."""
    return set(POINTS) - set(map(ord, normalizer.normalize_str(ALL)))


def reordered():
    """Marks that move to the place of their combining class."""
    nfc = normalizers.NFC()
    return {c for c in POINTS if nfc.normalize_str("1" + chr(c) + "\u0334").startswith("1\u0334")
            or nfc.normalize_str("1\u0327" + chr(c)).endswith("\u0327")}


def composing():
    """Characters that NFC, NFD, NFKC or NFKD of the library can change; it does not know those of a newer Unicode."""
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    known = reordered()
    for c in POINTS:
        parts = nfd.normalize_str(chr(c))
        if parts != chr(c):
            known |= {c} | set(map(ord, parts))
        elif nfkd.normalize_str(chr(c)) != chr(c):
            known.add(c)
    return known


def bert_marks():
    """Marks that BertNormalizer removes, if they are not made of others."""
    bert = normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False)
    nfd = normalizers.NFD()
    return {c for c in POINTS if bert.normalize_str(chr(c)) == "" and nfd.normalize_str(chr(c)) == chr(c)}


def classes():
    """Unions are not stored: the table `unions` of character_sets.c has them; the assertions
    say of what they consist."""
    yield "s", of_expression(r"\s"), "Oniguruma's \\s"
    for name in CATEGORIES + PROPERTIES + SCRIPTS:
        lower = name if name in CATEGORIES else name.lower()
        yield lower, of_expression(r"\p{" + name + "}"), f"Oniguruma's \\p{{{name}}}"
    both = of_expression(r"[\p{Alpha}\p{M}\p{Nd}\p{Pc}]")
    assert of_expression(r"\p{Alnum}") == of_expression(r"[\p{Alpha}\p{Nd}]")
    assert of_expression(r"\p{Cn}") == set(POINTS) - of_expression("[" + "".join(r"\p{" + n + "}" for n in CATEGORIES) + "]")
    assert of_expression(r"\p{Punct}") == of_expression(r"\p{P}")
    assert of_expression("[[:punct:]]") == of_expression(r"[\p{P}\p{S}]")
    assert of_expression(r"\p{Graph}") == set(POINTS) - of_expression(r"[\s\p{Cc}\p{Cn}]")
    assert of_expression(r"\p{Print}") == of_expression(r"[\p{Graph}\p{Zs}]")
    for stored, posix in (("Alpha", "alpha"), ("Blank", "blank"), ("Lower", "lower"), ("Upper", "upper"), ("XDigit", "xdigit"),
                          ("Cc", "cntrl"), ("Nd", "digit"), ("Graph", "graph"), ("Print", "print"), ("Alnum", "alnum")):
        assert of_expression(r"\p{" + stored + "}") == of_expression(f"[[:{posix}:]]"), posix
    assert of_expression(r"\w") >= both == of_expression(r"[\w]") == of_expression("[[:word:]]") and rust_words() >= both
    assert removed_by(pre_tokenizers.WhitespaceSplit()) == of_expression(r"\s") == of_expression("[[:space:]]")
    yield "w_more", of_expression(r"\w") - both, "Oniguruma's \\w outside brackets, besides alpha, M, Nd and Pc"
    yield "rust_more", rust_words() - both, "\\w of the splitter Whitespace, besides the same"
    yield "numeric", of_splitter(pre_tokenizers.Digits(individual_digits=True)), "the splitter Digits"
    yield "punctuation", of_splitter(pre_tokenizers.Punctuation("isolated")), "the splitter Punctuation"
    yield "control", dropped_by(normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False,
                                                           lowercase=False)) - white_of_bert(), "BertNormalizer removes them"
    yield "bert_mark", bert_marks(), "BertNormalizer removes them as accents"
    yield "mark", dropped_by(normalizers.StripAccents()), "StripAccents removes them"
    yield "reordered", reordered(), "marks that NFC moves"
    yield "composing", composing(), "NFC, NFD, NFKC and NFKD can change them"
    yield "extends", extending(), "Precompiled sees them as one with the character before them"


def extending():
    """Characters that make one group with the character before them: a table that replaces `a` replaces the group."""
    table = normalizers.Precompiled(charsmap({"a": "b"}))
    return {c for c in POINTS if table.normalize_str("a" + chr(c)) == "b"}


def rust_words():
    """A word and `a` are one piece."""
    split = pre_tokenizers.Whitespace()
    return {c for c in POINTS if len(split.pre_tokenize_str(chr(c) + "a")) == 1 and split.pre_tokenize_str(chr(c))}


def white_of_bert():
    """These become a blank, and so are not in the text either."""
    bert = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return {c for c in POINTS if bert.normalize_str(chr(c)) == " "}


# ---- lower case ----------------------------------------------------------------------------------------------------------

def lowered():
    """Ranges with one difference: (first, last, step, difference).  A character that becomes two is left out."""
    lower = normalizers.Lowercase()
    pairs = []
    for c in POINTS:
        text = lower.normalize_str(chr(c))
        assert len(text) == 1 or c == 0x130, hex(c)
        if text != chr(c) and len(text) == 1:
            pairs.append((c, ord(text) - c))
    rows = []
    for c, d in pairs:
        if rows and rows[-1][3] == d and c - rows[-1][1] <= 2 and (rows[-1][0] == rows[-1][1] or
                                                                   rows[-1][2] == c - rows[-1][1]):
            rows[-1][2] = c - rows[-1][1]
            rows[-1][1] = c
        else:
            rows.append([c, c, 1, d])
    return rows


# ---- the file ------------------------------------------------------------------------------------------------------------

def as_ranges(points):
    found = []
    for c in sorted(points):
        # No text has a surrogate, so a range may lead across them.
        if found and found[-1][1] in (c - 1, 0xD7FF if c == 0xE000 else c - 1):
            found[-1][1] = c
        else:
            found.append([c, c])
    return found


def filled(items):
    row = "   "
    for item in items:
        if len(row) + len(item) > 120:
            yield row
            row = "   "
        row += item
    yield row


def header():
    lines = ["/* classes.h -- classes of characters, as tokenizers " + tokenizers.__version__ + " has them.",
             " * Made by golden/make_classes.py.  ref/text/character_sets.c includes these tables. */",
             "#ifndef ORRERY_CLASSES_H", "#define ORRERY_CLASSES_H", "", '#include "ref/text/character_sets.h"', "",
             "/* Every step-th code point from first to last has its lower case at that distance. */",
             "struct lower_range { uint32_t first, last, step; int32_t distance; };", ""]
    tables = [], []
    for name, points, whose in classes():
        ranges = as_ranges(points)
        # Doxygen would take a backslash for a command of its own.
        lines.append("/* " + whose.replace("\\p", "").replace("\\", "class ") + " */")
        lines.append(f"static const struct character_range class_{name}[] = {{")
        lines += filled(f" {{ 0x{a:X}, 0x{b:X} }}," for a, b in ranges)
        lines.append("};")
        tables[name in STEPS].append(f'    {{ "{name}", class_{name}, {len(ranges)} }},')
        print(name, len(ranges), flush=True)
    lines += ["", "/* Expressions name these in braces, as {Lu}. */", "static const struct character_class property_classes[] = {"] + tables[0] + ["};"]
    lines += ["/* Steps ask these by their names. */", "static const struct character_class step_classes[] = {"] + tables[1] + ["};", ""]
    lines.append("static const struct lower_range lower_ranges[] = {")
    lines += filled(f" {{ 0x{a:X}, 0x{b:X}, {s}, {d} }}," for a, b, s, d in lowered())
    return "\n".join(lines + ["};", "", "#endif", ""])


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--check", action="store_true", help="compare with the file, and write nothing")
    a = p.parse_args()
    text = header()
    same = OUT.exists() and OUT.read_text() == text
    print("same" if same else "differs" if a.check else "written", OUT.name)
    if not a.check and not same:
        OUT.write_text(text)
    sys.exit(1 if a.check and not same else 0)
