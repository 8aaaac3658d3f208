# `orrery show data`, `memory` and `plan`: pictures of a plan, with the numbers of `orrery plan`.
. "$(dirname "$0")/lib.sh"

# Bytes as the program prints them.
printed() {
    awk -v x="$1" 'BEGIN { split("B KiB MiB GiB", unit); for (k = 1; x >= 1023.95; k++) x /= 1024
        printf (x == int(x) ? "%d %s" : x < 9.995 ? "%.2f %s" : "%.1f %s"), x, unit[k] }'
}

# Every data scheme is drawn in 80 columns; what its passes send is what the plan says.
test_every_data_scheme() {
    local name more said=
    run list data; expect_status 0
    for name in $(sed -n 's/^  \([a-z][a-z0-9-]*\)  *[^ ].*/\1/p' "$place/out"); do
        more=
        case $name in hsdp|mics|hpz) more='--shard-group 2' ;; chain) more='--shards 1,2,4' ;; esac
        run plan --model tiny --dp 4 --data-parallel "$name" $more --json plan.json
        expect_status 0; said=$(sed -n '/^sent by each/,/^$/s/^ *0-3 .* [0-9.]* in \([0-9]*\)$/ sent in \1 messages/p' "$place/out")
        [ -z "$said" ] || said=$(printed "$(sed -n '/^\t*"data":/,/}/s/^\t*"bytes":\t\([0-9]*\),*$/\1/p' plan.json | head -n 1)")$said
        run show data "$name" $more
        expect_status 0; expect_silent; expect_columns 80; expect_out "^$name: "
        [ -z "$said" ] || expect_out "$said"
    done
    [ -n "$said" ] || complain 'no plan says what it sends'
}

test_who_keeps_what() {
    run show data zero3
    expect_out '^  weights            0   1   2   3$'; expect_out '^  gradients          0   1   2   3$'
    expect_out ' forward  3     wg  wg  wg  wg  wg  Wg  =g '    # layer 3 in use, layer 4 on its way
    expect_out ' backward 3     wG  wg  wg  wg  =g  WG  wg '    # and backward layer 2
    run show data zero2
    expect_out '^  weights          all all all all$'; expect_out '^  gradients          0   1   2   3$'
    run show data ddp
    expect_out '^  optimizer state  all all all all$'; expect_out ' forward  3     =G  =G  =G  =G  =G  WG  =G '
    run show data hpz --shard-group 2
    expect_out '^  weights            0   1   0   1$'; expect_out '^  gradients          0   2   1   3$'
}

# The largest bar is the peak that the plan has, to the byte as it is printed.
test_memory_is_the_plans() {
    local options peak
    for options in '--dp 4 --zero 3' '--pp 4 --micro 8 --batch 8' '--dp 2 --tp 2 --recompute full'; do
        run plan --model tiny $options
        expect_status 0; peak=$(sed -n 's/^fits .* needs \([0-9.]* [KMG]iB\) of .*/\1/p' "$place/out")
        run show memory $options
        expect_status 0; expect_silent; expect_columns 80; expect_out "  [WGOAB]+ +$peak\$"
    done
    run show memory --dp 4 --zero 3
    expect_out '^  reductions  +W+G+O+  +433\.2 KiB$'       # a quarter of 16 bytes for each of 110,912 parameters
}

test_plans() {
    run show plan --dp 2 --tp 2 --pp 2
    expect_status 0; expect_silent; expect_columns 80; expect_out '^all have tokens 0-31$'
    expect_out '^       5  pp=1 dp=0 tp=1  4-7, loss       4-7    0-3             29952$'
    run show plan --cp 2 --attention ring-zigzag;       expect_out '^       1  cp=1   8-23  '
    run show plan --model mixtral-tiny --ep 4 --dp 4;   expect_out '  6-7  '
    run show plan --pp 2 --chunks 2 --micro 2 --schedule interleaved; expect_out '  embedding, 0-1, 4-5  '
}

test_files() {
    run show data zero3 --svg data.svg;                 expect_status 0; expect_file data.svg
    run show memory --svg memory.svg;                   expect_status 0; expect_file memory.svg
    run show plan --tp 2 --svg plan.svg;                expect_status 0; expect_file plan.svg
    [ "$(tail -qn 1 ./*.svg | sort -u)" = '</svg>' ] || complain 'an SVG file has no end'
    # hsl(208,60%,88%), the first copy's, in a colour that SVG has
    grep -q 'fill="#cee2f3"' plan.svg || complain 'plan.svg: the colour of the first copy'
    ! grep -q hsl ./*.svg || complain 'a colour that SVG itself does not have'
    [ "$(ls | wc -l)" = 3 ] || complain "files are left: $(ls)"
}

test_refusals() {
    run show data zero4;                                expect_status 2; expect_error 'did you mean zero'
    run show data zero3 --dp 128 --batch 128; expect_status 2; expect_error 'show data: 128 devices; at most 64 can be shown'
    run show plan --dp 65 --batch 65;         expect_status 2; expect_error 'show plan: 65 devices; at most 64'
    run show memory --tp 3 --heads;                     expect_status 2; expect_error '--heads'
    run show memory --svg;                              expect_status 2; expect_error '--svg wants a FILE'
    run show memory --svg a --svg b;                    expect_status 2; expect_error '--svg is given twice'
    run show data zero3 --svg /nowhere/x.svg;           expect_status 1; expect_error '/nowhere/x.svg: cannot be written'
    run show data --help;                               expect_status 0; expect_out '^usage: orrery show data'
}

run_tests test_every_data_scheme test_who_keeps_what test_memory_is_the_plans test_plans test_files test_refusals
