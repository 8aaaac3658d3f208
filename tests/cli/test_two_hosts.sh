# Two hosts, as namespaces of this machine (two_hosts.sh): training across them, and a host that dies.
# tier: verify
. "$(dirname "$0")/lib.sh"
seconds=100                                         # if something hangs
hosts=$(realpath "$(dirname "$0")/two_hosts.sh")
mpiexec=${MPIEXEC:-mpiexec}
export mpiexec program

# Run lines of bash on the first host, where $HOSTS and $RSH are those of both.
on_hosts() { command="on two hosts: $1"; watched bash "$hosts" bash -c "$1"; }

allowed() {
    "$mpiexec" --version 2>/dev/null | grep -q HYDRA || { echo 'skipped: not the mpiexec of MPICH'; return 1; }
    for tool in ip nsenter unshare pgrep; do command -v $tool >/dev/null || { echo "skipped: there is no $tool"; return 1; }; done
    bash "$hosts" true 2>/dev/null || { echo 'skipped: namespaces are not allowed here'; return 1; }
}

test_training_across_hosts() {
    allowed || return 0
    make_text
    on_hosts '$mpiexec -launcher ssh -launcher-exec $RSH -f $HOSTS -n 4 hostname'
    expect_status 0; [ "$(sort "$place/out" | uniq -c | tr -s ' \n' ' ')" = ' 2 alpha 2 beta ' ] || complain 'not two processes on each host'
    # started by mpiexec, and by the program itself, which mpiexec's variables tell of the hosts
    on_hosts "\$mpiexec -launcher ssh -launcher-exec \$RSH -f \$HOSTS -n 4 \$program train --model tiny --data $text --dp 2 --tp 2 --steps 2 --batch 4 --check ref --save one"
    expect_status 0; expect_out '^OK: every activation'; expect_out '^traffic counted .* on every device'
    on_hosts "HYDRA_HOST_FILE=\$HOSTS HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=\$RSH \$program train --model tiny --data $text --pp 2 --dp 2 --zero 3 --steps 2 --batch 4 --check ref"
    expect_status 0; expect_out '^OK: every activation'
    # a status of its own is kept
    on_hosts "\$mpiexec -launcher ssh -launcher-exec \$RSH -f \$HOSTS -n 4 \$program train --model tiny --data $text --dp 4 --steps 9 --batch 4 --optimizer sgd --lr 1e6"
    expect_status 1; expect_error 'is not finite|inf|nan'
    # the same bits as on one host
    run train --model tiny --data "$text" --dp 2 --tp 2 --steps 2 --batch 4 --check ref --save other; expect_status 0
    expect_same one/model.safetensors other/model.safetensors
}

# Hosts with the same process numbers: devices map each other's memory as on one machine, and MPI goes over the cable.
test_hosts_with_shared_processes() {
    allowed || return 0
    local k
    make_text
    export SHARED_PROCESSES=1
    on_hosts '$RSH beta readlink /proc/self/ns/pid; readlink /proc/self/ns/pid'
    expect_status 0; [ "$(sort -u "$place/out" | wc -l)" = 1 ] || complain 'the hosts have process numbers of their own'
    for k in 1 2 3 4 5; do
        on_hosts "\$mpiexec -launcher ssh -launcher-exec \$RSH -f \$HOSTS -n 4 \$program train --model tiny --data $text --pp 4 --steps 2 --batch 4 --check ref"
        expect_status 0; expect_out '^OK: every activation'
    done
    unset SHARED_PROCESSES
}

# By ssh itself, as between machines: a key, no password.
test_training_by_ssh() {
    allowed || return 0
    BY_SSH=1 bash "$hosts" true 2>/dev/null || { echo 'skipped: ssh is tried by root, with an sshd'; return 0; }
    make_text
    export BY_SSH=1
    on_hosts '$RSH beta hostname'
    expect_status 0; expect_out '^beta$'
    [ "$status" = 0 ] || return                     # mpiexec would wait for ever
    on_hosts "\$mpiexec -launcher ssh -launcher-exec \$RSH -f \$HOSTS -n 4 \$program train --model tiny --data $text --dp 2 --tp 2 --steps 2 --batch 4 --check ref"
    expect_status 0; expect_out '^OK: every activation'
    on_hosts "HYDRA_HOST_FILE=\$HOSTS HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=\$RSH \$program train --model tiny --data $text --pp 2 --dp 2 --steps 2 --batch 4 --check ref"
    expect_status 0; expect_out '^OK: every activation'
    unset BY_SSH
}

# Snapshots are in the memory of one machine.
test_survive_is_of_one_host() {
    allowed || return 0
    make_text
    on_hosts "HYDRA_HOST_FILE=\$HOSTS HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=\$RSH \$program train --model tiny --data $text --pp 2 --dp 2 --steps 2 --batch 4 --survive 1"
    expect_status 1; expect_error '--survive: the memory of the process that has started the devices cannot be reached from here: all devices must be on one machine$'
    on_hosts "\$mpiexec -launcher ssh -launcher-exec \$RSH -f \$HOSTS -n 4 \$program train --model tiny --data $text --pp 2 --dp 2 --steps 2 --batch 4 --survive 1"
    expect_status 2; expect_error '--survive: another launcher has started this process, as mpiexec or srun do'
}

test_a_host_dies() {
    allowed || return 0
    make_text
    on_hosts "export HYDRA_HOST_FILE=\$HOSTS HYDRA_LAUNCHER=ssh HYDRA_LAUNCHER_EXEC=\$RSH
        \$program train --model tiny --data $text --dp 2 --tp 2 --steps 100000 --batch 4 --wait-limit 20 >progress & job=\$!
        until grep -qs 'step  ' progress; do sleep 0.1; done
        kill -9 \$(cat \$PLACE/beta)
        wait \$job"
    expect_status 1; expect_error 'nothing is heard any more of host beta, with its devices 2, 3; all devices were stopped'
}

run_tests test_training_across_hosts test_hosts_with_shared_processes test_training_by_ssh test_survive_is_of_one_host test_a_host_dies
