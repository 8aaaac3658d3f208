#!/bin/sh
# build.sh: one file of kernels, each access of which is watched.  Kernels of ours that are not in it stay open: nobody may call them.
#
#   build.sh TREE KERNEL.cu OUT.so                  with the backend that calls them, the emulator and the judge: a shared object
#   build.sh TREE KERNEL.cu OUT CALLS.cu JUDGE.o    with CALLS.cu, which has main, the emulator and the judge: a program.  JUDGE.o keeps
#                                                   the last two; it is made if it is empty.  The kernels may call little (see below)
#
# CXX, CC: the compilers.  Exit status: 0; 1: the kernels do not compile, and the compiler has said why; 10, 11, 12: no C++ compiler, no C
# compiler, no awk; 13: what surrounds the kernels does not compile.
set -u
kernel=$2 out=$3 calls=${4:-} judge=${5:-} cxx=${CXX:-c++} cc=${CC:-cc} cuda=emulated_devices/device/cuda
cd "$1" || exit 13
command -v ${cxx##* } >/dev/null || exit 10
command -v ${cc##* } >/dev/null || exit 11
command -v awk >/dev/null || exit 12
work=$(mktemp -d) || exit 13
trap 'rm -rf "$work"' EXIT

flags="-I. -I$cuda/emulated -O1 -gdwarf-4 -fPIC -fno-math-errno -ffp-contract=fast"
openmp=-fopenmp
if [ -n "$calls" ]; then openmp=; fi            # one thread: no more than that is lent to a program
flags="$flags $openmp"
for folder in /usr/include/*/openblas-openmp; do if [ -d "$folder" ]; then flags="$flags -I$folder"; fi; done
plus="-std=gnu++17 $flags -I$cuda/kernels"
if $cxx -fno-extern-tls-init -E -x c++ /dev/null >/dev/null 2>&1; then plus="$plus -fno-extern-tls-init"; fi       # not before clang 15

# ---- what surrounds the kernels, at the same time as they are compiled -----------------------------------------------------------
started=
compile() {                             # compile FILE COMPILER OPTION...
    local file=$1; shift
    "$@" -c "$file" -o "$work/$(basename "$file").o" 2>>"$work/log" &
    started="$started $!"
}
# Emulator and judge are one text without lines for a debugger: each file alone, with them, would take more than twice the time.
if [ -z "$judge" ] || [ ! -s "$judge" ]; then
    for file in $cuda/emulated/*.cpp $cuda/emulated/judge/*.cpp; do echo "#include \"$file\""; done >"$work/judge.cpp"
    compile "$work/judge.cpp" $cxx $plus -g0
fi
if [ -z "$calls" ]; then
    for file in $cuda/*.c $cuda/emulated/*.c; do
        compile "$file" $cc -std=c11 $flags -D_POSIX_C_SOURCE=200809L -DCUDA_EMULATED -DNAME='"kernel"'
    done
else
    lesson=$(dirname "$calls")
    plus="$plus -I$lesson -I$lesson/../worker"
    compile "$calls" $cxx $plus -x c++
fi

# ---- the kernels -----------------------------------------------------------------------------------------------------------------
mkdir "$work/kernel"
$cxx $plus -Wall -Wextra -Wno-unknown-pragmas -fsanitize=thread,alignment -x c++ -S "$kernel" -o "$work/kernel/s" || exit 1
awk -f $cuda/emulated/judge/red_zones.awk "$work/kernel/s" >"$work/kernel/zones.s" && $cxx -c "$work/kernel/zones.s" -o "$work/kernel.o" || exit 1

# extern __shared__ T name[]: whatever its name is, it is the emulator's dynamic_shared.
for name in $(readelf -sW "$work/kernel.o" | awk '$4 == "TLS" && $7 == "UND" && $8 !~ /^(dynamic_shared|emulated_indices)$/ { print $8 }'); do
    objcopy --redefine-sym "$name=dynamic_shared" "$work/kernel.o" || exit 1
done

# A program runs where its author has no rights: its kernels use the emulator, and what compilers and arithmetic need.
if [ -n "$calls" ]; then
    other=$(nm -u "$work/kernel.o" | awk '{ print $NF }' |
            grep -vE '^(_ZN8emulated|_ZTHN8emulated|_ZGV|__tsan_|__ubsan_handle_type_mismatch_v1$|_GLOBAL_OFFSET_TABLE_|__tls_get_addr|__stack_chk_fail|__cxa_guard|__g(xx|cc)_personality|_Unwind|mem(cpy|set|move|cmp)$|(exp|log|sqrt|fabs|fmax|fmin|floor|ceil|tanh|pow)f?$|cudaGetLastError|dynamic_shared|emulated_)' | head -n 1)
    if [ -n "$other" ]; then echo "the kernels cannot call $other" >&2; exit 1; fi
    # Before main runs what the judge needs, 8 bytes of addresses, and nothing of theirs.
    early=$(readelf -SW "$work/kernel.o" | sed 's/^ *\[ *[0-9]*\]//' | awk '$1 ~ /^\.(init|fini|preinit|ctors|dtors)/ { print $5 }' | tr '\n' ' ')
    if [ -n "$early" ] && [ "$early" != '000008 ' ]; then echo 'the kernels have code that runs before or after the functions that are called' >&2; exit 1; fi
fi

for one in $started; do
    if ! wait "$one"; then cat "$work/log" >&2; exit 13; fi
done
if [ -z "$calls" ]; then
    # The program may have an emulator of its own: -Bsymbolic.
    $cxx -shared -fopenmp -Wl,-Bsymbolic -Wl,-z,lazy "$work"/*.o -o "$out" || exit 13
else
    if [ ! -s "$judge" ]; then cp "$work/judge.cpp.o" "$judge" || exit 13; fi
    $cxx -rdynamic "$work/kernel.o" "$work/$(basename "$calls").o" "$judge" -ldl -o "$out" || exit 13
fi
