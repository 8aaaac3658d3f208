# Training with the backend $BACKEND: what one device computes, on several meshes; and what it counts is what cpu counts.
#
# The program is that of `make CUDA=emulated`.

failed=0
begin() { echo "[ RUN      ] $1"; name=$1 broken=; }
end() { if [ -z "$broken" ]; then echo "[       OK ] $name"; else echo "[  FAILED  ] $name"; failed=1; fi; }
train() { "$ORRERY" train --backend "$BACKEND" --batch 4 "$@" 2>&1; }

begin it_is_listed
"$ORRERY" list backends | grep -q -w -- "$BACKEND" || broken=yes
end

check() {                               # check NAME OPTION...
    begin "$1"; shift
    local said; said=$(train --check ref --steps 2 "$@") || { broken=yes; echo "$said" | tail -n 12; }
    end
}
check one_device_in_fp64 --dtype fp64
check dp_and_tp --dp 2 --tp 2
check a_llama_in_bf16 --dp 2 --tp 2 --model llama-tiny --dtype bf16
check a_pipeline_in_fp16 --pp 2 --tp 2 --micro 2 --dtype fp16
check zero_and_dropout --dp 2 --zero 3 --dropout 0.1
check a_mixture --dp 2 --model mixtral-tiny
check a_mixture_in_bf16 --dp 2 --ep 2 --dispatch allgather --model mixtral-tiny --dtype bf16
check a_ring_and_a_window --cp 2 --model mistral-tiny --dtype fp64
check a_ring_whose_gradients_are_one_tensor --attention ring
check sgd_with_momentum --dp 2 --optimizer momentum

begin counts_are_those_of_cpu
for backend in cpu $BACKEND; do
    "$ORRERY" train --backend $backend --dp 2 --tp 2 --steps 2 --batch 4 2>&1 | sed -n '/^peak memory/,/^speed/p; /^virtual/p' | grep -v ^speed >"${TMPDIR:-/tmp}/counts.$$.$backend"
done
[ -s "${TMPDIR:-/tmp}/counts.$$.cpu" ] && diff "${TMPDIR:-/tmp}/counts.$$.cpu" "${TMPDIR:-/tmp}/counts.$$.$BACKEND" || broken=yes
rm -f "${TMPDIR:-/tmp}/counts.$$".*
end

if [ "$BACKEND" = cuda-emulated ]; then         # machines that it can pretend to be
refuses() {                             # refuses NAME PRETENDED WORDS [COMMAND..]: one line, status 1
    begin "$1"
    local pretended=$2 words=$3 said status=0; shift 3
    said=$(ORRERY_CUDA_EMULATED=$pretended "$ORRERY" "${@:-train}" --backend "$BACKEND" 2>&1 >/dev/null) || status=$?
    if [ $status -ne 1 ] || ! grep -q "$words" <<<"$said" || [ "$(grep -c . <<<"$said")" -ne 1 ]; then broken=yes; echo "status $status: $said"; fi
    end
}
refuses no_gpu gpus=0 'there is no GPU on this machine'
refuses an_old_driver driver=old 'driver is missing, or older'
refuses an_architecture_that_was_not_built arch=none 'were not built for'
refuses a_gpu_that_is_full memory=100000 'no memory for .*(GPU 0, emulated on the CPU: [0-9.]* [KMG]*i*B of 97.7 KiB free)'
refuses no_gpu_for_four_devices gpus=0 'there is no GPU on this machine' train --dp 2 --tp 2
refuses a_gpu_that_is_full_for_two memory=100000 '(GPU 0, emulated on the CPU: .* free)' train --dp 2 --zero 3
refuses nothing_to_verify_with driver=old 'driver is missing, or older' verify collectives --devices 2
fi

begin a_gpu_without_a_number
said=$(ORRERY_GPU=first "$ORRERY" train --backend "$BACKEND" 2>&1 >/dev/null) && broken=yes
grep -q 'ORRERY_GPU=first: this machine has [0-9]* GPU' <<<"$said" || { broken=yes; echo "$said"; }
end

begin too_few_gpus
said=$(ORRERY_GPU=99 "$ORRERY" train --backend "$BACKEND" --steps 1 2>&1 >/dev/null) && broken=yes
grep -q 'ORRERY_GPU=99: this machine has [0-9]* GPU' <<<"$said" || { broken=yes; echo "$said"; }
end

[ $failed -eq 0 ]
