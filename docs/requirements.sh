#!/usr/bin/env bash
# Install what is missing, from the system's package manager, saying what.  Usage: [BLAS=blis-openmp] requirements.sh [docs|fuzz|simgrid|faults]
# BLAS is the Makefile's: a variant of Debian's, or a name or flags for the linker, which nobody can install here.
set -euo pipefail

have_header() { echo "#include <$1>" | cc -E ${2:-} - >/dev/null 2>&1; }
blas=${BLAS:-openblas}
have_blas=false blas_packages=()
case $blas in
    openblas)   blas_packages=(libopenblas-openmp-dev)
                if have_header openblas_config.h; then have_blas=true; fi ;;        # cblas.h others have, too
    openblas-*) blas_packages=("lib$blas-dev")
                if ls /usr/lib/*/"$blas"/libopenblas.so >/dev/null 2>&1; then have_blas=true; fi ;;
    blis-*)     blas_packages=("lib$blas-dev" liblapack-dev)                        # BLIS has no LAPACK
                if ls /usr/lib/*/"$blas"/libblis.so /usr/lib/*/lapack/liblapack.so >/dev/null 2>&1; then have_blas=true; fi ;;
    *)          have_blas=true ;;
esac

missing=()
command -v cc >/dev/null || missing+=(gcc libc6-dev)
# Ubuntu 24.04's MPICH starts each process as a job of its own: https://bugs.launchpad.net/ubuntu/+source/mpich/+bug/2072338
if grep -qs '^VERSION_ID="24.04"' "${OS_RELEASE:-/etc/os-release}"; then
    command -v mpicc.openmpi >/dev/null || missing+=(openmpi-bin libopenmpi-dev)
else
    command -v mpicc.mpich >/dev/null || command -v mpicc >/dev/null || missing+=(mpich libmpich-dev)
fi
if command -v cc >/dev/null; then
    "$have_blas" || missing+=("${blas_packages[@]}")
    have_header cjson/cJSON.h || missing+=(libcjson-dev)
    have_header yaml.h || missing+=(libyaml-dev)
    echo '#include <pcre2.h>' | cc -E -DPCRE2_CODE_UNIT_WIDTH=8 - >/dev/null 2>&1 || missing+=(libpcre2-dev)
    have_header utf8proc.h || missing+=(libutf8proc-dev)
    printf '#include <stdarg.h>\n#include <stddef.h>\n#include <setjmp.h>\n#include <stdint.h>\n#include <cmocka.h>\n' |
        cc -E - >/dev/null 2>&1 || missing+=(libcmocka-dev)
else
    missing+=("${blas_packages[@]}" libcjson-dev libyaml-dev libpcre2-dev libutf8proc-dev libcmocka-dev)
fi
fuzzer_is_here() { ls "$(clang -print-resource-dir)"/lib/*/libclang_rt.fuzzer*.a; } >/dev/null 2>&1
if [ "${1:-}" = fuzz ]; then fuzzer_is_here || missing+=(clang); fi
if [ "${1:-}" = faults ]; then command -v "${CXX:-c++}" >/dev/null || missing+=(g++); fi     # kernels with a mistake
if [ "${1:-}" = docs ]; then command -v doxygen >/dev/null || missing+=(doxygen); fi
if [ "${1:-}" = simgrid ]; then command -v smpicc >/dev/null || missing+=(libsimgrid-dev libboost-dev); fi
[ ${#missing[@]} -gt 0 ] || exit 0

echo "Orrery needs packages that are not here: ${missing[*]}"
if ! command -v apt-get >/dev/null; then
    echo "There is no apt-get on this machine. Install MPICH, OpenBLAS, cJSON, libyaml, PCRE2, utf8proc and cmocka (Doxygen for 'make docs', clang for 'make fuzz', SimGrid for 'make simgrid') and try again." >&2
    exit 1
fi
root=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || { echo "Neither root nor sudo: ask your administrator for these packages." >&2; exit 1; }
    root=sudo
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Installing them with apt-get (a minute or so) ..."
if ! { $root apt-get update && DEBIAN_FRONTEND=noninteractive $root apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "The packages could not be installed." >&2
    exit 1
fi
echo "Installed: ${missing[*]}"
