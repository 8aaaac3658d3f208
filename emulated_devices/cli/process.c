/* process.c -- what one process does for itself: its surroundings, its share of the cores, its rank before MPI is up. */
#include "emulated_devices/cli/cli.h"
#include <fcntl.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void openblas_set_num_threads(int);

/* A file opened later must not become the standard output by having its number. */
static void open_missing_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
}

void prepare_process(char **argv)
{
    open_missing_streams();
    signal(SIGXFSZ, SIG_IGN);                           /* a file that grows too large is an error to report, not a death */
    setenv("UCX_HANDLE_ERRORS", "none", 0);             /* MPICH's transport would print a page for each crash, */
    setenv("UCX_LOG_LEVEL", "fatal", 0);                /* and remarks of its own */
    if (getenv("OMP_WAIT_POLICY") != NULL) return;
    /* Threads that wait by spinning take the cores from whoever they wait for.  OpenMP reads this before main: start again. */
    setenv("OMP_WAIT_POLICY", "passive", 1);
    execvp(argv[0], argv);
}

static int from_environment(const char *const names[])
{
    for (; *names; names++) {
        const char *text = getenv(*names);
        if (text && *text) return atoi(text);
    }
    return -1;
}

int launcher_rank(void)
{
    static const char *const names[] = { "PMI_RANK", "PMIX_RANK", NULL };
    const int rank = from_environment(names);
    return rank < 0 ? 0 : rank;
}

bool under_launcher(void) { return getenv("PMI_RANK") != NULL || getenv("PMIX_RANK") != NULL; }

int use_cores(int ranks)
{
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int threads = (int)(cores / ranks);
    if (threads < 1) threads = 1;
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
    openblas_set_num_threads(threads);
    return threads;
}

bool on_terminal(void)
{
    const char *told = getenv("ORRERY_TERMINAL");
    return told ? strcmp(told, "1") == 0 : isatty(STDOUT_FILENO);
}

void announce_process(int rank, const char *place)
{
    if (getenv("ORRERY_LAUNCHED") == NULL) return;
    fprintf(stderr, "%s%ld %d %s\n", PROCESS_LINE, (long)getpid(), rank, place);
}
