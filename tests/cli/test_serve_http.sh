# `orrery serve --port`: OpenAI's API by HTTP on emulated devices.  What it answers, refuses and survives.
. "$(dirname "$0")/lib.sh"

model=$top/golden/sampling/llama
exactly='--arithmetic exact --check ref'

# begin WORDS...: the server answers at $url.
begin() {
    command="orrery serve --port 0 $*"; out='' err=''
    timeout -k 5 120 "$program" serve --model "${served_model:-$model}" --port 0 "$@" >served 2>complaints & server=$!
    for ((i = 0; i < 600; i++)); do
        url=$(sed -n 's|.* at \(http://[^ ]*\)/v1$|\1|p' served 2>/dev/null)
        [ -z "$url" ] && kill -0 $server 2>/dev/null || break
        sleep 0.05
    done
    [ -n "$url" ] || complain "it does not begin: $(cat complaints)"
}
# The end: SIGTERM, then the report.
finish() {
    kill -TERM $server 2>/dev/null; wait $server; status=$?
    cp served "$place/out"; cp complaints "$place/err"; look
}
ask() {                                         # ask PATH BODY [WORDS OF CURL]
    curl -sS -m 60 -o answer -w '%{http_code}' -H "Content-Type: ${type:-application/json}" -d "$2" "${@:3}" "$url$1" >code 2>curl.err
    out=$(cat answer 2>/dev/null)
}
expect_answer() { [ "$(cat code)" = "$1" ] || complain "HTTP status $(cat code), expected $1"; grep -qE -- "$2" answer || complain "the answer does not match: $2"; rm -f answer; }
needs_server() {
    printf '{"prompt":"a"}\n' >one
    "$program" serve --model tiny --trace one >/dev/null || complain '--trace does not work'
    run serve --model tiny --port 0 --host nonsense
    if grep -q libmicrohttpd "$place/err"; then expect_status 2; echo '  skipped: this program was built without libmicrohttpd'; return 1; fi
    command -v curl >/dev/null || { echo '  skipped: there is no curl'; return 1; }
}

# A request by HTTP has the tokens of the same request in a trace, whole or streamed, on any mesh.
test_answers() {
    needs_server || return 0
    run serve --model "$model" --trace <(echo '{"prompt":"First","max_tokens":8,"top_k":40,"seed":3}') --answers want
    begin --tp 2 --dp 2 $exactly
    local body='"model":"llama","prompt":"First","max_tokens":8,"top_k":40,"seed":3'
    ask /v1/completions "{$body}"; cp answer whole
    expect_answer 200 '"object":"text_completion".*"finish_reason":"length".*"prompt_tokens":5,"completion_tokens":8,"total_tokens":13'
    [ "$(sed 's/.*"text":"\(.*\)","logprobs".*/\1/' whole)" = "$(sed 's/.*"text":"\(.*\)"}$/\1/' want)" ] || complain 'it has another text than in a trace'
    ask /v1/completions "{$body,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"; cp answer pieces
    expect_answer 200 '^data: \[DONE\]$'
    [ "$(sed -n 's/^data: .*"text":"\(.*\)","logprobs".*/\1/p' pieces | tr -d '\n')" = "$(sed 's/.*"text":"\(.*\)","logprobs".*/\1/' whole)" ] ||
        complain 'the pieces are not the whole'
    grep -q '"choices":\[\],"usage":{"prompt_tokens":5,"completion_tokens":8' pieces || complain 'it has no usage'
    for ((i = 0; i < 12; i++)); do curl -sS -m 60 -H 'Content-Type: application/json' -d "{$body}" "$url/v1/completions" -o same$i & list[i]=$!; done
    wait "${list[@]}"
    for ((i = 0; i < 12; i++)); do cmp -s <(sed 's/"id":"[^"]*","object":"text_completion","created":[0-9]*//' same$i) <(sed 's/"id":"[^"]*","object":"text_completion","created":[0-9]*//' whole) || complain "answer $i of twelve at a time is another"; done
    finish; expect_status 0; expect_silent; expect_out '^served  14 requests of clients; 0 left'
    expect_out '^check   OK: 112 of 112 tokens'
}

