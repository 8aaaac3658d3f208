/* half_space.c -- scores groups of weights, pulls the least of them towards zero and projects them (half_space.h).
 * cli/prune.c calls these functions.  No function returns an error code. */
#include "ref/optim/half_space.h"
#include <float.h>
#include <math.h>
#include <stddef.h>

static const double SAFE = 1e-8, SAFE_SIZE = 1e-6;      /* what the released optimizer adds before it divides */

static double group_dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static double group_length(const double *x, int64_t n) { return sqrt(group_dot(x, x, n)); }

void half_space_scores(const double *x, const double *step, int64_t count, int64_t size, double *score)
{
    double cosines = 0, sizes = 0;
    for (int64_t j = 0; j < count; j++) {
        const double *const group = x + j * size, *const way = step + j * size;
        const double length = group_length(group, size), width = group_length(way, size);
        const double cosine = group_dot(group, way, size) / (fmax(length, SAFE) * fmax(width, SAFE));
        const double small = 1 / (length / (double)size + SAFE_SIZE);
        cosines += cosine * cosine, sizes += small * small;
    }
    for (int64_t j = 0; j < count; j++) {
        const double *const group = x + j * size, *const way = step + j * size;
        const double length = group_length(group, size), width = group_length(way, size);
        const double cosine = group_dot(group, way, size) / (fmax(length, SAFE) * fmax(width, SAFE));
        const double small = 1 / (length / (double)size + SAFE_SIZE);
        score[j] = 0.5 * cosine / fmax(sqrt(cosines), DBL_MIN) + 0.5 * small / fmax(sqrt(sizes), DBL_MIN);
    }
}

void half_space_choose(const double *score, int64_t count, int64_t number, bool *is_pulled)
{
    for (int64_t j = 0; j < count; j++) is_pulled[j] = false;
    for (int64_t k = 0; k < number; k++) {
        int64_t best = -1;
        for (int64_t j = 0; j < count; j++)
            if (!is_pulled[j] && (best < 0 || score[j] > score[best])) best = j;
        if (best >= 0) is_pulled[best] = true;
    }
}

/* How strongly a group is pulled.  If its step lengthens it, more than the least that shortens it all the same, and
 * less than what would turn it away from its own step. */
static double pull_of(const struct half_space *half_space, const double *x, const double *step, int64_t size)
{
    const double along = group_dot(x, step, size), squares = group_dot(step, step, size);
    const double length = group_length(x, size);
    if (along >= 0) return half_space->pull;
    const double least = -along / length, limit = -squares * length / along;
    const double pull = fmin(fmax(half_space->amplify * least, half_space->pull), half_space->pull * half_space->most);
    return pull >= limit ? (limit + least) / 2 : pull;
}

void half_space_step(const struct half_space *half_space, double *x, const double *step, const bool *is_pulled,
                     int64_t count, int64_t size, int64_t room)
{
    const bool enough = room <= 0;
    for (int64_t j = 0; j < count; j++) {
        double *const group = x + j * size;
        const double *const way = step + j * size;
        const double length = group_length(group, size);
        if (length == 0) continue;                              /* a group that is 0 stays so */
        const double pull = !is_pulled[j] ? 0 : enough ? half_space->pull : pull_of(half_space, group, way, size);
        double inside = 0;
        for (int64_t i = 0; i < size; i++)
            inside += (group[i] - half_space->lr * (way[i] + pull * group[i] / (length + SAFE))) * group[i];
        const bool leaves = is_pulled[j] && room > 0 && inside < half_space->eps * length * length;
        room -= leaves;
        for (int64_t i = 0; i < size; i++)
            group[i] = leaves ? 0 : group[i] - half_space->lr * (way[i] + pull * group[i] / (length + SAFE));
    }
}

int64_t half_space_zeros(const double *x, int64_t count, int64_t size)
{
    int64_t zeros = 0;
    for (int64_t j = 0; j < count; j++) zeros += group_dot(x + j * size, x + j * size, size) == 0;
    return zeros;
}
