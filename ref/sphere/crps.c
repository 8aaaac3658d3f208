#include "ref/sphere/crps.h"
#include <math.h>

/* Members below this one, less those above it: the sum over e and g of |f_e - f_g| is 2 sum_e f_e times this. */
static double standing(struct crps c, const double *forecast, int64_t member, int64_t at)
{
    const int64_t pitch = c.channels * c.points;
    const double own = forecast[member * pitch + at];
    double rank = 0;
    for (int64_t e = 0; e < c.members; e++) {
        const double other = forecast[e * pitch + at];
        if (e != member) rank += other < own || (other == own && e < member) ? 1 : -1;
    }
    return rank;
}

static double pairs(struct crps c)
{
    const double E = (double)c.members;
    return c.members > 1 ? (E - 1 + c.alpha) / (E * E * (E - 1)) : 0;
}

void crps_forward(struct crps c, const double *forecast, const double *observation, const double *weight, double *loss)
{
    for (int64_t n = 0; n < c.channels; n++) {
        loss[n] = 0;
        for (int64_t p = 0; p < c.points; p++) {
            const int64_t at = n * c.points + p;
            double skill = 0, spread = 0;
            for (int64_t e = 0; e < c.members; e++) {
                /* skill = sum of |f_e - o|; spread = sum of |f_e - f_g| over unordered pairs, by the ranks of
                 * members. */
                const double f = forecast[e * c.channels * c.points + at];
                skill += fabs(f - observation[at]);
                spread += f * standing(c, forecast, e, at);
            }
            if (!isnan(observation[at])) loss[n] += weight[p] * (skill / (double)c.members - pairs(c) * spread);
        }
    }
}

void crps_backward(struct crps c, const double *forecast, const double *observation, const double *weight,
                   const double *d_loss, double *d_forecast)
{
    const int64_t pitch = c.channels * c.points;
    for (int64_t i = 0; i < c.members * pitch; i++) {
        /* d f_e = d_loss w (sign(f_e - o) / E - pairs (members below - members above)). */
        const int64_t at = i % pitch;
        const double apart = forecast[i] - observation[at], sign = (apart > 0) - (apart < 0);
        d_forecast[i] = isnan(observation[at]) ? 0
            : d_loss[at / c.points] * weight[at % c.points] *
                  (sign / (double)c.members - pairs(c) * standing(c, forecast, i / pitch, at));
    }
}
