# `orrery kernel`: what is missing is one line; and each file of kernels of the tree can be tried alone, to its end: in `make test` one that
# needs a kernel of another file, in `make verify` all.  What is found in them: tests/devices/cuda/test_kernel.sh.
# tier: check
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0
kernels=emulated_devices/device/cuda/kernels

refuses() {                             # refuses NAME STATUS WORDS OPTION...
    echo "[ RUN      ] $1"
    local name=$1 want=$2 words=$3 said status=0 broken=; shift 3
    said=$("$ORRERY" kernel "$@" 2>&1) || status=$?
    [ $status -eq "$want" ] || broken=yes
    grep -qE "$words" <<<"$said" || broken=yes
    [ "$(grep -c . <<<"$said")" -eq 1 ] || broken=yes
    if [ -z "$broken" ]; then echo "[       OK ] $name"; return; fi
    echo "status $status: $said"
    echo "[  FAILED  ] $name"
    failed=1
}

refuses no_file 2 'kernel: needs FILE.cu, a file of kernels'
refuses a_file_that_is_not_there 1 'none\.cu: No such file' "$place/none.cu"
refuses a_file_of_another_kind 2 'README\.md: is not a \.cu file' README.md
CXX=no-such-compiler refuses no_compiler 1 'gate\.cu: cannot be compiled: there is no C\+\+ compiler; CXX names one' $kernels/gate.cu
CXX=true CC=no-such-compiler refuses no_c_compiler 1 'there is no C compiler; CC names one' $kernels/gate.cu

# It finds the tree by ORRERY_INCLUDE first; one without the emulator says so.
mkdir -p "$place/tree/emulated_devices/schemes"
touch "$place/tree/emulated_devices/schemes/plugin.h"
ORRERY_INCLUDE="$place/tree" refuses no_emulator 1 'build\.sh is not there; ORRERY_INCLUDE names the folder' $kernels/gate.cu

# A kernel, or what the host calls, that is in no file that is compiled.
calls_what_is_not_there() {
    echo '[ RUN      ] calls_what_is_not_there'
    local said broken=
    sed '/^void cuda_gate_forward/i extern "C" void cuda_of_mine(void);
/^void cuda_gate_forward/,/^}/s/^{/{ cuda_of_mine();/' $kernels/gate.cu >"$place/gate.cu"
    said=$("$ORRERY" kernel "$place/gate.cu" --check 2>&1) && broken=yes
    [ "$said" = "the kernels call cuda_of_mine, which their file does not define
orrery: $place/gate.cu: does not compile" ] || broken=yes
    if [ -z "$broken" ]; then echo '[       OK ] calls_what_is_not_there'; return; fi
    echo "it says: $said"
    echo '[  FAILED  ] calls_what_is_not_there'
    failed=1
}

ends_well() {                           # ends_well FILE: it comes to its end, and each operation that is tried is right
    local name said broken=; name=alone_$(basename "$1" .cu)
    echo "[ RUN      ] $name"
    said=$("$ORRERY" kernel "$1" --check 2>&1) || broken=yes
    grep -qE '^  .* 32 cases +[0-9.e-]+  ok$' <<<"$said" && grep -q '^OK: ' <<<"$said" || broken=yes
    if [ -z "$broken" ]; then echo "[       OK ] $name"; return; fi
    tail -n 20 <<<"$said"
    echo "[  FAILED  ] $name"
    failed=1
}

# Two operations, one after another: what was counted is printed, and neither crashes at its end.
counts() {
    local said broken=
    echo '[ RUN      ] counts'
    said=$("$ORRERY" kernel $kernels/rmsnorm.cu --check --only forward --count 2>&1) || broken=yes
    [ "$(grep -cE '^rmsnorm_forward.* rmsnorm.cu:[0-9]+ +(shared|global) +[0-9]+' <<<"$said")" -ge 4 ] && grep -q '^OK: ' <<<"$said" || broken=yes
    if [ -z "$broken" ]; then echo '[       OK ] counts'; return; fi
    tail -n 5 <<<"$said"
    echo '[  FAILED  ] counts'
    failed=1
}

case $TIER in
    check) ;;
    test) calls_what_is_not_there; counts; ends_well $kernels/sums.cu ;;
    *) calls_what_is_not_there; counts; for_what_is_not_there; for file in $kernels/*.cu; do ends_well "$file"; done ;;
esac
exit $failed
