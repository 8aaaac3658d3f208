/* moves.c -- plans which boxes go from which rank to which, by the rule of moves.h.
 * transfer.c and model/checkpoint/sharded/reshard.c call.  ERR_MEMORY, and ERR_PLAN where two plans are not of one
 * job. */
#include "emulated_devices/model/collection/moves.h"
#include "emulated_devices/device/cluster.h"
#include <stdlib.h>
#include <string.h>

enum error_code moves_open(struct moves *moves, int ranks, const struct cluster *cluster, struct error *err)
{
    *moves = (struct moves){ .cluster = cluster, .ranks = ranks, .of = calloc((size_t)ranks, sizeof *moves->of) };
    return moves->of ? OK : fail(err, ERR_MEMORY, "no memory for the moves of %d devices", ranks);
}

void moves_close(struct moves *moves)
{
    free(moves->at), free(moves->of);
    *moves = (struct moves){ 0 };
}

static enum error_code append(struct moves *moves, struct move move, uint64_t bytes, struct error *err)
{
    if (moves->count == moves->room) {
        const int room = 2 * moves->room + 16;
        struct move *const more = realloc(moves->at, sizeof *more * (size_t)room);
        if (more == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d moves", room);
        moves->at = more, moves->room = room;
    }
    moves->at[moves->count++] = move;
    moves->of[move.from].sent += bytes, moves->of[move.to].received += bytes;
    moves->bytes += bytes;
    return OK;
}

static int level_between(const struct moves *moves, int a, int b)
{
    return moves->cluster ? cluster_level(moves->cluster, a, b) : 0;
}

/* Whether a rank sends rather than another one. */
static bool is_better(const struct moves *moves, int to, int rank, int than)
{
    if (than < 0) return true;
    const int near = level_between(moves, rank, to), far = level_between(moves, than, to);
    if (near != far) return near < far;
    if (moves->of[rank].sent != moves->of[than].sent) return moves->of[rank].sent < moves->of[than].sent;
    return abs(rank - to) < abs(than - to);
}

/* This holds one tensor, while its moves are planned. */
struct moving { int tensor, ndim; size_t size; const struct boxes *has; };

/* Whether a rank has an element of a list. */
static bool has_some(const struct moving *moving, int rank, const struct boxes *of)
{
    struct box both;
    for (int i = 0; i < of->count; i++)
        for (int b = 0; b < moving->has[rank].count; b++)
            if (box_meet(&of->at[i], &moving->has[rank].at[b], moving->ndim, &both)) return true;
    return false;
}

/* Move what one rank has of a list, and take that out of the list. */
static enum error_code move_from(struct moves *moves, const struct moving *moving, int from, int to,
                                 struct boxes *lacking, struct error *err)
{
    const struct boxes *const has = &moving->has[from];
    enum error_code e = OK;
    for (int b = 0; b < has->count && !e; b++) {
        struct box both;
        for (int i = 0; i < lacking->count && !e; i++)
            if (box_meet(&lacking->at[i], &has->at[b], moving->ndim, &both))
                e = append(moves, (struct move){ moving->tensor, from, to, both },
                           (uint64_t)box_elements(&both, moving->ndim) * moving->size, err);
        boxes_subtract(lacking, &has->at[b], moving->ndim);
    }
    return e ? e : boxes_lost(lacking) ? fail(err, ERR_MEMORY, "no memory for a list of boxes") : OK;
}

static enum error_code bring_to(struct moves *moves, const struct moving *moving, int to, const struct boxes *wants,
                                const char *name, struct error *err)
{
    struct boxes lacking = { 0 };
    enum error_code e = OK;
    boxes_add_all(&lacking, wants, moving->ndim);
    const int64_t wanted = boxes_total(&lacking, moving->ndim);
    boxes_subtract_all(&lacking, &moving->has[to], moving->ndim);
    const uint64_t stays = (uint64_t)(wanted - boxes_total(&lacking, moving->ndim)) * moving->size;
    moves->of[to].stays += stays, moves->stays += stays;
    if (boxes_lost(&lacking)) e = fail(err, ERR_MEMORY, "no memory for the boxes of %s", name);
    while (lacking.count > 0 && !e) {
        int best = -1;
        for (int r = 0; r < moves->ranks; r++)
            if (r != to && has_some(moving, r, &lacking) && is_better(moves, to, r, best)) best = r;
        e = best >= 0 ? move_from(moves, moving, best, to, &lacking, err)
            : fail(err, ERR_PLAN, "%s: no device has what device %d needs of it", name, to);
    }
    boxes_free(&lacking);
    return e;
}

enum error_code moves_add(struct moves *moves, int tensor, const char *name, int ndim, size_t size,
                          const struct boxes *has, const struct boxes *wants, struct error *err)
{
    const struct moving moving = { tensor, ndim, size, has };
    enum error_code e = OK;
    for (int to = 0; to < moves->ranks && !e; to++) e = bring_to(moves, &moving, to, &wants[to], name, err);
    return e;
}

/* ---- two plans --------------------------------------------------------------------------------------------------- */

/* Lists of one job have the same order, so the place in one list is tried first in the other. */
static enum error_code find_source(const struct collection *from, const struct named_tensor *tensor, int likely,
                                   int *place, struct error *err)
{
    *place = likely < from->count && strcmp(from->tensor[likely].name, tensor->name) == 0 ? likely
        : collection_find(from, tensor->name);
    if (*place < 0) return fail(err, ERR_PLAN, "%s: only one of the two plans has this tensor", tensor->name);
    const struct named_tensor *const other = &from->tensor[*place];
    bool same = other->ndim == tensor->ndim && other->format == tensor->format;
    for (int d = 0; d < tensor->ndim && same; d++) same = other->dim[d] == tensor->dim[d];
    return same ? OK : fail(err, ERR_PLAN, "%s: has another shape or format in the other plan", tensor->name);
}

static enum error_code moves_add_tensor(struct moves *moves, const struct collection *from, const struct collection *to,
                                  int tensor, struct boxes *has, struct boxes *wants, struct error *err)
{
    const struct named_tensor *const t = &to->tensor[tensor];
    int source;
    enum error_code e = find_source(from, t, tensor, &source, err);
    for (int r = 0; r < moves->ranks && !e; r++) {
        e = collection_has(from, source, r, &has[r], err);
        if (!e) e = collection_wants(to, tensor, r, &wants[r], err);
    }
    if (!e) e = moves_add(moves, tensor, t->name, t->ndim, dtype_size(t->format), has, wants, err);
    for (int r = 0; r < moves->ranks; r++) boxes_free(&has[r]), boxes_free(&wants[r]);
    return e;
}

enum error_code moves_between(struct moves *moves, const struct collection *from, const struct collection *to,
                              struct error *err)
{
    struct boxes *const lists = calloc(2 * (size_t)moves->ranks, sizeof *lists);
    enum error_code e = lists ? OK : fail(err, ERR_MEMORY, "no memory for the boxes of %d devices", moves->ranks);
    if (!e && from->count != to->count)
        e = fail(err, ERR_PLAN, "the plans have %d and %d tensors: they are not of the same job", from->count,
                 to->count);
    for (int t = 0; t < to->count && !e; t++)
        e = moves_add_tensor(moves, from, to, t, lists, lists + moves->ranks, err);
    free(lists);
    return e;
}

uint64_t moves_of_pair(const struct moves *moves, const struct collection *to, int from, int target)
{
    uint64_t bytes = 0;
    for (int i = 0; i < moves->count; i++)
        if (moves->at[i].from == from && moves->at[i].to == target)
            bytes += (uint64_t)box_elements(&moves->at[i].box, to->tensor[moves->at[i].tensor].ndim)
                * collection_size(to, moves->at[i].tensor);
    return bytes;
}
