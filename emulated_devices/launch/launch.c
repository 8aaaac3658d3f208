/* launch.c -- orrery starts its own ranks: it runs itself under mpiexec and watches it.
 *
 *   orrery --+-- mpiexec -n P orrery ...       its output is passed on, without mpiexec's own messages
 *            +-- guardian                      cleans up if this process dies before its job
 *
 * How devices detect the death of a process above them: lifeline.c.  That no process is left: family.c.  Errors:
 * ERR_COMM if a device died, and the others were stopped; ERR_FILE of the files in a folder; ERR_USAGE, ERR_MEMORY
 * before anything starts.
 */
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/launch/family.h"
#include "emulated_devices/launch/machine.h"
#include "emulated_devices/launch/mpiexec.h"
#include "ref/machine/measure.h"
#include "emulated_devices/launch/watch.h"
#include "ref/io/document.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- temporary files --------------------------------------------------------------------------------------------- */

enum { FILES = 32 };
static char *made[FILES];

static void remove_files(void)
{
    for (int i = 0; i < FILES && made[i]; i++) unlink(made[i]);
}

const char *temporary_file(struct error *err)
{
    int n = 0;
    while (n < FILES && made[n]) n++;
    char *path = n < FILES ? malloc(strlen(temporary_folder()) + sizeof "/orrery-XXXXXX") : NULL;
    if (path == NULL) {
        fail(err, ERR_MEMORY, "no room for one more temporary file");
        return NULL;
    }
    sprintf(path, "%s/orrery-XXXXXX", temporary_folder());
    const int fd = mkstemp(path);
    if (fd < 0) {
        fail(err, ERR_FILE, "a file in %s: cannot be made: %s", printable_path(temporary_folder()).text,
             strerror(errno));
        free(path);
        return NULL;
    }
    close(fd);
    made[n] = path;
    if (n == 0) atexit(remove_files);
    return path;
}

const char *handover_file(struct error *err)
{
    static const char *path;
    if (path == NULL) path = temporary_file(err);
    return path;
}

/* ---- watching ---------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t caught;                    /* the signal that stops us */

static void catch_signal(int number) { caught = number; }

static const int stopping[] = { SIGINT, SIGTERM, SIGHUP };
enum { STOPPING = sizeof stopping / sizeof *stopping };

