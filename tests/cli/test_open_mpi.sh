# What Open MPI's mpiexec says of ranks that have ended, and a start that takes long: a launcher of a few lines stands for it.
. "$(dirname "$0")/lib.sh"
seconds=60
words=(train --model tiny --dp 2 --steps 1 --batch 2 --seq 8)

# The name of the launcher that the program starts.
launcher() { sed -n "s/.*cannot start \([a-z.]*\) -n.*/\1/p" <<<"$(PATH=/nowhere "$program" "${words[@]}" 2>&1)"; }

# A launcher that says these lines to its errors, and ends with this status.
launcher_says() {                       # launcher_says STATUS LINE...
    local name; name=$(launcher)
    mkdir -p "$place/bin"; printf '%s\n' "${@:2}" >"$place/lines"
    printf '#!/bin/sh\ncat "%s" >&2\nexit %s\n' "$place/lines" "$1" >"$place/bin/$name"; chmod +x "$place/bin/$name"
    command="a launcher that says ${*:2:2}"
    watched env PATH="$place/bin:$PATH" "$program" "${words[@]}"
}

# Open MPI's mpiexec frames its reports.  Those of an end are said in our own line; others are for the user.
test_reports_of_open_mpi() {
    local dashes; dashes=$(printf -- '-%.0s' {1..74})
    local aborted=("$dashes" 'Primary job  terminated normally, but 1 process returned' 'a non-zero exit code. Per user-direction, the job has been aborted.' "$dashes")
    local first=("$dashes" 'mpiexec detected that one or more processes exited with non-zero status, thus causing'
                 'the job to be terminated. The first process to do so was:' '' '  Process name: [[64112,1],0]' '  Exit code:    2' "$dashes")
    launcher_says 2 "${aborted[@]}" 'orrery: a device says why' "${first[@]}"
    expect_status 2; expect_error 'a device says why'
    launcher_says 1 "$dashes" 'MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD' 'with errorcode 1.' '' \
        'NOTE: invoking MPI_ABORT causes Open MPI to kill all MPI processes.' "$dashes" 'orrery: a device gives up' \
        '[host:71] 1 more process has sent help message help-mpi-api.txt / mpi-abort' \
        '[host:71] Set MCA parameter "orte_base_help_aggregate" to 0 to see all help / error messages'
    expect_status 1; expect_error 'a device gives up'
    launcher_says 137 "$dashes" 'mpiexec noticed that process rank 1 with PID 0 on node x exited on signal 9 (Killed).' "$dashes"
    expect_status 1; expect_error 'died during start-up: signal 9 \(Killed\)'
    launcher_says 3 "${first[@]}"
    expect_status 1; expect_error 'failed with status 3: mpiexec detected that one or more processes exited'
    launcher_says 1 "$dashes" 'There are not enough slots available in the system to satisfy the 2' 'slots that were requested' "$dashes"
    [ "$(grep -c '^--------' <<<"$err")" = 2 ] && grep -q '^There are not enough slots' <<<"$err" || complain 'it keeps a frame that is for the user'
    launcher_says 1 "$dashes"
    grep -q '^--------' <<<"$err" || complain 'it keeps the last line, which may begin a frame'
}

# A busy machine lets a start take long: while the launcher computes, nobody is told that nothing is heard.
test_a_start_that_computes() {
    case $program in *-portable/*) echo 'skipped: this half of the system does not tell what processes compute'; return ;; esac
    local name; name=$(launcher)
    mkdir "$place/bin"
    printf '#!/bin/bash\nend=$((SECONDS + 4)); while [ $SECONDS -lt $end ]; do :; done\nexec "%s" "$@"\n' "$(command -v "$name")" >"$place/bin/$name"; chmod +x "$place/bin/$name"
    command='a launcher that computes for 4 s'
    watched env PATH="$place/bin:$PATH" ORRERY_START_LIMIT=20 "$program" "${words[@]}"
    expect_status 0; expect_silent; expect_out '^traffic counted '
}

run_tests test_reports_of_open_mpi test_a_start_that_computes
