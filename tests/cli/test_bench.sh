# The tables of `orrery bench` that are not about speed.
. "$(dirname "$0")/lib.sh"

# Twelve settings, five schedules without a difference in any digit; a column says what the interleaved one differs by.
test_published_table() {
    run bench schedules;                                expect_status 0; expect_silent
    [ "$(grep -cE '^  +[0-9.]+B +[0-9]+ +[0-9]+( +[0-9.]{6} +[0-9.]{6}){2} +\+[0-9]+( +[0-9.]{6} +[0-9.]{6}){4}$' "$place/out")" = 12 ] ||
        complain 'not twelve rows without differences'
    expect_out '^ +28.3B +32 +256 +0.1352 +0.1352 +0.0624 +0.0641 +\+17 +0.0594 +0.0594 +0.0257 +0.0257 +0.0594 +0.0594 +0.0018 +0.0018$'
}

# Formulas that ours equal, and those of the v family, which ours are at most.
test_published_formulas() {
    run bench schedules
    expect_out '^2vP-P-2 message delays, which gives 12 of its 12 rates'
    expect_out '^ +dualpipe +\(P/2-1\)\(F&B\+B-3W\) +6 +8 +4 +54 +54 '
    expect_out '^ +dualpipev +\(P-1\)\(F&B\+B-3W\) +6 +8 +4 +126 +126 '
    expect_out '^ +zb-v +0 +6 +6 +6 +0 +0 '
    [ "$(grep -cE '^  [a-z0-9-]+ +64 +512 +[0-9]+\.[0-9]+' "$place/out")" = 16 ] || complain 'not 16 schedules made and timed for P=64, M=512'
}

# Trainings with and without skips: times and layers by formula, and what SkipPipe claims.
test_partial() {
    run bench partial --model tiny --pp 4 --micro 4 --batch 4 --steps 3 --skip 1 --json all.json; expect_status 0
    expect_columns 100
    expect_out '^ +0 +100 +1\.000 +[0-9.]+ +[+]0\.0 '; expect_out '^ +1 +75 +0\.857 +[0-9.]+ +[-+][0-9.]+ '
    expect_out '^  a step is shorter, at most by +55 +14 +yes$'
    grep -q '"half_partial":' all.json || complain 'its JSON has no perplexity without half of the layers'
    run bench partial --batch 7;                        expect_status 2; expect_error '--batch 7: must be a multiple of the 6'
    run bench partial --model tiny --pp 9 --micro 1;    expect_status 2; expect_error '--pp 9: model tiny has 8 layers'
    run bench partial --model nothing;                  expect_status 2; expect_error 'nothing'
}

test_all_schedules() {
    run bench schedules --pp 4 --micro 8
    expect_out '^ +1f1b +1 +27\.27 +33 +4 +48 +yes$'                # bubble (P-1)/(M+P-1); memory P; messages 2 M (P-1)
    expect_out '^ +gpipe +1 +27\.27 +33 +8 +48 +yes$'               # memory M
    expect_out '^ +zb-h1 +1 +11\.11 '                               # (P-1)/(3M+P-1)
    expect_out '^ +zb-v +2 +0\.00 +24 +4 '
    run bench schedules --pp 3 --micro 4;               expect_status 0; expect_out '^ +chimera +needs P even'
}

# Published models with parallel streams: parameters to the last digit, and the law of their losses.
test_streams() {
    run bench streams;                                  expect_status 0; expect_silent; expect_columns 100
    expect_out '^ +896 +2 +538195842 +538195842 +0$'
    expect_out '^18 of 18 are the same to the last digit\.$'
    expect_out '^Stack-V2 \(Python\): E 0\.6912, .* alpha 0\.1894, k 0\.393[45]; R\^2 0\.9978; '
    expect_out '^Pile: E 1\.2886, .* alpha 0\.1963, k 0\.334[45]; R\^2 0\.9987; '
    run bench streams --devices 2;                      expect_status 2; expect_error '--devices'
    run bench streams --help;                           expect_status 0; expect_columns 100
}

# A chain of 2^16 bytes on 5 devices of the textbook: without gaps, so as many segments as are worth a hundredth.
test_segments() {
    run bench segments --devices 5 --bytes 64K --cluster textbook; expect_status 0; expect_silent; expect_columns 100
    expect_out '^ +broadcast +chain +5 +64 KiB +[0-9.]+ (KiB|B) +[0-9.]+ .* 1\.00[0-9]+ +1\.[0-9]+$'
    expect_out '^The chosen segments take at most [01]\.[0-9]+ % longer than the best ones\.$'
    [ "$(grep -cE '^ +(broadcast|reduce|allreduce) .* 5 +64 KiB ' "$place/out")" = 6 ] || complain 'not six pipelined algorithms'
    run bench segments --bytes 2;                       expect_status 2; expect_error '--bytes 2: must be up to 16 sizes'
    run bench segments --devices 1,4;                   expect_status 2; expect_error '--devices 1,4: one device sends no segments'
    run bench segments --devices 9 --cluster h100-node; expect_status 2; expect_error 'h100-node: it has 8 devices'
    run bench segments --help;                          expect_status 0; expect_columns 100
}

