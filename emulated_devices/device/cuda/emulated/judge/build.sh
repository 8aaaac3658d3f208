#!/bin/sh
# build.sh: one file of kernels, each access of which is watched.  Kernels of ours that are not in it stay open: nobody may call them, but
# for what alone.c has in their place.
#
#   build.sh TREE KERNEL.cu OUT.so                  with the backend that calls them, the emulator and the judge: a shared object
#   build.sh TREE --needed JUDGE.o                  the last two, if they are not ready (see below); else nothing
#   build.sh TREE KERNEL.cu OUT CALLS.cu JUDGE.o    with CALLS.cu, which has main, the emulator and the judge: a program.  The last two are
#                                                   JUDGE.o, if there is such a file.  The kernels may call little (see below)
#   build.sh TREE --ready OBJECT [CALLS.cu]         what they need besides the kernels: judge.o, judge-openmp.o, or that of CALLS.cu
#
# `make` makes these objects ready, in build/kernels, and `make install` puts them into lib/orrery/kernels.  OBJECT.key says of what text,
# by which compiler and with which options; where something else is needed, it is compiled as if nothing were ready.
#
# CXX, CC: the compilers.  Exit status: 0; 1: the kernels do not compile, and the compiler has said why; 10, 11, 12: no C++ compiler, no C
# compiler, no awk; 13: what surrounds the kernels does not compile.
set -u
tree=$1 kernel=$2 out=$3 calls=${4:-} judge=${5:-} cxx=${CXX:-c++} cc=${CC:-cc} cuda=emulated_devices/device/cuda
cd "$tree" || exit 13
command -v "${cxx##* }" >/dev/null || exit 10
if [ -z "$calls" ] && [ "$kernel" != --needed ]; then command -v "${cc##* }" >/dev/null || exit 11; fi
command -v awk >/dev/null || exit 12
work=$(mktemp -d) || exit 13
trap 'rm -rf "$work"' EXIT

# A program has one thread: no more than that is lent to it.
around=judge-openmp.o openmp=-fopenmp lesson=
if [ "$kernel" = --ready ]; then around=$(basename "$out"); fi
if [ "$kernel" = --needed ] || [ -n "$calls" ]; then around=judge.o; fi
if [ -n "$calls" ]; then lesson=$(cd "$(dirname "$calls")" && pwd); fi
if [ "$around" = judge.o ]; then openmp=; fi
flags="-I. -I$cuda/emulated -O1 -gdwarf-4 -fPIC -fno-math-errno -ffp-contract=fast -fno-lto $openmp"
plus="-std=gnu++17 $flags -I$cuda/kernels"
if $cxx -fno-extern-tls-init -E -x c++ /dev/null >/dev/null 2>&1; then plus="$plus -fno-extern-tls-init"; fi       # not before clang 15

blas=
for folder in /usr/include/*/blis-* /usr/include/*/openblas-*; do if [ -d "$folder" ]; then blas=-I$folder; fi; done

# ---- what surrounds the kernels, at the same time as they are compiled -----------------------------------------------------------
started=
compile() {                             # compile FILE OBJECT COMPILER OPTION...
    local file=$1 object=$2; shift 2
    "$@" -c "$file" -o "$work/$object" 2>>"$work/log" &
    started="$started $!"
}
finish() {
    for one in $started; do
        if ! wait "$one"; then cat "$work/log" >&2; exit 13; fi
    done
}

judge_key() (                           # files in the same order everywhere
    LC_ALL=C
    echo "$(echo __VERSION__ | $cxx -E -P -x c++ - 2>/dev/null) $($cxx -dumpmachine 2>/dev/null) $plus"
    cat $cuda/emulated/*.h $cuda/emulated/*.cpp $cuda/emulated/judge/*.h $cuda/emulated/judge/*.cpp | cksum
)
calls_key() (
    LC_ALL=C
    judge_key
    cat $cuda/kernels/*.h $cuda/kernels/*.cuh ref/numeric/float16.h "$calls" "$lesson"/*.h "$lesson"/../worker/*.h | cksum
)
case $tree in
    */include/orrery) ready=${tree%/include/orrery}/lib/orrery/kernels ;;
    *) ready=$tree/build/kernels ;;
esac
is_ready() { [ "$kernel" != --ready ] && [ -f "$ready/$1" ] && $2 | cmp -s - "$ready/$1.key"; }         # is_ready OBJECT KEY

# Emulator and judge are one text without lines for a debugger: each file alone, with them, would take more than twice the time.
compile_judge() {
    for file in $cuda/emulated/*.cpp $cuda/emulated/judge/*.cpp; do echo "#include \"$file\""; done >"$work/judge.cpp"
    compile "$work/judge.cpp" judge.o $cxx $plus -g0
}
compile_calls() { compile "$calls" calls.o $cxx $plus -I"$lesson" -I"$lesson/../worker" -x c++; }

if [ "$kernel" = --ready ]; then
    rm -f "$out.key"
    if [ -n "$calls" ]; then compile_calls; else compile_judge; fi
    finish
    if [ -n "$calls" ]; then cp "$work/calls.o" "$out" && calls_key >"$out.key"
    else cp "$work/judge.o" "$out" && judge_key >"$out.key"
    fi || exit 13
    exit 0
fi

if [ "$kernel" = --needed ]; then
    if is_ready judge.o judge_key; then exit 0; fi
    compile_judge
    finish
    cp "$work/judge.o" "$out" || exit 13
    exit 0
fi

judge_object=$work/judge.o calls_object=$work/calls.o
if is_ready $around judge_key; then judge_object=$ready/$around
elif [ -s "$judge" ]; then judge_object=$judge
else compile_judge
fi
if [ -z "$calls" ]; then
    for file in $cuda/*.c $cuda/emulated/*.c $cuda/emulated/judge/*.c; do
        compile "$file" "$(basename "$file").o" $cc -std=c11 $flags $blas -D_POSIX_C_SOURCE=200809L -DCUDA_EMULATED -DNAME='"kernel"'
    done
elif is_ready "${lesson##*/}.o" calls_key; then calls_object=$ready/${lesson##*/}.o
else compile_calls
fi

