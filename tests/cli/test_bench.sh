# The tables of `orrery bench` that are not about speed.
. "$(dirname "$0")/lib.sh"

# Twelve settings, five schedules without a difference in any digit; a column says what the interleaved one differs by.
test_published_table() {
    run bench schedules;                                expect_status 0; expect_silent; expect_columns 100
    [ "$(grep -cE '^[0-9.]+B +[0-9]+ +[0-9]+( [0-9.]{6} [0-9.]{6}){2} +\+[0-9]+( [0-9.]{6} [0-9.]{6}){4}$' "$place/out")" = 12 ] ||
        complain 'not twelve rows without differences'
    expect_out '^28.3B 32 256 0.1352 0.1352 0.0624 0.0641 \+17 0.0594 0.0594 0.0257 0.0257 0.0594 0.0594 0.0018 0.0018$'
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

run_tests test_published_table test_all_schedules test_topics
