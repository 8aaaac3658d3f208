#include "emulated_devices/verify/reference_low_rank.h"
#include "ref/model/perturb.h"
#include <math.h>
#include <stdlib.h>

struct low_rank reference_low_rank(const struct plan *p, const struct param_spec *s)
{
    return low_rank_of(p->optimizer, &p->hyper, param_is_linear(s), s->dim[0], s->dim[1]);
}

static double largest_difference(struct tensor a, struct tensor b)
{
    double most = 0;
    for (int64_t i = 0; i < tensor_count(a); i++) most = fmax(most, fabs(tensor_get(a, i) - tensor_get(b, i)));
    return most;
}

/* By how much the sizes of column k's largest positive and largest negative element differ: which of them is larger is its sign. */
static double sign_margin(struct tensor P, int64_t k)
{
    double highest = 0, lowest = 0;
    for (int64_t i = 0; i < P.dim[0]; i++) {
        const double v = tensor_get(P, i * P.dim[1] + k);
        highest = fmax(highest, v), lowest = fmin(lowest, v);
    }
    return highest + lowest;
}

/* square: of the singular values, [a], largest first; e: how far elements of G may be off. */
static struct turn turn_of(struct low_rank p, struct tensor P, const double *square, double e)
{
    const double rounding = PERTURB_LAMBDA * dtype_unit(F64) * square[0];
    struct turn sum = { 0 };
    for (int64_t i = 0; i < p.r; i++) {
        double turned = 0;
        for (int64_t j = 0; j < p.a; j++) {
            const double apart = fabs(square[i] - square[j]), by = (sqrt(square[i]) + sqrt(square[j])) * e + rounding;
            const double angle = i == j || by == 0 ? 0 : by < apart ? by / apart : 1;
            turned += angle * angle, sum.R += angle * angle * square[j];
        }
        const bool reversible = sign_margin(P, i) <= sqrt(2 * turned);      /* at most what two elements of a vector turned so differ by */
        sum.P += turned + (reversible ? 4 : 0), sum.R += reversible ? 4 * square[i] : 0;
    }
    return (struct turn){ .P = sqrt(sum.P), .R = sqrt(sum.R) };
}

static enum error_code find_anew(struct reference *r, int i, struct low_rank p, char *scratch, double *square, struct error *err)
{
    const int state = i * OPTIMIZER_MAX_STATES + LOW_RANK_PROJECTION;
    const double off = largest_difference(r->twin.model.g[i], r->truth.model.g[i]);
    enum error_code e = galore_refresh(p, r->twin.state[state], r->twin.model.g[i], scratch, NULL, err);
    if (!e) e = galore_refresh(p, r->truth.state[state], r->truth.model.g[i], scratch, square, err);
    if (!e) r->turn[i] = turn_of(p, r->truth.state[state], square, off);
    return e;
}

static enum error_code project_one(struct reference *r, int i, bool anew, struct error *err)
{
    const struct low_rank p = reference_low_rank(r->plan, &r->truth.model.spec[i]);
    const int state = i * OPTIMIZER_MAX_STATES + LOW_RANK_PROJECTION;
    if (p.r == 0) return OK;
    char *scratch = malloc(galore_scratch(p, r->truth.model.g[i].dtype));
    double *square = malloc(sizeof *square * (size_t)p.a);
    enum error_code e = scratch && square ? OK : fail(err, ERR_MEMORY, "no memory to project the gradient of %s", r->truth.model.spec[i].name);
    if (!e && anew) e = find_anew(r, i, p, scratch, square, err);
    else r->turn[i].R = r->turn[i].P * sqrt(r->truth.model.ops->sum_of_squares(r->truth.model.g[i]));
    if (!e) galore_project(p, r->truth.model.g[i], r->truth.state[state], scratch);
    if (!e) galore_project(p, r->twin.model.g[i], r->twin.state[state], scratch);
    free(scratch), free(square);
    return e;
}

enum error_code reference_project(struct reference *r, int64_t t, enum project_when when, struct error *err)
{
    const struct plan *p = r->plan;
    enum error_code e = OK;
    const bool whole = p->optimizer->low_rank && low_rank_takes_whole(&p->hyper, t);
    for (int i = 0; i < r->truth.model.params && whole && when == BEFORE_REDUCTION; i++) r->turn[i].R = 0;
    if (!p->optimizer->low_rank || (when == IN_THE_STEP) != whole) return OK;
    for (int i = 0; i < r->truth.model.params && !e; i++) e = project_one(r, i, low_rank_refreshes(&p->hyper, t), err);
    return e;
}
