/* balance.c -- says which rows one balance loss has, and computes the loss's slope.  ref/model/mixture.c and
 * model/balance.c call, and check/recompute/route.c computes the slopes again.  All functions are pure and report no
 * errors. */
#include "ref/model/balance.h"

struct balance_rule balance_rule_of(const struct conventions *as)
{
    return (struct balance_rule){ .over = (int)convention(as, BALANCE_OVER),
                                  .layers = (int)convention(as, BALANCE_LAYERS),
                                  .choices = (int)convention(as, BALANCE_CHOICES) };
}

/* DeepSpeed's gates for one and for two experts count the first choice alone, its gate for more counts all. */
int64_t balance_counted(const struct mixture_config *config)
{
    return config->balance.choices == CHOICES_FIRST && config->k <= 2 ? 1 : config->k;
}

struct balance_rows balance_rows_of(const struct mixture_config *config, int64_t tokens, int64_t all, int64_t layers)
{
    const double times = config->balance.layers == LAYERS_EACH ? 1 : (double)layers;
    return (struct balance_rows){ .of_loss = (double)tokens * times, .of_batch = (double)all * times };
}

double balance_rows_among(const struct mixture_config *config, const double *rows, int64_t L, int64_t layer)
{
    double all = 0;
    for (int64_t l = 0; l < L; l++) all += config->balance.layers == LAYERS_TOGETHER || l == layer ? rows[l] : 0;
    return all;
}

double balance_slope(const struct mixture_config *config, struct balance_rows rows, double chosen)
{
    const int64_t counted = balance_counted(config);
    /* share f_e = choices of e per row; slope = E f_e / rows: loss = sum over e of slope_e times the sum of p_e. */
    const double share = chosen / rows.of_loss / (config->balance.choices == CHOICES_ALL ? 1 : (double)counted);
    return rows.of_loss > 0 ? (double)mixture_columns(config) * share / rows.of_batch : 0;
}
