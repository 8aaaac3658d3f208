# Every operation on any tensors that a backend may take over is tried on all backends, in test_backend_entries.c.  Operations of
# ref/ops/ops.def are tried by their rows there.
# tier: check
entries_of() {                          # entries_of FILE FIRST LAST: names of the functions in a struct or a list
    sed -n "/$2/,/$3/p" "$1" | grep -oE "$4" | sed 's|[^a-z_0-9]||g' | sort -u
}

check() {                               # check NAME LIST FILE: a row of FILE, X(word, for each word of LIST
    echo "[ RUN      ] $1"
    local missing= n=0 word
    for word in $2; do
        n=$((n + 1))
        grep -qE "X\($word," "$3" || missing+=" $word"
    done
    if [ -z "$missing" ] && [ $n -gt 10 ]; then echo "[       OK ] $1"; return; fi
    echo "$n operations; $3 does not try:$missing"
    echo "[  FAILED  ] $1"
    failed=1
}

failed=0
check every_entry_has_a_row "$(entries_of emulated_devices/device/backend.h '^#define OPTIONAL_ENTRIES' '^$' '^    X\([a-z_0-9]+')" tests/devices/test_backend_entries.c
exit $failed
