#include "emulated_devices/cli/launch/watch.h"
#include "emulated_devices/cli/cli.h"
#include "ref/machine/measure.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool starts_with(const char *line, const char *start) { return strncmp(line, start, strlen(start)) == 0; }

static void write_all(struct watch *w, int to, const char *data, size_t bytes)
{
    while (bytes > 0 && !w->write_errno) {
        const ssize_t n = write(to, data, bytes);
        if (n < 0 && errno == EAGAIN) poll(&(struct pollfd){ .fd = to, .events = POLLOUT }, 1, -1);
        else if (n < 0 && errno != EINTR) {
            if (to == STDERR_FILENO) return;            /* nowhere left to complain */
            if (errno == EPIPE) return;                 /* the reader has seen enough, as head: the work goes on */
            w->write_errno = errno;
        }
        if (n > 0) data += n, bytes -= (size_t)n;
    }
}

static void remember_process(struct watch *w, const char *text)
{
    struct process p = { 0 };
    if (sscanf(text, "%ld %d %63[^\n]", &p.pid, &p.rank, p.place) < 2) return;
    int i = 0;
    while (i < w->known && w->process[i].rank != p.rank) i++;
    if (i == w->room) return;
    if (i < w->known) strcpy(p.host, w->process[i].host);
    w->process[i] = p;                                  /* it knows its place better now */
    w->heard = measure_now();
    if (i == w->known) w->known++;
}

static struct process *process_of(const struct watch *w, int rank)
{
    for (int i = 0; i < w->known; i++)
        if (w->process[i].rank == rank) return &w->process[i];
    return NULL;
}

static void remember_host(struct watch *w, const char *text)
{
    int rank;
    char host[64];
    if (sscanf(text, "%d %63s", &rank, host) != 2 || process_of(w, rank) == NULL) return;
    strcpy(process_of(w, rank)->host, host);
}

static bool has_spoken(const struct watch *w, const char *host)
{
    for (int i = 0; i < w->known; i++)
        if (w->process[i].reported && strcmp(w->process[i].host, host) == 0) return true;
    return false;
}

const char *watch_lost_hosts(const struct watch *w, char *text, size_t size)
{
    size_t used = 0;
    bool anybody = false;
    text[0] = '\0';
    for (int i = 0; i < w->known; i++) anybody = anybody || w->process[i].reported;
    for (int i = 0; i < w->known && anybody; i++) {
        const char *host = w->process[i].host;
        bool first = host[0] != '\0' && !has_spoken(w, host);
        for (int k = 0; k < i; k++) first = first && strcmp(w->process[k].host, host) != 0;
        if (!first || used >= size) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s, with its devices", used ? "; " : "", host);
        int listed = 0;
        for (int rank = 0; rank < w->room && used < size; rank++) {     /* they announce themselves in any order */
            const struct process *p = process_of(w, rank);
            if (p && strcmp(p->host, host) == 0)
                used += (size_t)snprintf(text + used, size - used, "%s %d", listed++ > 0 ? "," : "", rank);
        }
    }
    return text;
}

int watch_started(const struct watch *w)
{
    int started = 0;
    for (int i = 0; i < w->known; i++) started += strcmp(w->process[i].place, STARTING) != 0;
    return started;
}

/* Remember the earliest death.  Reports may come late and in any order, so their times decide.  An abort counts from
 * the end of the time that its device lingers: a death before that has caused it. */
static void remember_loss(struct watch *w, const char *text)
{
    long pid;
    int number, orphan, rank = -1;
    double when;
    if (sscanf(text, "%ld %d %lf %d %d", &pid, &number, &when, &orphan, &rank) < 4) return;
    if (process_of(w, rank)) process_of(w, rank)->reported = true;
    if (w->said[0]) return;
    if (orphan) {
        w->orphaned = true;
        return;
    }
    if (number == SIGABRT) when += LINGER;
    if (w->lost_pid == 0 || when < w->lost_when)
        w->lost_pid = pid, w->lost_signal = number, w->lost_when = when, w->lost_rank = rank;
}

/* mpiexec reports a death in a frame of '=', with three lines below.  It need not name the first device that died. */
static bool is_report(struct watch *w, struct stream *s, const char *line)
{
    const char *code = strstr(line, "EXIT CODE: "), *text = strstr(line, "EXIT STRING: ");
    if (starts_with(line, "==========")) s->frame = !s->frame;
    else if (s->frame) {
        if (strstr(line, "BAD TERMINATION")) w->died = true;
        if (code) snprintf(w->how, sizeof w->how, "exit status %d", atoi(code + 11));
    } else if (w->died && starts_with(line, "YOUR APPLICATION TERMINATED") && text) {
        snprintf(w->how, sizeof w->how, "%.*s", (int)strcspn(text + 13, "\n"), text + 13);
    } else return w->died && (starts_with(line, "This typically refers") || starts_with(line, "Please see the FAQ"));
    return true;
}

static void keep_noise(struct watch *w, const char *line)
{
    if (!w->noise[0]) snprintf(w->noise, sizeof w->noise, "%.*s", (int)strcspn(line, "\n"), line);
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

/* Whether a line is for this launcher, not for the user. */
static bool is_private(struct watch *w, struct stream *s, const char *line)
{
    const char *complaint = complaint_of_pmi(line);
    if (s->to == STDERR_FILENO && strcmp(line, ":\n") == 0) return true;         /* how one ends that repeats a line */
    if (complaint != NULL && complaint != line && is_private(w, s, complaint)) return true;
    if (complaint != NULL) {
        keep_noise(w, complaint);
        return true;
    }
    if (starts_with(line, PROCESS_LINE)) {
        remember_process(w, line + strlen(PROCESS_LINE));
        return true;
    }
    if (starts_with(line, STOPS_LINE)) {
        w->stops = atol(line + strlen(STOPS_LINE));
        return true;
    }
    if (starts_with(line, HOST_LINE)) {
        remember_host(w, line + strlen(HOST_LINE));
        return true;
    }
    if (starts_with(line, LOST_LINE)) {
        remember_loss(w, line + strlen(LOST_LINE));
        return true;
    }
    int n = 0;
    if (sscanf(line, "%*[A-Za-z_0-9](%*d)%n", &n) == 0 && n > 0 && (line[n] == '.' || line[n] == ':')) {
        line += n, line += strspn(line, ".: ");    /* "init_worker(71)....: ucx function ...": the last has the cause */
        if (*line != '\n') snprintf(w->mpi_failed, sizeof w->mpi_failed, "%.*s", (int)strcspn(line, "\n"), line);
        return true;
    }
    const bool of_ucx = sscanf(line, "[%*[^]: ]:%*d :%*d:%d]", &n) == 1;        /* "[host:12 :0:12] cma_ep.c: ..." */
    if (of_ucx || starts_with(line, "[mpiexec@") || starts_with(line, "[proxy:") || starts_with(line, "Abort(")) {
        keep_noise(w, line);
        return true;
    }
    if (s->to == STDERR_FILENO && starts_with(line, "orrery: ")) {      /* if devices fail together, one is reported */
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

/* Pass on whole lines; also the beginning of a line that cannot be mpiexec's, such as a progress line that is
 * overwritten. */
static void pass_on(struct watch *w, struct stream *s, const char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        s->line[s->used++] = data[i];
        s->line[s->used] = '\0';
        if (data[i] == '\n' || s->used == LINE - 1) pass_line(w, s);
    }
    if (s->used > 0 && (s->middle || s->line[0] == '\r')) pass_line(w, s);
}

void watch_read(struct watch *w, struct stream *s)
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
