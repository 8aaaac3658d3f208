#!/bin/sh
# build.sh TREE KERNEL.cu OUT.so: one file of kernels, each access of which is watched, with the backend that calls them, the emulator
# and the judge, as a shared object.  Kernels that are not in the file stay open: nobody may call them.
#
# CXX, CC: the compilers.  Exit status: 0; 1: the kernel does not compile, and the compiler has said why; 10, 11, 12: no C++ compiler, no C
# compiler, no awk; 13: what surrounds the kernel does not compile.
set -u
kernel=$2 out=$3 cxx=${CXX:-c++} cc=${CC:-cc} cuda=emulated_devices/device/cuda
cd "$1" || exit 13
command -v ${cxx##* } >/dev/null || exit 10
command -v ${cc##* } >/dev/null || exit 11
command -v awk >/dev/null || exit 12
work=$(mktemp -d) || exit 13
trap 'rm -rf "$work"' EXIT

flags="-I. -I$cuda/emulated -O1 -g -fPIC -fopenmp -fno-math-errno -ffp-contract=fast"
for folder in /usr/include/*/openblas-openmp; do if [ -d "$folder" ]; then flags="$flags -I$folder"; fi; done
plus="-std=gnu++17 -fno-extern-tls-init $flags -I$cuda/kernels"

# In C++ one more process for each file: all of it takes a few seconds of one core.
surroundings=
for file in $cuda/emulated/*.cpp $cuda/emulated/judge/*.cpp; do
    $cxx $plus -c "$file" -o "$work/$(basename "$file").o" 2>>"$work/log" &
    surroundings="$surroundings $!"
done
for file in $cuda/*.c $cuda/emulated/*.c; do
    $cc -std=c11 -D_POSIX_C_SOURCE=200809L -DCUDA_EMULATED -DNAME='"kernel"' $flags -c "$file" -o "$work/$(basename "$file").o" 2>>"$work/log" &
    surroundings="$surroundings $!"
done

$cxx $plus -Wall -Wextra -fsanitize=thread -x c++ -S "$kernel" -o "$work/kernel.s" || exit 1
awk -f $cuda/emulated/judge/red_zones.awk "$work/kernel.s" >"$work/zones.s" && $cxx -c "$work/zones.s" -o "$work/kernel.o" || exit 1
for one in $surroundings; do
    if ! wait "$one"; then cat "$work/log" >&2; exit 13; fi
done
# The program may have an emulator of its own: -Bsymbolic.
$cxx -shared -fopenmp -Wl,-Bsymbolic -Wl,-z,lazy "$work"/*.o -o "$out" || exit 13
