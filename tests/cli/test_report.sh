# A page about runs: everything it needs is in it, it has what the files have, and it fits a telephone and a screen.
. "$(dirname "$0")/lib.sh"

make_runs() {
    train --batch 8 --seq 8 --steps 6 --dp 2 --pp 2 --micro 2 --zero 1 --check ref --json a.json;        expect_status 0
    train --batch 8 --seq 8 --steps 6 --dp 2 --pp 2 --micro 2 --schedule zb-h1 --lr 3e-3 --eval-every 2 --log b.jsonl --save ck
    expect_status 0
}

test_page() {
    make_runs
    run report a.json b.jsonl ck --out page.html;           expect_status 0; expect_silent
    ! grep -qE '( src=|href|url\(|@import|<script|<link|<img)' page.html || complain 'the page needs something else'
    local part
    for part in 'a.json: verdict and plan' 'b.jsonl: first step of each device' 'a.json: memory in the first step' 'a.json: bytes sent in the first step' \
                'b.jsonl: roofline' 'a.json: peaks of memory' 'Results, and what differs' 'ck: verdict and plan'; do
        grep -q "<h2>$part</h2>" page.html || complain "there is no part $part"
    done
    grep -q 'class="good">Equal to one device: [0-9]* tensors compared, all within their bounds' page.html || complain 'the verdict of the check is not there'
    grep -q '<td>lr</td><td></td><td>0.003</td><td>0.003</td>' page.html || complain 'it does not say that the rates differ'
    ! grep -q '<td>micro</td>' page.html || complain 'it says that what is equal differs'
    grep -q '>backward for weights</span>' page.html || complain 'the timeline of zb-h1 has no W'
    # every point of a curve lies in its field, and there are six
    [ "$(grep -o '<path fill="none" stroke-width="1.6" d="[^"]*' page.html | head -n 1 | grep -o '[ML]' | wc -l)" = 6 ] || complain 'a curve of six steps has not six points'
    run report b.jsonl --out again.html; cp again.html first.html; run report b.jsonl --out again.html
    expect_same first.html again.html
    head -c $(($(wc -c <b.jsonl) - 5000)) b.jsonl >cut.jsonl; run report cut.jsonl --out cut.html;       expect_status 0     # a run that goes on
}

# What is called the first step is the first step, also of a run whose trace has more steps.
test_first_step() {
    local plan=(--batch 8 --seq 8 --steps 3 --dp 2 --pp 2 --micro 2 --zero 1) traced n
    profile() { sed -n '/^\t"profile":/,/^\t}/p' "$1"; }
    train "${plan[@]}" --json plain.json;                   expect_status 0
    run report plain.json --out plain.html;                 expect_status 0
    [ "$(profile plain.json | wc -l)" -gt 20 ] || complain 'there is no profile'
    for n in 1 2 3; do
        train "${plan[@]}" --trace t.json --trace-steps $n --json traced.json;      expect_status 0
        expect_same <(profile plain.json) <(profile traced.json)
        run report traced.json --out traced.html;           expect_status 0
        expect_same <(drawn plain) <(drawn traced)
    done
    [ "$(drawn plain | wc -l)" = 4 ] || complain 'timeline, memory, bytes and roofline are not on the page'
    train "${plan[@]}" --eval-every 1 --json eval.json;     expect_status 0
    expect_same <(profile plain.json) <(profile eval.json)          # what is measured between steps is not of the first one
    sed 's/^\t\t"steps":\t1,$/\t\t"steps":\t2,/' plain.json >sum.json
    run report sum.json --out sum.html;                     expect_status 0
    grep -q 'This file adds up 2 steps, so nothing of the first one is drawn' sum.html || complain 'two steps are drawn as the first one'
    [ "$(drawn sum | wc -l)" = 1 ] || complain 'something of two steps is drawn'
    sed '0,/"whole":\ttrue/s//"whole":\tfalse/' plain.json >cut.json
    run report cut.json --out cut.html;                     expect_status 0
    grep -q 'Of 1 device the step had more events than are recorded' cut.html || complain 'nothing says that the end is missing'
}
# Each part of the page in one line, without the name of its file.
drawn() { tr '\n' ' ' <"$1.html" | sed "s|<section|\n<section|g" | grep -E '<h2>[^<]*: (first step of each device|memory in the first step|bytes sent in the first step|roofline)<' | sed "s|$1\.json||"; }

# What a file says cannot become a part of the page.
test_hostile_files() {
    printf '{"steps":[{"step":1,"loss":2},{"step":"x","loss":null},7],"settings":{"<script>alert(1)</script>":"\\"><b>"},"written_by":{"command":["<i>"]},"devices":[3,{"peak_bytes":7}],"profile":{"devices":[{"timeline":[[0,1e300,"<u>",0],[1],"x"],"memory":[[0,1,2,3,4,5],[]],"sent":[[0,1,1e30]],"operations":[["<s>",1,5,6,7],[1]]}],"flop_rate":1e12,"memory_rate":1e9}}' >bad.json
    run report bad.json --out page.html;                    expect_status 0; expect_silent
    ! grep -qE '<(script|b>|i>|u>|s>)' <(sed 's/<b>[a-z ]*:*<\/b>//g' page.html) || complain 'text of a file is markup of the page'
    grep -q '&lt;script&gt;' page.html || complain 'the text is not there'
}

test_what_is_refused() {
    echo '{ "x": 1 }' >x.json; echo 'no' >x.jsonl; mkdir empty
    run report;                             expect_status 2; expect_error 'report needs RUN'
    run report none.json;                   expect_status 1; expect_error 'none\.json: '
    run report x.json;                      expect_status 1; expect_error 'x\.json: is not what --json of train, infer or plan writes'
    run report x.jsonl;                     expect_status 1; expect_error 'x\.jsonl: '
    run report empty;                       expect_status 1; expect_error 'empty: has no checkpoint'
    [ ! -e report.html ] || complain 'it wrote a page all the same'
}

# In a browser, if there is one: nothing is wider than the page, at 360 and at 1280 pixels.
test_browser() {
    local browser width found
    browser=$(command -v chromium chromium-browser google-chrome | head -n 1)
    if [ -z "$browser" ]; then echo 'skipped: no Chromium'; return; fi
    make_runs
    run report a.json b.jsonl ck --out page.html
    # the page allows no scripts: this copy does, to be measured; a window without a screen is not narrower than 500 pixels
    for width in 360 1280; do
        command="chromium, $width pixels wide"
        sed "/Content-Security-Policy/d; s|</head>|<style>html{width:${width}px}</style></head>|; s|</body>|<script>document.body.dataset.right = Math.ceil(Math.max(...[...document.querySelectorAll('section,h1,h2,p,p span,svg,.scroll,.lane,.x,.y')].map(e => e.getBoundingClientRect().right)))</script></body>|" page.html >measured.html
        timeout 100 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$place/browser" --window-size=1400,900 --dump-dom "file://$PWD/measured.html" >"$place/out" 2>/dev/null </dev/null
        found=$(grep -o 'data-right="[0-9]*"' "$place/out" | tr -dc 0-9)
        [ "${found:-9999}" -le "$width" ] || complain "something ends at ${found:-nowhere}"
        [ "${found:-0}" -ge $((width * 9 / 10)) ] || complain "nothing is wider than ${found:-nothing}"
    done
}

run_tests test_page test_first_step test_hostile_files test_what_is_refused test_browser
