/* process.c -- the setup of one process: its environment, its streams and signals, its witness.  Files of cli/,
 * launch/ and run/ call these functions.  set_backend alone can fail: ERR_USAGE for an unknown backend. */
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/launch/mpiexec.h"
#include "emulated_devices/device/backend.h"
#include "ref/machine/measure.h"
#include "emulated_devices/comm/comm.h"
#include "ref/io/caller.h"
#include "ref/io/child.h"
#include "ref/io/terminal.h"
#include "ref/machine/system.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A file opened later must not get the number of the standard output. */
static void open_missing_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) return;
}

/* ---- a witness --------------------------------------------------------------------------------------------------- */

/* When a device dies, mpiexec kills the others and reports the first rank, not the first that died.  So every device
 * has a witness: a process that reads from a pipe what ends the device, or sees the pipe close without a message, and
 * reports it with the time.  It has its own process group, because mpiexec kills groups.
 *
 * MPICH aborts a device that reads from a dead one.  A device that aborts therefore lingers: the death that caused it,
 * if there is one, is reported in that time.  Devices that mpiexec kills because of the abort die after it.  The time
 * of an abort is the device's own: on a busy machine its witness may run a second later. */

struct last_word {
    int number;                         /* signal; 0: a normal end */
    double when;                        /* seconds */
    bool orphan;                        /* the proxy was gone by then */
};
static int to_witness = -1;

static void say_to_witness(int signal_number)
{
    const struct last_word word = { signal_number, measure_now(), proxy_is_gone() };
    const int fd = to_witness;
    to_witness = -1;
    if (fd >= 0 && write(fd, &word, sizeof word) == sizeof word) close(fd);
}

static void say_goodbye(void) { say_to_witness(0); }

/* Exit handlers of MPI's transport and of the BLAS are not needed, unless MPI says goodbye in one of them.  Sanitizers
 * check for leaks in theirs. */
int end_process(int status)
{
    fflush(NULL);                                       /* whoever learns the status has all of the output */
    caller_tell(status);
#ifdef NDEBUG
    if (to_witness >= 0 && !comm_ends_at_exit()) {
        fflush(NULL);
        say_goodbye();
        _exit(status);
    }
#endif
    return status;
}

static void say_signal(int number)
{
    say_to_witness(number);
    if (number == SIGABRT) nanosleep(&(struct timespec){ .tv_sec = LINGER }, NULL);
    signal(number, SIG_DFL);
    raise(number);
}

static void witness(int from, long device)
{
    struct last_word word;
    char line[96];
    const bool silent = read(from, &word, sizeof word) != sizeof word;
    /* The signal that cannot be handled. */
    if (silent) word = (struct last_word){ SIGKILL, measure_now(), proxy_is_gone() };
    if (word.number != 0) {
        const int n = snprintf(line, sizeof line, LOST_LINE "%ld %d %.6f %d %d\n", device, word.number, word.when,
                               word.orphan, launcher_rank());
        if (write(STDERR_FILENO, line, (size_t)n) != n) _exit(1);
    }
    _exit(0);
}

static void call_witness(void)
{
    static const int deadly[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM, SIGINT, SIGHUP };
    int ends[2];
    if (pipe(ends) != 0) return;
    const long device = (long)getpid();           /* the child could not ask any more if its parent were dead by then */
    const pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        setpgid(0, 0);
        witness(ends[0], device);
    }
    close(ends[0]);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    to_witness = ends[1];
    atexit(say_goodbye);
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) {
        struct sigaction before;
        sigaction(deadly[i], NULL, &before);
        if (before.sa_handler == SIG_DFL) signal(deadly[i], say_signal);       /* a sanitizer's stays */
    }
}

/* Send errors directly to the waiting launch_devices(): mpiexec would drop output that comes while it ends. */
static void speak_to_launch(void)
{
    const int fd = told_pipe("ORRERY_ERRORS");
    if (fd < 0) return;
    dup2(fd, STDERR_FILENO);
    close(fd);
}

