# The page of a plan in a headless Chromium: it answers the plan of its address by itself, in the program's words.
#
# `make wasm` builds the page.  Without it, and without Chromium, nothing is tested.
. "$(dirname "$0")/../cli/lib.sh"
page=$top/${BUILD:-build}/wasm/plan.html

missing() {
    [ -s "$page" ] || { echo 'skipped: `make wasm` has not built the page'; return 0; }
    command -v chromium >/dev/null || { echo 'skipped: no chromium'; return 0; }
    return 1
}

# The page when its program has answered the plan of an address: see '#answered' in 30_ask.js.
show() {
    command="chromium plan.html$1"
    watched timeout 120 chromium --headless=new --no-sandbox --disable-gpu --user-data-dir="$PWD/profile" --window-size=${2:-1280},900 \
        --virtual-time-budget=100000 --timeout=60000 --dump-dom "file://$page$1"
}
shown() { tr -d '\n' <"$place/out" | sed 's/<script.*//' | grep -oE "$1" | sed 's/<[^>]*>/ /g' | tr -s ' '; }

test_it_answers() {
    missing && return
    show '#plan=--model+small+--dp+4+--tp+2+--batch+16'
    expect_status 0
    run plan --model small --dp 4 --tp 2 --batch 16 --json plan.json
    local step; step=$(sed -n 's/^\t"virtual_step_ps":\t\([0-9]*\).*/\1/p' plan.json)
    command='chromium plan.html'
    shown 'a step</dt><dd>[^<]*' | grep -qF "$(awk -v ps="$step" 'BEGIN { printf "%.4g ms", ps / 1e9 }')" || complain "a step is not $step ps: $(shown 'a step</dt><dd>[^<]*')"
    shown '<code>[^<]*' | grep -q 'orrery plan --model small --dp 4 --tp 2 --batch 16' || complain "the command is: $(shown '<code>[^<]*')"
}

test_it_refuses() {
    missing && return
    show '#plan=--model+tiny+--tp+3'
    run plan --model tiny --tp 3
    local said; said=$(cat "$place/err")
    show '#plan=--model+tiny+--tp+3'
    shown 'role="alert">.*' | grep -qF "${said:0:60}" || complain "it does not say: $said"
}

# The page asks nothing of any network, and its names say what fields are for.
test_nothing_from_outside() {
    missing && return
    command=plan.html out= err=
    sed '/id="program"/d; /id="names"/,/<\/script>/d' "$page" >page
    ! grep -nE '(src|href)=["'"'"']?(https?:)?//|\bfetch\(|XMLHttpRequest|innerHTML' page || complain 'it has something from outside, or innerHTML'
    [ "$(du -k "$page" | cut -f1)" -lt 4096 ] || complain "it has $(du -k "$page" | cut -f1) KiB"
}

run_tests test_it_answers test_it_refuses test_nothing_from_outside
