# Pages in a browser, if there is one: nothing is wider than the page, keys move the time, all has names, a frame of 64 devices is quick.
. "$(dirname "$0")/lib.sh"

browser=$(command -v chromium chromium-browser google-chrome | head -n 1)
in_browser() {
    timeout 100 "$browser" --headless=new --no-sandbox --disable-gpu --allow-file-access-from-files --user-data-dir="$place/browser" --virtual-time-budget=4000 --window-size=1400,1000 \
        --dump-dom "file://$PWD/$1" 2>/dev/null </dev/null | grep -o '<li>[^<]*'
}

test_in_a_browser() {
    [ -n "$browser" ] || { echo 'skipped: no Chromium'; return; }
    run plan --model small --pp 4 --tp 4 --dp 4 --batch 64 --micro 8 --schedule zb-h1 --page wide.html --json a.json --film;   expect_status 0
    run plan --model small --pp 4 --micro 8 --json b.json --film;       expect_status 0
    run page a.json b.json --out two.html;                              expect_status 0
    cp "$top/tests/page/look.html" .
    in_browser look.html | sed 's/^<li>//' >"$place/out"
    command="$browser"; look
    local width
    for width in 360 1280; do expect_out "^wide.html at $width: fits$"; expect_out "^two.html at $width: fits$"; done
    expect_out '^errors: none$'
    expect_out '^keys: 0 step 1 end home$'
    expect_out '^names: all$'
    expect_out '^frame: [0-7]\.[0-9]+ ms$'
    echo "[          ] 64 devices, $(grep '^frame: ' "$place/out")"
}

run_tests test_in_a_browser
