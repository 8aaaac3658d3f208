# `orrery bench attention`: what it prints, figures that follow from closed forms, and what is refused.  Never how long anything takes here.
# tier: verify
. "$(dirname "$0")/lib.sh"

small="bench attention --seq 64 --heads 8 --head-width 2 --dtype fp32"

row() { sed -n "s/^{\"devices\":$1,\"scheme\":\"$2\",\(.*\)}\$/\1/p" rows; }     # of rows.json, a line each

# S D = 64 x 16, P = 4, in 4 bytes: ulysses sends 4 S D (P-1)/P^2 each way in 6 messages; a ring 2 S D (P-1)/P, and backward 2 S D more.
test_counts() {
    local name schemes
    run $small --devices 1,4 --claims no --wall 0 --json rows.json
    expect_status 0; expect_silent; expect_columns 100
    expect_out '^8 key/value heads, width 2, fp32, on h100-infiniband, nodes of 4\.$'
    expect_out '^ +1 +one device +[0-9.]+ +[0-9.]+ +1\.00 +0 +0\.000 +0\.000 +0\.[0-9]+$'
    tr -d '\t\n' <rows.json | sed 's/}, *{/}\n{/g; s/.*"rows":\[//; s/\].*//' >rows
    run list attention;                                 expect_status 0
    schemes=$(sed -n 's/^  \([a-z][a-z0-9-]*\)  *[^ ].*/\1/p' "$place/out")
    for name in $schemes; do
        case $name in whole | streams) continue ;; esac             # they do not cut sequences
        [ -n "$(row 4 "$name")" ] || complain "no row of $name on 4 devices"
    done
    [[ $(row 4 ulysses) == *'"messages":12,"bytes":6144,"bytes_between_nodes":0,'* ]] || complain "ulysses: $(row 4 ulysses)"
    [[ $(row 4 ring) == *'"messages":10,"bytes":20480,"bytes_between_nodes":0,'* ]] || complain "ring: $(row 4 ring)"
    ! grep -q '"devices_unlike_formulas":1' rows || complain 'a device differs from the formulas'
}

# C = 4 on nodes of 2: at the edge of a node all of a ring's 3 C - 2 messages leave it; with windows of 2 there are 2 more, and 4 leave it.
test_between_nodes() {
    run $small --devices 4 --node 2 --head-parallel 1 --ring-window 2 --claims no --wall 0 --json rows.json --quiet
    expect_status 0; expect_silent; [ ! -s "$place/out" ] || complain 'something is printed with --quiet'
    tr -d '\t\n' <rows.json | sed 's/}, *{/}\n{/g; s/.*"rows":\[//; s/\].*//' >rows
    [[ $(row 4 ring-zigzag) == *'"messages":10,"bytes":20480,"bytes_between_nodes":20480,'* ]] || complain "ring-zigzag: $(row 4 ring-zigzag)"
    [[ $(row 4 loongtrain) == *'"messages":12,"bytes":24576,"bytes_between_nodes":8192,'* ]] || complain "loongtrain: $(row 4 loongtrain)"
    run $small --devices 4 --scheme ring --claims no --wall 0; expect_status 0; expect_out '^ +4 +ring '; expect_no_out 'zigzag'
}

test_wall_clock() {
    run $small --devices 1 --claims no --wall 64 --runs 1;      expect_status 0; expect_silent; expect_columns 100
    expect_out '^By the wall clock, .*: 64 tokens, .* ring-zigzag$'
    expect_out 'times as long \(goal: at most 1\.5\)\.$'
}

# Virtual time is the same everywhere, so that what it shows is, too.
test_claims() {
    local seconds=900                   # 40 jobs, each of up to 16 processes, and plans of 64 devices
    run $small --devices 1 --wall 0 --json rows.json;   expect_status 0; expect_silent
    tr -d '\t\n' <rows.json | grep -q '"claims":.*"what":"ulysses cp 8 dp 8, tp 32 dp 2: rate","published":2\.5,"ours":2\.' || complain 'the report has no planned row of ulysses'
    expect_out '^ +ulysses, ulysses: P 8, node 8, S 4096, K 16: bytes +1\.00 +0\.86 .* yes '
    expect_out '^ +ring, ring: P 8, node 8, S 4096, K 16: bytes +0\.47 .* yes '
    expect_out '^ +ring-striped, ring: P 8, node 8, S 65536, K 16: time +1\.45 +1\.[4-9][0-9] .* yes '
    expect_out '^ +zeppelin, ring-zigzag: P 8, node 4, S 65536, K 16: time +1\.60 +1\.[1-7][0-9] .* yes '
    expect_out '^ +tokenring-narrow, .* forward, a10-mesh +1\.65 +1\.[12][0-9] .* yes '
    expect_out '^ +tokenring, .* forward, a10-mesh +0\.[0-9]+ .* yes '
    expect_out '^ +tokenring-narrow, ring-zigzag: P 4, node 1, .* forward +0\.[0-9]+ .* yes +no gain where both ways of a device share a port'
    expect_out '^  20 of 20 hold$'
    expect_out '^ +rsa cp 64, tp 12: batch +13\.70 +[5-9]\.[0-9]+ .* yes '; expect_out '^ +rsa cp 64, tp 12: sequence +3\.00 +[23]\.[0-9]+ .* yes '
    expect_out '^ +ulysses cp 8 dp 8, tp 32 dp 2: rate +2\.50 +2\.[0-9]+ .* yes '; expect_out '^ +ulysses cp 16, tp 16: sequence +4\.00 +[23]\.[0-9]+ .* yes '
    expect_out '^ +buff isp .* 5\.25 D: bytes +1\.[0-9]+ .* yes '; expect_out '^ +buff isp .* 3\.5 D: bytes +0\.[0-9]+ .* yes '; expect_out '^  11 of 11 hold$'
}

test_refusals() {
    run bench attention --heads 4 --kv-heads 3;         expect_status 2; expect_error '--kv-heads 3: does not divide --heads 4'
    run bench attention --devices 4,x;                  expect_status 2; expect_error '--devices 4,x: must be numbers from 1 to 32'
    run bench attention --scheme ulises;                expect_status 2; expect_error 'did you mean ulysses\?'
    run bench attention --cluster textbook;             expect_status 2; expect_error '--node 4: --cluster textbook must have two levels'
    run bench attention --devices 9 --node 0 --cluster h100-node; expect_status 2; expect_error '--cluster h100-node: it has 8 devices'
    run bench attention --help;                         expect_status 0; expect_columns 100; expect_out '^usage: orrery bench attention'
}

run_tests test_counts test_between_nodes test_wall_clock test_claims test_refusals
