#include "emulated_devices/verify/compare.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Keep the larger ratio; NaN is larger than anything. */
static void note(struct comparison *c, struct worst *worst, const char *kind, struct worst found)
{
    c->compared++;
    if (!(found.error <= c->largest_error)) c->largest_error = found.error;
    found.ratio = found.error == 0 ? 0 : found.error / found.bound;
    if (!(found.ratio <= 1) && !c->failed) {
        c->failed = true;
        c->first = found;
        snprintf(c->first_kind, sizeof c->first_kind, "%s", kind);
    }
    if (!(found.ratio <= worst->ratio) || worst->tensor[0] == 0) *worst = found;
}

/* ---- one parameter --------------------------------------------------------------------------------------------- */

struct job {
    struct comparison *result;
    struct worst *worst;
    const char *kind;
    struct tensor truth;
    double size, bound;                 /* norm of the whole truth; its relative bound */
    int64_t step;
};

struct sum { struct tensor truth, piece; double squares; };

static void add_run(void *context, struct run r)
{
    struct sum *s = context;
    for (int64_t i = 0; i < r.length; i++) {
        const double d = tensor_get(s->piece, r.piece + i) - tensor_get(s->truth, r.whole + i);
        s->squares += d * d;
    }
}

static void compare_piece(void *context, const struct piece *p)
{
    struct job *j = context;
    struct sum s = { .truth = j->truth, .piece = p->data };
    layout_each_run(p->layout, add_run, &s);
    struct worst found = { .error = s.squares == 0 ? 0 : sqrt(s.squares) / j->size, .bound = j->bound, .rank = p->rank, .step = j->step };
    snprintf(found.tensor, sizeof found.tensor, "%s", p->spec->name);
    note(j->result, j->worst, j->kind, found);
}

static double norm(const struct ops *ops, struct tensor t) { return sqrt(ops->sum_of_squares(t)); }

static enum error_code compare_all(struct trainer *t, struct reference *ref, enum tensor_kind kind, struct comparison *c,
                                   struct worst *worst, const char *name, struct error *err)
{
    const int n = model_param_count(&t->plan.model);
    enum error_code e = OK;
    for (int i = 0; i < n && !e; i++) {
        struct job j = { .result = c, .worst = worst, .kind = name };
        if (t->comm->rank == 0) {
            const struct transformer *a = &ref->truth.model;
            j.truth = kind == KIND_GRADIENT ? a->g[i] : a->w[i];
            j.size = norm(a->ops, j.truth);
            j.bound = kind == KIND_GRADIENT ? reference_gradient_bound(ref, i) : reference_weight_bound(ref, i);
            j.step = t->step;
        }
        e = collect(t, i, kind, compare_piece, &j, err);
    }
    return e;
}

enum error_code compare_gradients(struct trainer *t, struct reference *ref, double loss, struct comparison *c, struct error *err)
{
    if (t->comm->rank == 0) {
        struct worst found = { .error = fabs(loss - ref->truth.loss) / fabs(ref->truth.loss),
                               .bound = reference_loss_bound(ref) / fabs(ref->truth.loss), .tensor = "loss", .step = t->step };
        note(c, &c->loss, "loss", found);
    }
    return compare_all(t, ref, KIND_GRADIENT, c, &c->gradient, "gradient", err);
}

enum error_code compare_weights(struct trainer *t, struct reference *ref, struct comparison *c, struct error *err)
{
    return compare_all(t, ref, KIND_WEIGHT, c, &c->weight, "weight", err);
}
