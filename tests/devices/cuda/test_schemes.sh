# Schemes of each kind with the kernels of the backend $BACKEND: what one device computes, on 1, 2, 4 and 8 devices; and each device's peaks,
# messages, bytes, additions and virtual time are those of cpu.  In `make verify` everything that is registered.
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
failed=0
begin() { echo "[ RUN      ] $1"; name=$1 broken=; }
end() { if [ -z "$broken" ]; then echo "[       OK ] $name"; else echo "[  FAILED  ] $name"; failed=1; fi; }

counted() { sed -n '/"devices":/,/"cluster":/p' "$1" | grep -v 'resident_bytes\|validation_loss\|fingerprint\|seconds'; }     # of the host, and rounded

check() {                               # check NAME OPTION...
    begin "$1"; shift
    "$ORRERY" train --steps 2 --check ref --backend "$BACKEND" --json "$place/kernels" "$@" >"$place/said" 2>&1 || { broken=yes; tail -n 12 "$place/said"; }
    "$ORRERY" train --steps 2 --backend cpu --json "$place/cpu" "$@" >"$place/said" 2>&1 || { broken=yes; tail -n 12 "$place/said"; }
    [ "$(counted "$place/cpu" | wc -l)" -gt 20 ] || broken=yes
    diff <(counted "$place/cpu") <(counted "$place/kernels") | head -n 12 | grep . && broken=yes
    end
}

if [ "${TIER:-test}" = verify ]; then
    begin everything_registered
    "$ORRERY" verify --backend "$BACKEND" --devices 8 --json "$place/all" >"$place/said" 2>&1 || { broken=yes; grep -A 1 FAILED "$place/said" | head -n 40; tail -n 3 "$place/said"; }
    end
fi

check one_device
check zero_1_on_2 --dp 2 --zero 1
check zero_3_on_4 --dp 4 --zero 3 --batch 4
check columns_and_rows_on_2 --tp 2
check two_dimensional_on_4 --tp 4 --tensor 2d
check ring_on_4 --cp 4 --attention ring
check heads_for_tokens_on_2 --cp 2 --attention ulysses
check zero_bubble_on_4 --pp 4 --micro 8 --schedule zb-h1 --batch 8
check experts_on_2 --model mixtral-tiny --dp 2 --ep 2
check three_axes_on_8 --dp 2 --tp 2 --pp 2 --batch 8

[ $failed -eq 0 ]
