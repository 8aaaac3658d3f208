/* drawn.c -- random numbers of a parameter, drawn run by run for the part of it that a device holds.
 *
 * The entries draw, move_along and step_along of a backend call this file (generic.c).  A number depends on its place
 * in the whole parameter, so devices need no messages to agree.  No function here can fail.
 */
#include "emulated_devices/device/drawn.h"
#include "ref/model/mezo.h"
#include "ref/numeric/convert.h"

enum { DRAWN_AT_ONCE = 512 };

struct drawing {
    struct tensor w;
    const struct param_spec *spec;
    uint64_t key;
    double along;
    const struct optimizer *optimizer;
    struct step step;
};

/* Elements first .. first + n - 1 of a tensor. */
static struct tensor drawn_elements(struct tensor w, int64_t first, int64_t n)
{
    return tensor_1d((char *)w.data + (size_t)first * dtype_size(w.dtype), w.dtype, n);
}

static void each_run(struct tensor w, struct drawn drawn, void (*f)(void *, struct run), struct drawing *context)
{
    layout_each_run_within(drawn.layout, drawn.first, tensor_count(w), f, context);
}

/* ---- initial weights --------------------------------------------------------------------------------------------- */

static void weights_run(void *context, struct run run)
{
    const struct drawing *d = context;
    /* Numbers are rounded to the master's format first, so masters and weights come from the same values. */
    const enum dtype master = dtype_wide(d->w.dtype);
    double drawn[DRAWN_AT_ONCE];
    for (int64_t done = 0, n; done < run.length; done += n) {
        n = run.length - done < DRAWN_AT_ONCE ? run.length - done : DRAWN_AT_ONCE;
        param_init(d->spec, d->key, master, run.whole + done, n, drawn);
        convert_numbers(drawn_elements(d->w, run.piece + done, n).data, d->w.dtype, drawn, master, n);
    }
}

void drawn_weights(struct tensor w, struct drawn drawn, uint64_t seed)
{
    each_run(w, drawn, weights_run, &(struct drawing){ .w = w, .spec = drawn.spec, .key = seed });
}

/* ---- directions -------------------------------------------------------------------------------------------------- */

/* w += along * z for a run, z the direction with this key. */
static void move_run(void *context, struct run run)
{
    const struct drawing *d = context;
    mezo_move(d->spec, d->key, d->along, run.whole, run.length, d->w.dtype,
              drawn_elements(d->w, run.piece, run.length).data);
}

void drawn_move(struct tensor w, struct drawn drawn, uint64_t key, double along)
{
    each_run(w, drawn, move_run, &(struct drawing){ .w = w, .spec = drawn.spec, .key = key, .along = along });
}

/* w steps along the direction z as along a gradient, with an optimizer that has no states. */
static void step_run(void *context, struct run run)
{
    const struct drawing *d = context;

    #pragma omp parallel for schedule(static) if (run.length > 32 * DRAWN_AT_ONCE)
    for (int64_t at = 0; at < run.length; at += DRAWN_AT_ONCE) {
        const int64_t n = run.length - at < DRAWN_AT_ONCE ? run.length - at : DRAWN_AT_ONCE;
        double drawn[DRAWN_AT_ONCE], rounded[DRAWN_AT_ONCE];
        /* The direction is drawn again here: it is never kept. */
        mezo_draw(d->spec, d->key, run.whole + at, n, drawn);
        convert_numbers(rounded, d->w.dtype, drawn, F64, n);
        optimizer_step(d->optimizer, drawn_elements(d->w, run.piece + at, n), tensor_1d(rounded, d->w.dtype, n),
                       NULL, d->step);
    }
}

void drawn_step(const struct optimizer *optimizer, struct tensor w, struct drawn drawn, uint64_t key, struct step step)
{
    each_run(w, drawn, step_run, &(struct drawing){ .w = w, .spec = drawn.spec, .key = key, .optimizer = optimizer,
                                                   .step = step });
}
