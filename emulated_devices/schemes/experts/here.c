/* experts, here: all experts are on each device, and no row is sent.
 *
 * Group    1 device
 * Layout   rows of the stream, each once for each choice that an expert computes, sorted by expert and then by row
 * Sends    nothing
 * Memory   kept: R = k n rows of the experts' input and of their three results, and the order of rows.  From backward
 *          for the inputs to that for the weights: R rows of two gradients
 * Equals   permutes: the order of operations is that of ref/model/mixture.c
 *
 * Called by: model/run/run_mixture.c if ep and etp are 1.  Errors: ERR_MEMORY; weights that the body cannot read are
 * ERR_FILE.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/experts/experts.h"
#include "ref/model/config.h"
#include <stdlib.h>

enum { ORDER, COUNTS, ROWS, UP, ACT, RESULTS };
enum { D_RESULTS, D_UP };

static const char *here_refuses(const struct expert_parallel *ep, const struct model_config *config)
{
    (void)config;
    return ep->devices * ep->slices == 1 ? NULL
           : "all experts on each device, so --ep 1 and --etp 1; others, such as alltoall, move rows";
}

/* Slots have R = k n rows, as if every choice were computed; `present` cuts the tensors to what is. */
static struct tensor here_kept(const struct expert_parallel *ep, int slot, int64_t rows)
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
    return here_kept(ep, slot == D_UP ? UP : RESULTS, rows);
}

/* Nothing is told to anyone: the rows of each expert are counted, and their sum is `received`. */
static enum error_code here_announce(struct expert_routing *routing, const struct expert_parallel *ep,
                                     const struct choices *own, struct error *err)
{
    const int64_t E = ep->tp->config->mixture.E;
    /* The routing of the microbatch before is freed first; all E experts are here. */
    expert_routing_clear(routing);
    routing->experts = (struct interval){ 0, E };
    routing->counts = calloc((size_t)E, sizeof *routing->counts);
    if (routing->counts == NULL) return fail(err, ERR_MEMORY, "no memory to count rows of %lld experts", (long long)E);
    choices_count(own, E, routing->counts);
    for (int64_t e = 0; e < E; e++) routing->received += routing->counts[e];
    return OK;
}

/* Kept tensors have room for all choices; rows that no expert computes are left out here. */
static struct mixture_call present(const struct mixture_call *call)
{
    struct mixture_call p = *call;
    const int64_t rows = call->routing->received;
    /* Choices that a capacity has dropped leave rows at the end unused. */
    for (int i = ORDER; i <= RESULTS; i++)
        if (i != COUNTS) p.kept[i] = tensor_first(call->kept[i], rows);
    for (int i = D_RESULTS; i <= D_UP; i++) p.left[i] = tensor_first(call->left[i], rows);
    return p;
}

static struct expert_rows here_rows_of(const struct mixture_call *call)
{
    return (struct expert_rows){ .rows = call->kept[ROWS],
                                 .up = call->kept[UP],
                                 .act = call->kept[ACT],
                                 .results = call->kept[RESULTS],
                                 .counts = call->routing->counts, .columns = call->ep->tp->columns };
}

/* All work is in the last phase, since no rows travel in the first two. */
static enum error_code here_forward(struct mixture_call *call, struct error *err)
{
    struct device *d = call->ep->tp->device;
    if (!(call->phases & RETURN_ROWS)) return OK;
    /* The steps are dispatch's without messages: sort, gather, compute, combine. */
    dev_expert_order(d, call->kept[ORDER], call->kept[COUNTS], call->experts);
    const struct mixture_call p = present(call);
    dev_gather_forward(d, p.kept[ROWS], p.x, p.kept[ORDER], tensor_cols(p.experts));
    const enum error_code e = p.body.forward(p.body.context, here_rows_of(&p), err);
    if (!e) {
        const struct expert_rows rows = here_rows_of(&p);
        expert_body_show(&p.body, &rows, p.kept[RESULTS], false);
    }
    if (!e && tensor_present(p.y)) dev_combine_forward(d, p.y, p.kept[RESULTS], p.kept[ORDER], p.weights);
    return e;
}

/* Compute gradients of results and weights, then of the experts' rows, then dx: k rows of gradients are added. */
static enum error_code here_input(struct mixture_call *call, struct error *err)
{
    struct device *d = call->ep->tp->device;
    if (!(call->phases & RETURN_ROWS)) return OK;
    const struct mixture_call p = present(call);
    /* Buffers have the predicted R rows, of which the first `received` are used. */
    const int64_t R = tensor_rows(call->kept[ROWS]);               /* what is predicted */
    const struct tensor act = device_tensor_2d(d, BUFFERS, R, tensor_cols(p.kept[ACT])),
                        rows = device_tensor_2d(d, BUFFERS, R, tensor_cols(p.kept[ROWS]));
    const struct expert_gradients g = { .results = p.left[D_RESULTS], .up = p.left[D_UP],
                                        .act = tensor_first(act, tensor_rows(p.kept[ACT])),
                                        .rows = tensor_first(rows, tensor_rows(p.kept[ROWS])) };
    enum error_code e = act.data && rows.data ? OK : fail(err, ERR_MEMORY, "no memory for the gradients of experts");
    if (!e) {
        /* d_results = weight dy and d_weights = dy . result; then the experts' rows; then dx sums k rows. */
        dev_combine_backward_input(d, g.results, p.d_weights, p.dy, p.kept[RESULTS], p.kept[ORDER], p.weights);
        const struct expert_rows rows = here_rows_of(&p);
        expert_body_show(&p.body, &rows, g.results, true);
        e = p.body.input(p.body.context, rows, g, err);
        if (!e) dev_gather_backward_input(d, p.dx, g.rows, p.kept[ORDER], tensor_cols(p.experts));
    }
    device_free(d, act), device_free(d, rows);
    return e;
}

static enum error_code here_weight(struct mixture_call *call, struct error *err)
{
    const struct mixture_call p = present(call);
    return p.body.weight(p.body.context, here_rows_of(&p),
                         (struct expert_gradients){ .results = p.left[D_RESULTS], .up = p.left[D_UP] }, err);
}

const struct expert_scheme expert_scheme_here = {
    .head = { .kind = EXPERT_SCHEME, .equality = PERMUTES, .name = "here", .description = "all experts on each device",
              .source = "the one-device operation", .volume = "nothing",
              .memory = "k rows for each token: D, up, F and D wide",
              .needs = "--ep 1 and --etp 1" },
    .exact = true,
    .refuses = here_refuses, .announce = here_announce, .slots = 6, .gradient_slots = 2, .kept = here_kept,
        .left = left,
    .forward = here_forward, .input = here_input, .weight = here_weight,
};
