#!/usr/bin/env bash
# Break the program on purpose and see that it is noticed.  Usage: run.sh BUILD_DIR [--quick] [NAME...]      (docs/checking/faults.md)
#
# `make faults` and `make test` call this with the tree built and how it is built in HOW_REF, HOW_DEV, HOW_LINK and HOW_LIBS; files of HOW_TWICE are
# compiled once for each of HOW_FORMATS, those of HOW_EXACT once for each of HOW_RULES.  HOW_CUDA are the objects of the backend cuda-emulated, HOW_EMULATED compiles its .c files.
# Of each fault only the changed files are compiled; linked before the tree's own archives, they take the place of theirs.  Kernels
# (.cu, .cuh) are compiled by the check, `orrery kernel $KERNELS/FILE.cu --check`.
# Exit status: 0, or 3 if a fault survived, no longer applies, changes nothing, or a check fails on the tree as it is.
# $SHARE, such as 3/24: the third of 24 shares of these faults; shares of one build folder wait for each other.
set -u
build=$1 quick=; shift
if [ "${1:-}" = --quick ]; then quick=yes; shift; fi
jobs=${JOBS:-$(nproc)} limit=${TIMEOUT:-300} start=$SECONDS
out=$build/faults faults=${FAULT_DIR:-tests/faults}
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 OMP_WAIT_POLICY=passive MPIEXEC_TIMEOUT=$limit
unset CMOCKA_MESSAGE_OUTPUT CMOCKA_XML_FILE
tab=$'\t'

# ---- what a fault says --------------------------------------------------------------------------------------------------------
field() { sed -n "s/^$2: //p" "$faults/$1.fault"; }

# `caught by` and the `says` after it, a line each.
checks() { awk -F ': ' '/^caught by: /{ c = substr($0, 12) } /^says: /{ print c "\t" substr($0, 7) }' "$faults/$1.fault"; }

# The kind of a check, which is a column of the matrix: "train", "verify tensor", "test_schedule".
kind() { sed -E 's/^mpiexec -n [0-9]+ //; s/^orrery (verify [a-z]+|[a-z]+).*/\1/; s/^.*(test_[a-z0-9_]+).*$/\1/' <<<"$1"; }

# ---- building -----------------------------------------------------------------------------------------------------------------
# compile SOURCE OBJECT NAME: as the Makefile compiles NAME; without debug information, so that equal code is an equal object.
compile() {
    local formats=- format how=$HOW_DEV kind=c
    case $3 in
        ref/*) how=$HOW_REF ;;
        *.cpp) how=$HOW_JUDGE kind=c++ ;;
        emulated_devices/device/cuda/* | emulated_devices/collectives/nccl.c) how=$HOW_EMULATED ;;
    esac
    how=${how//-MMD -MP/}                       # nobody asks what it depends on
    case " $HOW_TWICE " in *" $3 "*) formats=$HOW_FORMATS ;; esac
    case " $HOW_EXACT " in *" $3 "*) formats="${formats#-} $HOW_RULES" ;; esac
    for format in $formats; do
        local object=$2.$format.o define=
        [ $format = - ] || define=-DREAL=$format
        case $3:$format in ref/ops/*:F*) define+=' -ffp-contract=fast' ;; esac
        eval "$how $define -w -g0 -c -x $kind - -o $object.new" <"$1" && mv "$object.new" "$object" || return 1
    done
}

# The unchanged file, compiled the same way, once for all faults, and again when anything in the tree has changed.
compile_original() {
    local base=$out/original/${1%.c} made
    made=$(ls "$base".*.o 2>/dev/null | head -n 1)
    [ -n "$made" ] && [ "$made" -nt "$build/libdevices.a" ] && [ "$made" -nt "$build/libref.a" ] && return
    mkdir -p "$(dirname "$base")"
    { echo "# 1 \"$1\""; cat "$1"; } >"$base.$BASHPID.c"
    compile "$base.$BASHPID.c" "$base" "$1"
    rm -f "$base.$BASHPID.c"
}

# Whether a program with cuda-emulated is there, and newer than what it was linked from.
is_new() { [ -e "$1" ] && [ -z "$(find $HOW_CUDA "$build/libdevices.a" "$build/libref.a" -newer "$1")" ]; }

# Whether a check needs the backend cuda-emulated.
needs_cuda() { [[ $1 == *cuda-emulated* ]]; }

# Its objects, or those of the judge, but the ones that DIR has others of.
cuda_objects() {
    local object name
    for object in $2; do
        name=${object#"$build/cuda-emulated/"} name=${name#"$build/cuda-judge/"} name=${name%.o}
        [ -e "$1/${name%.c}.-.o" ] || echo "$object"
    done
}

# link FOLDER PROGRAM CHECKS OBJECT...: the program as it is, with these objects in place of its own, and with what these checks need.
link() {
    local folder=$1 program=$2 main=$build/emulated_devices/cli/main.o libs=-rdynamic checks=$3; shift 3
    case $program in
        test_judge) main="$build/tests/devices/cuda/test_judge.o $(cuda_objects "${folder%/bin}" "$HOW_JUDGED" | tr '\n' ' ')" libs="-lcmocka -lstdc++ -rdynamic" ;;
        test_*) main=$(ls "$build"/tests/*/"$program".o) libs=-lcmocka ;;
    esac
    if needs_cuda "$checks"; then main="$main $(cuda_objects "${folder%/bin}" "$HOW_CUDA" | tr '\n' ' ')" libs="$libs -lstdc++"; fi
    mkdir -p "$folder"
    [ -n "$(ls "$build"/tests/sanitizers.o 2>/dev/null)" ] && main="$main $build/tests/sanitizers.o"
    eval "$HOW_LINK -Wl,-S $* $main $build/libdevices.a $build/libref.a -o $folder/$program $libs $HOW_LIBS"
}

