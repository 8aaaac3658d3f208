# `orrery cluster`: jobs of a file and drawn ones, every scheduler, failures, the page; what is wrong with a file by line and column.
. "$(dirname "$0")/lib.sh"

schedulers='fifo shortest backfill fair tiresias uwfq powerflow'

make_jobs() {
    printf '%s\n' 'job,user,arrival,steps,devices,least,most,plan' \
        'a1,ann,0,2000,8,2,16,--model 43m --batch 64' \
        'a2,ann,10,2000,8,2,16,--model 43m --batch 64' \
        'b1,bob,20,4000,2,1,8,--model 11m --batch 128' >jobs.csv
}

# The same jobs give the same schedule; drawn ones are those of the file that is written of them.
test_jobs() {
    make_jobs
    run cluster jobs.csv --devices 16 --json one.json;  expect_status 0; expect_silent; expect_columns 100
    expect_out '^  a1 .* ann '; expect_out '^energy '; expect_out '^in simulation: 2 steps were planned'
    run cluster jobs.csv --devices 16 --json two.json
    grep -v planned one.json | sed 's/one.json//' >one; grep -v planned two.json | sed 's/two.json//' >two; expect_same one two
    run cluster --draw 20 --devices 16 --scale 0.01 --seed 7 --out drawn.csv; expect_status 0; cp "$place/out" drawn
    [ "$(wc -l <drawn.csv)" = 21 ] || complain "$(wc -l <drawn.csv) lines of drawn jobs"
    run cluster drawn.csv --devices 16; expect_status 0
    grep -v '^in simulation\|^jobs ' drawn >one; grep -v '^in simulation\|^jobs ' "$place/out" >two; expect_same one two
    run cluster --draw 10 --devices 16 --scale 0.01 --seed 7 --out fewer.csv
    head -n 11 drawn.csv >first.csv; expect_same first.csv fewer.csv
}

# Each scheduler has its row; the states of devices add up to all energy, to the millijoule.
test_schedulers() {
    local name
    make_jobs
    run cluster jobs.csv --devices 16 --scheduler all --device-mtbf 2 --save-every 30 --restart 5; expect_status 0; expect_silent
    for name in $schedulers; do expect_out "^  $name "; done
    for name in fair powerflow; do
        run cluster jobs.csv --devices 16 --scheduler $name --device-mtbf 2 --json -; expect_status 0
        awk -F'[:,]' '/"millijoules"/ { if (inside) sum += $2; else all = $2 } /"states"/ { inside = 1 } inside && /\]/ { exit }
            END { exit !(sum == all && all > 0) }' "$place/out" || complain "the states of $name do not add up to its energy"
    done
}

# PowerFlow takes no more energy than the budget says, and less time than jobs that run as they ask.
test_budget() {
    local grown
    run cluster --draw 30 --devices 32 --scale 0.02 --json fifo.json;  expect_status 0
    run cluster --draw 30 --devices 32 --scale 0.02 --scheduler powerflow --json grown.json; expect_status 0
    grown=$(sed -n '/"mean_s"/,/"decisions"/p' fifo.json grown.json | awk -F'[:,]' '/"(mean_s|millijoules)"/ { printf "%s ", $2 }')
    awk '{ exit !($3 < $1 && $4 < 1.02 * $2) }' <<<"$grown" || complain "time and energy, first come first served and grown: $grown"
}

test_page() {
    make_jobs
    run cluster jobs.csv --devices 16 --scheduler all --page page.html; expect_status 0
    for words in 'Sums, in simulation' 'powerflow: which devices had which job' '<title>a1 of ann: devices 0-7' 'How many jobs'; do
        grep -q "$words" page.html || complain "the page has no $words"
    done
    [ "$(grep -o '<svg' page.html | wc -l)" = "$(grep -o '</svg>' page.html | wc -l)" ] || complain 'a drawing does not end'
    run cluster jobs.csv --devices 16 --scheduler fifo,uwfq --svg jobs.svg; expect_status 0
    [ "$(grep -c 'on average' jobs.svg)" = 2 ] || complain 'the picture has not two drawings'
    run cluster jobs.csv --page nowhere/page.html; expect_status 1; expect_error -- '--page'
}

