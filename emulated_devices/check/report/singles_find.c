/* singles_find.c -- results of operations by their names, and how many parts of a sum a program stores and adds.
 * emulated_devices/cli/check_found.c asks for the parts that explain a wrong sum; cli/, draw/report/ and check/report/
 * look up results.  cli/check_judged.c keeps those of one step.  Errors are ERR_MEMORY. */
#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/report/singles.h"
#include "ref/golden/golden.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Results of one name stay in order of execution, because their addresses decide. */
static int by_name(const void *a, const void *b)
{
    const struct single_result *const *x = a, *const *y = b;
    const int c = strcmp((*x)->name, (*y)->name);
    return c != 0 ? c : (*x > *y) - (*x < *y);
}

enum error_code singles_sort(struct singles *singles, struct error *err)
{
    const struct single_result **sorted = calloc((size_t)singles->count + 1, sizeof *sorted);
    singles->by_name = calloc((size_t)singles->count + 1, sizeof *singles->by_name);
    enum error_code e = sorted && singles->by_name ? OK : fail(err, ERR_MEMORY, "no memory for the results' names");
    for (int i = 0; i < singles->count && !e; i++) sorted[i] = &singles->all[i];
    if (!e) qsort(sorted, (size_t)singles->count, sizeof *sorted, by_name);
    for (int i = 0; i < singles->count && !e; i++) singles->by_name[i] = (int)(sorted[i] - singles->all);
    free(sorted);
    return e;
}

/* The three lists stay side by side. */
enum error_code singles_keep_step(const struct golden *golden, struct singles *singles, int64_t step,
                                  struct error *err)
{
    int count = 0;
    memset(singles->found, 0, sizeof singles->found);
    for (int i = 0; i < singles->count; i++) {
        if (checker_step_of(golden, singles->all[i].name) != step) continue;
        singles->all[count] = singles->all[i], singles->each[count] = singles->each[i];
        memmove(singles->where[count], singles->where[i], sizeof *singles->where);
        singles->found[singles->all[count++].verdict]++;
    }
    singles->count = count;
    singles->golden_weights = singles->golden_weights && step == 1;
    free(singles->by_name);
    return singles_sort(singles, err);
}

