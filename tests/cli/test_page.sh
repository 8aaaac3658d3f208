# The page of a run: what is on it, what is refused, how large it is.
. "$(dirname "$0")/lib.sh"

data_of() { sed -n 's/.*id="data">//p' "$1" | sed 's|</script>.*||'; }
# One list of a page's film, or of a document's: [[..],[..]].
list_of() { tr -d '\n\t ' <"$1" | grep -o "\"$2\":\[\(\[[^]]*\],\{0,1\}\)*\]" | head -n 1; }
# Numbers of a page's sentence about two runs.
numbers_of() { grep -o '"words":.*' "$1" | head -n 1; }

test_page() {
    train --batch 8 --seq 8 --steps 4 --dp 2 --pp 2 --micro 2 --check ref --page page.html;     expect_status 0; expect_silent
    ! grep -qE '( src=|href|url\(|@import|<link|<img|https?://)' page.html || complain 'the page needs something else'
    grep -q "Content-Security-Policy\" content=\"default-src 'none'" page.html || complain 'no policy keeps the page from a network'
    [ "$(grep -c '<script' page.html)" = 2 ] || complain 'the page has other scripts than its own'
    data_of page.html >data
    local part
    for part in '"kind":"run"' '"unit":"ps"' '"axes":\[\["pp",2\],\["dp",2\]\]' '"place":"pp=1 dp=0"' '"has":"layers 4-7, loss;' '"name":"forward","mark":"F","of":"compute"' \
                '"name":"send over pp","mark":"","of":"message"' '"title":"forward of h.0"' '"formula","dX = dY W.T, dW = X.T dY' \
                '"losses":\[[0-9.]*,[0-9.]*,[0-9.]*,[0-9.]*\]' '"holds":true' '"notes":\["steps 1 to 1 of 4' '"title":"orrery train --model tiny '; do
        grep -qE "$part" data || complain "the film has no $part"
    done
    ! grep -q -- '"title":"[^"]*--page' data || complain 'the title says where the page goes'
    cp page.html first.html
    train --batch 8 --seq 8 --steps 4 --dp 2 --pp 2 --micro 2 --check ref --page page.html
    expect_same first.html page.html
}

# The film of a plan is that of the run, to the picosecond; and so is that of a document.
test_a_plan_is_its_run() {
    train --batch 8 --seq 8 --steps 1 --dp 2 --pp 2 --tp 2 --micro 4 --schedule zb-h1 --page run.html --json run.json --film;       expect_status 0
    run plan --model tiny --batch 8 --seq 8 --dp 2 --pp 2 --tp 2 --micro 4 --schedule zb-h1 --page plan.html --json plan.json --film;  expect_status 0
    local list
    for list in passes messages shares marks; do
        list_of run.html $list >of_run; list_of plan.html $list >of_plan; list_of run.json $list >of_document
        [ $list = marks ] || [ "$(wc -c <of_run)" -gt 100 ] || complain "there are no $list"
        expect_same of_run of_plan; expect_same of_run of_document
    done
    run page run.json --out again.html;                                 expect_status 0; expect_silent
    list_of again.html passes >of_document; list_of run.html passes >of_run; expect_same of_run of_document
}

# 8 devices, 3 steps, of a usual run; the scripts of a page; 64 devices of a plan.
test_sizes() {
    run train --model small --pp 4 --tp 2 --micro 8 --schedule zb-h1 --steps 3 --batch 8 --seq 16 --page page.html --page-steps 3
    expect_status 0
    [ "$(wc -c <page.html)" -lt 2000000 ] || complain "the page has $(wc -c <page.html) bytes"
    grep -q '"marks":\[[0-9]*,[0-9]*,[0-9]*\]' page.html || complain 'there are not three steps'
    [ "$(cat "$top"/emulated_devices/draw/page/script/*.js | wc -c)" -lt 60000 ] || complain 'the script has more than 60 KB'
    run plan --model small --pp 4 --tp 4 --dp 4 --batch 64 --micro 8 --schedule zb-h1 --page plan.html;    expect_status 0
    [ "$(wc -c <plan.html)" -lt 2000000 ] || complain "the page has $(wc -c <plan.html) bytes"
    grep -q 'messages are not drawn' plan.html || complain 'nothing says that messages are left out'
    run plan --model tiny --tp 4 --dp 72 --batch 72 --page many.html;        expect_status 0
    grep -q '72 of 288 devices are drawn; each of the others does what one of them does' many.html || complain 'nothing says what stands for what'
}

test_two_runs() {
    local plan=(plan --model small --pp 4 --micro 8)
    run "${plan[@]}" --schedule gpipe --json a.json --film;             expect_status 0
    run "${plan[@]}" --schedule zb-h1 --json b.json --film;             expect_status 0
    run page a.json b.json --out two.html;                              expect_status 0; expect_silent
    numbers_of two.html | grep -qE 'zb-h1 saves [0-9.]+ ms against gpipe: bubble -[0-9.]+, messages [-+][0-9.]+, computing [-+][0-9.]+ ms' || complain "the words are $(numbers_of two.html)"
    # as printed, the parts add up to the whole, and the whole is the difference of the ends
    numbers_of two.html | awk '{ match($0, /saves [0-9.]+/); whole = substr($0, RSTART + 6, RLENGTH - 6); rest = substr($0, RSTART + RLENGTH)
        while (match(rest, /[-+][0-9.]+/)) { sum += substr(rest, RSTART, RLENGTH); rest = substr(rest, RSTART + RLENGTH) }
        exit !(whole > 0 && sum + whole < 1e-6 && sum + whole > -1e-6) }' || complain "the parts do not add up: $(numbers_of two.html)"
    grep -o '"end":[0-9]*' two.html | tr -d '"end:' | awk -v said="$(numbers_of two.html | grep -oE 'saves [0-9.]+' | tr -dc 0-9.)" \
        'NR == 1 { a = $1 } NR == 2 { d = (a - $1) / 1e9 - said; exit !(d < 0.006 && d > -0.006) }' || complain 'it is not the difference of the ends'
    run page a.json b.json a.json b.json --out four.html;               expect_status 0
    run page a.json b.json a.json b.json a.json;                        expect_status 2
}

