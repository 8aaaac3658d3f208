/* live.c -- answers a browser while a run goes on.  run/session.c calls on rank 0; a thread of this file answers.  The
 * thread calls no MPI, and holds the lock only while it copies.  Errors: ERR_FILE of a port, ERR_MEMORY. */
#include "emulated_devices/run/live.h"
#include "ref/machine/system.h"
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    TOKEN_BYTES = 16, TOKEN = 2 * TOKEN_BYTES,
    WAITS = 2000,                       /* milliseconds for a request to come, or an answer to go */
    TURN = 50,                          /* milliseconds between looks whether the run has ended */
    RECENT = 3,                         /* seconds within which a browser is still there */
    MOST_LOSSES = 1 << 20,
    DRAINS = 64,                        /* pieces of 4 KiB that are taken of a request that is too long */
};

struct live {
    int listener, port;                 /* the socket; its number */
    char token[TOKEN + 1], url[LIVE_URL];       /* of this run; the address to open */
    char *page, *data;                  /* the page; its data, NULL: none yet */
    int film;                           /* number of `data`: 0 none, then 1, 2, .. */
    double *loss;                       /* [losses] of the steps so far */
    int losses, room;                   /* losses, and for how many there is memory */
    bool ends, last_taken;              /* the run is over; a browser has the last film */
    time_t asked;                       /* when a browser last asked; 0: never */
    pthread_mutex_t lock;               /* of all below `url` */
    pthread_t thread;                   /* that answers */
};

/* ---- the port ---------------------------------------------------------------------------------------------------- */

static enum error_code port_listen(int port, int *listener, struct error *err)
{
    const struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const int on = 1;
    *listener = socket(AF_INET, SOCK_STREAM, 0);
    if (*listener >= 0) setsockopt(*listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (*listener >= 0 && bind(*listener, (const struct sockaddr *)&here, sizeof here) == 0 &&
        listen(*listener, 16) == 0)
        return OK;
    fail(err, ERR_FILE, "--live %d: cannot listen on this port of 127.0.0.1: %s", port, strerror(errno));
    if (*listener >= 0) close(*listener);
    return ERR_FILE;
}

enum error_code live_probe(int port, struct error *err)
{
    int listener;
    const enum error_code e = port_listen(port, &listener, err);
    if (!e) close(listener);
    return e;
}

static bool token_draw(char token[TOKEN + 1])
{
    unsigned char byte[TOKEN_BYTES];
    FILE *const f = fopen("/dev/urandom", "rb");
    const bool drawn = f && fread(byte, sizeof byte, 1, f) == 1;
    if (f) fclose(f);
    for (int i = 0; i < TOKEN_BYTES && drawn; i++) snprintf(token + 2 * i, 3, "%02x", byte[i]);
    return drawn;
}

/* ---- answers ----------------------------------------------------------------------------------------------------- */

/* Send all of it, unless the browser stops taking it. */
static void send_all(int to, const char *text, size_t bytes)
{
    while (bytes > 0) {
        struct pollfd ready = { .fd = to, .events = POLLOUT };
        if (poll(&ready, 1, WAITS) <= 0) return;
        const ssize_t sent = send(to, text, bytes, system_send_flags(to));
        if (sent <= 0) return;
        text += sent, bytes -= (size_t)sent;
    }
}

static void answer(int to, const char *status, const char *type, const char *text, size_t bytes)
{
    char head[400];
    const int n = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Type: %s; charset=utf-8\r\n"
                           "Content-Length: %zu\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
                           "Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n", status, type, bytes);
    send_all(to, head, (size_t)n);
    send_all(to, text, bytes);
}

static void refuse(int to, const char *status) { answer(to, status, "text/plain", status, strlen(status)); }

/* The browser hears the number of the film, whether the run ends, and losses.  @return for free(); NULL: no memory. */
static char *state_text(struct live *live, size_t *bytes)
{
    char *text = NULL;
    FILE *const f = open_memstream(&text, bytes);
    if (f == NULL) return NULL;
    pthread_mutex_lock(&live->lock);
    fprintf(f, "{\"film\":%d,\"ends\":%s,\"losses\":[", live->film, live->ends ? "true" : "false");
    for (int i = 0; i < live->losses; i++) {
        if (isfinite(live->loss[i])) fprintf(f, "%s%.9g", i ? "," : "", live->loss[i]);
        else fprintf(f, "%snull", i ? "," : "");
    }
    pthread_mutex_unlock(&live->lock);
    fputs("]}", f);
    if (fclose(f) == 0) return text;
    free(text);
    return NULL;
}

