/* piper.c -- Piper: stages of one mesh each, by the longest of them; inside a stage each layer chooses its variant by a
 * greedy knapsack.
 *
 * A stage has one mesh, copies times parts of a layer.  Each layer has variants of it: schemes of data parallelism, and
 * recomputation.  The stage begins with the fastest variant of every layer; while it does not fit, the layer changes
 * its variant that loses least time for each byte.  So a plan that fits may be missed, and a faster one as well: the
 * paper proves no more.  Stages follow by dynamic programming over the longest one (longest.c).  The release keeps
 * ceil(copies behind / own copies) microbatches, since its copies have whole ones; here all copies share each
 * microbatch, as the table has it.
 *
 * Apart from pipedream.c: parts of layers, and variants under the memory.  From alpa.c: one mesh in a stage, a
 * knapsack that is no optimum, and the longest stage is all that counts.
 *
 * Source   J. Tarnawski, D. Narayanan, A. Phanishayee, Piper, NeurIPS 2021, sections 4 and 5; msr-fiddle/piper,
 *          algo.cpp
 */
#include "emulated_devices/search/layers/longest.h"
#include "emulated_devices/search/planner.h"
#include <stdlib.h>
#include <string.h>

/* A variant of a kind of layers that takes longer than the one before, and needs less. */
struct variant { int strategy; picoseconds time; uint64_t memory; };

/* A change from a variant to the next: time lost for bytes saved. */
struct change_of_variant { int kind, to; double loss; };

/* A mesh offers these variants with so many microbatches in flight. */
struct knapsack {
    int strategy;                       /* one with the mesh */
    int flight;                         /* microbatches in flight */
    int *first;                         /* [kinds + 1] places of each kind in `variant` */
    struct variant *variant;            /* fastest first */
    struct change_of_variant *change;   /* [changes] least loss first */
    int changes;
};

struct piper {
    const struct layer_table *table;    /* what layers take */
    uint64_t memory;                    /* of a device; 0: no limit */
    struct knapsack *sack;              /* [sacks] that were made */
    int sacks, room;                    /* entries of `sack`, and for how many there is memory */
    int64_t looked;                     /* changes that were tried */
    int *mesh, meshes;                  /* a strategy of each mesh */
    int flights;                        /* microbatches in flight are 1 to this */
    picoseconds *known;                 /* [sizes * flights * layers * layers] of each run; 0: not yet known */
};

/* ---- variants ---------------------------------------------------------------------------------------------------- */

/* Strategies of one stage cut the stream alike, and have one mesh. */
static bool is_variant(const struct strategy *a, const struct strategy *b)
{
    return a->devices == b->devices && a->layout == b->layout && memcmp(a->axis, b->axis, sizeof a->axis) == 0;
}

static int by_time(const void *a, const void *b)
{
    const struct variant *const x = a, *const y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return x->memory < y->memory ? -1 : x->memory > y->memory;
}

static int by_loss(const void *a, const void *b)
{
    const struct change_of_variant *const x = a, *const y = b;
    if (x->loss != y->loss) return x->loss < y->loss ? -1 : 1;
    if (x->kind != y->kind) return x->kind - y->kind;
    return x->to - y->to;
}

/* A layer of this kind; -1: there is none. */
static int layer_of_kind(const struct layer_table *table, int kind)
{
    for (int l = 0; l < table->layers; l++)
        if (table->kind[l] == kind) return l;
    return -1;
}

/* The variants of a kind of which each is slower than the one before and needs less; then no change is worth less than
 * the one after. */
static int put_variants(const struct knapsack *sack, const struct layer_table *table, int kind, struct variant *list)
{
    const int layer = layer_of_kind(table, kind);
    int n = 0, kept = 0;
    for (int s = 0; s < table->strategies && layer >= 0; s++)
        if (is_variant(&table->strategy[s], &table->strategy[sack->strategy]) && layer_cost_of(table, layer, s)->there)
            list[n++] = (struct variant){ s, layer_time(table, layer, s), layer_memory(table, layer, s, sack->flight) };
    qsort(list, (size_t)n, sizeof *list, by_time);
    for (int i = 0; i < n; i++)
        if (kept == 0 || list[i].memory < list[kept - 1].memory) list[kept++] = list[i];
    return kept;
}

static double loss_of(const struct variant *from, const struct variant *to)
{
    return (double)(to->time - from->time) / (double)(from->memory - to->memory);
}

