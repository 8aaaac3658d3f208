# Checkpoints of which every device writes its own boxes: any mesh reads them, `orrery reshard` cuts them anew, and what is wrong is named.
. "$(dirname "$0")/lib.sh"

small='--batch 8 --seq 8'

# Without the checksums of run.yaml, which says who wrote a folder.
same_folders() {
    local f
    [ "$(ls "$1")" = "$(ls "$2")" ] || complain "$1 has $(ls "$1" | tr '\n' ' '), $2 $(ls "$2" | tr '\n' ' ')"
    for f in $(ls "$1" | grep -v 'run\.yaml\|checkpoint\.sha256'); do expect_same "$1/$f" "$2/$f"; done
}

# Resumed on any mesh, the run has the bits of one that was resumed from whole tensors.
resumes() {                                         # resumes WRITER READER, of $model
    make_text
    local first=(train --model ${model:-tiny} --data "$text" $small --lr-steps 4 --steps 2 ${flags:-} $1)
    run "${first[@]}" --save boxes --sharded;           expect_status 0
    run "${first[@]}" --save whole;                     expect_status 0
    run train --resume boxes $2 --save after_boxes;     expect_status 0; expect_silent
    expect_out '^read  .*the boxes that the devices keep, from the files of [0-9]+ device'
    run train --resume whole $2 --save after_whole;     expect_status 0
    for f in model.safetensors optimizer.safetensors training.json; do expect_same after_boxes/$f after_whole/$f; done
    rm -rf boxes whole after_boxes after_whole
}
test_any_mesh_reads_them() {
    resumes '--dp 2 --tp 2 --zero 1' '--tp 3'
    flags='--dtype bf16' resumes '--dp 3 --zero 3' '--pp 2'
    model=mixtral-tiny resumes '--dp 2 --ep 2' '--tp 2'
    flags='--modalities 2 --dtype bf16' resumes '--dp 3 --zero 3' '--dp 2 --zero 1 --encoders apart'
}
test_replicas_and_states() {
    flags='--data-parallel diloco --local-steps 3' resumes '--dp 2' '--dp 2'
    flags='--optimizer galore --rank 3' resumes '--dp 2' '--dp 2 --pp 2'
    flags='--dtype fp16 --loss-scale 1024' resumes '--dp 2 --zero 2' '--tp 2'
}

# The folder that reshard writes is the one that a run on the mesh would have saved; bytes and boxes are those that it says.
test_reshard() {
    train $small --steps 1 --dp 2 --tp 2 --zero 1 --save run --sharded;        expect_status 0
    local mesh
    for mesh in '--tp 4' '--dp 3 --zero 3'; do
        run reshard run --to "$mesh" --out cut;         expect_status 0
        expect_out '^moves   [0-9]+ bytes in [0-9]+ boxes, the fewest there can be'
        local moved; moved=$(sed -nE 's/^moves   ([0-9]+) bytes.*/\1/p' <<<"$out")
        expect_out "^wrote   cut: counted $moved bytes moved, as foreseen on every device"
        run train --resume run $mesh --steps 0 --save saved --sharded;                      expect_status 0
        same_folders cut saved
        rm -rf cut saved
    done
    run reshard run --to '--dp 2 --tp 2 --zero 1';      expect_status 0; expect_out '^moves   0 bytes in 0 boxes'
    train $small --steps 1 --dp 2 --zero 1 --modalities 2 --save clips --sharded;    expect_status 0
    run reshard clips --to '--tp 2 --encoders apart' --out cut;     expect_status 0
    run train --resume clips --tp 2 --encoders apart --steps 0 --save saved --sharded;       expect_status 0
    same_folders cut saved
}

