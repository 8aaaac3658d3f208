/* machine.c -- checks that memory, processes and open files suffice for a job.  launch/launch.c calls before the
 * start, run/session.c when the model's memory is known.  A lack is ERR_MEMORY; machine_check may raise this
 * process's limit of open files.  check_limits runs before main, and ends the process with status 1 if a limit is
 * too low. */
#define _DEFAULT_SOURCE                 /* MAP_NORESERVE */
#include "emulated_devices/launch/machine.h"
#include "ref/io/figures.h"
#include "ref/io/options.h"
#include "ref/machine/cgroup.h"
#include "ref/machine/system.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* The needs of one device, measured with the smallest model on 4 to 16 devices: its own memory, its part of shared
 * memory, and its witness.  A model's memory is added to it. */
static const uint64_t DEVICE_BYTES = (uint64_t)9 << 20;
enum {
    DEVICE_TASKS = 4,                   /* itself, UCX's thread, the lifeline's thread; its witness */
    OTHER_TASKS = 3,                    /* guardian, mpiexec, proxy */
    DEVICE_FILES = 4, OTHER_FILES = 24  /* of the proxy: streams and PMI's pipe of each device */
};

static const uint64_t UNLIMITED = UINT64_MAX;

/* The number at the beginning of a file; UNLIMITED if there is none ("max"). */
static uint64_t number_in(const char *path)
{
    uint64_t n = UNLIMITED;
    FILE *f = fopen(path, "r");
    if (f != NULL && fscanf(f, "%" SCNu64, &n) != 1) n = UNLIMITED;
    if (f != NULL) fclose(f);
    return n;
}

static uint64_t less(uint64_t a, uint64_t b) { return a < b ? a : b; }
static uint64_t difference(uint64_t limit, uint64_t used)
{
    return limit == UNLIMITED ? UNLIMITED : limit > used ? limit - used : 0;
}

/* A limit of this process's control groups minus its use: the least of all groups above the process. */
static uint64_t left_in_group(const char *limit, const char *used)
{
    char path[CGROUP_PATH + 32];
    uint64_t left = UNLIMITED;
    struct cgroup g;
    for (bool more = cgroup_own(&g, "", NULL); more; more = cgroup_up(&g)) {
        snprintf(path, sizeof path, "%s/%s", g.folder, limit);
        const uint64_t most = number_in(path);
        snprintf(path, sizeof path, "%s/%s", g.folder, used);
        if (most != UNLIMITED) left = less(left, difference(most, number_in(path)));
    }
    return left;
}

uint64_t machine_free_memory(void)
{
    return less(system_free_memory(), left_in_group("memory.max", "memory.current"));
}

/* A user's limit of processes does not apply to root. */
static uint64_t free_tasks(void)
{
    struct rlimit user;
    uint64_t left = left_in_group("pids.max", "pids.current");
    const uint64_t machine = system_most_tasks();
    left = less(left, difference(machine, machine == UNLIMITED ? 0 : system_tasks(false)));
    if (geteuid() != 0 && getrlimit(RLIMIT_NPROC, &user) == 0 && user.rlim_cur != RLIM_INFINITY)
        left = less(left, difference(user.rlim_cur, system_tasks(true)));
    return left;
}

static enum error_code machine_check_files(int devices, struct error *err)
{
    struct rlimit files;
    const rlim_t need = (rlim_t)devices * DEVICE_FILES + OTHER_FILES;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == RLIM_INFINITY || files.rlim_cur >= need) return OK;
    if (files.rlim_max != RLIM_INFINITY && files.rlim_max < need)
        return fail(err, ERR_MEMORY, "%d devices need %llu open files; a process here may have %llu (ulimit -n)",
                    devices, (unsigned long long)need, (unsigned long long)files.rlim_max);
    files.rlim_cur = need;
    setrlimit(RLIMIT_NOFILE, &files);
    return OK;
}

