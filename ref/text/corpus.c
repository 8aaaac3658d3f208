/* corpus.c -- mixes files of tokens in given shares, and cuts windows of S tokens out of them.
 *
 * train/data/ calls this file.  Errors are ERR_USAGE (too few tokens, shares that are too fine) and ERR_MEMORY;
 * after a failure there is nothing to close.  Sequence n depends on n and the seed only, so every device finds it
 * without messages.
 */
#include "ref/text/corpus.h"
#include "ref/numeric/permutation.h"
#include "ref/numeric/philox.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Parts of a group follow each other. */
static enum error_code make_groups(struct corpus *corpus, const char *use, struct error *err)
{
    for (int i = 0; i < corpus->parts; i++) {
        struct corpus_part *p = &corpus->part[i];
        const bool begins = i == 0 || p->share > 0;
        struct corpus_group *g = &corpus->group[corpus->groups - !begins];
        if (begins) {
            char name[64];
            snprintf(name, sizeof name, "windows of group %d for %s", corpus->groups++, use);
            *g = (struct corpus_group){ .part = i, .share = p->share > 0 ? p->share : 1,
                                        .stream = random_stream(name) };
        }
        /* A window has S tokens, and one more as the last label. */
        p->windows = p->count > 0 ? (p->count - 1) / corpus->S : 0;
        p->before = g->windows;
        g->windows += p->windows, g->parts++;
        corpus->windows += p->windows;
    }
    for (int i = 0; i < corpus->groups; i++) {
        const struct corpus_part *p = &corpus->part[corpus->group[i].part];
        if (corpus->group[i].windows == 0)
            return fail(err, ERR_USAGE, "%s: has %lld tokens for %s (of %lld), sequences of %lld need at least %lld",
                        p->file->name, (long long)p->count, use, (long long)p->file->count, (long long)corpus->S,
                        (long long)corpus->S + 1);
    }
    return OK;
}

/* Each turn goes to the group that is furthest behind its share, of equals to the first. */
static void take_turns(struct corpus *corpus)
{
    for (int r = 0; r < corpus->period; r++) {
        int next = 0;
        int64_t most = INT64_MIN;
        for (int g = 0; g < corpus->groups; g++) {
            const int64_t behind = (int64_t)corpus->group[g].share * (r + 1) - (int64_t)corpus->period
                * corpus->group[g].taken;
            if (behind > most) most = behind, next = g;
        }
        corpus->turn[r] = (struct corpus_turn){ next, corpus->group[next].taken++ };
    }
}

/* After `period` turns each group has had exactly its share. */
static enum error_code make_turns(struct corpus *corpus, struct error *err)
{
    int64_t period = 0;
    for (int g = 0; g < corpus->groups; g++) period += corpus->group[g].share;
    if (period > CORPUS_MOST_PERIOD)
        return fail(err, ERR_USAGE, "weights are shares of %lld sequences; at most %d: take rounder ones",
                    (long long)period, CORPUS_MOST_PERIOD);
    corpus->period = (int)period;
    corpus->turn = malloc((size_t)period * sizeof *corpus->turn);
    if (corpus->turn == NULL)
        return fail(err, ERR_MEMORY, "no memory for the turns of %lld sequences", (long long)period);
    take_turns(corpus);
    return OK;
}

enum error_code corpus_open(struct corpus *corpus, const struct corpus_part *part, int n, int64_t S, uint64_t seed,
                            const char *use, struct error *err)
{
    assert(n >= 1 && S >= 1);
    *corpus = (struct corpus){ .part = malloc((size_t)n * sizeof *part), .parts = n, .S = S, .seed = seed,
                          .group = calloc((size_t)n, sizeof *corpus->group) };
    enum error_code e = corpus->part && corpus->group ? OK
        : fail(err, ERR_MEMORY, "no memory for a list of %d files", n);
    if (!e) memcpy(corpus->part, part, (size_t)n * sizeof *part);
    if (!e) e = make_groups(corpus, use, err);
    if (!e) e = make_turns(corpus, err);
    if (e) corpus_close(corpus);
    return e;
}

void corpus_close(struct corpus *corpus)
{
    free(corpus->part), free(corpus->group), free(corpus->turn);
    *corpus = (struct corpus){ 0 };
}

/* The nth window of a group: every pass over its windows has another order, drawn by the seed. */
int64_t corpus_window(const struct corpus *corpus, int64_t n, int *part)
{
    const struct corpus_turn turn = corpus->turn[n % corpus->period];
    const struct corpus_group *g = &corpus->group[turn.group];
    const int64_t nth = n / corpus->period * g->share + turn.taken, pass = nth / g->windows;
    const int64_t w = permutation_item(nth % g->windows, g->windows, corpus->seed, g->stream, (uint64_t)pass);
    int at = g->part + g->parts - 1;
    while (corpus->part[at].before > w) at--;
    *part = at;
    return corpus->part[at].first + (w - corpus->part[at].before) * corpus->S;
}

/* inputs [count, S] and labels [count, S]: a label is the token after its input. */
void corpus_fill(const struct corpus *corpus, int64_t n, int64_t count, int32_t *inputs, int32_t *labels)
{
    for (int64_t i = 0; i < count; i++) {
        int part;
        const int64_t from = corpus_window(corpus, n + i, &part);
        const struct token_file *f = corpus->part[part].file;
        for (int64_t s = 0; s < corpus->S; s++) {
            inputs[i * corpus->S + s] = token_file_get(f, from + s);
            labels[i * corpus->S + s] = token_file_get(f, from + s + 1);
        }
    }
}