# Ten thousand jobs on a thousand devices take seconds.
test_many_jobs() {
    local name names='fifo uwfq'
    [ "${TIER:-test}" != verify ] || names=$schedulers
    for name in $names; do
        run cluster --draw 10000 --devices 1024 --scheduler $name --quiet; expect_status 0
    done
}

wrong() {                               # wrong STATUS TEXT LINE...
    printf '%s\n' "${@:3}" >wrong.csv
    run cluster wrong.csv --devices 8 --out left.csv; expect_status "$1"; expect_error "$2"
    [ ! -e left.csv ] || [ "$1" = 2 ] || complain 'a file is left of jobs that are wrong'
    rm -f left.csv
}

test_wrong_jobs() {
    local head='job,user,arrival,steps,devices,plan' plan='--model tiny --batch 8'
    wrong 1 'wrong.csv:2: column 5 \(devices\): "3": must be a power of two' "$head" "a,u,0,1,3,$plan"
    wrong 1 'wrong.csv:3: column 3 \(arrival\): "-1": must be seconds' "$head" "a,u,0,1,1,$plan" "b,u,-1,1,1,$plan"
    wrong 1 'wrong.csv:2: column 4 \(steps\): "0"' "$head" "a,u,0,0,1,$plan"
    wrong 1 'wrong.csv:2: column 2 \(user\): ""' "$head" "a,,0,1,1,$plan"
    wrong 1 'wrong.csv:1: column 3: "arival" is no column of jobs; did you mean arrival' "job,user,arival,steps,devices,plan" "a,u,0,1,1,$plan"
    wrong 1 'wrong.csv:1: column 7: "job" stands twice' "$head,job" "a,u,0,1,1,$plan,b"
    wrong 1 'wrong.csv:1: column 6: there is no column "plan"' 'job,user,arrival,steps,devices' 'a,u,0,1,1'
    wrong 1 'wrong.csv:2: column 6: the line has fewer cells' "$head" 'a,u,0,1,1'
    wrong 1 'wrong.csv:2: column 7: the line has more cells' "$head" "a,u,0,1,1,$plan,"
    wrong 1 'wrong.csv:2: column 1: the quotation marks' "$head" "\"a,u,0,1,1,$plan"
    wrong 1 'wrong.csv:2: column 6 \(least\): "4": must be at most' 'job,user,arrival,steps,devices,least,plan' "a,u,0,1,2,4,$plan"
    wrong 1 'the file has no jobs' "$head"
    wrong 2 'job a asks for 16 devices, and the cluster has 8' "$head" "a,u,0,1,16,$plan"
    wrong 2 'job a: --model tinny: .*did you mean tiny' "$head" 'a,u,0,1,1,--model tinny'
    wrong 2 'job a: .*has no --dp' "$head" 'a,u,0,1,1,--model tiny --dp 2'
    wrong 2 'job a does not fit 8 devices: .*--batch 4' "$head" 'a,u,0,1,8,--model tiny --batch 4'
    wrong 2 'job a does not fit 1 device: a device needs' "$head" 'a,u,0,1,1,--model gpt2 --batch 4096'
}

test_wrong_words() {
    run cluster; expect_status 2; expect_error 'JOBS.csv: no jobs'
    run cluster none.csv; expect_status 1; expect_error 'none.csv'
    run cluster --draw 5 none.csv; expect_status 2; expect_error 'not both'
    run cluster --draw 5 --devices 12; expect_status 2; expect_error 'power of two'
    run cluster --draw 5 --clocks 100,80; expect_status 2; expect_error '--clocks'
    run cluster --draw 5 --scheduler fofo; expect_status 2; expect_error 'did you mean fifo'
    run cluster --draw 5 --law none; expect_status 2; expect_error '--law'
    run cluster --draw 5 --cluster toy --scheduler powerflow; expect_status 2; expect_error 'does not say what its devices draw'
    run cluster --draw 2 --devices 8 --device-mtbf 1e-6; expect_status 2; expect_error 'after 1000000 failures'
    expect_nothing
}

test_bench() {
    run bench cluster; expect_status 0; expect_silent
    expect_out "^OK: every direction is the papers', in simulation"; expect_no_out 'ANOTHER'
    for system in PowerFlow UWFQ Tiresias EASY; do expect_out "^  $system "; done
}

run_tests test_jobs test_schedulers test_budget test_page test_many_jobs test_wrong_jobs test_wrong_words test_bench