/* Find the place of the first result with this name in by_name, or where it would be. */
static int find_first(const struct singles *singles, const char *name)
{
    int low = 0, high = singles->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (strcmp(singles->all[singles->by_name[middle]].name, name) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* The result at a place, if it still has this name. */
static const struct single_result *result_at(const struct singles *singles, int at, const char *name)
{
    const struct single_result *r = at < singles->count ? &singles->all[singles->by_name[at]] : NULL;
    return r && strcmp(r->name, name) == 0 ? r : NULL;
}

/* A wrong result wins over a right one, and a right one over one without a verdict. */
const struct single_result *singles_find(const struct singles *singles, const char *name)
{
    const int first = find_first(singles, name);
    const struct single_result *best = result_at(singles, first, name), *r;
    for (int i = first; (r = result_at(singles, i, name)) != NULL; i++)
        if ((r->verdict == SINGLE_WRONG && best->verdict != SINGLE_WRONG) ||
            (r->verdict < SINGLE_WRONG && best->verdict > SINGLE_WRONG))
            best = r;
    return best;
}

int singles_wrong(const struct singles *singles, const char *name)
{
    int wrong = 0;
    const struct single_result *r;
    for (int i = find_first(singles, name); (r = result_at(singles, i, name)) != NULL; i++)
        wrong += r->verdict == SINGLE_WRONG;
    return wrong;
}

/* ---- parts of the batch ------------------------------------------------------------------------------------------ */

enum { NO_PART = -1 };

/* The owners that have been met; a token's part is its owner's place in this list. */
struct owners { struct single_owner *at; int count, room; };

/* Ranks that differ along tp or pp share their tokens, those along cp their sequences. */
static struct single_owner batch_parts_owner(const struct mesh *mesh, const struct actual_piece *piece)
{
    const int rank = piece->file->rank;
    return (struct single_owner){ mesh_coordinate(mesh, rank, DP) * mesh->size[EP] + mesh_coordinate(mesh, rank, EP),
                                  mesh_coordinate(mesh, rank, CP), piece->micro };
}

/* Find an owner's place, a new one if need be.  @return NO_PART without memory. */
static int32_t batch_parts_place(struct owners *owners, struct single_owner owner)
{
    /* Pieces come in order of rank, so the owner is usually the last. */
    for (int i = owners->count - 1; i >= 0; i--)
        if (memcmp(&owners->at[i], &owner, sizeof owner) == 0) return i;
    if (owners->count == owners->room) {
        const int room = owners->room ? 2 * owners->room : 16;
        struct single_owner *more = realloc(owners->at, (size_t)room * sizeof *more);
        if (more == NULL) return NO_PART;
        owners->at = more, owners->room = room;
    }
    owners->at[owners->count] = owner;
    return owners->count++;
}

/* Give the rows of a piece to its owner.  @return false if they are another's, as where ranks have copies. */
static bool batch_parts_take(const struct actual_piece *piece, int64_t rows, int32_t owner, int32_t *part)
{
    for (int i = 0; i < piece->parts; i++) {
        const struct intervals *of = &piece->part[i].rows;
        /* A flat piece counts all elements as rows. */
        if (piece->part[i].dim[0] != rows) return false;
        for (int k = 0; k < of->count; k++)
            for (int64_t row = of->at[k].first; row < interval_end(of->at[k]); row++) {
                if (part[row] != NO_PART && part[row] != owner) return false;
                part[row] = owner;
            }
    }
    return true;
}

/* A gradient is rounded once more where it is multiplied by this. */
static bool batch_parts_rounds(double times)
{
    int exponent;
    return frexp(fabs(times), &exponent) != 0.5;
}

/* Read all pieces of a tensor whose rows are tokens.  @return whether every token has one owner. */
static bool batch_parts_read(const struct actual *actual, const char *name, const int64_t dim[2],
                             struct batch_parts *parts)
{
    struct actual_pieces pieces;
    struct owners owners = { 0 };
    if (actual_find(actual, name, dim, &pieces, NULL) != OK) return false;
    bool known = pieces.count > 0;
    for (int64_t i = 0; i < dim[0]; i++) parts->part[i] = NO_PART;
    for (int i = 0; i < pieces.count && known; i++) {
        const struct actual_piece *piece = &pieces.all[i];
        const int32_t place = batch_parts_place(&owners, batch_parts_owner(&actual->mesh, piece));
        known = place != NO_PART && batch_parts_take(piece, dim[0], place, parts->part);
        parts->scaled = parts->scaled || batch_parts_rounds(piece->times);
    }
    for (int64_t i = 0; i < dim[0]; i++) known = known && parts->part[i] != NO_PART;
    free(parts->owner);
    parts->count = known ? owners.count : 0, parts->owner = owners.at;
    actual_pieces_free(&pieces);
    return known;
}

/* The logits' gradients are asked first: weights' gradients begin with these, and have the same factors. */
struct batch_parts batch_parts_of(const struct golden *golden, const struct actual *actual)
{
    const int64_t N = golden->B * golden->S, V = golden->config.V, D = golden->config.D;
    const struct { const char *name; int64_t cols; } from[] = { { "grad/logits", V }, { "act/logits", V },
                                                               { "grad/embedding", D }, { "act/embedding", D } };
    struct batch_parts parts = { .part = actual->dump ? malloc((size_t)N * sizeof *parts.part) : NULL };
    bool known = false;
    for (size_t i = 0; i < sizeof from / sizeof *from && parts.part && !known; i++)
        known = actual_has(actual, from[i].name) &&
                batch_parts_read(actual, from[i].name, (int64_t[2]){ N, from[i].cols }, &parts);
    if (!known) free(parts.part), free(parts.owner), parts = (struct batch_parts){ 0 };
    return parts;
}

struct batch_cuts batch_cuts_of(const struct golden *golden, const struct actual *actual)
{
    const struct batch_parts parts = batch_parts_of(golden, actual);
    const struct batch_cuts cuts = cuts_of(golden->B, golden->S, parts.part, parts.owner, parts.count,
                                           actual->mesh.size[DP] * actual->mesh.size[EP]);
    free(parts.part), free(parts.owner);
    return cuts;
}

/* ---- parts of sums ----------------------------------------------------------------------------------------------- */

/* If the dump does not say it, sums have as many stored parts as tp has ranks.  All other axes together count
 * instead if they have more. */
int singles_parts(const struct actual *actual)
{
    if (actual->parts > 0) return actual->parts;
    const int tp = actual->mesh.size[TP], others = actual->mesh.devices / actual->mesh.size[PP] / tp;
    return tp > others ? tp : others;
}

/* Each microbatch of each copy of the model stores a part of a gradient, too.  Without a layout that says which these
 * are, the highest number of a microbatch counts. */
int singles_gradient_parts(const struct golden *golden, const struct actual *actual)
{
    const int parts = singles_parts(actual);
    if (actual->parts > 0) return parts;
    const struct batch_parts batch = batch_parts_of(golden, actual);
    const int of_layout = batch.count > 0 ? batch.count : actual_micros(actual),
              of_golden = actual_has(actual, "micro/loss") ? (int)golden->micros : 0,
              micros = of_layout > of_golden ? of_layout : of_golden;
    free(batch.part), free(batch.owner);
    return micros > parts ? micros : parts;
}

/* More parts are tried one by one on the first wrong result, since each try recomputes it. */
enum error_code singles_find_parts(const struct golden *golden, const struct actual *actual, enum dtype format,
                                   struct rounding rounding, struct singles *out, struct error *err)
{
    enum { MOST_PARTS = 8 };
    const struct single_result *wrong = NULL;
    enum error_code e = OK;
    for (int i = 0; i < out->count && wrong == NULL; i++)
        if (out->all[i].verdict == SINGLE_WRONG) wrong = &out->all[i];
    if (wrong == NULL || !dtype_is_narrow(format) || wrong->rows * wrong->cols == 1) return OK;
    for (int parts = rounding.parts + 1; parts <= MOST_PARTS && !e && out->parts == 0; parts++) {
        struct rounding more = rounding;
        struct single_result one;
        more.parts = more.gradient_parts = parts;
        e = singles_check_copy(golden, actual, format, more, wrong->name, NULL, &one, err);
        /* A result that is right with so many parts answers the question for all results. */
        if (!e && one.name[0] && one.verdict < SINGLE_WRONG) out->parts = parts;
    }
    return e;
}
