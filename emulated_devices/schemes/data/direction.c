/* direction.c -- weights without gradients: moved copies for the passes, and a step along a direction that is drawn, not kept.
 *
 * Source   S. Malladi et al., arXiv:2305.17333 (MeZO), and for blocks that are moved as they are needed, in slices of which each device
 *          has one, L. Wang et al., arXiv:2503.12668 (ZO2) and arXiv:2507.03211 (DistZO2)
 * Memory   the kept weights n/w, and one part of the model moved, two where the next one is gathered meanwhile; no gradients
 * Equals   ref/model/mezo.h: z of an element depends on where it is in the whole parameter, so that whoever has it draws the same.
 */
#include "emulated_devices/schemes/data/gather.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/mezo.h"
#include "ref/numeric/convert.h"

void data_set_direction(struct data_parallel *dp, uint64_t key, double along)
{
    dp->direction.key = key, dp->direction.along = along;
    if (dp->at >= dp->uses) dp->at = 0;
    else if (dp->use[dp->at].pass == PASS_TURN) dp->at++;
}

/* ---- moving --------------------------------------------------------------------------------------------------------------- */

struct moving { const struct data_parallel *dp; const struct parameter *parameter; struct tensor w; };

static void move_run(void *context, struct run r)
{
    const struct moving *m = context;
    mezo_move(&m->parameter->spec, m->dp->direction.key, m->dp->direction.along, r.whole, r.length, m->w.dtype,
              slice(m->w, (struct interval){ r.piece, r.length }).data);
}

/* Whole parameters lie one after another. */
void move_weights(const struct data_parallel *dp, struct unit *u)
{
    if (u->moved) return;
    for (int i = 0; i < u->count; i++) {
        const struct parameter *p = &u->parameter[i];
        struct views v = views_of(dp->device);
        struct moving m = { dp, p, view_write(&v, slice(u->w, (struct interval){ p->place, layout_count(&p->layout) })) };
        layout_each_run(&p->layout, move_run, &m);
        views_end(&v);
    }
    dev_charge(dp->device, "move weights", u->w, 2, 2);
    u->moved = true;
}

/* ---- stepping ------------------------------------------------------------------------------------------------------------- */

struct along { const struct data_parallel *dp; const struct parameter *parameter; struct tensor w; struct step step; };

enum { DRAWN_AT_ONCE = 512 };

/* The direction is the gradient, and the slope multiplies it. */
static void step_run(void *context, struct run r)
{
    const struct along *a = context;

    #pragma omp parallel for schedule(static) if (r.length > 32 * DRAWN_AT_ONCE)
    for (int64_t at = 0; at < r.length; at += DRAWN_AT_ONCE) {
        const int64_t n = r.length - at < DRAWN_AT_ONCE ? r.length - at : DRAWN_AT_ONCE;
        double drawn[DRAWN_AT_ONCE], rounded[DRAWN_AT_ONCE];
        const struct tensor z = tensor_1d(rounded, a->w.dtype, n);
        mezo_draw(&a->parameter->spec, a->dp->direction.key, r.whole + at, n, drawn);
        convert(rounded, z.dtype, drawn, F64, n);
        optimizer_step(a->dp->optimizer, slice(a->w, (struct interval){ r.piece + at, n }), z, NULL, a->step);
    }
}

void step_along(const struct data_parallel *dp, struct portion s, struct tensor w, struct step step)
{
    struct along a = { dp, s.parameter, w, step };
    layout_each_run_within(&s.parameter->layout, s.piece, s.length, step_run, &a);
}
