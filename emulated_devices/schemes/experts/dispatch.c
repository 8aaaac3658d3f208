#include "emulated_devices/schemes/experts/dispatch.h"
#include "emulated_devices/device/compute.h"

enum { ROWS, UP, ACT, RESULTS, PER_FORM, COUNTS };
enum { ORDER = PER_FORM, WEIGHTS = PER_FORM };          /* of a row a choice; of weighs_there */
enum { D_RESULTS, D_UP };

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
    case PER_FORM: return there ? tensor_2d(NULL, own, r.pool, c->mixture.k) : tensor_1d(NULL, I32, r.sent);
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

/* Buffers of a pass: k rows for each of the stream, as sent (a row a choice), and rows as they come. */
struct pass { struct tensor sent, pool; bool there; };

static struct device *device_of(const struct mixture_call *c) { return c->ep->tp->device; }
static enum error_code no_memory(struct error *err) { return fail(err, ERR_MEMORY, "no memory for rows of experts"); }

static enum error_code begin(struct pass *p, const struct mixture_call *c, struct error *err)
{
    const int64_t D = c->ep->tp->config->D;
    const struct expert_routing *r = c->ep->routing;
    *p = (struct pass){ .pool = device_tensor_2d(device_of(c), BUFFERS, r->pool, D),
                        .there = c->ep->scheme->weighs_there };
    if (!p->there) p->sent = device_tensor_2d(device_of(c), BUFFERS, r->sent, D);
    return p->pool.data && (p->there || p->sent.data) ? OK : no_memory(err);
}

static void end(struct pass *p, const struct mixture_call *c)
{
    device_free(device_of(c), p->sent), device_free(device_of(c), p->pool);
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
    if (pass == FORWARD_PASS) c->body.forward(c->body.context, r);
    else if (pass == INPUT_PASS) c->body.input(c->body.context, r, g);
    else c->body.weight(c->body.context, r, g);
    return OK;
}

/* ---- a row a choice ---------------------------------------------------------------------------------------------- */

static enum error_code forward_by_choice(struct mixture_call *c, struct pass *p, struct error *err)
{
    struct device *d = device_of(c);
    const struct tensor order = c->ep->routing->order;
    dev_expert_order(d, c->kept[ORDER], c->kept[COUNTS], c->experts);
    dev_gather_forward(d, p->sent, c->x, c->kept[ORDER], tensor_cols(c->experts));
    enum error_code e = rows_spread(c->ep, p->sent, p->pool, err);
    if (e) return e;
    dev_gather_forward(d, c->kept[ROWS], p->pool, order, 1);
    device_free(d, p->sent);
    p->sent = device_tensor_2d(d, BUFFERS, tensor_rows(c->kept[ROWS]), tensor_cols(p->pool));
    if (p->sent.data == NULL) return no_memory(err);
    e = compute(c, FORWARD_PASS, p->sent, (struct expert_gradients){ 0 }, err);
    if (e) return e;
    dev_gather_backward_input(d, p->pool, p->sent, order, 1);
    e = rows_collect(c->ep, p->pool, c->kept[RESULTS], err);
    if (!e && tensor_present(c->y)) dev_combine_forward(d, c->y, c->kept[RESULTS], c->kept[ORDER], c->weights);
    return e;
}

static enum error_code input_by_choice(struct mixture_call *c, struct pass *p, struct expert_gradients g,
                                       struct error *err)
{
    struct device *d = device_of(c);
    const struct tensor order = c->ep->routing->order;
    dev_combine_backward_input(d, p->sent, c->d_weights, c->dy, c->kept[RESULTS], c->kept[ORDER], c->weights);
    enum error_code e = rows_spread(c->ep, p->sent, p->pool, err);
    if (e) return e;
    dev_gather_forward(d, g.results, p->pool, order, 1);
    e = compute(c, INPUT_PASS, tensor_none, g, err);
    if (e) return e;
    dev_gather_backward_input(d, p->pool, g.rows, order, 1);
    e = rows_collect(c->ep, p->pool, p->sent, err);
    if (!e) dev_gather_backward_input(d, c->dx, p->sent, c->kept[ORDER], tensor_cols(c->experts));
    return e;
}