# A later save replaces the files of the earlier one, of either kind.
test_kinds_replace_each_other() {
    train $small --steps 1 --dp 2 --save run --sharded;        expect_status 0
    run train --resume run --steps 1 --dp 3 --save run --sharded;           expect_status 0
    [ "$(ls run | grep -c device-)" = 3 ] || complain "it has $(ls run)"
    (cd run && sha256sum --quiet -c checkpoint.sha256) || complain 'a sum is wrong'
    run train --resume run --steps 1 --save run;        expect_status 0
    [ "$(ls run | wc -l)" = 6 ] || complain "it has $(ls run)"
    run train --resume run --steps 1 --dp 2 --save run --sharded;           expect_status 0
    [ -e run/model.safetensors ] && complain 'the old weights are still there'
    run train --resume run --save-every 1 --keep 1 --steps 2 --dp 2 --save series --sharded;            expect_status 0
    [ "$(ls series)" = step-00000006 ] || complain "the series has $(ls series)"
}

# Killed before a call that changes the disk, in any of the devices of this process, a save leaves the old checkpoint or the new one.
killed_at() { { ORRERY_ONE_PROCESS=1 ORRERY_DISK_FAULT=kill@$1 run train --resume one --dp 2 --steps 1 --save kept --sharded; } 2>/dev/null; }
test_killed_while_saving() {
    local n=1 step=61 died=0 f
    train $small --dp 2 --lr-steps 4 --steps 1 --save one --sharded;        expect_status 0
    run train --resume one --dp 2 --steps 1 --save two --sharded;           expect_status 0
    [ "$TIER" != verify ] || step=1
    while :; do
        rm -rf kept; cp -r one kept
        killed_at $n
        [ "$status" != 0 ] || break
        died=$((died + 1))
        run train --resume kept --dp 2 --steps 0 --save seen --sharded;     expect_status 0; expect_silent
        grep -q '"step":.*2' seen/training.json && f=two || f=one
        expect_same $f/training.json seen/training.json
        for f in $f/device-0000[01].0.safetensors; do expect_same $f seen/"${f##*/}"; done
        rm -rf seen
        n=$((n + step))
    done
    [ $died -ge 3 ] || complain "it was killed only $died times"
    run train --resume one --dp 2 --steps 1 --save kept --sharded;          expect_status 0
    [ "$(ls kept | wc -l)" = 7 ] || complain "something is left: $(ls kept)"
}

# Change shards.json, and make the list's checksums right again, as someone would who edits by hand.
edit() {                                            # edit PROGRAM-OF-SED
    rm -rf bad; cp -r run bad
    sed -E -i "$1" bad/shards.json
    cmp -s run/shards.json bad/shards.json && complain "$1 changes nothing"
    (cd bad; grep -v '^#' checkpoint.sha256 | while read -r _ f; do sha256sum "$f"; done >sums
     { head -n 1 checkpoint.sha256; sed 's/  */  /' sums; } >list
     printf '# %s of the lines above\n' "$(sha256sum list | cut -d' ' -f1)" >>list
     mv list checkpoint.sha256; rm sums)
}
test_what_is_wrong_is_named() {
    train $small --steps 1 --dp 2 --tp 2 --save run --sharded; expect_status 0
    rm -rf bad; cp -r run bad; rm bad/device-00002.0.safetensors
    run train --resume bad --steps 1;                   expect_status 1; expect_error '--resume bad/device-00002\.0\.safetensors: is missing: the file of device 2 of 4'
    run reshard bad --to '--dp 2' --out cut;            expect_status 1; expect_error 'device-00002\.0\.safetensors: is missing'
    rm -rf bad; cp -r run bad; printf '\377' | dd of=bad/device-00001.0.safetensors bs=1 seek=90000 conv=notrunc 2>/dev/null
    run train --resume bad --steps 1 --tp 2;            expect_status 1; expect_error 'bad/device-00001\.0\.safetensors: is damaged'
    run reshard bad --to '--dp 2' --out cut;            expect_status 1; expect_error 'bad/device-00001\.0\.safetensors: is damaged'
    [ ! -e cut ] || complain "it wrote $(ls cut)"
    edit '0,/"extent":\t\[64, 32\]/s//"extent":\t[63, 32]/'
    run train --resume bad --steps 1;                   expect_status 1; expect_error 'bad/shards\.json: wte\.weight: 32 of its 8192 elements are in no file'
    edit '0,/"start":\t\[64, 0\]/s//"start":\t[63, 0]/'
    run train --resume bad --steps 1;                   expect_status 1; expect_error 'bad/shards\.json: wte\.weight: boxes of device-0000[0-9]\.0\.safetensors and device-0000[0-9]\.0\.safetensors overlap'
    edit '0,/"start":\t\[64, 0\]/s//"start":\t[250, 0]/'
    run train --resume bad --steps 1;                   expect_status 1; expect_error 'wte\.weight: a box of device-0000[0-9]\.0\.safetensors lies outside the tensor'
    run train --steps 1 --sharded;         expect_status 2; expect_error '--sharded: needs --save DIR'
    run reshard run --to '--lr 3';                      expect_status 2; expect_error '--to: --lr says nothing of a mesh'
    run reshard run --to '--tp 99';                     expect_status 2
    run reshard run --to '--dp 2' --out run;            expect_status 2; expect_error '--out run: is the folder of the checkpoint itself'
    run train --resume run --steps 1 --save whole;      expect_status 0
    run reshard whole --to '--dp 2';                    expect_status 1; expect_error 'whole: has whole tensors, which a run on any mesh reads'
}

