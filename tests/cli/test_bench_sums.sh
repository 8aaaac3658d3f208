# `orrery bench sums`: exact sums are off by at most five times what ordinary ones are, those of two slices by at most as much.
. "$(dirname "$0")/lib.sh"

test_errors() {
    run bench sums --most 512 --json j
    expect_status 0; expect_silent; expect_columns 100
    expect_out '^ +Y = X W\^T +128 +[0-9.e-]+ +[0-9.e-]+ +[0-4]\.[0-9]+ +[0-9.e-]+ +0\.[0-9]+$'
    expect_out '^ +dW = dY\^T X +512 +[0-9.e-]+ +[0-9.e-]+ +[0-4]\.[0-9]+ +[0-9.e-]+ +0\.[0-9]+$'
    grep -q '"sums"' j || complain 'the document has no table'
}

test_refused() {
    run bench sums --most 100;          expect_status 2; expect_error '--most'
    run bench sums --most 2000000;      expect_status 2; expect_error '--most'
}

run_tests test_errors test_refused
