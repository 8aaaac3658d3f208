/* cage.h -- a process that may ask the system for a few things only, for code of which nothing is known.
 *
 * Whatever else it asks for ends it with SIGSYS; nothing can undo that, in it or in what it starts.  worker.c and
 * kernel.h call this file before a student's code runs.
 */
#ifndef ORRERY_WORKER_CAGE_H
#define ORRERY_WORKER_CAGE_H

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#if defined __x86_64__
#define CAGE_MACHINE AUDIT_ARCH_X86_64
#elif defined __aarch64__
#define CAGE_MACHINE AUDIT_ARCH_AARCH64
#endif

enum { CAGE_RULES = 70 };

/** Write the rules for these calls of the system, `count` of them; the `refused` ones behind them fail, with EPERM, and
 *  all others end the process.  At most 30 in all.  worker.py installs such rules itself.
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
    if (count + refused > 30) return 0;
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

#endif
