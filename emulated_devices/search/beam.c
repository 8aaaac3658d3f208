/* beam.c -- the planner that improves a few promising plans, a dimension at a time.
 *
 * Every mesh, with a few numbers of microbatches, is estimated with the first scheme of each kind.  From the most
 * promising on, each is improved: of every dimension, all values are looked at, and the best is taken, until none is
 * better.  A plan that does not fit is worse than one that does, and the worse the more it lacks.  It ends when WIDTH
 * plans have been improved that fit.  What was looked at on the way is ranked with the rest.
 *
 * Source   local search from the best of many starts, a beam: B. Lowerre, "The HARPY speech recognition system", 1976.
 * Cost     some hundred estimates for each of WIDTH plans, and a few for each mesh; an exhaustive search needs the
 *          product of all dimensions.
 *
 * cli/train/search.c runs the planner by its table in planners.c; test_search.c holds it against the exhaustive
 * one.  The result are the candidates in the search; errors are ERR_MEMORY and those of search_lacks.
 */
#include "emulated_devices/search/planner.h"
#include <stdlib.h>

/* A start climbs at most ROUNDS rounds.  No more than MOST_IMPROVED starts are improved, unless none of them fits. */
enum { WIDTH = 8, MOST_IMPROVED = 40, ROUNDS = 4 };

/* A plan as far as it is known. */
struct standing { struct choice choice; uint64_t lacks; picoseconds estimate; bool legal; };

/* Legal plans come before illegal ones, then plans that lack less memory, then faster ones. */
static bool better(const struct standing *a, const struct standing *b)
{
    if (a->legal != b->legal) return a->legal;
    if (a->lacks != b->lacks) return a->lacks < b->lacks;
    return a->estimate < b->estimate;
}

/* Look at a choice: from now on it is among the candidates.  Nobody asks how much memory a choice lacks if it is
 * worse than a plan that fits in any case. */
static enum error_code beam_look(struct search *search, struct standing *at, const struct standing *best,
                                 struct error *err)
{
    /* A choice that was looked at before keeps its estimate, so nothing is computed twice. */
    int place = search_find(search, &at->choice);
    struct plan p;
    at->legal = place >= 0 || plan_space_make(search->space, &at->choice, &p);
    if (!at->legal) return OK;
    const enum error_code e = place < 0 ? search_add(search, &p, &at->choice, true, &place, err) : OK;
    if (e) return e;
    at->lacks = 0, at->estimate = search->of[place].estimate > 0 ? search->of[place].estimate : INT64_MAX;
    if (best && best->legal && best->lacks == 0 && at->estimate >= best->estimate) return OK;
    return search_lacks(search, place, &at->lacks, err);
}

/* Try every value of a dimension; of a schedule, with every number of stages. */
static enum error_code try_values(struct search *search, struct standing *best, const struct standing *from,
                                  enum dimension dimension, struct error *err)
{
    struct plan p;
    enum error_code e = OK;
    if (!plan_space_make(search->space, &from->choice, &p)) p = *search->space->base;
    for (enum dimension before = BY_MESH; before < dimension; before++)
        plan_space_set(search->space, before, &p, from->choice.value[before]);
    for (int i = 0; i < plan_space_values(search->space, dimension, &p) && !e; i++) {
        struct standing new = *from;
        new.choice.value[dimension] = i;
        /* A schedule says how many chunks a device may have, so both are tried together. */
        if (dimension == BY_SCHEDULE) {
            struct plan q = p;
            new.choice.value[BY_CHUNKS] = 0;
            if (plan_space_set(search->space, dimension, &q, i)) e = try_values(search, best, &new, BY_CHUNKS, err);
            continue;
        }
        e = beam_look(search, &new, best, err);
        if (!e && better(&new, best)) *best = new;
    }
    return e;
}

/* Improve a plan in up to ROUNDS rounds.  In a round every dimension but the mesh takes its best value, in turn. */
static enum error_code improve(struct search *search, struct standing *at, struct error *err)
{
    enum error_code e = OK;
    for (int round = 0; round < ROUNDS && !e; round++) {
        const struct standing before = *at;
        for (enum dimension d = BY_MICROS; d < DIMENSION_COUNT && !e; d++) {
            const struct standing from = *at;
            e = try_values(search, at, &from, d, err);
        }
        /* A round that helps nothing ends the climb: no single dimension can be improved. */
        if (!better(at, &before)) break;
    }
    return e;
}

/* ---- where to start ---------------------------------------------------------------------------------------------- */

/* Set every later dimension to its first value that is wanted. */
static void first_values(const struct plan_space *space, struct choice *choice, enum dimension from)
{
    struct plan p = *space->base;
    for (enum dimension d = BY_MESH; d < DIMENSION_COUNT; d++) {
        for (int i = 0; d >= from && i < plan_space_values(space, d, &p); i++) {
            struct plan q = p;
            choice->value[d] = i;
            if (plan_space_set(space, d, &q, i)) break;
        }
        plan_space_set(space, d, &p, choice->value[d]);
    }
}

