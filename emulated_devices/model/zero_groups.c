/* zero_groups.c -- finds groups of weights that can be zero together in a model's table, and leaves them out
 * (zero_groups.h).  cli/prune.c calls these functions.  Errors: ERR_PLAN of a model without such groups, or whose
 * layers would differ; ERR_MEMORY. */
#include "emulated_devices/model/zero_groups.h"
#include "ref/model/family.h"
#include <stdlib.h>
#include <string.h>

const char *const zero_group_names[] = { "feed-forward", "heads", NULL };

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* The only node that reads a slot; NULL: there is none, or there are several. */
static const struct node *only_reader(const struct node *table, const char *slot)
{
    const struct node *found = NULL;
    for (const struct node *node = table; node->op != OP_END; node++)
        for (int i = 0; i < NODE_INPUTS; i++) {
            if (node->in[i] == NULL || strcmp(node->in[i], slot) != 0) continue;
            if (found) return NULL;
            found = node;
        }
    return found;
}

/* Whether an operation makes 0 of 0, row by row and column by column, or of a gate and its values. */
static bool keeps_zero(enum op op)
{
    return op == OP_GELU || op == OP_SILU || op == OP_SWIGLU || op == OP_GEGLU || op == OP_HEAD_NORM ||
           op == OP_ROTARY || op == OP_ATTENTION;
}

/* Follow a matrix's output to the next matrix.  @return that, or NULL; *gated, *heads: what was met. */
static const struct node *follow(const struct node *table, const struct node *from, bool *gated, bool *heads)
{
    const struct node *node = only_reader(table, from->out);
    *gated = *heads = false;
    while (node && node->out && keeps_zero(node->op)) {
        *gated |= node->op == OP_SWIGLU || node->op == OP_GEGLU;
        *heads |= node->op == OP_ATTENTION;
        node = only_reader(table, node->out);
    }
    return node && node->op == OP_MATRIX ? node : NULL;
}

