/* attention.c -- the laws of an attention scheme: its cut is a partition, and training with it is that of one device.
 *
 * kinds.c lists law_kind_attention.  Cuts are asked for sequences of many lengths on 1 to 9 devices.  Errors are
 * ERR_MEMORY.
 */
#include "emulated_devices/plan/plan.h"
#include "emulated_devices/verify/plugins/laws.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTITION, ASCENDS, NOBODY_EMPTY, REPEATS, ACCEPTS, TRAINS };
static const struct law attention_laws[] = {
    [PARTITION] = { "partition", "each token of a sequence is on exactly one device" },
    [ASCENDS] = { "ascends", "a device's tokens are in ascending order, and inside the sequence" },
    [NOBODY_EMPTY] = { "share", "each device has a token, unless .refuses refuses" },
    [REPEATS] = { "repeats", "equal arguments give the same cut" },
    [ACCEPTS] = { "accepts", ".refuses always gives the same answer, and accepts one device or two" },
    [TRAINS] = { "trains", "training on 2 and 3 devices is that of one device; messages and memory are as stated" },
    { NULL, NULL }
};

enum { MOST_DEVICES = 9, MOST_TOKENS = 130 };

/* Read one member's tokens, as a list for intervals_free. */
static struct intervals cut_of(struct book *book, const struct context_parallel *cp, int member)
{
    struct intervals tokens = { 0 };
    law_now(book, ".cut of %lld tokens for device %d of %d", (long long)cp->S, member, cp->devices);
    cp->scheme->cut(&tokens, cp, member);
    return tokens;
}

static bool same_cut(const struct intervals *a, const struct intervals *b)
{
    if (a->count != b->count) return false;
    for (int i = 0; i < a->count; i++)
        if (!interval_equal(a->at[i], b->at[i])) return false;
    return true;
}

/* Count how many devices have each token.  Those outside the sequence are not counted. */
static void judge_member(struct book *book, const struct context_parallel *cp, int member, int holders[])
{
    struct intervals tokens = cut_of(book, cp, member), again = cut_of(book, cp, member);
    const long long S = cp->S;
    int64_t end = 0;
    law_judge(book, REPEATS, same_cut(&tokens, &again), "%lld tokens, %d devices: device %d gets other tokens the "
              "second time", S, cp->devices, member);
    for (int i = 0; i < tokens.count; i++) {
        const struct interval t = tokens.at[i];
        law_judge(book, ASCENDS, t.first >= end && t.count > 0 && interval_end(t) <= cp->S,
                  "%lld tokens, %d devices: device %d has %lld to %lld after %lld", S, cp->devices, member,
                  (long long)t.first, (long long)interval_end(t) - 1, (long long)end - 1);
        end = interval_end(t);
        for (int64_t k = t.first; k < interval_end(t); k++)
            if (k >= 0 && k < cp->S) holders[k]++;
    }
    law_judge(book, NOBODY_EMPTY, intervals_total(&tokens) > 0, "%lld tokens, %d devices: device %d has none, and "
              ".refuses does not refuse", S, cp->devices, member);
    intervals_free(&tokens), intervals_free(&again);
}

static void judge_cut(struct book *book, const struct context_parallel *cp)
{
    int holders[MOST_TOKENS] = { 0 };
    for (int member = 0; member < cp->devices; member++) judge_member(book, cp, member, holders);
    for (int64_t k = 0; k < cp->S; k++)
        law_judge(book, PARTITION, holders[k] == 1, "%lld tokens, %d devices: token %lld is on %d devices",
                  (long long)cp->S, cp->devices, (long long)k, holders[k]);
}

/* The share of a plan: the usual model, cut over `devices`.  @return false: the plan cannot be asked. */
static bool refuses_here(struct book *book, struct context_parallel *cp, const struct model_config *config)
{
    law_now(book, ".refuses of %lld tokens on %d devices", (long long)cp->S, cp->devices);
    const char *const first = cp->scheme->refuses(cp, config), *const second = cp->scheme->refuses(cp, config);
    law_judge(book, ACCEPTS, !first == !second && !(first && first[0] == '\0'), "%lld tokens, %d devices: .refuses "
              "answers differently the second time, or with an empty text", (long long)cp->S, cp->devices);
    law_judge(book, ACCEPTS, !(first && cp->devices == 1), "it refuses a single device: %s", first ? first : "");
    return first != NULL;
}

static int judge_cuts(struct book *book, const struct attention_scheme *scheme)
{
    static const int64_t lengths[] = { 1, 2, 3, 7, 8, 9, 16, 31, 33, 64, 65, 96, 129 };
    int asked = 0;
    for (int devices = 1; devices <= MOST_DEVICES; devices++)
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            const struct model_config config = { .name = "laws", .L = 1, .D = 24, .H = 6, .K = 6, .A = 4, .V = 7,
                                                 .F = 8, .S = lengths[i] };
            const struct heads heads = { .queries = { 0, 6 }, .keys = { 0, 6 }, .copies = 1 };
            struct tensor_parallel tp = { .config = &config };
            struct context_parallel cp = { .scheme = scheme, .tp = &tp, .heads = &heads, .devices = devices,
                                           .split = { .heads = 1, .window = devices }, .S = lengths[i], .streams = 1 };
            tensor_scheme_find(&tp.scheme, "1d", NULL);
            tensor_share(&tp, 1, 0);
            if (refuses_here(book, &cp, &config)) continue;
            judge_cut(book, &cp);
            asked += devices > 1;
        }
    return asked;
}

static enum error_code judge_attention(struct book *book, const struct plugin_item *item, struct error *err)
{
    const struct attention_scheme *const scheme = (const struct attention_scheme *)item->scheme;
    const char *const two[] = { "--model", "tiny", "--attention", scheme->head.name, "--cp", "2", "--batch", "2",
                                NULL };
    const char *const three[] = { "--model", "tiny", "--attention", scheme->head.name, "--cp", "3", "--batch", "2",
                                  "--seq", "31", NULL };
    if (scheme->cut)
        law_judge(book, ACCEPTS, judge_cuts(book, scheme) > 0, "it refuses every sequence on 2 to %d devices",
                  MOST_DEVICES);
    else for (int law = 0; law < TRAINS; law++) law_leave_out(book, law);
    const enum error_code e = law_trains(book, TRAINS, two, err);
    return e ? e : law_trains(book, TRAINS, three, err);
}

static bool is_attention(const struct plugin_item *item)
{
    return item->scheme && item->scheme->kind == ATTENTION_SCHEME;
}

static void name_attention(const struct plugin_item *item, char name[LAW_NAME])
{
    snprintf(name, LAW_NAME, "%s", item->scheme->name ? item->scheme->name : "without a name");
}

/* Schemes that cut streams, or plan by samples, are not cut by the lengths that this file asks. */
static bool built_in_attention(int place, struct plugin_item *item)
{
    const struct attention_scheme *s;
    for (int i = 0; (s = attention_scheme_at(i)) != NULL; i++)
        if (s->cut && !s->cuts_streams && i > 0 && place-- == 0)
            return *item = (struct plugin_item){ .scheme = &s->head }, true;
    return false;
}

const struct law_kind law_kind_attention = {
    .name = "attention", .laws = attention_laws, .is = is_attention, .names = name_attention,
    .built_in = built_in_attention, .judge = judge_attention,
};
