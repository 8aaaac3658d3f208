#include "emulated_devices/schemes/attention/planned.h"
#include "emulated_devices/device/compute.h"
#include <stdlib.h>

/* What this device has of a block: of its own, or of one that was moved here.  tensor_none: nothing. */
struct here {
    int64_t row;                        /* of its first token, among its home's */
    struct tensor queries, keys;        /* [n, >= H A], [n, >= 2 K A]: first and last columns */
    struct tensor o, lse;               /* [n, H A], [H, n], wide */
    bool begun;                         /* o and lse have a result */
    struct tensor d_out, delta;         /* [n, H A], [H, n] */
    struct tensor d_queries, d_keys;    /* [n, H A], [n, 2 K A], wide: this device's share, then the sum */
};

struct planned {
    struct cp_pass g;
    const struct context_plan *plan;
    struct here *at;                    /* [blocks] */
    struct tensor o;                    /* the results of all own blocks, wide */
    struct tensor more[2];              /* one more result, or gradients that come, of the longest block */
    struct tensor *opened;              /* buffers */
    int buffers;
    struct message *on_way;
    int messages;
    enum error_code e;                  /* the first failure */
    struct error *err;
};

enum { BUFFERS_OF_A_BLOCK = 8, MESSAGES_OF_A_BLOCK = 8 };

/* ---- who works with whose blocks --------------------------------------------------------------------------------- */

static bool has_work(const struct context_plan *p, enum context_data data, int block, int device)
{
    for (int i = 0; i < p->works; i++)
        if (p->work[i].device == device && (data == CONTEXT_KEYS ? p->work[i].key : p->work[i].query) == block)
            return true;
    return false;
}

/* Call f for every block and device that has worked with it and is not its home, in one order on all devices. */
static void for_each_guest(struct planned *p, enum context_data data,
                           void (*f)(struct planned *, enum context_data, int block, int device))
{
    for (int b = 0; b < p->plan->blocks; b++)
        for (int d = 0; d < p->plan->devices; d++)
            if (d != p->plan->block[b].home && has_work(p->plan, data, b, d)) f(p, data, b, d);
}

static int64_t tokens(const struct planned *p, int block) { return context_block_tokens(&p->plan->block[block]); }
static bool is_own(const struct planned *p, int block) { return p->plan->block[block].home == p->g.cp->rank; }

/* ---- what a device has of a block -------------------------------------------------------------------------------- */

static struct tensor open_buffer(struct planned *p, enum dtype type, int64_t rows, int64_t cols)
{
    struct tensor *t = &p->opened[p->buffers];
    if (p->e) return tensor_none;
    p->e = cp_open(&p->g, t, 1, type, rows, cols, p->err);
    p->buffers++;
    return *t;
}

static int64_t query_width(const struct planned *p) { return p->g.shape.H * p->g.shape.A; }

static struct tensor positions_of_block(const struct planned *p, int block)
{
    const struct tensor all = positions_of(&p->g.at, p->plan->block[block].home);
    return tensor_1d((int32_t *)all.data + p->at[block].row, I32, tokens(p, block));
}

static struct tensor own_rows(const struct planned *p, struct tensor t, int block)
{
    return tensor_rows_of(t, p->at[block].row, tokens(p, block));
}

/* The log-sum-exp is kept block by block, each as [H, n]. */
static struct tensor own_lse(const struct planned *p, int block)
{
    const struct tensor all = p->g.call->kept[0];
    const int64_t H = p->g.shape.H;
    char *first = (char *)all.data + (uint64_t)(H * p->at[block].row) * dtype_size(all.dtype);
    return tensor_2d(first, all.dtype, H, tokens(p, block));
}

/* Queries are the first columns of a tensor, in both formats. */
static void copy_queries(struct planned *p, struct tensor to, struct tensor from)
{
    const uint64_t size = dtype_size(to.dtype);
    device_copy_rows(p->g.device, to.data, (uint64_t)tensor_cols(to) * size, from.data,
                     (uint64_t)tensor_cols(from) * size, (uint64_t)query_width(p) * size, tensor_rows(to));
    dev_charge(p->g.device, "copy queries", tensor_2d(NULL, to.dtype, tensor_rows(to), query_width(p)), 2, 0);
}

