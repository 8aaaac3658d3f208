# Collectives by NCCL with the backend $BACKEND: what one device computes, with blocks of equal and of unequal lengths.
#
# The program is that of `make CUDA=emulated`, which has an NCCL of its own.

failed=0
begin() { echo "[ RUN      ] $1"; name=$1 broken=; }
end() { if [ -z "$broken" ]; then echo "[       OK ] $name"; else echo "[  FAILED  ] $name"; failed=1; fi; }

check() {                               # check NAME OPTION...
    begin "$1"; shift
    local said; said=$("$ORRERY" train --backend "$BACKEND" --steps 2 --check ref "$@" 2>&1) || { broken=yes; echo "$said" | tail -n 12; }
    grep -q '^traffic counted' <<<"$said" || { broken=yes; echo "no line of traffic"; }
    end
}
check gradients_of_copies_and_parts --dp 2 --tp 2 --batch 4 --allreduce nccl
check shards_of_three --dp 3 --batch 3 --zero 3 --reduce-scatter nccl --allgather nccl --dtype bf16
check shards_of_two_in_fp64 --dp 2 --batch 4 --zero 2 --reduce-scatter nccl --allgather nccl --allreduce nccl --dtype fp64

begin another_backend_is_refused_before_training
said=$("$ORRERY" train --backend cpu --dp 2 --steps 1 --allreduce nccl 2>&1) && broken=yes
grep -q '^orrery: --allreduce nccl: needs --backend cuda; ' <<<"$said" && [ "$(grep -c . <<<"$said")" -eq 1 ] || { broken=yes; echo "$said"; }
end

begin auto_takes_others
said=$("$ORRERY" train --backend "$BACKEND" --dp 2 --steps 1 --allreduce auto --check ref 2>&1) || { broken=yes; echo "$said"; }
end

# Exact results of each operation at odd sizes, for groups of two and three.
begin each_collective_alone
said=$("$ORRERY" verify collectives --backend "$BACKEND" --devices 3 2>&1) || { broken=yes; tail -n 12 <<<"$said"; }
[ "$(grep -c '[ ,]nccl' <<<"$said")" -ge 16 ] || { broken=yes; grep nccl <<<"$said"; }
end

exit $failed
