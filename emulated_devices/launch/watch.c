/* watch.c -- passes on the output of ranks, and takes their messages to the launcher out of it.  launch/launch.c
 * calls whenever a stream has something to read.  Results are the fields of struct watch: announced processes,
 * deaths, errors.  No function returns an error code. */
#include "emulated_devices/launch/watch.h"
#include "emulated_devices/launch/launch.h"
#include "ref/machine/measure.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool starts_with(const char *line, const char *start) { return strncmp(line, start, strlen(start)) == 0; }

static void watch_write_all(struct watch *watch, int to, const char *data, size_t bytes)
{
    while (bytes > 0 && !watch->write_errno) {
        const ssize_t n = write(to, data, bytes);
        if (n < 0 && errno == EAGAIN) poll(&(struct pollfd){ .fd = to, .events = POLLOUT }, 1, -1);
        else if (n < 0 && errno != EINTR) {
            if (to == STDERR_FILENO) return;            /* nowhere left to complain */
            if (errno == EPIPE) return;                 /* the reader has seen enough, as head: the work goes on */
            watch->write_errno = errno;
        }
        if (n > 0) data += n, bytes -= (size_t)n;
    }
}

static void remember_process(struct watch *watch, const char *text)
{
    struct process p = { 0 };
    if (sscanf(text, "%ld %d %63[^\n]", &p.pid, &p.rank, p.place) < 2) return;
    int i = 0;
    while (i < watch->known && watch->process[i].rank != p.rank) i++;
    if (i == watch->room) return;
    if (i < watch->known) strcpy(p.host, watch->process[i].host);
    watch->process[i] = p;                                  /* it knows its place better now */
    watch->heard = measure_now();
    if (i == watch->known) watch->known++;
}

static struct process *process_of(const struct watch *watch, int rank)
{
    for (int i = 0; i < watch->known; i++)
        if (watch->process[i].rank == rank) return &watch->process[i];
    return NULL;
}

static void remember_host(struct watch *watch, const char *text)
{
    int rank;
    char host[64];
    if (sscanf(text, "%d %63s", &rank, host) != 2 || process_of(watch, rank) == NULL) return;
    strcpy(process_of(watch, rank)->host, host);
}

static bool has_spoken(const struct watch *watch, const char *host)
{
    for (int i = 0; i < watch->known; i++)
        if (watch->process[i].reported && strcmp(watch->process[i].host, host) == 0) return true;
    return false;
}

const char *watch_lost_hosts(const struct watch *watch, char *text, size_t size)
{
    size_t used = 0;
    bool anybody = false;
    text[0] = '\0';
    for (int i = 0; i < watch->known; i++) anybody = anybody || watch->process[i].reported;
    for (int i = 0; i < watch->known && anybody; i++) {
        const char *host = watch->process[i].host;
        bool first = host[0] != '\0' && !has_spoken(watch, host);
        for (int k = 0; k < i; k++) first = first && strcmp(watch->process[k].host, host) != 0;
        if (!first || used >= size) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s, with its devices", used ? "; " : "", host);
        int listed = 0;
        for (int rank = 0; rank < watch->room && used < size; rank++) {     /* they announce themselves in any order */
            const struct process *p = process_of(watch, rank);
            if (p && strcmp(p->host, host) == 0)
                used += (size_t)snprintf(text + used, size - used, "%s %d", listed++ > 0 ? "," : "", rank);
        }
    }
    return text;
}

/* A device says so whose message breaks off: its peer, or the link to it, is gone. */
static bool is_of_message(const char *said)
{
    return strstr(said, "could not send to device") != NULL || strstr(said, "could not receive from device") != NULL;
}

/* Had a device died first, mpiexec would have reported that, and no error of its own. */
bool watch_lost_proxy(const struct watch *watch)
{
    char hosts[16];
    const bool killed = watch->lost_pid == 0 || watch->lost_signal == SIGKILL;
    if (watch->died || !killed) return false;
    if (watch->said[0] == '\0') return watch->manager_failed;
    return is_of_message(watch->said) && (watch->manager_failed || watch_lost_hosts(watch, hosts, sizeof hosts)[0]);
}

int watch_started(const struct watch *watch)
{
    int started = 0;
    for (int i = 0; i < watch->known; i++) started += strcmp(watch->process[i].place, STARTING) != 0;
    return started;
}

/* Remember the earliest death.  Reports may come late and in any order, so their times decide.  An abort counts from
 * the end of the time that its device lingers: a death before that has caused it. */
