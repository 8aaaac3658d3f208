#include "ref/model/perturb.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <string.h>

/* What moves a number by at most sum |x| + the larger of store |x| and step. */
struct disturbance { double sum, store, step; };

static double moved(double x, struct disturbance d, double r)
{
    return x == 0 ? x : x * (1 + r * (d.sum + fmax(d.store, d.step / fabs(x))));
}

/* One Philox block gives the numbers for four elements. */
static void disturb(struct tensor t, struct disturbance d, uint64_t seed, uint64_t stream)
{
    const int64_t n = tensor_count(t), blocks = (n + 3) / 4;
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    #pragma omp parallel for schedule(static) if (n > 16384)
    for (int64_t b = 0; b < blocks; b++) {
        const uint32_t counter[4] = { (uint32_t)b, (uint32_t)(b >> 32), (uint32_t)stream, (uint32_t)(stream >> 32) };
        uint32_t word[4];
        philox4x32(counter, key, word);
        for (int64_t i = 4 * b; i < 4 * b + 4 && i < n; i++)
            tensor_set(t, i, moved(tensor_get(t, i), d, (double)word[i - 4 * b] * 0x1p-31 - 1));
    }
}

static bool is_parameter(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot && (strcmp(dot, ".weight") == 0 || strcmp(dot, ".bias") == 0);
}

static bool is_narrow(enum dtype t) { return dtype_wide(t) != t; }

static void see(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms)
{
    struct perturbation *p = context;
    const enum dtype stored = is_narrow(p->stored) ? p->stored : t.dtype;
    (void)layer;
    const int parts = gradient && is_parameter(name) ? p->gradient_parts : p->parts;
    const double lambda = p->lambda > 0 ? p->lambda : PERTURB_LAMBDA,
                 steps = is_narrow(stored) ? (p->steps > 0 ? p->steps : 1) * (parts > 1 ? parts : 1) : 0;
    disturb(t,
            (struct disturbance){ .sum = lambda * sqrt((double)terms) * dtype_unit(dtype_wide(t.dtype)),
                                  .store = steps * 2 * dtype_unit(stored),
                                  .step = steps * dtype_step(stored) },
            p->seed, p->announced++);
}

struct observer perturbing_observer(struct perturbation *p)
{
    return (struct observer){ .see = see, .context = p };
}
