/* experts, here: all experts are on each device, and no row is sent.
 *
 * Group    1 device
 * Layout   rows of the stream, each k times, sorted by expert and then by row
 * Sends    nothing
 * Memory   kept: R = k n rows of the experts' input and of their three results, and the order of rows.  From backward
 *          for the inputs to that for the weights: R rows of two gradients
 * Equals   permutes: the order of operations is that of ref/model/mixture.c
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/experts/experts.h"

enum { ORDER, COUNTS, ROWS, UP, ACT, RESULTS };
enum { D_RESULTS, D_UP };

static const char *refuses(const struct expert_parallel *ep, const struct model_config *c)
{
    (void)c;
    return ep->devices * ep->slices == 1 ? NULL
           : "all experts on each device, so --ep 1 and --etp 1; others, such as alltoall, move rows";
}

static struct tensor kept(const struct expert_parallel *ep, int slot, int64_t rows)
{
    const struct tensor_parallel *tp = ep->tp;
    const enum dtype own = tp->device->dtype;
    const int64_t R = rows * tp->config->mixture.k;
    switch (slot) {
    case ORDER:  return tensor_1d(NULL, I32, R);
    case COUNTS: return tensor_1d(NULL, I32, tp->config->mixture.E);
    case UP:     return tensor_2d(NULL, own, R, tensor_up_columns(tp));
    case ACT:    return tensor_2d(NULL, own, R, tp->columns.count);
    default:     return tensor_2d(NULL, own, R, tp->channels.count);
    }
}

static struct tensor left(const struct expert_parallel *ep, int slot, int64_t rows)
{
    return kept(ep, slot == D_UP ? UP : RESULTS, rows);
}

/* The tensors of a call.  The host can read the counts until the views end. */
static struct expert_rows rows_of(const struct mixture_call *c, struct views *v)
{
    return (struct expert_rows){ .rows = c->kept[ROWS],
                                 .up = c->kept[UP],
                                 .act = c->kept[ACT],
                                 .results = c->kept[RESULTS],
                                 .counts = view_read(v, c->kept[COUNTS]).data };
}

static enum error_code forward(struct mixture_call *c, struct error *err)
{
    struct device *d = c->ep->tp->device;
    (void)err;
    dev_expert_order(d, c->kept[ORDER], c->kept[COUNTS], c->experts);
    dev_gather_forward(d, c->kept[ROWS], c->x, c->kept[ORDER], tensor_cols(c->experts));
    struct views v = views_of(d);
    c->body.forward(c->body.context, rows_of(c, &v));
    views_end(&v);
    if (tensor_present(c->y)) dev_combine_forward(d, c->y, c->kept[RESULTS], c->kept[ORDER], c->weights);
    return OK;
}

static enum error_code input(struct mixture_call *c, struct error *err)
{
    struct device *d = c->ep->tp->device;
    const int64_t R = tensor_rows(c->kept[ROWS]);
    struct expert_gradients g = { .results = c->left[D_RESULTS], .up = c->left[D_UP],
                                  .act = device_tensor_2d(d, BUFFERS, R, tensor_cols(c->kept[ACT])),
                                  .rows = device_tensor_2d(d, BUFFERS, R, tensor_cols(c->kept[ROWS])) };
    const bool room = g.act.data && g.rows.data;
    if (room) {
        dev_combine_backward_input(d, g.results, c->d_weights, c->dy, c->kept[RESULTS], c->kept[ORDER], c->weights);
        struct views v = views_of(d);
        c->body.input(c->body.context, rows_of(c, &v), g);
        views_end(&v);
        dev_gather_backward_input(d, c->dx, g.rows, c->kept[ORDER], tensor_cols(c->experts));
    }
    device_free(d, g.act), device_free(d, g.rows);
    return room ? OK : fail(err, ERR_MEMORY, "no memory for the gradients of experts");
}

static enum error_code weight(struct mixture_call *c, struct error *err)
{
    (void)err;
    struct views v = views_of(c->ep->tp->device);
    c->body.weight(c->body.context, rows_of(c, &v),
                   (struct expert_gradients){ .results = c->left[D_RESULTS], .up = c->left[D_UP] });
    views_end(&v);
    return OK;
}

const struct expert_scheme expert_scheme_here = {
    .head = { .kind = EXPERT_SCHEME, .equality = PERMUTES, .name = "here", .description = "all experts on each device",
              .source = "the one-device operation", .volume = "nothing",
              .memory = "k rows for each token: D, up, F and D wide",
              .needs = "--ep 1 and --etp 1" },
    .refuses = refuses, .slots = 6, .gradient_slots = 2, .kept = kept, .left = left, .forward = forward,
    .input = input, .weight = weight,
};