# With proposals a client gets several tokens of a round, and the same answer, whole and streamed.  (A file of answers has
# ? for control characters.)
test_drafts() {
    needs_server || return 0
    local body='"model":"llama","prompt":"abcabcab","max_tokens":14,"temperature":0.4,"seed":5' draft end
    run serve --model "$model" --trace <(echo '{"prompt":"abcabcab","max_tokens":14,"temperature":0.4,"seed":5}') --answers want
    for draft in '--draft ngram --tp 2 --dp 2' "--draft $model --take same"; do
        begin $draft $exactly
        ask /v1/completions "{$body}"; cp answer whole;     expect_answer 200 '"completion_tokens":14'
        [ "$(sed 's/.*"text":"\(.*\)","logprobs".*/\1/; s/\\u00[01]./?/g' whole)" = "$(sed 's/.*"text":"\(.*\)"}$/\1/' want)" ] || complain 'it has another text than without proposals'
        ask /v1/completions "{$body,\"stream\":true}"
        [ "$(sed -n 's/^data: .*"text":"\(.*\)","logprobs".*/\1/p' answer | tr -d '\n')" = "$(sed 's/.*"text":"\(.*\)","logprobs".*/\1/' whole)" ] ||
            complain 'the pieces are not the whole'
        finish; expect_status 0; expect_silent; expect_out '^drafts  [1-9][0-9]* proposed'
        expect_out '^check   OK: 28 of 28 tokens'
    done
}

# Texts that end an answer do not appear in it, not even in pieces.
test_stop_texts() {
    needs_server || return 0
    begin
    local body='"model":"llama","prompt":"First","max_tokens":16,"temperature":0'
    ask /v1/completions "{$body}"; cp answer whole
    local text; text=$(sed 's/.*"text":"\(.*\)","logprobs".*/\1/' whole)
    local letters; letters=$(printf '%s' "$text" | sed 's/\\u....//g; s/\\.//g' | grep -o '[a-zA-Z0-9]' | head -n 1)
    [ -n "$letters" ] || { finish; return 0; }
    ask /v1/completions "{$body,\"stop\":[\"$letters\",\"never there\"]}"; cp answer cut
    expect_answer 200 '"finish_reason":"stop"'
    [ "$(sed 's/.*"text":"\(.*\)","logprobs".*/\1/' cut)" = "${text%%"$letters"*}" ] || complain "it is not cut before $letters"
    ask /v1/completions "{$body,\"stop\":\"$letters\",\"stream\":true}"
    [ "$(sed -n 's/^data: .*"text":"\(.*\)","logprobs".*/\1/p' answer | tr -d '\n')" = "${text%%"$letters"*}" ] || complain 'a stream shows the text that ends it'
    finish; expect_status 0
}