/* Take the first value of a dimension with which the choice is legal; only the improvement asks which is best. */
static bool change_to_legal(const struct plan_space *space, struct choice *choice, enum dimension dimension)
{
    struct choice tried = *choice;
    struct plan p = *space->base;
    /* Dimensions before d are fixed, since the values of d depend on them. */
    for (enum dimension before = BY_MESH; before < dimension; before++)
        plan_space_set(space, before, &p, choice->value[before]);
    for (int i = 0; i < plan_space_values(space, dimension, &p); i++) {
        struct plan q;
        tried.value[dimension] = i;
        if (plan_space_make(space, &tried, &q)) return *choice = tried, true;
    }
    return false;
}

/* A mesh's start: if the first schemes cannot be combined, the first that can, changing one of them. */
static enum error_code start_with(struct search *search, struct standing *at, struct error *err)
{
    enum error_code e = OK;
    first_values(search->space, &at->choice, BY_RECOMPUTE);
    e = beam_look(search, at, NULL, err);
    for (enum dimension d = BY_TENSOR; d < DIMENSION_COUNT && !e && !at->legal; d++)
        if (change_to_legal(search->space, &at->choice, d)) e = beam_look(search, at, NULL, err);
    return e;
}

/* These numbers of microbatches are tried: the first with a microbatch for each stage, with four, and the most. */
static int numbers_of_micros(const struct plan_space *space, const struct plan *mesh, int value[3])
{
    const int pp = mesh->mesh.size[PP], least[] = { pp, 4 * pp };
    const int values = plan_space_values(space, BY_MICROS, mesh);
    int n = 0, last = -1;
    for (int i = 0; i < values; i++) {
        struct plan p = *mesh;
        if (!plan_space_set(space, BY_MICROS, &p, i)) continue;
        last = i;
        if (n < 2 && p.micros >= least[n]) value[n++] = i;
    }
    if (last >= 0 && (n == 0 || value[n - 1] != last)) value[n++] = last;
    return n;
}

/* Starts with the smallest estimate come first; equal ones are in the order of the space, so runs are alike. */
static int most_promising(const void *a, const void *b)
{
    const struct standing *x = a, *y = b;
    if (x->estimate != y->estimate) return x->estimate < y->estimate ? -1 : 1;
    for (int d = 0; d < DIMENSION_COUNT; d++)
        if (x->choice.value[d] != y->choice.value[d]) return x->choice.value[d] < y->choice.value[d] ? -1 : 1;
    return 0;
}

/* Make a start for each mesh and each of its numbers of microbatches.  The array has room for three of each mesh. */
static enum error_code starts_of(struct search *search, struct standing *start, int *count, struct error *err)
{
    enum error_code e = OK;
    for (int m = 0; m < search->space->meshes && !e; m++) {
        struct plan p = *search->space->base;
        int value[3];
        plan_space_set(search->space, BY_MESH, &p, m);
        const int n = numbers_of_micros(search->space, &p, value);
        for (int i = 0; i < n && !e; i++) {
            struct standing at = { .choice.value = { [BY_MESH] = m, [BY_MICROS] = value[i] } };
            e = start_with(search, &at, err);
            if (!e && at.legal) start[(*count)++] = at;
        }
    }
    return e;
}

/* Make all starts, sort them by estimate, and improve the first ones until WIDTH plans fit. */
static enum error_code beam_choose(struct search *search, struct error *err)
{
    struct standing *start = calloc(3 * (size_t)search->space->meshes + 1, sizeof *start);
    int count = 0, good = 0;
    if (start == NULL) return fail(err, ERR_MEMORY, "no memory for %d meshes", search->space->meshes);
    enum error_code e = starts_of(search, start, &count, err);
    qsort(start, (size_t)count, sizeof *start, most_promising);
    /* The most promising starts are improved, until WIDTH of them fit. */
    for (int i = 0; i < count && i < MOST_IMPROVED && good < WIDTH && !e; i++) {
        e = improve(search, &start[i], err);
        good += start[i].legal && start[i].lacks == 0;
    }
    for (int i = MOST_IMPROVED; i < count && good == 0 && !e; i++) {    /* what fits may promise least */
        e = improve(search, &start[i], err);
        good += start[i].legal && start[i].lacks == 0;
    }
    free(start);
    return e;
}

const struct planner planner_beam = {
    .name = "beam", .description = "the most promising meshes, improved a dimension at a time",
    .source = "B. Lowerre, The HARPY speech recognition system, 1976",
    .promise = "no change of one dimension of it has a better estimate",
    .most = 32, .choose = beam_choose,
};
