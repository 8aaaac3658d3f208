# `orrery bench dispatch`: what it prints, figures that follow from closed forms, and what is refused.  Never how long anything takes here.
# tier: verify
. "$(dirname "$0")/lib.sh"

row() { sed -n "s/^{\"scheme\":\"$1\",\"ep\":$2,\"etp\":$3,\(.*\)}\$/\1/p" rows; }         # of rows.json, a line each

# 4 devices, 8 experts, 2 choices of 8 tokens of width 4: 16 rows of 32 bytes, of which 12 leave, 4 times, and counts: 3 x 32 bytes.
test_counts() {
    local name
    run bench dispatch --devices 4 --node 2 --experts 8 --choices 2 --tokens 8 --width 4 --json rows.json
    expect_status 0; expect_silent; expect_columns 130; expect_out '^ +alltoall +4 +1 '; expect_out '^ +two-step +2 +2 '
    expect_out '^  messages of an all-to-all: P-1 +3 +3 +==  '; expect_no_out DIFFERS
    tr -d '\t\n' <rows.json | sed 's/}, *{/}\n{/g; s/.*"rows":\[//; s/\].*//' >rows
    [[ $(row alltoall 4 1) == *'"messages":15,"bytes":1632,'*'"rows_computed":16,'* ]] || complain "alltoall: $(row alltoall 4 1)"
    [[ $(row alltoall-2dh 4 1) == *'"messages":11,"bytes":2144,'* ]] || complain "alltoall-2dh: $(row alltoall-2dh 4 1)"
    run list dispatch;          expect_status 0
    for name in $(sed -n 's/^  \([a-z][a-z0-9-]*\)  *[^ ].*/\1/p' "$place/out"); do
        [ "$name" = here ] || [ -n "$(row "$name" 4 1)" ] || complain "no row of $name on 4 devices"
    done
    [ "$(sed -n '/"planned"/,$p' rows.json | grep -c '"seconds":')" = 6 ] || complain 'not a planned step of each scheme'
    sed -n '/"planned"/,$p' rows.json | tr -d '\t\n' | grep -q '"scheme":"fssdp --copies 2","seconds":0.00[0-9]*,"than":"alltoall","times_as_fast":1\.[0-9]*,"source":"Hecate, ' ||
        complain 'the planned step of fssdp is not compared with that of alltoall'
    ! grep -q '"devices_unlike_formulas":1' rows || complain 'a device differs from the formulas'
}

test_claims() {
    run bench dispatch;                                 expect_status 0; expect_silent; expect_no_out DIFFERS
    expect_out '^  its bytes: \(m-1\)/m \+ 1 - m/P +1\.5 +1\.5 +==  '; expect_out 'nodes of 4'
    expect_out '^  fssdp --copies 2 .* yes  Hecate, arXiv:2502.02581: up to 3.54$'; expect_out ' yes  Tutel, .*: adaptive pipelining$'; expect_no_out ' NO  '
    run bench dispatch --devices 4 --node 4 --tokens 3; expect_status 0; expect_out '^No claims: '
}

test_refusals() {
    run bench dispatch --choices 9 --experts 8;         expect_status 2; expect_error '--choices 9: there are only 8 experts'
    run bench dispatch --cluster a100-ethernet;         expect_status 2; expect_error '--cluster a100-ethernet: must have two levels of links'
    run bench dispatch --devices 33;                    expect_status 2; expect_error '--devices 33: must be a whole number from 1 to 32'
    run bench dispatch --help;                          expect_status 0; expect_columns 100; expect_out '^usage: orrery bench dispatch \[options\]'
}

run_tests test_counts test_claims test_refusals
