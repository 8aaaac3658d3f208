# Training on files of tokens: several with weights, on any mesh, gone on with to the bit; what is wrong is refused.
. "$(dirname "$0")/lib.sh"

gpt2=$top/golden/tokenizers/gpt2.json
small='--model tiny --batch 6 --seq 8'

# Tokens 0 to 99 in two layouts, and a text.
make_files() {
    [ ! -s a.bin ] || return 0
    local i
    for i in {0..599}; do printf '%b' "$(printf '\\x%02x\\x00' $((i * 7 % 100)))"; done >a.bin
    { printf '\x88\xd8\x34\x01\x01\x00\x00\x00\x2c\x01\x00\x00'; head -c 1012 /dev/zero; head -c 600 a.bin; } >b.bin
    seq 400 >c.txt
}

loss_of() { sed -n 's/^\t*"loss":\t*\([^,]*\),*$/\1/p' "$1" | head -n 1; }

test_on_every_mesh() {
    make_files
    run train $small --data a.bin:3,b.bin:1 --steps 2 --dtype fp64 --json one.json
    expect_status 0; expect_silent; expect_columns 120
    expect_out '^tokens  810, in 100 windows of 8: each once'; expect_out '^        3 of 4: a.bin, 67 windows$'; expect_out '^        1 of 4: b.bin, 33 windows$'
    expect_no_out '^warning'
    run train $small --data a.bin:3,b.bin:1 --steps 2 --dtype fp64 --json many.json --dp 2 --tp 3 --check ref
    expect_status 0; expect_out '^OK: every'
    awk -v a="$(loss_of one.json)" -v b="$(loss_of many.json)" 'BEGIN { exit !(a > 3 && a - b < 1e-9 && b - a < 1e-9) }' || complain 'another loss on six devices'
    run infer $small --data a.bin --steps 1 --pp 2 --check ref;             expect_status 0; expect_out '^OK: every'
}

# Three steps, then two: the bits of five, also on another mesh, and the place in the files is in the checkpoint.
test_goes_on_to_the_sample() {
    make_files
    local files='--data a.bin:2.5,b.bin:1 --eval-data b.bin' f
    run train $small $files --steps 5 --lr-steps 5 --save whole --dp 2 --tp 3;  expect_status 0
    run train $small $files --steps 3 --lr-steps 5 --save half --dp 2 --tp 3;   expect_status 0
    grep -q '"sequences taken":	"18"' half/training.json || complain 'the place is not in the checkpoint'
    mkdir elsewhere
    (cd elsewhere && run train --resume ../half --save ../again --dp 2 --tp 3); look
    expect_out '^resumed ../half, at step 3$'
    for f in config.json model.safetensors optimizer.safetensors training.json; do expect_same whole/$f again/$f; done
    run train --resume half --steps 1 --batch 4 --override --save other;    expect_status 0
    grep -q '"sequences taken":	"22"' other/training.json || complain 'it does not go on where it was'
    run train --resume half --steps 1 --data b.bin;                         expect_status 2; expect_error 'text: saved [0-9]+ tokens, SHA-256'
    run train --resume half --steps 1 --data a.bin:1,b.bin:1;               expect_status 2; expect_error 'text: saved [0-9]+ tokens, SHA-256'
    run train --resume half --steps 1 --eval-data a.bin;                    expect_status 2; expect_error 'held-out text: saved [0-9]+ tokens'
}

test_texts_and_tokenizers() {
    make_files
    run train $small --tokenizer "$gpt2" --data c.txt,a.bin --steps 1 --sample 20;  expect_status 0; expect_silent
    expect_out '^model .* V=659,'; expect_out '^        c.txt and 1 more, '; expect_no_out '^warning'
    run train $small --data a.bin --vocabulary 100 --steps 1;               expect_status 0; expect_out '^model .* V=100,'
    run train $small --data c.txt,c.txt --steps 1;                          expect_status 0; expect_out '^        c.txt and 1 more, '
    run train --model tiny --vocabulary 50257 --data c.txt --steps 0;       expect_status 0; expect_out '^warning model V=50257, but the text is bytes, 0 to 255'
    run train $small --data c.txt --eval-data a.bin --steps 1;              expect_status 0; expect_out '^text +c.txt, 1492 bytes'
    cp a.bin 'with,comma:3.bin'
    run train $small --data 'with,comma:3.bin' --steps 1;                   expect_status 0
}