static void remember_loss(struct watch *watch, const char *text)
{
    long pid;
    int number, orphan, rank = -1;
    double when;
    if (sscanf(text, "%ld %d %lf %d %d", &pid, &number, &when, &orphan, &rank) < 4) return;
    if (process_of(watch, rank)) process_of(watch, rank)->reported = true;
    if (watch->said[0]) return;
    if (orphan) {
        watch->orphaned = true;
        if (watch->ended == 0 || when < watch->ended) watch->ended = when;
        return;
    }
    if (number == SIGABRT) when += LINGER;
    if (watch->lost_pid == 0 || when < watch->lost_when)
        watch->lost_pid = pid, watch->lost_signal = number, watch->lost_when = when, watch->lost_rank = rank;
}

/* mpiexec reports a death in a frame of '=', with three lines below.  It need not name the first device that died. */
static bool is_report(struct watch *watch, struct stream *stream, const char *line)
{
    const char *code = strstr(line, "EXIT CODE: "), *text = strstr(line, "EXIT STRING: ");
    if (starts_with(line, "==========")) stream->frame = !stream->frame;
    else if (stream->frame) {
        if (strstr(line, "BAD TERMINATION")) watch->died = true;
        if (code) snprintf(watch->how, sizeof watch->how, "exit status %d", atoi(code + 11));
    } else if (watch->died && starts_with(line, "YOUR APPLICATION TERMINATED") && text) {
        snprintf(watch->how, sizeof watch->how, "%.*s", (int)strcspn(text + 13, "\n"), text + 13);
    } else return watch->died
        && (starts_with(line, "This typically refers") || starts_with(line, "Please see the FAQ"));
    return true;
}

static void keep_noise(struct watch *watch, const char *line)
{
    if (!watch->noise[0]) snprintf(watch->noise, sizeof watch->noise, "%.*s", (int)strcspn(line, "\r\n"), line);
}

static const char DASHES[] = "--------------------------------------------------------------------------\n";

static bool is_dashes(const char *line) { return starts_with(line, "----------") && line[strspn(line, "-")] == '\n'; }

/* Whether a frame of Open MPI 4 or 5 that begins with this line tells that processes have ended. */
static bool tells_an_end(const char *line)
{
    static const char *const words[] = { "ABORT was invoked on rank", "Primary job  terminated normally, but",
                                         " detected that one or more processes exited", " noticed that process rank ",
                                         " has exited due to process rank " };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strstr(line, words[i]) != NULL) return true;
    return false;
}

/* Open MPI's mpiexec reports an end in a frame of '-', and counts reports that it leaves out.  Its other frames, such
 * as that there is no room for so many devices, are for the user. */
static bool is_report_of_open_mpi(struct watch *watch, struct stream *stream, const char *line)
{
    const char *const killed = strstr(line, "exited on signal ");
    if (stream->to != STDERR_FILENO) return false;
    if (stream->dashes == DASHES_HELD) {
        stream->dashes = tells_an_end(line) ? DASHES_END : DASHES_OTHER;
        if (stream->dashes == DASHES_END) keep_noise(watch, line);
        else watch_write_all(watch, stream->to, DASHES, sizeof DASHES - 1);
    } else if (stream->dashes == DASHES_NONE && is_dashes(line)) {
        stream->dashes = DASHES_HELD;
        return true;
    }
    const bool private = stream->dashes == DASHES_END;
    if (stream->dashes != DASHES_NONE && is_dashes(line)) stream->dashes = DASHES_NONE;
    if (private && killed != NULL) {
        watch->died = true;
        snprintf(watch->how, sizeof watch->how, "%.*s", (int)strcspn(killed + 10, ".\n"), killed + 10);
    }
    return private || strstr(line, " has sent help message help-") != NULL ||
           strstr(line, "_base_help_aggregate\" to 0") != NULL;
}

/* MPICH's message of a device that has lost its proxy: "[cli_2]: ", then the rest, in pieces; a witness may print
 * between them.  @return the text after the beginning, or NULL. */
static const char *complaint_of_pmi(const char *line)
{
    static const char *const rest[] = { "Error on readline:", "write_line error;",
                                        "system msg for write_line failure" };
    int n = 0;
    if (sscanf(line, "[cli_%*d]: %n", &n) == 0 && n > 0) return line + n;
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        if (starts_with(line, rest[i])) return line;
    return NULL;
}

/* The launcher's message that it cannot start a device.  Hydra says one, and may wait for ever; its warnings, and what
 * HYDRA_DEBUG asks for, look alike.  The user sees ssh's messages. */
static bool cannot_start(const char *line)
{
    if (strstr(line, "WARNING") != NULL || getenv("HYDRA_DEBUG") != NULL) return false;
    return starts_with(line, "[mpiexec@") || starts_with(line, "[proxy:");
}

static bool ssh_has_failed(const char *line)
{
    return starts_with(line, "ssh: ") || starts_with(line, "Host key verification failed") ||
           strstr(line, ": Permission denied (") != NULL;
}

