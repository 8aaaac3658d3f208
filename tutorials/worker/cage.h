/* cage.h -- a process that may ask the system for a few things only, for code of which nothing is known.
 *
 * Whatever else it asks for ends it with SIGSYS; nothing can undo that, in it or in what it starts.  worker.c and
 * kernel.h call this file before a student's code runs.
 */
#ifndef ORRERY_WORKER_CAGE_H
#define ORRERY_WORKER_CAGE_H

#if defined __linux__
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__
#define CAGE_MACHINE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define CAGE_MACHINE AUDIT_ARCH_AARCH64
#endif

enum { CAGE_MOST_CALLS = 30, CAGE_RULES = 5 + 2 * CAGE_MOST_CALLS };

/* A worker may ask for these: reading, writing, ending, and which of its own pages are there. */
#define CAGE_WORKER_CALLS SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_mincore
/* A process of kernels may ask for these: also memory, and waiting for its threads. */
#define CAGE_KERNEL_CALLS SYS_read, SYS_write, SYS_exit, SYS_exit_group, SYS_mmap, SYS_munmap, SYS_mremap, \
                          SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_rt_sigprocmask, SYS_getrandom

/** End this process at once, in the only way that a cage allows. */
static inline void cage_exit(int status)
{
    for (;;) syscall(SYS_exit_group, status);
}

/** Ask for pages of the usual size only, so that a page that was touched tells where.  @return 0, or -1. */
static inline int cage_small_pages(void) { return prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }

/** Lock with the kernel's fixed list: reading, writing and ending.  @return 0, or -1: it cannot be done. */
static inline int cage_lock_strictly(void) { return prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT); }

/** Write the rules for these calls of the system, `count` of them; the `refused` ones behind them fail, with EPERM, and
 *  all others end the process.  At most CAGE_MOST_CALLS in all.  worker.py installs such rules itself.
 *  @return how many rules there are; 0: this machine has none. */
static inline int cage_rules(const int *calls, int count, int refused, struct sock_filter rule[CAGE_RULES])
{
#ifdef CAGE_MACHINE
    const struct sock_filter kill = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    const struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_filter machine = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    const struct sock_filter ours = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CAGE_MACHINE, 1, 0);
    const struct sock_filter number = BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    const struct sock_filter refuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    int n = 0;
    if (count + refused > CAGE_MOST_CALLS) return 0;
    rule[n++] = machine, rule[n++] = ours, rule[n++] = kill, rule[n++] = number;
    for (int i = 0; i < count + refused; i++) {
        const struct sock_filter same = BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        rule[n++] = same, rule[n++] = i < count ? allow : refuse;
    }
    rule[n++] = kill;
    return n;
#else
    (void)calls, (void)count, (void)refused, (void)rule;
    return 0;
#endif
}

/** From here on only these calls of the system, as cage_rules.  @return 0, or -1: it cannot be done. */
static inline int cage_lock(const int *calls, int count)
{
    struct sock_filter rule[CAGE_RULES];
    const int n = cage_rules(calls, count, 0, rule);
    const struct sock_fprog program = { (unsigned short)n, rule };
    if (n == 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

#else
#include <unistd.h>

/* Other systems cannot lock a process in: emulated_devices/course/cage/cage_portable.c lets only own code run there. */
#define CAGE_WORKER_CALLS 0
#define CAGE_KERNEL_CALLS 0
static inline void cage_exit(int status) { _exit(status); }
static inline int cage_small_pages(void) { return -1; }
static inline int cage_lock_strictly(void) { return -1; }
static inline int cage_lock(const int *calls, int count) { return (void)calls, (void)count, -1; }
#endif

#endif
