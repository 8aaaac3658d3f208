# golden/exact.py, which has the rule of docs/checking/exact.md once more, agrees with every bit of a run with exact sums; skipped without
# Python and numpy.  Files of such a run have formats that readers know, and checkpoints keep the word.
. "$(dirname "$0")/lib.sh"
export PYTHONDONTWRITEBYTECODE=1
python=
for one in "${PYTHON:-}" "${PY:-}" python3 /usr/bin/python3; do
    if [ -n "$one" ] && "$one" -c 'import numpy' 2>/dev/null; then python=$one; break; fi
done
has_python() { [ -n "$python" ] || { echo 'skipped: there is no Python with numpy'; return 1; }; }

rule=exact
# agrees GOLDEN WORDS.. -- golden/exact.py computes what this run has stored.
agrees() {
    rm -rf dump
    run train --arithmetic "$rule" --check "$top/golden/$1.safetensors" --dump dump/ "${@:2}"
    expect_status 0
    "$python" "$top/golden/exact.py" "$top/golden/$1.safetensors" dump >said 2>&1
    grep -qE '^OK: [0-9]{2} tensors of 1 pass,' said || complain "$(tail -1 said)"
}

test_gpt() {
    has_python || return 0
    agrees gpt2-tied
    agrees gpt2-even --dp 2 --tp 2
    agrees gpt2-even --cp 2 --attention ring --dtype fp16
    agrees gpt2-untied --pp 3 --dtype bf16
}

test_llama() {
    has_python || return 0
    agrees llama-even --dp 2 --tp 2
    agrees llama-even --cp 3 --attention tokenring
    agrees llama-grouped --dtype fp16 --pp 3 --micro 3
    agrees mistral-broad --cp 2
}

# Parallel streams: prefixes, which queries of a stream see beside their tokens, and the mean that a network weighs.
test_streams() {
    has_python || return 0
    agrees parscale-tied --dtype bf16
    agrees parscale-grouped --cp 2 --attention streams
    rule=exact2
    agrees parscale-grouped --dp 2 --tp 2
    rule=exact
}

test_two_slices() {
    has_python || return 0
    rule=exact2
    agrees gpt2-even --dp 2 --tp 2
    agrees llama-grouped --dtype bf16 --cp 2
    agrees mistral-broad
    rule=exact
}

# A last bit of one stored element is seen, by its name.
test_a_wrong_bit_is_named() {
    has_python || return 0
    agrees gpt2-tied
    cat >spoil.py <<'S'
import json, struct
path = "dump/rank0.safetensors"
content = bytearray(open(path, "rb").read())
(length,) = struct.unpack("<Q", content[:8])
begin, _ = json.loads(content[8:8 + length])["grad/h.1.mlp.c_fc.weight#0"]["data_offsets"]
content[8 + length + begin + 4 * 40] ^= 1
open(path, "wb").write(content)
S
    "$python" spoil.py
    "$python" "$top/golden/exact.py" "$top/golden/gpt2-tied.safetensors" dump >said 2>&1; [ $? = 3 ] || complain "not named: $(cat said)"
    grep -q '^differs: grad/h.1.mlp.c_fc.weight \[1, 19\]: .*; 1 of 777 elements' said || complain "$(cat said)"
}

# Gradients are sums of 16 bytes; in files they are fp32.
test_files_have_known_formats() {
    run train --arithmetic exact --check "$top/golden/gpt2-tied.safetensors" --dump whole.safetensors
    expect_status 0
    ! head -c 40000 whole.safetensors | grep -a -q '"dtype":"exact' || complain 'whole.safetensors has a format that no reader knows'
}

exact='--model tiny --seq 20 --batch 6 --seed 7'
fingerprint() { sed -nE 's/^bits .* fingerprint ([0-9a-f]{16}).*/\1/p' <<<"$out"; }

test_a_checkpoint_keeps_the_word() {
    # shellcheck disable=SC2086
    run train --arithmetic exact $exact --steps 2 --lr-steps 4 --save s
    expect_status 0; local two; two=$(fingerprint)
    grep -q "\"fingerprint\":	\"$two\"" s/training.json || complain "training.json has not the fingerprint $two"
    # shellcheck disable=SC2086
    run train --arithmetic exact $exact --steps 4 --lr-steps 4
    expect_status 0; local four; four=$(fingerprint)
    run train --resume s --steps 2 --dp 2 --tp 2
    expect_status 0; [ "$(fingerprint)" = "$four" ] || complain "resumed on another mesh: $(fingerprint), not $four"
    run train --resume s --steps 2 --arithmetic ordinary
    expect_status 2; expect_error '--arithmetic: saved exact, now not given'
    run train --resume s --steps 2 --arithmetic ordinary --override
    expect_status 0; expect_out 'this layout, kernel and thread count only'
}

test_options_that_store_elsewhere() {
    # shellcheck disable=SC2086
    set -- train --arithmetic exact $exact --steps 2 --dp 2
    run "$@"; expect_status 0; local one; one=$(fingerprint)
    for more in '--offload optimizer' '--offload activations' '--offload weights --zero 3' '--paranoid' '--log log.jsonl'; do
        # shellcheck disable=SC2086
        run "$@" $more; expect_status 0
        [ "$(fingerprint)" = "$one" ] || complain "$more: $(fingerprint), not $one"
    done
}

run_tests test_gpt test_llama test_streams test_two_slices test_a_wrong_bit_is_named test_files_have_known_formats \
    test_a_checkpoint_keeps_the_word test_options_that_store_elsewhere