static enum error_code sack_open(struct knapsack *sack, const struct layer_table *table, struct error *err)
{
    const size_t most = (size_t)(table->kinds * table->strategies);
    sack->first = calloc((size_t)table->kinds + 1, sizeof *sack->first);
    sack->variant = calloc(most + 1, sizeof *sack->variant), sack->change = calloc(most + 1, sizeof *sack->change);
    if (!sack->first || !sack->variant || !sack->change)
        return fail(err, ERR_MEMORY, "no memory for the variants of %d kinds of layers", table->kinds);
    for (int k = 0; k < table->kinds; k++) {
        const int first = sack->first[k], n = put_variants(sack, table, k, sack->variant + first);
        double before = 0;
        sack->first[k + 1] = first + n;
        for (int i = 1; i < n; i++) {
            /* A change comes after those before it, also where it alone would lose less. */
            const double loss = loss_of(&sack->variant[first + i - 1], &sack->variant[first + i]);
            before = loss > before ? loss : before;
            sack->change[sack->changes++] = (struct change_of_variant){ k, first + i, before };
        }
    }
    qsort(sack->change, (size_t)sack->changes, sizeof *sack->change, by_loss);
    return OK;
}

static void sack_close(struct knapsack *sack) { free(sack->first), free(sack->variant), free(sack->change); }

/* The mesh's variants with so many microbatches in flight, made when they are first asked for. */
static enum error_code sack_find(struct piper *piper, int strategy, int flight, const struct knapsack **out,
                                 struct error *err)
{
    for (int i = 0; i < piper->sacks; i++)
        if (piper->sack[i].strategy == strategy && piper->sack[i].flight == flight) return *out = &piper->sack[i], OK;
    if (piper->sacks == piper->room) {
        struct knapsack *const more = realloc(piper->sack, (size_t)(piper->room = 2 * piper->room + 32) * sizeof *more);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for %d knapsacks", piper->room);
        piper->sack = more;
    }
    struct knapsack sack = { .strategy = strategy, .flight = flight };
    const enum error_code e = sack_open(&sack, piper->table, err);
    if (e) return sack_close(&sack), e;
    piper->sack[piper->sacks++] = sack;
    return *out = &piper->sack[piper->sacks - 1], OK;
}

/* ---- a stage ----------------------------------------------------------------------------------------------------- */

/* How many layers of each kind have which variant. */
struct stage_fill { picoseconds time; uint64_t memory; int changed; int last; };

/* Fill a stage with the fastest variants, and change them until they fit: `changed` changes for all layers, and the
 * next one for `last` layers.  @return whether they fit. */
static bool fill_stage(struct piper *piper, const struct knapsack *sack, const int *layers, uint64_t cap,
                       struct stage_fill *fill)
{
    *fill = (struct stage_fill){ 0 };
    for (int k = 0; k < piper->table->kinds; k++) {
        if (layers[k] == 0) continue;
        if (sack->first[k] == sack->first[k + 1]) return false;
        const struct variant *const fastest = &sack->variant[sack->first[k]];
        fill->time += layers[k] * fastest->time, fill->memory += (uint64_t)layers[k] * fastest->memory;
    }
    for (; fill->changed < sack->changes && fill->memory > cap; fill->changed++) {
        const struct change_of_variant *const c = &sack->change[fill->changed];
        const struct variant *const to = &sack->variant[c->to], *const from = to - 1;
        const uint64_t saves = from->memory - to->memory, missing = (fill->memory - cap + saves - 1) / saves;
        const int n = missing < (uint64_t)layers[c->kind] ? (int)missing : layers[c->kind];
        fill->time += n * (to->time - from->time), fill->memory -= (uint64_t)n * saves;
        piper->looked++;
        if (n < layers[c->kind]) {
            fill->last = n;
            return true;
        }
    }
    return fill->memory <= cap;
}

/* The fastest mesh of a stage.  @param[out] best  its knapsack; NULL: nothing fits. */
static enum error_code best_mesh(struct piper *piper, int from, int to, int size, int flight,
                                 const struct knapsack **best, struct stage_fill *fill, int *layers, struct error *err)
{
    const struct layer_table *const table = piper->table;
    const uint64_t beside = table->beside[size], cap = piper->memory == 0 ? UINT64_MAX
        : piper->memory > beside ? piper->memory - beside : 0;
    int found = -1;
    *best = NULL;
    memset(layers, 0, (size_t)table->kinds * sizeof *layers);
    for (int l = from; l < to; l++) layers[table->kind[l]]++;
    for (int i = 0; i < piper->meshes; i++) {
        const struct knapsack *sack;
        struct stage_fill now;
        const int s = piper->mesh[i];
        if (table->strategy[s].devices != table->size[size]) continue;
        const enum error_code e = sack_find(piper, s, flight, &sack, err);
        if (e) return e;
        if (fill_stage(piper, sack, layers, cap, &now) && (found < 0 || now.time < fill->time)) *fill = now, found = s;
    }
    return found < 0 ? OK : sack_find(piper, found, flight, best, err);
}

