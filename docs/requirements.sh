#!/usr/bin/env bash
# Install what is missing, from the system's package manager, saying what.  Usage: [BLAS=blis-openmp] requirements.sh [docs|fuzz|simgrid|faults|http]
# BLAS is the Makefile's: a variant of Debian's, or a name or flags for the linker, which nobody can install here.
# MANAGER=brew says which manager it is (apt-get, dnf, pacman, zypper or brew); ONLY_SAY=1 prints its command, and runs nothing.
# macOS's own bash, 3.2, must understand this file.
set -euo pipefail

# ---- which manager ----------------------------------------------------------------------------------------------------------------
manager=${MANAGER:-}
if [ -z "$manager" ]; then
    for one in apt-get dnf pacman zypper brew; do
        if command -v $one >/dev/null; then manager=$one; break; fi
    done
fi

# packages KEY: the names by which this manager knows what Orrery needs.
packages() {
    case $manager-$1 in
        apt-get-cc) echo gcc libc6-dev ;;           *-cc) [ "$manager" = brew ] || echo gcc ;;
        apt-get-mpi) echo mpich libmpich-dev ;;     dnf-mpi | zypper-mpi) echo mpich-devel ;;
        apt-get-openmpi) echo openmpi-bin libopenmpi-dev ;;
        pacman-mpi) echo openmpi ;;                 brew-mpi) echo open-mpi ;;
        apt-get-blas) echo "${blas_packages[@]}" ;; zypper-blas) echo libopenblas_openmp-devel ;;
        dnf-blas) echo openblas-devel ;;            pacman-blas | brew-blas) echo openblas ;;
        brew-openmp) echo libomp ;;                 brew-make) echo make ;;
        apt-get-cjson) echo libcjson-dev ;;         dnf-cjson) echo cjson-devel ;;
        zypper-cjson) echo cJSON-devel ;;           *-cjson) echo cjson ;;
        apt-get-yaml) echo libyaml-dev ;;           dnf-yaml | zypper-yaml) echo libyaml-devel ;;      *-yaml) echo libyaml ;;
        apt-get-pcre2) echo libpcre2-dev ;;         dnf-pcre2 | zypper-pcre2) echo pcre2-devel ;;      *-pcre2) echo pcre2 ;;
        apt-get-utf8proc) echo libutf8proc-dev ;;   dnf-utf8proc | zypper-utf8proc) echo utf8proc-devel ;;
        pacman-utf8proc) echo libutf8proc ;;        brew-utf8proc) echo utf8proc ;;
        apt-get-cmocka) echo libcmocka-dev ;;       dnf-cmocka | zypper-cmocka) echo libcmocka-devel ;; *-cmocka) echo cmocka ;;
        brew-clang) echo llvm ;;                    dnf-clang) echo clang compiler-rt ;;               *-clang) echo clang ;;
        apt-get-c++) echo g++ ;;                    dnf-c++ | zypper-c++) echo gcc-c++ ;;              pacman-c++) echo gcc ;;
        *-doxygen) echo doxygen ;;
        apt-get-http) echo libmicrohttpd-dev ;;     dnf-http | zypper-http) echo libmicrohttpd-devel ;; *-http) echo libmicrohttpd ;;
        apt-get-simgrid) echo libsimgrid-dev libboost-dev ;; dnf-simgrid) echo simgrid-devel boost-devel ;; *-simgrid) echo simgrid boost ;;
    esac
}

install_command() {
    case $manager in
        apt-get) echo apt-get install -y --no-install-recommends ;;
        dnf) echo dnf install -y ;;
        pacman) echo pacman -S --needed --noconfirm ;;
        zypper) echo zypper --non-interactive install ;;
        brew) echo brew install ;;
    esac
}

# ---- what is missing --------------------------------------------------------------------------------------------------------------
# Homebrew's headers, and the folder that Fedora, Arch and openSUSE have for those of OpenBLAS.
folders=(-I/usr/include/openblas)
if [ "$manager" = brew ] && command -v brew >/dev/null; then
    brewed=${HOMEBREW_PREFIX:-$(brew --prefix)}
    folders+=("-I$brewed/include" "-I$brewed/opt/openblas/include" "-I$brewed/opt/libomp/include")