# The same tokens with 32 bits, alone, beside an index and behind NumPy's head, are the same run; a mixture has them, settings and checkpoints, too.
test_widths() {
    make_files
    od -An -v -tu2 -w2 a.bin | while read -r token; do printf '%b' "$(printf '\\x%02x\\x00\\x00\\x00' "$token")"; done >wide.bin
    { printf "\x93NUMPY\x01\x00\x76\x00{'descr': '<i4', 'fortran_order': False, 'shape': (600,), }"; printf '%58s\n' ''; cat wide.bin; } >a.npy
    cp wide.bin m.bin
    { printf 'MMIDIDX\0\0\1\0\0\0\0\0\0\0\4\2\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\x90\1\0\0\xc8\0\0\0'
      printf '\0\0\0\0\0\0\0\0\x40\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0'; } >m.idx
    run train $small --steps 2 --data a.bin --json a.json;                          expect_status 0
    local one
    for one in wide.bin:i32 wide.bin:u32:0.5 wide.bin:2:i32 a.npy m.bin:u32 a.bin:u16; do
        run train $small --steps 2 --data $one --json one.json;                     expect_status 0
        [ "$(loss_of one.json)" = "$(loss_of a.json)" ] || complain "$one: loss $(loss_of one.json), not $(loss_of a.json)"
    done
    run train $small --steps 2 --data m.bin;                                        expect_out '^ +m.bin, 67 windows, 1 document of 32-bit tokens by its index$'
    cp wide.bin tokens.ds
    run train $small --steps 4 --lr-steps 4 --data tokens.ds:i32:3,m.bin:1 --save whole --dp 2;     expect_status 0
    expect_out '^ +3 of 4: tokens.ds, 67 windows$'
    run train $small --steps 2 --lr-steps 4 --data tokens.ds:i32:3,m.bin:1 --save half --dp 2;      expect_status 0
    grep -q '/tokens.ds:i32:3,.*/m.bin:1"' half/training.json || complain "$(grep data half/training.json)"
    (mkdir there; cd there; run train --resume ../half --save ../again --dp 2); look
    expect_same whole/model.safetensors again/model.safetensors
    printf 'model: tiny\nbatch: 6\nseq: 8\nsteps: 2\ndata: "wide.bin:i32"\n' >run.yaml
    run train --config run.yaml --json one.json;                                    expect_status 0
    [ "$(loss_of one.json)" = "$(loss_of a.json)" ] || complain "with settings: loss $(loss_of one.json)"
    refuses 1 '--data wide.bin: looks like numbers of 32 bits, not like tokens of 16 bits: give FILE:i32 or FILE:u32; for 16 bits give FILE:u16$' --data wide.bin --dp 2
    refuses 1 '--data m.bin:u16: its index says numbers of 32 bits; leave the :u16 away$' --data m.bin:u16
    refuses 1 '--data a.npy:u16: its NumPy head says numbers of 32 bits' --data a.npy:u16
    refuses 1 '--eval-data wide.bin: looks like numbers of 32 bits' --data a.bin --eval-data wide.bin
    refuses 1 '--data m.idx: is an index by its name; give the file with the tokens, NAME.bin$' --data m.idx
    refuses 1 '--data b.bin:i32: its head says numbers of 16 bits' --data b.bin:i32
    refuses 1 '--data wide.bin:i16: cannot be opened' --data wide.bin:i16
    refuses 2 '--data :i32: has an empty name' --data :i32
    head -c 40 m.idx >cut; mv cut m.idx
    refuses 1 '--data m.idx: says 2 sequences and 2 document bounds, and has only 40 bytes$' --data m.bin --dp 2
}

refuses() { run train $small --steps 1 "${@:3}"; expect_status "$1"; expect_error "$2"; }

test_what_is_wrong() {
    make_files
    head -c 100 b.bin >cut.bin; head -c 1100 b.bin >less.bin; head -c 101 a.bin >odd.bin; head -c 30 a.bin >few.bin; : >empty.bin
    { printf '\x89'; tail -c +2 b.bin; } >magic.bin; { head -c 4 b.bin; printf '\x02'; tail -c +6 b.bin; } >version.bin
    { head -c 500 a.bin; printf '\x51\xc4'; head -c 500 a.bin; } >big.bin
    refuses 1 '--data cut.bin: ends after 100 bytes, in its head of 1024' --data cut.bin
    refuses 1 '--data less.bin: its head says 300 tokens of 2 bytes, and 76 bytes follow' --data less.bin
    refuses 1 '--data odd.bin: has 101 bytes, an odd number' --data a.bin,odd.bin
    refuses 1 '--data empty.bin: is empty' --data empty.bin
    refuses 1 '--data magic.bin: has a head with the magic number 20240521' --data magic.bin --dp 2
    refuses 1 '--data version.bin: its head has version 2' --data version.bin
    refuses 1 '--data big.bin: token 250 is 50257; the model.s are 0 to 50256' --data big.bin --vocabulary 50257
    refuses 1 '--eval-data big.bin: token 250 is 50257; the model.s are 0 to 255' --data a.bin --eval-data big.bin --dp 2
    refuses 1 '--data none.bin: cannot be opened' --data none.bin
    refuses 2 '--data few.bin: has 1 tokens for validation .of 15., sequences of 8 need at least 9' --data few.bin
    refuses 2 '--data a.bin: has tokens, and c.txt is a text; --tokenizer PATH' --data a.bin,c.txt
    refuses 2 '--data a.bin:1,b.bin: some files have a weight and some have none' --data a.bin:1,b.bin
    refuses 2 '--data a.bin:0: the weight must be above 0' --data a.bin:0,b.bin:1
    refuses 2 '--data a.bin,,b.bin: has an empty name' --data a.bin,,b.bin
    refuses 2 '--data a.bin:1,b.bin:99999: weights are shares of more than 65536' --data a.bin:1,b.bin:99999
    refuses 2 '--pack: cuts one text of bytes' --data a.bin --pack lognormal
    refuses 2 '--tokenizer: needs --data FILE' --tokenizer "$gpt2"
    refuses 1 '--tokenizer none.json: cannot be opened' --tokenizer none.json --data c.txt
    refuses 2 '--vocabulary 1: ' --vocabulary 1 --data a.bin
    run train --resume none --vocabulary 300;                               expect_status 1; expect_error '--resume none: there is no such folder'
}

run_tests test_on_every_mesh test_goes_on_to_the_sample test_texts_and_tokenizers test_widths test_what_is_wrong
