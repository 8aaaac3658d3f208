# An independent program with seeded bugs (golden/bugs): each is found, its operation is named, and what is said of it is right; and right
# runs of the same program raise no alarm.  Twenty-three bugs and a few right runs; in `make verify` all bugs, and 1000 right runs.
. "$(dirname "$0")/lib.sh"

page=$top/docs/checking/bugs.md
built=$(mktemp -d)
campaign() { command="golden/bugs/campaign.sh $*"; seconds=7000 ORRERY=$program PLACE=$built watched bash "$top/golden/bugs/campaign.sh" "$@"; }
is_verify() { [ "${TIER:-test}" = verify ]; }

# One of each kind: a factor of the mesh, a part of a sum, an arrangement, an operation's own mistake, a format, the norm; of a mixture a
# lost row, and a part of the gradient of its weights; a norm before its sum; one rank's weight; what is left out of a number; a gradient of a
# later step; a norm without experts, and clipping along ep; a resume.
sample='^(dp-twice|tp-back-twice|heads-reversed|mask-next|narrow-sums|norm-copies|row-dropped|router-part|norm-of-part|norm-weight-on-one-rank|balance-not-reported|gradient-zero-later|gradient-half-of-one|head-norms-negated|norm-without-experts|clip-of-ep|scores-clamped|tied-twice|adam-eps-squared|loss-of-copies-narrow|resume-count|resume-batch-unseen|resume-masters)\|(gpt2|moe|llama)\|'

test_bugs() {
    if is_verify; then campaign bugs; else campaign bugs "$sample"; fi
    expect_status 0; expect_no_out 'NOT (FOUND|NAMED|DIAGNOSED)'
    is_verify || expect_out '^bf16 +23 +23 +23 +23$'
    [ "$(grep -cE '^(fp32|bf16|fp16) ' "$place/out")" = 3 ] || complain 'no table'
    ! is_verify || while read -r line; do expect_out "$line"; done < <(grep -E '^    (fp32|bf16|fp16) ' "$page" | sed -E 's/^ +//; s/ +/ +/g')
}

# --first, and a right run against the wrong one, name the same operation as the whole check.
test_two() {
    if is_verify; then campaign two; else campaign two '^(mask-next|gradient-zero-later|norm-weight-on-one-rank|row-dropped)[|]'; fi
    expect_status 0; expect_no_out ' NOT '
    is_verify || expect_out '^bf16 +4 +4 +4$'
}

test_right_runs() {
    local runs=8; ! is_verify || runs=1000
    if is_verify; then campaign clean $runs; else campaign clean $runs gpt2; fi
    expect_status 0; expect_out "^$runs right runs, 0 alarms$"
}

# The first wrong operation in order of execution is the headline, in 16 bits too: a state before the weight that is made of it, and a norm
# after the layers before that before them.  The embedding of a model without dropout is no dropout.
test_headline() {
    headline() {
        watched "$built/buggy" run "$built/$1.safetensors" dump dtype $2 bug $3;   expect_status 0
        run check "$built/$1.safetensors" dump;   expect_status 3
        expect_out "^first to .*, in order of execution: $4"; expect_error "$4"
        [ "$(sed -nE 's/^ *wrong +([^ ,]+),.*/\1/p' "$place/out" | head -1)" = "$4" ] || complain "another operation than $4 is listed first"
    }
    headline llama bf16 norm-weight-plain grad/model.norm.weight
    headline llama fp32 norm-weight-plain grad/model.norm.weight
    headline gpt2 fp32 tied-twice adamw/1/exp_avg/wte.weight;    expect_out '^first to differ, in order of execution: adamw/1/exp_avg/wte.weight'
    headline gpt2 fp16 norm-statistics act/h.1.ln_1
    headline gpt2 bf16 positions-shifted act/embedding;     expect_out 'wrong +act/embedding, the embedding$'
}

