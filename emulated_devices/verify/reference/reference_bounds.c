/* reference_bounds.c -- the distances of a twin from the truth and the bounds that follow from them.  The caller
 * compare.c asks for bounds tensor by tensor.  The functions read the reference; only twins_begin and twins_keep
 * change it.  No function returns an error code. */
#include "emulated_devices/verify/reference/reference_bounds.h"
#include "emulated_devices/verify/reference/quantised.h"
#include "emulated_devices/verify/reference/reference_encoders.h"
#include "emulated_devices/verify/reference/reference_low_rank.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <string.h>

/* ---- distances --------------------------------------------------------------------------------------------------- */

double tensor_distance(struct tensor a, struct tensor b) { return sqrt(squared_distance(a, b)); }

double norm_of(const struct reference *reference,
               struct tensor t) { return sqrt(ops_squares(reference->truth.model.ops, t)); }

double tensor_farthest(struct tensor a, struct tensor b)
{
    double most = 0;
    for (int64_t i = 0; i < tensor_count(a); i++) most = fmax(most, fabs(tensor_get(a, i) - tensor_get(b, i)));
    return most;
}

/* ---- twins ------------------------------------------------------------------------------------------------------- */

void twins_begin(struct reference *reference)
{
    memset(reference->earlier, 0, (size_t)reference->truth.model.params * sizeof *reference->earlier);
    reference->twins = 1;
}

struct gradient_distance gradient_distance(const struct reference *reference, int i)
{
    const struct tensor twin = reference->twin.model.g[i], truth = reference->truth.model.g[i];
    return (struct gradient_distance){ fmax(reference->earlier[i].norm, tensor_distance(twin, truth)),
                                       fmax(reference->earlier[i].farthest, tensor_farthest(twin, truth)) };
}

double gradient_reach(const struct reference *reference, int i)
{
    const struct tensor g = reference->truth.model.g[i];
    const struct gradient_distance d = gradient_distance(reference, i);
    /* The norm is the largest distance of a twin, plus the rounding of the whole gradient. */
    const double norm = d.norm + 2 * dtype_unit(g.dtype) * norm_of(reference, g);
    /* A chance error is spread over all elements: one has hardly more than 4 times the root mean square. */
    return fmax(d.farthest, norm * fmin(1, 4 / sqrt((double)tensor_count(g))));
}

void twins_keep(struct reference *reference)
{
    /* After this loop the distances of all twins so far are in earlier[], so the twin's gradients may go. */
    for (int i = 0; i < reference->truth.model.params; i++) reference->earlier[i] = gradient_distance(reference, i);
    transformer_zero_gradients(&reference->twin.model);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* The result is the bound of the masters or, with their rounding, of the weights. */
static double bound_in(const struct reference *reference, int i, enum dtype dtype)
{
    const struct tensor m = reference->truth.master[i];
    /* far = |twin - truth| + |responses|, absolute; the result is relative to |truth|. */
    const double far = tensor_distance(reference->twin.master[i], m) + reference->response[i];
    return relative_or_absolute(far, norm_of(reference, m), tensor_count(m), dtype);
}

double reference_weight_bound(const struct reference *reference, int i)
{
    return quantised_after_step(reference->plan) ? 0 : bound_in(reference, i, reference->truth.model.w[i].dtype);
}
double reference_master_bound(const struct reference *reference, int i)
{
    return bound_in(reference, i, reference->truth.master[i].dtype);
}

/* The last term is the rounding of 16-bit sums, one for each summand; `stored` is 0 for other formats. */
double reference_gradient_bound(const struct reference *reference, int i)
{
    const struct tensor g = reference->truth.model.g[i];
    const double size = norm_of(reference, g);
    return relative_or_absolute(gradient_distance(reference, i).norm + reference->turn[i].R, size,
                                tensor_count(g), g.dtype) +
           reference->stored * relative_or_absolute(0, size, tensor_count(g), reference->plan->dtype);
}

/* States that are held as codes are compared as numbers; a projection may also be turned. */
double reference_state_bound(const struct reference *reference, int i, int state)
{
    const int at = i * OPTIMIZER_MAX_STATES + state;
    const struct tensor s = reference_numbers(reference, i, state, reference->truth.state[at], 0),
                        twin = reference_numbers(reference, i, state, reference->twin.state[at], 1);
    double far = tensor_distance(twin, s) + reference->state_response[at];
    if (state == LOW_RANK_PROJECTION) far += reference->turn[i].P;
    return relative_or_absolute(far, norm_of(reference, s), tensor_count(s), s.dtype);
}

/* The result is the square of how far the global norm may be off, without the loss scale: a sum over all parameters. */
static double squared_norm_bound(const struct reference *reference)
{
    double sum = 0;
    for (int i = 0; i < reference->truth.model.params; i++) {
        const double steps = reference->stored * dtype_step(reference->plan->dtype)
            * sqrt((double)tensor_count(reference->truth.model.g[i])),
                     far = gradient_distance(reference, i).norm + reference->turn[i].R + steps;
        sum += far * far;
    }
    sum += reference_encoders_off(reference);
    return sum / (reference->truth.model.loss_scale * reference->truth.model.loss_scale);
}

/* With replicas: the reported norm is that of the vector of their norms over sqrt(replicas), so its difference is at
 * most that of the vector of differences. */
double reference_norm_bound(const struct reference *reference)
{
    double sum = squared_norm_bound(reference);
    for (int i = 1; i < reference->replicas; i++) sum += squared_norm_bound(&reference->other[i - 1]);
    const double rounded = dtype_unit(reference->truth.model.g[0].dtype) + reference->stored
        * dtype_unit(reference->plan->dtype);
    return sqrt(sum / reference->replicas) + 2 * rounded * reference_norm(reference);
}

/* norm = sqrt(mean of the replicas' squared norms), as struct step_result reports; with one replica its own. */
double reference_norm(const struct reference *reference)
{
    double sum = reference->truth.norm * reference->truth.norm;
    for (int i = 1; i < reference->replicas; i++)
        sum += reference->other[i - 1].truth.norm * reference->other[i - 1].truth.norm;
    return reference->replicas > 1 ? sqrt(sum / reference->replicas) : reference->truth.norm;
}

/* loss = sum of all replicas' losses over all their labels; counted is 0 where no label counts. */
double reference_loss(const struct reference *reference)
{
    double sum = reference->truth.loss * (double)reference->counted;
    int64_t counted = reference->counted;
    for (int i = 1; i < reference->replicas; i++)
        sum += reference->other[i - 1].truth.loss * (double)reference->other[i - 1].counted,
            counted += reference->other[i - 1].counted;
    return reference->replicas > 1 ? sum / (double)(counted ? counted : 1) : reference->truth.loss;
}

/* The first term is the mean of the tokens' differences; the second is the rounding of B S summands. */
double reference_mean_bound(const struct reference *reference, double spread, double mean)
{
    int64_t counted = reference->counted;
    for (int i = 1; i < reference->replicas; i++) counted += reference->other[i - 1].counted;
    return spread / (double)(counted ? counted : 1) +
           PERTURB_LAMBDA * sqrt((double)(reference->plan->B * reference->plan->S)) * dtype_unit(F64) * fabs(mean);
}

double reference_loss_bound(const struct reference *reference)
{
    double spread = reference->loss_spread;
    for (int i = 1; i < reference->replicas; i++) spread += reference->other[i - 1].loss_spread;
    return reference_mean_bound(reference, spread, reference_loss(reference));
}
