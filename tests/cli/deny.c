/* deny.c -- runs a command on a system that allows less: deny CALL.. -- COMMAND WORDS.. refuses system calls, as a
 * container does.  CALL: namespaces, landlock, seccomp.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct sock_filter rule[40];
static int count;

static void add(struct sock_filter one) { rule[count++] = one; }

static void deny(long call, int error)
{
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)call, 0, 1));
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error));
}

int main(int words, char **word)
{
    int i = 1;
    add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (; i < words && strcmp(word[i], "--") != 0; i++) {
        if (strcmp(word[i], "namespaces") == 0) deny(SYS_unshare, EPERM);
        else if (strcmp(word[i], "landlock") == 0) deny(SYS_landlock_create_ruleset, ENOSYS);
        else return fprintf(stderr, "deny: %s is not known\n", word[i]), 2;
    }
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const struct sock_fprog program = { (unsigned short)count, rule };
    if (i + 1 >= words || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return perror("deny"), 2;
    execvp(word[i + 1], word + i + 1);
    return perror(word[i + 1]), 127;
}
