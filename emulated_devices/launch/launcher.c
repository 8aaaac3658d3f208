/* launcher.c -- whether a launcher (mpiexec, srun) has started this process as one of its ranks.
 *
 * A launcher tells a rank its number by variables, and gives it a line to speak with: for PMI an open socket, PMI_FD,
 * for PMIx a folder of its server.  Every descendant of a rank inherits the variables.  Python's subprocess, and many
 * other programs, close all descriptors for their children.  Then the variables speak of somebody else, and the number
 * is closed, or is another file by now.  So variables without their line are removed, before anybody reads them: this
 * process, MPI, and an mpiexec that this process starts.
 *
 * process.c and lifeline.c call these functions.  No function returns an error code.
 */
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/comm/comm.h"
#include "ref/machine/system.h"
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

/* ---- the line of PMI --------------------------------------------------------------------------------------------- */

/* PMI is spoken in both directions over one descriptor, so a pipe or a file cannot be its line.
 * @return whether this number is a socket with somebody at its other end, or who has hung up. */
static bool is_connected(int fd)
{
    struct sockaddr_storage other;
    socklen_t size = sizeof other;
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode) && getpeername(fd, (struct sockaddr *)&other, &size) == 0;
}

int launcher_line(void)
{
    static struct stat meant;
    static int line = -1;
    struct stat st;
    const char *told = getenv("PMI_FD");
    char *end = NULL;
    const long fd = told != NULL && *told != '\0' ? strtol(told, &end, 10) : -1;
    if (line < 0) {                                     /* the first call, before this process opens files */
        if (fd < 0 || fd > 1 << 20 || *end != '\0' || !is_connected((int)fd) || fstat((int)fd, &meant) != 0) return -1;
        line = (int)fd;
    }
    /* In the end MPI closes the line, and its number may be another file. */
    return fstat(line, &st) == 0 && st.st_dev == meant.st_dev && st.st_ino == meant.st_ino ? line : -1;
}

bool launcher_is_parent(void)
{
    const int fd = launcher_line();
    return fd >= 0 && system_peer(fd) == (long)getppid();
}

/* ---- variables of somebody else ---------------------------------------------------------------------------------- */

/* The beginnings of names that hydra and srun --mpi=pmi2 set for a rank; then those of PMIx and Open MPI's mpiexec. */
static const char *const of_pmi[] = { "PMI_", "PMI2_", "HYDI_", "MPI" "_LOCALNRANKS", "MPI" "_LOCALRANKID", NULL };
static const char *const of_pmix[] = {
    "PMIX_", "OMPI_COMM_WORLD_", "OMPI_UNIVERSE_SIZE", "OMPI_NUM_APP_CTX", "OMPI_FIRST_RANKS", "OMPI_APP_CTX_",
    "OMPI_COMMAND", "OMPI_ARGV", "OMPI_FILE_LOCATION", "OMPI_MCA_ess", "OMPI_MCA_orte_", "OMPI_MCA_pmix",
    "OMPI_MCA_initial_wdir", "PRTE_LAUNCHED", NULL,
};

/* The names by which srun describes a task of a step. */
static const char *const of_step[] = { "SLURM_STEP_", "SLURM_STEPID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID",
                                       "SLURM_GTIDS", "SLURM_TASK_PID", "SLURM_SRUN_", NULL };

static bool begins_with_one(const char *variable, const char *const *beginning)
{
    for (; *beginning != NULL; beginning++)
        if (strncmp(variable, *beginning, strlen(*beginning)) == 0) return true;
    return false;
}

static void forget(const char *const *beginning)
{
    char name[256];
    for (size_t i = 0; environ[i] != NULL;) {
        const size_t n = strcspn(environ[i], "=");
        const bool gone = n < sizeof name && begins_with_one(environ[i], beginning);
        if (gone) memcpy(name, environ[i], n), name[n] = '\0';
        if (!gone || unsetenv(name) != 0) i++;          /* what is removed makes room for the next */
    }
}

static bool launcher_has_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

void launcher_forget_others(void)
{
    const char *port = getenv("PMI_PORT"), *server = getenv("PMIX_SERVER_TMPDIR");
    if (launcher_line() < 0 && (port == NULL || *port == '\0')) {
        if (getenv("PMI_RANK") != NULL) forget(of_step);                /* srun's task, too, is another process */
        forget(of_pmi);
    }
    if (!comm_speaks_pmix() || (server != NULL && !launcher_has_folder(server))) forget(of_pmix);
}

/* ---- the rank ---------------------------------------------------------------------------------------------------- */

int launcher_rank(void)
{
    const char *text = getenv("PMI_RANK");
    if (text == NULL || *text == '\0') text = getenv("PMIX_RANK");
    const int rank = text != NULL ? atoi(text) : 0;
    return rank < 0 ? 0 : rank;
}

bool under_launcher(void) { return getenv("PMI_RANK") != NULL || getenv("PMIX_RANK") != NULL; }
