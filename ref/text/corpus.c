#include "ref/text/corpus.h"
#include "ref/numeric/permutation.h"
#include "ref/numeric/philox.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parts of a group follow each other. */
static enum error_code make_groups(struct corpus *c, const char *use, struct error *err)
{
    for (int i = 0; i < c->parts; i++) {
        struct corpus_part *p = &c->part[i];
        const bool begins = i == 0 || p->share > 0;
        struct corpus_group *g = &c->group[c->groups - !begins];
        if (begins) {
            char name[64];
            snprintf(name, sizeof name, "windows of group %d for %s", c->groups++, use);
            *g = (struct corpus_group){ .part = i, .share = p->share > 0 ? p->share : 1,
                                        .stream = random_stream(name) };
        }
        /* A window has S tokens, and one more as the last label. */
        p->windows = p->count > 0 ? (p->count - 1) / c->S : 0;
        p->before = g->windows;
        g->windows += p->windows, g->parts++;
        c->windows += p->windows;
    }
    for (int i = 0; i < c->groups; i++) {
        const struct corpus_part *p = &c->part[c->group[i].part];
        if (c->group[i].windows == 0)
            return fail(err, ERR_USAGE, "%s: has %lld tokens for %s (of %lld), sequences of %lld need at least %lld",
                        p->file->name, (long long)p->count, use, (long long)p->file->count, (long long)c->S,
                        (long long)c->S + 1);
    }
    return OK;
}

static void take_turns(struct corpus *c)
{
    for (int r = 0; r < c->period; r++) {
        int next = 0;
        int64_t most = INT64_MIN;
        for (int g = 0; g < c->groups; g++) {
            const int64_t behind = (int64_t)c->group[g].share * (r + 1) - (int64_t)c->period * c->group[g].taken;
            if (behind > most) most = behind, next = g;
        }
        c->turn[r] = (struct corpus_turn){ next, c->group[next].taken++ };
    }
}

static enum error_code make_turns(struct corpus *c, struct error *err)
{
    int64_t period = 0;
    for (int g = 0; g < c->groups; g++) period += c->group[g].share;
    if (period > CORPUS_MOST_PERIOD)
        return fail(err, ERR_USAGE, "weights are shares of %lld sequences; at most %d: take rounder ones",
                    (long long)period, CORPUS_MOST_PERIOD);
    c->period = (int)period;
    c->turn = malloc((size_t)period * sizeof *c->turn);
    if (c->turn == NULL) return fail(err, ERR_MEMORY, "no memory for the turns of %lld sequences", (long long)period);
    take_turns(c);
    return OK;
}

enum error_code corpus_open(struct corpus *c, const struct corpus_part *part, int n, int64_t S, uint64_t seed,
                            const char *use, struct error *err)
{
    assert(n >= 1 && S >= 1);
    *c = (struct corpus){ .part = malloc((size_t)n * sizeof *part), .parts = n, .S = S, .seed = seed,
                          .group = calloc((size_t)n, sizeof *c->group) };
    enum error_code e = c->part && c->group ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d files", n);
    if (!e) memcpy(c->part, part, (size_t)n * sizeof *part);
    if (!e) e = make_groups(c, use, err);
    if (!e) e = make_turns(c, err);
    if (e) corpus_close(c);
    return e;
}

void corpus_close(struct corpus *c)
{
    free(c->part), free(c->group), free(c->turn);
    *c = (struct corpus){ 0 };
}

int64_t corpus_window(const struct corpus *c, int64_t n, int *part)
{
    const struct corpus_turn turn = c->turn[n % c->period];
    const struct corpus_group *g = &c->group[turn.group];
    const int64_t nth = n / c->period * g->share + turn.taken, pass = nth / g->windows;
    const int64_t w = permutation_item(nth % g->windows, g->windows, c->seed, g->stream, (uint64_t)pass);
    int at = g->part + g->parts - 1;
    while (c->part[at].before > w) at--;
    *part = at;
    return c->part[at].first + (w - c->part[at].before) * c->S;
}

void corpus_fill(const struct corpus *c, int64_t n, int64_t count, int32_t *inputs, int32_t *labels)
{
    for (int64_t i = 0; i < count; i++) {
        int part;
        const int64_t from = corpus_window(c, n + i, &part);
        const struct token_file *f = c->part[part].file;
        for (int64_t s = 0; s < c->S; s++) {
            inputs[i * c->S + s] = token_file_get(f, from + s);
            labels[i * c->S + s] = token_file_get(f, from + s + 1);
        }
    }
}