enum error_code machine_check_memory(int devices, uint64_t model, struct error *err)
{
    const uint64_t bytes = (uint64_t)devices * DEVICE_BYTES + model, memory = machine_free_memory();
    char of_it[80] = "not counting the model";
    if (bytes <= memory) return OK;
    if (model > 0) snprintf(of_it, sizeof of_it, "at least %s of it for the model", size_format(model).text);
    return fail(err, ERR_MEMORY, "%d device%s need%s %s of memory, %s; this machine has %s left", devices,
                devices == 1 ? "" : "s", devices == 1 ? "s" : "", size_format(bytes).text, of_it,
                size_format(memory).text);
}

enum error_code machine_check(int devices, struct error *err)
{
    const enum error_code e = machine_check_memory(devices, 0, err);
    const uint64_t need = (uint64_t)devices * DEVICE_TASKS + OTHER_TASKS, room = free_tasks();
    if (e) return e;
    if (need > room)
        return fail(
            err, ERR_MEMORY,
            "%d devices need %llu processes and threads; there is room for %llu more (ulimit -u, pids.max, pid_max)",
            devices, (unsigned long long)need, (unsigned long long)room);
    return machine_check_files(devices, err);
}

/* ---- before anything else ---------------------------------------------------------------------------------------- *
 *
 * With too little address space or data OpenBLAS tries for ever to get its buffers, as soon as it is loaded; with too
 * small a stack a command ends in the middle of its work, without a word.  main would come too late for the first. */
#if defined(__ELF__)
static void stop_for(const char *what, char flag, const struct rlimit *limit, const char *who, size_t need)
{
    char line[200];
    const int n = snprintf(line, sizeof line, "orrery: %s is limited to %llu KB (ulimit -%c); %s %llu KB\n", what,
                           (unsigned long long)limit->rlim_cur >> 10, flag, who, (unsigned long long)need >> 10);
    if (write(STDERR_FILENO, line, (size_t)n) != n) _exit(1);
    _exit(1);
}

static bool can_map(size_t bytes, int protection)
{
    void *at = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) munmap(at, bytes);
    return at != MAP_FAILED;
}

/* The first of some variables that is a positive number, and no more than cores; all cores if none is. */
static size_t threads_asked_by(char *const *environment, const char *const *name, size_t names)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN), most = cores > 0 ? cores : 1;
    for (size_t k = 0; k < names; k++)
        for (char *const *v = environment; *v != NULL; v++) {
            const long asked = strncmp(*v, name[k], strlen(name[k])) == 0 ? atol(*v + strlen(name[k])) : 0;
            if (asked > 0) return (size_t)(asked < most ? asked : most);
        }
    return (size_t)most;
}

/* OpenBLAS starts with as many threads as the first of its variables says; Orrery sets them anew (threads_use). */
static size_t blas_threads(char *const *environment)
{
    static const char *const name[] = { "OPENBLAS_NUM_THREADS=", "GOTO_NUM_THREADS=", "OMP_NUM_THREADS=" };
    const size_t loaded = threads_asked_by(environment, name, 3), set = threads_asked_by(environment, name + 2, 1);
    return loaded > set ? loaded : set;
}

/* The dynamic linker calls this before the constructors of libraries; getenv does not work yet. */
static void check_limits(int argc, char **argv, char **environment)
{
    static const char blas[] = "the BLAS and MPI need";
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const size_t buffer = (size_t)128 << 20;                    /* OpenBLAS: one for each thread, and the caller's */
    const size_t space = ((size_t)768 << 20) + ((size_t)256 << 20) * (size_t)(cores > 0 ? cores : 1);
    const size_t data = buffer * (blas_threads(environment) + 2), stack = (size_t)2 << 20;
    struct rlimit limit;
    (void)argc, (void)argv;
    if (getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < stack)
        stop_for("the stack", 's', &limit, "orrery needs", stack);
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && !can_map(space, PROT_NONE))
        stop_for("the address space", 'v', &limit, blas, space);
    if (getrlimit(RLIMIT_DATA, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        !can_map(data, PROT_READ | PROT_WRITE))
        stop_for("a process's data", 'd', &limit, blas, data);
}
__attribute__((section(".preinit_array"), used)) static void (*const before_libraries)(int, char **, char **) =
    check_limits;
#endif