/* Processes of another host may have the same number: their host tells them apart. */
static void announce_host(void)
{
    char name[64] = "";
    if (gethostname(name, sizeof name - 1) == 0 && name[0])
        fprintf(stderr, "%s%d %s\n", HOST_LINE, launcher_rank(), name);
}

/* Set variables that libraries read before main; they take effect only when the program is restarted.
 * @return whether a restart is needed. */
static bool settle_environment(void)
{
    const bool ucx = comm_uses_ucx();
    const char *const usual[][2] = {
        { "OMP_WAIT_POLICY", "passive" },     /* threads that wait by spinning take cores from others, */
        { "OPENBLAS_THREAD_TIMEOUT", "4" },             /* and so do those of the BLAS: for 2^4 cycles, not 2^26 */
        { "UCX_HANDLE_ERRORS", "none" },                /* MPICH's transport would print a page for each crash, */
        { "UCX_LOG_LEVEL", "fatal" },                   /* other messages, */
        { "UCX_WARN_UNUSED_ENV_VARS", "n" },            /* and one about these variables */
        { "UCX_TLS", ucx ? UCX_WITHOUT_FILES : NULL },
        { "MPIR_CVAR_NOLOCAL", ucx ? "1" : NULL },      /* MPICH leaves messages inside the machine to UCX */
        { "HWLOC_COMPONENTS", ucx ? "no_os,stop" : NULL },      /* MPICH asks it for nothing that we need, and each
                                                                 * process would read hundreds of files */
        { "OPENBLAS_CORETYPE", better_kernels() },     /* what it takes for a processor that it does not know is slow */
    };
    bool changed = false;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) {
        if (usual[i][1] == NULL || getenv(usual[i][0]) != NULL) continue;
        changed = setenv(usual[i][0], usual[i][1], 1) == 0 || changed;
    }
    return changed;
}

void prepare_process(char **argv)
{
    system_started_as(argv[0]);
    launcher_forget_others();                           /* before a file gets the number of the launcher's line */
    open_missing_streams();
    signal(SIGXFSZ, SIG_IGN);                       /* a too large file is an error to report, not a death */
    signal(SIGPIPE, SIG_IGN);                       /* a reader such as head may leave: the work and its status stay */
    signal(SIGCHLD, SIG_DFL);                       /* whoever started us may ignore it: nobody could be waited for */
    if (settle_environment()) execvp(argv[0], argv);
    caller_note();
    if (!under_launcher()) {
        child_take_signals(end_by_signal);
        return;
    }
    if (getenv("ORRERY_LAUNCHED") != NULL) {
        speak_to_launch();
        announce_process(launcher_rank(), STARTING);
        announce_host();
        call_witness();
    }
    hold_lifeline();                                    /* after the fork, which would not copy its thread */
}

static double seconds_told(const char *variable, double usual)
{
    const char *told = getenv(variable);
    char *end = NULL;
    const double seconds = told != NULL ? strtod(told, &end) : 0;
    return seconds > 0 && *end == '\0' ? seconds : usual;
}

double wait_limit(double usual) { return seconds_told("ORRERY_WAIT_LIMIT", usual); }
double start_limit(void) { return seconds_told("ORRERY_START_LIMIT", 100); }

void set_wait_limit(double seconds)
{
    char text[32];
    snprintf(text, sizeof text, "%.17g", seconds);
    setenv("ORRERY_WAIT_LIMIT", text, 1);
}

enum error_code set_backend(const char *name, struct error *err)
{
    if (name == NULL) return OK;
    const enum error_code e = backend_check("--backend", name, err);
    if (!e) setenv("ORRERY_BACKEND", name, 1);
    return e;
}

bool on_terminal(void) { return terminal_columns(stdout) > 0; }

void announce_end(int status)
{
    printf("%s%d\n", END_LINE, status);
    fflush(stdout);
}

void announce_stopping(void) { fprintf(stderr, STOPS_LINE "%ld\n", (long)getpid()); }

void announce_process(int rank, const char *place)
{
    if (getenv("ORRERY_LAUNCHED") == NULL) return;
    fprintf(stderr, "%s%ld %d %s\n", PROCESS_LINE, (long)getpid(), rank, place);
}