enum error_code zero_groups_find(struct zero_groups *groups, const struct model_config *config,
                                 enum zero_group_kind kind, struct error *err)
{
    const struct node *const table = model_program(config)->block;
    const int64_t queries = config->H / (config->K > 0 ? config->K : 1), A = config->A;
    for (const struct node *node = table; node->op != OP_END; node++) {
        bool gated, heads;
        const struct node *const into = node->op == OP_MATRIX ? follow(table, node, &gated, &heads) : NULL;
        const enum block_param wanted = kind == ZERO_HEADS ? QKV_W : UP_W;
        if (into == NULL || heads != (kind == ZERO_HEADS) || node->param != wanted || node->dense) continue;
        if (param_of_block(config, 0, node->param) < 0) continue;
        /* A norm of all heads together makes other numbers of the heads that are left. */
        if (heads && config->head_norms && config->normed_together) continue;
        *groups = (struct zero_groups){ .kind = kind, .from = node->param, .into = into->param };
        if (heads) {
            groups->count = config->K, groups->pieces = 3, groups->columns = queries * A;
            groups->start[1] = config->H * A, groups->start[2] = (config->H + config->K) * A;
            groups->rows[0] = queries * A, groups->rows[1] = groups->rows[2] = A;
        } else {
            groups->count = config->F, groups->pieces = gated ? 2 : 1, groups->columns = 1;
            groups->start[1] = config->F, groups->rows[0] = groups->rows[1] = 1;
        }
        return OK;
    }
    return fail(err, ERR_PLAN, "%s has no zero-invariant groups of its %s: nothing in its table leads from one matrix "
                "to another and keeps zeros", config->name, zero_group_names[kind]);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

static int64_t rows_of_group(const struct zero_groups *groups)
{
    int64_t rows = 0;
    for (int p = 0; p < groups->pieces; p++) rows += groups->rows[p];
    return rows;
}

/* The width of a row of `from`, and its bias; -1: it has none. */
static int64_t row_width(const struct zero_groups *groups, const struct model_config *config, int64_t layer, int *bias)
{
    *bias = param_bias(config, layer, groups->from);
    return model_param(config, param_of_block(config, layer, groups->from)).dim[1];
}

int64_t zero_groups_size(const struct zero_groups *groups, const struct model_config *config)
{
    int bias;
    const int64_t width = row_width(groups, config, 0, &bias);
    return rows_of_group(groups) * (width + (bias >= 0));
}

/* Call for each number of each group of a layer, in the order of `numbers`: in which tensor it is, and where. */
static void each_number(const struct zero_groups *groups, const struct model_config *config, int64_t layer,
                        void (*see)(void *context, int param, int64_t at, int64_t number), void *context)
{
    int bias;
    const int64_t width = row_width(groups, config, layer, &bias);
    const int param = param_of_block(config, layer, groups->from);
    int64_t number = 0;
    for (int64_t j = 0; j < groups->count; j++)
        for (int p = 0; p < groups->pieces; p++)
            for (int64_t r = 0; r < groups->rows[p]; r++) {
                const int64_t row = groups->start[p] + j * groups->rows[p] + r;
                for (int64_t k = 0; k < width; k++) see(context, param, row * width + k, number++);
                if (bias >= 0) see(context, bias, row, number++);
            }
}

struct moving { const struct tensor *from; struct tensor *to; double *taken; const double *given; };

static void take_one(void *context, int param, int64_t at, int64_t number)
{
    const struct moving *const moving = context;
    moving->taken[number] = tensor_get(moving->from[param], at);
}

static void give_one(void *context, int param, int64_t at, int64_t number)
{
    const struct moving *const moving = context;
    tensor_set(moving->to[param], at, moving->given[number]);
}

void zero_groups_take(const struct zero_groups *groups, const struct transformer *model, const struct tensor *of,
                      int64_t layer, double *numbers)
{
    each_number(groups, &model->config, layer, take_one, &(struct moving){ .from = of, .taken = numbers });
}

void zero_groups_give(const struct zero_groups *groups, struct transformer *model, int64_t layer, const double *numbers)
{
    each_number(groups, &model->config, layer, give_one, &(struct moving){ .to = model->w, .given = numbers });
}

/* ---- the smaller model ------------------------------------------------------------------------------------------- */

/* The groups of a layer that are not 0.  @return how many. */
static int64_t groups_kept(const struct zero_groups *groups, const struct transformer *model, int64_t layer,
                           double *numbers, int64_t *kept)
{
    const int64_t size = zero_groups_size(groups, &model->config);
    int64_t count = 0;
    zero_groups_take(groups, model, model->w, layer, numbers);
    for (int64_t j = 0; j < groups->count; j++) {
        bool zero = true;
        for (int64_t k = 0; k < size && zero; k++) zero = numbers[j * size + k] == 0;
        if (!zero) kept[count++] = j;
    }
    return count;
}

/* The row of the model that is row `row` of the smaller one, or the column. */
static int64_t row_before(const struct zero_groups *groups, const struct zero_groups *smaller, const int64_t *kept,
                          int64_t row)
{
    int p = groups->pieces - 1;
    while (p > 0 && row < smaller->start[p]) p--;
    const int64_t in = row - smaller->start[p];
    return groups->start[p] + kept[in / groups->rows[p]] * groups->rows[p] + in % groups->rows[p];
}

static void copy_param(const struct zero_groups *groups, const struct zero_groups *less,
                       const struct transformer *model, struct transformer *smaller, int param, const int64_t *kept)
{
    const struct param_spec *const was = &model->spec[param], *const is = &smaller->spec[param];
    const int layer = is->layer;
    const bool inside = layer >= 0 && layer < model->config.L;
    const bool rows = inside && (param == param_of_block(&model->config, layer, groups->from) ||
                                 param == param_bias(&model->config, layer, groups->from));
    const bool columns = inside && param == param_of_block(&model->config, layer, groups->into);
    const int64_t wide = is->ndim == 2 ? is->dim[1] : 1, wide_before = was->ndim == 2 ? was->dim[1] : 1;
    for (int64_t i = 0; i < is->dim[0]; i++)
        for (int64_t k = 0; k < wide; k++) {
            const int64_t row = rows ? row_before(groups, less, kept, i) : i;
            const int64_t column = columns ? kept[k / groups->columns] * groups->columns + k % groups->columns : k;
            tensor_set(smaller->w[param], i * wide + k, tensor_get(model->w[param], row * wide_before + column));
        }
}

struct model_config zero_groups_config(const struct zero_groups *groups, const struct model_config *config,
                                       int64_t count)
{
    struct model_config smaller = *config;
    if (groups->kind == ZERO_HEADS) smaller.H = config->H / config->K * count, smaller.K = count;
    else smaller.F = count;
    return smaller;
}

enum error_code zero_groups_leave_out(const struct zero_groups *groups, const struct transformer *model,
                                      struct transformer *smaller, struct error *err)
{
    const int64_t L = model->config.L, size = zero_groups_size(groups, &model->config);
    double *numbers = malloc((size_t)(groups->count * size) * sizeof *numbers);
    int64_t *kept = malloc((size_t)(L * groups->count) * sizeof *kept), count = 0;
    enum error_code e = numbers && kept ? OK : fail(err, ERR_MEMORY, "no memory for the groups of a layer");
    for (int64_t l = 0; l < L && !e; l++) {
        const int64_t left = groups_kept(groups, model, l, numbers, kept + l * groups->count);
        if (l == 0) count = left;
        if (left == 0) e = fail(err, ERR_PLAN, "layer %d has no group left of its %s", (int)l,
                                zero_group_names[groups->kind]);
        else if (left != count)
            e = fail(err, ERR_PLAN, "layer 0 keeps %lld groups of its %s and layer %d %lld: layers of a model have the "
                     "same sizes", (long long)count, zero_group_names[groups->kind], (int)l, (long long)left);
    }
    struct model_config config = zero_groups_config(groups, &model->config, count);
    struct zero_groups less;
    if (!e) e = model_config_check(&config, err);
    if (!e) e = zero_groups_find(&less, &config, groups->kind, err);
    if (!e) e = transformer_open(smaller, &config, model->ops->dtype, 0, err);
    for (int i = 0; i < model->params && !e; i++) {
        const int layer = smaller->spec[i].layer;
        const int64_t own = layer >= 0 && layer < L ? layer : 0;
        copy_param(groups, &less, model, smaller, i, kept + own * groups->count);
    }
    if (!e) memcpy(smaller->router_bias, model->router_bias,
                   (size_t)(L * mixture_columns(&config.mixture)) * sizeof *model->router_bias);
    free(numbers), free(kept);
    return e;
}
