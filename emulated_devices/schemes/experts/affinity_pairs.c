/* affinity_pairs.c -- a table of counts by pairs of tokens, and the list of those that say more than a token alone.
 * model/group_experts.c counts a text's choices with it.  Without memory the code is ERR_MEMORY, and the counts can
 * only be freed. */
#include "emulated_devices/schemes/experts/affinity_pairs.h"
#include <stdlib.h>

enum { FIRST_ROOM = 1 << 10 };
static const int64_t EMPTY = -1;

/* The place of a key, or the empty place where it belongs: the first of both from its hash on. */
static int64_t pair_place(const struct counted_pair *of, int64_t room, int64_t key)
{
    int64_t at = (int64_t)((uint64_t)key * 0x9e3779b97f4a7c15 >> 20) % room;
    while (of[at].key != EMPTY && of[at].key != key) at = (at + 1) % room;
    return at;
}

/* At most half of the places are taken. */
static enum error_code grow(struct pair_counts *counts, struct error *err)
{
    const int64_t room = counts->room > 0 ? 2 * counts->room : FIRST_ROOM;
    struct counted_pair *const of = malloc((size_t)room * sizeof *of);
    if (of == NULL) return fail(err, ERR_MEMORY, "no memory to count %lld pairs of tokens", (long long)room);
    for (int64_t i = 0; i < room; i++) of[i] = (struct counted_pair){ .key = EMPTY };
    for (int64_t i = 0; i < counts->room; i++)
        if (counts->of[i].key != EMPTY) of[pair_place(of, room, counts->of[i].key)] = counts->of[i];
    free(counts->of);
    counts->of = of, counts->room = room;
    return OK;
}

enum error_code pair_counts_add(struct pair_counts *counts, int32_t before, int32_t token, int part,
                                struct error *err)
{
    const int64_t key = before * counts->V + token;
    const enum error_code e = 2 * counts->count < counts->room ? OK : grow(counts, err);
    if (e) return e;
    struct counted_pair *const p = &counts->of[pair_place(counts->of, counts->room, key)];
    if (p->key == EMPTY) {
        uint32_t *const choices = calloc((size_t)counts->parts, sizeof *choices);
        if (choices == NULL) return fail(err, ERR_MEMORY, "no memory to count a pair of tokens");
        *p = (struct counted_pair){ key, choices }, counts->count++;
    }
    p->choices[part]++;
    return OK;
}

/* The part with the largest (choices + PAIR_PRIOR share): of equals the first. */
static int32_t likeliest(const struct pair_counts *counts, const struct counted_pair *pair, const double *share)
{
    int32_t best = 0;
    double most = -1;
    for (int32_t p = 0; p < counts->parts; p++) {
        const double likely = pair->choices[p] + PAIR_PRIOR * share[pair->key % counts->V * counts->parts + p];
        if (likely > most) most = likely, best = p;
    }
    return best;
}

static int compare_pairs(const void *a, const void *b)
{
    const struct affinity_pair *const x = a, *const y = b;
    if (x->before != y->before) return x->before < y->before ? -1 : 1;
    return x->token < y->token ? -1 : x->token > y->token;
}

enum error_code pair_counts_list(const struct pair_counts *counts, const double *share, struct affinity *affinity,
                                 struct error *err)
{
    affinity->pair = malloc(((size_t)counts->count + 1) * sizeof *affinity->pair);
    affinity->pairs = 0;
    if (affinity->pair == NULL)
        return fail(err, ERR_MEMORY, "no memory for a table of %lld pairs", (long long)counts->count);
    for (int64_t i = 0; i < counts->room; i++) {
        const struct counted_pair *const p = &counts->of[i];
        if (p->key == EMPTY) continue;
        const int32_t token = (int32_t)(p->key % counts->V), part = likeliest(counts, p, share);
        if (part != affinity->part[token])
            affinity->pair[affinity->pairs++] =
                (struct affinity_pair){ (int32_t)(p->key / counts->V), token, part };
    }
    qsort(affinity->pair, (size_t)affinity->pairs, sizeof *affinity->pair, compare_pairs);
    return OK;
}

void pair_counts_free(struct pair_counts *counts)
{
    for (int64_t i = 0; i < counts->room; i++) free(counts->of[i].choices);
    free(counts->of);
    *counts = (struct pair_counts){ 0 };
}
