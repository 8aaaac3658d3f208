#include "emulated_devices/schemes/attention/planned.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/proxies.h"
#include "emulated_devices/schemes/attention/remap.h"
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
    struct tensor qkv, out;             /* those of the call, with the rows of attention */
    struct tensor o;                    /* the results of all own blocks, wide */
    struct tensor more[2];              /* one more result, or gradients that come, of the longest block */
    struct tensor *opened;              /* buffers */
    int buffers;
    struct message *on_way;
    int messages;
    struct tensor through;              /* parts of others' messages, which this device carries */
    uint64_t carried;                   /* bytes of it, at the running stage */
    struct tensor *came;                /* with proxies: gradients of own blocks from other devices, as they come */
    int comes, next;
    enum proxy_stage stage;
    enum error_code e;                  /* the first failure */
    struct error *err;
};

enum { BUFFERS_OF_A_BLOCK = 8, MESSAGES_OF_A_BLOCK = 8 };

/* ---- who works with whose blocks --------------------------------------------------------------------------------- */

/* Call f for every block and device that has worked with it and is not its home, in one order on all devices. */
static void for_each_guest(struct planned *p, enum context_data data,
                           void (*f)(struct planned *, enum context_data, int block, int device))
{
    for (int b = 0; b < p->plan->blocks; b++)
        for (int d = 0; d < p->plan->devices; d++)
            if (d != p->plan->block[b].home && context_works_with(p->plan, data, b, d)) f(p, data, b, d);
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
    if (m->data == CONTEXT_KEYS) cp_copy_keys(&p->g, *t, own_rows(p, p->qkv, m->block));
    else copy_queries(p, *t, own_rows(p, p->qkv, m->block));
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

/* The part that this device carries of a message of others, in bytes. */
static uint64_t carries(const struct planned *p, int from, int to, struct tensor t)
{
    const int node = p->plan->proxies, rank = p->g.cp->rank;
    if (proxy_parts(node, from, to) == 1 || rank == from || rank == to) return 0;
    if (rank / node != from / node && rank / node != to / node) return 0;
    const uint64_t n = (uint64_t)block_at(tensor_count(t), node, rank % node).count * dtype_size(t.dtype);
    return (n + sizeof(double) - 1) / sizeof(double) * sizeof(double);
}

/* Send or receive this device's parts of a message at one stage.  t has memory on the devices it is from and to. */
static void carry(struct planned *p, int from, int to, struct tensor t, enum proxy_stage stage)
{
    const uint64_t size = dtype_size(t.dtype), own = carries(p, from, to, t);
    for (int i = 0; i < proxy_parts(p->plan->proxies, from, to); i++) {
        const struct proxy_hop h = proxy_hop(p->plan->proxies, from, to, tensor_count(t), stage, i);
        const bool sends = h.from == p->g.cp->rank, receives = h.to == p->g.cp->rank;
        if (sends == receives || h.part.count == 0) continue;
        char *const at = own ? (char *)p->through.data + p->carried : (char *)t.data + (uint64_t)h.part.first * size;
        if (sends) send(p, h.to, tensor_1d(at, t.dtype, h.part.count));
        else receive(p, h.from, tensor_1d(at, t.dtype, h.part.count));
    }
    p->carried += own;
}

/* What a move sends: of queries backward also what their gradient needs. */
static int tensors_of(const struct context_move *m, bool backward)
{
    return m->data == CONTEXT_KEYS || !backward ? 1 : 4;
}

static struct tensor moved(const struct planned *p, const struct context_move *m, int i)
{
    const struct here *h = &p->at[m->block];
    const int64_t n = tokens(p, m->block);
    if (m->data == CONTEXT_KEYS) return tensor_2d(h->keys.data, p->g.own, n, cp_keys_width(p->g.cp));
    if (i < 2) return tensor_2d(i == 0 ? h->queries.data : h->d_out.data, p->g.own, n, query_width(p));
    return tensor_2d(i == 2 ? h->lse.data : h->delta.data, p->g.wide, p->g.shape.H, n);
}

static void launch(struct planned *p, int division, bool backward, enum proxy_stage stage)
{
    p->carried = 0;
    for (int i = 0; i < p->plan->moves; i++) {
        const struct context_move *m = &p->plan->move[i];
        for (int t = 0; m->division == division && t < tensors_of(m, backward); t++)
            carry(p, m->from, m->to, moved(p, m, t), stage);
    }
}

/* Run the divisions.  attend: one work of this device. */
static void run_divisions(struct planned *p, bool backward,
                          void (*attend)(struct planned *, const struct context_work *))
{
    for (int d = 0; d < p->plan->divisions; d++) {
        launch(p, d, backward, PROXY_DISPATCH);
        wait_for_all(p);
        launch(p, d, backward, PROXY_TRANSFER);
        for (int i = 0; i < p->plan->works; i++)
            if (p->plan->work[i].division == d && p->plan->work[i].device == p->g.cp->rank)
                attend(p, &p->plan->work[i]);
        wait_for_all(p);
        launch(p, d, backward, PROXY_COMBINE);
        wait_for_all(p);
    }
}

/* ---- rows outside attention -------------------------------------------------------------------------------------- */

struct remapping { struct planned *p; struct tensor inside, outside; bool back; };

static void remap_run(void *context, const struct remap_run *r)
{
    struct remapping *x = context;
    const int rank = x->p->g.cp->rank;
    const struct tensor in = tensor_rows_of(x->inside, r->row_inside, r->inside == rank ? r->count : 0),
                        out = tensor_rows_of(x->outside, r->row_outside, r->outside == rank ? r->count : 0);
    if (r->inside == rank && r->outside == rank)
        device_copy(x->p->g.device, x->back ? out.data : in.data, x->back ? in.data : out.data, tensor_bytes(in));
    else if (r->inside == rank) (x->back ? send : receive)(x->p, r->outside, in);
    else if (r->outside == rank) (x->back ? receive : send)(x->p, r->inside, out);
}

/* Rows outside attention to those in it, or back. */
static void remap(struct planned *p, struct tensor inside, struct tensor outside, bool back)
{
    if (p->plan->rows > 0 && !p->e) remap_each(p->plan, remap_run, &(struct remapping){ p, inside, outside, back });
    wait_for_all(p);
}

/* A tensor of the call, or one like it with the rows of attention. */
static struct tensor inside(struct planned *p, struct tensor outside, bool fill)
{
    if (p->plan->rows == 0) return outside;
    const int64_t rows = positions_count(&p->g.at, p->g.cp->rank);
    const struct tensor t = open_buffer(p, outside.dtype, rows, tensor_cols(outside));
    if (fill) remap(p, t, outside, false);
    return t;
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

static void count_gradient(struct planned *p, enum context_data data, int block, int device)
{
    const int64_t width = data == CONTEXT_KEYS ? cp_keys_width(p->g.cp) : query_width(p);
    const struct tensor t = tensor_2d(NULL, p->g.wide, tokens(p, block), width);
    p->carried += carries(p, device, p->plan->block[block].home, t);
}

/* Room for what this device carries for others in a division, or of gradients. */
static void open_through(struct planned *p, bool backward)
{
    uint64_t most = 0, sum = 0;
    const struct context_plan *const plan = p->plan;
    for (int d = 0; d < plan->divisions && plan->proxies > 0; d++, sum = 0) {
        for (int i = 0; i < plan->moves; i++)
            for (int t = 0; plan->move[i].division == d && t < tensors_of(&plan->move[i], backward); t++)
                sum += carries(p, plan->move[i].from, plan->move[i].to, moved(p, &plan->move[i], t));
        if (sum > most) most = sum;
    }
    p->carried = 0;
    if (backward && plan->proxies > 0)
        for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++)
            for_each_guest(p, data, count_gradient);
    if (p->carried > most) most = p->carried;
    if (most > 0) p->through = open_buffer(p, p->g.wide, (int64_t)(most / dtype_size(p->g.wide)), 1);
}

static enum error_code begin(struct planned *p, struct attention_call *c, enum tensor_pass pass, struct error *err)
{
    *p = (struct planned){ .plan = c->cp->plan, .err = err };
    enum error_code e = cp_begin(&p->g, c, pass, err);
    if (e || p->g.B == 0) return e;
    const size_t blocks = (size_t)p->plan->blocks, moves = (size_t)p->plan->moves, works = (size_t)p->plan->works;
    const size_t messages = MESSAGES_OF_A_BLOCK * (moves + blocks * (size_t)p->plan->devices + 1);
    const size_t parts = p->plan->proxies > 0 ? (size_t)p->plan->proxies : 1;
    p->at = calloc(blocks + 1, sizeof *p->at);
    p->opened = calloc(BUFFERS_OF_A_BLOCK * (blocks + 1) + 2 * works + 8, sizeof *p->opened);
    p->on_way = calloc(parts * messages + (size_t)p->plan->rows + 2 * blocks, sizeof *p->on_way);
    p->came = calloc(2 * works + 1, sizeof *p->came);
    if (p->at == NULL || p->opened == NULL || p->on_way == NULL || p->came == NULL)
        p->e = fail(err, ERR_MEMORY, "no memory for attention by a plan of %d blocks", p->plan->blocks);
    if (!p->e) p->qkv = inside(p, c->qkv, true);
    for (int b = 0; b < p->plan->blocks && !p->e; b++) {
        const bool follows = b > 0 && p->plan->block[b].home == p->plan->block[b - 1].home;
        p->at[b].row = follows ? p->at[b - 1].row + tokens(p, b - 1) : 0;
        if (is_own(p, b)) p->at[b].queries = p->at[b].keys = own_rows(p, p->qkv, b);
    }
    for (int i = 0; i < p->plan->moves && !p->e; i++) take_buffer(p, &p->plan->move[i]);
    open_through(p, pass == INPUT_PASS);
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
    free(p->at), free(p->opened), free(p->on_way), free(p->came);
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
    const bool rounds = p->g.own != p->g.wide;
    p->out = inside(p, p->g.call->out, false);
    p->o = rounds ? open_buffer(p, p->g.wide, tensor_rows(p->out), tensor_cols(p->out)) : p->out;
    open_more(p, p->g.wide, query_width(p), p->g.shape.H);
    for (int b = 0; b < p->plan->blocks && !p->e; b++) {
        struct here *h = &p->at[b];
        if (is_own(p, b)) {
            h->o = own_rows(p, p->o, b), h->lse = own_lse(p, b);
        } else if (context_works_with(p->plan, CONTEXT_QUERIES, b, p->g.cp->rank)) {
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
        if (p.g.own != p.g.wide) dev_round(p.g.device, p.out, p.o);
        remap(&p, p.out, c->out, true);
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

/* The gradient of a block that goes from a device to the block's home. */
static void carry_gradient(struct planned *p, enum context_data data, int block, int device)
{
    const int64_t width = data == CONTEXT_KEYS ? cp_keys_width(p->g.cp) : query_width(p);
    const void *at = is_own(p, block) ? p->came[p->next++].data : gradient(p, data, block)->data;
    carry(p, device, p->plan->block[block].home, tensor_2d((void *)at, p->g.wide, tokens(p, block), width), p->stage);
}

static void add_gradient(struct planned *p, enum context_data data, int block, int device)
{
    const struct tensor sum = *gradient(p, data, block);
    (void)device;
    if (is_own(p, block)) dev_add(p->g.device, sum, sum, p->came[p->next++]);
}

static void open_came(struct planned *p, enum context_data data, int block, int device)
{
    (void)device;
    if (is_own(p, block))
        p->came[p->comes++] = open_buffer(p, p->g.wide, tokens(p, block), tensor_cols(*gradient(p, data, block)));
}

static void for_both(struct planned *p, void (*f)(struct planned *, enum context_data, int block, int device))
{
    p->carried = 0, p->next = 0;
    for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++) for_each_guest(p, data, f);
}

static void return_gradients(struct planned *p)
{
    if (p->plan->proxies == 0) for_both(p, send_gradient), for_both(p, receive_gradient);
    for (p->stage = PROXY_DISPATCH; p->plan->proxies > 0 && p->stage < PROXY_STAGES; p->stage++)
        for_both(p, carry_gradient), wait_for_all(p);
    if (p->plan->proxies > 0) for_both(p, add_gradient);
    wait_for_all(p);
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
    const struct tensor out = inside(p, c->out, true), d_out = inside(p, c->d_out, true);
    open_more(p, p->g.wide, width, cp_keys_width(p->g.cp));
    for (int b = 0; b < p->plan->blocks && !p->e; b++) {
        struct here *h = &p->at[b];
        const bool own = is_own(p, b), asks = own || context_works_with(p->plan, CONTEXT_QUERIES, b, rank);
        const int64_t n = tokens(p, b);
        if (asks) h->delta = open_buffer(p, p->g.wide, H, n), h->d_queries = open_gradient(p, n, width);
        if (own || context_works_with(p->plan, CONTEXT_KEYS, b, rank))
            h->d_keys = open_gradient(p, n, cp_keys_width(p->g.cp));
        if (asks && !own) h->d_out = open_buffer(p, p->g.own, n, width), h->lse = open_buffer(p, p->g.wide, H, n);
        if (!own || p->e) continue;
        h->d_out = own_rows(p, d_out, b), h->lse = own_lse(p, b);
        dev_attention_delta(p->g.device, h->delta, h->d_out, own_rows(p, out, b), p->g.shape);
    }
    if (p->plan->proxies > 0) for_both(p, open_came);
}

static void take_gradients(struct planned *p)
{
    const struct tensor d_qkv = inside(p, p->g.call->d_qkv, false);
    const struct tensor all = p->g.own == p->g.wide ? d_qkv
        : open_buffer(p, p->g.wide, tensor_rows(d_qkv), tensor_cols(d_qkv));
    for (int b = 0; b < p->plan->blocks && !p->e; b++)
        if (is_own(p, b)) {
            copy_queries(p, own_rows(p, all, b), p->at[b].d_queries);
            cp_copy_keys(&p->g, own_rows(p, all, b), p->at[b].d_keys);
        }
    if (!p->e && p->g.own != p->g.wide) dev_round(p->g.device, d_qkv, all);
    remap(p, d_qkv, p->g.call->d_qkv, true);
}

enum error_code planned_backward_input(struct attention_call *c, struct error *err)
{
    struct planned p;
    const enum error_code e = begin(&p, c, INPUT_PASS, err);
    if (e || p.g.B == 0) return e;
    if (!p.e) open_gradients(&p);
    if (!p.e) {
        run_divisions(&p, true, attend_backward);
        return_gradients(&p);
        take_gradients(&p);
    }
    return end(&p);
}
