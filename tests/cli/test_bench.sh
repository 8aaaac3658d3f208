# The tables of `orrery bench` that are not about speed.
. "$(dirname "$0")/lib.sh"

# Twelve settings, five schedules without a difference in any digit; a column says what the interleaved one differs by.
test_published_table() {
    run bench schedules;                                expect_status 0; expect_silent; expect_columns 100
    [ "$(grep -cE '^[0-9.]+B +[0-9]+ +[0-9]+( [0-9.]{6} [0-9.]{6}){2} +\+[0-9]+( [0-9.]{6} [0-9.]{6}){4}$' "$place/out")" = 12 ] ||
        complain 'not twelve rows without differences'
    expect_out '^28.3B 32 256 0.1352 0.1352 0.0624 0.0641 \+17 0.0594 0.0594 0.0257 0.0257 0.0594 0.0594 0.0018 0.0018$'
}

# Formulas that ours equal, and those of the v family, which ours are at most.
test_published_formulas() {
    run bench schedules
    expect_out '^counts 2vP-P-2 waits .* gives 12 of its 12 rates'
    expect_out '^dualpipe +\(P/2-1\)\(F&B\+B-3W\) +6 +8 +4 +54 +54 '
    expect_out '^dualpipev +\(P-1\)\(F&B\+B-3W\) +6 +8 +4 +126 +126 '
    expect_out '^zb-v +0 +6 +6 +6 +0 +0 '
    [ "$(grep -cE '^  [a-z0-9-]+ +P=64 M=512 +0\.[0-9]+' "$place/out")" = 16 ] || complain 'not 16 schedules made for P=64, M=512 in under a second'
}

test_all_schedules() {
    run bench schedules --pp 4 --micro 8
    expect_out '^1f1b +1 +27\.27 % +33 +4 +48 +yes$'                # bubble (P-1)/(M+P-1); memory P; messages 2 M (P-1)
    expect_out '^gpipe +1 +27\.27 % +33 +8 +48 +yes$'               # memory M
    expect_out '^zb-h1 +1 +11\.11 % '                               # (P-1)/(3M+P-1)
    expect_out '^zb-v +2 +0\.00 % +24 +4 '
    run bench schedules --pp 3 --micro 4;               expect_status 0; expect_out '^chimera +needs P even'
}

test_topics() {
    run bench --help;                                   expect_status 0; expect_out '^  schedules '
    run bench schedul;                                  expect_status 2; expect_error 'did you mean schedules\?'
    run bench schedules --pp 0;                         expect_status 2; expect_error '--pp 0'
    run bench schedules --help;                         expect_status 0; expect_columns 100
}

run_tests test_published_table test_published_formulas test_all_schedules test_topics
