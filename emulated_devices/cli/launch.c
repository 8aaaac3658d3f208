/* launch.c -- orrery starts its own ranks: it runs itself under mpiexec and keeps an eye on it. */
#include "emulated_devices/cli/cli.h"
#include <errno.h>
#include <omp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void openblas_set_num_threads(int);

static const char PROCESS_LINE[] = "orrery-process ";   /* what announce_process() writes */

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
    static const char *const names[] = { "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", NULL };
    const int rank = from_environment(names);
    return rank < 0 ? 0 : rank;
}

int launcher_size(void)
{
    static const char *const names[] = { "PMI_SIZE", "SLURM_NTASKS", NULL };
    const int size = from_environment(names);
    return size < 0 ? 0 : size;
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

/* ---- the parent's side -------------------------------------------------------------------------------------------- */

struct process { long pid; int rank; char place[64]; };

struct watch {
    struct process *process;
    int known, room;
    bool in_banner, died;               /* inside what mpiexec prints of a death */
    long dead_pid;
};

static void remember(struct watch *w, const char *text)
{
    struct process p = { 0 };
    if (w->known == w->room || sscanf(text, "%ld %d %63[^\n]", &p.pid, &p.rank, p.place) < 2) return;
    w->process[w->known++] = p;
}

/* mpiexec reports a death between two lines of '='; of it only the process number is of use. */
static void filter_line(struct watch *w, const char *line)
{
    if (strncmp(line, PROCESS_LINE, sizeof PROCESS_LINE - 1) == 0) {
        remember(w, line + sizeof PROCESS_LINE - 1);
        return;
    }
    if (strncmp(line, "=====", 5) == 0) {
        w->in_banner = !w->in_banner;
        return;
    }
    const char *pid = strstr(line, "PID ");
    if (w->in_banner && strstr(line, "BAD TERMINATION")) w->died = true;
    if (w->in_banner && pid) w->dead_pid = atol(pid + 4);
    const bool epilogue = w->died && (strncmp(line, "YOUR APPLICATION TERMINATED", 27) == 0
                                      || strncmp(line, "This typically refers", 21) == 0 || strncmp(line, "Please see the FAQ", 18) == 0
                                      || strcmp(line, "\n") == 0);
    if (!w->in_banner && !epilogue) fputs(line, stderr);
}

static void watch_stderr(struct watch *w, int fd)
{
    FILE *from = fdopen(fd, "r");
    char line[4096];
    if (from == NULL) return;
    while (fgets(line, sizeof line, from)) {
        if (strcmp(line, "\n") == 0 && !w->in_banner) continue;      /* mpiexec's banner starts with an empty line */
        filter_line(w, line);
    }
    fclose(from);
}

static void report_death(const struct watch *w, int code)
{
    const int signal_number = code > 128 ? code - 128 : code;
    for (int i = 0; i < w->known; i++)
        if (w->process[i].pid == w->dead_pid) {
            fprintf(stderr, "orrery: device %d (%s), process %ld, died (%s); the others were stopped\n", w->process[i].rank,
                    w->process[i].place, w->dead_pid, signal_number > 0 && signal_number < 65 ? strsignal(signal_number) : "no reason known");
            return;
        }
    fprintf(stderr, "orrery: process %ld died before it became a device; the others were stopped\n", w->dead_pid);
}

static void run_mpiexec(int devices, int argc, char **argv, int stderr_fd)
{
    char count[16];
    char **words = calloc((size_t)argc + 5, sizeof *words);
    if (words == NULL) _exit(127);
    snprintf(count, sizeof count, "%d", devices);
    words[0] = (char *)ORRERY_MPIEXEC, words[1] = (char *)"-n", words[2] = count;
    for (int i = 0; i < argc; i++) words[3 + i] = argv[i];
    setenv("ORRERY_LAUNCHED", "1", 1);
    setenv("ORRERY_TERMINAL", isatty(STDOUT_FILENO) ? "1" : "0", 1);
    setenv("UCX_HANDLE_ERRORS", "none", 0);             /* MPICH's transport would print a page for each crash */
    setenv("OMP_WAIT_POLICY", "passive", 0);            /* idle threads of eight ranks must not spin on two cores */
    dup2(stderr_fd, STDERR_FILENO);
    execvp(words[0], words);
    _exit(127);
}

enum error_code launch(int devices, int argc, char **argv, int *status, struct error *err)
{
    struct watch w = { .room = devices };
    int ends[2];
    w.process = calloc((size_t)devices, sizeof *w.process);
    if (w.process == NULL || pipe(ends) != 0) {
        free(w.process);
        return fail(err, ERR_COMM, "cannot watch over %s: %s", ORRERY_MPIEXEC, strerror(errno));
    }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        run_mpiexec(devices, argc, argv, ends[1]);
    }
    close(ends[1]);
    int how = 0;
    if (child > 0) {
        watch_stderr(&w, ends[0]);
        while (waitpid(child, &how, 0) < 0 && errno == EINTR) continue;
    } else close(ends[0]);
    *status = child > 0 && WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    if (w.died) {
        report_death(&w, *status);
        *status = 1;
    }
    free(w.process);
    if (child < 0 || *status == 127) return fail(err, ERR_COMM, "cannot start %s -n %d: is MPICH installed?", ORRERY_MPIEXEC, devices);
    return OK;
}
