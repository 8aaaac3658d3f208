/* serve_clients.c -- answers clients by HTTP, and says what came of it.  serve.c calls.  Errors: those of server.h,
 * chat.h and live.h; ERR_CHECK if a token is wrong, or cannot be judged. */
#include "emulated_devices/cli/train/serve_clients.h"
#include "emulated_devices/comm/comm.h"
#include "emulated_devices/launch/stopping.h"
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/serve/report.h"
#include "ref/io/figures.h"
#include "ref/io/output.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rank 0's side of clients. */
struct reception {
    struct api_model model;
    struct chat_template *chat;
    struct error no_chat;               /* why there is none */
    struct front *front;
    struct server *server;
    char name[200];                     /* of the model */
};

/* A folder's name, or a preset's. */
static void name_model(struct reception *desk, const struct live_serving *live)
{
    const char *const dir = live->dir && live->dir[0] ? live->dir : live->job->plan->model.name;
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && dir[from - 1] != '/') from--;
    snprintf(desk->name, sizeof desk->name, "%.*s", (int)(n - from), dir + from);
}

/* A template of the command line must be right; without a right one in the model's folder chats are refused. */
static enum error_code find_chat(struct reception *desk, const struct live_serving *live, struct error *err)
{
    char *text = NULL;
    size_t bytes;
    const bool folder = live->dir && live->dir[0];
    enum error_code e = OK;
    snprintf(desk->no_chat.text, sizeof desk->no_chat.text, "model %s has no chat template", desk->name);
    if (live->words->chat) {
        e = file_read_all(live->words->chat, CHAT_TEMPLATE_BYTES, &text, &bytes, err);
        if (!e) e = chat_template_open(&desk->chat, text, live->words->chat, NULL, NULL, err);
        free(text);
        return fail_about(err, e, "--chat-template");
    }
    if (folder) e = chat_template_find(&desk->chat, live->dir, &desk->no_chat);
    if (e == ERR_MEMORY) *err = desk->no_chat;
    return e == ERR_MEMORY ? e : OK;
}

static enum error_code reception_open(struct reception *desk, const struct live_serving *live, struct error *err)
{
    const struct serving_limits *const l = &live->job->limits;
    const struct live_words *const w = live->words;
    const int replicas = live->job->plan->mesh.size[DP];
    const struct front_limits limits = { w->open < replicas ? replicas : w->open, replicas, w->seconds, live->answers,
                                         stopping_asked };
    const struct server_place place = { w->host, w->port, w->connections };
    name_model(desk, live);
    enum error_code e = find_chat(desk, live, err);
    desk->model = (struct api_model){ .name = desk->name, .rules = live->rules, .room = l->blocks * l->block_tokens,
                                      .at_once = l->whole_prompts ? l->step_tokens : 0, .chat = desk->chat,
                                      .no_chat = desk->no_chat.text, .since = time(NULL) };
    stopping_listen(true);
    if (!e) e = front_open(&desk->front, &desk->model, &limits, err);
    return e ? e : server_open(&desk->server, desk->front, &desk->model, &place, err);
}

static void reception_close(struct reception *desk)
{
    server_close(desk->server);
    front_close(desk->front);
    chat_template_close(desk->chat);
}

static void say_where(const struct reception *desk, const struct live_serving *live)
{
    const struct server_place place = server_place_of(desk->server);
    const bool six = strchr(place.host, ':') != NULL;
    say(stdout, 8, "serving %s at http://%s%s%s:%d/v1", desk->name, six ? "[" : "", place.host, six ? "]" : "",
        place.port);
    say(stdout, 8, "        %d requests and %d connections at a time; chats: %s", live->words->open, place.connections,
        desk->chat ? "yes" : desk->no_chat.text);
    fflush(stdout);
}

static void say_clients(const struct front_counts *c)
{
    say(stdout, 8, "served  %lld request%s of clients; %lld left, %lld took too long, %lld %s refused",
        (long long)c->answered, plural(c->answered), (long long)c->left, (long long)c->late, (long long)c->refused,
        c->refused == 1 ? "was" : "were");
    say(stdout, 8, "        %lld token%s of prompts, %lld of answers, %.4g a second", (long long)c->prompt_tokens,
        plural(c->prompt_tokens), (long long)c->tokens, c->seconds > 0 ? (double)c->tokens / c->seconds : 0);
    say(stdout, 8, "        first token after %s on average, %s at most", time_format(c->first_mean).text,
        time_format(c->first_most).text);
}

static void say_replicas(const struct serving_record *record, const struct serving_limits *l)
{
    struct serving_counts all = { .iterations = 0 };
    for (int64_t r = 0; r < record->replicas; r++) {
        const struct serving_counts *const c = &record->replica[r].counts;
        all.iterations += c->iterations, all.preemptions += c->preemptions, all.shared_tokens += c->shared_tokens;
        if (c->most_blocks > all.most_blocks) all.most_blocks = c->most_blocks;
    }
    say(stdout, 8, "cache   %lld blocks of %lld tokens a replica, %s a device; at most %lld used", (long long)l->blocks,
        (long long)l->block_tokens, size_format(record->replica[0].cache_bytes).text, (long long)all.most_blocks);
    say(stdout, 8, "steps   %lld iteration%s, %lld preemption%s, %lld tokens of prompts found in the cache",
        (long long)all.iterations, plural(all.iterations), (long long)all.preemptions, plural(all.preemptions),
        (long long)all.shared_tokens);
}

/* All blocks must be free when nobody is served. */
static enum error_code check_blocks(const struct serving_record *record, const struct serving_limits *l,
                                    struct error *err)
{
    for (int64_t r = 0; r < record->replicas; r++)
        if (record->replica[r].free_blocks != l->blocks)
            return fail(err, ERR_INTERNAL, "replica %lld has %lld of %lld blocks free at the end", (long long)r,
                        (long long)record->replica[r].free_blocks, (long long)l->blocks);
    return OK;
}

static enum error_code tell_end(const struct reception *desk, const struct live_serving *live,
                                const struct serving_record *record, const struct verdict *verdict, struct error *err)
{
    const struct front_counts c = front_counts_of(desk->front);
    const bool exact = live->job->plan->model.exact, judges = live->job->check && c.tokens > 0;
    say_clients(&c);
    say_replicas(record, &live->job->limits);
    serving_proposals_print(live->job, record);
    if (judges) verdict_print(verdict, exact);
    const enum error_code e = check_blocks(record, &live->job->limits, err);
    return e || !judges ? e : verdict_holds(verdict, exact, err);
}

enum error_code serve_clients(struct comm *comm, const struct live_serving *live, struct error *err)
{
    struct reception r = { .chat = NULL };
    struct serving_record record = { 0 };
    struct verdict verdict;
    struct live_front front = { 0 };
    const int replicas = live->job->plan->mesh.size[DP];
    const int64_t slots = live->words->open < replicas ? replicas : live->words->open;
    enum error_code e = comm->rank == 0 ? reception_open(&r, live, err) : OK;
    e = comm_agree(comm, e, err);
    if (!e && comm->rank == 0) front = front_for_devices(r.front), say_where(&r, live);
    if (!e) e = serve_live(comm, live->job, slots, &front, &record, &verdict, err);
    if (!e && comm->rank == 0) e = tell_end(&r, live, &record, &verdict, err);
    reception_close(&r);
    serving_record_free(&record);
    return e;
}
