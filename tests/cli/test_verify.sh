# `orrery verify`: everything registered, on small meshes.
. "$(dirname "$0")/lib.sh"

# The last line, and the JSON, count the same; nothing is left behind.
expect_all_pass() {
    expect_status 0; expect_silent; expect_columns 100; expect_no_out 'FAILED'
    [[ $(grep -E '^[0-9]+ cases?, ' "$place/out") =~ ^([0-9]+)\ cases?,\ ([0-9]+)\ passed ]] || complain 'no count at the end'
    [ "${BASH_REMATCH[1]:-0}" -ge "$1" ] || complain "fewer than $1 cases"
    [ "${BASH_REMATCH[1]:-0}" = "${BASH_REMATCH[2]:-1}" ] || complain 'not all have passed'
}

# The families with the most cases only in `make verify`, and a part of this one: tests under devices/ try their schemes in every tier.
test_schemes() {
    [ "$TIER" != verify ] || { run verify data --devices 2;     expect_all_pass 100; }
    [ "$TIER" != verify ] || { run verify dispatch --devices 2; expect_all_pass 60; expect_out 'alltoall /2'; expect_out 'tutel /1x2 r0'
                                expect_out '^      (mixtral|shared),.* offload experts$'; expect_out ' offload expert weights$'; }
    [ "$TIER" = verify ] || part='--part 1/75'
    run verify tensor --devices 2 ${part:-} --json all.json;      expect_all_pass 4
    expect_out '^2 devices, tensor '; expect_out '^  tp=2 +1d +M=2 v=1 .* == +== +(-|==) +ok'; expect_out '^  tp=2 +1d-sp-keep .* ok'
    expect_file all.json
    grep -q '"scheme":.*"1d-sp-keep"' all.json || complain 'no case of 1d-sp-keep over two devices'
    [ "${BASH_REMATCH[1]}" = "$(grep -c '"passed":.*true' all.json)" ] || complain 'not a verdict each'
}

test_pipeline_and_json() {
    [ "$TIER" = verify ] || return 0
    run verify pipeline --devices 2 --json all.json;    expect_all_pass 31
    expect_out '^  pp=2 +zb-v +M=[124] v=2 .* == +== +(==|-) +ok'; expect_out '^  pp=2 +pipedream-2bw +M=4 v=1 .* == +== +== +ok'
    expect_out '^  pp=2 +interleaved +M=[124] v=2 .* ok'; expect_out 'by speed'
    expect_file all.json
    [ "$(grep -c '"scheme":.*"zb-v"' all.json)" -ge 6 ] || complain 'zb-v is not with every model in the JSON'
    grep -q '"refused":.*P must be even' all.json || complain 'the JSON does not say what was refused, and why'
}

test_collectives() {
    run verify collectives --devices 3;                 expect_all_pass 150
    expect_out '^  allreduce +ok, [0-9]+ calls: two_shot '; expect_out '^3 devices of a100-ethernet, collectives: '
}

test_meshes_that_change() {
    [ "$TIER" = verify ] || local part='--part 1/10'
    run verify elastic --from 2 --devices 2 ${part:-};  expect_all_pass 4
    expect_out '^2 devices, meshes that change'; expect_out '^ +[0-9]+ +[0-9]+ bytes moved  ok'
}

# On all six meshes of 4 devices a thousand requests are right, by three models.
test_requests() {
    local devices=2 cases=3
    [ "$TIER" != verify ] || { devices=4; cases=16; }
    [ "$TIER" = verify ] || local part='--part 1/3'
    run verify serving --from $devices --devices $devices ${part:-} --json all.json;  expect_all_pass $cases
    expect_out "^$devices devices, requests"; [ $devices = 2 ] || expect_out ' 1000 requests '
    expect_out '^  dp 1 tp 1 pp [24]  llama +[0-9]+ requests +[0-9]+ tokens +[0-9]+ preemptions +[1-9][0-9]* shared  ok'
    grep -q '"model":.*"llama"' all.json || complain 'the JSON does not name the model'
}

