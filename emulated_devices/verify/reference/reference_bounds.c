#include "emulated_devices/verify/reference/reference_bounds.h"
#include "emulated_devices/verify/reference/quantised.h"
#include "emulated_devices/verify/reference/reference_low_rank.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <string.h>

/* ---- distances --------------------------------------------------------------------------------------------------- */

double tensor_distance(struct tensor a, struct tensor b) { return sqrt(squared_distance(a, b)); }

double norm_of(const struct reference *r, struct tensor t) { return sqrt(ops_squares(r->truth.model.ops, t)); }

double tensor_farthest(struct tensor a, struct tensor b)
{
    double most = 0;
    for (int64_t i = 0; i < tensor_count(a); i++) most = fmax(most, fabs(tensor_get(a, i) - tensor_get(b, i)));
    return most;
}

/* ---- twins ------------------------------------------------------------------------------------------------------- */

void twins_begin(struct reference *r)
{
    memset(r->earlier, 0, (size_t)r->truth.model.params * sizeof *r->earlier);
    r->twins = 1;
}

struct gradient_distance gradient_distance(const struct reference *r, int i)
{
    const struct tensor twin = r->twin.model.g[i], truth = r->truth.model.g[i];
    return (struct gradient_distance){ fmax(r->earlier[i].norm, tensor_distance(twin, truth)),
                                       fmax(r->earlier[i].farthest, tensor_farthest(twin, truth)) };
}

double gradient_reach(const struct reference *r, int i)
{
    const struct tensor g = r->truth.model.g[i];
    const struct gradient_distance d = gradient_distance(r, i);
    const double norm = d.norm + 2 * dtype_unit(g.dtype) * norm_of(r, g);
    /* A chance error is spread over all elements: one has hardly more than 4 times the root mean square. */
    return fmax(d.farthest, norm * fmin(1, 4 / sqrt((double)tensor_count(g))));
}

void twins_keep(struct reference *r)
{
    for (int i = 0; i < r->truth.model.params; i++) r->earlier[i] = gradient_distance(r, i);
    transformer_zero_gradients(&r->twin.model);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* The bound of the masters or, with their rounding, of the weights. */
static double bound_in(const struct reference *r, int i, enum dtype t)
{
    const struct tensor m = r->truth.master[i];
    const double far = tensor_distance(r->twin.master[i], m) + r->response[i];
    return relative_or_absolute(far, norm_of(r, m), tensor_count(m), t);
}

double reference_weight_bound(const struct reference *r, int i)
{
    return quantised_after_step(r->plan) ? 0 : bound_in(r, i, r->truth.model.w[i].dtype);
}
double reference_master_bound(const struct reference *r, int i)
{
    return bound_in(r, i, r->truth.master[i].dtype);
}

double reference_gradient_bound(const struct reference *r, int i)
{
    const struct tensor g = r->truth.model.g[i];
    const double size = norm_of(r, g);
    return relative_or_absolute(gradient_distance(r, i).norm + r->turn[i].R, size, tensor_count(g), g.dtype) +
           r->stored * relative_or_absolute(0, size, tensor_count(g), r->plan->dtype);
}

double reference_state_bound(const struct reference *r, int i, int state)
{
    const int at = i * OPTIMIZER_MAX_STATES + state;
    const struct tensor s = reference_numbers(r, i, state, r->truth.state[at], 0),
                        twin = reference_numbers(r, i, state, r->twin.state[at], 1);
    double far = tensor_distance(twin, s) + r->state_response[at];
    if (state == LOW_RANK_PROJECTION) far += r->turn[i].P;
    return relative_or_absolute(far, norm_of(r, s), tensor_count(s), s.dtype);
}

static double squared_norm_bound(const struct reference *r)
{
    double sum = 0;
    for (int i = 0; i < r->truth.model.params; i++) {
        const double steps = r->stored * dtype_step(r->plan->dtype) * sqrt((double)tensor_count(r->truth.model.g[i])),
                     far = gradient_distance(r, i).norm + r->turn[i].R + steps;
        sum += far * far;
    }
    return sum / (r->truth.model.loss_scale * r->truth.model.loss_scale);
}

/* With replicas: the reported norm is that of the vector of their norms over sqrt(replicas), so its difference is at
 * most that of the vector of differences. */
double reference_norm_bound(const struct reference *r)
{
    double sum = squared_norm_bound(r);
    for (int i = 1; i < r->replicas; i++) sum += squared_norm_bound(&r->other[i - 1]);
    const double rounded = dtype_unit(r->truth.model.g[0].dtype) + r->stored * dtype_unit(r->plan->dtype);
    return sqrt(sum / r->replicas) + 2 * rounded * reference_norm(r);
}

double reference_norm(const struct reference *r)
{
    double sum = r->truth.norm * r->truth.norm;
    for (int i = 1; i < r->replicas; i++) sum += r->other[i - 1].truth.norm * r->other[i - 1].truth.norm;
    return r->replicas > 1 ? sqrt(sum / r->replicas) : r->truth.norm;
}

double reference_loss(const struct reference *r)
{
    double sum = r->truth.loss * (double)r->counted;
    int64_t counted = r->counted;
    for (int i = 1; i < r->replicas; i++)
        sum += r->other[i - 1].truth.loss * (double)r->other[i - 1].counted, counted += r->other[i - 1].counted;
    return r->replicas > 1 ? sum / (double)(counted ? counted : 1) : r->truth.loss;
}

double reference_mean_bound(const struct reference *r, double spread, double mean)
{
    int64_t counted = r->counted;
    for (int i = 1; i < r->replicas; i++) counted += r->other[i - 1].counted;
    return spread / (double)(counted ? counted : 1) +
           PERTURB_LAMBDA * sqrt((double)(r->plan->B * r->plan->S)) * dtype_unit(F64) * fabs(mean);
}

double reference_loss_bound(const struct reference *r)
{
    double spread = r->loss_spread;
    for (int i = 1; i < r->replicas; i++) spread += r->other[i - 1].loss_spread;
    return reference_mean_bound(r, spread, reference_loss(r));
}
