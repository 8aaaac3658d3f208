/* server.c -- talks HTTP with clients.  cli/train/serve_clients.c calls.  Errors: ERR_USAGE without the library, or of
 * an address that is none; ERR_FILE of a port; ERR_MEMORY.  A client's mistakes are answered, and no error.
 *
 * Source  GNU libmicrohttpd: connections are suspended while their answer is computed, and resumed by the other thread.
 */
#include "emulated_devices/serve/http/server.h"

#ifndef ORRERY_HTTP

enum error_code server_there(struct error *err)
{
    return fail(err, ERR_USAGE, "this program was built without GNU libmicrohttpd, which --port needs "
                "(Debian: libmicrohttpd-dev); --trace works without it");
}

enum error_code server_probe(const struct server_place *place, struct error *err)
{
    (void)place;
    return server_there(err);
}

enum error_code server_open(struct server **server, struct front *front, const struct api_model *model,
                            const struct server_place *place, struct error *err)
{
    (void)front, (void)model, (void)place;
    *server = NULL;
    return server_there(err);
}

struct server_place server_place_of(const struct server *server)
{
    (void)server;
    return (struct server_place){ .port = 0 };
}

void server_close(struct server *server) { (void)server; }

#else

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct server {
    struct MHD_Daemon *daemon;
    struct front *front;
    const struct api_model *model;
    struct server_place place;
    bool here;                          /* only this machine may ask */
    size_t bodies;                      /* bytes of bodies that are kept now */
};

/* A stream sends one of these next. */
enum stage_of_stream { STREAM_BEGINS, STREAM_TEXT, STREAM_ENDS, STREAM_USAGE, STREAM_DONE, STREAM_OVER };

/* One request of a connection. */
struct call {
    struct server *server;
    struct MHD_Connection *connection;
    enum api_kind kind;
    char *body;                         /* [bytes] so far; owned */
    size_t bytes, room;
    bool too_long, no_room;             /* its body is, or all bodies are */
    bool streams, tells_usage;          /* as asked */
    struct ticket *ticket;              /* NULL: not open */
    enum stage_of_stream stage;
    char *out;                          /* [out_bytes] of the stream, of which out_at are sent; owned */
    size_t out_bytes, out_at, seen;     /* seen: bytes of the answer */
};

/* ---- answers ----------------------------------------------------------------------------------------------------- */

