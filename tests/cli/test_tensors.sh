# What a file of tensors has: names, formats, shapes, how large its numbers are; what is wrong is refused.
. "$(dirname "$0")/lib.sh"

golden=$top/golden/optimizers.safetensors

# A file of three tensors: [1.5, -2, 0, NaN] in fp32; [3, 0, -4] in int32; an fp8 number, which is not read.
make_file() {
    local head='{"b.whole":{"dtype":"I32","shape":[3,1],"data_offsets":[16,28]},"a.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"c":{"dtype":"F8_E5M2","shape":[],"data_offsets":[28,29]},"__metadata__":{"made by":"hand"}}'
    printf "\\x$(printf %02x ${#head})\\0\\0\\0\\0\\0\\0\\0%s" "$head"
    printf '\0\0\300\77\0\0\0\300\0\0\0\0\0\0\300\177'
    printf '\3\0\0\0\0\0\0\0\374\377\377\377\70'
}

test_names_and_shapes() {
    make_file >three.safetensors
    run tensors three.safetensors;                      expect_status 0; expect_silent; expect_columns 80
    expect_out '^  a\.weight +F32 +\[2,2\]$'; expect_out '^  c +F8_E5M2 +\[\]$'; expect_out '^3 tensors of 3, 8 numbers$'
    run tensors three.safetensors --metadata;           expect_status 0; expect_out '^made by: hand$'
    run tensors "$golden" --only 'radam.weight.?';      expect_status 0; expect_out '^8 tensors of 19, 488 numbers$'; expect_no_out gradient
}

# The root mean square of 1.5, 2 and 0 is 1.443, of 3, 0 and 4 it is 2.887.
test_numbers() {
    make_file >three.safetensors
    run tensors three.safetensors --numbers;            expect_status 0; expect_silent; expect_columns 80
    expect_out '^  a\.weight +F32 +\[2,2\] +1\.443 +2 +1 +1$'; expect_out '^  b\.whole +I32 +\[3,1\] +2\.887 +4 +1 +0$'
    expect_out '^  c +F8_E5M2 +\[\] +- +- +- +-$'
    run tensors three.safetensors --numbers --metadata --json three.json;   expect_status 0
    expect_out '^3 tensors'; grep -q '"made by":[[:space:]]*"hand"' three.json || complain 'the document has no metadata'
    grep -q '"not finite":[[:space:]]*1' three.json || complain 'the document has no numbers'
}

test_what_is_wrong() {
    make_file >three.safetensors; head -c 100 three.safetensors >cut.safetensors
    run tensors;                                        expect_status 2; expect_error 'tensors: needs FILE'
    run tensors none.safetensors;                       expect_status 1; expect_error 'none.safetensors'
    run tensors cut.safetensors;                        expect_status 1; expect_error 'cut.safetensors'
    run tensors three.safetensors --only 'x*';          expect_status 2; expect_error '--only x\*: no tensor of three.safetensors has such a name'
    rm *.safetensors; expect_nothing
}

run_tests test_names_and_shapes test_numbers test_what_is_wrong
