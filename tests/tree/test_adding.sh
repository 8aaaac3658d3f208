# What the pages of docs/adding copy and change is there: each line that a diff keeps or takes away is a line of a source, each file that
# is copied exists.  Of a line with "..." that is so of what is before and behind the dots.
# tier: check
. tests/cli/lib.sh

# The lines of diffs that must be in a source, without blanks at their ends: PAGE:NUMBER<tab>LINE.
kept() { awk '/^```/ { inside = /^```diff/; next } inside && /^[- ]/ { line = substr($0, 2); gsub(/^ +| +$/, "", line); if (line != "") printf "%s:%d\t%s\n", FILENAME, FNR, line }' "$@"; }

sources() { find "$top" \( -name '*.[ch]' -o -path '*/clusters/*.json' \) -not -path '*/build*' -print0 | xargs -0 cat | sed -E 's/^ +//; s/ +$//'; }

# Blanks before a backslash align lines, and are as many as the longest needs.
plain() { sed -E 's/ +\\$/ \\/'; }

# The given lines, PAGE:NUMBER<tab>LINE; those that no source has go to `wrong`.
without_a_source() {
    sources | plain | sort -u >lines
    while IFS=$'\t' read -r place line; do
        if [[ $line == *...* ]]; then grep -F -- "${line%%...*}" lines | grep -qF -- "${line##*...}"
        else grep -qxF -- "$line" lines; fi || echo "$place: no source has this line: $line"
    done < <(plain) >wrong
}

test_diffs_fit_the_sources() {
    command='docs/adding'
    (cd "$top" && kept docs/adding/*.md) >kept
    [ "$(wc -l <kept)" -ge 20 ] || complain 'the diffs have hardly any lines'
    without_a_source <kept
    [ ! -s wrong ] || complain "pages that differ from the sources: $(cat wrong)"
}

# A line that no source has is found, with the page; one whose blanks differ is not.
test_other_lines_are_found() {
    printf 'a.md:3\tstatic void nobody_wrote_this(void)\nb.md:4\tX(attention_scheme, attention_scheme_ring) \\\n' >kept
    without_a_source <kept
    [ "$(cat wrong)" = 'a.md:3: no source has this line: static void nobody_wrote_this(void)' ] || complain "what is wrong: $(cat wrong)"
}

test_copied_files_exist() {
    command='docs/adding'
    local page from
    while IFS=: read -r page from; do
        compgen -G "$top/$from" >/dev/null || compgen -G "$top/emulated_devices/$from" >/dev/null || [ -n "$(find "$top" -path "*/$from" -not -path '*/build*' -print -quit)" ] || echo "$page: cp $from"
    done < <(cd "$top" && grep -oE '^    cp (-r )?[^ ]+' docs/adding/*.md | sed -E 's/    cp (-r )?//') >wrong
    [ ! -s wrong ] || complain "pages copy what is not there: $(cat wrong)"
}

run_tests test_diffs_fit_the_sources test_other_lines_are_found test_copied_files_exist