# ---- the kernels -----------------------------------------------------------------------------------------------------------------
mkdir "$work/kernel"
watched="$plus -Wall -Wextra -Wno-unknown-pragmas -fsanitize=thread,alignment"
$cxx $watched -DEMULATED_BOUNDS ${lesson:+-I"$lesson"} -x c++ -E "$kernel" -o "$work/kernel/text" || exit 1
awk -f $cuda/emulated/judge/launch_bounds.awk "$work/kernel/text" >"$work/kernel/checks.ii" || exit 1
if ! $cxx $(echo "$watched" | sed 's/-I *[^ ]*//g') -x c++-cpp-output -S "$work/kernel/checks.ii" -o "$work/kernel/s"; then
    if grep -q '<<<' "$work/kernel/checks.ii"; then
        echo 'a launch is written LAUNCH(kernel, grid, block, bytes, arguments...) here, which is <<<grid, block, bytes>>> under nvcc' >&2
    fi
    exit 1
fi
awk -f $cuda/emulated/judge/red_zones.awk "$work/kernel/s" >"$work/kernel/zones.s" && $cxx -c "$work/kernel/zones.s" -o "$work/kernel.o" || exit 1

objcopy --redefine-syms=$cuda/emulated/judge/calls.txt "$work/kernel.o" || exit 1

# extern __shared__ T name[]: whatever its name is, it is the emulator's dynamic_shared.
for name in $(readelf -sW "$work/kernel.o" | awk '$4 == "TLS" && $7 == "UND" && $8 !~ /^(dynamic_shared|emulated_indices)$/ { print $8 }'); do
    objcopy --redefine-sym "$name=dynamic_shared" "$work/kernel.o" || exit 1
done

# A program runs where its author has no rights: its kernels use the emulator, and what compilers and arithmetic need.
if [ -n "$calls" ]; then
    other=$(nm -u "$work/kernel.o" | awk '{ print $NF }' | sed 's/^_ZN8emulated12copy_numbers.*/cudaMemcpy/' |
            grep -vE '^(_ZN8emulated|_ZTHN8emulated|_ZGV|__tsan_|__ubsan_handle_type_mismatch_v1$|_GLOBAL_OFFSET_TABLE_|__tls_get_addr|__stack_chk_fail|__cxa_guard|__g(xx|cc)_personality|_Unwind|judge_mem(cpy|set|move)$|memcmp$|(exp|log|sqrt|fabs|fmax|fmin|floor|ceil|tanh|pow)f?$|cudaGetLastError|dynamic_shared|emulated_)' | head -n 1)
    if [ -n "$other" ]; then echo "the kernels cannot call $other" >&2; exit 1; fi
    # Before main runs what the judge needs, 8 bytes of addresses, and nothing of theirs.
    strange=$(readelf -SW "$work/kernel.o" | sed -n 's/^ *\[ *[1-9][0-9]*\] *//p' | awk '{ print $1 }' |
              grep -vE '^\.(rela\.)?(text|rodata|data|bss|tbss|tdata|init_array|fini|preinit|ctors|dtors|init|comment|note|eh_frame|gcc_except_table|debug|stab|group|symtab|strtab|shstrtab|llvm_addrsig)' |
              grep -vE '^(NULL|STRTAB|SYMTAB|PROGBITS|NOBITS|RELA|GROUP)$' | head -n 1)
    if [ -n "$strange" ]; then echo "the kernels have a section $strange, which is not of a text in C++" >&2; exit 1; fi
    early=$(readelf -SW "$work/kernel.o" | sed 's/^ *\[ *[0-9]*\]//' | awk '$1 ~ /^\.(init|fini|preinit|ctors|dtors)/ { print $5 }' | tr '\n' ' ')
    if [ -n "$early" ] && [ "$early" != '000008 ' ]; then echo 'the kernels have code that runs before or after the functions that are called' >&2; exit 1; fi
fi

finish
if [ -z "$calls" ]; then
    # What kernels call is in their file, the emulator or the compiler's libraries; else they would end in the middle of a check.
    if ! $cxx -shared -fopenmp -Wl,-z,defs "$work/kernel.o" "$judge_object" -o "$work/defined" 2>"$work/open"; then
        open=$(sed -nE 's/.*undefined (reference to|symbol:?) *[^A-Za-z0-9_]?([A-Za-z0-9_:]+).*/\2/p' "$work/open" | head -n 1)
        if [ -n "$open" ]; then echo "the kernels call $open, which their file does not define" >&2; else cat "$work/open" >&2; fi
        exit 1
    fi
    # The program may have an emulator of its own: -Bsymbolic.
    $cxx -shared -fopenmp -Wl,-Bsymbolic -Wl,-z,lazy "$work"/kernel.o "$work"/*.c.o "$judge_object" -o "$out" || exit 13
else
    $cxx -rdynamic "$work/kernel.o" "$calls_object" "$judge_object" -ldl -o "$out" || exit 13
fi
