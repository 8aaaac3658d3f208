/* launch.c -- orrery starts its own ranks: it runs itself under mpiexec and keeps an eye on it.
 *
 *   orrery --+-- mpiexec -n P orrery ...       its output comes through here, without what mpiexec itself has to say
 *            +-- guardian                      ends mpiexec if this process dies before it
 */
#include "emulated_devices/cli/cli.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct process { long pid; int rank; char place[64]; };

enum { LINE = 4096 };

/* The standard output or error of all ranks, on its way to ours. */
struct stream {
    int from, to;                       /* from: -1 after its end */
    char line[LINE];
    size_t used;
    bool frame;                         /* between the two lines of '=' of mpiexec's report of a death */
    bool blank;                         /* an empty line is held back: such a report begins with one */
    bool middle;                        /* the line's beginning has been passed on */
};

struct watch {
    struct stream stream[2];
    struct process *process;
    int known, room;
    bool died;                          /* mpiexec has reported a death */
    long dead_pid;
    char how[64];                       /* it died */
    char said[LINE];                    /* the first line in which a device says what went wrong; shown at the end */
    int write_errno;                    /* our own output cannot be written */
    char noise[200];                    /* the first remark of mpiexec's own */
};

/* ---- what comes from the ranks and from mpiexec --------------------------------------------------------------------- */

static bool starts_with(const char *line, const char *start) { return strncmp(line, start, strlen(start)) == 0; }

static void write_all(struct watch *w, int to, const char *data, size_t bytes)
{
    while (bytes > 0 && !w->write_errno) {
        const ssize_t n = write(to, data, bytes);
        if (n < 0 && errno == EAGAIN) poll(&(struct pollfd){ .fd = to, .events = POLLOUT }, 1, -1);
        else if (n < 0 && errno != EINTR) {
            if (to == STDERR_FILENO) return;            /* nowhere left to complain */
            w->write_errno = errno;
        }
        if (n > 0) data += n, bytes -= (size_t)n;
    }
}

static void remember_process(struct watch *w, const char *text)
{
    struct process p = { 0 };
    if (w->known == w->room || sscanf(text, "%ld %d %63[^\n]", &p.pid, &p.rank, p.place) < 2) return;
    w->process[w->known++] = p;
}

/* A death is reported in a frame of '=', with three lines below.  Of it only who and how is of use. */
static bool is_report(struct watch *w, struct stream *s, const char *line)
{
    const char *pid = strstr(line, "PID "), *code = strstr(line, "EXIT CODE: "), *text = strstr(line, "EXIT STRING: ");
    if (starts_with(line, "==========")) s->frame = !s->frame;
    else if (s->frame) {
        if (strstr(line, "BAD TERMINATION")) w->died = true;
        if (pid) w->dead_pid = atol(pid + 4);
        if (code) snprintf(w->how, sizeof w->how, "exit status %d", atoi(code + 11));
    } else if (w->died && starts_with(line, "YOUR APPLICATION TERMINATED") && text) {
        snprintf(w->how, sizeof w->how, "%.*s", (int)strcspn(text + 13, "\n"), text + 13);
    } else return w->died && (starts_with(line, "This typically refers") || starts_with(line, "Please see the FAQ"));
    return true;
}

/* Whether a line is for us and not for the user. */
static bool is_private(struct watch *w, struct stream *s, const char *line)
{
    if (starts_with(line, PROCESS_LINE)) {
        remember_process(w, line + strlen(PROCESS_LINE));
        return true;
    }
    if (starts_with(line, "[mpiexec@") || starts_with(line, "[proxy:") || starts_with(line, "Abort(")) {
        if (!w->noise[0]) snprintf(w->noise, sizeof w->noise, "%.*s", (int)strcspn(line, "\n"), line);
        return true;
    }
    if (s->to == STDERR_FILENO && starts_with(line, "orrery: ")) {      /* of devices that fail together, one speaks */
        if (!w->said[0]) strcpy(w->said, line);
        return true;
    }
    return is_report(w, s, line);
}

static void pass_line(struct watch *w, struct stream *s)
{
    const bool blank = !s->middle && strcmp(s->line, "\n") == 0;
    if (blank && !s->blank) s->blank = true;
    else if (s->middle || !is_private(w, s, s->line)) {
        if (s->blank) write_all(w, s->to, "\n", 1);
        s->blank = blank;
        if (!blank) write_all(w, s->to, s->line, s->used);
    } else s->blank = false;
    s->middle = s->line[s->used - 1] != '\n';
    s->used = 0;
}

