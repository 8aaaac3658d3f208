#include "emulated_devices/schemes/experts/dispatch.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/device/streams.h"
#include "ref/model/config.h"

enum { ROWS, UP, ACT, RESULTS, PER_FORM, COUNTS };
enum { ORDER = PER_FORM, WEIGHTS = PER_FORM };          /* of a row a choice; of weighs_there */
enum { D_RESULTS, D_UP };

/* A router's weights and their gradients are not rounded to the 16 bits of what they weigh. */
static enum dtype format_of_weights(const struct expert_parallel *ep) { return dtype_wide(ep->tp->device->dtype); }

/* ---- a member's part --------------------------------------------------------------------------------------------- */

struct interval experts_of(const struct expert_parallel *ep, int member)
{
    return block_at(ep->tp->config->mixture.E, ep->devices, member);
}

struct interval expert_columns(const struct expert_parallel *ep)
{
    return block_at(ep->tp->config->F, ep->slices, ep->slice);
}

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

/* Before the router has chosen, as if the load were even. */
static struct expert_routing extents(const struct expert_parallel *ep, int64_t rows)
{
    const int64_t n = expert_share(ep, rows).count, choices = n * ep->tp->config->mixture.k;
    const int64_t sent = ep->scheme->weighs_there ? n : choices;
    if (ep->routing) return *ep->routing;
    return (struct expert_routing){ .sent = sent, .pool = sent, .received = choices, .columns = expert_columns(ep) };
}

struct tensor dispatch_kept(const struct expert_parallel *ep, int slot, int64_t rows)
{
    const struct model_config *c = ep->tp->config;
    const enum dtype own = ep->tp->device->dtype;
    const struct expert_routing r = extents(ep, rows);
    const bool there = ep->scheme->weighs_there;
    const int64_t F = r.columns.count;
    switch (slot) {
    case UP:       return tensor_2d(NULL, own, r.received, 2 * F);
    case ACT:      return tensor_2d(NULL, own, r.received, F);
    case RESULTS:  return tensor_2d(NULL, own, there ? r.received : r.sent, c->D);
    case PER_FORM: return there ? tensor_2d(NULL, format_of_weights(ep), r.pool, c->mixture.k)
                                : tensor_1d(NULL, I32, r.sent);
    case COUNTS:   return tensor_1d(NULL, I32, there ? 0 : c->mixture.E);
    default:       return tensor_2d(NULL, own, r.received, c->D);
    }
}

struct tensor dispatch_left(const struct expert_parallel *ep, int slot, int64_t rows)
{
    return dispatch_kept(ep, slot == D_UP ? UP : ROWS, rows);
}

