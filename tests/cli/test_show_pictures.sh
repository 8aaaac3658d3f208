# `orrery show .. --svg` and `--page`: files with the numbers of the text drawing, whole or not at all.
. "$(dirname "$0")/lib.sh"

# The lines of a file that have the words, once for each time.
count() { grep -o -e "$2" "$1" | wc -l; }

# expect_count FILE WORDS NUMBER
expect_count() {
    local n
    n=$(count "$1" "$2")
    [ "$n" = "$3" ] || complain "$1 has $n of '$2', and must have $3"
}

# Both files are whole: the last line is the end of the document.
expect_whole() {
    [ "$(head -c 4 "$1.svg")" = '<svg' ] && [ "$(tail -n 1 "$1.svg")" = '</svg>' ] || complain "$1.svg is no whole SVG"
    [ ! -e "$1.html" ] || { head -n 1 "$1.html" | grep -qi '^<!doctype html' && tail -n 1 "$1.html" | grep -q '</html>'; } ||
        complain "$1.html is no whole page"
}

# 16 tokens have 136 pairs; a device of zigzag computes 10 with its own keys.  In a ring all pass on 4 times 3 blocks.
test_attention() {
    run show attention ring-zigzag --svg a.svg --page a.html
    expect_status 0; expect_silent; expect_columns 80; expect_whole a
    expect_count a.svg 'font-size="8">[1-4]<' 136;      expect_count a.svg 'font-size="8">1<' 40
    grep -q 'Sent: 12 messages, 6144 bytes' a.svg || complain 'a.svg has not what the text has of messages'
    grep -q '"kind":"attention","unit":"tick","end":4,' a.html || complain 'a.html has no four ticks'
    grep -q '"messages":\[\[0,1,0,1,512,1\],\[1,2,0,1,512,1\],\[2,3,0,1,512,1\],\[3,0,0,1,512,1\],' a.html ||
        complain 'device 0 does not send to 1 first, 1 to 2, and so on'
    expect_count a.html '"keys and values","mark":"KV"' 1
    # Device 1 has the keys of device 0 from tick 1 on, and is done with them at 2; at 4 all pairs are computed.
    grep -q '\[1,1,0,"0-1 × queries 2-3, 12-13",0\]' a.html || complain 'device 1 does not compute with 0-1 at tick 1'
    grep -q '\[2,1,0,"0-1: done",2\]' a.html || complain 'device 1 is not done with 0-1 at tick 2'
    expect_count a.html '"136 of 136 pairs",2' 4
    run show attention tokenring --page b.html;         grep -q '"queries","mark":"Q","of":"message"' b.html || complain 'no queries travel'
    ! grep -q '"mark":"KV"' b.html || complain 'keys travel in tokenring'
    run show attention ulysses --heads 4 --page c.html; grep -q '"queries, keys, values","mark":"QKV"' c.html || complain 'no heads travel'
}

# A matrix cut by rows: partial sums, then a ring adds them up.
test_tensor() {
    run show tensor 1d --devices 2 --role down --svg t.svg --page t.html
    expect_status 0; expect_silent; expect_whole t
    expect_out '^  3 steps, 4 messages'
    expect_count t.svg '>part 0<' 2; expect_count t.svg '>part 1<' 2; expect_count t.svg '>Σ<' 2
    grep -q '"kind":"tensor"' t.html || complain 't.html is no film of a tensor'
    grep -q '"Y\[0:4,0:4\](0)",1\]' t.html || complain 'device 0 has no partial sum'
    grep -q '"Y\[0:2,0:4\], added up",2\]' t.html || complain 'device 0 has not added up rows 0 and 1'
    run show tensor 2d --devices 9 --svg n.svg;         expect_status 0; [ "$(tail -n 1 n.svg)" = '</svg>' ] || complain 'n.svg has no end'
}

# Tokens keep the colour of their device; an expert has as many as the text has.
test_dispatch() {
    run show dispatch alltoall --svg d.svg --page d.html
    expect_status 0; expect_silent; expect_columns 80; expect_whole d
    # 12 tokens at the start, 24 rows behind the hop, 24 in the experts
    expect_count d.svg 'font-size="11">[abcd][012]<' 60
    expect_count d.html '"expert [0-7]","mark":"e[0-7]","of":"compute"' 8
    grep -q '"expert 1 computes 4 tokens","rows":\[\["tokens","a1 b1 c0 d0"\]' d.html || complain 'expert 1 has other tokens than the text'
    expect_count d.html '"[0-9]* rows, [0-9.]* times the mean",2' 4
    run show dispatch alltoall --devices 16 --tokens 16 --choices 8 --experts 64 --svg big.svg --page big.html
    expect_status 0; expect_whole big; [ "$(wc -c <big.html)" -lt 2000000 ] || complain 'the page of 16 devices has more than 2 MB'
}

