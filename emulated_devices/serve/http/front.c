/* front.c -- keeps the open requests of clients, and writes the texts of their answers.  server.c and engine_live.c
 * call.  The only error is ERR_MEMORY of front_open; later a request without memory ends with a problem. */
#include "emulated_devices/serve/http/front.h"
#include "ref/text/generate.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct ticket {
    bool used;                          /* by a client, or by the devices */
    bool told, ended, drop;             /* devices have heard of it; they have no part of it; they shall drop it */
    bool done, left, sleeps;            /* the answer is complete; its client has gone; its client sleeps */
    struct api_request asked;
    struct api_answer answer;
    struct sleeper sleeper;
    struct text_stream stream;          /* of its tokens */
    char *text;                         /* [bytes] of the answer, of which `ready` may be sent; owned */
    size_t bytes, room, ready;
    double began;                       /* seconds of the wall */
    const char *problem;                /* why there is no answer */
};

struct front {
    const struct api_model *model;
    struct front_limits limits;
    struct ticket *ticket;              /* [limits.open] */
    struct front_counts counts;
    uint64_t next;                      /* number of the next request, from 1 */
    double busy_since, looked;          /* since when something is open; when clients were last looked after */
    bool ends;
    pthread_mutex_t lock;               /* of all above */
    pthread_cond_t news;                /* a request has come */
};

#define LOOKS 0.1                       /* seconds between looks whether clients have left */

static double wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum error_code front_open(struct front **front, const struct api_model *model, const struct front_limits *limits,
                           struct error *err)
{
    struct front *const f = calloc(1, sizeof *f);
    *front = NULL;
    if (f) f->ticket = calloc((size_t)limits->open, sizeof *f->ticket);
    if (f == NULL || f->ticket == NULL) {
        free(f);
        return fail(err, ERR_MEMORY, "no memory for %lld open requests", (long long)limits->open);
    }
    f->model = model, f->limits = *limits, f->next = 1;
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->news, NULL);
    *front = f;
    return OK;
}

static void ticket_free(struct ticket *ticket)
{
    api_request_free(&ticket->asked);
    text_stream_free(&ticket->stream);
    free(ticket->text);
    *ticket = (struct ticket){ .used = false };
}

void front_close(struct front *front)
{
    if (front == NULL) return;
    for (int64_t i = 0; i < front->limits.open; i++) ticket_free(&front->ticket[i]);
    pthread_cond_destroy(&front->news);
    pthread_mutex_destroy(&front->lock);
    free(front->ticket), free(front);
}

/* ---- texts of answers -------------------------------------------------------------------------------------------- */

static void wake_up(struct ticket *ticket)
{
    if (!ticket->sleeps) return;
    ticket->sleeps = false;
    ticket->sleeper.wake(ticket->sleeper.context);
}

static void end_with(struct ticket *ticket, const char *problem)
{
    ticket->problem = problem, ticket->done = true, ticket->drop = true;
    wake_up(ticket);
}

/* No text of JSON has a NUL here: U+FFFD stands for it. */
static bool ticket_add(struct ticket *ticket, const char *text, size_t bytes)
{
    static const char instead[] = "\xEF\xBF\xBD";
    if (ticket->bytes + 3 * bytes > ticket->room) {
        const size_t room = 2 * (ticket->bytes + 3 * bytes);
        char *const more = realloc(ticket->text, room);
        if (more == NULL) return false;
        ticket->text = more, ticket->room = room;
    }
    for (size_t i = 0; i < bytes; i++) {
        const size_t n = text[i] ? 1 : 3;
        memcpy(ticket->text + ticket->bytes, text[i] ? &text[i] : instead, n);
        ticket->bytes += n;
    }
    return true;
}

static const char *find_bytes(const char *in, size_t bytes, const char *what, size_t n)
{
    for (size_t i = 0; i + n <= bytes; i++)
        if (memcmp(in + i, what, n) == 0) return in + i;
    return NULL;
}

/* Cut the answer before the first text that ends it.  @return whether there is one. */
static bool cut_at_stop(struct ticket *ticket)
{
    const char *first = NULL;
    for (int i = 0; i < ticket->asked.stops; i++) {
        const char *const stop = ticket->asked.stop[i],
                   *const at = find_bytes(ticket->text + ticket->ready, ticket->bytes - ticket->ready, stop,
                                          strlen(stop));
        if (at && (first == NULL || at < first)) first = at;
    }
    if (first) ticket->bytes = (size_t)(first - ticket->text);
    return first != NULL;
}

