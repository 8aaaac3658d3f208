#!/usr/bin/env bash
# Whether two safetensors files have the same bits; if not, which tensor is the first that differs.  Usage: same_tensors.sh A B
#
# cmp alone names a byte.  The header says which tensor it belongs to: 8 bytes of length, then JSON.
set -u
cmp -s "$1" "$2" && exit 0
{ [ -r "$1" ] && [ -r "$2" ]; } || { echo "there is no $1 or no $2"; exit 1; }
length() { od -An -t u8 -N 8 "$1" | tr -d ' '; }
header() { tail -c +9 "$1" | head -c "$(length "$1")"; }
if [ "$(header "$1")" != "$(header "$2")" ]; then echo "${1##*/}: other tensors than in $2"; exit 1; fi
byte=$(cmp "$1" "$2" | sed -E 's/.* (byte|char) ([0-9]+),.*/\2/')
header "$1" | grep -oE '"[^"]+" *: *\{[^{}]*"data_offsets" *: *\[ *[0-9]+ *, *[0-9]+ *\]' |
    awk -v at=$((byte - 9 - $(length "$1"))) -v file="${1##*/}" -F '"' '
        { name = $2; n = split($0, w, /[^0-9]+/); while (n > 1 && w[n] == "") n--
          if (at >= w[n - 1] && at < w[n]) print file ": " name " differs from byte " at - w[n - 1] " on" }'
exit 1