test_refused() {
    needs_server || return 0
    begin --open 2
    local c=/v1/completions m='"model":"llama","prompt":"a"'
    ask $c "{$m";                       expect_answer 400 '"code":"invalid_json"'
    ask $c '[]';                        expect_answer 400 'must be an object'
    ask $c "{$m,\"temprature\":1}";     expect_answer 400 'no key temprature here; did you mean temperature.*"param":"temprature","code":"unknown_parameter"'
    ask $c "{$m,\"n\":2}";              expect_answer 400 'n is not served.*"param":"n","code":"unsupported_parameter"'
    ask $c "{$m,\"n\":1,\"logprobs\":null,\"presence_penalty\":0,\"max_tokens\":1}"; expect_answer 200 '"choices"'
    ask $c "{$m,\"logprobs\":0}";       expect_answer 400 'logprobs is not served'
    ask $c "{$m,\"temperature\":3}";    expect_answer 400 'temperature must be a number from 0 to 2'
    ask $c "{$m,\"max_tokens\":0}";     expect_answer 400 'max_tokens must be a whole number'
    ask $c "{$m,\"max_tokens\":900}";   expect_answer 400 '"code":"context_length_exceeded"'
    ask $c '{"model":"llama","prompt":[1,999]}';    expect_answer 400 'entry 1 must be a token of the model, 0 to 255'
    ask $c '{"model":"llama","prompt":["a","b"]}';  expect_answer 400 'several prompts are not served'
    ask $c '{"model":"gpt-4","prompt":"a"}';        expect_answer 404 '"type":"not_found_error","param":"model","code":"model_not_found"'
    ask $c '{"prompt":"a"}';                        expect_answer 400 'model must be there'
    ask $c "{$m,\"stop\":[\"\"]}";                  expect_answer 400 'stop must be'
    ask $c "{$m,\"stream_options\":{}}";            expect_answer 400 'is for stream'
    ask /v1/chat/completions '{"model":"llama","messages":[{"role":"user","content":"a"}]}'; expect_answer 400 'model llama has no chat template; use /v1/completions'
    type=text/plain ask $c "{$m}";                  expect_answer 415 'application/json'
    ask $c "{$m}" -H 'Host: evil.example';          expect_answer 403 'Only requests to 127.0.0.1'
    ask /v1/embeddings "{$m}";                      expect_answer 404 'There is nothing here'
    ask $c "{$m}" -X PUT;                           expect_answer 405 'takes POST'
    head -c 1100000 /dev/zero | tr '\0' ' ' >long
    ask $c @long;                                   expect_answer 413 '"code":"too_large"'
    ask $c @long -H 'Transfer-Encoding: chunked';   expect_answer 413 '"code":"too_large"'
    curl -sS "$url/v1/models/llama" -o answer -w '%{http_code}' >code; expect_answer 200 '"id":"llama","object":"model"'
    curl -sS "$url/health" -o answer -w '%{http_code}' >code;   expect_answer 200 '{}'
    printf 'GET / HTTP/9\r\n\r\n' | timeout 5 bash -c "exec 3<>/dev/tcp/127.0.0.1/${url##*:}; cat >&3; cat <&3" >answer; echo 400 >code; expect_answer 400 '400 Bad Request'
    ask $c "{$m,\"max_tokens\":1}";                 expect_answer 200 '"choices"'
    finish; expect_status 0; expect_silent
}

# Bytes that are no request end their connection alone.
test_malformed() {
    needs_server || return 0
    begin
    local bytes
    for bytes in '\0\0\0\377\376\r\n\r\n' 'POST /v1/completions HTTP/1.1\r\nHost localhost\r\n\r\n' \
                 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n' \
                 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999\r\n\r\n{}' \
                 'POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n' \
                 'POST /v1/completions\r\n\r\n' '\r\n\r\n\r\n' "GET /$(printf '%40000s' | tr ' ' a) HTTP/1.1\r\nHost: localhost\r\n\r\n"; do
        printf "$bytes" | timeout 1 bash -c "exec 3<>/dev/tcp/127.0.0.1/${url##*:}; cat >&3; head -c 12 <&3" >answer 2>/dev/null
        ! grep -qa ' 200' answer || complain "it answers ${bytes:0:40}"
        curl -sS -m 20 "$url/health" -o answer -w '%{http_code}' >code; expect_answer 200 '{}'
    done
    finish; expect_status 0; expect_silent
}

# A client that leaves ends its request, a late one hears why, and places are free again.
test_clients_leave() {
    needs_server || return 0
    served_model=llama-tiny begin --open 1 --seq 4096 --cache-blocks 300
    local m='"model":"llama-tiny","prompt":"a","max_tokens":4000'
    curl -sS -m 0.3 -H 'Content-Type: application/json' -d "{$m}" "$url/v1/completions" -o /dev/null 2>/dev/null
    curl -sSN -m 0.3 -H 'Content-Type: application/json' -d "{$m,\"stream\":true}" "$url/v1/completions" -o /dev/null 2>/dev/null
    for ((i = 0; i < 100; i++)); do
        ask /v1/completions '{"model":"llama-tiny","prompt":"a","max_tokens":1}'
        [ "$(cat code)" = 429 ] || break; sleep 0.1
    done
    expect_answer 200 '"choices"'
    finish; expect_status 0; expect_out '^served  [12] requests? of clients; [12] left'
}

