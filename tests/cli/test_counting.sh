# A backend of one's own, in a plug-in: docs/authors/backends.md, "Adding a backend".
. "$(dirname "$0")/lib.sh"

test_a_counting_backend() {
    train --plugin "$top/tutorials/plugins/counting.c" --backend counting --dp 2 --steps 1 --check ref
    expect_status 0; expect_out '^OK: every activation'
    [ "$(grep -c '^counting: [1-9][0-9]* operations; [1-9][0-9]* allocations' "$place/err")" -eq 2 ] || complain 'each device says what it counted'
}

run_tests test_a_counting_backend
