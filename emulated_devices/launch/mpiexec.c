/* mpiexec.c -- what mpiexec is told by its environment: that it may start our devices, and on which machine.
 *
 * Inside a job of a batch system MPICH's mpiexec takes the hosts from its variables, and starts devices with its
 * program: srun, blaunch, qrsh.  In a container that program is often not there; then mpiexec says so and never ends.
 * If the job has one host, and that is this machine, or nothing could reach another one, mpiexec forks instead.
 *
 * launch.c calls these functions, in the process that becomes mpiexec.  No function returns an error code.
 */
#include "emulated_devices/launch/mpiexec.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static bool is_set(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0';
}

/* ---- Open MPI ---------------------------------------------------------------------------------------------------- */

/* Open MPI's mpiexec refuses to start more devices than cores, and to run as root, as in a container; and it would bind
 * each device to a core.  Version 4 reads the first of these variables, version 5 those of PRTE; MPICH reads none.
 * Variables that the user has set are kept. */
static void permit_open_mpi(void)
{
    static const char *const usual[][2] = {
        { "OMPI_ALLOW_RUN_AS_ROOT", "1" }, { "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1" },
        { "OMPI_MCA_rmaps_base_oversubscribe", "1" }, { "OMPI_MCA_hwloc_base_binding_policy", "none" },
        { "PRTE_ALLOW_RUN_AS_ROOT", "1" }, { "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1" },
        { "PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe" },
        { "PRTE_MCA_hwloc_default_binding_policy", "none" },
    };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) setenv(usual[i][0], usual[i][1], 0);
}

/* ---- batch systems ----------------------------------------------------------------------------------------------- */

/* How a batch system tells its hosts. */
enum hosts_told {
    TOLD_BY_COUNT,                      /* the first variable has names, the second how many */
    TOLD_IN_PAIRS,                      /* the first variable has "name processes name processes ..." */
    TOLD_IN_FILE                        /* the first variable names a file: a line begins with a name */
};

/* A batch system as hydra knows it (src/pm/hydra/tools/bootstrap of MPICH: *_query_native_int.c). */
static const struct manager {
    const char *name;
    const char *variable[3];            /* hydra looks for all of them; the first tells the hosts */
    enum hosts_told told;
    const char *folder[2], *tool;       /* variables with the folder of the program that reaches hosts; "": in PATH */
} managers[] = {
    { "Slurm", { "SLURM_NODELIST", "SLURM_NNODES", "SLURM_TASKS_PER_NODE" }, TOLD_BY_COUNT, { "", "" }, "srun" },
    { "LoadLeveler", { "LOADL_HOSTFILE", "MP_CHILD" }, TOLD_IN_FILE, { "", "" }, "poe" },
    { "LSF", { "LSB_MCPU_HOSTS", "LSF_BINDIR" }, TOLD_IN_PAIRS, { "LSF_BINDIR", "" }, "blaunch" },
    { "Grid Engine", { "PE_HOSTFILE", "SGE_ROOT", "ARC" }, TOLD_IN_FILE, { "SGE_ROOT", "ARC" }, "qrsh" },
    { "PBS", { "PBS_NODEFILE" }, TOLD_IN_FILE, { "", "" }, "ssh" },
    { "Cobalt", { "COBALT_NODEFILE" }, TOLD_IN_FILE, { "", "" }, "ssh" },
};
enum { MANAGERS = sizeof managers / sizeof *managers };

static const struct manager *manager_here(void)
{
    for (int i = 0; i < MANAGERS; i++) {
        bool all = true;
        for (int k = 0; k < 3 && managers[i].variable[k] != NULL; k++) all = all && is_set(managers[i].variable[k]);
        if (all) return &managers[i];
    }
    return NULL;
}

const char *mpiexec_manager(void)
{
    const struct manager *const m = manager_here();
    return m != NULL ? m->name : NULL;
}

/* The hosts of a job: only whether there is one, and which. */
struct hosts {
    int different;                      /* 0, 1, or 2 for more */
    char first[256];
};

static void hosts_add(struct hosts *hosts, const char *name, size_t length)
{
    char text[sizeof hosts->first];
    if (length == 0 || length >= sizeof text || hosts->different == 2) return;
    memcpy(text, name, length);
    text[length] = '\0';
    if (hosts->different == 0) strcpy(hosts->first, text);
    hosts->different = hosts->different == 0 || strcmp(hosts->first, text) == 0 ? 1 : 2;
}