test_tiles_of_the_sphere() {
    run verify spatial --devices 3 --json tiles.json;   expect_all_pass 22
    expect_out '^   1 x 3  x 1   convolution-halo +[0-9.e-]+ +4 +[1-9][0-9]+  ok$'; expect_out '^   1 x 1  x 3   transforms +0\.0e\+00 '
    expect_file tiles.json; grep -q '"polar":.*3' tiles.json || complain 'the JSON does not name the tiling'
    run list spatial;                                   expect_status 0; expect_out '^  convolution-scattered '
    expect_out 'sends four all-to-alls'
}

# No case is left out, or tried twice, by runs that share them.
test_parts() {
    cases() { sed -n '/"scheme"/p; /"ensemble"/p; /"polar"/p; /"refused":.*"/p' "$@" | sort; }
    run verify spatial --devices 2 --json whole.json;   expect_all_pass 10
    for k in 1 2 3; do run verify spatial --devices 2 --part $k/3 --json part$k.json; expect_all_pass 3; done
    cmp -s <(cases whole.json) <(cases part[123].json) || complain 'three parts are not the whole'
    for k in 0/3 4/3 1 1/0 1/3x -1/3; do run verify --part $k; expect_status 2; expect_error "--part $k: must be K/N"; done
}

# Of so many devices, and no others.
test_from() {
    run verify spatial --from 3 --devices 3;            expect_all_pass 3; expect_out '^3 devices: '; expect_no_out '^[12] devices?'
    run verify --from 4 --devices 3;                    expect_status 2; expect_error '--from 4: there are no meshes of 4 to 3 devices; --devices 4 would do'
}

test_under_a_launcher() {
    command='mpiexec -n 2 orrery verify collectives'
    status=0
    "${MPIEXEC:-mpiexec}" -n 2 "$program" verify collectives </dev/null >"$place/out" 2>"$place/err" || status=$?
    expect_status 0; expect_out '^  allreduce +ok, [0-9]+ calls: two_shot '
}

# A line for each case that trains; a second run has equal lines, another backend other times at most.
test_digests() {
    run verify data --from 2 --devices 2 --part 5/400 --digests one.txt --json all.json; expect_status 0
    run verify data --from 2 --devices 2 --part 5/400 --digests two.txt --quiet; expect_status 0; expect_silent
    cmp -s one.txt two.txt || complain "not the same twice: $(diff one.txt two.txt | head -n 2)"
    [ "$(grep -cE '^([0-9a-f]{16} ){4} data ' one.txt)" = "$(grep -c '"numbers":' all.json)" ] || complain 'not a line for each case'
    [ "$(cut -d ' ' -f 1 one.txt | sort -u | wc -l)" = "$(wc -l <one.txt)" ] || complain 'two cases have equal numbers'
    run verify data --devices 1 --digests /nowhere/x;   expect_status 1; expect_error '--digests /nowhere/x: cannot be written'; expect_no_out 'devices?, data'
}

test_refusals() {
    run verify pipelin;                                 expect_status 2; expect_error 'pipelin'
    run verify --devices 0;                             expect_status 2; expect_error '--devices 0'
    run verify data --devices 1 --json /nowhere/x;      expect_status 1; expect_error '--json /nowhere/x: cannot be written'; expect_no_out 'devices?, data'
    run verify --help;                                  expect_status 0; expect_out '^usage: orrery verify'; expect_columns 100
}

# One scheme alone, or one algorithm, and a name that nothing has.
test_only() {
    local part=''
    [ "$TIER" = verify ] || part='--part 1/40'
    run verify attention --only ring-ptrr --from 2 --devices 2 $part --json only.json;  expect_status 0; expect_silent
    grep -q '"scheme":[[:space:]]*"ring-ptrr"' only.json || complain 'no case of ring-ptrr'
    ! grep -E '"scheme"' only.json | grep -qv '"ring-ptrr"' || complain 'a case of another scheme'
    run verify spatial --only convolution-halo --devices 1;     expect_status 0; expect_out ' convolution-halo '; expect_no_out ' transforms '
    run verify collectives --only ring --from 2 --devices 2;    expect_status 0; expect_out 'ring'; expect_no_out ' tree'
    run verify spatial --only halo --devices 1;         expect_status 2; expect_error '--only halo: no case of spatial on 1 to 1 devices has it'
    expect_no_out ' ok$'
}

run_tests test_schemes test_pipeline_and_json test_collectives test_meshes_that_change test_tiles_of_the_sphere test_parts test_only test_from test_under_a_launcher \
    test_digests test_refusals