/* The block's queries or keys, in a buffer that can be sent, or arrive. */
static void take_buffer(struct planned *p, const struct context_move *m)
{
    struct here *h = &p->at[m->block];
    const bool own = is_own(p, m->block);
    struct tensor *t = m->data == CONTEXT_KEYS ? &h->keys : &h->queries;
    const int64_t n = tokens(p, m->block), width = m->data == CONTEXT_KEYS ? cp_keys_width(p->g.cp) : query_width(p);
    if ((own ? m->from : m->to) != p->g.cp->rank || (tensor_present(*t) && tensor_cols(*t) == width)) return;
    *t = open_buffer(p, p->g.own, n, width);
    if (p->e || !own) return;
    if (m->data == CONTEXT_KEYS) cp_copy_keys(&p->g, *t, own_rows(p, p->g.call->qkv, m->block));
    else copy_queries(p, *t, own_rows(p, p->g.call->qkv, m->block));
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static void send(struct planned *p, int to, struct tensor t)
{
    p->on_way[p->messages++] = message_send(&p->g.exchange, to, t.data, tensor_bytes(t));
}

static void receive(struct planned *p, int from, struct tensor t)
{
    p->on_way[p->messages++] = message_receive(&p->g.exchange, from, t.data, tensor_bytes(t));
}

static void wait_for_all(struct planned *p)
{
    for (int i = 0; i < p->messages; i++) cp_arrive(&p->g, p->on_way[i]);
    p->messages = 0;
}

/* What a move sends: of queries backward also what their gradient needs. */
static void pass_on(struct planned *p, const struct context_move *m, bool backward,
                    void (*step)(struct planned *, int, struct tensor), int other)
{
    const struct here *h = &p->at[m->block];
    step(p, other, m->data == CONTEXT_KEYS ? h->keys : h->queries);
    if (m->data == CONTEXT_KEYS || !backward) return;
    step(p, other, h->d_out), step(p, other, h->lse), step(p, other, h->delta);
}

static void launch(struct planned *p, int division, bool backward)
{
    for (int i = 0; i < p->plan->moves; i++) {
        const struct context_move *m = &p->plan->move[i];
        if (m->division != division) continue;
        if (m->to == p->g.cp->rank) pass_on(p, m, backward, receive, m->from);
        if (m->from == p->g.cp->rank) pass_on(p, m, backward, send, m->to);
    }
}

/* Run the divisions.  attend: one work of this device. */
static void run_divisions(struct planned *p, bool backward,
                          void (*attend)(struct planned *, const struct context_work *))
{
    for (int d = 0; d < p->plan->divisions; d++) {
        launch(p, d, backward);
        for (int i = 0; i < p->plan->works; i++)
            if (p->plan->work[i].division == d && p->plan->work[i].device == p->g.cp->rank)
                attend(p, &p->plan->work[i]);
        wait_for_all(p);
    }
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

static enum error_code begin(struct planned *p, struct attention_call *c, enum tensor_pass pass, struct error *err)
{
    *p = (struct planned){ .plan = c->cp->plan, .err = err };
    const enum error_code e = cp_begin(&p->g, c, pass, err);
    if (e || p->g.B == 0) return e;
    const size_t blocks = (size_t)p->plan->blocks, moves = (size_t)p->plan->moves;
    p->at = calloc(blocks + 1, sizeof *p->at);
    p->opened = calloc(BUFFERS_OF_A_BLOCK * (blocks + 1), sizeof *p->opened);
    p->on_way = calloc(MESSAGES_OF_A_BLOCK * (moves + blocks * (size_t)p->plan->devices + 1), sizeof *p->on_way);
    if (p->at == NULL || p->opened == NULL || p->on_way == NULL)
        p->e = fail(err, ERR_MEMORY, "no memory for attention by a plan of %d blocks", p->plan->blocks);
    for (int b = 0; b < p->plan->blocks && !p->e; b++) {
        const bool follows = b > 0 && p->plan->block[b].home == p->plan->block[b - 1].home;
        p->at[b].row = follows ? p->at[b - 1].row + tokens(p, b - 1) : 0;
        if (is_own(p, b)) p->at[b].queries = p->at[b].keys = own_rows(p, c->qkv, b);
    }
    for (int i = 0; i < p->plan->moves && !p->e; i++) take_buffer(p, &p->plan->move[i]);
    return OK;
}

/* Buffers for one more of the longest block. */
static void open_more(struct planned *p, enum dtype type, int64_t width0, int64_t width1)
{
    int64_t longest = 0;
    for (int b = 0; b < p->plan->blocks; b++)
        if (tokens(p, b) > longest) longest = tokens(p, b);
    p->more[0] = open_buffer(p, type, longest, width0);
    p->more[1] = open_buffer(p, type, longest, width1);
}

static struct tensor shaped(struct tensor buffer, int64_t rows, int64_t cols)
{
    return tensor_2d(buffer.data, buffer.dtype, rows, cols);
}

static enum error_code end(struct planned *p)
{
    for (int i = 0; i < p->buffers; i++) cp_close(&p->g, &p->opened[i], 1);
    free(p->at), free(p->opened), free(p->on_way);
    cp_end(&p->g);
    return p->e;
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static void take_result(struct planned *p, int block, struct tensor o, struct tensor lse)
{
    struct here *h = &p->at[block];
    if (h->begun) {
        dev_attention_merge(p->g.device, h->o, h->lse, o, lse, p->g.shape);
    } else {
        device_copy(p->g.device, h->o.data, o.data, tensor_bytes(o));
        device_copy(p->g.device, h->lse.data, lse.data, tensor_bytes(lse));
    }
    h->begun = true;
}

static void attend(struct planned *p, const struct context_work *w)
{
    struct here *h = &p->at[w->query];
    const int64_t n = tokens(p, w->query);
    const struct tensor o = h->begun ? shaped(p->more[0], n, query_width(p)) : h->o;
    const struct tensor lse = h->begun ? shaped(p->more[1], p->g.shape.H, n) : h->lse;
    dev_attention_part_forward(p->g.device, o, lse, h->queries, p->at[w->key].keys, positions_of_block(p, w->query),
                               positions_of_block(p, w->key), p->g.shape, context_work_pairs(p->plan, w));
    if (h->begun) dev_attention_merge(p->g.device, h->o, h->lse, o, lse, p->g.shape);
    h->begun = true;
}

static void send_result(struct planned *p, enum context_data data, int block, int device)
{
    (void)data;
    if (device == p->g.cp->rank)
        send(p, p->plan->block[block].home, p->at[block].o), send(p, p->plan->block[block].home, p->at[block].lse);
}

static void receive_result(struct planned *p, enum context_data data, int block, int device)
{
    const int64_t n = tokens(p, block);
    const struct tensor o = shaped(p->more[0], n, query_width(p)), lse = shaped(p->more[1], p->g.shape.H, n);
    (void)data;
    if (!is_own(p, block)) return;
    struct message m[2] = { message_receive(&p->g.exchange, device, o.data, tensor_bytes(o)),
                            message_receive(&p->g.exchange, device, lse.data, tensor_bytes(lse)) };
    cp_arrive(&p->g, m[0]), cp_arrive(&p->g, m[1]);
    take_result(p, block, o, lse);
}

static void open_results(struct planned *p)
{
    struct attention_call *c = p->g.call;
    const bool rounds = p->g.own != p->g.wide;
    p->o = rounds ? open_buffer(p, p->g.wide, tensor_rows(c->out), tensor_cols(c->out)) : c->out;
    open_more(p, p->g.wide, query_width(p), p->g.shape.H);
    for (int b = 0; b < p->plan->blocks && !p->e; b++) {
        struct here *h = &p->at[b];
        if (is_own(p, b)) {
            h->o = own_rows(p, p->o, b), h->lse = own_lse(p, b);
        } else if (has_work(p->plan, CONTEXT_QUERIES, b, p->g.cp->rank)) {
            h->o = open_buffer(p, p->g.wide, tokens(p, b), query_width(p));
            h->lse = open_buffer(p, p->g.wide, p->g.shape.H, tokens(p, b));
        }
    }
}

enum error_code planned_forward(struct attention_call *c, struct error *err)
{
    struct planned p;
    const enum error_code e = begin(&p, c, FORWARD_PASS, err);
    if (e || p.g.B == 0) return e;
    if (!p.e) open_results(&p);
    if (!p.e) {
        run_divisions(&p, false, attend);
        for_each_guest(&p, CONTEXT_QUERIES, send_result);
        for_each_guest(&p, CONTEXT_QUERIES, receive_result);
        wait_for_all(&p);
        if (p.g.own != p.g.wide) dev_round(p.g.device, c->out, p.o);
    }
    return end(&p);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static void attend_backward(struct planned *p, const struct context_work *w)
{
    const struct here *q = &p->at[w->query], *k = &p->at[w->key];
    dev_attention_part_backward(p->g.device, q->d_queries, k->d_keys, q->d_out, q->delta, q->lse, q->queries, k->keys,
                                positions_of_block(p, w->query), positions_of_block(p, w->key), p->g.shape,
                                context_work_pairs(p->plan, w));
}

static struct tensor *gradient(struct planned *p, enum context_data data, int block)
{
    return data == CONTEXT_KEYS ? &p->at[block].d_keys : &p->at[block].d_queries;
}

static void send_gradient(struct planned *p, enum context_data data, int block, int device)
{
    if (device == p->g.cp->rank) send(p, p->plan->block[block].home, *gradient(p, data, block));
}

static void receive_gradient(struct planned *p, enum context_data data, int block, int device)
{
    const struct tensor sum = *gradient(p, data, block);
    const struct tensor share = shaped(p->more[data == CONTEXT_KEYS], tensor_rows(sum), tensor_cols(sum));
    if (!is_own(p, block)) return;
    cp_arrive(&p->g, message_receive(&p->g.exchange, device, share.data, tensor_bytes(share)));
    dev_add(p->g.device, sum, sum, share);
}

static struct tensor open_gradient(struct planned *p, int64_t rows, int64_t cols)
{
    const struct tensor t = open_buffer(p, p->g.wide, rows, cols);
    if (!p->e) device_zero(p->g.device, t);
    return t;
}

static void open_gradients(struct planned *p)
{
    const struct attention_call *c = p->g.call;
    const int64_t H = p->g.shape.H, width = query_width(p);
    const int rank = p->g.cp->rank;
    open_more(p, p->g.wide, width, cp_keys_width(p->g.cp));
    for (int b = 0; b < p->plan->blocks && !p->e; b++) {
        struct here *h = &p->at[b];
        const bool own = is_own(p, b), asks = own || has_work(p->plan, CONTEXT_QUERIES, b, rank);
        const int64_t n = tokens(p, b);
        if (asks) h->delta = open_buffer(p, p->g.wide, H, n), h->d_queries = open_gradient(p, n, width);
        if (own || has_work(p->plan, CONTEXT_KEYS, b, rank)) h->d_keys = open_gradient(p, n, cp_keys_width(p->g.cp));
        if (asks && !own) h->d_out = open_buffer(p, p->g.own, n, width), h->lse = open_buffer(p, p->g.wide, H, n);
        if (!own || p->e) continue;
        h->d_out = own_rows(p, c->d_out, b), h->lse = own_lse(p, b);
        dev_attention_delta(p->g.device, h->delta, h->d_out, own_rows(p, c->out, b), p->g.shape);
    }
}

static void take_gradients(struct planned *p)
{
    struct attention_call *c = p->g.call;
    const struct tensor all = p->g.own == p->g.wide ? c->d_qkv
        : open_buffer(p, p->g.wide, tensor_rows(c->d_qkv), tensor_cols(c->d_qkv));
    for (int b = 0; b < p->plan->blocks && !p->e; b++)
        if (is_own(p, b)) {
            copy_queries(p, own_rows(p, all, b), p->at[b].d_queries);
            cp_copy_keys(&p->g, own_rows(p, all, b), p->at[b].d_keys);
        }
    if (!p->e && p->g.own != p->g.wide) dev_round(p->g.device, c->d_qkv, all);
}

enum error_code planned_backward_input(struct attention_call *c, struct error *err)
{
    struct planned p;
    const enum error_code e = begin(&p, c, INPUT_PASS, err);
    if (e || p.g.B == 0) return e;
    if (!p.e) open_gradients(&p);
    if (!p.e) {
        run_divisions(&p, true, attend_backward);
        for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++)
            for_each_guest(&p, data, send_gradient);
        for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++)
            for_each_guest(&p, data, receive_gradient);
        wait_for_all(&p);
        take_gradients(&p);
    }
    return end(&p);
}

/* ---- by formula -------------------------------------------------------------------------------------------------- */

const char *planned_refuses(const struct context_parallel *cp, const struct model_config *c)
{
    (void)cp, (void)c;
    return NULL;
}

static void forecast_moves(struct forecast *f, const struct context_parallel *cp, bool backward)
{
    const enum dtype own = cp->tp->device->dtype;
    const uint64_t H = (uint64_t)cp->heads->queries.count, size = dtype_size(own), wide = dtype_size(dtype_wide(own));
    const uint64_t queries = H * (uint64_t)cp->tp->config->A * size, keys = (uint64_t)cp_keys_width(cp) * size;
    for (int i = 0; i < cp->plan->moves; i++) {
        const struct context_move *m = &cp->plan->move[i];
        const uint64_t n = (uint64_t)context_block_tokens(&cp->plan->block[m->block]);
        if (m->from != cp->rank) continue;
        forecast_message(f, cp->group, m->to, n * (m->data == CONTEXT_KEYS ? keys : queries));
        if (m->data == CONTEXT_KEYS || !backward) continue;
        forecast_message(f, cp->group, m->to, n * queries);
        for (int k = 0; k < 2; k++) forecast_message(f, cp->group, m->to, n * H * wide);
    }
}

/* Results or gradients of other devices' blocks that this device has worked with. */
static void forecast_returns(struct forecast *f, const struct context_parallel *cp, bool backward)
{
    const uint64_t wide = dtype_size(dtype_wide(cp->tp->device->dtype));
    const uint64_t H = (uint64_t)cp->heads->queries.count, A = (uint64_t)cp->tp->config->A;
    for (int b = 0; b < cp->plan->blocks; b++) {
        const int home = cp->plan->block[b].home;
        const uint64_t n = (uint64_t)context_block_tokens(&cp->plan->block[b]);
        if (home == cp->rank) continue;
        if (has_work(cp->plan, CONTEXT_QUERIES, b, cp->rank)) {
            forecast_message(f, cp->group, home, n * H * A * wide);
            if (!backward) forecast_message(f, cp->group, home, n * H * wide);
        }
        if (backward && has_work(cp->plan, CONTEXT_KEYS, b, cp->rank))
            forecast_message(f, cp->group, home, n * (uint64_t)cp_keys_width(cp) * wide);
    }
}

void planned_cost(struct forecast *f, const struct context_parallel *cp, enum tensor_pass pass, int64_t rows)
{
    (void)rows;
    if (cp->devices == 1 || cp->plan == NULL || pass == WEIGHT_PASS) return;
    forecast_moves(f, cp, pass == INPUT_PASS);
    forecast_returns(f, cp, pass == INPUT_PASS);
}
