/* How many cores a process may use: of those that it is bound to, as many as its control groups grant; and threads.
 * tier: check
 *
 * Each case is a folder with the files that Linux would have: proc/self/cgroup, proc/self/mountinfo, and the groups'.
 */
#if defined(__linux__)
#define _GNU_SOURCE                     /* sched_setaffinity */
#endif
#include "tests/ref/scratch.h"
#include "ref/machine/cores.h"
#include "ref/machine/cgroup.h"
#include "ref/machine/system.h"
#include "ref/machine/threads.h"
#include "ref/machine/blas.h"
#include <omp.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/wait.h>

#define V2(top) "30 25 0:26 " top " /sys/fs/cgroup rw,nosuid shared:4 master:1 - cgroup2 cgroup2 rw,nsdelegate\n"
#define V1(top) "40 39 0:37 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"                                   \
                "41 39 0:38 " top " /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n"

struct group_file { const char *path, *text; };
struct machine {
    const char *name, *groups, *mounts;
    struct group_file file[6];
    int bound, cores;                   /* bound: cores that the process is bound to; cores: what it has then */
};

#define CPU "sys/fs/cgroup/cpu,cpuacct/"

/* The quotients by hand: quota / period, of all groups above the least, rounded down. */
static const struct machine machines[] = {
    { "no control groups", NULL, NULL, { { 0 } }, 6, 6 },
    { "the top has no file", "0::/\n", V2("/"), { { 0 } }, 6, 6 },
    { "no limit", "0::/a.slice/b.scope\n", V2("/"), { { "sys/fs/cgroup/a.slice/b.scope/cpu.max", "max 100000\n" } },
      6, 6 },
    { "own group", "0::/a.slice/b.scope\n", V2("/"),
      { { "sys/fs/cgroup/a.slice/b.scope/cpu.max", "300000 100000\n" } }, 6, 3 },
    { "another period", "0::/b\n", V2("/"), { { "sys/fs/cgroup/b/cpu.max", "100000 25000\n" } }, 6, 4 },
    { "a group above", "0::/job/step/task\n", V2("/"),
      { { "sys/fs/cgroup/job/cpu.max", "200000 100000\n" }, { "sys/fs/cgroup/job/step/task/cpu.max", "max 100000\n" } },
      6, 2 },
    { "the least of several", "0::/job/step\n", V2("/"),
      { { "sys/fs/cgroup/job/cpu.max", "500000 100000\n" }, { "sys/fs/cgroup/job/step/cpu.max", "400000 100000\n" } },
      6, 4 },
    { "a part of a core", "0::/b\n", V2("/"), { { "sys/fs/cgroup/b/cpu.max", "299999 100000\n" } }, 6, 2 },
    { "less than a core", "0::/b\n", V2("/"), { { "sys/fs/cgroup/b/cpu.max", "20000 100000\n" } }, 6, 1 },
    { "bound to fewer", "0::/b\n", V2("/"), { { "sys/fs/cgroup/b/cpu.max", "400000 100000\n" } }, 2, 2 },
    { "a container without its own name space", "0::/docker/0123\n", V2("/docker/0123"),
      { { "sys/fs/cgroup/cpu.max", "200000 100000\n" } }, 6, 2 },
    { "below a container's top", "0::/docker/0123/inner\n", V2("/docker/0123"),
      { { "sys/fs/cgroup/inner/cpu.max", "300000 100000\n" } }, 6, 3 },
    { "a group beside the mounted one", "0::/../other\n", V2("/"),
      { { "sys/fs/cgroup/cpu.max", "300000 100000\n" }, { "sys/fs/cgroup/other/cpu.max", "100000 100000\n" } }, 6, 3 },
    { "the file is no pair of numbers", "0::/b\n", V2("/"), { { "sys/fs/cgroup/b/cpu.max", "3\n" } }, 6, 6 },
    { "version 1", "5:memory:/m\n4:cpu,cpuacct:/c\n", V1("/"),
      { { CPU "c/cpu.cfs_quota_us", "350000\n" }, { CPU "c/cpu.cfs_period_us", "100000\n" } }, 6, 3 },
    { "version 1 without a limit", "4:cpu,cpuacct:/c\n", V1("/"),
      { { CPU "c/cpu.cfs_quota_us", "-1\n" }, { CPU "c/cpu.cfs_period_us", "100000\n" } }, 6, 6 },
    { "version 1, a group above", "4:cpu,cpuacct:/docker/0123\n", V1("/"),
      { { CPU "docker/cpu.cfs_quota_us", "50000\n" }, { CPU "docker/cpu.cfs_period_us", "25000\n" },
        { CPU "docker/0123/cpu.cfs_quota_us", "-1\n" }, { CPU "docker/0123/cpu.cfs_period_us", "100000\n" } }, 6, 2 },
    { "version 1 in a container", "4:cpu,cpuacct:/docker/0123\n", V1("/docker/0123"),
      { { CPU "cpu.cfs_quota_us", "400000\n" }, { CPU "cpu.cfs_period_us", "100000\n" } }, 6, 4 },
    { "both versions", "4:cpu,cpuacct:/c\n0::/u\n",
      V1("/") "50 39 0:50 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
      { { CPU "c/cpu.cfs_quota_us", "500000\n" }, { CPU "c/cpu.cfs_period_us", "100000\n" },
        { "sys/fs/cgroup/unified/u/cpu.max", "200000 100000\n" } }, 6, 2 },
    { "another controller whose name begins like it", "4:cpuacct:/c\n",
      "41 39 0:38 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpuacct\n",
      { { CPU "c/cpu.cfs_quota_us", "100000\n" }, { CPU "c/cpu.cfs_period_us", "100000\n" } }, 6, 6 },
};

