# What docs/requirements.sh would install on Ubuntu 24.04, whose MPICH does not work, and elsewhere.
# tier: check
cd "$(dirname "$0")/../.." || exit 1
place=$(mktemp -d); trap 'rm -rf "$place"' EXIT
failed=0
for tool in apt-get sudo; do printf '#!/bin/sh\nexit 1\n' >"$place/$tool"; chmod +x "$place/$tool"; done

# asks VERSION: what is missing on this machine if it were such an Ubuntu; nothing is installed.
asks() {
    printf 'ID=ubuntu\nVERSION_ID="%s"\n' "$1" >"$place/release"
    OS_RELEASE=$place/release PATH=$place:$PATH bash docs/requirements.sh 2>&1 | grep -o 'openmpi-bin' | head -n 1
}

echo '[ RUN      ] a_working_mpi_is_installed'
expected=openmpi-bin; command -v mpicc.openmpi >/dev/null && expected=
[ "$(asks 24.04)" = "$expected" ] || { echo "docs/requirements.sh on Ubuntu 24.04 asks for '$(asks 24.04)', expected '$expected'"; failed=1; }
[ -z "$(asks 22.04)" ] || { echo 'docs/requirements.sh on Ubuntu 22.04 asks for Open MPI'; failed=1; }
[ $failed = 0 ] && echo '[       OK ] a_working_mpi_is_installed' || echo '[  FAILED  ] a_working_mpi_is_installed'

# A variant that no system has is asked for by its package; flags for the linker ask for nothing.
lacks() { BLAS=$1 PATH=$place:$PATH bash docs/requirements.sh 2>&1 | grep -o "lib$2-dev" | head -n 1; }
echo '[ RUN      ] another_blas_is_asked_for'
bad=0
for name in openblas-none blis-none; do
    [ "$(lacks $name $name)" = "lib$name-dev" ] || { echo "BLAS=$name docs/requirements.sh does not ask for lib$name-dev"; bad=1; }
done
[ -z "$(lacks '-L/nowhere -lblas' .*)" ] || { echo 'flags of the linker in BLAS ask for a package'; bad=1; }
[ $bad = 0 ] && echo '[       OK ] another_blas_is_asked_for' || { echo '[  FAILED  ] another_blas_is_asked_for'; failed=1; }
# What each manager is asked for where nothing is: a compiler that finds no header stands for such a machine.
says_command() {                                        # says_command MANAGER
    mkdir -p "$place/bare"; local tool
    for tool in bash cat grep id ls mktemp rm tail; do ln -sf "$(command -v $tool)" "$place/bare/$tool"; done
    printf '#!/bin/sh\nexit 1\n' >"$place/bare/cc"; chmod +x "$place/bare/cc"
    MANAGER=$1 ONLY_SAY=1 OS_RELEASE=$place/none HOMEBREW_PREFIX=$place PATH=$place/bare bash docs/requirements.sh 2>&1 | tail -n 1
}
echo '[ RUN      ] each_manager_has_its_command'
bad=0
while IFS='|' read -r manager command; do
    got=$(says_command "$manager" | sed 's/ mpich libmpich-dev\| mpich-devel\| openmpi\| open-mpi//')      # which may be here
    [ "$got" = "$command" ] || { echo "MANAGER=$manager: it says \"$got\", expected \"$command\""; bad=1; }
done <<'END'
apt-get|apt-get install -y --no-install-recommends libopenblas-openmp-dev libcjson-dev libyaml-dev libpcre2-dev libutf8proc-dev libcmocka-dev
dnf|dnf install -y openblas-devel cjson-devel libyaml-devel pcre2-devel utf8proc-devel libcmocka-devel
pacman|pacman -S --needed --noconfirm openblas cjson libyaml pcre2 libutf8proc cmocka
zypper|zypper --non-interactive install libopenblas_openmp-devel cJSON-devel libyaml-devel pcre2-devel utf8proc-devel libcmocka-devel
brew|brew install openblas libomp make cjson libyaml pcre2 utf8proc cmocka
END
[ $bad = 0 ] && echo '[       OK ] each_manager_has_its_command' || { echo '[  FAILED  ] each_manager_has_its_command'; failed=1; }
exit $failed