static void answer_state(struct live *live, int to)
{
    size_t bytes = 0;
    char *const text = state_text(live, &bytes);
    if (text) answer(to, "200 OK", "application/json", text, bytes);
    else refuse(to, "503 Service Unavailable");
    free(text);
}

static void answer_data(struct live *live, int to)
{
    pthread_mutex_lock(&live->lock);
    char *const text = live->data ? strdup(live->data) : NULL;
    const bool last = live->ends;
    pthread_mutex_unlock(&live->lock);
    if (text) answer(to, "200 OK", "application/json", text, strlen(text));
    else refuse(to, "404 Not Found");
    free(text);
    pthread_mutex_lock(&live->lock);
    live->last_taken = live->last_taken || last;
    pthread_mutex_unlock(&live->lock);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* Equal, in a time that does not tell where they differ. */
static bool token_equal(const char *a, const char *b)
{
    unsigned differ = 0;
    for (int i = 0; i < TOKEN; i++) differ |= (unsigned char)a[i] ^ (unsigned char)b[i];
    return differ == 0;
}

/* Whether the one Host of a request names this server.  A page of another name that resolves to this machine has its
 * own name there. */
static bool host_is_here(const struct live *live, const char *request)
{
    char here[2][40];
    int hosts = 0;
    bool good = false;
    snprintf(here[0], sizeof *here, "127.0.0.1:%d", live->port);
    snprintf(here[1], sizeof *here, "localhost:%d", live->port);
    for (const char *line = strstr(request, "\r\n"); line && line[2] != '\r'; line = strstr(line + 2, "\r\n")) {
        const char *value = line + 2;
        if (strncasecmp(value, "host:", 5) != 0) continue;
        value += 5 + strspn(value + 5, " \t");
        const size_t length = strcspn(value, " \t\r\n");
        hosts++;
        for (int i = 0; i < 2; i++) good = good || (length == strlen(here[i]) && strncmp(value, here[i], length) == 0);
    }
    return hosts == 1 && good;
}

/* Read until the empty line that ends a request's head.  @return its bytes; 0: none came in time; -1: too long. */
static int request_read(int from, char request[LIVE_REQUEST + 1])
{
    int bytes = 0;
    struct timespec begin, now;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    while (bytes < LIVE_REQUEST) {
        struct pollfd ready = { .fd = from, .events = POLLIN };
        clock_gettime(CLOCK_MONOTONIC, &now);
        const int left = WAITS - (int)((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000);
        if (left <= 0 || poll(&ready, 1, left) <= 0) return 0;
        const ssize_t came = recv(from, request + bytes, (size_t)(LIVE_REQUEST - bytes), 0);
        if (came <= 0) return 0;
        bytes += (int)came;
        request[bytes] = '\0';
        if (memchr(request, '\0', (size_t)bytes)) return 0;
        if (strstr(request, "\r\n\r\n")) return bytes;
    }
    return -1;
}

/* Take what still comes of a request that is too long: a socket that is closed with bytes unread would take the answer
 * back. */
static void request_drain(int from)
{
    char rest[4096];
    for (int i = 0; i < DRAINS; i++) {
        struct pollfd ready = { .fd = from, .events = POLLIN };
        if (poll(&ready, 1, TURN) <= 0 || recv(from, rest, sizeof rest, 0) <= 0) return;
    }
}

static void answer_path(struct live *live, int to, const char *path)
{
    if (strcmp(path, "") == 0) answer(to, "200 OK", "text/html", live->page, strlen(live->page));
    else if (strcmp(path, "state") == 0) answer_state(live, to);
    else if (strcmp(path, "data") == 0) answer_data(live, to);
    else refuse(to, "404 Not Found");
}

static void answer_one(struct live *live, int client)
{
    char request[LIVE_REQUEST + 1], path[160] = "";
    const int bytes = request_read(client, request);
    if (bytes == 0) return;
    if (bytes < 0) {
        refuse(client, "431 Request Header Fields Too Large");
        shutdown(client, SHUT_WR);
        request_drain(client);
        return;
    }
    if (strncmp(request, "GET ", 4) != 0) { refuse(client, "405 Method Not Allowed"); return; }
    if (!host_is_here(live, request)) { refuse(client, "403 Forbidden"); return; }
    const size_t length = strcspn(request + 4, " \r\n");
    if (length >= sizeof path) { refuse(client, "403 Forbidden"); return; }
    memcpy(path, request + 4, length);
    if (length < TOKEN + 2 || path[0] != '/' || path[TOKEN + 1] != '/' || !token_equal(path + 1, live->token)) {
        refuse(client, "403 Forbidden");
        return;
    }
    pthread_mutex_lock(&live->lock);
    live->asked = time(NULL);
    pthread_mutex_unlock(&live->lock);
    answer_path(live, client, path + TOKEN + 2);
}

static bool live_is_over(struct live *live)
{
    pthread_mutex_lock(&live->lock);
    const bool over = live->ends && (live->last_taken || live->data == NULL || time(NULL) - live->asked > RECENT);
    pthread_mutex_unlock(&live->lock);
    return over;
}

static void *live_serve(void *context)
{
    struct live *const live = context;
    int turns_left = WAITS / TURN;
    while (turns_left > 0 && !live_is_over(live)) {
        struct pollfd ready = { .fd = live->listener, .events = POLLIN };
        const int came = poll(&ready, 1, TURN);
        pthread_mutex_lock(&live->lock);
        turns_left -= live->ends;
        pthread_mutex_unlock(&live->lock);
        if (came <= 0) continue;
        const int client = accept(live->listener, NULL, NULL);
        if (client < 0) continue;
        answer_one(live, client);
        shutdown(client, SHUT_WR);
        close(client);
    }
    return NULL;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* No signal of the run comes to the thread. */
static bool start_thread(struct live *live)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool started = pthread_create(&live->thread, NULL, live_serve, live) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static void live_free(struct live *live)
{
    free(live->page), free(live->data), free(live->loss), free(live);
}

enum error_code live_open(struct live **live, int port, const char *page, struct error *err)
{
    struct sockaddr_in here;
    socklen_t size = sizeof here;
    struct live *const l = calloc(1, sizeof *l);
    *live = NULL;
    if (l == NULL || (l->page = strdup(page)) == NULL) {
        free(l);
        return fail(err, ERR_MEMORY, "no memory for the page of --live");
    }
    enum error_code e = token_draw(l->token) ? OK : fail(err, ERR_FILE, "/dev/urandom cannot be read");
    if (!e) e = port_listen(port, &l->listener, err);
    if (e) { live_free(l); return e; }
    l->port = getsockname(l->listener, (struct sockaddr *)&here, &size) == 0 ? ntohs(here.sin_port) : port;
    snprintf(l->url, sizeof l->url, "http://127.0.0.1:%d/%s/", l->port, l->token);
    pthread_mutex_init(&l->lock, NULL);
    if (start_thread(l)) { *live = l; return OK; }
    close(l->listener);
    live_free(l);
    return fail(err, ERR_MEMORY, "--live: a thread cannot be started");
}

const char *live_url(const struct live *live) { return live->url; }

void live_show(struct live *live, char *data)
{
    if (data == NULL) return;
    pthread_mutex_lock(&live->lock);
    free(live->data);
    live->data = data, live->film++;
    pthread_mutex_unlock(&live->lock);
}

void live_loss(struct live *live, double loss)
{
    pthread_mutex_lock(&live->lock);
    if (live->losses == live->room && live->room < MOST_LOSSES) {
        const int room = live->room > 0 ? 2 * live->room : 256;
        double *const more = realloc(live->loss, (size_t)room * sizeof *more);
        if (more) live->loss = more, live->room = room;
    }
    if (live->losses < live->room) live->loss[live->losses++] = loss;
    pthread_mutex_unlock(&live->lock);
}

void live_close(struct live *live)
{
    if (live == NULL) return;
    pthread_mutex_lock(&live->lock);
    live->ends = true;
    pthread_mutex_unlock(&live->lock);
    pthread_join(live->thread, NULL);
    close(live->listener);
    pthread_mutex_destroy(&live->lock);
    live_free(live);
}