/* The end of the answer may begin a text that ends it: then it is held back. */
static size_t safe_bytes(const struct ticket *ticket)
{
    size_t safe = ticket->bytes;
    for (int i = 0; i < ticket->asked.stops; i++)
        for (size_t n = strlen(ticket->asked.stop[i]) - 1; n > 0; n--) {
            if (n > ticket->bytes - ticket->ready ||
                memcmp(ticket->text + ticket->bytes - n, ticket->asked.stop[i], n) != 0)
                continue;
            if (ticket->bytes - n < safe) safe = ticket->bytes - n;
            break;
        }
    return safe;
}

/* A token that ends the answer has no text. */
static bool ticket_show(struct ticket *ticket, int32_t token, enum finish finish)
{
    struct text_stream *const s = &ticket->stream;
    struct error err;
    if (finish != FINISH_STOP) {
        if (text_stream_add(s, token, &err)) return false;
        if (!ticket_add(ticket, s->text + s->before, s->shown - s->before)) return false;
    }
    if (finish == NOT_FINISHED || s->text == NULL) return true;
    text_stream_end(s);
    return ticket_add(ticket, s->text + s->before, s->shown - s->before);
}

static void front_token(void *context, int64_t slot, int32_t token, enum finish finish)
{
    struct front *const f = context;
    pthread_mutex_lock(&f->lock);
    struct ticket *const ticket = &f->ticket[slot];
    ticket->ended = ticket->ended || finish != NOT_FINISHED;
    if (!ticket->done && !ticket->left) {
        const double waited = wall_seconds() - ticket->began;
        f->counts.tokens++;
        if (ticket->answer.tokens++ == 0) {
            f->counts.first_mean += waited;
            if (waited > f->counts.first_most) f->counts.first_most = waited;
        }
        if (!ticket_show(ticket, token, finish)) end_with(ticket, "there is no memory, or no text for a token");
        else if (cut_at_stop(ticket))
            ticket->done = ticket->drop = true, ticket->answer.finish = "stop", ticket->ready = ticket->bytes;
        else if (finish != NOT_FINISHED)
            ticket->done = true, ticket->answer.finish = finish == FINISH_STOP ? "stop" : "length",
            ticket->ready = ticket->bytes;
        else ticket->ready = safe_bytes(ticket);
        if (ticket->done && ticket->problem == NULL) f->counts.answered++;
        if (ticket->done || ticket->asked.streams) wake_up(ticket);
    }
    pthread_mutex_unlock(&f->lock);
}

/* ---- news for the devices ---------------------------------------------------------------------------------------- */

static void look_after(struct front *f, struct ticket *ticket, double now, bool looks)
{
    if (ticket->done || ticket->left) return;
    if (now - ticket->began > f->limits.seconds) {
        f->counts.late++;
        end_with(ticket, "the request took longer than this server allows");
    } else if (looks && ticket->sleeps && ticket->sleeper.left(ticket->sleeper.context)) {
        f->counts.left++;
        end_with(ticket, "the client has left");
    }
}

/* @return whether devices have something of this request to do. */
static bool tell_ticket(struct ticket *ticket, int64_t slot, struct live_news *news)
{
    if (!ticket->told && !ticket->done && !ticket->left) {
        ticket->told = true;
        ticket->asked.request.name = NULL;
        news_request(news, slot, &ticket->asked.request);
    }
    if (ticket->told && ticket->drop && !ticket->ended) {
        ticket->ended = true;
        news_leaves(news, slot);
    }
    const bool works = ticket->told && !ticket->ended;
    if (ticket->left && !works) ticket_free(ticket);
    return works;
}

static bool fill_news(struct front *f, struct live_news *news)
{
    const double now = wall_seconds();
    const bool looks = now - f->looked > LOOKS;
    bool works = false;
    if (looks) f->looked = now;
    for (int64_t i = 0; i < f->limits.open; i++) {
        if (!f->ticket[i].used) continue;
        look_after(f, &f->ticket[i], now, looks);
        works |= tell_ticket(&f->ticket[i], i, news);
    }
    if (works && f->busy_since == 0) f->busy_since = now;
    if (!works && f->busy_since > 0) f->counts.seconds += now - f->busy_since, f->busy_since = 0;
    return works;
}

/* Clients that have an answer, and have not read all of it yet. */
static bool clients_read(const struct front *f)
{
    for (int64_t i = 0; i < f->limits.open; i++)
        if (f->ticket[i].used && !f->ticket[i].left) return true;
    return false;
}

static void wait_for_news(struct front *f)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    const double end = (double)until.tv_nsec * 1e-9 + (clients_read(f) ? LOOKS : NEWS_WAIT);
    until.tv_sec += (time_t)end, until.tv_nsec = (long)((end - (double)(time_t)end) * 1e9);
    pthread_cond_timedwait(&f->news, &f->lock, &until);
}

