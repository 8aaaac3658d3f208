"""The table of replacements that sentencepiece stores and the normalizer Precompiled reads, made from a dict.

make_published_tokenizers.py and make_classes.py call `charsmap`.  The table is: how many bytes the trie has, in 32 bits;
the trie, a double array as darts-clone has it; the texts, each with a byte 0 at its end.
"""
import struct


def charsmap(replacements):
    """The bytes of the table.  Keys and values are texts."""
    texts, place = b"", {}
    for value in sorted(set(replacements.values())):
        place[value] = len(texts)
        texts += value.encode() + b"\0"
    trie = {}
    for key, value in replacements.items():
        node = trie
        for byte in key.encode():
            node = node.setdefault(byte, {})
        node[0] = place[value]                  # a child 0 has where the text begins
    units, taken = {0: 0}, {0}
    waiting = [(trie, 0)]
    while waiting:
        node, at = waiting.pop(0)
        base = next(b for b in range(1, 1 << 20) if not any(b ^ byte in taken for byte in node))
        units[at] |= (at ^ base) << 10
        for byte, child in node.items():
            taken.add(base ^ byte)
            if byte == 0:
                units[at] |= 1 << 8             # a key ends at the parent
                units[base] = child | 1 << 31
            else:
                units[base ^ byte] = byte
                waiting.append((child, base ^ byte))
    array = [units.get(i, 0) for i in range((max(units) | 255) + 1)]
    return struct.pack(f"<I{len(array)}I", 4 * len(array), *array) + texts