static enum error_code piper_least(void *context, int from, int to, int size, int flight, picoseconds *time,
                                   struct error *err)
{
    struct piper *const piper = context;
    const int L = piper->table->layers;
    picoseconds *const known = &piper->known[((size_t)(size * piper->flights + flight - 1) * (size_t)L + (size_t)from)
                                             * (size_t)L + (size_t)to - 1];
    const struct knapsack *best;
    struct stage_fill fill;
    int layers[LAYERS_MOST];
    if (*known == 0) {
        const enum error_code e = best_mesh(piper, from, to, size, flight, &best, &fill, layers, err);
        if (e) return e;
        *known = best ? fill.time : -1;
    }
    return *time = *known, OK;
}

static enum error_code piper_trace(void *context, int from, int to, int size, int flight, int strategy[],
                                   struct error *err)
{
    struct piper *const piper = context;
    const struct layer_table *const table = piper->table;
    const struct knapsack *best;
    struct stage_fill fill;
    int layers[LAYERS_MOST], variant[LAYERS_MOST];
    const enum error_code e = best_mesh(piper, from, to, size, flight, &best, &fill, layers, err);
    if (e || best == NULL) return e;
    for (int k = 0; k < table->kinds; k++) variant[k] = best->first[k];
    for (int i = 0; i < fill.changed; i++) variant[best->change[i].kind] = best->change[i].to;
    for (int l = from; l < to; l++) strategy[l] = best->variant[variant[table->kind[l]]].strategy;
    for (int l = from, left = fill.last; l < to && left > 0; l++) {
        const struct change_of_variant *const c = &best->change[fill.changed];
        if (table->kind[l] == c->kind) strategy[l] = best->variant[c->to].strategy, left--;
    }
    return OK;
}

/* ---- the planner ------------------------------------------------------------------------------------------------- */

static enum error_code piper_open(struct piper *piper, const struct layer_search *search, struct error *err)
{
    const struct layer_table *const table = search->table;
    const int flights = table->layers < STAGES_MOST ? table->layers : STAGES_MOST;
    *piper = (struct piper){ .table = table, .memory = search->memory,
                             .flights = flights < table->micros ? flights : table->micros };
    piper->mesh = calloc((size_t)table->strategies, sizeof *piper->mesh);
    piper->known = calloc((size_t)(table->sizes * piper->flights) * (size_t)(table->layers * table->layers),
                          sizeof *piper->known);
    if (!piper->mesh || !piper->known)
        return fail(err, ERR_MEMORY, "no memory for the stages of %d layers", table->layers);
    for (int s = 0; s < table->strategies; s++) {
        bool first = true;
        for (int i = 0; i < s && first; i++) first = !is_variant(&table->strategy[i], &table->strategy[s]);
        if (first) piper->mesh[piper->meshes++] = s;
    }
    return OK;
}

static void piper_close(struct piper *piper)
{
    for (int i = 0; i < piper->sacks; i++) sack_close(&piper->sack[i]);
    free(piper->sack), free(piper->mesh), free(piper->known);
}

static enum error_code piper_solve(struct layer_search *search, struct error *err)
{
    struct piper piper;
    const struct stage_rule rule = { &piper, piper_least, piper_trace };
    if (search->table->link)
        return fail(err, ERR_PLAN, "--planner piper: the table is a graph; its layers must follow each other; "
                    "tensoropt and mindspore take graphs");
    enum error_code e = piper_open(&piper, search, err);
    if (!e) e = longest_solve(search, &rule, err);
    piper_close(&piper);
    search->looked += piper.looked;
    return e;
}

const struct planner planner_piper = {
    .name = "piper", .description = "stages of one mesh by the longest, variants of layers by a greedy knapsack",
    .source = "J. Tarnawski, D. Narayanan, A. Phanishayee, Piper, NeurIPS 2021",
    .promise = "nothing: it is a heuristic for the time of a step",
    .solve = piper_solve, .exact_of = LAYERS_NONE,
};
