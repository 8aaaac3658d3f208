# `orrery kernel`: what is missing is one line.  Kernels that run: tests/devices/cuda/test_kernel.sh.
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

exit $failed
