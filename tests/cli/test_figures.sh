# What is printed for people: no microseconds above 1000, no bytes without a unit that says of what; sizes with decimal and binary units.
. "$(dirname "$0")/lib.sh"

# Lines with a number of 1000 or more before "us", and such numbers below a title that ends with "us".
too_many_microseconds() {
    awk '
        function ends(line, words, at,    n, from) {          # where each word of a line ends
            n = 0; from = 1
            while (match(substr(line, from), /[^ ]+/)) {
                words[++n] = substr(line, from + RSTART - 1, RLENGTH); at[n] = from + RSTART + RLENGTH - 2
                from += RSTART + RLENGTH - 1
            }
            return n
        }
        /^ *$/ { titles = 0 }
        {
            n = ends($0, word, at); line = $0
            for (i = 1; i <= n; i++) if (word[i] ~ /^[0-9]+(\.[0-9]+)?$/ && word[i] + 0 >= 1000) {
                if (i < n && word[i + 1] ~ /^us[,;:.)]?$/) print line
                for (t = 1; t <= titles; t++) if (title[t] == at[i]) print line
            }
            for (i = 1; i <= n; i++) if (word[i] == "us" && word[i - 1] !~ /^[0-9.]+$/) { if (!fresh) titles = 0; title[++titles] = at[i]; fresh = 1 }
            fresh = 0
        }' "$1"
}

# These take long enough to have thousands of them.
test_no_thousands_of_microseconds() {
    make_text
    local line
    while IFS= read -r line; do
        run $line
        [ "$status" = 0 ] || [ "$status" = 3 ] || complain "exit status $status"
        cat "$place/out" "$place/err" >both
        [ -z "$(too_many_microseconds both)" ] || complain "thousands of microseconds: $(too_many_microseconds both | head -n 2)"
    done <<END
plan --dp 2 --tp 2 --pp 2 --micro 4
plan --dp 4 --zero 3 --model small --cluster ethernet-1g
plan --model small --dp 8 --batch 16 --memory 14M
search --devices 2 --model small --micro 1,2 --recompute none --data-parallel ddp,zero3 --tensor 1d --top 3
train --model small --data $text --steps 1 --dp 2 --batch 2
infer --model small --data $text --steps 1 --dp 2 --batch 2
show cluster ethernet-1g
show allreduce ring --devices 4 --count 1000000 --cluster ethernet-1g
show schedule 1f1b --pp 2 --micro 2
show data ddp --model small --batch 16
show memory --model small --batch 16
show sbp gpt2 --mesh 2 --by time --cluster ethernet-1g
list clusters
bench segments --devices 4 --bytes 64M --cluster ethernet-1g
bench streams
bench plan --model tiny --devices 64
END
}

test_sizes_in_both_ways() {
    local memory
    for memory in 80GB 80GiB 80G 80g 81920M 1e11 85899345920 80000000kB; do
        run plan --model tiny --dp 2 --memory "$memory"; expect_status 0; expect_out '^fits    yes: '
    done
    run plan --model tiny --dp 2 --memory 80GB;         expect_out ' of 74\.5 GiB \(80 GB\), '
    run plan --model tiny --dp 2 --memory 80G;          expect_out ' of 80 GiB, '
    run plan --model tiny --dp 2 --memory 80Gb;         expect_status 2; expect_error '--memory 80Gb: must be a size such as 512, 64K, 1\.5GiB or 80GB'
    printf 'model: tiny\ndp: 2\nmemory: 80GB\n' >settings.yaml
    run plan --config settings.yaml;                    expect_status 0; expect_out ' of 74\.5 GiB \(80 GB\), '
    run plan --dp 2 --bucket 1MB --bucket 1MiB;         expect_status 2; expect_error '--bucket is given twice'
    run plan --model tiny --dp 2 --bucket 20kB;         expect_status 0
}

# Weights that one device could not hold have no speed-up over it.
test_speed_up() {
    run plan --dp 2 --tp 2;                             expect_status 0; expect_out '^virtual .*; on one device of it [0-9.]+ ms, speed-up [0-9.]+$'
    run plan --dp 2 --zero 3 --memory 14M;              expect_out '^virtual [0-9.]+ ms a step on cluster toy$'
}

run_tests test_no_thousands_of_microseconds test_sizes_in_both_ways test_speed_up
