# `--kernels-of`: whose kernels a plan's time is of, what it is measured on, and what is refused.
# tier: check
. "$(dirname "$0")/lib.sh"

step_of() { run plan --model llama3-8b --dtype bf16 --dp 8 --zero 3 --batch 8 --seq 4096 --memory 0 --json plan.json "$@"; expect_status 0
            sed -n 's/^\t"virtual_step_ps":\t\([0-9]*\),*$/\1/p' plan.json; }

# A plan says whose kernels, which table, and the error of each class; JSON has the same.
test_a_plan_says_whose_kernels() {
    local usual eager compiled te
    usual=$(step_of --cluster h100-infiniband)
    expect_out '^        kernels of te, measured on h100-sxm; mean error'; expect_out '^        products [0-9]+ %, attention [0-9]+ %, memory [0-9]+ %$'
    grep -q '"of":[[:space:]]*"te"' plan.json || complain "no kernels in JSON"
    grep -q '"products":[[:space:]]*0\.[0-9]' plan.json || complain "no error of products in JSON"
    te=$(step_of --cluster h100-infiniband --kernels-of te)
    [ "$usual" = "$te" ] || complain "the cluster's own kernels take $usual ps, by name $te"
    eager=$(step_of --cluster h100-infiniband --kernels-of torch-eager)
    compiled=$(step_of --cluster h100-infiniband --kernels-of torch-compile)
    [ "$compiled" -lt "$eager" ] || complain "compiled kernels take $compiled ps, eager ones $eager"
}

# A step on a real device takes longer than its data sheet allows: 989 TFLOP/s is never reached.
test_slower_than_the_data_sheet() {
    sed 's/"kernels": {.*},/"kernels": { "launch_ns": 0, "source": "none" },/; s/"h100-infiniband"/"sheet"/' "$top/emulated_devices/device/clusters/h100-infiniband.json" >sheet.json
    local sheet real
    sheet=$(step_of --cluster ./sheet.json); real=$(step_of --cluster h100-infiniband)
    [ "$((sheet * 13))" -lt "$((real * 10))" ] || complain "data sheet $sheet ps, kernels $real ps"
}

test_a_table_of_ones_own() {
    cp "$top/emulated_devices/device/kernels/tables/h100-sxm.json" own.json
    sed 's/"table": "h100-sxm"/"table": ".\/own.json"/' "$top/emulated_devices/device/clusters/h100-infiniband.json" >mine.json
    [ "$(step_of --cluster ./mine.json)" = "$(step_of --cluster h100-infiniband)" ] || complain "the same table, another time"
    sed -i 's/"half_depth": 256/"half_depth": -1/' own.json
    run plan --cluster ./mine.json; expect_status 1; expect_error 'own.json: products: "half_depth"'
    sed -i 's/"table": ".\/own.json"/"table": "h100-pcie"/' mine.json
    run plan --cluster ./mine.json; expect_status 2; expect_error 'kernels.*h100-pcie: there is no such choice; did you mean h100-sxm'
}

test_refusals() {
    run plan --kernels-of te;                              expect_status 2; expect_error '--kernels-of te: cluster toy has no table of measured kernels$'
    run plan --cluster h100-node --kernels-of tee;         expect_status 2; expect_error '--kernels-of tee: there is no such choice; did you mean te\?'
}

test_list() {
    run list kernels; expect_status 0; expect_out '^  torch-eager '; expect_out '^  h100-sxm '; expect_out 'products: 48 points, [0-9.]+ % mean error of each if it is left out'
    run list clusters; expect_status 0; expect_out 'kernels of te, by the table h100-sxm; `orrery list kernels`'
}

run_tests test_a_plan_says_whose_kernels test_slower_than_the_data_sheet test_a_table_of_ones_own test_refusals test_list
