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
    [ "$(grep -cE '^  [a-z0-9-]+ +P=64 M=512 +[0-9]+\.[0-9]+' "$place/out")" = 16 ] || complain 'not 16 schedules made and timed for P=64, M=512'
}

test_all_schedules() {
    run bench schedules --pp 4 --micro 8
    expect_out '^1f1b +1 +27\.27 % +33 +4 +48 +yes$'                # bubble (P-1)/(M+P-1); memory P; messages 2 M (P-1)
    expect_out '^gpipe +1 +27\.27 % +33 +8 +48 +yes$'               # memory M
    expect_out '^zb-h1 +1 +11\.11 % '                               # (P-1)/(3M+P-1)
    expect_out '^zb-v +2 +0\.00 % +24 +4 '
    run bench schedules --pp 3 --micro 4;               expect_status 0; expect_out '^chimera +needs P even'
}

# Figures that follow from closed forms by hand: 8 (P-1)/P; keeps 4 + 12/P and what statistics add; 4 + 30 bytes and 5 S H/D.
test_tensor() {
    run bench tensor --width 64 --heads 8 --seq 64 --batch 128 --devices 9
    expect_status 0; expect_silent; expect_columns 100
    expect_out '^ +1  one device +0\.000 +0\.000 +16\.188 +12\.203$'
    expect_out '^ +2  1d +4\.000 +4\.000 '
    expect_out '^ +8  1d +7\.000 +7\.000 '
    expect_out '^ +4  2d '
    expect_out '^ +8  2\.5d '
    expect_out '^ +8  3d '
    [ "$(grep -cE '^ +5 ' "$place/out")" = 4 ] || complain 'five devices are neither a square nor a cube'
    expect_out '^  softmax, mask, what it drops +40\.000 '
    expect_out '^  sum +74\.000 '
    run bench tensor --width 10 --heads 3;              expect_status 2; expect_error '--heads 3: does not divide --width 10'
    run bench tensor --help;                            expect_status 0; expect_columns 100
}

test_topics() {
    run bench --help;                                   expect_status 0; expect_out '^  schedules '
    run bench schedul;                                  expect_status 2; expect_error 'did you mean schedules\?'
    run bench schedules --pp 0;                         expect_status 2; expect_error '--pp 0'
    run bench schedules --help;                         expect_status 0; expect_columns 100
}

run_tests test_published_table test_published_formulas test_all_schedules test_tensor test_topics
