# Plans drawn at random, more parts at once than the cases of `orrery verify` combine: each computes what one device does, or is refused in
# one line; and `orrery plan` foresees it.  SEED=n: others; PLANS=n: so many.
# tier: verify
. "$(dirname "$0")/lib.sh"

one_of() { local -a all=("$@"); echo "${all[RANDOM % $#]}"; }
now_and_then() { ((RANDOM % 100 < $1)); }               # in so many of 100 plans

named() { "$program" list "$1" --json - | sed -n 's/^[[:space:]]*"name":[[:space:]]*"\([^"]*\)".*/\1/p'; }
models=$(named models | grep 'tiny$') tensor=$(named tensor) attention=$(named attention | grep -v whole)
dispatch=$(named dispatch | grep -v -e here -e speculative)     # that one needs a file
data=$(named data | grep '^[a-z]') pipeline=$(named schedules)

# Of a mixture most plans are refused: most layouts along tp are not for experts, and only gpipe has a place for a balance loss of the batch.
draw() {
    local model dp tp pp cp ep=1 micro mixture=
    model=$(one_of $models)
    case $model in *mix*|*moe*|*deepseek*|*oss*) mixture=yes ;; esac
    while dp=$(one_of 1 1 2 3) tp=$(one_of 1 1 2 3 4) pp=$(one_of 1 1 2 3) cp=$(one_of 1 1 2 3)
          [ -z "$mixture" ] || ep=$(one_of 1 2 2 3 4)
          ((dp * tp * pp * cp * ep == 1 || dp * tp * pp * cp * ep > 6)); do :; done
    micro=$(one_of 1 2 3 4); ((pp == 1)) || micro=$(one_of 2 3 4 6)
    plan="--model $model --dp $dp --tp $tp --pp $pp --cp $cp --micro $micro --seq $(one_of 7 12 16 24)"
    plan+=" --batch $((dp * ep * micro * $(one_of 1 1 2) + $(one_of 0 0 1))) --optimizer $(one_of sgd sgd adamw momentum galore)"
    ((dp == 1)) || plan+=" --data-parallel $(one_of $data)"
    ((tp == 1)) || plan+=" --tensor $([ "$mixture" ] && now_and_then 70 && echo 1d || one_of $tensor)"
    ((pp == 1)) || plan+=" --schedule $(one_of $pipeline)"
    [ -z "$mixture" ] || plan+=" --load $(one_of even zipf:0 zipf:1.3)"
    case $model in mixtral*|qwen3-moe*) plan+=" --balance-over $(one_of microbatch microbatch sequence batch)" ;; esac
    ((cp == 1)) || plan+=" --attention $(one_of $attention)"
    ((ep == 1)) || plan+=" --ep $ep --dispatch $(one_of $dispatch)"
    plan+=" --dtype $(one_of fp64 fp64 bf16 fp16)"
    ! now_and_then 40 || plan+=" --recompute $(one_of full selective selective++ 1,0)"
    ! now_and_then 20 || plan+=' --dropout 0.1'
    ! now_and_then 20 || plan+=" --offload $(one_of optimizer optimizer,gradients weights activations weights,gradients,optimizer)"
    ! now_and_then 10 || plan+=" --quantize-weights $(one_of int8 int4)"
    ! now_and_then 10 || plan+=" --quantize-gradients $(one_of int8 int4)"
    ! now_and_then 12 || plan+=' --tiles 2'
    ! now_and_then 12 || plan+=" --bucket $(one_of 1K 10K)"
    ! now_and_then 20 || plan+=" --comm-streams $(one_of 1 3 4)"
    ! now_and_then 12 || plan+=" $(one_of --untied '--prefetch no' '--reshard-after-forward no')"
    ! now_and_then 50 || plan+=' --clip 0'
    case $plan in *'hsdp '*|*'mics '*|*'hpz '*) plan+=" --shard-group $dp" ;; esac
}

test_plans() {
    local trained=0 refused=0
    RANDOM=${SEED:-1}
    for ((i = 0; i < ${PLANS:-400}; i++)); do
        draw
        run train $plan --steps 2 --check ref --quiet
        case $status in
            0) trained=$((trained + 1)) ;;
            2) refused=$((refused + 1)); [ "$(wc -l <"$place/err")" = 1 ] || complain 'not refused in one line' ;;
            *) complain "SEED=${SEED:-1}, plan $i: status $status" ;;
        esac
    done
    echo "$trained plans trained, $refused refused"
    ((trained * 6 > refused)) || complain 'most plans are refused: nothing is tested'
}

# What a step sends, keeps and takes, on any cluster: `orrery plan` says what a run counts.  Not where overflows decide.
test_planned() {
    local same=0 cluster clusters=$(named clusters)
    RANDOM=${SEED:-1}
    for ((i = 0; i < ${PLANS:-400}; i++)); do
        draw
        case $plan in *fp16*) continue ;; esac
        plan=${plan/ --clip 0/}" --steps 1 --cluster $(one_of $clusters)"
        run plan $plan --json plan.json --quiet
        [ "$status" = 2 ] && continue
        expect_status 0
        run train $plan --json run.json --quiet
        expect_status 0
        cmp -s <(planned plan.json) <(planned run.json) || complain "SEED=${SEED:-1}, plan $i: $(diff <(planned plan.json) <(planned run.json) | head -n 6)"
        same=$((same + 1))
    done
    echo "$same plans say what a run counts"
    ((same > ${PLANS:-400} / 20)) || complain 'most plans are refused: nothing is tested'
}

run_tests test_plans test_planned