static void note_complaint(struct watch *watch, const char *line)
{
    const bool by_ssh = ssh_has_failed(line);
    if (starts_with(line, "[mpiexec@") && strstr(line, "process manager error waiting for completion"))
        watch->manager_failed = true;
    if (by_ssh) keep_noise(watch, line);
    if (watch->complained == 0 && (by_ssh || cannot_start(line))) watch->complained = measure_now();
}

/* Whether a line is for this launcher, not for the user. */
static bool is_private(struct watch *watch, struct stream *stream, const char *line)
{
    const char *complaint = complaint_of_pmi(line);
    /* how one ends that repeats a line */
    if (stream->to == STDERR_FILENO && strcmp(line, ":\n") == 0) return true;
    if (complaint != NULL && complaint != line && is_private(watch, stream, complaint)) return true;
    if (complaint != NULL) {
        keep_noise(watch, complaint);
        return true;
    }
    if (starts_with(line, PROCESS_LINE)) {
        remember_process(watch, line + strlen(PROCESS_LINE));
        return true;
    }
    if (starts_with(line, STOPS_LINE)) {
        watch->stops = atol(line + strlen(STOPS_LINE));
        return true;
    }
    if (starts_with(line, END_LINE)) {
        watch->ended_well = true, watch->status = atoi(line + strlen(END_LINE));
        return true;
    }
    if (starts_with(line, HOST_LINE)) {
        remember_host(watch, line + strlen(HOST_LINE));
        return true;
    }
    if (starts_with(line, LOST_LINE)) {
        remember_loss(watch, line + strlen(LOST_LINE));
        return true;
    }
    int n = 0;
    if (sscanf(line, "%*[A-Za-z_0-9](%*d)%n", &n) == 0 && n > 0 && (line[n] == '.' || line[n] == ':')) {
        line += n, line += strspn(line, ".: ");    /* "init_worker(71)....: ucx function ...": the last has the cause */
        if (*line != '\n') snprintf(watch->mpi_failed, sizeof watch->mpi_failed, "%.*s",
                                    (int)strcspn(line, "\n"), line);
        return true;
    }
    const bool of_ucx = sscanf(line, "[%*[^]: ]:%*d :%*d:%d]", &n) == 1;        /* "[host:12 :0:12] cma_ep.c: ..." */
    if (of_ucx || starts_with(line, "[mpiexec@") || starts_with(line, "[proxy:") || starts_with(line, "Abort(")) {
        keep_noise(watch, line);
        return true;
    }
    /* if devices fail together, one is reported */
    if (stream->to == STDERR_FILENO && starts_with(line, "orrery: ")) {
        if (!watch->said[0]) strcpy(watch->said, line);
        return true;
    }
    return is_report_of_open_mpi(watch, stream, line) || is_report(watch, stream, line);
}

static void pass_line(struct watch *watch, struct stream *stream)
{
    const bool blank = !stream->middle && strcmp(stream->line, "\n") == 0;
    if (stream->to == STDERR_FILENO && !stream->middle) note_complaint(watch, stream->line);
    if (blank && !stream->blank) stream->blank = true;
    else if (stream->middle || !is_private(watch, stream, stream->line)) {
        if (stream->blank) watch_write_all(watch, stream->to, "\n", 1);
        stream->blank = blank;
        if (!blank) watch_write_all(watch, stream->to, stream->line, stream->used);
    } else stream->blank = false;
    stream->middle = stream->line[stream->used - 1] != '\n';
    stream->used = 0;
}

/* Pass on whole lines; also the beginning of a line that cannot be mpiexec's, such as a progress line that is
 * overwritten. */
static void watch_pass_on(struct watch *watch, struct stream *stream, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        stream->line[stream->used++] = data[i];
        stream->line[stream->used] = '\0';
        if (data[i] == '\n' || stream->used == LINE - 1) pass_line(watch, stream);
    }
    if (stream->used > 0 && (stream->middle || stream->line[0] == '\r')) pass_line(watch, stream);
}

void watch_read(struct watch *watch, struct stream *stream)
{
    char data[LINE];
    const ssize_t n = read(stream->from, data, sizeof data);
    if (n < 0 && errno == EINTR) return;
    if (n > 0) {
        watch_pass_on(watch, stream, data, (size_t)n);
        return;
    }
    if (stream->used > 0) pass_line(watch, stream);
    if (stream->dashes == DASHES_HELD) watch_write_all(watch, stream->to, DASHES, sizeof DASHES - 1);
    if (stream->blank && !watch->died) watch_write_all(watch, stream->to, "\n", 1);
    close(stream->from);
    stream->from = -1;
}
