# The page of a plan in a headless Chromium: it answers the plan of its address by itself, in the program's words.
#
# `make wasm` builds the page.  Without it, and without Chromium, nothing is tested.
. "$(dirname "$0")/../cli/lib.sh"
page=$top/${BUILD:-build}/wasm/plan.html

here=$(realpath "$(dirname "$0")")

missing() {
    [ -s "$page" ] || { echo 'skipped: `make wasm` has not built the page'; return 0; }
    command -v chromium >/dev/null && command -v node >/dev/null || { echo 'skipped: no chromium, or no node to speak with it'; return 0; }
    return 1
}

# show '#plan=..' READY EXPRESSION [WIDTHxHEIGHT]: the page of an address, when READY is true there.
show() {
    command="chromium plan.html$1"
    watched node "$here/chromium.js" "file://$page$1" "$2" "$3" "${4:-1280x900}"
}

# What the page shows of a step is what ./orrery says, also of its film; and the address and the command say the same plan.
test_it_answers() {
    missing && return
    run plan --model small --dp 4 --tp 2 --batch 16 --json plan.json
    local step; step=$(sed -n 's/^\t"virtual_step_ps":\t\([0-9]*\).*/\1/p' plan.json)
    show '#plan=--model+small+--cluster+toy+--dtype+fp32+--dp+4+--tp+2+--batch+16' 'page.films.length > 0' \
        '[page.films[0].end, document.querySelector(".figures dd").textContent, ask.command.textContent, location.hash, document.querySelectorAll(".tile").length].join("|")'
    expect_status 0
    expect_out "^$step\|$(awk -v ps="$step" 'BEGIN { printf "%.4g", ps / 1e9 }')[0.]* ms\|orrery plan --model small --cluster toy --dp 4 --tp 2 --batch 16 --dtype fp32\|#plan=--model\+small\+.*\|[0-9]+$"
}

test_it_refuses_in_the_programs_words() {
    missing && return
    run plan --model tiny --pp 16
    local said; said=$(cat "$place/err")
    show '#plan=--model+tiny+--cluster+toy+--dtype+fp32+--pp+16' 'document.querySelector("[role=alert]")' 'document.querySelector("[role=alert]").innerText'
    expect_status 0
    grep -qF -- "$said" "$place/out" || complain "it does not say: $said"
}

# A slider changes command, address and answer; a change that would fit is made by its button.
test_sliders() {
    missing && return
    show '#plan=--model+small+--cluster+toy+--dtype+fp32' 'ask.shown && !ask.busy && !ask.next' \
        '(async () => { const s = document.getElementById("field2"); s.value = 1; s.dispatchEvent(new Event("input")); while (!ask.shown.words.includes("--dp")) await new Promise(r => setTimeout(r, 50)); return commandOf(ask.shown.words) + "|" + location.hash; })()'
    expect_out '^orrery plan --model small --cluster toy --dp 2 --dtype fp32\|#plan=--model\+small\+--cluster\+toy\+--dp\+2\+--dtype\+fp32$'
    show '#plan=--model+small+--cluster+toy+--dtype+fp32+--dp+8+--batch+16+--memory+14M' 'document.querySelector(".verdict button")' \
        '(async () => { document.querySelector(".verdict button").click(); while (ask.shown.status !== 0) await new Promise(r => setTimeout(r, 50)); return document.querySelector(".verdict").innerText; })()'
    expect_out '^. fits yes: '
}

# What a field leaves out of the command is what the program takes without it.
test_usual_values() {
    missing && return
    show '#plan=--model+tiny+--cluster+toy+--dtype+fp32' 'typeof FIELDS === "object"' 'FIELDS.filter(f => f.usual !== undefined && f.usual !== "").map(f => f.flag + " " + f.usual).join(" ")'
    local words=$out
    run plan --model tiny --json -; results "$place/out" >short
    run plan --model tiny $words --json -; expect_status 0; results "$place/out" >long
    expect_same short long
}

# It fits a telephone, every field has a name, and an arrow key moves a slider, not the film.
test_narrow_and_named() {
    missing && return
    show '#plan=--model+small+--cluster+toy+--dtype+fp32+--dp+2' 'page.films.length > 0' \
        '[document.documentElement.scrollWidth, [...document.querySelectorAll("input, select")].filter(e => !(e.labels && e.labels.length) && !e.getAttribute("aria-label")).length, (() => { const k = new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true, cancelable: true }); document.getElementById("field2").dispatchEvent(k); return k.defaultPrevented; })()].join(" ")' 360x740
    expect_out '^3[0-6][0-9] 0 false$'
}

# The page asks nothing of any network, and its names say what fields are for.
test_nothing_from_outside() {
    missing && return
    command=plan.html out= err=
    sed '/id="program"/d; /id="names"/,/<\/script>/d' "$page" >page
    ! grep -nE '(src|href)=["'"'"']?(https?:)?//|\bfetch\(|XMLHttpRequest|innerHTML' page || complain 'it has something from outside, or innerHTML'
    [ "$(du -k "$page" | cut -f1)" -lt 4096 ] || complain "it has $(du -k "$page" | cut -f1) KiB"
}

run_tests test_it_answers test_it_refuses_in_the_programs_words test_sliders test_usual_values test_narrow_and_named test_nothing_from_outside