# A model for other programs: files of at most the size, whole tensors, an index of all; the model is the run's.
test_files_for_other_programs() {
    local bits size file of
    make_text
    for of in '--model tiny --dp 2 --tp 2 --sharded' '--model tiny --dp 2 --dtype bf16' '--model mixtral-tiny --dp 2 --ep 2 --sharded'; do
        rm -rf run out again
        run train $of --data "$text" --batch 4 --seq 8 --steps 2 --save run;        expect_status 0
        bits=$(grep -o 'fingerprint [0-9a-f]*' <<<"$out")
        run reshard run --file-size 100KiB --out out;       expect_status 0; expect_silent
        expect_out '^wrote   out: .* parameters of step 2 in [0-9]+ files with an index'
        [ ! -e out/model.safetensors ] || complain 'the whole file is still there'
        for file in out/model-*.safetensors; do
            size=$(stat -c %s "$file")
            [ "$size" -le 140000 ] || [ "$(grep -c "${file#out/}" out/model.safetensors.index.json)" = 1 ] || complain "$file has $size bytes"
            grep -q "${file#out/}" out/model.safetensors.index.json || complain "the index does not have $file"
        done
        run train --model out --data "$text" --batch 4 --seq 8 --steps 0 $(grep -o -- '--dtype bf16' <<<"$of")
        expect_status 0
        grep -q "$bits" <<<"$out" || complain "the model is not the run's: $bits"
        [ "$TIER" = verify ] || break
    done
    run reshard run --file-size 1GB --out one;          expect_status 0; expect_out 'in 1 file$'; expect_file one/model.safetensors
    run reshard run --file-size 1GB --out one;          expect_status 1; expect_error '--out one: has a model already'
    run reshard run --file-size 1GB;                    expect_status 2; expect_error '--file-size: writes a model for other programs into --out DIR'
    run reshard run;                                    expect_status 2; expect_error '--to: a mesh is missing'
    run reshard one --file-size 1GB --out two;          expect_status 2; expect_error 'one: is no checkpoint of orrery'
    rm run/*.safetensors; [ ! -e two ] || complain 'a refused command leaves a folder'
    run reshard run --file-size 1GB --out two;          expect_status 1
}

run_tests test_files_for_other_programs test_any_mesh_reads_them test_replicas_and_states test_reshard test_kinds_replace_each_other test_killed_while_saving test_what_is_wrong_is_named