# Figures that follow from closed forms by hand.  Elements of 4 bytes, N D = 64 x 32: 1d sends 8 (P-1)/P N D in 8 (P-1) messages;
# a layer keeps (16 N D + H N + 4 N), has 12 D^2 + 13 D weights.  Units of N D: 4 + 30 bytes and 5 S H/D.
test_tensor() {
    run bench tensor --width 32 --heads 8 --seq 8 --batch 8 --devices 1,4,8 --runs 1
    expect_status 0; expect_silent
    expect_out '^ +1 +one device +0 +0\.000 +0\.051 +0\.134 +0\.0 '
    expect_out '^ +4 +1d +24 +0\.049 '
    expect_out '^ +8 +1d +56 +0\.057 '
    [ "$(grep -cE '^ +[48] +[0-9]d[0-9a-z.-]*( +[0-9.]+){10}$|^ +[48] +2\.5d( +[0-9.]+){10}$' "$place/out")" = 12 ] || complain 'not four of 1d and two others of 4 and of 8 devices were run'
    expect_out '^ +Narayanan.*, 3\.2 +1d +8 N D \(P-1\)/P +7\.0000 +7\.0000$'
    expect_out '^ +4 +2d +2x2 +1[0-9.]+ +12\.00 '
    expect_out '^ +8 +3d +2x2x2 +[0-9.]+ +4\.50 '
    expect_out '^ +8\.3B +3072 +1024 +32 +32 +9 '                    # 36/(8 q - 13) is 12 for q = 2, 3.27 for q = 3; N/D is 10.7
    expect_out '^ +Optimus: 2d over 1d: sent +1\.48 +2\.82 '; expect_out '^ +Optimus: 2d over 1d: time +1\.48 +2\.06 '
    expect_out '^ +1d-sp-overlap over 1d-sp: mean +1\.30 +1\.36 '; expect_out '^ +1d-sp-overlap over 1d-sp: most +1\.47 +1\.83 '
    expect_out '^  softmax, mask, what it drops +10\.000 '
    expect_out '^  sum +44\.000 '
}

test_tensor_formats_and_mistakes() {
    run bench tensor --width 32 --heads 8 --seq 8 --batch 8 --devices 1,4 --run 4 --runs 1 --dtype bf16 --json b.json --quiet
    expect_status 0; expect_silent
    grep -q '"bytes":	24576,' b.json || complain '1d in bf16 does not send 2 bytes an element'
    [ "$(grep -c '"devices_unlike_formulas":	0' b.json)" = 7 ] || complain 'not seven rows that are their formulas'
    run bench tensor --width 10 --heads 3;              expect_status 2; expect_error '--heads 3: does not divide --width 10'
    run bench tensor --devices 4,x;                     expect_status 2; expect_error '--devices 4,x: must be numbers from 1 to 128, such as 2,4,8'
    run bench tensor --devices 4,9 --cluster h100-node; expect_status 2; expect_error '--cluster h100-node: it has 8 devices; the mesh has 9'
    run bench tensor --help;                            expect_status 0; expect_columns 100
}

# P links read in 1/P of the time; on 4 A100 the least update is at stride 2, as in the published logs.
test_offload() {
    run bench offload --devices 3 --mib 3;              expect_status 0; expect_silent; expect_columns 100
    expect_out '^ +2 +49\.2 +98\.3 +2\.00 '
    expect_out '^ +3 +32\.8 +98\.3 +3\.00 '
    expect_out '^ +2 +[0-9.]+ +0\.50 +0\.50 +least$'; expect_out '^ +stride 2 +0\.66 +0\.50 '
    expect_out '^ +3 +[0-9.]+ +0\.67 +0\.67$';        expect_out '^ +stride 3 +0\.68 +0\.67 '
    expect_out 'least at stride 2$'
    expect_out '^ +all there +[0-9.]+ +1\.000 +1\.000 +0\.0 +0 '
    expect_out '^ +ring of 3 +[0-9.]+ +(0\.[0-9]+) +\1 '; expect_out '^ +ring of 5 +[0-9.]+ +(0\.[0-9]+) +\1 '
    expect_out '^ +chosen experts +[0-9.]+ +(0\.[0-9]+) +\1 '
    run bench offload --slice 1;                        expect_status 2; expect_error '--slice 1'
    run bench offload --help;                           expect_status 0; expect_columns 100
}

