#include "emulated_devices/verify/reference/reference_bounds.h"
#include "emulated_devices/verify/reference/quantised.h"
#include "emulated_devices/verify/reference/reference_low_rank.h"
#include "ref/numeric/distance.h"
#include "ref/numeric/rounding.h"
#include <math.h>
#include <string.h>

/* ---- distances --------------------------------------------------------------------------------------------------- */

double tensor_distance(struct tensor a, struct tensor b) { return sqrt(squared_distance(a, b)); }

double tensor_farthest(struct tensor a, struct tensor b)
{
    double most = 0;
    for (int64_t i = 0; i < tensor_count(a); i++) most = fmax(most, fabs(tensor_get(a, i) - tensor_get(b, i)));
    return most;
}

/* ---- gradients of few numbers ------------------------------------------------------------------------------------ */

/* Correct programs differ by up to a third of a twin's distance in 16 bits, and by up to a tenth in wide formats, whose
 * twins are disturbed by ten times the error of a sum.  The distance of so many numbers is by chance so much shorter
 * than usual less than once in 10,000 times. */
static int64_t enough_numbers(enum dtype t) { return dtype_wide(t) == t ? 8 : 16; }

/* Of its smallest part: in the gradient of the biases of queries, keys and values, those of a single head's values may
 * outweigh all others. */
static int64_t numbers(const struct param_spec *s)
{
    int64_t rows = s->dim[0];
    for (int i = 0; i < s->parts; i++) rows = s->part[i].rows < rows ? s->part[i].rows : rows;
    return rows * (s->ndim == 2 ? s->dim[1] : 1);
}

int twins_of_plan(const struct plan *p)
{
    int twins = 1;
    if (optimizer_draws(p->optimizer) || p->optimizer->infers) return 1;
    for (int i = 0; i < model_param_count(&p->model); i++) {
        const struct param_spec s = model_param(&p->model, i);
        twins = (int)fmax(twins, ceil((double)enough_numbers(p->dtype) / (double)numbers(&s)));
    }
    return twins;
}

void twins_begin(struct reference *r)
{
    memset(r->earlier, 0, (size_t)r->truth.model.params * sizeof *r->earlier);
}

struct gradient_distance gradient_distance(const struct reference *r, int i)
{
    const struct tensor twin = r->twin.model.g[i], truth = r->truth.model.g[i];
    return (struct gradient_distance){ fmax(r->earlier[i].norm, tensor_distance(twin, truth)),
                                       fmax(r->earlier[i].farthest, tensor_farthest(twin, truth)) };
}

void twins_keep(struct reference *r)
{
    for (int i = 0; i < r->truth.model.params; i++)
        if (numbers(&r->truth.model.spec[i]) < enough_numbers(r->plan->dtype)) r->earlier[i] = gradient_distance(r, i);
    transformer_zero_gradients(&r->twin.model);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

double norm_of(const struct reference *r, struct tensor t) { return sqrt(r->truth.model.ops->sum_of_squares(t)); }

double tensor_relative(double far, struct tensor of, double size, enum dtype t)
{
    const double step = 2 * rounding_of(t, DTYPE_COUNT, 1).tiny;
    const double steps = size > 0 ? step * sqrt((double)tensor_count(of)) / size : 0;
    return (far == 0 ? 0 : far / size) + 2 * dtype_unit(t) + steps;
}

/* The bound of the masters or, with their rounding, of the weights. */
static double bound_in(const struct reference *r, int i, enum dtype t)
{
    const struct tensor m = r->truth.master[i];
    return tensor_relative(tensor_distance(r->twin.master[i], m) + r->response[i], m, norm_of(r, m), t);
}

double reference_weight_bound(const struct reference *r, int i)
{
    return quantised_after_step(r->plan) ? 0
           : r->known                    ? r->known->weight[i]
                                         : bound_in(r, i, r->truth.model.w[i].dtype);
}
double reference_master_bound(const struct reference *r, int i)
{
    return r->known ? r->known->weight[i] : bound_in(r, i, r->truth.master[i].dtype);
}

double reference_gradient_bound(const struct reference *r, int i)
{
    if (r->known) return r->known->gradient[i];
    const struct tensor g = r->truth.model.g[i];
    return tensor_relative(gradient_distance(r, i).norm + r->turn[i].R, g, norm_of(r, g), g.dtype) + r->stored;
}

double reference_state_bound(const struct reference *r, int i, int state)
{
    if (r->known) return r->known->state[i * OPTIMIZER_MAX_STATES + state];
    const int at = i * OPTIMIZER_MAX_STATES + state;
    const struct tensor s = reference_numbers(r, i, state, r->truth.state[at], 0),
                        twin = reference_numbers(r, i, state, r->twin.state[at], 1);
    double far = tensor_distance(twin, s) + r->state_response[at];
    if (state == LOW_RANK_PROJECTION) far += r->turn[i].P;
    return tensor_relative(far, s, norm_of(r, s), s.dtype);
}

static double squared_norm_bound(const struct reference *r)
{
    double sum = 0;
    for (int i = 0; i < r->truth.model.params; i++) {
        const double far = gradient_distance(r, i).norm + r->turn[i].R;
        sum += far * far;
    }
    return sum / (r->truth.model.loss_scale * r->truth.model.loss_scale);
}

/* With replicas: the reported norm is that of the vector of their norms over sqrt(replicas), so its difference is at
 * most that of the vector of differences. */
double reference_norm_bound(const struct reference *r)
{
    if (r->known) return r->known->norm * r->truth.norm;
    double sum = squared_norm_bound(r);
    for (int i = 1; i < r->replicas; i++) sum += squared_norm_bound(&r->other[i - 1]);
    return sqrt(sum / r->replicas) + (2 * dtype_unit(r->truth.model.g[0].dtype) + r->stored) * reference_norm(r);
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
    if (r->known) return r->known->loss * fabs(r->truth.loss);
    double spread = r->loss_spread;
    for (int i = 1; i < r->replicas; i++) spread += r->other[i - 1].loss_spread;
    return reference_mean_bound(r, spread, reference_loss(r));
}