static void front_listen(void *context, struct live_news *news)
{
    struct front *const f = context;
    pthread_mutex_lock(&f->lock);
    const bool asked = f->limits.asked && f->limits.asked();
    if (asked || (f->limits.answers > 0 && f->counts.answered >= f->limits.answers)) f->ends = true;
    if (!fill_news(f, news) && news->count == 0) {
        news->ends = f->ends && !clients_read(f);
        if (!news->ends) {
            wait_for_news(f);
            fill_news(f, news);
        }
    }
    pthread_mutex_unlock(&f->lock);
}

struct live_front front_for_devices(struct front *front)
{
    return (struct live_front){ front, front_listen, front_token };
}

struct front_counts front_counts_of(struct front *front)
{
    pthread_mutex_lock(&front->lock);
    struct front_counts c = front->counts;
    const int64_t first = c.answered + c.left + c.late;
    if (first > 0) c.first_mean /= (double)first;
    pthread_mutex_unlock(&front->lock);
    return c;
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

bool front_ends(struct front *front)
{
    pthread_mutex_lock(&front->lock);
    const bool ends = front->ends;
    pthread_mutex_unlock(&front->lock);
    return ends;
}

uint64_t front_next(struct front *front)
{
    pthread_mutex_lock(&front->lock);
    const uint64_t next = front->next;
    pthread_mutex_unlock(&front->lock);
    return next;
}

void front_refused(struct front *front)
{
    pthread_mutex_lock(&front->lock);
    front->counts.refused++;
    pthread_mutex_unlock(&front->lock);
}

/* A free place of the replica that has the fewest requests. */
static struct ticket *free_ticket(struct front *f)
{
    int64_t best = -1, fewest = INT64_MAX;
    for (int r = 0; r < f->limits.replicas; r++) {
        int64_t used = 0, open = -1;
        for (int64_t i = r; i < f->limits.open; i += f->limits.replicas) {
            if (f->ticket[i].used) used++;
            else if (open < 0) open = i;
        }
        if (open >= 0 && used < fewest) fewest = used, best = open;
    }
    return best < 0 ? NULL : &f->ticket[best];
}

/* The last tokens of the prompt are before the answer: they decide how its first one is written. */
static bool begin_text(struct ticket *ticket, const struct tokenizer *tokenizer)
{
    enum { BEFORE = 8 };
    const struct token_ids *const prompt = &ticket->asked.request.prompt;
    struct error err;
    ticket->stream = (struct text_stream){ .tokenizer = tokenizer };
    for (int64_t i = prompt->count > BEFORE ? prompt->count - BEFORE : 0; i < prompt->count; i++)
        if (text_stream_add(&ticket->stream, prompt->id[i], &err)) return false;
    return true;
}

struct ticket *front_enter(struct front *front, struct api_request *request, const struct sleeper *sleeper)
{
    pthread_mutex_lock(&front->lock);
    struct ticket *const ticket = front->ends ? NULL : free_ticket(front);
    if (ticket) {
        *ticket = (struct ticket){ .used = true, .asked = *request, .sleeper = *sleeper, .began = wall_seconds(),
                              .answer = { .kind = request->kind, .number = front->next++, .created = time(NULL),
                                          .model = front->model->name, .prompt = request->request.prompt.count } };
        *request = (struct api_request){ .stops = 0 };
        front->counts.prompt_tokens += ticket->answer.prompt;
        if (!begin_text(ticket, front->model->rules.tokenizer)) end_with(ticket, "a token of the prompt has no text");
        pthread_cond_signal(&front->news);
    }
    pthread_mutex_unlock(&front->lock);
    return ticket;
}

bool ticket_look(struct front *front, struct ticket *ticket, size_t seen, bool whole, struct ticket_state *state)
{
    pthread_mutex_lock(&front->lock);
    const bool there = ticket->done || (!whole && ticket->ready > seen);
    if (there) {
        *state = (struct ticket_state){ .answer = ticket->answer, .bytes = ticket->ready - seen, .done = ticket->done,
                                        .problem = ticket->problem, .text = malloc(ticket->ready - seen + 1) };
        if (state->text && state->bytes > 0) memcpy(state->text, ticket->text + seen, state->bytes);
        if (state->text == NULL) state->bytes = 0, state->done = true, state->problem = "there is no memory";
    } else ticket->sleeps = true, ticket->sleeper.sleep(ticket->sleeper.context);
    pthread_mutex_unlock(&front->lock);
    return there;
}

void ticket_leave(struct front *front, struct ticket *ticket)
{
    pthread_mutex_lock(&front->lock);
    if (!ticket->done) front->counts.left++;
    ticket->left = ticket->drop = true, ticket->sleeps = false;
    if (!ticket->told || ticket->ended) ticket_free(ticket);
    else pthread_cond_signal(&front->news);
    pthread_mutex_unlock(&front->lock);
}