test_other_documents() {
    train --batch 8 --seq 8 --steps 2 --dp 2 --pp 2 --micro 2 --json plain.json --log log.jsonl;      expect_status 0
    ! grep -q '"film"' plain.json || complain 'a document has a film that nobody asked for'
    for file in plain.json log.jsonl; do
        run page $file --out page.html;                                 expect_status 0; expect_silent
        grep -q 'drawn from the profile of the first step, without layers, messages and checks' page.html || complain 'nothing says what is missing'
        grep -q '"place":"pp=1 dp=1"' page.html || complain 'the devices have no place'
    done
    sed 's/^\t"version":\t[0-9]*/\t"version":\t1/' plain.json >old.json
    run page old.json --out old.html;                                   expect_status 1; expect_error 'old.json: a document of version 1 without a film; this program reads version [0-9]'
    [ ! -e old.html ] || complain 'it wrote a page'
    train --batch 8 --seq 8 --steps 2 --dp 2 --json film.json --film;   expect_status 0
    sed 's/"film":\t1,/"film":\t2,/' film.json >new.json
    run page new.json --out new.html;                                   expect_status 1; expect_error 'a film of version 2; this program reads version 1'
    sed 's/"made_by":\t"[^"]*"/"made_by":\t"9.9<b>"/' film.json >other.json
    run page other.json --out other.html;                               expect_status 0
    grep -q 'made by version 9.9\\u003cb> of this program' other.html || complain 'nothing says who made it'
    run plan --model tiny --json none.json
    run page none.json --out none.html;                                 expect_status 1; expect_error 'none.json: has neither a film \(--film\) nor a profile'
}

test_hostile_files() {
    local film='{"film":1,"made_by":"0","title":"</script><img src=x onerror=alert(1)>","kind":"run","unit":"tick","end":0'
    echo "$film}" >empty.json
    run page empty.json --out empty.html;                               expect_status 0; expect_silent
    ! grep -q '<img' empty.html || complain 'a title became an element'
    grep -q '"devices":\[\]' empty.html || complain 'the film has devices'
    run page empty.json empty.json --out two.html;                      expect_status 0
    grep -q 'without devices has no time to compare' two.html || complain 'it compares nothing with nothing'
    train --batch 8 --seq 8 --steps 1 --dp 2 --json film.json --film
    head -c $(($(wc -c <film.json) / 2)) film.json >half.json
    run page half.json --out half.html;                                 expect_status 1; expect_error 'half.json'
    sed 's/"end":\t[0-9]*/"end":\t5/' film.json >short.json
    run page short.json --out half.html;                                expect_status 1; expect_error 'short.json: [a-z]*\[[0-9]*\]: '
    echo "$film,\"devices\":7}" >seven.json
    run page seven.json --out half.html;                                expect_status 1; expect_error 'devices'
    [ ! -e half.html ] || complain 'it wrote a page'
}

test_words() {
    train --steps 1 --film;                                             expect_status 2; expect_error '--film: needs --json FILE'
    train --steps 1 --page-steps 2;                                     expect_status 2; expect_error '--page-steps 2: needs --page FILE, --film or --live PORT'
    train --steps 1 --page nowhere/page.html;                           expect_status 1; expect_error '--page nowhere/page.html: cannot be written'
    run plan --model tiny --page nowhere/page.html;                     expect_status 1; expect_error '--page nowhere/page.html: cannot be written'; [ -z "$out" ] || complain 'it planned before'
    run train --check "$top/golden/gpt2-tied.safetensors" --page p.html;      expect_status 2; expect_error "--page: a golden file's run is not filmed"
    run plan --model tiny --dp 512 --batch 512 --unfolded --page p.html;    expect_status 2; expect_error '--page: 512 devices run, and a page can show 256'
    echo old >kept.html; chmod 444 kept.html; mkdir folder
    run page nothere.json --out kept.html;                              expect_status 1; expect_error 'nothere.json'
    run plan --model tiny --page folder;                                expect_status 1
    [ "$(cat kept.html)" = old ] || complain 'the page that was there is gone'
    rm -rf kept.html folder;                                            expect_nothing
    run page;                                                           expect_status 2
    run page --help;                                                    expect_status 0; expect_out 'usage: orrery page RUN'
}

# A trace has its own number of steps.
test_steps_of_a_trace_stay() {
    train --batch 8 --seq 8 --steps 3 --dp 2 --trace a.json --trace-steps 1;                              expect_status 0
    train --batch 8 --seq 8 --steps 3 --dp 2 --trace b.json --trace-steps 1 --page p.html --page-steps 3;     expect_status 0
    expect_same a.json b.json
    grep -q '"marks":\[[0-9]*,[0-9]*,[0-9]*\]' p.html || complain 'the page has not three steps'
}

run_tests test_page test_a_plan_is_its_run test_sizes test_two_runs test_other_documents test_hostile_files test_words test_steps_of_a_trace_stay
