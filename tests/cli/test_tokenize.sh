# Texts to tokens and back on the command line; files of tokens; what is wrong is refused.
. "$(dirname "$0")/lib.sh"

gpt2=$top/golden/tokenizers/gpt2.json

test_tokens_and_back() {
    run tokenize --tokenizer "$gpt2" --text 'the model';    expect_status 0; expect_silent; expect_columns 80
    local ids; ids=$(head -n 1 "$place/out")
    run tokenize --tokenizer "$gpt2" --decode "$ids";       expect_status 0; expect_out '^the model$'
    mkdir model; cp "$gpt2" model/tokenizer.json
    run tokenize --tokenizer model --text 'the model';      expect_status 0
    [ "$(head -n 1 "$place/out")" = "$ids" ] || complain 'a folder gives other tokens than its file'
    run tokenize --tokenizer model --text 'the model' --json ids.json
    expect_status 0; expect_file ids.json
    run tokenize --tokenizer "$top/golden/tokenizers/llama2.json" --text the --special
    expect_status 0; expect_out '^ +1  <s>$'
}

# What other programs read: 16 bits a token, alone or behind a head of 1024 bytes.
test_files_of_tokens() {
    printf 'the model of the device\n' >text
    run tokenize --tokenizer "$gpt2" --text "$(cat text)";  expect_status 0
    local ids; ids=$(head -n 1 "$place/out")
    run tokenize --tokenizer "$gpt2" --text "$(cat text)" --out alone.bin
    expect_status 0; expect_out '^23 bytes are [0-9]+ tokens'
    [ "$(od -An -v -tu2 -w2 alone.bin | tr -d ' ' | tr '\n' ' ')" = "$ids " ] || complain 'alone.bin has other tokens'
    run tokenize --tokenizer "$gpt2" --text "$(cat text)" --out head.bin --layout llmc; expect_status 0
    [ "$(od -An -v -td4 -w4 -N12 head.bin | tr -d ' ' | tr '\n' ' ')" = "20240520 1 $(wc -w <<<"$ids") " ] || complain 'its head is wrong'
    tail -c +1025 head.bin >rest.bin;                       expect_same rest.bin alone.bin
    run tokenize --tokenizer "$gpt2" text --out file.bin;   expect_status 0; expect_out '^24 bytes'
}

# A file with a truncation leaves texts whole and says so; --limits cuts and pads.
test_limits() {
    sed 's/"truncation": null/"truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}/
         s/"padding": null/"padding": {"strategy": {"Fixed": 6}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "a"}/' "$gpt2" >limits.json
    run tokenize --tokenizer "$gpt2" --text 'the model of the device';                expect_status 0; expect_silent
    local ids; ids=$(head -n 1 "$place/out")
    run tokenize --tokenizer limits.json --text 'the model of the device';            expect_status 0
    grep -q 'stays whole: truncation and padding of the tokenizer.s file need --limits' "$place/err" || complain 'nothing says that the text stays whole'
    [ "$(head -n 1 "$place/out")" = "$ids" ] || complain 'the text does not stay whole'
    run tokenize --tokenizer limits.json --limits --text 'the model of the device';   expect_status 0; expect_silent
    [ "$(head -n 1 "$place/out")" = "$(cut -d ' ' -f 1-4 <<<"$ids") 0 0" ] || complain 'not four tokens and two for padding'
    run tokenize --tokenizer limits.json --limits --decode 1;                         expect_status 2; expect_error '--limits: is for texts'
}

test_what_is_wrong() {
    run tokenize --text a;                                  expect_status 2; expect_error 'needs --tokenizer'
    run tokenize --tokenizer "$gpt2";                       expect_status 2; expect_error 'one of FILE, --text and --decode'
    run tokenize --tokenizer none.json --text a;            expect_status 1; expect_error '--tokenizer none.json: cannot be opened'
    run tokenize --tokenizer "$gpt2" none.txt;              expect_status 1; expect_error 'none.txt'
    run tokenize --tokenizer "$gpt2" --decode '1 x';        expect_status 2; expect_error 'must be numbers of tokens'
    run tokenize --tokenizer "$gpt2" --decode 99999;        expect_status 2; expect_error '--decode 99999: is no token'
    run tokenize --tokenizer "$gpt2" --decode 1 --out a;    expect_status 2; expect_error '--out'
    run tokenize --tokenizer "$gpt2" --text a --out no/a;   expect_status 1; expect_error 'no/a'
    expect_nothing
}

run_tests test_tokens_and_back test_files_of_tokens test_limits test_what_is_wrong
