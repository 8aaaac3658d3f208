/* direction.c -- weights without gradients: moved copies for the passes, and a step along a random direction, which is
 * drawn again when needed, not kept.
 *
 * Source   S. Malladi et al., arXiv:2305.17333 (MeZO); blocks that are moved when they are needed, in slices on all
 *          devices: L. Wang et al., arXiv:2503.12668 (ZO2) and arXiv:2507.03211 (DistZO2)
 * Memory   the kept weights n/w, and a moved copy of one part of the model (of two while the next one is gathered); no
 *          gradients
 * Equals   ref/model/mezo.h: z of an element depends on its place in the whole parameter, so every device that has the
 *          element draws the same z
 */
#include "emulated_devices/schemes/data/stage.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/mezo.h"
#include "ref/numeric/convert.h"

/* Weights that are acquired are w + along z. */
struct direction { uint64_t key; double along; };

static struct direction *own_state(const struct data_parallel *dp) { return chain_state(dp, &stage_direction); }

void data_set_direction(struct data_parallel *dp, uint64_t key, double along)
{
    *own_state(dp) = (struct direction){ key, along };
    if (dp->at >= dp->uses) dp->at = 0;
    else if (dp->use[dp->at].pass == PASS_TURN) dp->at++;
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

struct moving { const struct direction *direction; const struct parameter *parameter; struct tensor w; };

static void move_run(void *context, struct run r)
{
    const struct moving *m = context;
    mezo_move(&m->parameter->spec, m->direction->key, m->direction->along, r.whole, r.length, m->w.dtype,
              slice(m->w, (struct interval){ r.piece, r.length }).data);
}

/* Whole parameters are stored one after another. */
static void move_unit(const struct data_parallel *dp, const struct direction *d, struct unit *u)
{
    for (int i = 0; i < u->count; i++) {
        const struct parameter *p = &u->parameter[i];
        struct views v = views_of(dp->device);
        struct moving m = { d, p,
                            view_write(&v, slice(u->w, (struct interval){ p->place, layout_count(&p->layout) })) };
        layout_each_run(&p->layout, move_run, &m);
        views_end(&v);
    }
    dev_charge(dp->device, "move weights", u->w, 2, 2);
    u->moved = true;
}

/* Move a unit's weights when they are whole on the device. */
static enum error_code acquire(struct data_parallel *dp, struct use use, bool ahead, struct error *err)
{
    int unit[PART_UNITS];
    (void)ahead, (void)err;
    for (int i = 0, n = units_at(dp, use, unit); i < n; i++)
        if (!dp->unit[unit[i]].moved) move_unit(dp, own_state(dp), &dp->unit[unit[i]]);
    return OK;
}

/* ---- stepping ---------------------------------------------------------------------------------------------------- */

struct along { const struct stretch *stretch; const struct direction *direction; };

enum { DRAWN_AT_ONCE = 512 };

/* The direction is the gradient, and the slope multiplies it. */
static void step_run(void *context, struct run r)
{
    const struct along *a = context;
    const struct stretch *x = a->stretch;
    const enum dtype t = x->master.dtype;

    #pragma omp parallel for schedule(static) if (r.length > 32 * DRAWN_AT_ONCE)
    for (int64_t at = 0; at < r.length; at += DRAWN_AT_ONCE) {
        const int64_t n = r.length - at < DRAWN_AT_ONCE ? r.length - at : DRAWN_AT_ONCE;
        double drawn[DRAWN_AT_ONCE], rounded[DRAWN_AT_ONCE];
        const struct tensor z = tensor_1d(rounded, t, n);
        mezo_draw(&x->at.parameter->spec, a->direction->key, r.whole + at, n, drawn);
        convert_numbers(rounded, t, drawn, F64, n);
        optimizer_step(x->dp->optimizer, slice(x->master, (struct interval){ r.piece + at, n }), z, NULL, x->step);
    }
}

static void step_along(const struct stretch *x)
{
    struct along a = { x, own_state(x->dp) };
    layout_each_run_within(&x->at.parameter->layout, x->at.piece, x->at.length, step_run, &a);
}

/* ---- the stage --------------------------------------------------------------------------------------------------- */

static bool takes_part(const struct data_parallel *dp) { return !has_gradients(dp); }

static enum error_code open_direction(struct data_parallel *dp, struct error *err)
{
    (void)err;
    dp->step_stretch = step_along;
    return OK;
}

const struct data_stage stage_direction = {
    .name = "direction", .takes_part = takes_part, .state = sizeof (struct direction), .outline = open_direction,
    .acquire = acquire,
};
