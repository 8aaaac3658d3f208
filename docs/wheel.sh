#!/usr/bin/env bash
# Make a wheel for `pip install`: the Python package of tutorials/python with the program, mpiexec and their libraries inside.
# Usage, from the top of the tree, on Linux: wheel.sh FOLDER      (writes FOLDER/orrery-VERSION-...whl and prints its name)
#
# OPT=-O3 is the default, since a wheel runs on other processors.  It needs patchelf, python3 and MPICH.  The libraries are those of this
# machine, without the C library's own: the wheel's name says how old that may be, so build it on an old system (ubuntu:22.04).
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
stop() { echo "docs/wheel.sh: $*" >&2; exit 1; }
for tool in patchelf python3 mpiexec.hydra hydra_pmi_proxy; do command -v $tool >/dev/null || stop "there is no $tool"; done
[ -d tutorials/python/orrery ] || stop 'must be started from the top of the tree'
mkdir -p "$1"
out=$(cd "$1" && pwd)
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
inside=$work/wheel/orrery/inside

# ---- the program as it is installed ---------------------------------------------------------------------------------------------------
make --no-print-directory OPT="${OPT:--O3}" install DESTDIR="$work" PREFIX=/placed >&2
mkdir -p "$inside/lib" "$work/wheel"
cp -R tutorials/python/orrery "$work/wheel/"
rm -rf "$work/wheel/orrery/__pycache__"
cp -RL "$work/placed/bin" "$work/placed/share" "$work/placed/include" "$inside/"
cp -RL "$work/placed/lib/orrery" "$inside/lib/"
strip "$inside/bin/orrery" -g
rm -f "$inside/share/orrery/installed.txt"
name=$(make -s --no-print-directory --eval 'mpiexec-by-name:;@echo $(notdir $(MPIEXEC))' mpiexec-by-name)       # as the program calls it
cp -L "$(command -v mpiexec.hydra)" "$inside/bin/$name"
cp -L "$(command -v hydra_pmi_proxy)" "$inside/bin/hydra_pmi_proxy"

# ---- libraries that are not on every machine -------------------------------------------------------------------------------------------
own='^(linux-vdso|ld-linux[^ ]*|libc|libm|libdl|librt|libpthread|libresolv|libutil|libnsl)\.so'
for file in "$inside"/bin/*; do ldd "$file"; done | awk '$2 == "=>" { print $1, $3 }' | sort -u | grep -vE "$own" | while read -r soname path; do
    cp -L "$path" "$inside/lib/$soname"
done
for file in "$inside"/lib/*.so*; do strip --strip-unneeded "$file"; patchelf --set-rpath '$ORIGIN' "$file"; done
for file in "$inside"/bin/*; do patchelf --set-rpath '$ORIGIN/../lib' "$file"; done

# ---- the wheel: a zip file with a list --------------------------------------------------------------------------------------------------
version=$(sed -n 's/^.define ORRERY_VERSION "\(.*\)"/\1/p' ref/version.h)
needs=$(for file in "$inside"/bin/* "$inside"/lib/*.so*; do objdump -T "$file"; done | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -n 1)
tag=py3-none-manylinux_2_${needs##*.}_$(uname -m)
info=$work/wheel/orrery-$version.dist-info
mkdir -p "$info/licenses"
cp LICENSE "$info/licenses/"
# Whose library it is, its package says.
for file in "$inside"/lib/*.so*; do
    package=$(dpkg -S "*/$(basename "$file")" 2>/dev/null | head -n 1 | cut -d: -f1) || true
    [ -z "$package" ] || [ ! -e "/usr/share/doc/$package/copyright" ] || cp -L "/usr/share/doc/$package/copyright" "$info/licenses/$package"
done
cat >"$info/METADATA" <<END
Metadata-Version: 2.1
Name: orrery
Version: $version
Summary: A cluster for training large models, on one machine: every device an MPI process, every number checked
Requires-Python: >=3.9
Requires-Dist: numpy
License: MIT
END
printf 'Wheel-Version: 1.0\nGenerator: orrery\nRoot-Is-Purelib: false\nTag: %s\n' "$tag" >"$info/WHEEL"
printf '[console_scripts]\norrery = orrery.program:main\n' >"$info/entry_points.txt"
python3 - "$work/wheel" "$out/orrery-$version-$tag.whl" "orrery-$version.dist-info/RECORD" <<'END'
import base64, hashlib, os, sys, zipfile
top, wheel, record = sys.argv[1:]
lines = []
with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as out:
    for folder, folders, files in os.walk(top):
        folders.sort()
        for file in sorted(files):
            path = os.path.join(folder, file)
            name = os.path.relpath(path, top)
            out.write(path, name)
            with open(path, "rb") as f:
                data = f.read()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
    out.writestr(record, "".join(lines) + f"{record},,\n")
END
echo "$out/orrery-$version-$tag.whl"
