# No object that a run with exact sums computes with calls a function of the C library whose last bit is the library's own: sines, powers
# and others come from ref/exact/.  Roots, quotients and what only moves bits (frexp, ldexp, floor) are the same everywhere.
# tier: check
. "$(dirname "$0")/lib.sh"

# Each of these is refused with exact sums, or computes nothing of a run.
allowed='ref/model/stream_law ref/model/loss_rule ref/text/ ref/sphere/ ref/weather/ ref/io/figures ref/numeric/dynamic_code ref/optim/galore ref/optim/natural_gradient emulated_devices/device/strided_way'

functions='a?sin|a?cos|a?tan|atan2|sincos|sinh|cosh|tanh|exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|cbrt|hypot|erf|erfc|tgamma|lgamma'

# Ordinary operations, those of F32 and F64 in ref/ops/, are left out; optimizers have one form.
objects() {
    find "$top/$build/ref" "$top/$build"/emulated_devices/{model,schemes,device,collectives,comm,train} -name '*.o' | grep -vE '/ref/ops/[a-z_0-9]+\.F(32|64)\.o$|/device/cuda/'
}

test_no_function_of_the_library() {
    local name function exempt
    command -v nm >/dev/null || { echo 'skipped: there is no nm'; return 0; }
    objects >objects
    [ "$(wc -l <objects)" -gt 150 ] || complain "only $(wc -l <objects) objects in $top/$build"
    # FILE: U FUNCTION@VERSION
    xargs nm -uA <objects 2>/dev/null | sed -nE "s#^$top/$build/([^:]*)\.o: +U (($functions)[fl]?)(@.*)?\$#\1 \2#p" >calls
    while read -r name function; do
        [ -e "$top/$(sed -E 's/\.[FX](32|64)$//' <<<"$name").c" ] || continue      # a file that is gone has left its object
        for exempt in $allowed; do [[ $name != "$exempt"* ]] || continue 2; done
        complain "$name calls $function: use ref/exact/scalars.h, or functions.h"
    done <calls
    [ -s calls ] || complain "no object calls a function of the library, and those of $allowed should"
}

build=${BUILD:-build}
run_tests test_no_function_of_the_library
