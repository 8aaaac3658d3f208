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
exit $failed
