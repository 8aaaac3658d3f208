/* run_mixture.c -- a mixture of experts on one device: all experts are here, rows are sorted by expert.
 *
 * Source  as ref/model/mixture.c, whose order of operations this follows
 */
#include "emulated_devices/model/run_node.h"
#include "emulated_devices/device/compute.h"

/* What the operations keep, by its place in operation_info(). */
enum { ORDER, COUNTS, ROWS, UP, ACT, RESULTS };
enum { D_RESULTS, D_UP };

static struct tensor kept(const struct node_call *c, int which) { return node_buffer(c, c->node->statistic[which]); }
static struct tensor left(const struct node_call *c, int which) { return node_buffer(c, c->node->gradient[which]); }
static const struct mixture_config *mixture(const struct node_call *c) { return &c->stage->plan->model.mixture; }

/* ---- the router's choice --------------------------------------------------------------------------------------------------- */

enum error_code node_route_forward(const struct node_call *c, struct error *err)
{
    const struct tensor logits = node_buffer(c, c->node->x[0]);
    (void)err;
    dev_route_forward(c->stage->device, node_buffer(c, c->node->y), kept(c, 0), logits, mixture(c)->normalized);
    if (!c->again) dev_router_losses_forward(c->stage->device, c->stage->routers.sums, logits, kept(c, 0));
    return OK;
}

enum error_code node_route_input(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    const struct routers *r = &c->stage->routers;
    (void)err;
    dev_route_backward_input(c->stage->device, node_buffer(c, n->dx[0]), node_buffer(c, n->dy), node_buffer(c, n->y), kept(c, 0), node_buffer(c, n->x[0]),
                             mixture(c)->normalized);
    dev_router_losses_backward_input(c->stage->device, node_buffer(c, n->dx[0]), node_buffer(c, n->x[0]), r->slope, r->z_slope);
    return OK;
}

/* ---- the experts ------------------------------------------------------------------------------------------------------------- */

/* One expert's rows of the sorted ones. */
struct expert { int64_t number, first, count; };

/* The next expert that has rows.  Begin with { -1 }. */
static bool next_expert(const struct node_call *c, struct expert *e)
{
    const int32_t *counts = kept(c, COUNTS).data;
    do {
        e->first += e->count, e->number++;
        if (e->number == mixture(c)->E) return false;
        e->count = counts[e->number];
    } while (e->count == 0);
    return true;
}

static int place_of_expert(const struct node_call *c, struct expert e, enum block_param p)
{
    return param_of_expert(&c->stage->plan->model, c->part->layer, e.number, p);
}

/* Y = X W^T, of each expert its own rows. */
static void experts_forward(const struct node_call *c, enum block_param p, struct tensor Y, struct tensor X)
{
    for (struct expert e = { .number = -1 }; next_expert(c, &e); )
        dev_linear_forward(c->stage->device, tensor_rows_of(Y, e.first, e.count), tensor_rows_of(X, e.first, e.count),
                           stage_weight(c->stage, place_of_expert(c, e, p)), tensor_none);
}

static void experts_input(const struct node_call *c, enum block_param p, struct tensor dX, struct tensor dY)
{
    for (struct expert e = { .number = -1 }; next_expert(c, &e); )
        dev_linear_backward_input(c->stage->device, tensor_rows_of(dX, e.first, e.count), tensor_rows_of(dY, e.first, e.count),
                                  stage_weight(c->stage, place_of_expert(c, e, p)));
}

static void experts_weight(const struct node_call *c, enum block_param p, struct tensor dY, struct tensor X)
{
    for (struct expert e = { .number = -1 }; next_expert(c, &e); )
        dev_linear_backward_weight(c->stage->device, stage_gradient(c->stage, place_of_expert(c, e, p)), tensor_none,
                                   tensor_rows_of(dY, e.first, e.count), tensor_rows_of(X, e.first, e.count));
}

/* The node that made the weights keeps the choices. */
static struct tensor choices(const struct node_call *c)
{
    const struct linked *l = &c->part->linked;
    return node_buffer(c, l->node[l->slot[c->node->in[1]].maker].statistic[0]);
}

enum error_code node_mixture_forward(const struct node_call *c, struct error *err)
{
    struct device *d = c->stage->device;
    (void)err;
    dev_expert_order(d, kept(c, ORDER), kept(c, COUNTS), choices(c));
    dev_gather_forward(d, kept(c, ROWS), tensor_own_rows(c->stage->tp, node_buffer(c, c->node->x[0]), c->micro->N), kept(c, ORDER), mixture(c)->k);
    experts_forward(c, UP_W, kept(c, UP), kept(c, ROWS));
    dev_swiglu_forward(d, kept(c, ACT), kept(c, UP));
    experts_forward(c, DOWN_W, kept(c, RESULTS), kept(c, ACT));
    dev_combine_forward(d, node_buffer(c, c->node->y), kept(c, RESULTS), kept(c, ORDER), node_buffer(c, c->node->x[1]));
    return OK;
}

enum error_code node_mixture_input(const struct node_call *c, struct error *err)
{
    struct device *d = c->stage->device;
    const struct linked_node *n = c->node;
    const int64_t rows = tensor_rows(kept(c, ROWS));
    struct tensor d_act = device_tensor_2d(d, BUFFERS, rows, tensor_cols(kept(c, ACT)));
    struct tensor d_rows = device_tensor_2d(d, BUFFERS, rows, tensor_cols(kept(c, ROWS)));
    const bool room = d_act.data && d_rows.data;
    if (room) {
        dev_combine_backward_input(d, left(c, D_RESULTS), node_buffer(c, n->dx[1]), node_buffer(c, n->dy), kept(c, RESULTS), kept(c, ORDER),
                                   node_buffer(c, n->x[1]));
        experts_input(c, DOWN_W, d_act, left(c, D_RESULTS));
        dev_swiglu_backward_input(d, left(c, D_UP), d_act, kept(c, UP));
        experts_input(c, UP_W, d_rows, left(c, D_UP));
        dev_gather_backward_input(d, node_buffer(c, n->dx[0]), d_rows, kept(c, ORDER), mixture(c)->k);
    }
    device_free(d, d_act), device_free(d, d_rows);
    return room ? OK : fail(err, ERR_MEMORY, "no memory for the gradients of the experts of layer %d", c->part->layer);
}

enum error_code node_mixture_weight(const struct node_call *c, struct error *err)
{
    (void)err;
    experts_weight(c, DOWN_W, left(c, D_RESULTS), kept(c, ACT));
    experts_weight(c, UP_W, left(c, D_UP), kept(c, ROWS));
    return OK;
}