# A number that is measured in the result must take most of the errors away: rounding alone gives any small error a rate.
test_measured_numbers() {
    watched "$built/buggy" run "$built/gpt2.safetensors" dump dtype bf16 bug adam-eps-squared;      expect_status 0
    run check "$built/gpt2.safetensors" dump --all;   expect_status 3
    expect_out 'the square of eps is added inside the root'; expect_no_out 'as by another learning rate|eps is [0-9]'
}

# In 16 bits logits of experts are often equal: whichever the program takes is right.
test_equal_logits() {
    for run in 'dtype bf16' 'dtype bf16 order reversed' 'dtype fp16 order reversed dp 2 tp 3'; do
        watched "$built/buggy" run "$built/moe.safetensors" dump $run;              expect_status 0
        run check "$built/moe.safetensors" dump;    expect_status 0; expect_silent; expect_no_out 'equal logits'
    done
}

# Ranks that add up in another order have copies that differ by rounding: each is judged by its own.
test_copies_apart() {
    for run in 'dtype fp32' 'dtype bf16'; do
        watched "$built/buggy" run "$built/moe.safetensors" dump $run order apart seed 4 dp 2 tp 3;     expect_status 0
        run check "$built/moe.safetensors" dump;    expect_status 0; expect_silent
    done
    # By more than a few units of 16 bits, where 20 parts are stored and then added: in the first step, and in later ones.
    for seed in 4 1; do
        watched "$built/buggy" run "$built/gpt2.safetensors" dump dtype fp16 order apart seed $seed dp 2 tp 3 parts 20;     expect_status 0
        run check "$built/gpt2.safetensors" dump --parts 60;    expect_status 0; expect_silent
    done
}

# One device adds up what its microbatches have stored: in fp32, or in the format.  The dump says how many they are.
test_microbatches() {
    for run in 'dtype bf16 micros 2 gradients stored' 'dtype fp16 micros 2 gradients sums' 'dtype bf16 micros 5 gradients sums dp 2'; do
        watched "$built/buggy" run "$built/gpt2.safetensors" dump $run;     expect_status 0
        run check "$built/gpt2.safetensors" dump;    expect_status 0; expect_silent; expect_no_out '^  wrong'
        [[ $run != *'micros 2'* ]] || { run check "$built/gpt2.safetensors" dump --parts 1;   expect_status 3; expect_out 'with --parts 2 the first of them is right'; }
    done
    # Where no number of parts explains what is wrong, nothing is said of it.
    watched "$built/buggy" run "$built/gpt2.safetensors" dump dtype bf16 bug mask-next; expect_status 0
    run check "$built/gpt2.safetensors" dump;    expect_status 3; expect_no_out '[-]-parts'
}

# Moments in 16 bits are wrong unless that is declared; moments that a dump only shows rounded are right.
test_kept_states() {
    watched "$built/buggy" run "$built/gpt2.safetensors" dump dtype bf16 bug moments-in-16-bits;    expect_status 0
    run check "$built/gpt2.safetensors" dump;    expect_status 3; expect_error 'kept in bf16: step 2 goes on from rounded numbers, which --stored-states allows'
    run check "$built/gpt2.safetensors" dump --stored-states;    expect_status 0; expect_silent
    watched "$built/buggy" run "$built/gpt2.safetensors" dump dtype bf16 masters rounded;    expect_status 0
    run check "$built/gpt2.safetensors" dump;    expect_status 0; expect_silent
}

# The page's table is the program's list.
test_the_page() {
    command='buggy list'
    "$built/buggy" list | awk -F'|' '{ print "| `" $1 "` | " $8 " |" }' >list
    [ "$(wc -l <list)" -gt 90 ] || complain "the list has $(wc -l <list) bugs"
    grep -oE '^\| `[a-z0-9-]+` \| [^|]* \|' "$page" | cmp -s - list || complain 'docs/checking/bugs.md has another list'
    watched "$built/buggy" run none out bug nothing;        expect_status 2
    watched "$built/buggy" run "$top/golden/none" out;        expect_status 1
}

run_tests test_bugs test_two test_right_runs test_headline test_measured_numbers test_equal_logits test_copies_apart test_microbatches test_kept_states test_the_page; result=$?
rm -rf "$built"
exit $result
