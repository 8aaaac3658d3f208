/* beam.c -- the planner that improves a few promising plans, a dimension at a time.
 *
 * Every mesh, with a few numbers of microbatches, is estimated with the first scheme of each kind.  From the most
 * promising on, each is improved: of every dimension, all values are looked at, and the best is taken, until none is
 * better.  A plan that does not fit is worse than one that does, and the worse the more it lacks.  It ends when WIDTH
 * plans have been improved that fit.  What was looked at on the way is ranked with the rest.  Usual meshes come first,
 * and the best starts so far are improved on the way, so that a search that ends early has an answer.
 *
 * Source   local search from the best of many starts, a beam: B. Lowerre, "The HARPY speech recognition system", 1976.
 * Cost     some hundred estimates for each of WIDTH plans, and a few for each mesh; an exhaustive search needs the
 *          product of all dimensions.
 *
 * cli/train/search.c runs the planner by its table in planners.c; test_search.c holds it against the exhaustive
 * one.  The result are the candidates in the search; errors are ERR_MEMORY and those of search_lacks.
 */
#include "emulated_devices/plan/plan.h"
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
    enum error_code e = place < 0 ? search_add(search, &p, &at->choice, !search->only_memory, &place, err) : OK;
    if (e) return e;
    at->lacks = 0, at->estimate = search->of[place].estimate > 0 ? search->of[place].estimate : INT64_MAX;
    if (best && best->legal && best->lacks == 0 && at->estimate >= best->estimate) return OK;
    e = search_lacks(search, place, &at->lacks, err);
    if (search->only_memory) at->lacks = search->of[place].least;
    return e;
}

/* These are tried together with the dimension behind them, whose values a scheme decides: how many chunks a device may
 * have, how cp is split, and who shares states.  Otherwise a scheme would be judged by the first of these values. */
static bool is_outer(enum dimension dimension)
{
    return dimension == BY_SCHEDULE || dimension == BY_ATTENTION || dimension == BY_DATA;
}

