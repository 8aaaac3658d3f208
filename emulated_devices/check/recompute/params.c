/* params.c -- lists the parameters of a model once, and finds them by their names.
 * report/singles.c makes the list for a check and all its checks of copies; recompute/ and mistakes/ ask through
 * single_spec.  Only single_params_make can fail: without memory there is nothing to free. */
#include "emulated_devices/check/recompute/parts.h"
#include "ref/model/config.h"
#include "ref/model/params.h"
#include <stdlib.h>
#include <string.h>

static int params_by_name(const void *a, const void *b)
{
    const struct single_param_place *x = a, *y = b;
    return strcmp(x->name, y->name);
}

enum error_code single_params_make(struct single_params *params, const struct model_config *config, struct error *err)
{
    const int n = model_param_count(config);
    *params = (struct single_params){ .count = n, .spec = malloc(((size_t)n + 1) * sizeof *params->spec),
                                      .by_name = malloc(((size_t)n + 1) * sizeof *params->by_name) };
    if (params->spec == NULL || params->by_name == NULL) {
        single_params_free(params);
        return fail(err, ERR_MEMORY, "no memory for the parameters of model %s", config->name);
    }
    for (int i = 0; i < n; i++) params->spec[i] = model_param(config, i);
    single_params_sort(params);
    return OK;
}

void single_params_sort(struct single_params *params)
{
    for (int i = 0; i < params->count; i++)
        params->by_name[i] = (struct single_param_place){ params->spec[i].name, i };
    qsort(params->by_name, (size_t)params->count, sizeof *params->by_name, params_by_name);
}

int single_params_find(const struct single_params *params, const char *name)
{
    const struct single_param_place wanted = { name, 0 },
        *const at = bsearch(&wanted, params->by_name, (size_t)params->count, sizeof wanted, params_by_name);
    return at ? at->param : -1;
}

void single_params_free(struct single_params *params)
{
    free(params->spec), free(params->by_name);
    *params = (struct single_params){ 0 };
}

int single_spec_count(const struct single *single)
{
    const struct single_params *list = single->context->source.params;
    return list ? list->count : model_param_count(single->context->config);
}

/* Sources of tests have no list. */
struct param_spec single_spec(const struct single *single, int param)
{
    const struct single_params *list = single->context->source.params;
    return list ? list->spec[param] : model_param(single->context->config, param);
}
