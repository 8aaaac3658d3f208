/* data.c -- the laws of a data scheme: its three numbers divide, depend on the plan alone, and train as one device.
 *
 * kinds.c lists law_kind_data.  The numbers are asked for 1 to 16 devices.  Errors are ERR_MEMORY.
 */
#include "emulated_devices/verify/plugins/laws.h"
#include <stdio.h>
#include <string.h>

enum { DIVIDES, REPEATS, RANKS, ACCEPTS, TRAINS };
static const struct law data_laws[] = {
    [DIVIDES] = { "divides", "each of w | g | o | P divides the next" },
    [REPEATS] = { "repeats", "equal arguments give the same numbers, and P and rank stay" },
    [RANKS] = { "ranks", "all devices get the same numbers" },
    [ACCEPTS] = { "accepts", "it accepts one device, or two; a refusal has a text" },
    [TRAINS] = { "trains", "training on 2 and 4 devices is that of one device; messages and memory are as stated" },
    { NULL, NULL }
};

enum { MOST_DEVICES = 16 };

/* Ask for the numbers of one device, with --shard-group if that is not 0.  @return whether they were given. */
static bool ask_shares(struct book *book, const struct data_scheme *scheme, int P, int rank, int group,
                       struct shards *to)
{
    const struct data_request request = { .scheme = scheme->head.name, .context = 1, .group = group };
    *to = (struct shards){ .P = P, .rank = rank, .weights = 1, .gradients = 1, .optimizer = 1 };
    law_now(book, ".share for device %d of %d", rank, P);
    const char *const text = scheme->share(to, &request);
    law_judge(book, ACCEPTS, !(text && text[0] == '\0'), "it refuses %d devices with an empty text", P);
    return text == NULL;
}

static bool same_shares(const struct shards *a, const struct shards *b)
{
    return a->weights == b->weights && a->gradients == b->gradients && a->optimizer == b->optimizer
        && a->apart == b->apart;
}

/* @return how many devices were given numbers. */
static int judge_devices(struct book *book, const struct data_scheme *scheme, int P, int group)
{
    struct shards first = { 0 }, now, again;
    struct error err;
    int given = 0;
    for (int rank = 0; rank < P; rank++) {
        const bool here = ask_shares(book, scheme, P, rank, group, &now),
                   twice = ask_shares(book, scheme, P, rank, group, &again);
        law_judge(book, REPEATS, here == twice && same_shares(&now, &again) && now.P == P && now.rank == rank,
                  "device %d of %d gets %d|%d|%d, then %d|%d|%d", rank, P, now.weights, now.gradients, now.optimizer,
                  again.weights, again.gradients, again.optimizer);
        if (rank == 0) first = now, given = here;
        law_judge(book, RANKS, here == (given > 0) && same_shares(&now, &first),
                  "device %d of %d gets %d|%d|%d, device 0 %d|%d|%d", rank, P, now.weights, now.gradients,
                  now.optimizer,
                  first.weights, first.gradients,
                  first.optimizer);
        if (!here) continue;
        now.P = P;
        law_judge(book, DIVIDES, shards_check(&now, &err) == OK, "%d devices: %s", P, err.text);
    }
    return given;
}

static enum error_code judge_data(struct book *book, const struct plugin_item *item, struct error *err)
{
    const struct data_scheme *const scheme = (const struct data_scheme *)item->scheme;
    const char *words[] = { "--model", "tiny", "--data-parallel", scheme->head.name, "--dp", "2", "--batch", "4", NULL,
                            "2", NULL };
    int given[MOST_DEVICES + 1] = { 0 };
    for (int P = 1; P <= MOST_DEVICES; P++) given[P] = judge_devices(book, scheme, P, 0);
    /* A scheme may want to be told how many devices share a copy. */
    const bool wants_group = !given[1] && !given[2];
    for (int P = 2; P <= MOST_DEVICES && wants_group; P += 2) given[P] = judge_devices(book, scheme, P, 2);
    if (wants_group) words[8] = "--shard-group";
    law_judge(book, ACCEPTS, given[1] || given[2], "it refuses one device and two");
    enum error_code e = given[2] ? law_trains(book, TRAINS, words, err) : OK;
    words[5] = "4";
    if (!e && given[4]) e = law_trains(book, TRAINS, words, err);
    if (!given[2] && !given[4]) law_leave_out(book, TRAINS);
    return e;
}

static bool is_data(const struct plugin_item *item) { return item->scheme && item->scheme->kind == DATA_SCHEME; }

static void name_data(const struct plugin_item *item, char name[LAW_NAME])
{
    snprintf(name, LAW_NAME, "%s", item->scheme->name ? item->scheme->name : "without a name");
}

/* Schemes whose copies train apart, or that need a group, are trained by `orrery verify data`. */
static bool built_in_data(int place, struct plugin_item *item)
{
    const struct data_scheme *s;
    for (int i = 0; (s = data_scheme_at(i)) != NULL; i++)
        if (!s->any_shards && !s->outward && s->share != share_replica && place-- == 0)
            return *item = (struct plugin_item){ .scheme = &s->head }, true;
    return false;
}

const struct law_kind law_kind_data = {
    .name = "data", .laws = data_laws, .is = is_data, .names = name_data, .built_in = built_in_data,
    .judge = judge_data,
};
