# `orrery diagnose`: a run of processes with something made slow, one that hangs, one that is killed; what is damaged is named.
. "$(dirname "$0")/lib.sh"

record() { train --dp 2 --tp 2 --batch 4 --steps 3 --record rec --sample 0 "$@"; }

test_slow_is_named() {
    record --disturb link:1-3:4,noise:10;       expect_status 0
    run diagnose rec --svg a.svg --json a.json; expect_status 3
    expect_out '^SLOW: the link from device 1 to device 3 is slow, and no other of theirs: messages take [34]\.[0-9] times what the cluster.s rates say, others 1\.[01]; in 3 of 3 steps'
    grep -q '<svg' a.svg && grep -q 'link from device 1 to' a.svg || complain 'the picture does not say who is slow'
    grep -q '"class":[[:space:]]*"slow in communication"' a.json || complain 'the document has no class'
    record --disturb compute:2:3@2;             expect_status 0
    run diagnose rec;                           expect_status 3
    expect_out '^SLOW: device 2 is slow outside communication: its operations take 3\.0 times .* device 2 waits least: .* in step 2 alone, of 3$'
    record;                                     expect_status 0
    run diagnose rec;                           expect_status 0; expect_out '^OK: no device and no link stands out in 3 steps$'
    # Records of a larger mesh are gone.
    train --dp 2 --batch 4 --steps 1 --record rec --sample 0; expect_status 0
    [ "$(echo rec/*)" = 'rec/device-00000.record rec/device-00001.record' ] || complain "left: $(echo rec/*)"
}

# The limit of waiting only ends the run: who hangs follows from who waits for whom.
test_hang_is_named() {
    record --wait-limit 1 --disturb hang:3@2;   expect_status 1
    run diagnose rec;                           expect_status 3
    expect_out '^HANGS: device 3 hangs outside communication: in step 2, after [0-9]+ calls, it does not come to the .* 3 devices wait for it$'
    record --wait-limit 1 --disturb hang-inside:1@3; expect_status 1
    run diagnose rec;                           expect_status 3
    expect_out '^HANGS: device 1 hangs in communication: in step 3 it has begun its call [0-9]+, .* and sends nothing; 3 devices wait for it'
}

test_what_is_wrong_is_named() {
    record;                                     expect_status 0
    run diagnose nowhere;                       expect_status 1; expect_error 'nowhere/device-00000\.record: '
    cp -r rec cut; head -c 1000 rec/device-00002.record >cut/device-00002.record
    run diagnose cut;                           expect_status 1; expect_error 'cut/device-00002\.record: is no record of a device: its length'
    cp -r rec mixed; cp rec/device-00001.record mixed/device-00003.record
    run diagnose mixed;                         expect_status 1; expect_error 'mixed/device-00003\.record: is no record of a device: it is another device.s'
    echo no >mixed/device-00000.record
    run diagnose mixed;                         expect_status 1; expect_error 'does not begin as one'
    record --disturb compute:9:2;               expect_status 2; expect_error '--disturb compute: there is no device 9: devices are 0 to 3'
    record --disturb slow:1:2;                  expect_status 2; expect_error '--disturb slow:1:2: at most 8 words'
    run infer --record rec;                     expect_status 2
}

run_tests test_slow_is_named test_hang_is_named test_what_is_wrong_is_named
