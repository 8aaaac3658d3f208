# docs/checking/backend_authors.md as it is written: a golden file, a program that shares nothing with ours, and for each of its bugs the line that the page has.
. "$(dirname "$0")/lib.sh"

page=$top/docs/checking/backend_authors.md

# The commands of the page that make the golden file and the program's dumps, as they are typed there.
follow() {
    ln -s "$program" orrery
    grep -E '^    (seq|orrery golden make|cc|\./own_program)' "$page" | sed "s|\.\./golden|$top/golden|" >steps
    command='the steps of the page'
    [ "$(wc -l <steps)" = 5 ] || complain "the page has $(wc -l <steps) commands, not 5"
    PATH=$PWD:$PATH watched bash -e steps;                  expect_status 0; expect_silent
}

# The table's rows, and the bug that the text explains.
bugs() {
    echo 'scale act/h.0.attn.heads act/h.0.attn.qkv'
    sed -nE 's/^\| `([a-z]+)` \| `([^`]*)` \| `([^`]*)` \|.*/\1 \2 \3/p' "$page"
}

test_the_page() {
    local bug first before found=0
    follow
    run check own.safetensors good.safetensors;             expect_status 0; expect_silent
    expect_out "$(grep -m 1 '^OK: ' "$page")"
    run check own.safetensors bad.safetensors;              expect_status 3
    while read -r line; do grep -qF "$line" "$place/out" || complain "not as on the page: $line"; done < <(grep -A 2 '^first to differ' "$page" | sed -n '1p;3p')
    while read -r bug first before; do
        found=$((found + 1))
        ./own_program own.safetensors bug.safetensors "$bug" || complain "own_program $bug"
        run check own.safetensors bug.safetensors;          expect_status 3; expect_error "$first (differs|is not what its own inputs give)"
        expect_out "^first to (differ|be wrong by itself), in order of execution: $first"; [ "$before" = - ] || expect_out "^  before    $before holds"
    done < <(bugs)
    [ $found = 6 ] || complain "the page has $found bugs, not 6"
}

run_tests test_the_page
