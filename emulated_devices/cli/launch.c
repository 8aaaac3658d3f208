/* launch.c -- orrery starts its own ranks: it runs itself under mpiexec and keeps an eye on it.
 *
 *   orrery --+-- mpiexec -n P orrery ...       its output comes through here, without what mpiexec itself has to say
 *            +-- guardian                      ends mpiexec if this process dies before it
 */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/measure.h"
#include "emulated_devices/cli/watch.h"
#include "ref/io/output.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what jobs hand over ------------------------------------------------------------------------------------------------- */

static char handover[4096];
static bool handover_made;

static void remove_handover(void)
{
    if (handover_made) unlink(handover);
}

const char *handover_file(struct error *err)
{
    if (handover_made) return handover;
    const int n = snprintf(handover, sizeof handover, "%s/orrery-XXXXXX", temporary_folder());
    errno = ENAMETOOLONG;
    const int fd = n < (int)sizeof handover ? mkstemp(handover) : -1;
    if (fd < 0) {
        fail(err, ERR_FILE, "a file in %s: cannot be made: %s", shown_path(temporary_folder()).text, strerror(errno));
        return NULL;
    }
    close(fd);
    handover_made = true;
    atexit(remove_handover);
    return handover;
}

/* ---- errors, past mpiexec --------------------------------------------------------------------------------------------------
 *
 * Devices inherit the pipe's end.  They know it by its number, and that it is the right one by its inode, since a device on
 * another machine has something else under that number. */

static void tell_where_errors_go(int fd)
{
    struct stat st;
    char text[64];
    if (fstat(fd, &st) != 0) return;
    snprintf(text, sizeof text, "%d %llu", fd, (unsigned long long)st.st_ino);
    setenv("ORRERY_ERRORS", text, 1);
}

void speak_to_launch(void)
{
    const char *told = getenv("ORRERY_ERRORS");
    struct stat st;
    unsigned long long inode;
    int fd;
    if (told == NULL || sscanf(told, "%d %llu", &fd, &inode) != 2 || fstat(fd, &st) != 0) return;
    if (!S_ISFIFO(st.st_mode) || (unsigned long long)st.st_ino != inode) return;
    dup2(fd, STDERR_FILENO);
    close(fd);
}

/* ---- watching ---------------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught;                    /* the signal that asked us to stop */

static void catch_signal(int number) { caught = number; }

static const int stopping[] = { SIGINT, SIGTERM, SIGHUP };
enum { STOPPING = sizeof stopping / sizeof *stopping };

