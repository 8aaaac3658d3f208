# `orrery kernel FILE.cu --check`: a right kernel passes; a race, a wrong number and one that never ends are named; also from an installed
# program's folder.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0
begin() { echo "[ RUN      ] $1"; name=$1 broken=; }
end() { if [ -z "$broken" ]; then echo "[       OK ] $name"; else echo "[  FAILED  ] $name"; failed=1; fi; }
kernels=emulated_devices/device/cuda/kernels

run() {                                 # run STATUS FILE OPTION...: what it says is in $place/said
    local want=$1 status=0; shift
    "$ORRERY" kernel "$@" >"$place/said" 2>&1 || status=$?
    [ $status -eq "$want" ] || { broken=yes; echo "status $status, must be $want"; tail -n 20 "$place/said"; }
}
says() { grep -qE "$1" "$place/said" || { broken=yes; echo "it does not say: $1"; tail -n 20 "$place/said"; }; }
silent() { ! grep -qE "$1" "$place/said" || { broken=yes; echo "it says: $1"; tail -n 20 "$place/said"; }; }

begin a_right_file_passes
run 0 $kernels/rmsnorm.cu --check
says '^  rmsnorm_forward, from_zero +32 cases +0\.[0-9]+  ok$'
says '^OK: '
silent 'WRONG|FAULT|race'
end

begin what_nvcc_finds_ambiguous_does_not_compile
{ cat $kernels/gate.cu; echo '__global__ void least(double *y) { *y = min(*y, 3.0f) + max(3, 4u); }'; } >"$place/least.cu"
run 0 "$place/least.cu"
{ cat $kernels/gate.cu; echo '__global__ void least(double *y) { *y = min(*y, 3); }'; } >"$place/least.cu"
run 1 "$place/least.cu"
says 'least\.cu.*no matching function for call to .*min'
end

begin a_launch_with_angles_says_how_to_write_it
{ cat $kernels/gate.cu; echo '__global__ void one(double *y) { *y = 1; } void ones(double *y) { one<<<1, 1>>>(y); }'; } >"$place/angles.cu"
run 1 "$place/angles.cu"
says 'a launch is written LAUNCH\(kernel, grid, block, bytes, arguments'
end

begin launch_bounds_hold
sed 's/__global__ void gate_slopes(/__global__ void __launch_bounds__(2 * 4) gate_slopes(/' $kernels/gate.cu >"$place/bounds.cu"
grep -q __launch_bounds__ "$place/bounds.cu" || { broken=yes; echo 'gate.cu has no such kernel'; }
run 3 "$place/bounds.cu" --check --only gate_backward_input
says 'invalid configuration argument: kernel .*gate_slopes<T>.*: its blocks have [0-9]+ threads, and its __launch_bounds__ allow 8$'
end

begin an_installed_program_finds_what_it_needs
mkdir -p "$place/tree"
cp --parents $(find ref emulated_devices -name '*.h' -o -name '*.def') $(find emulated_devices/device/cuda -type f ! -name '*.h') "$place/tree"
ORRERY_INCLUDE="$place/tree" run 0 $kernels/gate.cu --check --only gate_forward --count
says '^  gate_forward +32 cases'
silent 'gate_backward'
end

begin sectors_are_counted_line_by_line
says ' gate\.cu:[0-9]+ +global +[1-9][0-9]* +[1-9][0-9]* +[1-9]'
[ "$(grep -c '^kernel  *line ' "$place/said")" -eq 1 ] || { broken=yes; echo 'not one table'; cat "$place/said"; }
end

begin a_missing_barrier_is_a_race
sed 's/__syncthreads();//' $kernels/rows.cuh >"$place/rows.cuh"
sed 's|emulated_devices/device/cuda/kernels/rows.cuh|rows.cuh|' $kernels/rmsnorm.cu >"$place/rmsnorm.cu"
run 3 "$place/rmsnorm.cu" --check --only rmsnorm_forward
says 'race: kernel rmsnorm_forward.*rows\.cuh:[0-9]+ and .*shared array room'
says 'rows? wrong, [0-9]+ faults? of kernels'
end

begin a_wrong_number_has_its_case
sed 's|widen(X\[r \* D + d\]) \* scale|widen(X[r * D]) * scale|' $kernels/rmsnorm.cu >"$place/rmsnorm.cu"
run 3 "$place/rmsnorm.cu" --check --only rmsnorm_forward
says 'rmsnorm_forward in fp64, B=2 S=3 H=2 A=4 V=10: operand 0: error '
says 'WRONG$'
end

begin one_that_crashes_is_named
sed 's|const W x = widen(X\[r \* D + d\]);|const W x = widen(X[r * D + d]); if (N == 3) __builtin_trap();|' $kernels/rmsnorm.cu >"$place/rmsnorm.cu"
run 3 "$place/rmsnorm.cu" --check --only rmsnorm_forward
says 'rmsnorm_forward: ends with signal '
end

# once STATEMENT: rmsnorm.cu, with this in its forward kernel at the first use of it, by one thread.
once() { sed "s|const W x = widen(X\[r \* D + d\]);|& static bool begun; if (r + threadIdx.x == 0) if (!begun) { begun = true; $1 }|; 1i #include <unistd.h>" $kernels/rmsnorm.cu >"$place/rmsnorm.cu"; }

begin one_that_computes_for_ever_is_named
once 'for (volatile int more = 1; more;) { }'
run 3 "$place/rmsnorm.cu" --check --only rmsnorm_forward --limit 2
says 'rmsnorm_forward: has not ended in 2 s of processor time \(--limit\)$'
end

begin one_that_waits_for_ever_is_named
once 'for (;;) sleep(1);'
run 3 "$place/rmsnorm.cu" --check --only rmsnorm_forward --limit 1
says 'rmsnorm_forward: has not ended in 10 s, though it did not compute for 1 s \(--limit\)$'
end

# Its launch asks for none: so the judge knows it.
begin dynamic_shared_memory_has_any_name
once 'extern __shared__ float of_mine[]; of_mine[threadIdx.x] = 0;'
run 3 "$place/rmsnorm.cu" --check --only rmsnorm_forward
says 'out of bounds: kernel rmsnorm_forward.*a write of 4 bytes .*shared array dynamic_shared has 0 bytes'
end

# As on a machine that is busy with other things.
begin a_right_one_may_take_longer_than_it_computes
once 'sleep(4);'
run 0 "$place/rmsnorm.cu" --check --only 'rmsnorm_forward,' --limit 3
says '^OK: '
end

[ $failed -eq 0 ]