# The program of the tree.
put_program() {
    case $2 in
        orrery) ln -sf "$ORRERY" "$1/orrery" ;;
        test_judge) ln -sf "$PWD/$build/cuda-judge/tests/devices/cuda/test_judge" "$1/" ;;
        *) ln -sf "$(ls -d "$PWD/$build"/tests/*/"$2")" "$1/" ;;
    esac
}

# Checks say mpiexec; which one that is the Makefile knows.  (No link: MPICH's looks for its helpers beside itself.)
put_launcher() { rm -f "$1/mpiexec"; printf '#!/usr/bin/env bash\nexec %q "$@"\n' "$MPIEXEC" >"$1/mpiexec"; chmod +x "$1/mpiexec"; }

programs() { sed -E 's/\btest_[a-z0-9_]+\.sh\b//g' <<<"$1" | grep -oE '\b(orrery|test_[a-z0-9_]+)\b' | sort -u; }

# What `orrery kernel` compiles beside a kernel, with the changed files of DIR in it.
copy_sources() {
    mkdir -p "$1/sources"
    cp --parents $(find ref emulated_devices -name '*.h' -o -name '*.def') $(find emulated_devices/device/cuda -type f ! -name '*.h') "$1/sources"
    cp -r "$1/emulated_devices" "$1/sources"
}

# Compile and link a fault's programs; says on the standard error what is wrong with it.
make_programs() {
    local name=$1 dir=$out/$1 path objects= same=yes all
    rm -rf "$dir"; mkdir -p "$dir/tmp"
    awk -v to="$dir" -f tests/faults/apply.awk "$faults/$name.fault" >"$dir/files" || return 1
    [ -s "$dir/files" ] || { echo "no \`file:\` with a change" >&2; return 1; }
    while read -r path; do
        case $path in *.cu | *.cuh) [ -e "$dir/sources" ] || copy_sources "$dir"; same=; continue ;; esac
        compile "$dir/$path" "$dir/${path%.c}" "$path" || { echo "$path does not compile" >&2; return 1; }
        compile_original "$path"
        local object original
        for object in "$dir/${path%.c}".*.o; do
            original=$out/original/${object#"$dir/"}
            cmp -s "$object" "$original" || same=
            objects="$objects $object"
        done
    done <"$dir/files"
    [ -z "$same" ] || { echo "changes nothing: the compiler makes the same code of it" >&2; return 1; }
    mkdir -p "$dir/bin"
    put_launcher "$dir/bin"
    local program
    all=$(checks "$name" | cut -f 1)
    for program in $(while read -r command; do programs "$command"; done <<<"$all" | sort -u); do
        if [ -z "$objects" ]; then put_program "$dir/bin" "$program"; continue; fi
        link "$dir/bin" "$program" "$all" $objects || { echo "$program does not link" >&2; return 1; }
    done
}

