# `orrery check GOLDEN DIR --watch`: steps are judged as their files come; `--page`: what was found, drawn.
. "$(dirname "$0")/lib.sh"

golden=$top/golden/gpt2-tied.safetensors

# A golden file of three steps, and in d/ the files of a right run of two ranks, one for each step and rank.
make_steps() {
    golden_make own --model llama-tiny:L=3 --text "$top/README.md" --sequences 2 --tokens 5 --steps 3 --optimizer adamw --clip 0.5
    run train --check own.safetensors --dp 2 --dtype "${1:-fp32}" --dump d/ --dump-passes --dump-steps;     expect_status 0; expect_out '^dumped  6 files to d/'
    mkdir w
}

# Begin to watch; the writer is this script.
watch_begin() {
    command="orrery check own.safetensors w --watch $*"
    "$program" check own.safetensors w --watch --timeout 250 "$@" </dev/null >"$place/out" 2>"$place/err" &
    watcher=$!
}
watch_end() { status=0; wait $watcher || status=$?; look; }

# Until a line is there.  A watch that has ended says no more.
until_said() {
    local i
    for i in {1..2500}; do
        grep -qE -- "$1" "$place/out" && return
        kill -0 $watcher 2>/dev/null || break
        sleep 0.1
    done
    grep -qE -- "$1" "$place/out" || { look; complain "it does not say: $1"; }
}

# A writer gives a file its name when it is whole.
give() { local f; for f in "$@"; do cp "$f" w/part; mv w/part "w/$(basename "$f")"; done; }