static enum MHD_Result send_text(struct MHD_Connection *to, int status, char *text)
{
    static char nothing[] = "{}";
    struct MHD_Response *const r = text ? MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE)
                                        : MHD_create_response_from_buffer(2, nothing, MHD_RESPMEM_PERSISTENT);
    if (r == NULL) return free(text), MHD_NO;
    MHD_add_response_header(r, "Content-Type", "application/json");
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    if (status == 405) MHD_add_response_header(r, "Allow", "GET, POST");
    if (status == 429 || status == 503) MHD_add_response_header(r, "Retry-After", "1");
    const enum MHD_Result done = MHD_queue_response(to, (unsigned)(text ? status : 503), r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result send_error(struct server *server, struct MHD_Connection *to, const struct api_error *error)
{
    front_refused(server->front);
    return send_text(to, error->status, api_error_text(error));
}

/* ---- sleeping ---------------------------------------------------------------------------------------------------- */

static void call_sleep(void *context) { MHD_suspend_connection(((struct call *)context)->connection); }
static void call_wake(void *context) { MHD_resume_connection(((struct call *)context)->connection); }

/* A client that has closed its side has nothing to send, and its socket says so. */
static bool call_left(void *context)
{
    const struct call *const c = context;
    const union MHD_ConnectionInfo *const info = MHD_get_connection_info(c->connection,
                                                                         MHD_CONNECTION_INFO_CONNECTION_FD);
    char byte;
    return info && recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

/* The next event becomes what is sent.  @return whether there was memory. */
static bool set_event(struct call *c, char *json)
{
    static const char before[] = "data: ", after[] = "\n\n";
    if (json == NULL) return false;
    const size_t n = strlen(json);
    free(c->out);
    c->out_at = 0, c->out_bytes = n + sizeof before + sizeof after - 2;
    c->out = malloc(c->out_bytes + 1);
    if (c->out) snprintf(c->out, c->out_bytes + 1, "%s%s%s", before, json, after);
    free(json);
    return c->out != NULL;
}

static bool end_stream(struct call *c, const struct ticket_state *state)
{
    struct api_error error;
    if (state->problem == NULL) {
        c->stage = STREAM_ENDS;
        return set_event(c, api_chunk_text(&state->answer, API_ENDS, "", 0, c->tells_usage));
    }
    api_refuse(&error, 504, NULL, "no_answer", "%s", state->problem);
    c->stage = STREAM_OVER;
    return set_event(c, api_error_text(&error));
}

static bool text_event(struct call *c, const struct ticket_state *state)
{
    if (state->bytes == 0) return end_stream(c, state);
    c->seen += state->bytes;
    return set_event(c, api_chunk_text(&state->answer, API_TEXT, state->text, state->bytes, c->tells_usage));
}

/* Make the next event.  @return 1: it is there; 0: the client sleeps; -1: the stream is over, or there is no memory. */
static int next_event(struct call *c)
{
    struct ticket_state state = { .text = NULL };
    bool there = true;
    if (c->stage == STREAM_OVER) return -1;
    if (c->stage == STREAM_DONE) {
        c->stage = STREAM_OVER;
        return set_event(c, strdup("[DONE]")) ? 1 : -1;
    }
    if (c->stage == STREAM_ENDS && !c->tells_usage) return c->stage = STREAM_DONE, next_event(c);
    if (!ticket_look(c->server->front, c->ticket, c->seen, false, &state)) return 0;
    if (c->stage == STREAM_BEGINS && c->kind == API_CHAT) {
        c->stage = STREAM_TEXT;
        there = set_event(c, api_chunk_text(&state.answer, API_BEGINS, "", 0, c->tells_usage));
    } else if (c->stage == STREAM_ENDS) {
        c->stage = STREAM_DONE;
        there = set_event(c, api_chunk_text(&state.answer, API_USAGE, "", 0, true));
    } else c->stage = STREAM_TEXT, there = text_event(c, &state);
    free(state.text);
    return there ? 1 : -1;
}

static ssize_t read_stream_of(void *context, uint64_t at, char *to, size_t most)
{
    struct call *const c = context;
    (void)at;
    while (c->out_at == c->out_bytes) {
        const int next = next_event(c);
        if (next == 0) return 0;
        if (next < 0) return MHD_CONTENT_READER_END_OF_STREAM;
    }
    const size_t n = c->out_bytes - c->out_at < most ? c->out_bytes - c->out_at : most;
    memcpy(to, c->out + c->out_at, n);
    c->out_at += n;
    return (ssize_t)n;
}

static enum MHD_Result send_stream(struct call *c)
{
    struct MHD_Response *const r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 4096, read_stream_of, c, NULL);
    if (r == NULL) return MHD_NO;
    MHD_add_response_header(r, "Content-Type", "text/event-stream");
    MHD_add_response_header(r, "Cache-Control", "no-cache");
    const enum MHD_Result done = MHD_queue_response(c->connection, 200, r);
    MHD_destroy_response(r);
    return done;
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

static enum MHD_Result send_whole(struct call *c)
{
    struct ticket_state state;
    struct api_error error;
    if (!ticket_look(c->server->front, c->ticket, 0, true, &state)) return MHD_YES;
    char *const text = state.problem ? NULL : api_answer_text(&state.answer, state.text, state.bytes);
    free(state.text);
    if (state.problem == NULL) return send_text(c->connection, 200, text);
    api_refuse(&error, 504, NULL, "no_answer", "%s", state.problem);
    return send_text(c->connection, 504, api_error_text(&error));
}

/* The whole body is here. */
static enum MHD_Result enter_call(struct call *c)
{
    struct server *const s = c->server;
    struct api_request request = { .stops = 0 };
    struct api_error error;
    const struct sleeper sleeper = { c, call_sleep, call_wake, call_left };
    bool good = !c->too_long && !c->no_room;
    if (c->too_long)
        api_refuse(&error, 413, NULL, "too_large", "The body has more than %d bytes", SERVER_BODY);
    else if (c->no_room) api_refuse(&error, 503, NULL, "no_memory", "There is no memory for this request now");
    if (good) good = api_request_read(&request, c->kind, c->body ? c->body : "", c->bytes, s->model,
                                      front_next(s->front), &error);
    c->streams = request.streams, c->tells_usage = request.tells_usage;
    if (good) {
        c->ticket = front_enter(s->front, &request, &sleeper);
        good = c->ticket != NULL;
        if (!good && front_ends(s->front)) api_refuse(&error, 503, NULL, "ends", "This server is about to end");
        else if (!good) api_refuse(&error, 429, NULL, "too_many_requests", "As many requests are open as this server "
                                   "takes; ask again later");
    }
    api_request_free(&request);
    s->bodies -= c->room;
    free(c->body);
    c->body = NULL, c->room = 0;
    if (!good) return send_error(s, c->connection, &error);
    return c->streams ? send_stream(c) : send_whole(c);
}

/* Bodies that are too long are read to their end, so that the client hears why, but not for ever. */
static enum MHD_Result take_body(struct call *c, const char *data, size_t *bytes)
{
    struct server *const s = c->server;
    const size_t n = *bytes;
    *bytes = 0;
    c->too_long = c->too_long || c->bytes + n > SERVER_BODY;
    if (!c->too_long && !c->no_room && c->bytes + n + 1 > c->room) {
        const size_t room = 2 * (c->bytes + n + 1);
        char *const more = s->bodies + room - c->room > SERVER_BODIES ? NULL : realloc(c->body, room);
        if (more) s->bodies += room - c->room, c->body = more, c->room = room;
        else c->no_room = true;
    }
    if (!c->too_long && !c->no_room) memcpy(c->body + c->bytes, data, n), c->body[c->bytes + n] = '\0';
    c->bytes += n;
    return c->bytes > 4 * (size_t)SERVER_BODY ? MHD_NO : MHD_YES;
}

/* A page of another name that resolves to this machine has its own name in Host, and a page of any other server cannot
 * send JSON without asking first, which nobody answers. */
static bool check_head(const struct server *s, struct MHD_Connection *from, bool body, struct api_error *error)
{
    const char *const host = MHD_lookup_connection_value(from, MHD_HEADER_KIND, "Host");
    const char *const type = MHD_lookup_connection_value(from, MHD_HEADER_KIND, "Content-Type");
    const char *const length = MHD_lookup_connection_value(from, MHD_HEADER_KIND, "Content-Length");
    static const char *const names[] = { "127.0.0.1", "localhost", "[::1]" };
    bool known = !s->here || host == NULL;
    for (int i = 0; i < 3 && !known; i++) {
        const size_t n = strlen(names[i]);
        known = strncasecmp(host, names[i], n) == 0 && (host[n] == '\0' || host[n] == ':');
    }
    if (!known)
        return api_refuse(error, 403, NULL, "wrong_host", "Only requests to 127.0.0.1 or localhost are answered here");
    if (body && (type == NULL || strncasecmp(type, "application/json", 16) != 0))
        return api_refuse(error, 415, NULL, "wrong_type", "The Content-Type must be application/json");
    if (length && (strlen(length) > 9 || atol(length) > SERVER_BODY))
        return api_refuse(error, 413, NULL, "too_large", "The body has more than %d bytes", SERVER_BODY);
    return true;
}

static const char nothing_here[] = "There is nothing here: the paths are /v1/models, /v1/completions and "
                                   "/v1/chat/completions";

static enum MHD_Result answer_get(struct server *s, struct MHD_Connection *to, const char *path)
{
    static const char models[] = "/v1/models";
    struct api_error error;
    if (strcmp(path, "/health") == 0) return send_text(to, 200, strdup("{}"));
    if (strcmp(path, models) == 0) return send_text(to, 200, api_models_text(s->model));
    if (strncmp(path, models, sizeof models - 1) == 0 && path[sizeof models - 1] == '/' &&
        strcmp(path + sizeof models, s->model->name) == 0)
        return send_text(to, 200, api_model_text(s->model));
    api_refuse(&error, 404, NULL, "not_found", "%s", nothing_here);
    return send_error(s, to, &error);
}

static enum MHD_Result begin_call(struct server *s, struct MHD_Connection *from, const char *path, const char *method,
                                  void **kept)
{
    struct api_error error;
    const bool chat = strcmp(path, "/v1/chat/completions") == 0, known = chat || strcmp(path, "/v1/completions") == 0;
    const bool get = strcmp(method, "GET") == 0;
    if (!check_head(s, from, !get && known, &error)) return send_error(s, from, &error);
    if (get && !known) return answer_get(s, from, path);
    if (!known || strcmp(method, "POST") != 0) {
        if (known || get) api_refuse(&error, 405, NULL, "wrong_method", "This path takes POST");
        else api_refuse(&error, strcmp(method, "POST") == 0 ? 404 : 405, NULL, "not_found", "%s", nothing_here);
        return send_error(s, from, &error);
    }
    struct call *const c = calloc(1, sizeof *c);
    if (c == NULL) return MHD_NO;
    *c = (struct call){ .server = s, .connection = from, .kind = chat ? API_CHAT : API_COMPLETION };
    *kept = c;
    return MHD_YES;
}

static enum MHD_Result answer_client(void *context, struct MHD_Connection *from, const char *path, const char *method,
                                     const char *version, const char *data, size_t *bytes, void **kept)
{
    struct call *const c = *kept;
    (void)version;
    if (c == NULL) return begin_call(context, from, path, method, kept);
    if (*bytes > 0) return take_body(c, data, bytes);
    return c->ticket ? send_whole(c) : enter_call(c);
}

static void end_call(void *context, struct MHD_Connection *connection, void **kept, enum MHD_RequestTerminationCode why)
{
    struct call *const c = *kept;
    (void)context, (void)connection, (void)why;
    if (c == NULL) return;
    if (c->ticket) ticket_leave(c->server->front, c->ticket);
    c->server->bodies -= c->room;
    free(c->body), free(c->out), free(c);
    *kept = NULL;
}

/* ---- opening, closing -------------------------------------------------------------------------------------------- */

enum error_code server_there(struct error *err)
{
    (void)err;
    return OK;
}

/* An address of either kind. */
struct address { union { struct sockaddr any; struct sockaddr_in four; struct sockaddr_in6 six; } of; socklen_t size; };

static enum error_code address_of(const struct server_place *place, struct address *to, struct error *err)
{
    *to = (struct address){ .size = 0 };
    if (inet_pton(AF_INET, place->host, &to->of.four.sin_addr) == 1) {
        to->of.four.sin_family = AF_INET, to->of.four.sin_port = htons((uint16_t)place->port);
        return to->size = sizeof to->of.four, OK;
    }
    if (inet_pton(AF_INET6, place->host, &to->of.six.sin6_addr) == 1) {
        to->of.six.sin6_family = AF_INET6, to->of.six.sin6_port = htons((uint16_t)place->port);
        return to->size = sizeof to->of.six, OK;
    }
    return fail(err, ERR_USAGE, "--host %.60s: must be an address of numbers, such as 127.0.0.1", place->host);
}

static enum error_code listen_at(const struct server_place *place, int *listener, struct error *err)
{
    struct address here;
    const int on = 1;
    const enum error_code e = address_of(place, &here, err);
    if (e) return e;
    *listener = socket(here.of.any.sa_family, SOCK_STREAM, 0);
    if (*listener >= 0) setsockopt(*listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (*listener >= 0 && bind(*listener, &here.of.any, here.size) == 0 && listen(*listener, 1024) == 0) return OK;
    fail(err, ERR_FILE, "--port %d: cannot listen on this port of %s: %s", place->port, place->host, strerror(errno));
    if (*listener >= 0) close(*listener);
    return ERR_FILE;
}

enum error_code server_probe(const struct server_place *place, struct error *err)
{
    int listener;
    const enum error_code e = listen_at(place, &listener, err);
    if (!e) close(listener);
    return e;
}

static void say_nothing(void *context, const char *format, va_list list) { (void)context, (void)format, (void)list; }

/* The system may allow fewer files than connections are asked for; some are the program's own. */
static int connections_of(int asked)
{
    enum { OWN = 64 };
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0) return asked;
    if (files.rlim_cur < files.rlim_max && files.rlim_cur < (rlim_t)asked + OWN) {
        files.rlim_cur = files.rlim_max < (rlim_t)asked + OWN ? files.rlim_max : (rlim_t)asked + OWN;
        if (setrlimit(RLIMIT_NOFILE, &files) != 0) getrlimit(RLIMIT_NOFILE, &files);
    }
    return files.rlim_cur < (rlim_t)asked + OWN && files.rlim_cur > OWN ? (int)files.rlim_cur - OWN : asked;
}

/* No signal of the run comes to the thread. */
static struct MHD_Daemon *start_daemon(struct server *s, int listener)
{
    const unsigned polls = MHD_is_feature_supported(MHD_FEATURE_EPOLL) == MHD_YES
                           ? MHD_USE_EPOLL_INTERNAL_THREAD : MHD_USE_POLL_INTERNAL_THREAD;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct MHD_Daemon *const daemon =
        MHD_start_daemon(polls | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, answer_client, s,
                         MHD_OPTION_EXTERNAL_LOGGER, say_nothing, NULL, MHD_OPTION_LISTEN_SOCKET, listener,
                         MHD_OPTION_NOTIFY_COMPLETED, end_call, NULL,
                         MHD_OPTION_CONNECTION_LIMIT, (unsigned)s->place.connections,
                         MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)SERVER_IDLE,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_STRICT_FOR_CLIENT, 1,
                         MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return daemon;
}

enum error_code server_open(struct server **server, struct front *front, const struct api_model *model,
                            const struct server_place *place, struct error *err)
{
    struct server *const s = calloc(1, sizeof *s);
    struct address here;
    socklen_t size = sizeof here.of;
    int listener = -1;
    *server = NULL;
    if (s == NULL) return fail(err, ERR_MEMORY, "no memory for a server");
    *s = (struct server){ .front = front, .model = model, .place = *place };
    s->place.connections = connections_of(place->connections);
    s->here = strncmp(place->host, "127.", 4) == 0 || strcmp(place->host, "::1") == 0;
    const enum error_code e = listen_at(place, &listener, err);
    if (e) return free(s), e;
    if (getsockname(listener, &here.of.any, &size) == 0)
        s->place.port = ntohs(here.of.any.sa_family == AF_INET ? here.of.four.sin_port : here.of.six.sin6_port);
    s->daemon = start_daemon(s, listener);
    if (s->daemon) { *server = s; return OK; }
    close(listener);
    free(s);
    return fail(err, ERR_FILE, "--port %d: the server cannot be started: %s", place->port, strerror(errno));
}

struct server_place server_place_of(const struct server *server) { return server->place; }

void server_close(struct server *server)
{
    if (server == NULL) return;
    MHD_stop_daemon(server->daemon);
    free(server);
}

#endif
