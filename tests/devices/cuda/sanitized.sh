# What NVIDIA's compute-sanitizer finds of the kernels with one mistake that the judge kills; a table, a line a kernel.
#
# Usage: sanitized.sh ON_GPU, the program of `make CUDA=1 build/cuda-nvcc/tests/devices/cuda/on_gpu`, on a machine with a GPU.
# A column a tool: how many errors or hazards it shows, or "hangs" after 40 s.  sanitized_h200.tsv is what it said on an H200
# with CUDA 13.0; docs/authors/backends.md counts it.
set -u
export ON_GPU=$1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
one() {
    local out=$2.$1.$3
    timeout 40 compute-sanitizer --tool "$3" "$ON_GPU" "$1" >"$out" 2>&1
    if [ $? -eq 124 ]; then echo hangs >"$out.found"; return; fi
    sed -nE 's/.*SUMMARY: ([0-9]+) .*/\1/p' "$out" | head -n 1 >"$out.found"
}
export -f one
tools='memcheck racecheck initcheck synccheck'
count=$("$ON_GPU" COUNT)
for n in $(seq 0 $((count - 1))); do for tool in $tools; do echo "$n $dir/out $tool"; done; done |
    xargs -P "$(nproc)" -L 1 bash -c 'one "$0" "$1" "$2"'
printf 'kernel\tjudge'; for tool in $tools; do printf '\t%s' "$tool"; done; echo
for n in $(seq 0 $((count - 1))); do
    printf '%s' "$("$ON_GPU" NAME "$n")"
    for tool in $tools; do printf '\t%s' "$(cat "$dir/out.$n.$tool.found")"; done
    echo
done