/* Whole lines; also the beginning of one that cannot be mpiexec's: a line that is written anew shows progress. */
static void pass_on(struct watch *w, struct stream *s, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        s->line[s->used++] = data[i];
        s->line[s->used] = '\0';
        if (data[i] == '\n' || s->used == LINE - 1) pass_line(w, s);
    }
    if (s->used > 0 && (s->middle || s->line[0] == '\r')) pass_line(w, s);
}

static void read_stream(struct watch *w, struct stream *s)
{
    char data[LINE];
    const ssize_t n = read(s->from, data, sizeof data);
    if (n < 0 && errno == EINTR) return;
    if (n > 0) {
        pass_on(w, s, data, (size_t)n);
        return;
    }
    if (s->used > 0) pass_line(w, s);
    if (s->blank && !w->died) write_all(w, s->to, "\n", 1);
    close(s->from);
    s->from = -1;
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

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until both streams have ended.  A job that is to stop has three seconds before it is killed, and two after. */
static void watch_job(struct watch *w, pid_t job)
{
    double asked = 0;
    bool killed = false;
    while (w->stream[0].from >= 0 || w->stream[1].from >= 0) {
        struct pollfd p[2] = { { .fd = w->stream[0].from, .events = POLLIN }, { .fd = w->stream[1].from, .events = POLLIN } };
        const int ready = poll(p, 2, 200);              /* negative numbers are passed over */
        for (int i = 0; i < 2 && ready > 0; i++)
            if (p[i].revents) read_stream(w, &w->stream[i]);
        if (!caught && !w->write_errno) continue;
        if (!asked) {
            asked = seconds_now();
            kill(job, SIGTERM);
        } else if (!killed && seconds_now() - asked > 3) {
            kill(job, SIGKILL);
            killed = true;
        } else if (seconds_now() - asked > 5) break;
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
    if (read(ends[0], &word, 1) != 1) kill(job, SIGTERM);
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

static void run_mpiexec(int devices, int argc, char **argv, int out, int errors)
{
    char count[16];
    char **words = calloc((size_t)argc + 4, sizeof *words);
    const int nothing = open("/dev/null", O_RDONLY);    /* mpiexec would read our input to its end */
    if (words == NULL || nothing < 0) _exit(127);
    snprintf(count, sizeof count, "%d", devices);
    words[0] = (char *)ORRERY_MPIEXEC, words[1] = (char *)"-n", words[2] = count;
    for (int i = 0; i < argc; i++) words[3 + i] = argv[i];
    setenv("ORRERY_LAUNCHED", "1", 1);
    setenv("ORRERY_TERMINAL", isatty(STDOUT_FILENO) ? "1" : "0", 1);
    dup2(nothing, STDIN_FILENO), dup2(out, STDOUT_FILENO), dup2(errors, STDERR_FILENO);
    close(nothing), close(out), close(errors);
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
    for (int i = 0; i < w->known; i++)
        if (w->process[i].pid == w->dead_pid)
            return fail(err, ERR_COMM, "device %d (%s), process %ld, died: %s; the others were stopped", w->process[i].rank,
                        w->process[i].place, w->dead_pid, w->how);
    return fail(err, ERR_COMM, "process %ld died before it became a device: %s; the others were stopped", w->dead_pid, w->how);
}

/* Who was killed could say nothing; then what the others say is a consequence. */
static enum error_code report_end_of_job(const struct watch *w, int how, int devices, int *status, struct error *err)
{
    *status = WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    if (w->write_errno) return fail(err, ERR_FILE, "standard output: cannot be written: %s", strerror(w->write_errno));
    if (w->died && (!w->said[0] || strstr(w->how, "signal"))) return report_death(w, err);
    fputs(w->said, stderr);
    if (w->died) *status = 1;
    if (*status == 0 || w->said[0]) return OK;
    if (*status == 127) return fail(err, ERR_COMM, "cannot start %s -n %d: is MPICH installed, and in PATH?", ORRERY_MPIEXEC, devices);
    return fail(err, ERR_COMM, "%s -n %d failed with status %d%s%s", ORRERY_MPIEXEC, devices, *status, w->noise[0] ? ": " : "", w->noise);
}

/* As if it had never been caught: a shell must see that we were stopped. */
static void die_of(int number)
{
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
