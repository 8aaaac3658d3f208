# docs/troubleshooting.md quotes what the program says: each text stands in the sources, so that a reader who searches for a line finds it.
# tier: check

page=docs/troubleshooting.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Each literal of the sources on a line, as the compiler joins it; what a macro prints, such as PRId64, is left out.
literals() {
    find ref emulated_devices -name '*.[ch]' | sort | xargs awk '
        function flush(   n) {
            gsub(/\\\\/, "", text); gsub(/\\"/, "", text)
            gsub(/'"'\"'"'/, "", text)
            gsub(/" *(PRI[a-zA-Z0-9]+ *)*"/, "", text)
            while ((n = index(text, "\"")) > 0) {
                text = substr(text, n + 1); n = index(text, "\"")
                if (n == 0) break
                print substr(text, 1, n - 1); text = substr(text, n + 1)
            }
            text = ""
        }
        FNR == 1 { flush(); inside = 0 }
        { line = $0; sub(/^ +/, "", line) }
        inside { if (!sub(/^.*\*\//, "", line)) next; inside = 0 }
        { gsub(/\/\*([^*]|\*[^\/])*\*\//, "", line); if (sub(/\/\*.*$/, "", line)) inside = 1; text = text line " " }
        END { flush() }'
}

# The first column of the tables, what stands between backquotes; .. is anything.
quotes() {
    sed -nE 's/^\| `([^`]*)` \|.*/\1/p' "$page"
}

echo '[ RUN      ] quoted_texts_are_in_the_sources'
literals >"$work/literals"
quotes >"$work/quotes"
while IFS= read -r quote; do
    pattern=$(sed -E 's/[][().*+?^$|{}\\]/\\&/g; s/(\\\.){2}/.*/g' <<<"$quote")
    grep -qE -- "$pattern" "$work/literals" || { echo "$page: no source says: $quote"; failed=1; }
done <"$work/quotes"
[ "$(wc -l <"$work/quotes")" -ge 50 ] || { echo "$page: quotes $(wc -l <"$work/quotes") texts, not 50 or more"; failed=1; }
if [ -z "${failed:-}" ]; then echo '[       OK ] quoted_texts_are_in_the_sources'; else echo '[  FAILED  ] quoted_texts_are_in_the_sources'; exit 1; fi
