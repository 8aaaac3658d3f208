#!/usr/bin/env bash
# Two hosts on one machine: namespaces for network, memory, processes and names of their own, and a cable between them.
#   two_hosts.sh COMMAND...     runs COMMAND on the first, `alpha`; $HOSTS is a host file with both, two devices each;
#                               $RSH HOST COMMAND... runs a command on a host, as ssh would.
#   SHARED_PROCESSES=1 ...      both hosts have the same process numbers, and so the same /proc
#   BY_SSH=1 two_hosts.sh ...   $RSH is ssh, to an sshd on `beta`; for root, since sshd changes users.
# Exit status 77: namespaces are not allowed here; 78: BY_SSH, and neither root nor sshd.
set -euo pipefail
here=$(realpath "$0")
sshd=/usr/sbin/sshd                                 # which wants to be called by its whole path
stage=${1:-}; [ $# -eq 0 ] || shift
case $stage in
--alpha)
    mount -t tmpfs none /dev/shm && mount -t proc proc /proc && mount -t sysfs sysfs /sys
    hostname alpha
    printf '127.0.0.1 localhost\n10.77.0.1 alpha\n10.77.0.2 beta\n' >"$PLACE/hosts" && mount --bind "$PLACE/hosts" /etc/hosts
    processes='-p --mount-proc'; [ -z "${SHARED_PROCESSES:-}" ] || processes=
    unshare -n -m -i -u $processes --fork bash "$here" --beta 2>/dev/null &
    until [ -s "$PLACE/beta" ]; do sleep 0.02; done
    beta=$(pgrep -P $! | head -n 1)
    echo "$beta" >"$PLACE/beta"                     # what has to be killed if this host is to die
    ip link add cable type veth peer name cable netns "$beta"
    ip addr add 10.77.0.1/24 dev cable && ip link set cable up && ip link set lo up
    nsenter -t "$beta" -n ip addr add 10.77.0.2/24 dev cable
    nsenter -t "$beta" -n ip link set cable up && nsenter -t "$beta" -n ip link set lo up
    cat >"$PLACE/rsh" <<RSH
#!/usr/bin/env bash
[ "\$1" != -x ] || shift
[ "\$1" = beta ] || { echo "\$1: no such host" >&2; exit 1; }
shift
exec nsenter -t $beta -n -m -i -u -p sh -c "cd '$PWD' && \$*"
RSH
    chmod +x "$PLACE/rsh"
    until [ "$("$PLACE/rsh" beta cat /sys/class/net/cable/operstate)" = up ] && [ "$(cat /sys/class/net/cable/operstate)" = up ]; do sleep 0.02; done
    printf 'alpha:2\nbeta:2\n' >"$PLACE/machines"
    export HOSTS=$PLACE/machines RSH=$PLACE/rsh
    if [ -n "${BY_SSH:-}" ]; then
        for key in host user; do ssh-keygen -q -t ed25519 -N '' -f "$PLACE/$key"; done
        printf '%s\n' "HostKey $PLACE/host" "AuthorizedKeysFile $PLACE/user.pub" 'StrictModes no' 'UsePAM no' \
               'PermitRootLogin yes' 'PidFile none' >"$PLACE/sshd_config"
        "$RSH" beta "mkdir -p /run/sshd && $sshd -f $PLACE/sshd_config"
        echo "beta $(cat "$PLACE/host.pub")" >"$PLACE/known"
        cat >"$PLACE/ssh" <<SSH
#!/usr/bin/env bash
exec ssh -i $PLACE/user -o UserKnownHostsFile=$PLACE/known -o BatchMode=yes "\$@"
SSH
        chmod +x "$PLACE/ssh"; RSH=$PLACE/ssh
    fi
    export UCX_NET_DEVICES=cable                    # not lo: the kernel is the same, so UCX takes the other host for this one
    status=0; "$@" || status=$?
    exit $status ;;
--beta)
    mount -t tmpfs none /dev/shm && mount -t sysfs sysfs /sys; hostname beta
    echo up >"$PLACE/beta"
    sleep 1000 ;;
*)
    as_root=-rU
    if [ -n "${BY_SSH:-}" ]; then
        [ "$(id -u)" = 0 ] && [ -x "$sshd" ] || exit 78
        as_root=
    fi
    unshare $as_root -nmiup --fork true 2>/dev/null || exit 77
    export PLACE; PLACE=$(mktemp -d)
    trap 'rm -rf "$PLACE"' EXIT
    unshare $as_root -nmiup --fork --kill-child bash "$here" --alpha "$stage" "$@" ;;
esac
