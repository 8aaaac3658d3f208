/* cage_calls.c -- which system calls a student's code may not make, as a filter of the kernel.
 * cage.c calls cage_refuse_calls when a process gives up its rights.  Refused calls return EPERM; another machine's
 * instruction set ends the process.  On machines that this file does not know it does nothing. */
#define _GNU_SOURCE                     /* clone flags, syscall numbers */
#include "emulated_devices/course/cage/cage.h"
#include "ref/machine/system.h"
#if defined(SYSTEM_LINUX)
#include "tutorials/worker/cage.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined __x86_64__
#define THIS_MACHINE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define THIS_MACHINE AUDIT_ARCH_AARCH64
#endif

/* A student's code may make none of these system calls.  They concern other processes, the network, the system's
 * state, or names and rights of files.  Landlock does not check the latter. */
static const int refused[] = {
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kill, SYS_tkill, SYS_tgkill, SYS_rt_sigqueueinfo,
    SYS_rt_tgsigqueueinfo, SYS_setpriority, SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr,
    SYS_sched_setaffinity, SYS_kcmp, SYS_socket, SYS_socketpair, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd,
    SYS_keyctl, SYS_add_key, SYS_request_key, SYS_unshare, SYS_setns, SYS_mount, SYS_umount2, SYS_pivot_root,
    SYS_chroot, SYS_truncate, SYS_fchmodat, SYS_fchownat, SYS_fchown, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr,
    SYS_utimensat, SYS_shmget, SYS_shmat, SYS_msgget, SYS_semget, SYS_mq_open, SYS_personality, SYS_init_module,
    SYS_finit_module, SYS_kexec_load, SYS_reboot, SYS_swapon, SYS_swapoff, SYS_syslog, SYS_acct, SYS_quotactl,
    SYS_memfd_create, SYS_open_by_handle_at, SYS_name_to_handle_at,
#ifdef SYS_chmod
    SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat, SYS_mknod,
#endif
#ifdef SYS_io_uring_setup
    SYS_io_uring_setup, SYS_io_uring_enter, SYS_io_uring_register,
#endif
#ifdef SYS_pidfd_open
    SYS_pidfd_open, SYS_pidfd_send_signal, SYS_pidfd_getfd,
#endif
#ifdef SYS_open_tree
    SYS_open_tree, SYS_move_mount, SYS_fsopen, SYS_fsmount, SYS_mount_setattr,
#endif
    SYS_mknodat,
};

/* These make the rules of the filter. */
#define FIELD(name) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define ENDS(what)  BPF_STMT(BPF_RET | BPF_K, what)
#define IF_SAME(number, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)(number), yes, no)
#define REFUSE (SECCOMP_RET_ERRNO | EPERM)

/* Install the filter.  prlimit64 is allowed only for oneself, clone only without namespaces.  clone3 hides its
 * flags, so libc falls back to clone. */
bool cage_refuse_calls(void)
{
#ifdef THIS_MACHINE
    enum { COUNT = sizeof refused / sizeof *refused };
    const unsigned spaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS;
    /* The filter is built here, because its jumps count instructions. */
    struct sock_filter f[2 * COUNT + 24];
    int n = 0;
#define ADD(...) f[n++] = (struct sock_filter)__VA_ARGS__
    ADD(FIELD(arch)), ADD(IF_SAME(THIS_MACHINE, 1, 0)), ADD(ENDS(SECCOMP_RET_KILL_PROCESS)), ADD(FIELD(nr));
    ADD(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1)), ADD(ENDS(SECCOMP_RET_KILL_PROCESS));      /* x32 */
    for (int i = 0; i < COUNT; i++) ADD(IF_SAME(refused[i], 0, 1)), ADD(ENDS(REFUSE));
    ADD(IF_SAME(SYS_clone3, 0, 1)), ADD(ENDS(SECCOMP_RET_ERRNO | ENOSYS));
    ADD(IF_SAME(SYS_prlimit64, 0, 4)), ADD(FIELD(args[0])), ADD(IF_SAME(0, 0, 1)), ADD(ENDS(SECCOMP_RET_ALLOW));
    ADD(ENDS(REFUSE));
    ADD(IF_SAME(SYS_clone, 0, 3)), ADD(FIELD(args[0])), ADD(BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, spaces, 0, 1));
    ADD(ENDS(REFUSE)), ADD(ENDS(SECCOMP_RET_ALLOW));
#undef ADD
    const struct sock_fprog program = { (unsigned short)n, f };
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
#else
    return true;
#endif
}

/* To open a file fails, and does not end the process: Python itself tries that, to show a line that it cannot
 * compile. */
const char *cage_python_rules(void)
{
    static char text[2 * CAGE_RULES * sizeof(struct sock_filter) + 1];
    static const int calls[] = { SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_mmap, SYS_munmap, SYS_mremap,
                                 SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_rt_sigprocmask, SYS_rt_sigreturn,
                                 SYS_sched_yield, SYS_clock_gettime, SYS_getrandom,
#ifdef SYS_open
                                 SYS_open, SYS_stat, SYS_lstat, SYS_access, SYS_readlink,
#endif
                                 SYS_openat, SYS_newfstatat, SYS_readlinkat, SYS_getcwd };
    enum { COUNT = sizeof calls / sizeof *calls, ALLOWED = 16 };
    struct sock_filter rule[CAGE_RULES];
    const int n = cage_rules(calls, ALLOWED, COUNT - ALLOWED, rule);
    for (size_t i = 0; i < (size_t)n * sizeof *rule; i++)
        snprintf(text + 2 * i, 3, "%02x", (unsigned)((const unsigned char *)rule)[i]);
    return text;
}
#endif