static void catch_signals(struct sigaction before[STOPPING])
{
    const struct sigaction act = { .sa_handler = catch_signal };
    for (int i = 0; i < STOPPING; i++) {
        sigaction(stopping[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN) sigaction(stopping[i], &act, NULL);        /* keep nohup */
    }
}

enum { PROMPT = 1 };                    /* seconds for a job to end by itself when it must end */

/* Ask the devices to end after their step.  @return whether there is one to ask, on this machine. */
static bool ask_to_stop(const struct watch *watch, const struct family *family)
{
    if (watch->stops == 0 || family->job_ended || caught == SIGHUP || !family_has(watch->stops)) return false;
    return kill((pid_t)watch->stops, caught == SIGINT ? ASKED_BY_INT : ASKED_BY_TERM) == 0;
}

/* A shell or `timeout` may send a signal twice in a moment, to us and to our group: the second is not another wish.
 * @param patient  when the devices were asked; 0: not so far.  @return whether to wait for their end. */
static bool waits_for_step(const struct watch *watch, const struct family *family, double *patient)
{
    if (*patient == 0 && ask_to_stop(watch, family)) *patient = measure_now();
    if (*patient == 0 || measure_now() - *patient > PROMPT) return false;
    caught = 0;
    return true;
}

/* Parts of start_limit(): after the first it is said once that no device has reported.  After the second a launcher has
 * given up that has complained.  Nothing ends by the first: many devices on a slow machine may take longer. */
static const double SILENT_PART = 0.1, COMPLAINED_PART = 0.05;
static const double LOOK_PART = 0.01;   /* between two looks at what a job has computed */

static bool is_patient(double since, double part) { return measure_now() - since <= part * start_limit(); }

/* mpiexec hangs if a signal reaches it while it starts its proxy: it has no limit of its own.  And if it has said that
 * it cannot start a program, or ssh that a host cannot be reached. */
static bool has_stalled(const struct watch *watch)
{
    if (watch_started(watch) == watch->room) return false;
    const double last = watch->complained > watch->heard ? watch->complained : watch->heard;
    return !is_patient(watch->heard, 1) || (watch->complained > 0 && !is_patient(last, COMPLAINED_PART));
}

/* On a busy machine a start may take long: while the job's processes compute, nothing is wrong. */
static void say_silence(struct watch *watch, const struct family *family)
{
    if (watch->silence_said || watch->known > 0 || is_patient(watch->looked, LOOK_PART)) return;
    const double seconds = family_seconds(family);
    watch->looked = measure_now();
    if (seconds > watch->computed) watch->computing = watch->looked;
    watch->computed = seconds;
    if (is_patient(watch->heard, SILENT_PART) || is_patient(watch->computing, SILENT_PART)) return;
    watch->silence_said = true;
    fprintf(stderr, "orrery: no device has reported for %.3g s; %s has said %s%s\n", measure_now() - watch->heard,
            ORRERY_MPIEXEC, watch->noise[0] ? "" : "nothing", watch->noise);
}

/* And if it is never told that a device has ended. */
static bool does_not_end(struct watch *watch)
{
    if (!family_is_gone(watch)) return watch->gone = 0, false;
    if (watch->gone == 0) watch->gone = measure_now();
    return measure_now() - watch->gone > start_limit();
}

/* The first report of a death that is read need not be of the first death. */
static const double NAMING = 0.05;      /* seconds in which witnesses report a death */

static bool has_died(const struct watch *watch) { return watch->lost_pid != 0 || watch->orphaned; }

/* Watch until both streams have ended; or mpiexec has ended and no more output comes; or the job was told to end and
 * did not; or devices do not start, or have ended and mpiexec does not.
 * @param again  the job is to begin anew: then a death ends it at once. */
static void watch_job(struct watch *watch, struct family *family, bool again)
{
    double asked = 0, ended = 0, patient = 0, died = 0;         /* when each was seen; 0: not so far */
    watch->heard = measure_now();
    while (watch->stream[0].from >= 0 || watch->stream[1].from >= 0) {
        struct pollfd p[2] = { { .fd = watch->stream[0].from, .events = POLLIN },
                               { .fd = watch->stream[1].from, .events = POLLIN } };
        const int ready = poll(p, 2, died > 0 ? (int)(1000 * NAMING) : 200);    /* negative numbers are ignored */
        for (int i = 0; i < 2 && ready > 0; i++)
            if (p[i].revents) watch_read(watch, &watch->stream[i]);
        family_reap(family);
        if (family->job_ended && ended == 0) ended = measure_now();
        if (watch->ended == 0) watch->ended = ended;
        if (again && died == 0 && has_died(watch)) died = measure_now();
        if (died > 0 && (ready == 0 || measure_now() - died > NAMING)) return;
        if (family->job_ended && (ready == 0 || measure_now() - ended > PROMPT)) return;
        if (!family->job_ended) say_silence(watch, family);
        if (!family->job_ended && has_stalled(watch)) watch->stalled = true;
        if (!family->job_ended && does_not_end(watch)) watch->lingers = true;
        const bool failed = watch->write_errno || watch->stalled || watch->lingers;
        if (caught && !failed && waits_for_step(watch, family, &patient)) continue;
        if (!caught && !failed) continue;
        if (asked == 0) {
            asked = measure_now();
            if (!family->job_ended) kill(family->job, SIGTERM);
        } else if (measure_now() - asked > PROMPT) return;
    }
}

/* Read the remaining output of processes that have ended. */
static void read_rest(struct watch *watch)
{
    for (int i = 0; i < 2; i++) {
        struct stream *s = &watch->stream[i];
        while (s->from >= 0 && poll(&(struct pollfd){ .fd = s->from, .events = POLLIN }, 1, 0) == 1)
            watch_read(watch, s);
        if (s->from >= 0) close(s->from);
        s->from = -1;
    }
}

/* A process that only waits for our end.  If its pipe closes without a message, we were killed. */
static pid_t start_guardian(pid_t job, const struct watch *watch, int lifeline, int *line)
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
    close(ends[1]), close(lifeline), close(watch->stream[0].from), close(watch->stream[1].from);
    close(STDIN_FILENO), close(STDOUT_FILENO), close(STDERR_FILENO);    /* so that their readers see the end */
    if (read(ends[0], &word, 1) != 1) {
        if (getpgid(job) == job) kill(job, SIGTERM);                    /* on Linux it is already dead */
        remove_files();
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

/* ---- starting ---------------------------------------------------------------------------------------------------- */

/* The files that mpiexec inherits: its output, and the devices' end of the lifeline. */
struct inherited { int out, errors, lifeline; };

static void run_mpiexec(pid_t launcher, int devices, int argc, char **argv, struct inherited from)
{
    char count[16];
    char **words = calloc((size_t)argc + 4, sizeof *words);
    const int nothing = open("/dev/null", O_RDONLY);    /* otherwise mpiexec would read all of our input */
    if (words == NULL || nothing < 0) _exit(127);
    snprintf(count, sizeof count, "%d", devices);
    words[0] = (char *)ORRERY_MPIEXEC, words[1] = (char *)"-n", words[2] = count;
    for (int i = 0; i < argc; i++) words[3 + i] = argv[i];
    mpiexec_prepare();
    family_mark(launcher);
    threads_pass_on();
    char columns[16];
    snprintf(columns, sizeof columns, "%d", terminal_columns(stdout));
    setenv(TERMINAL_VARIABLE, columns, 1);
    tell_pipe("ORRERY_ERRORS", from.errors);
    tell_pipe("ORRERY_LIFELINE", from.lifeline);
    dup2(nothing, STDIN_FILENO), dup2(from.out, STDOUT_FILENO), dup2(from.errors, STDERR_FILENO);
    close(nothing), close(from.out);
    setpgid(0, 0);                                      /* a terminal's Ctrl-C is for the launcher alone */
    die_with_parent();
    if (getppid() != launcher) _exit(127);              /* it has died before prctl */
    execvp(words[0], words);
    _exit(127);
}

/* @param[out] lifeline  our end, which closes when we do. */
static enum error_code open_watch(struct watch *watch, int devices, struct inherited *into, int *lifeline,
                                  struct error *err)
{
    *watch = (struct watch){ .room = devices, .lost_rank = -1,
                         .stream = { { .from = -1, .to = STDOUT_FILENO }, { .from = -1, .to = STDERR_FILENO } } };
    watch->process = calloc((size_t)devices, sizeof *watch->process);
    int ends[3][2], n = 0;
    while (watch->process != NULL && n < 3 && pipe(ends[n]) == 0) n++;
    if (n == 3) {
        *into = (struct inherited){ .out = ends[0][1], .errors = ends[1][1], .lifeline = ends[2][0] };
        watch->stream[0].from = ends[0][0], watch->stream[1].from = ends[1][0], *lifeline = ends[2][1];
        fcntl(ends[0][0], F_SETFD, FD_CLOEXEC), fcntl(ends[1][0], F_SETFD, FD_CLOEXEC),
            fcntl(*lifeline, F_SETFD, FD_CLOEXEC);
        return OK;
    }
    fail(err, ERR_COMM, "cannot watch over %s: %s", ORRERY_MPIEXEC, strerror(errno));
    while (n-- > 0) close(ends[n][0]), close(ends[n][1]);
    free(watch->process);
    return ERR_COMM;
}

/* ---- what is said in the end ------------------------------------------------------------------------------------- */

static const struct process *device_of_rank(const struct watch *watch, int rank)
{
    for (int i = 0; i < watch->known; i++)
        if (watch->process[i].rank == rank) return &watch->process[i];
    return NULL;
}

/* A device that died before it announced its rank: only the set of ranks that have not been announced is known, and the
 * one whose end was noticed. */
static enum error_code report_unknown_death(const struct watch *watch, int devices, struct error *err)
{
    char who[128] = "";
    int missing = 0, used = 0;
    for (int rank = 0; rank < devices; rank++) {
        const struct process *p = device_of_rank(watch, rank);
        if ((p != NULL && p->pid != watch->lost_pid) || ++missing > 8) continue;
        used += snprintf(who + used, sizeof who - (size_t)used, "%s%d", missing > 1 ? ", " : "", rank);
    }
    if (missing == 0) return fail(err, ERR_COMM, "a device died: %s; the others were stopped", watch->how);
    if (missing == 1)
        return fail(err, ERR_COMM, "device %s died during start-up: %s; the others were stopped", who, watch->how);
    return fail(err, ERR_COMM, "a device died during start-up: %s; it is one of %s%s; the others were stopped",
                watch->how, who, missing > 8 ? ", ..." : "");
}

/* mpiexec kills the others when a device dies.  So one that was killed while others had not yet announced themselves
 * need not be the first. */
static bool may_be_another(const struct watch *watch, int devices)
{
    return watch->lost_signal == SIGKILL && watch->died && watch->known < devices;
}

static enum error_code report_death(const struct watch *watch, int devices, struct error *err)
{
    if (watch->lost_pid == 0 || may_be_another(watch, devices)) return report_unknown_death(watch, devices, err);
    for (int i = 0; i < watch->known; i++)
        if (watch->process[i].pid == watch->lost_pid
            && (watch->lost_rank < 0 || watch->process[i].rank == watch->lost_rank))
            return fail(err, ERR_COMM, "device %d (%s), process %ld, died: %s; the others were stopped",
                        watch->process[i].rank, watch->process[i].place, watch->lost_pid,
                        strsignal(watch->lost_signal));
    return fail(err, ERR_COMM, "process %ld died before it became a device: %s; the others were stopped",
                watch->lost_pid, strsignal(watch->lost_signal));
}

/* mpiexec, or its proxy between it and the devices. */
static enum error_code report_death_of_manager(const struct watch *watch, int how, struct error *err)
{
    char hosts[200];
    if (watch_lost_hosts(watch, hosts, sizeof hosts)[0])
        return fail(err, ERR_COMM, "nothing is heard any more of host %s; all devices were stopped", hosts);
    if (WIFSIGNALED(how))
        return fail(err, ERR_COMM, "%s died: %s; all devices were stopped", ORRERY_MPIEXEC, strsignal(WTERMSIG(how)));
    return fail(err, ERR_COMM,
                "the parent process of the devices, hydra_pmi_proxy of %s, died; all devices were stopped",
                ORRERY_MPIEXEC);
}

/* Advice for a job whose hosts mpiexec cannot reach. */
static const char *stall_advice(char *text, size_t size)
{
    text[0] = '\0';
    if (mpiexec_manager() != NULL)
        snprintf(text, size, "; it took the hosts from %s: HYDRA_RMK=user HYDRA_LAUNCHER=fork starts all devices on "
                 "this machine", mpiexec_manager());
    return text;
}

static enum error_code report_stall(const struct watch *watch, int devices, struct error *err)
{
    const double waited = watch->complained > 0 ? COMPLAINED_PART * start_limit() : start_limit();
    char advice[200];
    return fail(err, ERR_COMM, "%s hangs: %d of %d devices have started, and none got further for %g s "
                "(ORRERY_START_LIMIT); all were stopped%s%s%s", ORRERY_MPIEXEC, watch_started(watch), devices, waited,
                watch->noise[0] ? "; it has said: " : "", watch->noise, stall_advice(advice, sizeof advice));
}

static enum error_code report_no_end(int devices, struct error *err)
{
    return fail(err, ERR_COMM, "%s hangs: it had not ended %g s after all %d devices (ORRERY_START_LIMIT), and was "
                "stopped", ORRERY_MPIEXEC, start_limit(), devices);
}

/* A killed device prints nothing; messages of other devices are then consequences. */
static enum error_code report_end_of_job(const struct watch *watch, int how, int devices, int *status, double *died,
                                         struct error *err)
{
    *status = WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    if (watch->write_errno)
        return fail(err, ERR_FILE, "standard output: cannot be written: %s", strerror(watch->write_errno));
    if (watch->stalled) return report_stall(watch, devices, err);
    if (watch->lingers && !watch->said[0]) return report_no_end(devices, err);
    /* MPI may also have detected it */
    const bool orphaned = watch->lost_pid == 0 && !watch->said[0] && (WIFSIGNALED(how) || watch->orphaned);
    if (orphaned || watch_lost_proxy(watch)) {
        *died = watch->ended;
        return report_death_of_manager(watch, how, err);
    }
    if (watch->lost_pid || (watch->died && !watch->said[0] && !watch->mpi_failed[0])) {
        *died = watch->lost_pid ? watch->lost_when : measure_now();
        return report_death(watch, devices, err);
    }
    if (watch->mpi_failed[0] && !watch->said[0])
        return fail(err, ERR_COMM, "MPI could not be started: %s; `orrery doctor` looks at this machine",
                    watch->mpi_failed);
    fputs(watch->said, stderr);
    if (watch->died && *status == 0) *status = 1;
    if (*status == 0 || watch->said[0]) return OK;
    if (*status == 127)
        return fail(err, ERR_COMM, "cannot start %s -n %d: is MPICH installed, and in PATH?  `orrery doctor` looks at "
                    "this machine", ORRERY_MPIEXEC, devices);
    return fail(err, ERR_COMM, "%s -n %d failed with status %d%s%s", ORRERY_MPIEXEC, devices, *status,
                watch->noise[0] ? ": " : "", watch->noise);
}

/* If no device has begun, the launcher's words are all that is known. */
static void add_noise(const struct watch *watch, struct error *err)
{
    const size_t used = strlen(err->text);
    if (watch->noise[0] == '\0' || strstr(err->text, watch->noise) != NULL) return;
    snprintf(err->text + used, sizeof err->text - used, "; it has said: %s", watch->noise);
}

/* End by the signal as if it had not been caught, so that a shell sees that we were stopped. */
static void die_of(int number)
{
    remove_files();
    signal(number, SIG_DFL);
    raise(number);
}

void end_by_signal(int number)
{
    fprintf(stderr, "orrery: stopped: %s; what it had started has ended\n", strsignal(number));
    die_of(number);
}

static void say_stopped(int left, int devices)
{
    fprintf(stderr, "orrery: stopped: %s; ", strsignal(caught));
    if (left == 0) fprintf(stderr, "all %d devices have ended\n", devices);
    else fprintf(stderr, "%d process%s of %d devices could not be ended\n", left, left == 1 ? "" : "es", devices);
}

/* Each of srun's tasks would start a job of its own. */
enum error_code launch_check(struct error *err)
{
    const char *const tasks = getenv("SLURM_STEP_NUM_TASKS");
    if (getenv("ORRERY_LAUNCHED") != NULL)
        return fail(err, ERR_COMM, "%s started this process without telling its rank; it must be MPICH's",
                    ORRERY_MPIEXEC);
    if (tasks == NULL || strcmp(tasks, "1") == 0) return OK;
    return fail(err, ERR_COMM, "srun started %s processes that do not know of each other: srun --mpi=pmi2, or no srun",
                printable(tasks).text);
}

/* @param again  the job is to begin anew after a death.  @param[out] death  when that was; 0: none has ended it. */
static enum error_code launch_once(int devices, int argc, char **argv, bool again, int *status, struct job_death *death,
                                   struct error *err)
{
    struct watch w;
    struct family f = { .job = -1 };
    struct sigaction before[STOPPING];
    struct inherited into;
    int line = -1, lifeline, left = 0;
    const pid_t self = getpid();
    char pipe[200];
    if (launch_check(err)) return err->code;
    if (file_pipe_taken(pipe, sizeof pipe))
        return fail(err, ERR_USAGE, "%s: is a pipe, which %d devices cannot read as well; give a file", pipe, devices);
    if (argc > 1) document_leave_to(argv[1]);           /* one of the devices writes it */
    enum error_code e = machine_check(devices, err);
    if (!e) e = open_watch(&w, devices, &into, &lifeline, err);
    if (e) return e;
    fflush(stdout);
    catch_signals(before);
    family_adopt();
    f.job = fork();
    if (f.job == 0) {
        signal(SIGPIPE, SIG_DFL);
        run_mpiexec(self, devices, argc, argv, into);
    }
    close(into.out), close(into.errors), close(into.lifeline);
    if (f.job > 0) {
        const pid_t guardian = start_guardian(f.job, &w, lifeline, &line);
        watch_job(&w, &f, again);
        const bool ends = caught || w.write_errno || w.stalled || w.lingers || (again && has_died(&w));
        left = family_end(&f, &w, ends ? 0 : PROMPT);
        dismiss_guardian(guardian, line);
    }
    close(lifeline);
    read_rest(&w);                                      /* also announces their ranks */
    family_sweep(&w);
    for (int i = 0; i < STOPPING; i++) sigaction(stopping[i], &before[i], NULL);
    if (caught) {
        say_stopped(left, devices);
        die_of(caught);
    }
    e = f.job < 0 ? fail(err, ERR_COMM, "cannot start %s: there is no room for another process", ORRERY_MPIEXEC)
                  : report_end_of_job(&w, f.how, devices, status, &death->when, err);
    death->ended = w.ended_well, death->status = w.status;
    if (e && w.known == 0) add_noise(&w, err);
    free(w.process);
    return e;
}

enum error_code launch_devices_again(int devices, int argc, char **argv, launch_again_fn *again, void *context,
                                     int *status, struct error *err)
{
    enum error_code e;
    struct job_death death = { .what = err->text };
    do {
        death.when = 0;
        e = launch_once(devices, argc, argv, again != NULL, status, &death, err);
    } while (e && death.when > 0 && again && again(context, &death));
    return e;
}

enum error_code launch_devices(int devices, int argc, char **argv, int *status, struct error *err)
{
    return launch_devices_again(devices, argc, argv, NULL, NULL, status, err);
}