# The bytes that leave device 0 are those of the text; a device has whole weights only while it needs them.
test_steps() {
    run show data zero3 --svg z.svg --page z.html
    expect_status 0; expect_silent; expect_columns 80; expect_whole z
    grep -q '"columns":\["tokens","positions","layer 0",' z.html || complain 'z.html has no column for each layer'
    grep -q ',"whole, gradient",2\]' z.html && grep -q ',"part",1\]' z.html || complain 'z.html: weights are never whole, or always'
    run show data ddp --page d.html;                    expect_status 0; ! grep -q ',"part' d.html || complain 'ddp cuts weights'
    run show memory --dp 2 --pp 2 --page m.html;        expect_status 0
    grep -q '"has":"layers 4-7, loss; sequences 0-3"' m.html || complain 'm.html does not say what device 2 has'
    expect_count m.html '"kinds":\["parameters","gradients","optimizer","activations","buffers"\]' 4
    run show plan --dp 2 --tp 2 --page p.html;          expect_status 0; expect_out '^4 devices$'; grep -q '"of":"compute"' p.html || complain 'p.html has no passes'
}

test_other_topics() {
    run show sbp mlp --mesh 4 --as 1d --svg s.svg;      expect_status 0; expect_silent; expect_count s.svg 'all-reduce B: 49152' 2; expect_count s.svg '>Σ<' 2
    run show sbp gpt2 --mesh 2x2 --as 2d --svg s2.svg;  expect_status 0; grep -q '(2 x 2): 166272 elements' s2.svg || complain 's2.svg has other sums'
    run show elastic 512,256 --devices 6 --svg e.svg;   expect_status 0; expect_count e.svg '>128 of 512<' 4; expect_count e.svg '>128 of 256<' 2
    run show cluster h100-rails --svg c.svg;            expect_status 0; expect_count c.svg '>node of 8<' 2; expect_count c.svg '14.0 us, 50 GB/s' 1
    [ "$(tail -qn 1 ./*.svg | sort -u)" = '</svg>' ] || complain 'an SVG file has no end'
    ! grep -q 'NaN\|nan\|inf' ./*.svg || complain 'a number of a picture is none'
}

# Every scheme of every topic can be drawn: in `make verify`.
test_every_scheme() {
    local topic name
    for topic in attention dispatch tensor; do
        run list $topic
        for name in $(sed -n 's/^  \([0-9a-z][a-z0-9.-]*\)  *[^ ].*/\1/p' "$place/out"); do
            case $topic-$name in
                attention-streams|dispatch-here) continue ;;
                attention-whole) run show $topic "$name" --devices 1 --svg x.svg --page x.html ;;
                tensor-3d) run show $topic "$name" --devices 8 --role qkv --svg x.svg --page x.html ;;
                dispatch-*) run show $topic "$name" --devices 4 --node 2 --svg x.svg --page x.html ;;
                *) run show $topic "$name" --devices 4 --svg x.svg --page x.html ;;
            esac
            expect_status 0; expect_silent; expect_whole x
            ! grep -q '>?<' x.svg || complain "$topic $name: a block of the picture is unknown"
            ! grep -q '\(nan\|inf\)"' x.svg || complain "$topic $name: a number of the picture is none"
            rm -f x.svg x.html
        done
    done
}

# One line, and no file, or the file that was there before.
test_refusals() {
    local topic
    for topic in attention tensor dispatch 'data zero3' memory plan; do
        run show $topic --page /nowhere/x.html;         expect_status 1; expect_error '/nowhere/x.html: cannot be written'
    done
    for topic in attention tensor dispatch sbp elastic cluster; do
        run show $topic --svg /nowhere/x.svg;           expect_status 1; expect_error '/nowhere/x.svg: cannot be written'
    done
    run show attention --svg;                           expect_status 2; expect_error '--svg'
    run show elastic 9,9 --devices 257 --svg e.svg;     expect_status 2; expect_error '--svg: 257 devices; at most 256 can be drawn'
    run show data zero3 --dp 128 --batch 128 --page x.html; expect_status 2; expect_error 'show data: 128 devices; at most 64'
    run show plan --page a --page b;                    expect_status 2; expect_error '--page is given twice'
    run show memory --page;                             expect_status 2; expect_error '--page wants a FILE'
    [ -z "$(ls)" ] || complain "files are left: $(ls)"
}

# Names from files are text, in both kinds of files.
test_markup() {
    sed 's/"name": *"toy"/"name": "<b>\&x"/' "$top/emulated_devices/device/clusters/toy.json" >c.json
    run show cluster ./c.json --svg c.svg;              expect_status 0
    ! grep -q '<b>\|&x' c.svg || complain 'a name is markup of the picture'
}

longer=(test_every_scheme)
[ "${TIER:-test}" = verify ] || longer=()
run_tests test_attention test_tensor test_dispatch test_steps test_other_topics test_refusals test_markup "${longer[@]}"
