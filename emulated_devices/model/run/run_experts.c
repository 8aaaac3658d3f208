/* run_experts.c -- what experts compute on the rows that have come to them: two products and an activation, forward,
 * backward for the inputs and for the weights.
 *
 * Source  as ref/model/mixture.c, whose order of operations this follows
 * Called  run_mixture.c gives the expert scheme these passes (run_experts_body).  Errors: ERR_MEMORY without room for
 *         sums, ERR_FILE for weights that cannot be read, and ERR_COMM of a sum over devices.
 */
#include "emulated_devices/model/run/run_node.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/experts/expert_terms.h"
#include "ref/model/params.h"
#include <stdlib.h>

static const struct mixture_config *run_experts_config(const struct node_call *call)
{
    return &call->stage->plan->model.mixture;
}

/* A matrix of an expert, or its gradient: what the scheme gives, or this device's piece. */
static struct tensor matrix_of(const struct node_call *call, const struct expert_rows *rows, int64_t expert,
                               enum block_param param, bool gradient)
{
    const int place = param_of_expert(&call->stage->plan->model, call->part->layer, expert, param);
    if (rows->weights) return rows->weights[(param == DOWN_W) * run_experts_config(call)->E + expert];
    return gradient ? stage_gradient(call->stage, place) : stage_weight(call->stage, place);
}

/* The first of the devices that share the columns of F, and add up their results, adds the second matrix's bias. */
static bool adds_bias(const struct node_call *call, enum block_param bias)
{
    const struct expert_parallel *ep = &call->stage->seams->ep;
    return bias == UP_B || (ep->scheme->cuts_experts ? ep->slice : ep->tp->rank) == 0;
}

/* Its bias, or the gradient; none where the model has none, or the pass does not read it. */
static struct tensor bias_of(const struct node_call *call, int64_t expert, enum block_param bias,
                             enum product_pass pass)
{
    const int place = param_of_expert(&call->stage->plan->model, call->part->layer, expert, bias);
    if (pass == PRODUCT_FORWARD) return adds_bias(call, bias) ? stage_weight(call->stage, place) : tensor_none;
    return pass == PRODUCT_WEIGHT ? stage_gradient(call->stage, place) : tensor_none;
}

/* A pass of each expert that has rows, on its own rows.  More than PRODUCTS_MOST are several lists. */
static void run_mixture_multiply(const struct node_call *call, enum product_pass pass, const struct expert_rows *rows,
                                 enum block_param param, struct tensor Y, struct tensor X)
{
    struct device_product list[PRODUCTS_MOST];
    int count = 0;
    int64_t first = 0;
    for (int64_t e = 0; e < run_experts_config(call)->E; first += rows->counts[e++]) {
        if (rows->counts[e] == 0) continue;                /* others may have its matrix */
        list[count++] = (struct device_product){ tensor_rows_of(Y, first, rows->counts[e]),
                                                 tensor_rows_of(X, first, rows->counts[e]),
                                                 matrix_of(call, rows, e, param, pass == PRODUCT_WEIGHT),
                                                 bias_of(call, e, param == UP_W ? UP_B : DOWN_B, pass) };
        if (count == PRODUCTS_MOST) dev_products(call->stage->device, pass, list, count), count = 0;
    }
    dev_products(call->stage->device, pass, list, count);
}

/* Enter what the choice of experts reads: those with rows, by their layouts. */
static void enter_reads(const struct node_call *call, const int32_t *counts)
{
    static const enum block_param parts[] = { UP_W, UP_B, DOWN_W, DOWN_B };
    struct tier_traffic *t = &call->stage->chosen;
    for (int64_t e = 0; e < run_experts_config(call)->E && call->stage->plan->data.chosen; e++) {
        if (counts[e] == 0) continue;
        t->reads++;
        for (int i = 0; i < 4; i++) {
            const int place = param_of_expert(&call->stage->plan->model, call->part->layer, e, parts[i]);
            if (place < 0) continue;
            const struct parameter *own = parameter_find(call->stage->parameters, place);
            t->bytes_read += (uint64_t)layout_count(&own->layout) * dtype_size(call->stage->device->dtype);
        }
    }
}

