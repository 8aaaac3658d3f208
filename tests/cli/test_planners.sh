# `orrery search --planner NAME` of planners by layers: tables from files with published numbers, chosen plans run for real beside one device, what is refused.
. "$(dirname "$0")/lib.sh"

# Galvatron's test vector: four layers, an edge of 1.
vector() {
    cat >vector.json <<'END'
{ "format": "orrery layers", "title": "four layers", "devices": 1, "micros": 1,
  "strategies": [ { "name": "large", "devices": 1 }, { "name": "lean", "devices": 1 } ],
  "kinds": [ { "costs": [ { "strategy": 0, "time_ps": 10, "state_bytes": 4 },
                          { "strategy": 1, "time_ps": 14, "state_bytes": 2 } ] } ],
  "layers": [0, 0, 0, 0], "edges": [[0, 1], [1, 0]] }
END
}

test_table_of_a_file() {
    local memory time
    vector
    for memory in 16:40 14:45 12:49 10:53 8:56; do
        run search --table vector.json --planner galvatron --memory "${memory%:*}"; expect_status 0; expect_silent
        time=${memory#*:}; expect_out "^  galvatron +$time ps"
    done
    run search --table vector.json --planner galvatron --memory 7; expect_status 3; expect_error '--memory 7: no plan by layers fits'
    run search --table vector.json --planner all --memory 12 --explain --json found.json; expect_status 0
    expect_out '^alpa'; expect_out 'mindspore takes 7 ps more by the table, 14.3 %: longest stage \+7 ps'; expect_out 'tensoropt: 5 points'
    [ "$(grep -c '"table_step_ps":.*49' found.json)" = 7 ] || complain "49 ps are found by $(grep -c '"table_step_ps":.*49' found.json) planners"
    # A table that is read and written again is the same.
    run search --planner alpa --devices 8 --model small --batch 64 --table-out one.json; expect_status 0
    run search --table one.json --planner alpa --table-out two.json; expect_status 2; expect_error '--table has read a table already'
    run search --table one.json --planner alpa; expect_status 0
    expect_out '^  alpa '
    # A microbatch in flight keeps something of every layer, also of a recomputed one.
    ! grep -q '"activation_bytes":[[:space:]]*0,' one.json || complain 'layers of the table have no activations'
}

# The file of --plan runs beside one device, in the planned time, and its counted bytes and memory equal the formulas.
runs() {                                # runs PLANNER WORDS OF THE SEARCH..
    local planner=$1 planned; shift
    run search --planner "$planner" --devices 8 "$@" --model tiny:L=4 --batch 16 --micro 4 --out chosen.yaml --json chosen.json; expect_status 0; expect_silent
    expect_out "^run +orrery train --plan chosen.yaml --micro 4"
    planned=$(grep -o '"virtual_step_ps":[^,]*' chosen.json | head -n 1 | tr -dc 0-9)
    run train --plan chosen.yaml --model tiny:L=4 --batch 16 --micro 4 --data "$text" --steps 1 --check ref --json run.json; expect_status 0
    expect_out '^OK: every activation'
    expect_out '^traffic counted messages, bytes and additions of every kind equal the formulas on every device$'
    expect_out '^memory  counted peaks of weights, gradients, optimizer and activations equal the formulas on every device$'
    grep -q "\"virtual_step_ps\":$(printf '\t')$planned,*\$" run.json || complain "$planner says $planned ps, the run $(grep virtual_step_ps run.json)"
}

test_chosen_plans_run() {
    make_text
    for planner in alpa flexflow galvatron holmes mindspore pipedream pipedream-2bw piper pipette rec-core; do runs $planner; done
    runs tensoropt --memory 400K; runs integer --memory 400K
}

# Parts of experts are strategies; what sections of a mixture must have in common is said by name.
test_experts() {
    make_text
    run search --planner alpa --devices 4 --model mixtral-tiny:L=2 --batch 16 --micro 4 --ep 2,4 --dispatch alltoall,allgather --balance-over sequence --out mix.yaml; expect_status 0; expect_silent
    expect_out 'ep [24] (alltoall|allgather)'
    run train --plan mix.yaml --model mixtral-tiny:L=2 --batch 16 --micro 4 --balance-over sequence --data "$text" --steps 1 --check ref; expect_status 0
    expect_out '^traffic counted messages, bytes and additions of every kind equal the formulas on every device$'
    run search --planner alpa --devices 4 --model tiny --batch 16 --ep 2; expect_status 2; expect_error 'no mesh of 4 devices with the sizes asked for'
}

# The page has what was printed, and nothing from outside.
test_page() {
    run search --planner all --devices 8 --model tiny --batch 16 --micro 4 --page page.html; expect_status 0; expect_silent
    for planner in alpa galvatron integer piper rec-core tensoropt; do
        grep -q "</i>$planner</td>" page.html || complain "the page lacks $planner"
    done
    for title in 'Planners side by side' 'Time and memory, by the table' 'which devices have which layers' 'Its pipeline: a step by 1F1B'; do
        grep -q "$title" page.html || complain "the page lacks '$title'"
    done
    ! grep -Eq '(src|href)=|<script|url\(' page.html || complain 'the page needs something from outside'
    [ "$(grep -c '<section' page.html)" = "$(grep -c '</section>' page.html)" ] || complain 'a part of the page does not end'
    run search --planner beam --devices 8 --model tiny --batch 16 --page beam.html; expect_status 2; expect_error '--page: a page of a search shows planners by layers'; [ ! -e beam.html ] || complain 'a file is left'
    run search --planner alpa --devices 8 --model tiny --batch 16 --page none/page.html; expect_status 1; expect_error 'none/page.html'
}

# Planners' plans of hundreds of devices are priced by the clock: equal devices of each stage run once.
test_large() {
    run search --planner piper --devices 512 --model llama3-8b:L=8 --dtype bf16 --batch 512 --micro 8 --tp 4,8 --recompute none --data-parallel zero1 --cluster h100-infiniband --json large.json --out large.yaml; expect_status 0; expect_silent
    planned=$(grep -o '"virtual_step_ps":[^,]*' large.json | head -n 1 | tr -dc 0-9)
    run plan --plan large.yaml --model llama3-8b:L=8 --dtype bf16 --batch 512 --micro 8 --cluster h100-infiniband --json plan.json; expect_status 0
    expect_out '^folded  [0-9]+ equal parts of (the|each) stage: [0-9]+ of 512 devices ran'
    grep -q "\"virtual_step_ps\":$(printf '\t')$planned,*\$" plan.json || complain "search says $planned ps, the plan $(grep virtual_step_ps plan.json)"
}

test_side_by_side() {
    run search --planner all --devices 8 --model tiny --batch 16 --micro 2,4; expect_status 0; expect_silent
    expect_out 'microbatches, one table each:'; expect_out '^ +planner +a step by the table +planned +memory'
    for planner in alpa flexflow galvatron holmes integer mindspore pipedream pipedream-2bw piper pipette rec-core tensoropt; do expect_out "^ +$planner "; done
    expect_out '^best    by '; expect_out 'less memory for more time'
}

# Who names no cluster for a model that the usual one cannot hold gets one that can; who names one keeps it.
test_a_machine_that_can_hold_the_model() {
    local words='--planner mindspore --devices 64 --model llama3-8b --micro 8 --tp 4,8 --recompute none --data-parallel zero1'
    run search $words --json found.json; expect_status 0; expect_silent; expect_columns 150
    expect_out '^cluster h100-infiniband in bf16: no --cluster is named, and weights and moments are at least 1\.40 GiB on'
    expect_out '^search  64 devices of h100-infiniband for llama3-8b in bf16'
    expect_out '^run     orrery train --plan FILE --micro 8 --model llama3-8b .*--cluster h100-infiniband --dtype bf16$'
    run search $words --dtype fp16;         expect_status 0; expect_out '^cluster h100-infiniband: no --cluster is named'; expect_out 'for llama3-8b in fp16'
    run search $words --cluster toy;        expect_status 3; expect_error 'no plan by layers fits'; expect_no_out '^cluster '
    run search $words --memory 1GB;         expect_status 3; expect_no_out '^cluster '
    run search --planner alpa --devices 8 --model tiny --batch 16; expect_status 0; expect_no_out '^cluster '; expect_out 'of toy for tiny'
    run plan --devices 16 --model llama3-8b:L=8 --tp 4 --pp 1 --dp 4 --cp 1 --batch 16 --micro 1 --recompute full --tensor 1d-sp --data-parallel zero1; expect_status 0
    expect_out '^cluster h100-infiniband in bf16: no --cluster is named'; expect_out '^again   orrery plan --dp 4 --tp 4 .*--cluster h100-infiniband --dtype bf16'
}

test_refusals() {
    local words='--model tiny --batch 16'
    vector
    run search --planner alpa --devices 8 $words --memory 20K;     expect_status 3; expect_error '--memory 20KiB: no plan by layers fits.*a layer alone needs at least'
    run search --planner alpa --devices 8 $words --pp 2;           expect_status 2; expect_error '--pp: plans by layers'
    run search --planner alpa --devices 8 $words --schedule gpipe; expect_status 2; expect_error '--schedule: plans by layers run 1f1b'
    run search --planner alpa --devices 8 $words --seconds 5;      expect_status 2; expect_error '--seconds: planners by layers end by themselves'
    run search --planner alpa --devices 8 $words --micro 3;        expect_status 2; expect_error '--micro 3: does not divide --batch 16'
    run search --planner alpa --devices 8 $words --dp 8 --micro 16; expect_status 2; expect_error 'no strategy can be trained'
    run search --planner alpa $words;                              expect_status 2; expect_error 'search needs --devices N'
    run search --planner apla --devices 8 $words;                  expect_status 2; expect_error 'alpa'
    run plan --planner alpa --devices 8 $words;                    expect_status 2; expect_error '--planner alpa: gives layers strategies of their own'
    run search --planner every-layer --devices 8 $words;           expect_status 2; expect_error 'there are [0-9.e+]+ plans by layers'
    run search --planner alpa --devices 1 $words;                  expect_status 0
    run search --table vector.json --planner alpa --out plan.yaml; expect_status 2; expect_error 'strategy large has no mesh'; [ ! -e plan.yaml ] || complain 'a file is left'
    run search --table none.json --planner alpa;                   expect_status 1; expect_error 'none.json'
    sed 's/"edges": \[\[0, 1\]/"bandwidth": [[0]], "edges": [[0, 1, 2]/' vector.json >bad.json
    run search --table bad.json --planner alpa;                    expect_status 1; expect_error 'edges: row 0 has not 2 numbers: the matrix must be square'
    sed 's/"devices": 1, "micros"/"devices": 2, "bandwidth": [[0, 5], [-1, 0]], "micros"/' vector.json >bad.json
    run search --table bad.json --planner pipette;                 expect_status 1; expect_error 'bandwidth from device 1 to device 0 is -1; rates are above 0'
    sed 's/"devices": 1, "micros"/"devices": 2, "bandwidth": [[0, 5, 5], [5, 0, 5]], "micros"/' vector.json >bad.json
    run search --table bad.json --planner pipette;                 expect_status 1; expect_error 'bandwidth: row 0 has not 2 numbers: the matrix must be square'
    # Devices of two types that no stages of equally many devices tile.
    sed 's/"devices": 1, "micros"/"devices": 3, "percent": [100, 100, 50], "micros"/; s/"devices": 1 }/"devices": 3 }/g' vector.json >bad.json
    run search --table bad.json --planner holmes;                  expect_status 2; expect_error '--planner holmes: no stages of equally many devices have devices of one type'
    sed 's/"layers": \[0, 0/"reads": [[1, 0]], "layers": [0, 0/' vector.json >bad.json
    run search --table vector.json --planner rec-core;             expect_status 2; expect_error '--planner rec-core: the table does not say the products'
    sed 's/"layers": \[0, 0/"products": [[1, 2]], "layers": [0, 0/' vector.json >badly.json
    run search --table badly.json --planner rec-core;              expect_status 1; expect_error 'products: product 0 has not three sizes'
    run search --planner rec-core --devices 6 $words;              expect_status 2; expect_error '--planner rec-core: devices are halved again and again; 6 is no power of two'
    run search --table bad.json --planner tensoropt;               expect_status 1; expect_error 'reads: layer 0 cannot read layer 1'
    sed 's/"layers": \[0, 0/"reads": [[0, 1]], "layers": [0, 0/' vector.json >graph.json
    run search --table graph.json --planner alpa;                  expect_status 2; expect_error '--planner alpa: the table is a graph'
    run search --table graph.json --planner tensoropt;             expect_status 0
}

test_claims() {
    run bench planners; expect_status 0; expect_silent
    expect_out '^OK: every direction is the papers'; expect_out 'Pipette .*-2\.2 %, -20\.0 % +-2\.2 %, -20\.0 %'; expect_out 'Holmes .* 0, 131072 +0, 131072'
}

test_promises() {
    run verify planners --devices 1 --part 1/5; expect_status 0; expect_silent
    expect_out '^100 cases, 100 passed'; expect_out '^  alpa +all plans +100 '; expect_out '^  mindspore +- +0 '
}

run_tests test_table_of_a_file test_chosen_plans_run test_experts test_page test_large test_side_by_side test_a_machine_that_can_hold_the_model test_refusals test_claims test_promises
