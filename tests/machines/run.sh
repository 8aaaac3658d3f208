#!/usr/bin/env bash
# The bits of exact sums on several machines: builds programs, each in a folder of its own, and runs tests/cli/test_exact_machines.sh and
# tests/ref/test_exact_functions.c in each.  What this machine cannot build or run is skipped by its name.
# Usage: run.sh [NAME...]                  all, or some of: v2 v3 v4 clang reference blis aarch64
#
#   v2, v3, v4   x86-64 as levels 2, 3 and 4 have it: SSE, AVX2 with fused multiply-adds, AVX-512
#   clang        another compiler
#   reference    Netlib's reference BLAS;  blis: BLIS
#   aarch64      64-bit ARM, under qemu: tests/aarch64/run.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
files=(tests/cli/test_exact_machines.sh tests/ref/test_exact_functions.c)
names=("$@")
[ $# -gt 0 ] || names=(v2 v3 v4 clang reference blis aarch64)

flags=" $(sed -n 's/^flags[^:]*://p' /proc/cpuinfo 2>/dev/null | head -n 1) "
failed=()

# skip NAME WHY
skip() { echo "skipped: $1: $2"; }

# try NAME SETTING.. -- build with these settings of make, and run the tests.
try() {
    local name=$1; shift
    echo "== $name"
    make -j"${JOBS:-$(nproc)}" --no-print-directory VARIANT="$name" "$@" "build-$name/orrery" "build-$name/tests/ref/test_exact_functions" >"build-$name.log" 2>&1 ||
        { tail -n 5 "build-$name.log"; failed+=("$name"); return; }
    rm -f "build-$name.log"
    TIER=test MPIEXEC=${MPIEXEC:-$(command -v mpiexec.mpich || command -v mpiexec)} ORRERY=$PWD/build-$name/orrery \
        bash tests/run.sh "build-$name" "${files[@]}" || failed+=("$name")
}

# A level of x86-64 runs where the processor has what is new in it.
level() {
    if [ "$(uname -m)" != x86_64 ]; then skip "$1" "this machine is no x86-64"
    elif [[ $flags != *" $2 "* ]]; then skip "$1" "this processor has no $2"
    else try "$1" OPT="-O3 -march=x86-64-$1"; fi
}

blas() {
    local folders=(/usr/lib/*/"$2")
    if [ -d "${folders[0]}" ]; then try "$1" OPT=-O2 BLAS="$2"; else skip "$1" "there is no /usr/lib/*/$2: $3"; fi
}

for name in "${names[@]}"; do
    case $name in
        v2) level v2 sse4_2 ;;
        v3) level v3 avx2 ;;
        v4) level v4 avx512f ;;
        clang) if command -v clang >/dev/null; then try clang OPT=-O2 CC=clang MPICC='env MPICH_CC=clang OMPI_CC=clang mpicc'
               else skip clang 'there is no clang'; fi ;;
        reference) blas reference blas 'apt-get install libblas-dev' ;;
        blis) blas blis blis-pthread 'apt-get install libblis-pthread-dev' ;;
        aarch64)
            if ! command -v qemu-aarch64-static >/dev/null; then skip aarch64 'there is no qemu: apt-get install qemu-user-static'
            elif ! command -v aarch64-linux-gnu-gcc >/dev/null; then skip aarch64 'no compiler: apt-get install gcc-aarch64-linux-gnu'
            else TIER=test bash tests/aarch64/run.sh "${files[@]}" || failed+=(aarch64); fi ;;
        *) echo "tests/machines/run.sh: no machine $name: v2 v3 v4 clang reference blis aarch64" >&2; exit 2 ;;
    esac
done
[ ${#failed[@]} -eq 0 ] || { echo "FAILED: ${failed[*]}"; exit 1; }