# The numbers of a tensor become zero.
zero() {
    local at count; at=$(od -An -t u8 -N 8 "$1" | tr -d ' ')
    count=$(head -c $((8 + at)) "$1" | grep -aoE "\"$2\":\{[^}]*\"data_offsets\":\[[0-9]+,[0-9]+" | grep -oE '[0-9]+,[0-9]+$')
    head -c $((${count#*,} - ${count%,*})) /dev/zero | dd of="$1" bs=1 conv=notrunc seek=$((8 + at + ${count%,*})) 2>/dev/null
}

# Each step is judged before the next one comes.  What the program has deleted since, and what has no final name, does no harm.
test_step_by_step() {
    make_steps
    run check own.safetensors d;        expect_status 0; expect_silent; expect_out '^ +474  right$'       # the files of all steps are a dump, too
    watch_begin --json j --page p.html
    head -c 3000 d/step1.rank0.safetensors >w/step1.rank0.safetensors.tmp
    give d/step1.rank1.safetensors d/step1.rank0.safetensors
    until_said '^step 1 +OK +158 of 158 tensors right$'
    expect_no_out '^step 2'
    rm w/step1.rank*.safetensors
    give d/step2.rank0.safetensors
    if [ -d /proc/$watcher/fd ]; then
        for i in {1..2500}; do ls -l /proc/$watcher/fd | grep -q step2.rank0 && break; sleep 0.1; done
        rm w/step2.rank0.safetensors                                        # it is open
    fi
    give d/step2.rank1.safetensors
    until_said '^step 2 +OK +158 of 158 tensors right$'
    grep -q '>Step 2<' p.html || complain 'the page is not that of the step'
    give d/step3.rank0.safetensors d/step3.rank1.safetensors
    watch_end;                          expect_status 0; expect_silent; expect_out '^step 3 +OK +158 of 158'; expect_out '^OK: 3 of 3 steps right$'
    [ "$(grep -c '"step":' j)" = 3 ] || complain 'the JSON does not have the steps'
    grep -q '"holds":.*true' j || complain 'the JSON does not say that it holds'
}

# It ends at the first step that is wrong, and names what is; or goes on.
test_wrong_step() {
    make_steps; cp d/step* w
    zero w/step2.rank1.safetensors 'adamw/2/act/h.1.mlp.act#0'
    run check own.safetensors w --watch;                    expect_status 3; expect_error 'step 2: adamw/2/act/h.1.mlp.act is not what its own inputs give on dp=1: what is wrong is zero'
    expect_out '^step 1 +OK'; expect_out '^step 2 +FAILED +3 of 158 tensors wrong: adamw/2/act/h.1.mlp.act is not'; expect_no_out '^step 3'
    expect_out '^first to be wrong by itself'; expect_out '^FAILED: 1 of 2 steps right$'
    run check own.safetensors w --watch --go-on;            expect_status 3; expect_out '^step 3 +OK'; expect_out '^FAILED: 2 of 3 steps right$'
    # A norm that is not its gradients' is found in its own step, and so is what was clipped by another one.
    cp d/step2* w; zero w/step2.rank0.safetensors adamw/2/norm; zero w/step2.rank1.safetensors adamw/2/norm
    run check own.safetensors w --watch;                    expect_status 3; expect_error 'step 2: adamw/2/norm is not what its own inputs give'
    # Weights that are not those which the step before has left.
    cp d/step* w; zero w/step1.rank0.safetensors 'adamw/1/exp_avg/model.norm.weight#0'; zero w/step1.rank1.safetensors 'adamw/1/exp_avg/model.norm.weight#0'
    run check own.safetensors w --watch;                    expect_status 3; expect_error 'step 1: adamw/1/exp_avg/model.norm.weight'
}

# What cannot be judged is not OK: a file that is missing, of no use, late, or of nobody; a program that ends early.
test_not_enough() {
    make_steps; cp d/step1* d/step3* d/step2.rank1* w
    head -c 1000 d/step2.rank0.safetensors >w/cut.safetensors
    cp "$golden" w/strange.safetensors
    LC_ALL=C sed 's#"act/h.0.mid\#0"#"adamw/2/act/h.0\#0"#' d/step1.rank0.safetensors >w/two.safetensors
    run check own.safetensors w --watch;                    expect_status 3; expect_error 'step 2: rank 0 of 2 has no file of it'
    expect_out '^file +not used +w/cut.safetensors: says its header has .* was it cut short'
    expect_out '^file +not used +w/strange.safetensors: does not say whose it is: its metadata has no "orrery_dump"'
    expect_out '^file +not used +w/two.safetensors: '
    expect_out '^step 2 +not judged +rank 0 of 2'; expect_out '^step 3 +NOT ENOUGH .*: .*cannot be judged.*dump adamw/2/weight/'
    expect_out '^NOT ENOUGH: 1 of 3 steps right, 2 not, or not all of it; 3 files could not be used$'
    run check own.safetensors w --watch --steps 1;          expect_status 3; expect_error 'not all was judged; 3 files'
    rm -rf w; mkdir w; cp d/step1* w; : >w/done
    run check own.safetensors w --watch;                    expect_status 3; expect_error 'the program has ended, but step 2 has no file of rank 0 of 2'; expect_out '^step 1 +OK'
    run check own.safetensors w --watch --steps 1;          expect_status 0; expect_silent; expect_out '^OK: 1 of 1 step right$'
    rm w/done
    run check own.safetensors w --watch --timeout 0.5;      expect_status 3; expect_error 'nothing for 0.5 s: step 2 has no file of rank 0 of 2'
    run check own.safetensors none --watch --timeout 0.5;   expect_status 3; expect_error 'nothing for 0.5 s: there is no folder none'; expect_out '^NOT ENOUGH: no step was judged'
    # A file of another mesh, and one that comes after its step was judged.
    cp d/step* w; LC_ALL=C sed 's/\\"dp\\":2/\\"tp\\":2/' d/step2.rank1.safetensors >w/step2.rank1.safetensors
    run check own.safetensors w --watch;                    expect_status 3; expect_out '^step 2 +not judged +w/step2.rank1.safetensors: metadata "mesh" is not that of'
    rm -rf w; mkdir w; watch_begin --steps 2; give d/step1*; until_said '^step 1 +OK'; cp d/step1.rank0.safetensors w/again.safetensors
    until_said 'again.safetensors: came after step 1 was judged'; give d/step2*
    watch_end;                                              expect_status 3; expect_out '^NOT ENOUGH: 2 of 2 steps right; 1 file could not be used'
}

# A signal ends it with what is known so far.
test_signal() {
    make_steps; watch_begin; give d/step1*; until_said '^step 1 +OK'
    kill -TERM $watcher; watch_end;                         expect_status 3; expect_out '^NOT ENOUGH: 1 of 1 step right; ended by SIGTERM, before step 2$'; expect_error 'ended by SIGTERM'
}

# Sixteen bits, states that are judged from the step before, and a golden file that has the last step only.
test_other_runs() {
    make_steps bf16; cp d/step* w
    run check own.safetensors w --watch;                    expect_status 0; expect_silent; expect_out '^OK: 3 of 3 steps right$'
    run golden make --out last.safetensors --model tiny:L=2 --text "$top/README.md" --sequences 1 --tokens 4 --steps 2 --keep last;     expect_status 0
    run check last.safetensors w --watch;                   expect_status 2; expect_error 'the golden file has what is there after the last step only'
    run train --check last.safetensors --dump e/ --dump-steps;      expect_status 2; expect_error '--dump-steps: the golden file has'
}

test_usage() {
    : >file
    run check "$golden" file --watch --steps 1;             expect_status 1; expect_error 'file: is not a folder'
    run check "$golden" w --watch --steps 9;                expect_status 2; expect_error '--steps 9: the golden file has steps 1 to'
    run check "$golden" "$golden" --go-on;                  expect_status 2; expect_error '--go-on: says how --watch goes on'
    run check "$golden" "$golden" --timeout 3;              expect_status 2; expect_error '--timeout: says how --watch goes on'
    run check "$golden" w --watch --first;                  expect_status 2; expect_error '--first does not go with --watch'
    run check "$golden" "$golden" --first --page p.html;    expect_status 2; expect_error '--first does not go with --page'; [ ! -e p.html ] || complain 'there is a page'
    run check "$golden" w --watch --map m;                  expect_status 2; expect_error '--map m: what --watch reads says itself'
    run train --check "$golden" --dump file --dump-steps;   expect_status 2; expect_error '--dump-steps: says what --dump DIR/ writes'
}

# The page: the verdict, what is wrong first, a node and a row for each tensor; no script, nothing from outside, names are only text.
test_page() {
    run check "$golden" "$golden" --page p.html;            expect_status 0; expect_silent
    [ "$(grep -c '<tr id="t' p.html)" = 250 ] || complain 'not every tensor has a row'
    [ "$(grep -c '<a class="right" href="#t' p.html)" = 250 ] || complain 'not every tensor has a node'
    grep -q 'good">✓ OK' p.html || complain 'it does not say OK'
    ! grep -qE '<script|src=|https?:|@import|url\(' p.html || complain 'it is not by itself'
    run golden make --out own.safetensors --model tiny:L=2 --text "$top/README.md" --sequences 2 --tokens 8 --steps 1; expect_status 0
    cc -O2 "$top/golden/own_program.c" -lm -o own_program 2>/dev/null || { echo 'skipped: no compiler'; return; }
    ./own_program own.safetensors bad.safetensors scale
    run check own.safetensors bad.safetensors --page p.html;        expect_status 3
    grep -q '<a class="first" href="#t[0-9]*" id="first">✗ attn.heads</a>' p.html || complain 'the first wrong tensor is not drawn'
    grep -q 'bad">✗ FAILED: act/h.0.attn.heads differs' p.html || complain 'the verdict is not there'
    grep -q 'scores are divided by the root of the width D' p.html || complain 'the evidence is not there'
    grep -q '<a class="after" href="#t[0-9]*">↳ attn.out</a>' p.html || complain 'what follows is not drawn'
    grep -q '– [0-9]* not judged' p.html || complain 'what is not judged is not drawn'
    # Where it cannot be written nothing is; names are text.
    mkdir no; cp p.html before.html
    run check own.safetensors bad.safetensors --page no;        expect_status 1; expect_error '--page no: cannot be written'; expect_no_out '^first'
    LC_ALL=C sed 's#act/h.0.mid#act/<b>&mid#' bad.safetensors >strange.safetensors
    run check own.safetensors strange.safetensors --page p.html
    ! grep -qE '<b>&' p.html || complain 'a name is markup'
    # A thousand tensors.
    golden_make many --model tiny --text "$top/README.md" --sequences 1 --tokens 4 --steps 3 --optimizer adamw
    run check many.safetensors many.safetensors --page p.html;      expect_status 0
    [ "$(grep -c '<tr id="t' p.html)" -gt 700 ] || complain 'tensors are missing'
    [ "$(stat -c %s p.html)" -lt 1000000 ] || complain "the page has $(stat -c %s p.html) bytes"
}

# In a browser, if there is one: nothing is wider than the page.
test_browser() {
    local browser width found
    browser=$(command -v chromium chromium-browser google-chrome | head -n 1)
    if [ -z "$browser" ]; then echo 'skipped: no Chromium'; return; fi
    run check "$golden" "$golden" --page page.html
    for width in 360 1280; do
        command="chromium, $width pixels wide"
        sed "/Content-Security-Policy/d; s|</head>|<style>html{width:${width}px}</style></head>|; s|</body>|<script>document.body.dataset.right = Math.ceil(Math.max(...[...document.querySelectorAll('section,h1,h2,p,.layer,.phase a,.scroll')].map(e => e.getBoundingClientRect().right)))</script></body>|" page.html >measured.html
        timeout 100 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$place/browser" --window-size=1400,900 --dump-dom "file://$PWD/measured.html" >"$place/out" 2>/dev/null </dev/null
        found=$(grep -o 'data-right="[0-9]*"' "$place/out" | tr -dc 0-9)
        [ "${found:-9999}" -le "$width" ] || complain "something ends at ${found:-nowhere}"
        [ "${found:-0}" -ge $((width * 9 / 10)) ] || complain "nothing is wider than ${found:-nothing}"
    done
}

# A resumed program's first step is the one after its checkpoint; every later one begins with its own weights, too.
test_resumed() {
    golden_make own --model llama-tiny:L=3 --text "$top/README.md" --sequences 2 --tokens 5 --steps 3 --optimizer adamw --clip 0.5
    run train --check ./own.safetensors --dp 2 --save saved --save-every 1;     expect_status 0
    run train --check ./own.safetensors --dp 2 --resume saved/step-00000001 --dump d/ --dump-passes --dump-steps;   expect_status 0
    touch d/done
    run check own.safetensors d --watch --timeout 5 --json j;   expect_status 0; expect_silent; expect_out '^resumed   after step 1$'; expect_no_out '^step 1 '
    expect_out '^step 2 +OK +[0-9]+ of [0-9]+ tensors right'; expect_out '^step 3 +OK +[0-9]+ of [0-9]+ tensors right'; expect_out '^OK: 2 of 2 steps right$'
    grep -q '"begins":.*1' j || complain 'the JSON does not say where it begins'
    run check own.safetensors d --watch --timeout 5 --steps 1;  expect_status 3; expect_error 'the program begins after step 1, so none of steps 1 to 1 is in its dump'
    zero d/step3.rank1.safetensors 'adamw\/3\/act\/h.2.mlp.act#0'
    run check own.safetensors d --watch --timeout 5;            expect_status 3; expect_error 'step 3: adamw/3/act/h.2.mlp.act'
    cp d/step2.rank0.safetensors d/step2.rank1.safetensors .
    LC_ALL=C sed 's/"begins":"1"/"begins":"2"/' step2.rank1.safetensors >d/step2.rank1.safetensors
    run check own.safetensors d --watch --timeout 5;            expect_status 3; expect_out 'not used +d/step[23].rank[01].safetensors: begins after step [12], and the files before it after step [12]'
}

run_tests test_step_by_step test_wrong_step test_not_enough test_signal test_other_runs test_usage test_page test_browser test_resumed