static void hosts_in_file(struct hosts *hosts, const char *path)
{
    char line[1024];
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        const char *name = line + strspn(line, " \t");
        hosts_add(hosts, name, strcspn(name, ": \t\n#"));
    }
    if (f != NULL) fclose(f);
}

static struct hosts hosts_of(const struct manager *manager)
{
    struct hosts hosts = { 0 };
    const char *told = getenv(manager->variable[0]);
    switch (manager->told) {
    case TOLD_BY_COUNT:
        if (atoi(getenv(manager->variable[1])) == 1) hosts_add(&hosts, told, strlen(told));
        break;
    case TOLD_IN_PAIRS:
        for (int i = 0; *(told += strspn(told, " ")) != '\0'; i++) {
            const size_t n = strcspn(told, " ");
            if (i % 2 == 0) hosts_add(&hosts, told, n);
            told += n;
        }
        break;
    case TOLD_IN_FILE: hosts_in_file(&hosts, told);
    }
    return hosts;
}

/* Names are compared without their domains, which batch systems and machines leave out as they like. */
static bool is_this_machine(const char *host)
{
    char own[256] = "";
    if (gethostname(own, sizeof own - 1) != 0) return false;
    const size_t n = strcspn(host, "."), m = strcspn(own, ".");
    return strcasecmp(host, "localhost") == 0 || (n > 0 && n == m && strncasecmp(host, own, n) == 0);
}

static bool is_in_path(const char *program)
{
    const char *at = getenv("PATH");
    char file[1024];
    while (at != NULL && *at != '\0') {
        const int n = (int)strcspn(at, ":");
        snprintf(file, sizeof file, "%.*s/%s", n, at, program);
        if (n > 0 && access(file, X_OK) == 0) return true;
        at += n + (at[n] == ':');
    }
    return false;
}

/* Whether the program by which mpiexec reaches the hosts of a job is here. */
static bool reaches_hosts(const struct manager *manager)
{
    char file[1024];
    if (manager->folder[0][0] == '\0') return is_in_path(manager->tool);
    if (manager->folder[1][0] == '\0') snprintf(file, sizeof file, "%s/%s", getenv(manager->folder[0]), manager->tool);
    else snprintf(file, sizeof file, "%s/bin/%s/%s", getenv(manager->folder[0]), getenv(manager->folder[1]),
                  manager->tool);
    return access(file, X_OK) == 0;
}

/* Whoever has named hosts, or how they are reached, is not overruled. */
static bool user_has_chosen(void)
{
    static const char *const by[] = { "HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP", "HYDRA_RMK", "HYDRA_HOST_FILE",
                                      "HYDRA_LAUNCHER_EXEC", "HYDRA_BOOTSTRAP_EXEC", "HYDRA_CONFIG_FILE" };
    for (size_t i = 0; i < sizeof by / sizeof *by; i++)
        if (is_set(by[i])) return true;
    return false;
}

/* Open MPI's names of what starts daemons (plm) and of what knows the batch systems' hosts (ras) are those of 4.1 and,
 * with PRTE, of 5.0. */
static void stay_on_this_machine(void)
{
    static const char *const usual[][2] = {
        { "HYDRA_RMK", "user" }, { "HYDRA_LAUNCHER", "fork" },
        { "OMPI_MCA_plm", "isolated" }, { "OMPI_MCA_ras", "^alps,gridengine,loadleveler,lsf,slurm,tm" },
        { "PRTE_MCA_plm", "ssh" }, { "PRTE_MCA_ras", "^flux,gridengine,lsf,pbs,slurm,tm" },
    };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) setenv(usual[i][0], usual[i][1], 0);
}

/* Devices of one machine need no sockets: UCX looks at every network card for them, a sixth of a device's start. */
static void close_sockets(void)
{
    const char *const ways = getenv("UCX_TLS");
    if (ways != NULL && strcmp(ways, UCX_WITHOUT_FILES) == 0) setenv("UCX_TLS", UCX_WITHOUT_FILES ",tcp", 1);
}

void mpiexec_prepare(void)
{
    const struct manager *const m = manager_here();
    permit_open_mpi();
    if (user_has_chosen()) return;
    if (m != NULL) {
        const struct hosts hosts = hosts_of(m);
        const bool is_here = hosts.different == 1 && (is_this_machine(hosts.first) || !reaches_hosts(m));
        if (!is_here) return;
        stay_on_this_machine();
    }
    close_sockets();
}