# ---- checking -----------------------------------------------------------------------------------------------------------------
# try FOLDER LOG COMMAND: in the root of the tree, with the folder's programs.
try() {
    local rc=0 sources=. with=("PATH=$PWD/$1/bin:$PATH" "TMP=$1/tmp")
    rm -rf "$1/tmp"; mkdir -p "$1/tmp"
    if [ -d "$1/sources" ]; then sources=$1/sources with+=("ORRERY_INCLUDE=$PWD/$sources"); fi
    with+=("KERNELS=$sources/emulated_devices/device/cuda/kernels")
    env "${with[@]}" timeout -k 10 $((limit + 10)) bash -c "$3"$'\nexit $?' </dev/null >"$2" 2>&1 || rc=$?
    return $rc
}

# The largest error over bound that a report has.
ratio() {
    awk '{ while (match($0, /(error|difference) [^ ,]+,? +bound [^ ,]+/)) {
               split(substr($0, RSTART, RLENGTH), w, /[ ,]+/); $0 = substr($0, RSTART + RLENGTH)
               if (w[2] ~ /nan|inf/) { most = "nan"; exit }
               if (w[4] > 0 && w[2] / w[4] > most + 0) most = w[2] / w[4] } }
         END { if (most == "nan") print most; else if (most > 1) printf "%.1e\n", most }' "$1"
}

# What bash, cmocka, MPICH, Open MPI and orrery say of a process that did not end by itself.
forced='BAD TERMINATION|EXIT STRING: |APPLICATION TIMED OUT|Test failed with exception|[Ss]egmentation fault|Aborted|Killed|core dumped'
forced="$forced|exited on signal|mpiexec has detected a timeout| died( during start-up)?: | hydra_pmi_proxy\\) died|: command not found"

# ended_by_force LOG STATUS SAYS: how, if a process of the check was killed, ran out of time or did not start, unless SAYS names just that.
ended_by_force() {
    local how; how=$(grep -E -e "$forced" "$1"; if [ "$2" -ge 124 ]; then echo "status $2"; fi)
    [ -n "$how" ] || return 1
    if grep -qE -e "$forced|status [0-9]" <<<"$3" && grep -qE -e "$3" <<<"$how"; then return 1; fi
    head -n 1 <<<"$how"
}

# One check of one fault: a line "VERDICT kind ratio why".
judge() {
    local name=$1 number=$2 command=$3 says=$4 dir=$out/$1 rc=0 verdict=killed why= how r
    local log=$dir/check.$number.log
    try "$dir" "$log" "$command" || rc=$?
    r=$(ratio "$log")
    if [ $rc -eq 0 ]; then verdict=survived why="survives: $command"
    elif how=$(ended_by_force "$log" $rc "$says"); then verdict=forced why="no kill, but an end by force, \`$how\`: $command"
    elif ! grep -qE -e "$says" "$log"; then verdict=unclear why="status $rc, but the report does not say /$says/: $command"
    elif [ -n "$r" ] && [ "$r" != nan ] && awk "BEGIN { exit !($r <= 2) }"; then verdict=weak why="error/bound is only $r: $command"
    fi
    printf '%s\t%s\t%s\t%s\n' $verdict "$(kind "$command")" "$r" "$why"
}

one_fault() {
    local name=$1 dir=$out/$1 t0=$SECONDS number=0 command says why
    if ! why=$(make_programs "$name" 2>&1 >/dev/null); then
        mkdir -p "$dir"
        printf 'broken\t-\t\t%s\n' "$(tail -n 3 <<<"$why" | tr '\n\t' '  ')" >"$dir/result"
    else
        while IFS=$tab read -r command says; do
            judge "$name" $((number += 1)) "$command" "$says"
        done < <(checks "$name") >"$dir/result"
        [ -s "$dir/result" ] || printf 'broken\t-\t\tno `caught by:` with a `says:`\n' >"$dir/result"
    fi
    rm -rf "$dir/bin" "$dir/tmp"
    if grep -qv "^killed$tab" "$dir/result"; then
        printf '[  FAILED  ] %s\n' "$name"
        awk -F '\t' '$1 != "killed" { print "        | " $4 }' "$dir/result"
        ls "$dir"/check.*.log >/dev/null 2>&1 && tail -qn 12 "$dir"/check.*.log | sed 's/^/        |   /'
    else
        printf '[       OK ] %-34s %s\n' "$name" "$(cut -f 3 "$dir/result" | grep -m 1 . | sed 's|^|error/bound |')"
    fi
}

