# The page's program, run by node, answers what ./orrery answers: each number of a plan is equal, to the byte and the picosecond.
#
# `make wasm` builds the program (docs/plans/browser.md).  Without it, and without node, nothing is tested.
. "$(dirname "$0")/../cli/lib.sh"
wasm=$top/${BUILD:-build}/wasm/plan.wasm
engine=$top/emulated_devices/browser/page/engine/10_engine.js
here=$(realpath "$(dirname "$0")")

missing() {
    [ -s "$wasm" ] || { echo 'skipped: `make wasm` has not built the page'; return 0; }
    command -v node >/dev/null || { echo 'skipped: no node'; return 0; }
    return 1
}

# Questions on standard input: the answers of both programs without who wrote them, what the clock of the wall said, and the process's memory.
ask_both() {
    cat >questions; mkdir -p page
    command='node same.js'
    node "$here/same.js" "$engine" "$wasm" "$PWD/questions" "$PWD/page" || complain 'node has failed'
    local n=0 line
    while IFS= read -r line; do
        n=$((n + 1))
        run $line --json -
        command="orrery $line, in node"
        [ "$(cat "page/$n.status")" = "$status" ] || complain "node's status is $(cat "page/$n.status"), the program's $status: $(tail -n 1 "page/$n.err")"
        settings_of "$place/out" >own; settings_of "page/$n.out" >others
        cmp -s own others || complain "these lines differ: $(diff own others | head -n 6)"
        [ -n "$out" ] || [ "$(tail -n 1 "page/$n.err")" = "$(tail -n 1 "$place/err")" ] || complain "node says: $(cat "page/$n.err")"
    done < <(sed 's/^/plan /' questions)
}
settings_of() { sed -E 's/"(host|system|processor)":\t"[^"]*"/"\1"/; s/"(cores|seconds|median_step_seconds|resident_bytes)":\t[-+0-9.e]+/"\1"/' "$1"; }

test_a_dozen_plans() {
    missing && return
    ask_both <<'END'
--model tiny
--model tiny --dp 2 --pp 2
--model small --dp 2 --tp 2 --pp 2 --zero 3
--model small --pp 4 --schedule interleaved --chunks 2 --micro 4
--model small --pp 4 --schedule zb-h1 --micro 4 --batch 16
--model small --pp 4 --schedule dualpipev --micro 8 --batch 16
--model llama-tiny --cp 2 --attention ring-zigzag --recompute full --dtype bf16
--model mixtral-tiny --dp 2 --ep 2 --dtype bf16 --load zipf:1
--model deepseek-v3-tiny --dp 2 --pp 2 --cluster h100-infiniband
--model llama3-8b:L=4 --dp 4 --tp 4 --batch 8 --cluster h100-infiniband --dtype bf16 --data-parallel fsdp --recompute selective
--model gpt2 --dp 4 --tp 2 --cluster a100-ethernet --zero 2 --memory-of megatron
--model small --dp 8 --batch 16 --memory 14M
--model tiny --dp 2 --pp 2 --page-steps 1 --film
END
}

# What cannot be planned is refused in the program's words, with its status.
test_refusals() {
    missing && return
    ask_both <<'END'
--model nosuch
--model tiny --tp 3
--model tiny --pp 7
--dp 0
--nosuch 3
--model tiny --batch 3 --dp 2
--model small --schedule interleaved --pp 2
--cluster nowhere
--model tiny --config none.yaml
END
}

# A page has no files: it says so, and does not plan something else.
test_no_files() {
    missing && return
    mkdir -p page; printf '%s\n' '--model tiny --tokenizer there' '--model tiny --from megatron:x' >questions
    command='node same.js'
    node "$here/same.js" "$engine" "$wasm" "$PWD/questions" "$PWD/page" || complain 'node has failed'
    for n in 1 2; do
        [ "$(cat page/$n.status)" = 1 ] && grep -q 'a page in a browser reads no files' page/$n.err || complain "it says: $(cat page/$n.err)"
    done
}

run_tests test_a_dozen_plans test_refusals test_no_files