# Many connections that say nothing, and a reader that reads nothing, keep nobody from being answered.
test_many_connections() {
    needs_server || return 0
    command -v python3 >/dev/null || { echo '  skipped: there is no python3'; return 0; }
    begin --connections 20000
    local before after; before=$(awk '/VmRSS/ { print $2 }' /proc/$server/status)
    local connections=1500; [ "${TIER:-}" != verify ] || connections=10000
    timeout 100 python3 - "${url##*:}" $connections >told <<'END' || complain "the connections failed: $(cat told)"
import json, resource, socket, sys, urllib.request
limit = resource.getrlimit(resource.RLIMIT_NOFILE)
want = int(sys.argv[2])
if limit[1] != resource.RLIM_INFINITY: want = min(want, limit[1] // 2 - 100)
resource.setrlimit(resource.RLIMIT_NOFILE, (min(want + 100, limit[1]) if limit[1] != resource.RLIM_INFINITY else want + 100, limit[1]))
port, idle = int(sys.argv[1]), []
body = json.dumps({"model": "llama", "prompt": "a", "max_tokens": 20, "stream": True}).encode()
head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
for i in range(want):
    s = socket.create_connection(("127.0.0.1", port), timeout=20)
    if i % 100 == 0: s.sendall(head + body)             # a slow reader
    elif i % 3 == 0: s.sendall(b"POST /v1/comp")        # half a request
    idle.append(s)
ask = urllib.request.Request("http://127.0.0.1:%d/v1/completions" % port, json.dumps({"model": "llama", "prompt": "a", "max_tokens": 2}).encode(), {"Content-Type": "application/json"})
for again in range(100):
    try: answer = json.load(urllib.request.urlopen(ask, timeout=30)); break
    except urllib.error.HTTPError as error:
        if error.code != 429: raise
print(want, answer["usage"]["completion_tokens"])
END
    after=$(awk '/VmRSS/ { print $2 }' /proc/$server/status)
    grep -q ' 2$' told || complain "with $(cat told): no answer beside many connections"
    [ $((after - before)) -lt 400000 ] || complain "it has $((after - before)) KiB more than before"
    ask /v1/completions '{"model":"llama","prompt":"a","max_tokens":1}'; expect_answer 200 '"choices"'
    finish; expect_status 0
}

# The openai package talks to it.
test_openai() {
    needs_server || return 0
    local python=${OPENAI_PYTHON:-python3}
    "$python" -c 'import openai' 2>/dev/null || { echo '  skipped: there is no Python with the openai package (OPENAI_PYTHON=...)'; return 0; }
    printf "{%% for m in messages %%}<{{ m.role }}>{{ m.content }}{%% endfor %%}<assistant>" >template
    begin --tp 2 --dp 2 --pp 2 --chat-template template $exactly
    timeout 100 "$python" "$top/tests/cli/openai_client.py" "${url##*:}" llama >"$place/said" 2>&1 || complain "the client failed: $(tail -n 3 "$place/said")"
    cp "$place/said" "$place/out"; look
    expect_out "^models \['llama'\]$"
    [ "$(sed -n 's/^whole //p' "$place/said")" = "$(sed -n 's/^pieces //p' "$place/said")" ] || complain 'whole and pieces differ'
    [ "$(sed -n 's/^chat \(.*\) [a-z]*$/\1/p' "$place/said")" = "$(sed -n 's/^deltas \(.*\) assistant [a-z]*$/\1/p' "$place/said")" ] || complain 'chat and deltas differ'
    expect_out '^refused model 404 NotFoundError model_not_found model$'; expect_out '^refused n 400 BadRequestError unsupported_parameter n$'
    expect_out '^refused length 400 BadRequestError context_length_exceeded prompt$'
    finish; expect_status 0; expect_out '^check   OK: 22 of 22 tokens'
}

test_wrong_words() {
    run serve --model tiny --port 1 --trace x;          expect_status 2; expect_error '--port: clients have the requests'
    run serve --model tiny --trace x --open 3;          expect_status 2; expect_error '--open: is for --port'
    needs_server || return 0
    run serve --model tiny --port 0 --answers x;        expect_status 2; expect_error '--answers: is for --trace and --draw'
    run serve --model tiny --port 0 --host nonsense;    expect_status 2; expect_error '--host nonsense: must be an address'
    echo '{% macro x %}' >template
    run serve --model tiny --port 0 --chat-template template; expect_status 1; expect_error '--chat-template template:1: .* is not supported'
}

run_tests test_answers test_drafts test_stop_texts test_refused test_malformed test_clients_leave test_many_connections test_openai test_wrong_words