static void act_forward(const struct node_call *call, struct tensor Y, struct tensor X)
{
    const struct clamped by = run_experts_config(call)->clamped;
    if (by.limit > 0) dev_clamped_swiglu_forward(call->stage->device, Y, X, by);
    else dev_swiglu_forward(call->stage->device, Y, X);
}

static void act_backward(const struct node_call *call, struct tensor dX, struct tensor dY, struct tensor X)
{
    const struct clamped by = run_experts_config(call)->clamped;
    if (by.limit > 0) dev_clamped_swiglu_backward_input(call->stage->device, dX, dY, X, by);
    else dev_swiglu_backward_input(call->stage->device, dX, dY, X);
}

/* ---- what a probe sees of experts -------------------------------------------------------------------------------- */

bool run_experts_shows(const struct node_call *call)
{
    const struct probe *probe = call->stage->probe;
    return probe && probe->sorted && !call->again;
}

/* Show rows of experts, of which the caller has set what differs. */
static void run_mixture_show(const struct node_call *call, struct sorted_rows shown)
{
    if (!run_experts_shows(call)) return;
    shown.layer = call->part->layer, shown.micro = (int)(call->micro - call->stage->micro);
    call->stage->probe->see_sorted(call->stage->probe->context, &shown);
}

/* Show the rows before and behind the activation: this device's columns of F. */
static void run_mixture_show_inner(const struct node_call *call, const struct expert_rows *rows, bool gradient,
                                   struct tensor up, struct tensor act)
{
    const int32_t *const row = call->stage->seams->ep.routing->row;
    const struct sorted_rows shown = { .gradient = gradient, .counts = rows->counts, .columns = rows->columns,
                                       .row = row ? row + rows->first : row };
    for (int i = 0; i < 2; i++) {
        struct sorted_rows one = shown;
        one.name = sorted_by_expert[i], one.t = i == 0 ? up : act;
        run_mixture_show(call, one);
    }
}

/* Results of devices with other columns of F are summands, unless each has their sum. */
static void body_show(const void *context, const struct expert_rows *rows, struct tensor results, bool gradient)
{
    const struct node_call *c = context;
    const struct expert_parallel *ep = &c->stage->seams->ep;
    struct group *const summed = run_experts_are_finished(c) ? NULL
        : ep->scheme->cuts_experts ? experts_row_group(ep, ep->routing) : ep->tp->group;
    run_mixture_show(c, (struct sorted_rows){ .name = sorted_by_expert[2], .gradient = gradient, .t = results,
                                              .counts = rows->counts,
                                              .row = ep->routing->row ? ep->routing->row + rows->first : NULL,
                                              .columns = ep->tp->channels, .summed = gradient ? NULL : summed });
}

/* ---- columns of F on several devices ----------------------------------------------------------------------------- */

/* With all experts here, exact sums over F are finished on every device along tp. */
bool run_experts_are_finished(const struct node_call *call)
{
    return call->stage->device->exact && !call->stage->seams->ep.scheme->cuts_experts;
}

/* The experts whose sums over F are exact and on several devices: those of these rows. */
static struct expert_terms run_experts_terms(const struct node_call *call, const struct expert_rows *rows)
{
    struct expert_parallel *const ep = &call->stage->seams->ep;
    const bool moves = ep->scheme->cuts_experts;
    struct group *const group = moves ? experts_row_group(ep, ep->routing) : call->stage->tp->group;
    return (struct expert_terms){
        .group = group, .device = call->stage->device, .allreduce = call->stage->tp->allreduce,
        .counts = rows->counts, .experts = ep->routing->experts, .clears = moves && group->rank > 0
    };
}

/* A matrix of each expert of these, as the products below want them; for free. */
static enum error_code list_matrices(const struct node_call *call, enum product_pass pass,
                                     const struct expert_rows *rows, enum block_param param,
                                     struct expert_matrix **list, struct error *err)
{
    const int64_t E = run_experts_config(call)->E;
    *list = calloc((size_t)E, sizeof **list);
    if (*list == NULL) return fail(err, ERR_MEMORY, "no memory to list %lld experts", (long long)E);
    for (int64_t e = 0; e < E; e++) {
        if (rows->counts[e] == 0) continue;
        (*list)[e].W = matrix_of(call, rows, e, param, pass == PRODUCT_WEIGHT);
        (*list)[e].b = bias_of(call, e, param == UP_W ? UP_B : DOWN_B, pass);
    }
    return OK;
}

