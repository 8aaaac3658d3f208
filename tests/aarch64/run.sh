#!/usr/bin/env bash
# `make check` in programs for 64-bit ARM, on a Debian machine of another kind: they are compiled here, and run under qemu.
# Usage: run.sh [FILE...]                               the tests of `make check`, or these
#
#   TIER=test     more than the quickest tests: of `make test`
#   ROOT=FOLDER   a root with arm64's libraries; without it, packages are put into build-aarch64-linux-gnu/root by apt-get, as any user
#
# It needs gcc-aarch64-linux-gnu, qemu-user-static, and mpiexec of the same MPICH as the packages.  The kernel must start programs for ARM
# with qemu (binfmt_misc), which Debian's qemu-user-static arranges; devices then start as on any machine.  Test scripts and their tools
# are this machine's own.
set -euo pipefail
cd "$(dirname "$0")/../.."
cross=aarch64-linux-gnu build=build-aarch64-linux-gnu
root=${ROOT:-$PWD/$build/root}

# Each of these needs something that qemu does not do for a program; everything else runs.
skipped=(
    tests/cli/test_kernel.sh                    # kernels of a GPU are compiled by this machine's own compiler
    tests/cli/test_kernels_of.sh                # the same
    tests/tree/test_requirements.sh             # this machine's packages: no program for ARM runs
)

stop() { echo "tests/aarch64/run.sh: $*" >&2; exit 1; }
command -v $cross-gcc >/dev/null || stop 'no compiler for ARM: apt-get install gcc-aarch64-linux-gnu'
command -v qemu-aarch64-static >/dev/null || stop 'no qemu: apt-get install qemu-user-static'
mpiexec=$(command -v mpiexec.mpich) || stop "no mpiexec of MPICH: apt-get install mpich"

# The packages of Debian's own source for the other machine; nothing is installed.
if [ ! -e "$root/usr/lib/$cross/libmpich.so" ]; then
    [ -z "${ROOT:-}" ] || stop "ROOT=$root: has no usr/lib/$cross/libmpich.so"
    apt=$PWD/$build/apt
    mkdir -p "$apt"/{lists,archives}/partial "$root"/usr/{bin,sbin,lib}
    for name in bin sbin lib; do ln -sfn usr/$name "$root/$name"; done
    : >"$apt/status"
    options=(-o "Dir::State::lists=$apt/lists" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt" -o Debug::NoLocking=1
             -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Install-Recommends=false -o APT::Sandbox::User=)
    apt-get "${options[@]}" -qq update
    apt-get "${options[@]}" -qq -y --download-only install libc6-dev libgomp1 libopenblas-openmp-dev libmpich-dev libcjson-dev libyaml-dev \
        libpcre2-dev libutf8proc-dev libcmocka-dev
    for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$root"; done
fi

make() { command make --no-print-directory CROSS=$cross ROOT="$root" "$@"; }
mapfile -t files < <(if [ $# -gt 0 ]; then printf '%s\n' "$@"; else grep -lE '^( \*|#) tier: check' tests/*/test_*.sh tests/*/test_*.c; fi)
taken=() left=()
for file in "${files[@]}"; do
    case " ${skipped[*]} " in *" $file "*) left+=("$file") ;; *) taken+=("$file") ;; esac
done
mapfile -t programs < <(TIER=${TIER:-check} bash tests/run.sh $build --programs "${taken[@]}")
make -j"$(nproc)" $build/orrery "${programs[@]}"

# A first program says whether the kernel starts it, and with which libraries.
export QEMU_LD_PREFIX=$root ORRERY=$PWD/$build/orrery MPIEXEC=$mpiexec TIER=${TIER:-check}
"$ORRERY" --version >/dev/null || stop 'the kernel does not start programs for ARM: apt-get install binfmt-support, and qemu-user-static again'
status=0
bash tests/run.sh $build "${taken[@]}" || status=$?
for file in ${left[@]+"${left[@]}"}; do echo "skipped: $file"; done
echo "${#left[@]} of ${#files[@]} files skipped"
exit $status