# Every check must pass on the tree as it is, or it would catch anything.
one_clean() {
    local command=$1 dir=$out/clean program
    local stamp=$dir/$(cksum <<<"$1" | tr ' ' -)
    local folder=$stamp.run
    mkdir -p "$folder/bin"
    put_launcher "$folder/bin"
    for program in $(programs "$command"); do
        if ! needs_cuda "$command"; then put_program "$folder/bin" "$program"
        elif ! is_new "$folder/bin/$program"; then link "$folder/bin" "$program" "$command"; fi
        [ "$folder/bin/$program" -nt "$stamp.ok" ] && rm -f "$stamp.ok"
    done
    if [[ $command == *KERNELS* ]] && [ -n "$(find emulated_devices/device/cuda -newer "$stamp.ok" 2>&1)" ]; then rm -f "$stamp.ok"; fi
    [ -e "$stamp.ok" ] && return 0
    if try "$folder" "$stamp.log" "$command"; then touch "$stamp.ok"
    else printf '[  FAILED  ] %s\n        | fails on the tree as it is\n' "$command"; tail -n 12 "$stamp.log" | sed 's/^/        |   /'; fi
}

# at_once FUNCTION: for every line of the standard input, as many at a time as there may be.
at_once() {
    local line running=0
    while IFS= read -r line; do
        if [ $running -ge "$jobs" ]; then wait -n; running=$((running - 1)); fi
        "$1" "$line" </dev/null &
        running=$((running + 1))
    done
    wait
}

# ---- the report ---------------------------------------------------------------------------------------------------------------
matrix() {
    local name
    for name in "${names[@]}"; do sed "s/^/$name$tab/" "$out/$name/result"; done | awk -F '\t' '
        { if (!($1 in row)) { row[$1] = ++rows; name[rows] = $1 }
          if ($3 != "-" && !($3 in column)) { column[$3] = ++columns; kind[columns] = $3 }
          r = row[$1]; c = column[$3]
          mark = $2 == "killed" ? "K" : $2 == "survived" ? "S" : "?"
          if (mark != "K" || cell[r, c] == "") cell[r, c] = mark
          if ($4 != "" && ratio[r] == "") ratio[r] = $4
          if ($2 == "broken") ratio[r] = "broken" }
        END {
            printf "\n%-36s", "K killed, S survived, ? see above"
            for (c = 1; c <= columns; c++) printf " %2d", c
            print "   error/bound"
            for (r = 1; r <= rows; r++) {
                printf "%-36s", name[r]
                for (c = 1; c <= columns; c++) printf "  %s", cell[r, c] == "" ? "." : cell[r, c]
                print "   " ratio[r]
            }
            print ""
            for (c = 1; c <= columns; c++) printf "%4d  %s\n", c, kind[c]
        }'
}

# ---- all of them --------------------------------------------------------------------------------------------------------------
names=()
for file in $(for glob in "${@:-*}"; do (cd "$faults" && ls $glob.fault 2>/dev/null); done | sort -u); do
    [ -n "$quick" ] && [ "$(field "${file%.fault}" quick)" != yes ] && continue
    names+=("${file%.fault}")
done
[ ${#names[@]} -gt 0 ] || { echo "there is no fault called ${*:-}" >&2; exit 2; }
mkdir -p "$out/clean"
if [ -n "${SHARE:-}" ]; then
    mine=()
    for i in "${!names[@]}"; do [ $((i % ${SHARE#*/})) -eq $((${SHARE%/*} - 1)) ] && mine+=("${names[i]}"); done
    [ ${#mine[@]} -gt 0 ] || { echo "0 passed, 0 failed: there are fewer faults than shares"; exit 0; }
    names=("${mine[@]}")
    exec 9>"$out/lock" && flock 9
fi
clean=$(for name in "${names[@]}"; do checks "$name" | cut -f 1; done | sort -u | at_once one_clean)
[ -z "$clean" ] || printf '%s\n' "$clean"
printf '%s\n' "${names[@]}" | at_once one_fault | if [ -n "$quick" ]; then cat; else sed -u 's/^\[       OK \]/  ok   /; s/^\[  FAILED  \]/  FAIL /'; fi
killed=0
for name in "${names[@]}"; do grep -qv "^killed$tab" "$out/$name/result" || killed=$((killed + 1)); done
[ -n "$quick" ] || matrix
wrong=$((${#names[@]} - killed + $(grep -c '^\[  FAILED' <<<"$clean")))
echo
echo "$killed passed, $wrong failed    ($((SECONDS - start)) s, $jobs at once)"
[ $wrong -eq 0 ] || exit 3
