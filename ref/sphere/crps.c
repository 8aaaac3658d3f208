/* crps.c -- the score of an ensemble at each point, summed by channel, and its gradient.
 *
 * schemes/spatial/ and tests call this file.  No function here can fail.
 */
#include "ref/sphere/crps.h"
#include <math.h>

/* Members below this one, less those above it: the sum over e and g of |f_e - f_g| is 2 sum_e f_e times this. */
static double standing(struct crps crps, const double *forecast, int64_t member, int64_t at)
{
    const int64_t pitch = crps.channels * crps.points;
    const double own = forecast[member * pitch + at];
    double rank = 0;
    for (int64_t e = 0; e < crps.members; e++) {
        const double other = forecast[e * pitch + at];
        if (e != member) rank += other < own || (other == own && e < member) ? 1 : -1;
    }
    return rank;
}

/* The weight of an unordered pair of members; one member has no pair. */
static double crps_pairs(struct crps crps)
{
    const double E = (double)crps.members;
    return crps.members > 1 ? (E - 1 + crps.alpha) / (E * E * (E - 1)) : 0;
}

/* loss [channels] from forecast [members, channels, points] and observation [channels, points]. */
void crps_forward(struct crps crps, const double *forecast, const double *observation, const double *weight,
                  double *loss)
{
    for (int64_t n = 0; n < crps.channels; n++) {
        loss[n] = 0;
        for (int64_t p = 0; p < crps.points; p++) {
            const int64_t at = n * crps.points + p;
            double skill = 0, spread = 0;
            for (int64_t e = 0; e < crps.members; e++) {
                /* skill = sum of |f_e - o|; spread = sum of |f_e - f_g| over unordered pairs, by the ranks of
                 * members. */
                const double f = forecast[e * crps.channels * crps.points + at];
                skill += fabs(f - observation[at]);
                spread += f * standing(crps, forecast, e, at);
            }
            if (!isnan(observation[at]))
                loss[n] += weight[p] * (skill / (double)crps.members - crps_pairs(crps) * spread);
        }
    }
}

/* d_forecast has the shape of forecast; an observation that is missing gives 0. */
void crps_backward(struct crps crps, const double *forecast, const double *observation, const double *weight,
                   const double *d_loss, double *d_forecast)
{
    const int64_t pitch = crps.channels * crps.points;
    for (int64_t i = 0; i < crps.members * pitch; i++) {
        /* d f_e = d_loss w (sign(f_e - o) / E - pairs (members below - members above)). */
        const int64_t at = i % pitch;
        const double apart = forecast[i] - observation[at], sign = (apart > 0) - (apart < 0);
        d_forecast[i] = isnan(observation[at]) ? 0
            : d_loss[at / crps.points] * weight[at % crps.points] *
                  (sign / (double)crps.members - crps_pairs(crps) * standing(crps, forecast, i / pitch, at));
    }
}