# A plan whose tp and dp are folded; the numbers of a run that is not.
test_plans() {
    run bench plan --model tiny --devices 64,128;       expect_status 0; expect_silent; expect_columns 100
    expect_out '^ +128 +dp 2 -> 1, tp 8 -> 1 +8 +[0-9]+ +[0-9]+ +[0-9.]+ +[0-9]+ +[0-9]+ +[0-9.]+$'
    local folded; folded=$(awk '$1 == 64 { print $NF }' "$place/out")
    run bench plan --model tiny --devices 64 --unfolded; expect_status 0; expect_out "^ +64 +nothing +64 .* $folded\$"
    run bench plan --devices 65;                        expect_status 2; expect_error '--devices 65: must be a multiple of 64'
    run bench plan --model nothing;                     expect_status 2; expect_error 'nothing'
}

# A run's first step, which loads and sets up, is not in its median, unless it is the only one.
test_first_step_does_not_count() {
    local steps
    for steps in 1 3 4; do
        run train --model tiny --steps $steps --quiet --json j;                     expect_status 0
        awk -F '[:,\t]+' -v steps=$steps '
            $2 == "\"seconds\"" { n++; if (n > 1 || steps == 1) x[++m] = $3 } $2 == "\"median_step_seconds\"" { said = $3 }
            END { for (i = 1; i <= m; i++) for (j = i + 1; j <= m; j++) if (x[j] < x[i]) { t = x[i]; x[i] = x[j]; x[j] = t }
                  want = m % 2 ? x[(m + 1) / 2] : (x[m / 2] + x[m / 2 + 1]) / 2
                  exit !(n == steps && said > 0 && (said - want) ^ 2 <= (1e-9 * want) ^ 2) }' j || complain "the median of $steps steps"
    done
}

# Within the time that it is given: none is too little for a mesh, and for a second round.
test_step_in_time() {
    run bench step --model tiny --runs 1 --rounds 100 --seconds 0 --devices 2 --json j
    expect_status 0; expect_silent; expect_columns 80
    expect_out '^--seconds 0: too short for one round; 4 meshes are left out$'
    expect_out '^gemm 2048 cubed, fp32, backend cpu: '
    [ "$(grep -c '"rounds":	1$' j)" = 2 ] || complain 'not only the rows of one device'
    run bench step --model small --runs 1 --rounds 1 --devices 2 --run-limit 0.1
    expect_status 1; expect_error 'orrery train --model small --dp [12] .*: had not ended after 0.1 s, and was stopped'
    run bench step --devices 9;                         expect_status 2; expect_error '--devices 9'
}

# One device on one thread of it, where there are several; and beside another process that keeps a core busy.
test_step_beside_a_neighbour() {
    local cores; cores=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)         # that this process is bound to
    run bench step --model tiny --runs 1 --rounds 1 --devices 1 --steal 1 --threads 2 --json j
    expect_status 0; expect_silent; expect_columns 80
    expect_out '^beside 1 busy process, on a core of its own$'
    expect_out '^    on one thread +[0-9.]+ '
    [ "$(grep -c '"stolen_cores":	1,$' j)" = 1 ] || complain 'no number of stolen cores'
    run bench step --devices 1 --steal $((cores + 1));  expect_status 2; expect_error "--steal $((cores + 1)): this process may use $cores core"
}

# The same step by another backend, in the same round.
test_step_beside_another_backend() {
    run bench step --model tiny --runs 1 --rounds 1 --devices 1 --beside discrete --json j
    expect_status 0; expect_silent; expect_columns 80
    expect_out '^  dp=1 tp=1 pp=1: [0-9.]+ ms, by discrete [0-9.]+: [0-9.e+-]+ times, at least [0-9]'
    [ "$(grep -c '"backend":	"discrete"' j)" = 1 ] || complain 'no row beside another backend'
    run bench step --beside count;                      expect_status 2; expect_error '--beside count: only counts'
}

test_topics() {
    run bench --help;                                   expect_status 0; expect_out '^  schedules '
    run bench schedul;                                  expect_status 2; expect_error 'did you mean schedules\?'
    run bench schedules --pp 0;                         expect_status 2; expect_error '--pp 0'
    run bench schedules --help;                         expect_status 0; expect_columns 100
}

run_tests test_published_table test_published_formulas test_streams test_segments test_all_schedules test_partial test_plans test_tensor test_tensor_formats_and_mistakes test_offload test_first_step_does_not_count test_step_in_time test_step_beside_a_neighbour test_step_beside_another_backend test_topics