fi
have_header() { echo "#include <$1>" | cc "${folders[@]}" -E ${2:-} - >/dev/null 2>&1; }
blas=${BLAS:-openblas}
have_blas=false blas_packages=()
case $blas in
    openblas | openblaso | openblas_openmp)
                blas_packages=(libopenblas-openmp-dev)
                if have_header openblas_config.h; then have_blas=true; fi ;;        # cblas.h others have, too
    openblas-*) blas_packages=("lib$blas-dev")
                if ls /usr/lib/*/"$blas"/libopenblas.so >/dev/null 2>&1; then have_blas=true; fi ;;
    blis-*)     blas_packages=("lib$blas-dev" liblapack-dev)                        # BLIS has no LAPACK
                if ls /usr/lib/*/"$blas"/libblis.so /usr/lib/*/lapack/liblapack.so >/dev/null 2>&1; then have_blas=true; fi ;;
    *)          have_blas=true ;;
esac

missing=()
needs() { local name; for name in $(packages "$1"); do missing+=("$name"); done; }     # needs KEY
has_mpi() {
    local file
    for file in $(command -v mpicc.mpich mpicc) /usr/lib64/mpich/bin/mpicc /usr/lib64/openmpi/bin/mpicc /usr/lib64/mpi/gcc/*/bin/mpicc; do
        if [ -x "$file" ]; then return 0; fi
    done
    return 1
}
if command -v cc >/dev/null; then has_cc=true; else has_cc=false; needs cc; fi
# Ubuntu 24.04's MPICH starts each process as a job of its own: https://bugs.launchpad.net/ubuntu/+source/mpich/+bug/2072338
if [ "$manager" = apt-get ] && grep -qs '^VERSION_ID="24.04"' "${OS_RELEASE:-/etc/os-release}"; then
    command -v mpicc.openmpi >/dev/null || needs openmpi
else
    has_mpi || needs mpi
fi
"$has_cc" && "$have_blas" || needs blas
if [ "$manager" = brew ]; then
    "$has_cc" && have_header omp.h || needs openmp
    command -v gmake >/dev/null || needs make
fi
"$has_cc" && have_header cjson/cJSON.h || needs cjson
"$has_cc" && have_header yaml.h || needs yaml
"$has_cc" && have_header pcre2.h -DPCRE2_CODE_UNIT_WIDTH=8 || needs pcre2
"$has_cc" && have_header utf8proc.h || needs utf8proc
"$has_cc" && printf '#include <stdarg.h>\n#include <stddef.h>\n#include <setjmp.h>\n#include <stdint.h>\n#include <cmocka.h>\n' |
    cc "${folders[@]}" -E - >/dev/null 2>&1 || needs cmocka
fuzzer_is_here() { ls "$(clang -print-resource-dir)"/lib/*/libclang_rt.fuzzer*.a; } >/dev/null 2>&1
if [ "${1:-}" = fuzz ]; then fuzzer_is_here || needs clang; fi
if [ "${1:-}" = faults ]; then command -v "${CXX:-c++}" >/dev/null || needs c++; fi     # kernels with a mistake
if [ "${1:-}" = docs ]; then command -v doxygen >/dev/null || needs doxygen; fi
if [ "${1:-}" = http ]; then "$has_cc" && have_header microhttpd.h || needs http; fi        # optional: orrery serve --port
if [ "${1:-}" = simgrid ]; then command -v smpicc >/dev/null || needs simgrid; fi
if [ "$manager" = brew ] && ! "$has_cc"; then
    echo "There is no compiler: say xcode-select --install, and try again." >&2
    exit 1
fi
if [ -z "$manager" ] && { ! "$has_cc" || ! has_mpi || ! "$have_blas" || ! have_header cjson/cJSON.h || ! have_header yaml.h || ! have_header utf8proc.h; }; then
    echo "There is no package manager here that Orrery knows. Install MPICH or Open MPI, OpenBLAS, cJSON, libyaml, PCRE2, utf8proc and cmocka (Doxygen for 'make docs', clang for 'make fuzz', SimGrid for 'make simgrid') and try again." >&2
    exit 1
fi
[ ${#missing[@]} -gt 0 ] || exit 0

# ---- installing -------------------------------------------------------------------------------------------------------------------
echo "Orrery needs packages that are not here: ${missing[*]}"
command=$(install_command)
if [ -n "${ONLY_SAY:-}" ]; then echo "$command ${missing[*]}"; exit 0; fi
root=
if [ "$manager" != brew ] && [ "$(id -u)" -ne 0 ]; then                              # Homebrew refuses to be root
    command -v sudo >/dev/null || { echo "Neither root nor sudo: ask your administrator for $command ${missing[*]}" >&2; exit 1; }
    root=sudo
fi
log=$(mktemp "${TMPDIR:-/tmp}/orrery.XXXXXX")
trap 'rm -f "$log"' EXIT
echo "Installing them with $command (a minute or so) ..."
ask() { [ "$manager" != apt-get ] || $root apt-get update; DEBIAN_FRONTEND=noninteractive $root $command "${missing[@]}"; }
if ! ask >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "The packages could not be installed: $command ${missing[*]}" >&2
    exit 1
fi
echo "Installed: ${missing[*]}"