/* Whether a product adds over columns of F, or reads rows of F: the second matrix forward, the first one backward for
 * its input, and both for the weights. */
static bool adds_over_columns(const struct node_call *call, enum product_pass pass, const struct expert_rows *rows,
                              enum block_param param)
{
    const bool over = pass == PRODUCT_WEIGHT || (pass == PRODUCT_FORWARD) == (param == DOWN_W);
    return over && call->stage->device->exact && run_experts_terms(call, rows).group->size > 1;
}

/* A pass of each expert that has rows: Y, X as run_mixture_multiply has them.  With exact sums collective over the
 * devices with other columns of F. */
static enum error_code run_experts_product(const struct node_call *call, enum product_pass pass,
                                           const struct expert_rows *rows, enum block_param param, struct tensor Y,
                                           struct tensor X, struct error *err)
{
    struct expert_matrix *list;
    if (!adds_over_columns(call, pass, rows, param)) return run_mixture_multiply(call, pass, rows, param, Y, X), OK;
    struct expert_terms terms = run_experts_terms(call, rows);
    /* Rows that were sent here are all there; with all experts here, some choices may be of none. */
    terms.rows = call->stage->seams->ep.scheme->cuts_experts ? tensor_rows(Y)
        : tensor_rows_at(call->stage->tp, STREAM, call->micro->N).count * run_experts_config(call)->k;
    enum error_code e = list_matrices(call, pass, rows, param, &list, err);
    if (!e && pass == PRODUCT_FORWARD) e = expert_terms_forward(&terms, list, Y, X, err);
    else if (!e && pass == PRODUCT_INPUT) e = expert_terms_input(&terms, list, X, Y, err);
    else if (!e) e = expert_terms_weight(&terms, list, param == UP_W, Y, X, err);
    free(list);
    return e;
}

/* ---- the experts' passes ----------------------------------------------------------------------------------------- */

static enum error_code body_forward(const void *context, struct expert_rows rows, struct error *err)
{
    const struct node_call *c = context;
    enter_reads(c, rows.counts);
    const enum error_code e = data_read_experts(c->stage->data, c->part->index, rows.counts, err);
    if (e) return e;
    run_mixture_multiply(c, PRODUCT_FORWARD, &rows, UP_W, rows.up, rows.rows);
    act_forward(c, rows.act, rows.up);
    run_mixture_show_inner(c, &rows, false, rows.up, rows.act);
    return run_experts_product(c, PRODUCT_FORWARD, &rows, DOWN_W, rows.results, rows.act, err);
}

static enum error_code body_input(const void *context, struct expert_rows rows, struct expert_gradients gradients,
                                  struct error *err)
{
    const struct node_call *c = context;
    run_mixture_multiply(c, PRODUCT_INPUT, &rows, DOWN_W, gradients.results, gradients.act);
    act_backward(c, gradients.up, gradients.act, rows.up);
    run_mixture_show_inner(c, &rows, true, gradients.up, gradients.act);
    return run_experts_product(c, PRODUCT_INPUT, &rows, UP_W, gradients.up, gradients.rows, err);
}

static enum error_code body_weight(const void *context, struct expert_rows rows, struct expert_gradients gradients,
                                   struct error *err)
{
    const struct node_call *c = context;
    const enum error_code e = run_experts_product(c, PRODUCT_WEIGHT, &rows, DOWN_W, gradients.results, rows.act, err);
    return e ? e : run_experts_product(c, PRODUCT_WEIGHT, &rows, UP_W, gradients.up, rows.rows, err);
}

static struct tensor piece(const void *context, int64_t expert, int matrix, bool gradient)
{
    const struct expert_rows own = { .weights = NULL };
    return matrix_of(context, &own, expert, matrix == 0 ? UP_W : DOWN_W, gradient);
}

struct expert_body run_experts_body(const struct node_call *call)
{
    return (struct expert_body){ call, body_forward, body_input, body_weight, piece, body_show };
}
