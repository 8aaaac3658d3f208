# What a person reads fits a terminal and is plain in a file; what a program reads is JSON, the same every time.
. "$(dirname "$0")/lib.sh"

# Our own reader of JSON is strict: it takes a description of a machine and says where a text is not JSON.
expect_json() {
    run train --cluster "$1"
    [[ $err != *'is not JSON'* && $err != *'is empty'* && $err != *'after its end'* && $err == *"$1"* ]] || complain "$1 is not JSON"
}
number() { sed -n 's/^.*"'"$2"'":[[:space:]]*\([-0-9.e+]*\).*/\1/p' "$1" | head -n 1; }

test_plain_lines() {
    train --steps 3 --dp 2 --tp 2 --pp 2 --check ref --dtype fp64 --sample 20
    expect_status 0; expect_silent; expect_columns 119          # with the longest of tiny's tensors, which may or may not be the worst one
    ! LC_ALL=C grep -q $'[\r\033]' "$place/out" || complain 'a control character is in it'
    ! grep -q ' $' <(grep -v '^    ' "$place/out") || complain 'a line ends with a blank'
    [ "$(grep -c '^step ' "$place/out")" = 3 ] || complain 'not one line for each of three steps'
    expect_out '^model   tiny: L=8 H=8'; expect_out '^mesh    .*8 devices'; expect_out '^sample  '
    expect_out '^ +0-3  pp=0 '; expect_out '^ +4-7  pp=1 '          # devices that are alike have one line
    expect_out '^traffic .* equal the formulas on every device'; expect_out '^memory  .* equal the formulas'
    expect_out '^OK: every activation, gradient, weight and loss'
    train --steps 200 --batch 2;            expect_status 0
    [ "$(grep -c '^step ' "$place/out")" -le 25 ] || complain 'many steps have too many lines'
}

test_json_is_json() {
    train --steps 2 --dp 2 --json one.json --check ref --dtype fp64;        expect_status 0; expect_silent
    expect_json one.json
    head -c 300 one.json >cut.json; run train --cluster cut.json;           expect_error 'cut\.json: is not JSON'       # so would be seen
    grep -q '"holds":[[:space:]]*true' one.json || complain 'it does not say that the check held'
}

test_json_to_standard_output() {
    local mesh
    for mesh in '--dp 1' '--dp 2'; do
        train --steps 2 $mesh --json -;     expect_status 0
        cp "$place/out" piped.json; grep -q '^step ' "$place/err" || complain 'lines for people are not on the standard error'
        train --steps 2 $mesh --json filed.json;    expect_status 0
        expect_json piped.json
        expect_same <(results piped.json) <(results filed.json)
    done
    run verify data --devices 1 --part 1/20 --json -;   expect_status 0
}

test_same_twice() {
    local plan
    for plan in '--dp 1' '--dp 3 --tp 2 --pp 1' '--pp 4 --schedule zb-v'; do
        train --steps 3 $plan --json first.json;    expect_status 0
        train --steps 3 $plan --json second.json;   expect_status 0
        expect_same <(results first.json) <(results second.json)
    done
    train --steps 3 --seed 1 --json first.json
    train --steps 3 --seed 2 --json second.json
    [ "$(number first.json loss)" != "$(number second.json loss)" ] || complain 'another seed makes no difference'
}

# The same model, the same batch: on any mesh the first loss differs by rounding only.
test_first_loss_on_any_mesh() {
    local mesh want got
    train --steps 1 --dtype fp64 --json one.json;   want=$(number one.json loss)
    for mesh in '--dp 2' '--tp 3' '--pp 2' '--dp 2 --tp 2 --pp 2'; do
        train --steps 1 --dtype fp64 $mesh --json many.json;    got=$(number many.json loss)
        awk -v a="$want" -v b="$got" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 5 && d <= 1e-14 * a) }' || complain "loss $got, on one device $want"
    done
}

test_lists_and_help() {
    local word
    run;                                    expect_status 2; expect_out '^usage: orrery COMMAND'
    run --help;                             expect_status 0; expect_out 'Exit status: 0 done'; expect_columns 110
    for word in $(sed -n 's/^  \([a-z]*\) .*/\1/p' "$place/out"); do
        run "$word" --help;                 expect_status 0; expect_silent; expect_columns 110; expect_out "^usage: orrery $word"
    done
    run train --help;                       expect_no_out '\[-1\]|\[0\].*default'
    run list;                               expect_status 0; expect_silent; expect_columns 100; expect_no_out '\(null\)'
    for word in models tensor data schedules collectives optimizers clusters backends dtypes; do
        run list $word;                     expect_status 0; expect_silent; expect_out '^  [a-z0-9]'
    done
    run list clashes;                       expect_status 0; expect_silent; expect_out '^  --tiles T$'; expect_out '^ +--tensor 1d-sp-overlap, 2d, 2.5d or 3d uses a matrix several times'
}

run_tests test_plain_lines test_json_is_json test_json_to_standard_output test_same_twice test_first_loss_on_any_mesh test_lists_and_help
