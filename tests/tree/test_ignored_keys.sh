# A key of config.json that changes no number stands in one list, with a reason that the list and docs/using/model_files.md both have.
# tier: check

list=ref/model/config_json/ignored.def page=docs/using/model_files.md

# Reasons that the page does not have, and keys whose reason is none of the list's.
reasons_are_told() {
    sed -nE 's/^REASON\([A-Z]+, "(.*)"\)$/\1/p' "$list" | while read -r text; do
        grep -qF "| $text |" "$page" || echo "$page: has no row: $text"
    done
    comm -23 <(sed -nE 's/^IGNORED\(".*", ([A-Z]+)\).*/\1/p' "$list" | sort -u) <(sed -nE 's/^REASON\(([A-Z]+),.*/\1/p' "$list" | sort -u) |
        sed "s|^|$list: no such reason: |"
}

# A key that two lines name, or that a line of another form names.
keys_stand_once() {
    sed -nE 's/^IGNORED\("(.*)", [A-Z]+\).*/\1/p' "$list" | sort | uniq -d | sed "s|^|$list: is there twice: |"
    grep -n '^IGNORED' "$list" | grep -vE '^[0-9]+:IGNORED\("[^"]+", [A-Z]+\)' | sed "s|^|$list:|"
}

check() {
    local found
    echo "[ RUN      ] $1"
    if found=$("$2") && [ -z "$found" ]; then echo "[       OK ] $1"; else echo "$found"; echo "[  FAILED  ] $1"; failed=1; fi
}

failed=
check reasons_stand_in_the_page reasons_are_told
check keys_stand_once keys_stand_once
[ -z "$failed" ]