/* Write a file below a folder, with the folders that it needs. */
static void put_below(const char *root, const char *path, const char *text)
{
    char all[600];
    const int n = snprintf(all, sizeof all, "%s/%s", root, path);
    assert_true(n < (int)sizeof all);
    for (char *at = all + strlen(root) + 1; (at = strchr(at, '/')) != NULL; *at++ = '/') {
        *at = '\0';
        mkdir(all, 0700);
    }
    put_text(all, text);
}

static void test_as_many_as_control_groups_grant(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof machines / sizeof *machines; i++) {
        const struct machine *m = &machines[i];
        char root[300];
        snprintf(root, sizeof root, "%s", scratch("machine"));
        assert_int_equal(mkdir(root, 0700), 0);
        if (m->groups) put_below(root, "proc/self/cgroup", m->groups);
        if (m->mounts) put_below(root, "proc/self/mountinfo", m->mounts);
        for (int f = 0; f < 6 && m->file[f].path; f++) put_below(root, m->file[f].path, m->file[f].text);
        const int found = cores_of(m->bound, root);
        if (found != m->cores) fail_msg("%s: %d cores, not %d", m->name, found, m->cores);
        scratch_remove_all(root);
    }
}

/* A path that fits nowhere is no path of another group. */
static void test_long_paths(void **state)
{
    static char groups[CGROUP_PATH + 100];
    char root[300];
    (void)state;
    snprintf(root, sizeof root, "%s", scratch("machine"));
    snprintf(groups, sizeof groups, "0::/%0*d\n", CGROUP_PATH, 1);
    assert_int_equal(mkdir(root, 0700), 0);
    put_below(root, "proc/self/cgroup", groups);
    put_below(root, "proc/self/mountinfo", V2("/"));
    put_below(root, "sys/fs/cgroup/cpu.max", "100000 100000\n");
    assert_int_equal(cores_of(3, root), 3);
    scratch_remove_all(root);
}

#if defined(SYSTEM_LINUX)
/* In a child, whose first look it is: bound to one of its cores, it has one. */
static void test_as_many_as_it_is_bound_to(void **state)
{
    struct cores all;
    int core = 0, how;
    (void)state;
    cores_bound(&all);
    while (core < CORES_MOST && !cores_has(&all, core)) core++;
    assert_true(core < CORES_MOST);
    const pid_t child = fork();
    if (child == 0) {
        static struct cores own;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((size_t)core, &one);
        if (sched_setaffinity(0, sizeof one, &one) != 0) _exit(10);
        cores_bound(&own);
        for (int i = 0; i < CORES_MOST; i++)
            if (cores_has(&own, i) != (i == core)) _exit(11);
        _exit(cores_usable());
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how));
    assert_int_equal(WEXITSTATUS(how), 1);
}
#endif

/* --threads before OMP_NUM_THREADS, that before the cores; what is no number counts as not said. */
static void test_threads(void **state)
{
    static const struct { int asked; const char *told; int cores, threads; } cases[] = {
        { 0, NULL, 3, 3 }, { 0, NULL, 0, 1 }, { 0, "2", 3, 2 }, { 0, "5,2", 3, 5 }, { 4, "2", 3, 4 }, { 4, NULL, 3, 4 },
        { 0, "many", 3, 3 }, { 0, "0", 3, 3 }, { 0, "-2", 3, 3 }, { 0, "99999", 3, 3 }, { 0, "", 3, 3 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        threads_asked = cases[i].asked;
        if (cases[i].told) setenv("OMP_NUM_THREADS", cases[i].told, 1);
        else unsetenv("OMP_NUM_THREADS");
        const int threads = threads_use(cases[i].cores);
        if (threads != cases[i].threads || arithmetic_now().threads != threads || omp_get_max_threads() != threads ||
            blas_threads() != threads)
            fail_msg("case %d: %d threads, not %d", (int)i, threads, cases[i].threads);
        threads_pass_on();              /* to processes that this one starts */
        const char *passed = getenv("OMP_NUM_THREADS"), *want = cases[i].told;
        char asked[16];
        snprintf(asked, sizeof asked, "%d", cases[i].asked);
        if (cases[i].asked) want = asked;
        assert_true(passed == want || (passed && want && strcmp(passed, want) == 0));
    }
    threads_asked = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_many_as_control_groups_grant), cmocka_unit_test(test_long_paths),
#if defined(SYSTEM_LINUX)
        cmocka_unit_test(test_as_many_as_it_is_bound_to),
#endif
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
