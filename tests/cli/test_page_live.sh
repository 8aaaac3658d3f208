# The page of a run that goes on: who asks with the run's token, from this machine, gets the page; nobody else gets anything.
. "$(dirname "$0")/lib.sh"

trap '' PIPE                                        # who refuses a long request may close before all of it has come
ask() {                                             # ask METHOD PATH HOST: the answer is in `reply`
    exec 3<>"/dev/tcp/127.0.0.1/$port" || { complain 'nobody listens'; return; }
    printf '%s %s HTTP/1.1\r\n%s\r\n\r\n' "$1" "$2" "$3" >&3
    timeout 5 cat <&3 >reply 2>/dev/null
    exec 3<&- 3>&-
}
answers() { head -n 1 reply | grep -q "^HTTP/1.1 $1 " || complain "the answer to $2 is $(head -n 1 reply | tr -d '\r'), not $1"; }

test_live() {
    make_text
    "$program" train --model tiny --data "$text" --dp 2 --steps 100000 --live 0 >live.out 2>live.err & local child=$! url port path i
    for i in $(seq 300); do grep -qs 'http://' live.out && break; sleep 0.1; done
    url=$(grep -o 'http://[^ ]*' live.out); path=/${url#http://*/}; port=${url#http://127.0.0.1:}; port=${port%%/*}
    command="train --live 0"
    [[ $url =~ ^http://127\.0\.0\.1:[0-9]+/[0-9a-f]{32}/$ ]] || complain "the address is '$url'"
    for i in $(seq 300); do ask GET "${path}state" "Host: localhost:$port"; grep -q '"film":0' reply || break; sleep 0.1; done
    grep -q '"film":1,"ends":false,"losses":\[[0-9.]*' reply || complain "the state is $(tail -n 1 reply)"
    ask GET "$path" "Host: 127.0.0.1:$port";                            answers 200 'the page'
    grep -q 'id="data">{"films":\[\],"words":\[\]}' reply || complain 'the page is not the page'
    ask GET "${path}data" "Host: 127.0.0.1:$port";                      answers 200 'the data'
    grep -q '"films":\[{"film":1' reply || complain 'the data are no film'
    ask GET "${path}other" "Host: 127.0.0.1:$port";                     answers 404 'another path'
    ask GET "/00000000000000000000000000000000/" "Host: 127.0.0.1:$port";   answers 403 'a wrong token'
    ask GET "${path%??}/" "Host: 127.0.0.1:$port";                      answers 403 'a short token'
    ask GET / "Host: 127.0.0.1:$port";                                  answers 403 'no token'
    ask GET "$path" "Host: evil.example:$port";                         answers 403 'another host'
    ask GET "$path" "Host: 127.0.0.1";                                  answers 403 'a host without its port'
    ask GET "$path" "X: y";                                             answers 403 'no host'
    ask GET "$path" "Host: 127.0.0.1:$port"$'\r\n'"Host: evil.example"; answers 403 'two hosts'
    ask POST "$path" "Host: 127.0.0.1:$port";                           answers 405 'POST'
    ask GET "$path" "Host: 127.0.0.1:$port"$'\r\n'"X: $(head -c 5000 /dev/zero | tr '\0' x)";   answers 431 'a long request'
    train --steps 1 --live "$port";                                     expect_status 1; expect_error "--live $port: cannot listen on this port of 127.0.0.1: "
    kill -TERM $child; wait $child
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && complain 'somebody listens after the run'
    train --steps 1 --live 70000;                                       expect_status 2
}

run_tests test_live
