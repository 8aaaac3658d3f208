/* holders.c -- says which ranks and microbatches have the wrong elements of a tensor.  singles.c calls it for each
 * wrong result.  A tensor whose pieces cannot be found gives an empty text or set, and no error. */
#include "emulated_devices/check/report/holders.h"
#include "emulated_devices/check/report/diagnose.h"
#include <stdio.h>
#include <string.h>

struct holders { struct evidence ranks; bool has[ACTUAL_MOST_MICROS], hit[ACTUAL_MOST_MICROS]; };

/* Whether a list of ranges has an element in this range. */
static bool meets(const struct intervals *intervals, struct interval range)
{
    for (int i = 0; i < intervals->count; i++)
        if (interval_meet(intervals->at[i], range).count > 0) return true;
    return false;
}

/* Whether a piece has an element of the rectangle.  A flat piece is a range of all elements: it may meet a row
 * beside the rectangle's columns. */
static bool piece_meets(const struct actual_piece *piece, const int64_t dim[2], struct interval rows,
                        struct interval cols)
{
    const int64_t first = rows.first * dim[1] + cols.first,
                  end = (interval_end(rows) - 1) * dim[1] + interval_end(cols);
    for (int i = 0; i < piece->parts; i++) {
        const struct part *part = &piece->part[i];
        const bool flat = part->dim[0] != dim[0];
        if (flat ? meets(&part->rows, (struct interval){ first, end - first })
                 : meets(&part->rows, rows) && meets(&part->cols, cols))
            return true;
    }
    return false;
}

/* The pieces are searched again here, since the assembly does not keep them. */
struct devices holders_all(const struct actual *actual, const char *name, const int64_t dim[2])
{
    struct actual_pieces pieces;
    struct devices all = { 0 };
    if (actual_find(actual, name, dim, &pieces, NULL) != OK) return all;
    for (int i = 0; i < pieces.count; i++) devices_add(&all, pieces.all[i].file->rank);
    actual_pieces_free(&pieces);
    return all;
}

/* Whether two lists of ranges have no element in common. */
static bool all_apart(const struct intervals *a, const struct intervals *b)
{
    for (int i = 0; i < a->count; i++)
        if (meets(b, a->at[i])) return false;
    return true;
}

/* Whether two pieces have no element in common.  For flat and other pieces together this is not known, and counts
 * as no. */
static bool pieces_apart(const struct actual_piece *p, const struct actual_piece *q)
{
    for (int i = 0; i < p->parts; i++)
        for (int k = 0; k < q->parts; k++) {
            const struct part *a = &p->part[i], *b = &q->part[k];
            if (a->dim[0] != b->dim[0] || (!all_apart(&a->rows, &b->rows) && !all_apart(&a->cols, &b->cols)))
                return false;
        }
    return true;
}

/* Whether this rank's pieces are apart from those of all ranks in the set. */
static bool is_apart(const struct actual_pieces *pieces, const struct devices *from, int rank)
{
    for (int i = 0; i < pieces->count; i++)
        for (int k = 0; k < pieces->count; k++)
            if (pieces->all[i].file->rank == rank && devices_have(from, pieces->all[k].file->rank) &&
                !pieces_apart(&pieces->all[i], &pieces->all[k]))
                return false;
    return true;
}

/* Ranks are taken in order, each if it has no element in common with those before it.  All stand where the first
 * stands along the axis. */
struct devices holders_apart(const struct actual *actual, const char *name, const int64_t dim[2],
                             const struct devices *of, enum axis along)
{
    struct actual_pieces pieces;
    struct devices some = { 0 };
    int first = -1;
    if (actual_find(actual, name, dim, &pieces, NULL) != OK) return some;
    for (int rank = 0; rank < actual->mesh.devices; rank++) {
        if (!devices_have(of, rank)) continue;
        if (first < 0) first = rank;
        /* Ranks with another coordinate along the axis are left for a later call. */
        if (mesh_coordinate(&actual->mesh, rank, along) == mesh_coordinate(&actual->mesh, first, along) &&
            is_apart(&pieces, &some, rank))
            devices_add(&some, rank);
    }
    actual_pieces_free(&pieces);
    return some;
}

/* Note a piece's rank and microbatch, and whether it was hit. */
static void holders_take(struct holders *holders, const struct actual_piece *piece, bool hit)
{
    devices_add(&holders->ranks.holding, piece->file->rank);
    if (hit) devices_add(&holders->ranks.failing, piece->file->rank);
    if (piece->micro == ACTUAL_NO_MICRO) return;
    holders->has[piece->micro] = true;
    holders->hit[piece->micro] = holders->hit[piece->micro] || hit;
}

/* List the microbatches that were hit, unless all were. */
static void describe_micros(const struct holders *holders, char *out, size_t size)
{
    int has = 0, hit = 0;
    size_t used = strlen(out);
    for (int k = 0; k < ACTUAL_MOST_MICROS; k++) has += holders->has[k], hit += holders->hit[k];
    if (hit == has) return;
    used += (size_t)snprintf(out + used, size - used, "%smicrobatch", used ? "; " : "");
    const char *before = " ";
    for (int k = 0; k < ACTUAL_MOST_MICROS && used + 16 < size; k++) {
        if (!holders->hit[k]) continue;
        used += (size_t)snprintf(out + used, size - used, used + 32 < size ? "%s%d" : ", ...", before, k);
        before = ", ";
    }
}

/* Ranks are named only if some that have the tensor were not hit. */
const char *holders_describe(const struct actual *actual, const char *name, const int64_t dim[2], struct interval rows,
                             struct interval cols, char *out, size_t size)
{
    struct actual_pieces pieces;
    struct holders h = { 0 };
    out[0] = '\0';
    if (actual_find(actual, name, dim, &pieces, NULL) != OK) return out;
    /* All pieces count as holders; those with an element of the rectangle are hit. */
    for (int i = 0; i < pieces.count; i++)
        holders_take(&h, &pieces.all[i], piece_meets(&pieces.all[i], dim, rows, cols));
    actual_pieces_free(&pieces);
    if (devices_count(&h.ranks.failing) == 0) return out;
    if (devices_count(&h.ranks.failing) < devices_count(&h.ranks.holding))
        diagnose_place(out, size, &actual->mesh, &h.ranks);
    describe_micros(&h, out, size);
    return out;
}
