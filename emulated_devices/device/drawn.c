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

static struct tensor elements(struct tensor w, int64_t first, int64_t n)
{
    return tensor_1d((char *)w.data + (size_t)first * dtype_size(w.dtype), w.dtype, n);
}

static void each_run(struct tensor w, struct drawn p, void (*f)(void *, struct run), struct drawing *context)
{
    layout_each_run_within(p.layout, p.first, tensor_count(w), f, context);
}

/* ---- initial weights --------------------------------------------------------------------------------------------- */

static void weights_run(void *context, struct run r)
{
    const struct drawing *d = context;
    /* Numbers are rounded to the master's format first, so masters and weights come from the same values. */
    const enum dtype master = dtype_wide(d->w.dtype);
    double drawn[DRAWN_AT_ONCE];
    for (int64_t done = 0, n; done < r.length; done += n) {
        n = r.length - done < DRAWN_AT_ONCE ? r.length - done : DRAWN_AT_ONCE;
        param_init(d->spec, d->key, master, r.whole + done, n, drawn);
        convert_numbers(elements(d->w, r.piece + done, n).data, d->w.dtype, drawn, master, n);
    }
}

void drawn_weights(struct tensor w, struct drawn p, uint64_t seed)
{
    each_run(w, p, weights_run, &(struct drawing){ .w = w, .spec = p.spec, .key = seed });
}

/* ---- directions -------------------------------------------------------------------------------------------------- */

static void move_run(void *context, struct run r)
{
    const struct drawing *d = context;
    mezo_move(d->spec, d->key, d->along, r.whole, r.length, d->w.dtype, elements(d->w, r.piece, r.length).data);
}

void drawn_move(struct tensor w, struct drawn p, uint64_t key, double along)
{
    each_run(w, p, move_run, &(struct drawing){ .w = w, .spec = p.spec, .key = key, .along = along });
}

static void step_run(void *context, struct run r)
{
    const struct drawing *d = context;

    #pragma omp parallel for schedule(static) if (r.length > 32 * DRAWN_AT_ONCE)
    for (int64_t at = 0; at < r.length; at += DRAWN_AT_ONCE) {
        const int64_t n = r.length - at < DRAWN_AT_ONCE ? r.length - at : DRAWN_AT_ONCE;
        double drawn[DRAWN_AT_ONCE], rounded[DRAWN_AT_ONCE];
        /* The direction is drawn again here: it is never kept. */
        mezo_draw(d->spec, d->key, r.whole + at, n, drawn);
        convert_numbers(rounded, d->w.dtype, drawn, F64, n);
        optimizer_step(d->optimizer, elements(d->w, r.piece + at, n), tensor_1d(rounded, d->w.dtype, n), NULL, d->step);
    }
}

void drawn_step(const struct optimizer *o, struct tensor w, struct drawn p, uint64_t key, struct step step)
{
    each_run(w, p, step_run, &(struct drawing){ .w = w, .spec = p.spec, .key = key, .optimizer = o, .step = step });
}