/* Try every value of a dimension, and with a scheme every arrangement of its devices. */
static enum error_code try_values(struct search *search, struct standing *best, const struct standing *from,
                                  enum dimension dimension, struct error *err)
{
    struct plan p;
    enum error_code e = OK;
    if (!plan_space_make(search->space, &from->choice, &p)) p = *search->space->base;
    for (enum dimension before = BY_MESH; before < dimension; before++)
        plan_space_set(search->space, before, &p, from->choice.value[before]);
    for (int i = 0; i < plan_space_values(search->space, dimension, &p) && !e && !search_ends(search); i++) {
        struct standing new = *from;
        new.choice.value[dimension] = i;
        if (is_outer(dimension)) {
            struct plan q = p;
            new.choice.value[dimension + 1] = 0;
            if (!plan_space_set(search->space, dimension, &q, i)) continue;
            if (plan_space_values(search->space, dimension + 1, &q) > 1) {
                e = try_values(search, best, &new, dimension + 1, err);
                continue;
            }
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
        for (enum dimension d = BY_MICROS; d < DIMENSION_COUNT && !e && !search_ends(search); d++) {
            const struct standing from = *at;
            e = try_values(search, at, &from, d, err);
        }
        /* A round that helps nothing ends the climb: no single dimension can be improved. */
        if (!better(at, &before)) break;
    }
    return e;
}

static void beam_tell(const struct search *search, const char *doing, double part)
{
    if (search->tell) search->tell(search->context, doing, part);
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

/* ---- the order of meshes ----------------------------------------------------------------------------------------- */

struct placed_mesh { int64_t oddity; int mesh; };

/* How far a mesh is from what is usual: whole sequences, tensor parallelism as wide as a node, few stages. */
static int64_t mesh_oddity(const struct plan_space *space, const struct arrangement *mesh)
{
    const struct cluster *c = space->base->cluster;
    const int inside = c && c->levels > 1 ? c->link[c->levels - 2].devices : space->devices;
    const int tp = mesh->size[TP], away = tp > inside ? tp / inside : inside / tp;
    return (int64_t)mesh->size[CP] * 1000000 + (int64_t)away * (tp > inside ? 100000 : 100) + mesh->size[PP];
}

static int most_usual(const void *a, const void *b)
{
    const struct placed_mesh *x = a, *y = b;
    if (x->oddity != y->oddity) return x->oddity < y->oddity ? -1 : 1;
    return x->mesh - y->mesh;
}

/* @return [meshes], for free(); NULL: no memory. */
static struct placed_mesh *usual_order(const struct plan_space *space)
{
    struct placed_mesh *order = calloc((size_t)space->meshes + 1, sizeof *order);
    for (int m = 0; m < space->meshes && order; m++)
        order[m] = (struct placed_mesh){ mesh_oddity(space, &space->mesh[m]), m };
    if (order) qsort(order, (size_t)space->meshes, sizeof *order, most_usual);
    return order;
}

/* ---- the first answer -------------------------------------------------------------------------------------------- */

/* The values of these dimensions are tried until a lower bound says that the plan may fit. */
static const enum dimension of_memory[] = { BY_DATA, BY_RECOMPUTE, BY_MICROS };
enum { OF_MEMORY = sizeof of_memory / sizeof *of_memory };

/* To look for a first plan that fits takes at most this share of the work of estimates, and to plan this plan at most
 * as much of the work of planning.  Where nothing fits, each mesh would be looked at with all these values. */
static const double FIRST_SHARE = 0.25;

/* Find a legal plan on a mesh that may fit, from dimension `from` of of_memory on.  @return whether there is one. */
static bool may_fit(struct search *search, struct choice *choice, int from)
{
    struct plan p;
    struct error unread;
    uint64_t least;
    if (from == OF_MEMORY) {
        if (!plan_space_make(search->space, choice, &p)) return false;
        search->estimator.worked += estimate_listing(&p);
        return search_bound(&p, &least, &unread) == OK && (search->memory == 0 || least <= search->memory);
    }
    p = *search->space->base;
    for (enum dimension d = BY_MESH; d < of_memory[from]; d++)
        if (!plan_space_set(search->space, d, &p, choice->value[d])) return false;
    for (int i = 0; i < plan_space_values(search->space, of_memory[from], &p); i++) {
        if (search_is_tired(search, FIRST_SHARE) || search_stops(search)) return false;
        choice->value[of_memory[from]] = i;
        if (may_fit(search, choice, from + 1)) return true;
    }
    return false;
}

/* Plan one usual plan that fits before others are estimated, so that there is an answer from then on. */
static enum error_code first_answer(struct search *search, const struct placed_mesh *order, struct error *err)
{
    enum error_code e = OK;
    for (int n = 0; n < search->space->meshes && !e && !search_best(search) && !search_ends(search); n++) {
        if (search_is_tired(search, FIRST_SHARE)) break;
        struct standing first = { .choice.value = { [BY_MESH] = order[n].mesh } };
        beam_tell(search, "a first plan", 0);
        first_values(search->space, &first.choice, BY_MICROS);
        if (!may_fit(search, &first.choice, 0)) continue;
        e = beam_look(search, &first, NULL, err);
        const int place = !e && first.legal ? search_find(search, &first.choice) : -1;
        if (place >= 0 && search_affords(search, place, FIRST_SHARE)) e = search_plan_now(search, place, err);
    }
    return e;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* With nothing that fits, improving ends when estimates and bounds have taken this share of their work: a minute for
 * meshes, and as much again. */
static const double TIRED_SHARE = 2;

/* An answer on the way takes at most this share of the work of planning. */
static const double ANSWER_SHARE = 1.0 / 16;

/* Improve a start, and plan the result: it is an answer of its own.  A search that ends has one already. */
static enum error_code answer(struct search *search, struct standing *at, struct error *err)
{
    const enum error_code e = improve(search, at, err);
    const int place = !e && at->legal && !search->ended ? search_find(search, &at->choice) : -1;
    return place < 0 || !search_affords(search, place, ANSWER_SHARE) ? e : search_plan_now(search, place, err);
}

/* After so many starts, and after each further doubling, the best of them is improved before the rest is estimated. */
enum { EARLY = 4 };

/* Make a start for each mesh and each of its numbers of microbatches.  The array has room for three of each mesh. */
static enum error_code starts_of(struct search *search, const struct placed_mesh *order, struct standing *start,
                                 int *count, struct error *err)
{
    const struct plan_space *s = search->space;
    enum error_code e = OK;
    int early = EARLY, best = 0;
    for (int m = 0; m < s->meshes && !e; m++) {
        struct plan p = *s->base;
        int value[3];
        /* The usual meshes came first: what is left is unusual. */
        if (*count > 0 && search->work_most > 0 && search->estimator.worked > search->work_most) {
            search->unseen = s->meshes - m;
            break;
        }
        plan_space_set(s, BY_MESH, &p, order[m].mesh);
        const int n = numbers_of_micros(s, &p, value);
        beam_tell(search, "estimating", (double)m / s->meshes);
        for (int i = 0; i < n && !e && !search_ends(search); i++) {
            struct standing at = { .choice.value = { [BY_MESH] = order[m].mesh, [BY_MICROS] = value[i] } };
            e = start_with(search, &at, err);
            if (e || !at.legal) continue;
            start[*count] = at;
            if (better(&at, &start[best])) best = *count;
            ++*count;
        }
        if (e || *count < early || search_ends(search)) continue;
        struct standing now = start[best];
        e = answer(search, &now, err), early *= 2;
    }
    return e;
}

/* Make all starts, sort them by estimate, and improve the first ones until WIDTH plans fit; if none does, all are
 * improved: what fits may promise least. */
static enum error_code beam_climb(struct search *search, const struct placed_mesh *order, struct standing *start,
                                  struct error *err)
{
    int count = 0, good = 0;
    enum error_code e = first_answer(search, order, err);
    if (!e) e = starts_of(search, order, start, &count, err);
    qsort(start, (size_t)count, sizeof *start, most_promising);
    for (int i = 0; i < count && (good == 0 || (i < MOST_IMPROVED && good < WIDTH)) && !e; i++) {
        if (search_ends(search)) break;
        /* A start that lacks memory climbs by bounds, as long as all others together if none can fit. */
        if (good == 0 && search_is_tired(search, TIRED_SHARE)) {
            search->unimproved = count - i;
            break;
        }
        beam_tell(search, "improving", (double)good / WIDTH);
        e = answer(search, &start[i], err);
        good += start[i].legal && start[i].lacks == 0;
    }
    return e;
}

/* The most microbatches, which hold least each. */
static void most_micros(const struct plan_space *space, struct choice *choice)
{
    struct plan mesh = *space->base;
    int value[3];
    plan_space_set(space, BY_MESH, &mesh, choice->value[BY_MESH]);
    const int n = numbers_of_micros(space, &mesh, value);
    if (n > 0) choice->value[BY_MICROS] = value[n - 1];
}

enum error_code search_leanest(struct search *search, int *place, struct error *err)
{
    struct placed_mesh *order = usual_order(search->space);
    enum error_code e = order ? OK : fail(err, ERR_MEMORY, "no memory for %d meshes", search->space->meshes);
    uint64_t least = UINT64_MAX;
    *place = -1;
    search->only_memory = true;
    for (int n = 0; n < search->space->meshes && !e && !search_best(search) && !search_ends(search); n++) {
        struct standing at = { .choice.value = { [BY_MESH] = order[n].mesh } };
        most_micros(search->space, &at.choice);
        e = start_with(search, &at, err);
        if (!e && at.legal) e = improve(search, &at, err);
        if (e || !at.legal) continue;
        const int found = search_find(search, &at.choice);
        e = search_plan_now(search, found, err);
        const struct candidate *const c = &search->of[found];
        const uint64_t needs = c->peak > c->least ? c->peak : c->least;
        if (needs < least) least = needs, *place = found;
    }
    const struct candidate *const best = search_best(search);
    if (best) *place = (int)(best - search->of);
    search->only_memory = false;
    free(order);
    return e;
}

static enum error_code beam_choose(struct search *search, struct error *err)
{
    struct placed_mesh *order = usual_order(search->space);
    struct standing *start = calloc(3 * (size_t)search->space->meshes + 1, sizeof *start);
    const enum error_code e = order && start ? beam_climb(search, order, start, err)
                                             : fail(err, ERR_MEMORY, "no memory for %d meshes", search->space->meshes);
    free(order), free(start);
    return e;
}

const struct planner planner_beam = {
    .name = "beam", .description = "the most promising meshes, improved a dimension at a time",
    .source = "B. Lowerre, The HARPY speech recognition system, 1976",
    .promise = "no change of one dimension of it has a better estimate",
    .most = 32, .work = 40e6, .choose = beam_choose,
};