/* ---- a row once, with its weights -------------------------------------------------------------------------------- */

static enum error_code forward_by_row(struct mixture_call *c, struct pass *p, struct error *err)
{
    struct device *d = device_of(c);
    const struct tensor order = c->ep->routing->order;
    enum error_code e = rows_spread(c->ep, c->x, p->pool, err);
    if (!e) e = rows_spread(c->ep, c->weights, c->kept[WEIGHTS], err);
    if (e) return e;
    dev_gather_forward(d, c->kept[ROWS], p->pool, order, tensor_cols(c->experts));
    e = compute(c, FORWARD_PASS, c->kept[RESULTS], (struct expert_gradients){ 0 }, err);
    if (e || !tensor_present(c->y)) return e;
    dev_combine_forward(d, p->pool, c->kept[RESULTS], order, c->kept[WEIGHTS]);
    return rows_collect(c->ep, p->pool, c->y, err);
}

static enum error_code input_by_row(struct mixture_call *c, struct pass *p, struct expert_gradients g,
                                    struct error *err)
{
    struct device *d = device_of(c);
    const struct tensor order = c->ep->routing->order;
    const int64_t k = tensor_cols(c->experts);
    struct tensor d_weights = device_tensor_2d(d, BUFFERS, tensor_rows(p->pool), k);
    enum error_code e = d_weights.data ? rows_spread(c->ep, c->dy, p->pool, err) : no_memory(err);
    if (!e) {
        dev_combine_backward_input(d, g.results, d_weights, p->pool, c->kept[RESULTS], order, c->kept[WEIGHTS]);
        e = compute(c, INPUT_PASS, tensor_none, g, err);
    }
    if (!e) {
        dev_gather_backward_input(d, p->pool, g.rows, order, k);
        e = rows_collect(c->ep, p->pool, c->dx, err);
    }
    if (!e) e = rows_collect(c->ep, d_weights, c->d_weights, err);
    device_free(d, d_weights);
    return e;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

enum error_code dispatch_forward(struct mixture_call *c, struct error *err)
{
    struct pass p;
    enum error_code e = begin(&p, c, err);
    if (!e) e = p.there ? forward_by_row(c, &p, err) : forward_by_choice(c, &p, err);
    end(&p, c);
    return e;
}

enum error_code dispatch_input(struct mixture_call *c, struct error *err)
{
    struct device *d = device_of(c);
    struct pass p;
    enum error_code e = begin(&p, c, err);
    const struct expert_gradients g = {
        .results = c->left[D_RESULTS], .up = c->left[D_UP],
        .act = device_tensor_2d(d, BUFFERS, tensor_rows(c->kept[ACT]), tensor_cols(c->kept[ACT])),
        .rows = device_tensor_2d(d, BUFFERS, tensor_rows(c->kept[ROWS]), tensor_cols(c->kept[ROWS]))
    };
    if (!e && !(g.act.data && g.rows.data)) e = no_memory(err);
    if (!e) e = p.there ? input_by_row(c, &p, g, err) : input_by_choice(c, &p, g, err);
    device_free(d, g.act), device_free(d, g.rows);
    end(&p, c);
    return e;
}

enum error_code dispatch_weight(struct mixture_call *c, struct error *err)
{
    return compute(c, WEIGHT_PASS, tensor_none,
                   (struct expert_gradients){ .results = c->left[D_RESULTS], .up = c->left[D_UP] }, err);
}

void dispatch_cost(struct forecast *f, const struct expert_parallel *ep, enum tensor_pass pass)
{
    const enum dtype own = ep->tp->device->dtype;
    const int64_t D = ep->tp->config->D, k = ep->tp->config->mixture.k;
    const bool there = ep->scheme->weighs_there;
    if (ep->scheme->compute_cost) ep->scheme->compute_cost(f, ep, pass);
    if (pass == WEIGHT_PASS) return;
    rows_spread_cost(f, ep, 0, own, D);
    if (!there || pass != EXCHANGE_PASS) rows_collect_cost(f, ep, own, D);
    if (there && pass != INPUT_PASS) rows_spread_cost(f, ep, 0, own, k);
    if (there && pass == INPUT_PASS) rows_collect_cost(f, ep, own, k);
}
