/* batch_parts.c -- finds whose each token is: which copy of the model has the token, in which microbatch.
 * singles.c and singles_find.c call batch_parts_of.  Whatever the layout leaves open gives none, and no error. */
#include "emulated_devices/check/report/batch_parts.h"
#include <math.h>
#include <stdlib.h>

enum { NO_PART = -1 };

/* A copy of the model, along the axes that do not cut it, and its microbatch. */
struct owner { int copy, micro; };

/* The owners that have been met; a token's part is its owner's place in this list. */
struct owners { struct owner *at; int count, room; };

/* Ranks that differ along tp or pp share their tokens. */
static int batch_parts_copy(const struct mesh *mesh, int rank)
{
    return (mesh_coordinate(mesh, rank, DP) * mesh->size[CP] + mesh_coordinate(mesh, rank, CP)) * mesh->size[EP] +
           mesh_coordinate(mesh, rank, EP);
}

/* Find an owner's place, a new one if need be.  @return NO_PART without memory. */
static int32_t batch_parts_place(struct owners *owners, struct owner owner)
{
    /* Pieces come in order of rank, so the owner is usually the last. */
    for (int i = owners->count - 1; i >= 0; i--)
        if (owners->at[i].copy == owner.copy && owners->at[i].micro == owner.micro) return i;
    if (owners->count == owners->room) {
        const int room = owners->room ? 2 * owners->room : 16;
        struct owner *more = realloc(owners->at, (size_t)room * sizeof *more);
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
        const struct owner owner = { batch_parts_copy(&actual->mesh, piece->file->rank), piece->micro };
        const int32_t place = batch_parts_place(&owners, owner);
        known = place != NO_PART && batch_parts_take(piece, dim[0], place, parts->part);
        parts->scaled = parts->scaled || batch_parts_rounds(piece->times);
    }
    for (int64_t i = 0; i < dim[0]; i++) known = known && parts->part[i] != NO_PART;
    parts->count = known ? owners.count : 0;
    actual_pieces_free(&pieces);
    free(owners.at);
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
    if (!known) free(parts.part), parts = (struct batch_parts){ 0 };
    return parts;
}
