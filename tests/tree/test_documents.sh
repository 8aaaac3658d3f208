# Documents are read by people whose second language is English: short paragraphs, short lists, narrow lines; each folder of code says what it
# is; an entry of the changelog is a line.  tests/tree/pages.awk says what a paragraph and a list are.
# tier: check
#
# Every violation is a line "FILE:LINE: what is wrong".

tree=.

# The pages of docs/, what is read first, what folders say of themselves.  Lessons have a rule of their own (tests/cli/test_lessons.sh).
pages() { (cd "$tree" && { ls README.md; find docs ref emulated_devices golden tests -name '*.md' -not -path '*/corpus/*'; } | sort); }

paragraphs_and_lists_are_short() { (cd "$tree" && awk -f "$here/pages.awk" $(pages)); }

# In characters, not bytes.
lines_are_narrow() {
    (cd "$tree" && awk -v lines=1 -f "$here/pages.awk" $(pages)) | LC_ALL=C.UTF-8 grep -E $'\t.{101}' | sed -E $'s/\t.*/: more than 100 columns/'
}

# Folders with five sources or more, and rooms.
folders_say_what_they_are() {
    local folder lines
    (cd "$tree" && for folder in $(find ref emulated_devices -name '*.[ch]' -o -name '*.cu' -o -name '*.cpp' | sed 's|/[^/]*$||' | sort | uniq -c |
            awk '$1 > 4 || $2 !~ /\/.*\// { print $2 }'); do
        lines=$(cat "$folder/README.md" 2>/dev/null | wc -l)
        [ "$lines" -ge 5 ] && [ "$lines" -le 25 ] || echo "$folder/README.md:$lines: it has not 5 to 25 lines"
    done)
}

# What pages about the code name is there: from the top, from the page's folder, or from a folder of tests or rooms.
named_files_are_there() {
    (cd "$tree" && grep -noE '`[A-Za-z0-9_./-]+\.(c|h|cu|cuh|cpp|sh|def|awk|md)`' $(find ref emulated_devices docs/adding -name '*.md' | sort) /dev/null | tr -d '`' |
        while IFS=: read -r page line name; do
            for from in . "${page%/*}" emulated_devices tests/{devices,devices/cuda,ref,cli,tree} ref tutorials; do
                [ ! -e "$from/$name" ] || continue 2
            done
            case $name in *NAME* | *mine* | name.* | check.c | calls.c) ;; *) echo "$page:$line: $name is not there" ;; esac
        done)
}

# A line each, of 20 words, the dash and the ticks of code not counted.
entries_are_a_line() {
    (cd "$tree" && awk '
        /^- / { if (NF > 21) printf "CHANGELOG.md:%d: an entry of %d words: 20 are the limit\n", FNR, NF - 1; entry = 1; next }
        entry && /^ *[^ ]/ && !/^#/ { printf "CHANGELOG.md:%d: an entry is one line\n", FNR }
        { entry = 0 }' CHANGELOG.md)
}

rule() {                                # rule NAME
    echo "[ RUN      ] $1"
    local found; found=$($1 2>&1)
    if [ -z "$found" ]; then echo "[       OK ] $1"; else printf '%s\n' "$found"; echo "[  FAILED  ] $1"; failed=1; fi
}

# Each rule speaks of a tree that breaks it, and of nothing else in it.
rules_find_what_breaks_them() {
    local tree words; tree=$(mktemp -d)
    mkdir -p "$tree"/{docs/adding,golden,tests} "$tree"/ref/{io,ops} "$tree"/emulated_devices/comm/deep
    touch "$tree"/ref/io/a.c "$tree"/emulated_devices/comm/{a,deep/{a,b,c,d,e}}.c
    printf '%s\n' '`a.c` `ref/io/a.c` `none.c`' 2 3 4 5 >"$tree/ref/io/README.md"
    printf '%s\n' 1 2 3 4 >"$tree/emulated_devices/comm/README.md"
    words=$(yes word | head -n 50 | tr '\n' ' ')
    { echo '# T'; printf '%s\n' "$words" "$words" | fold -s -w 90; echo; echo '| a |'; printf '| %s%s |\n' "$words" "$words"; echo; printf '    %s%s\n' "$words" "$words"; } >"$tree/docs/a.md"
    { printf '%s\n' "$words" "$words" | fold -s -w 90; echo one more; echo; seq -f '- item %g' 11; echo; echo text; seq -f '%g. item' 10; } >"$tree/docs/b.md"
    { printf '%0100d\n\n%0101d\n\n' 0 0; printf '[%098d](../docs/a.md)\n' 0; echo '```'; printf '%0101d\n' 0; echo '```'; } >"$tree/docs/c.md"
    { seq -f '- item %g' 6; printf '\n  more\n\n      %s%s%s\n\n' "$words" "$words" "$words"; seq -f '- item %g' 6; echo; echo '# H'; seq -f '- item %g' 6; } >"$tree/README.md"
    { echo "- ${words:0:99}"; echo; echo "- ${words:0:104}"; printf -- '- a\n  b\n'; } >"$tree/CHANGELOG.md"
    { paragraphs_and_lists_are_short; lines_are_narrow; folders_say_what_they_are; named_files_are_there; entries_are_a_line; } >"$tree/found" 2>&1
    for words in 'docs/b.md:1: a paragraph of 102 words' 'docs/b.md:9: a list of 11 items' 'README.md:1: a list of 12 items' 'docs/c.md:3: more than 100 columns' \
        'emulated_devices/comm/README.md:4: ' 'ref/io/README.md:1: none.c is not there' 'emulated_devices/comm/deep/README.md:0: ' 'CHANGELOG.md:3: an entry of 21 words' 'CHANGELOG.md:5: an entry is one line'; do
        grep -qF "$words" "$tree/found" || echo "a tree that breaks the rules: nothing says \"$words\""
    done
    [ "$(wc -l <"$tree/found")" = 9 ] || { echo 'a tree that breaks the rules 9 times:'; cat "$tree/found"; }
    rm -rf "$tree"
}

here=$PWD/tests/tree
for name in paragraphs_and_lists_are_short lines_are_narrow folders_say_what_they_are named_files_are_there entries_are_a_line rules_find_what_breaks_them; do rule $name; done
[ -z "${failed:-}" ]