static void catch_signals(struct sigaction before[STOPPING])
{
    const struct sigaction act = { .sa_handler = catch_signal };
    for (int i = 0; i < STOPPING; i++) {
        sigaction(stopping[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(stopping[i], &act, NULL);        /* nohup stays */
    }
}

/* Until both streams have ended; or mpiexec has, and nothing comes any more from a device that it could not end.  A job that is
 * to stop has three seconds before it is killed, and two after. */
static void watch_job(struct watch *w, pid_t job)
{
    double asked = 0;
    bool killed = false;
    while (w->stream[0].from >= 0 || w->stream[1].from >= 0) {
        siginfo_t gone = { .si_pid = 0 };
        struct pollfd p[2] = { { .fd = w->stream[0].from, .events = POLLIN }, { .fd = w->stream[1].from, .events = POLLIN } };
        const int ready = poll(p, 2, 200);              /* negative numbers are passed over */
        for (int i = 0; i < 2 && ready > 0; i++)
            if (p[i].revents) watch_read(w, &w->stream[i]);
        if (ready == 0 && waitid(P_PID, (id_t)job, &gone, WEXITED | WNOHANG | WNOWAIT) == 0 && gone.si_pid == job) break;
        if (!caught && !w->write_errno) continue;
        if (!asked) {
            asked = now();
            kill(job, SIGTERM);
        } else if (!killed && now() - asked > 3) {
            kill(job, SIGKILL);
            killed = true;
        } else if (now() - asked > 5) break;
    }
}

/* A process that does nothing but wait for our end; ours without a word means that we were killed. */
static pid_t start_guardian(pid_t job, const struct watch *w, int *line)
{
    int ends[2];
    char word;
    if (pipe(ends) != 0) return -1;
    const pid_t guardian = fork();
    if (guardian != 0) {
        close(ends[0]);
        *line = ends[1];
        return guardian;
    }
    for (int i = 0; i < STOPPING; i++) signal(stopping[i], SIG_IGN);
    close(ends[1]), close(w->stream[0].from), close(w->stream[1].from);
    close(STDIN_FILENO), close(STDOUT_FILENO), close(STDERR_FILENO);    /* whoever reads them must see their end */
    if (read(ends[0], &word, 1) != 1) {
        kill(job, SIGTERM);
        for (int i = 0; i < 50 && kill(job, 0) == 0; i++) poll(NULL, 0, 100);
        remove_handover();
    }
    _exit(0);
}

static void dismiss_guardian(pid_t guardian, int line)
{
    if (guardian < 0) return;
    if (write(line, "", 1) != 1) kill(guardian, SIGKILL);
    close(line);
    while (waitpid(guardian, NULL, 0) < 0 && errno == EINTR) continue;
}

/* ---- starting ------------------------------------------------------------------------------------------------------------ */

/* Open MPI's mpiexec refuses to start more devices than there are cores, and to be run by root, as in a container; and it would tie
 * each device to a core.  Version 4 reads the first of these, version 5 those of PRTE; MPICH reads none.  Who has set one is obeyed. */
static void permit_open_mpi(void)
{
    static const char *const usual[][2] = {
        { "OMPI_ALLOW_RUN_AS_ROOT", "1" }, { "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1" },
        { "OMPI_MCA_rmaps_base_oversubscribe", "1" }, { "OMPI_MCA_hwloc_base_binding_policy", "none" },
        { "PRTE_ALLOW_RUN_AS_ROOT", "1" }, { "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "1" },
        { "PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe" }, { "PRTE_MCA_hwloc_default_binding_policy", "none" },
    };
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++) setenv(usual[i][0], usual[i][1], 0);
}

static void run_mpiexec(int devices, int argc, char **argv, int out, int errors)
{
    char count[16];
    char **words = calloc((size_t)argc + 4, sizeof *words);
    const int nothing = open("/dev/null", O_RDONLY);    /* mpiexec would read our input to its end */
    if (words == NULL || nothing < 0) _exit(127);
    snprintf(count, sizeof count, "%d", devices);
    words[0] = (char *)ORRERY_MPIEXEC, words[1] = (char *)"-n", words[2] = count;
    for (int i = 0; i < argc; i++) words[3 + i] = argv[i];
    permit_open_mpi();
    setenv("ORRERY_LAUNCHED", "1", 1);
    setenv("ORRERY_TERMINAL", isatty(STDOUT_FILENO) ? "1" : "0", 1);
    tell_where_errors_go(errors);
    dup2(nothing, STDIN_FILENO), dup2(out, STDOUT_FILENO), dup2(errors, STDERR_FILENO);
    close(nothing), close(out);
    execvp(words[0], words);
    _exit(127);
}

static enum error_code open_watch(struct watch *w, int devices, int into[2], struct error *err)
{
    *w = (struct watch){ .room = devices, .stream = { { .from = -1, .to = STDOUT_FILENO }, { .from = -1, .to = STDERR_FILENO } } };
    w->process = calloc((size_t)devices, sizeof *w->process);
    int ends[2];
    for (int i = 0; w->process != NULL && i < 2; i++) {
        if (pipe(ends) != 0) break;
        fcntl(ends[0], F_SETFD, FD_CLOEXEC);
        w->stream[i].from = ends[0], into[i] = ends[1];
        if (i == 1) return OK;
    }
    free(w->process);
    return fail(err, ERR_COMM, "cannot watch over %s: %s", ORRERY_MPIEXEC, strerror(errno));
}

static enum error_code report_death(const struct watch *w, struct error *err)
{
    if (w->lost_pid == 0) return fail(err, ERR_COMM, "a device died: %s; the others were stopped", w->how);
    for (int i = 0; i < w->known; i++)
        if (w->process[i].pid == w->lost_pid)
            return fail(err, ERR_COMM, "device %d (%s), process %ld, died: %s; the others were stopped", w->process[i].rank,
                        w->process[i].place, w->lost_pid, strsignal(w->lost_signal));
    return fail(err, ERR_COMM, "process %ld died before it became a device: %s; the others were stopped", w->lost_pid, strsignal(w->lost_signal));
}

/* Who was killed could say nothing; then what the others say is a consequence. */
static enum error_code report_end_of_job(const struct watch *w, int how, int devices, int *status, struct error *err)
{
    *status = WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    if (w->write_errno) return fail(err, ERR_FILE, "standard output: cannot be written: %s", strerror(w->write_errno));
    if (w->lost_pid || (w->died && !w->said[0])) return report_death(w, err);
    fputs(w->said, stderr);
    if (w->died) *status = 1;
    if (*status == 0 || w->said[0]) return OK;
    if (*status == 127) return fail(err, ERR_COMM, "cannot start %s -n %d: is MPICH installed, and in PATH?", ORRERY_MPIEXEC, devices);
    return fail(err, ERR_COMM, "%s -n %d failed with status %d%s%s", ORRERY_MPIEXEC, devices, *status, w->noise[0] ? ": " : "", w->noise);
}

/* As if it had never been caught: a shell must see that we were stopped. */
static void die_of(int number)
{
    remove_handover();
    signal(number, SIG_DFL);
    raise(number);
}

enum error_code launch(int devices, int argc, char **argv, int *status, struct error *err)
{
    struct watch w;
    struct sigaction before[STOPPING];
    int into[2], line = -1, how = 0;
    if (getenv("ORRERY_LAUNCHED") != NULL)
        return fail(err, ERR_COMM, "%s started this process without telling its rank; it must be MPICH's", ORRERY_MPIEXEC);
    enum error_code e = open_watch(&w, devices, into, err);
    if (e) return e;
    fflush(stdout);
    signal(SIGPIPE, SIG_IGN);
    catch_signals(before);
    const pid_t job = fork();
    if (job == 0) {
        signal(SIGPIPE, SIG_DFL);
        run_mpiexec(devices, argc, argv, into[0], into[1]);
    }
    close(into[0]), close(into[1]);
    if (job > 0) {
        const pid_t guardian = start_guardian(job, &w, &line);
        watch_job(&w, job);
        while (waitpid(job, &how, 0) < 0 && errno == EINTR) continue;
        dismiss_guardian(guardian, line);
    }
    for (int i = 0; i < 2; i++)
        if (w.stream[i].from >= 0) close(w.stream[i].from);
    signal(SIGPIPE, SIG_DFL);
    for (int i = 0; i < STOPPING; i++) sigaction(stopping[i], &before[i], NULL);
    if (caught) {
        fprintf(stderr, "orrery: stopped: %s; all %d devices have ended\n", strsignal(caught), devices);
        die_of(caught);
    }
    if (w.write_errno == EPIPE) die_of(SIGPIPE);        /* the reader has seen enough */
    e = job < 0 ? fail(err, ERR_COMM, "cannot start %s: there is no room for another process", ORRERY_MPIEXEC)
                : report_end_of_job(&w, how, devices, status, err);
    free(w.process);
    return e;
}
