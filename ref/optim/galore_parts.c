/* galore_parts.c -- a parameter that is several matrices in the published model: each is projected separately.
 *
 * schemes/data/ and verify/reference/ call this file for fused projections, such as q, k and v in a matrix.  No
 * function here can fail; more parts than LOW_RANK_MOST_PARTS are a mistake that assert() finds.
 */
#include "ref/optim/table.h"
#include <assert.h>

/* Each part is projected by its own rows [rows, n]. */
struct low_rank_parts low_rank_parts_of(const struct optimizer *optimizer,
                                        const struct hyperparameters *hyper, bool linear,
                                        const int64_t rows[], int parts, int64_t n)
{
    struct low_rank_parts all = { .count = parts };
    int64_t first = 0;
    assert(parts <= LOW_RANK_MOST_PARTS);
    for (int i = 0; i < parts; first += rows[i++])
        all.part[i] =
            (struct low_rank_part){ .first = first, .rows = rows[i],
                                   .p = low_rank_of(optimizer, hyper, linear, rows[i], n) };
    /* Nothing is projected and no part has codes of its own: the parts step as one tensor. */
    if (!low_rank_projects(&all) && !low_rank_has_codes(hyper))
        all = (struct low_rank_parts){ .count = 1, .part = { { .rows = first, .p = all.part[0].p } } };
    return all;
}

/* The numbers of the projected gradients of all parts. */
int64_t low_rank_reduced(const struct low_rank_parts *all)
{
    int64_t n = 0;
    for (int i = 0; i < all->count; i++) n += all->part[i].p.b * all->part[i].p.r;
    return n;
}

/* Rows of a part: also of a tensor without memory, whose shape alone is asked for. */
struct tensor low_rank_rows(struct low_rank_part part, struct tensor w)
{
    const int64_t row = w.ndim == 2 ? w.dim[1] : 1;
    if (w.data) w.data = (char *)w.data + (size_t)(part.first * row) * dtype_size(w.dtype);
    return tensor_first(w, part.rows);
}

static struct tensor shape_of_part(const struct optimizer *optimizer, const struct hyperparameters *hyper,
                                   struct low_rank_part part, struct tensor w, int k)
{
    return low_rank_state(optimizer, hyper, part.p, low_rank_rows(part, w), k);
}

struct tensor low_rank_parts_state(const struct optimizer *optimizer, const struct hyperparameters *hyper,
                                   const struct low_rank_parts *all, struct tensor w, int k)
{
    const struct tensor one = shape_of_part(optimizer, hyper, all->part[0], w, k);
    int64_t n = 0;
    if (all->count == 1) return one;
    for (int i = 0; i < all->count; i++) n += tensor_count(shape_of_part(optimizer, hyper, all->part[i], w, k));
    /* Several parts' states lie one after another in a vector. */
    return one.ndim == 0 ? tensor_none : tensor_1d(NULL, one.dtype, n);
}

/* The state of a part begins behind those of the parts before it. */
struct tensor low_rank_part_state(const struct optimizer *optimizer, const struct hyperparameters *hyper,
                                  const struct low_rank_parts *all, int part, struct tensor w, struct tensor state,
                                  int k)
{
    struct tensor one = shape_of_part(optimizer, hyper, all->part[part], w, k);
    int64_t before = 0;
    for (int i = 0; i < part; i++) before += tensor_count(shape_of_part(optimizer, hyper, all->part[i], w, k));
    one.data = state.data ? (char *)state.data + (size_t)before * dtype_size(one.dtype) : NULL;
    return one;
}

void galore_parts_step(const struct optimizer *optimizer, const struct low_rank_parts *all, struct tensor w,
                       struct tensor g, const struct tensor state[], struct step step)
{
    for (int i = 0; i < all->count; i++) {
        struct tensor own[OPTIMIZER_MAX_STATES] = { 0 };
        /* Rows of w and g belong to part i; its states begin behind those of the parts before. */
        for (int k = 0; k < optimizer->states; k++)
            own[k] = low_rank_part_state(optimizer, step.hyper, all, i, w, state[k], k);
        galore_step(optimizer, all->part[i].p, low_rank_rows(all->part[i], w),
                    low_rank_rows(all->part[i], g), own, step);
    }
}

int64_t low_rank_numbers(const struct optimizer *optimizer, const struct hyperparameters *hyper,
                         const struct low_rank_parts *all, struct tensor w, int k)
{
    int64_t n = 0;
    for (int i = 0; i < all->count; i++)
        n += tensor_count(low_rank_shape(optimizer, hyper, all->part[i].p, low_rank_rows(all->part[i], w), k));
    return n;
}

/* States that are numbers are returned as they are; codes are decoded into `room`. */
struct tensor low_rank_read(const struct optimizer *optimizer, const struct hyperparameters *hyper,
                            const struct low_rank_parts *all, struct tensor w, int k, struct tensor state, void *room)
{
    const struct tensor whole = tensor_1d(room, w.dtype, low_rank_numbers(optimizer, hyper, all, w, k));
    char *next = room;
    if (state.dtype == w.dtype) return state;
    for (int i = 0; i < all->count; i++) {
        struct tensor x = low_rank_shape(optimizer, hyper, all->part[i].p, low_rank_rows(all->part[i], w), k);
        /* The codes of each part are decoded into the next numbers of room. */
        x.data = next, next += tensor_bytes(x);
        (w.dtype == F32 ? galore_coded_read_f32 : galore_coded_read_f64)
            (x, low_rank_part_state(optimizer, hyper, all, i, w, state, k), k);
    }
    return whole;
}