enum error_code dispatch_hop(const struct expert_parallel *ep, const struct expert_routing *r,
                             const struct choices *held, int index, struct expert_hop *h, struct error *err)
{
    (void)held, (void)index;
    const enum error_code e = hop_make(h, ep->group, ALLTOALL, -1, err);
    for (int m = 0; m < ep->devices && !e; m++)
        h->sent[m] = dispatch_rows(ep, r, ep->rank, m), h->got[m] = dispatch_rows(ep, r, m, ep->rank);
    return e;
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

static struct device *device_of(const struct mixture_call *c) { return c->ep->tp->device; }
static bool weighs_there(const struct mixture_call *c) { return c->ep->scheme->weighs_there; }
static bool runs(const struct mixture_call *c, enum expert_phase p) { return c->phases & p; }
static enum error_code no_memory(struct error *err) { return fail(err, ERR_MEMORY, "no memory for rows of experts"); }

/* Rows as they come; and k rows for each of the stream, as sent (a row a choice). */
static enum error_code begin(struct mixture_call *c, struct error *err)
{
    const int64_t D = c->ep->tp->config->D;
    struct expert_routing *r = c->routing;
    r->way.pool = device_tensor_2d(device_of(c), BUFFERS, r->pool, D), r->way.sent = tensor_none;
    if (!weighs_there(c)) r->way.sent = device_tensor_2d(device_of(c), BUFFERS, r->sent, D);
    return r->way.pool.data && (weighs_there(c) || r->way.sent.data) ? OK : no_memory(err);
}

static void end(struct mixture_call *c)
{
    device_free(device_of(c), c->routing->way.sent), device_free(device_of(c), c->routing->way.pool);
    c->routing->way.sent = c->routing->way.pool = tensor_none;
}

/* Exchanges between leave and left_at are not waited for before the next phase, if that is another call. */
static void leave(const struct mixture_call *c)
{
    struct clock *clock = &device_of(c)->clock;
    if (c->phases != ALL_PHASES) clock_begin(clock, sending_stream(clock, SENDS_ROWS));
}

static void left_at(const struct mixture_call *c)
{
    struct clock *clock = &device_of(c)->clock;
    c->routing->way.done = clock->now;
    if (c->phases != ALL_PHASES) clock_end(clock);
}

static void arrive(const struct mixture_call *c) { clock_wait(&device_of(c)->clock, c->routing->way.done); }

static enum error_code spread(const struct mixture_call *c, struct tensor in, struct tensor out, struct error *err)
{
    leave(c);
    const enum error_code e = rows_spread(c->ep, in, out, err);
    left_at(c);
    return e;
}

static enum error_code collect(const struct mixture_call *c, struct tensor in, struct tensor out, struct error *err)
{
    leave(c);
    const enum error_code e = rows_collect(c->ep, in, out, err);
    left_at(c);
    return e;
}

static struct expert_rows rows_at_experts(const struct mixture_call *c, struct tensor results)
{
    return (struct expert_rows){ .rows = c->kept[ROWS], .up = c->kept[UP], .act = c->kept[ACT], .results = results,
                                 .counts = c->ep->routing->counts };
}

/* A pass of the experts: the body's, or the scheme's, which gathers weights before it. */
static enum error_code compute(struct mixture_call *c, enum tensor_pass pass, struct tensor results,
                               struct expert_gradients g, struct error *err)
{
    const struct expert_rows r = rows_at_experts(c, results);
    if (c->ep->scheme->compute) return c->ep->scheme->compute(c, pass, r, g, err);
    if (pass == FORWARD_PASS) return c->body.forward(c->body.context, r, err);
    if (pass == INPUT_PASS) c->body.input(c->body.context, r, g);
    else c->body.weight(c->body.context, r, g);
    return OK;
}

/* ---- phases of a pass -------------------------------------------------------------------------------------------- */

typedef enum error_code phase(struct mixture_call *, struct error *);

static enum error_code run_phases(struct mixture_call *c, phase *send, phase *at_experts, phase *take,
                                  struct error *err)
{
    /* Phases of one pass may be separate calls: other work runs between them while rows travel. */
    enum error_code e = runs(c, SEND_ROWS) ? begin(c, err) : OK;
    if (!e && runs(c, SEND_ROWS)) e = send(c, err);
    if (!e && runs(c, COMPUTE_ROWS)) arrive(c), e = at_experts(c, err);
    if (!e && runs(c, RETURN_ROWS)) arrive(c), e = take(c, err);
    if (e || runs(c, RETURN_ROWS)) end(c);
    return e;
}

/* The gradients of the experts' rows, for the time of their computation. */
static enum error_code compute_input(struct mixture_call *c, struct expert_gradients *g, struct error *err)
{
    struct device *d = device_of(c);
    g->act = device_tensor_2d(d, BUFFERS, tensor_rows(c->kept[ACT]), tensor_cols(c->kept[ACT]));
    g->rows = device_tensor_2d(d, BUFFERS, tensor_rows(c->kept[ROWS]), tensor_cols(c->kept[ROWS]));
    const enum error_code e = g->act.data && g->rows.data ? compute(c, INPUT_PASS, tensor_none, *g, err)
                                                          : no_memory(err);
    device_free(d, g->act);
    return e;
}

static struct expert_gradients left_gradients(const struct mixture_call *c)
{
    return (struct expert_gradients){ .results = c->left[D_RESULTS], .up = c->left[D_UP] };
}

/* ---- a row a choice ---------------------------------------------------------------------------------------------- */

static enum error_code send_choices(struct mixture_call *c, struct error *err)
{
    struct device *d = device_of(c);
    /* sent [n k, D]: a token's row for each of its choices, sorted by expert. */
    dev_expert_order(d, c->kept[ORDER], c->kept[COUNTS], c->experts);
    dev_gather_forward(d, c->routing->way.sent, c->x, c->kept[ORDER], tensor_cols(c->experts));
    return spread(c, c->routing->way.sent, c->routing->way.pool, err);
}

static enum error_code compute_choices(struct mixture_call *c, struct error *err)
{
    struct device *d = device_of(c);
    struct expert_routing *r = c->routing;
    /* Rows [received, D] of own experts are sorted by expert; results go back in the order in which rows came. */
    dev_gather_forward(d, c->kept[ROWS], r->way.pool, r->order, 1);
    device_free(d, r->way.sent);
    r->way.sent = device_tensor_2d(d, BUFFERS, tensor_rows(c->kept[ROWS]), tensor_cols(r->way.pool));
    if (r->way.sent.data == NULL) return no_memory(err);
    const enum error_code e = compute(c, FORWARD_PASS, r->way.sent, (struct expert_gradients){ 0 }, err);
    if (e) return e;
    dev_gather_backward_input(d, r->way.pool, r->way.sent, r->order, 1);
    return collect(c, r->way.pool, c->kept[RESULTS], err);
}

static enum error_code add_choices(struct mixture_call *c, struct error *err)
{
    (void)err;
    if (tensor_present(c->y))
        /* y[n] = sum over the k choices of weight times result. */
        dev_combine_forward(device_of(c), c->y, c->kept[RESULTS], c->kept[ORDER], c->weights);
    return OK;
}

static enum error_code send_choices_back(struct mixture_call *c, struct error *err)
{
    /* Gradients of results: weight dy; d_weights [n,k] = dy . result. They travel as the rows did. */
    dev_combine_backward_input(device_of(c), c->routing->way.sent, c->d_weights, c->dy, c->kept[RESULTS],
                               c->kept[ORDER], c->weights);
    return spread(c, c->routing->way.sent, c->routing->way.pool, err);
}

static enum error_code compute_choices_back(struct mixture_call *c, struct error *err)
{
    struct device *d = device_of(c);
    struct expert_routing *r = c->routing;
    struct expert_gradients g = left_gradients(c);
    /* d_results sorted by expert; d_rows go back the same way. */
    dev_gather_forward(d, g.results, r->way.pool, r->order, 1);
    const enum error_code e = compute_input(c, &g, err);
    if (!e) dev_gather_backward_input(d, r->way.pool, g.rows, r->order, 1);
    device_free(d, g.rows);
    return e ? e : collect(c, r->way.pool, r->way.sent, err);
}

static enum error_code add_choices_back(struct mixture_call *c, struct error *err)
{
    (void)err;
    /* dx[n] = sum over the row's k choices. */
    dev_gather_backward_input(device_of(c), c->dx, c->routing->way.sent, c->kept[ORDER], tensor_cols(c->experts));
    return OK;
}

/* ---- a row once, with its weights -------------------------------------------------------------------------------- */

static enum error_code send_rows(struct mixture_call *c, struct error *err)
{
    /* A row goes once to each place with experts of it; its k weights go along. */
    const enum error_code e = spread(c, c->x, c->routing->way.pool, err);
    return e ? e : spread(c, c->weights, c->kept[WEIGHTS], err);
}

/* Sums of a device's rows; if others may use y or dx meanwhile, in a buffer of their own. */
static enum error_code come_home(struct mixture_call *c, struct tensor to, struct error *err)
{
    struct expert_routing *r = c->routing;
    if (c->phases == ALL_PHASES) return collect(c, r->way.pool, to, err);
    r->way.sent = device_tensor_2d(device_of(c), BUFFERS, tensor_rows(to), tensor_cols(to));
    return r->way.sent.data ? collect(c, r->way.pool, r->way.sent, err) : no_memory(err);
}

static enum error_code compute_rows(struct mixture_call *c, struct error *err)
{
    struct device *d = device_of(c);
    struct expert_routing *r = c->routing;
    dev_gather_forward(d, c->kept[ROWS], r->way.pool, r->order, tensor_cols(c->experts));
    const enum error_code e = compute(c, FORWARD_PASS, c->kept[RESULTS], (struct expert_gradients){ 0 }, err);
    if (e || !tensor_present(c->y)) return e;
    /* A row gets the weighted sum over the experts that are here; the way home adds up the sums of all places. */
    dev_combine_forward(d, r->way.pool, c->kept[RESULTS], r->order, c->kept[WEIGHTS]);
    return come_home(c, c->y, err);
}

static void take_home(const struct mixture_call *c, struct tensor to)
{
    const struct tensor from = c->routing->way.sent;
    if (tensor_count(from) > 0) device_copy(device_of(c), to.data, from.data, tensor_bytes(to));
}

static enum error_code take_rows(struct mixture_call *c, struct error *err)
{
    (void)err;
    take_home(c, c->y);
    return OK;
}

static enum error_code send_rows_back(struct mixture_call *c, struct error *err)
{
    return spread(c, c->dy, c->routing->way.pool, err);
}

static enum error_code compute_rows_back(struct mixture_call *c, struct error *err)
{
    struct device *d = device_of(c);
    struct expert_routing *r = c->routing;
    struct expert_gradients g = left_gradients(c);
    const int64_t k = tensor_cols(c->experts);
    const int64_t rows = tensor_rows(r->way.pool);
    const enum dtype wide = format_of_weights(c->ep);
    const struct tensor d_weights = tensor_2d(device_tensor_in(d, BUFFERS, wide, rows * k).data, wide, rows, k);
    enum error_code e = d_weights.data ? OK : no_memory(err);
    if (!e) {
        /* Each row gives gradients of its results here, and of the weights of choices that are here. */
        dev_combine_backward_input(d, g.results, d_weights, r->way.pool, c->kept[RESULTS], r->order, c->kept[WEIGHTS]);
        e = compute_input(c, &g, err);
    }
    if (!e) {
        /* A row's gradient is the sum over its experts here, then over all places on the way home. */
        dev_gather_backward_input(d, r->way.pool, g.rows, r->order, k);
        e = come_home(c, c->dx, err);
    }
    if (!e) e = collect(c, d_weights, c->d_weights, err);
    device_free(d, g.rows), device_free(d, d_weights);
    return e;
}

static enum error_code take_rows_back(struct mixture_call *c, struct error *err)
{
    (void)err;
    take_home(c, c->dx);
    return OK;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

enum error_code dispatch_forward(struct mixture_call *c, struct error *err)
{
    return weighs_there(c) ? run_phases(c, send_rows, compute_rows, take_rows, err)
                           : run_phases(c, send_choices, compute_choices, add_choices, err);
}

enum error_code dispatch_input(struct mixture_call *c, struct error *err)
{
    return weighs_there(c) ? run_phases(c, send_rows_back, compute_rows_back, take_rows_back, err)
                           : run_phases(c, send_choices_back, compute_choices_back, add_choices_back, err);
}

enum error_code dispatch_weight(struct mixture_call *c, struct error *err)
{
    return compute(c, WEIGHT_PASS, tensor_none, left_gradients(c), err);
}

void dispatch_cost(struct forecast *f, const struct expert_parallel *ep, enum tensor_pass pass)
{
    const enum dtype own = ep->tp->device->dtype, wide = format_of_weights(ep);
    const int64_t D = ep->tp->config->D, k = ep->tp->config->mixture.k;
    const bool there = ep->scheme->weighs_there;
    if (ep->scheme->compute_cost) ep->scheme->compute_cost(f, ep, pass);
    if (pass == WEIGHT_PASS) return;
    rows_spread_cost(f, ep, 0, own, D);
    if (!there || pass != EXCHANGE_PASS) rows_collect_cost(f, ep, own, D);
    if (there && pass != INPUT_PASS) rows_spread_cost(f, ep, 0, wide, k);
    if (there && pass == INPUT_PASS) rows_collect_cost(f, ep, wide, k);
}
