"""python3 -m orrery.diagnose FOLDER: who is slow or hangs, by flight-recorder dumps of PyTorch (orrery/flight.py)."""

import sys

from orrery.flight import diagnose_pytorch


def main(words):
    if len(words) != 1 or words[0] in ("-h", "--help"):
        print("usage: python3 -m orrery.diagnose FOLDER    dumps of PyTorch's flight recorder, one for each rank", file=sys.stderr)
        return 0 if words and words[0] in ("-h", "--help") else 2
    try:
        findings = diagnose_pytorch(words[0])
    except (OSError, ValueError) as why:
        print(f"orrery: {why}", file=sys.stderr)
        return 1
    for finding in findings:
        print(finding["sentence"])
    if not findings:
        print("OK: no rank stands out")
    return 3 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
