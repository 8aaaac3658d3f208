# Every command that README.md and docs/ print is run as printed, in order, in a fresh folder, and prints what the page says.  In `make test` a
# few pages that take seconds, in `make verify` all but those of docs/adding, which change the tree (tests/tree/test_adding.sh).
. "$(dirname "$0")/lib.sh"
documents=$top/tests/documents

pages() {
    case ${TIER:-test} in
        verify) (cd "$top" && { ls README.md; find docs -name '*.md' -not -path 'docs/adding/*'; } | sort) ;;
        *) printf '%s\n' docs/checking/bugs.md docs/concepts/zero.md docs/parallelism/batches.md ;;
    esac
}

run_documents() { ORRERY=$program bash "$documents/run.sh" "$@"; }

test_pages() {
    local page seconds=20000
    for page in $(pages); do
        [ -n "$(awk -f "$documents/commands.awk" "$top/$page" | grep -m 1 '^C')" ] || continue
        command="bash tests/documents/run.sh $page"; watched run_documents "$page"; expect_status 0
        tail -n 1 "$place/out"
    done
}

# What run.sh is there to see: a command that fails, a line that is not printed, a number that is another.
test_what_is_wrong_is_seen() {
    mkdir -p "$place/tree/docs" "$place/tree/tests" && cp -R "$documents" "$place/tree/tests/"
    : >"$place/tree/tests/documents/exceptions.txt"
    mkdir "$place/tree"/{golden,tutorials,ref,emulated_devices} && touch "$place/tree"/{README.md,Makefile}
    page() { printf '%s\n' "$@" >"$place/tree/docs/page.md"; command="run.sh on: $*"
             watched env ORRERY="$program" bash "$place/tree/tests/documents/run.sh" docs/page.md; }
    page 'Words.' '' '    ./orrery list ring' '    printf "%s\n" 5 7 >numbers' '    cat numbers' '' '    5' '    7'
    expect_status 0; expect_out '^1 pages, 3 commands run, 0 not; 0 took more than 300 s; 0 are not as shown$'
    page '    ./orrery lsit ring';                              expect_status 1; expect_out '^docs/page.md:1: status 2: \./orrery lsit ring$'
    page '```' '$ echo 5' '6' '```';                            expect_status 1; expect_out '^docs/page.md:3: shown: 6$'; expect_out '^    printed: 5$'
    page '```' '$ echo five' 'five' 'six' '```';                expect_status 1; expect_out '^docs/page.md:4: shown: six$'
    page '```' '$ ./orrery lsit' 'orrery: lsit: there is ..' '```'; expect_status 0
    page '```' '$ ./orrery list ring' 'orrery: no' '```';       expect_status 1
    page '    ./orrery check A --against FILE';                 expect_status 0; expect_out '0 commands run, 1 not'
    printf 'ends docs/page.md ^false  # nothing\n' >"$place/tree/tests/documents/exceptions.txt"
    page '    echo';                                            expect_status 1; expect_out 'of no use: ends docs/page.md \^false$'
}

run_tests test_pages test_what_is_wrong_is_seen
