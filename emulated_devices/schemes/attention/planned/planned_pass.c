#include "emulated_devices/schemes/attention/planned/planned_pass.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/planned/remap.h"
#include <stdlib.h>

enum { BUFFERS_OF_A_BLOCK = 8, MESSAGES_OF_A_BLOCK = 8 };

/* ---- who works with whose blocks --------------------------------------------------------------------------------- */

/* Call f for every block and device that has worked with it and is not its home, in one order on all devices. */
void planned_each_guest(struct planned *p, enum context_data data,
                           void (*f)(struct planned *, enum context_data, int block, int device))
{
    for (int b = 0; b < p->plan->blocks; b++)
        for (int d = 0; d < p->plan->devices; d++)
            if (d != p->plan->block[b].home && context_works_with(p->plan, data, b, d)) f(p, data, b, d);
}

/* ---- what a device has of a block -------------------------------------------------------------------------------- */

struct tensor planned_buffer(struct planned *p, enum dtype type, int64_t rows, int64_t cols)
{
    struct tensor *t = &p->opened[p->buffers];
    if (p->e) return tensor_none;
    p->e = cp_open(&p->g, t, 1, type, rows, cols, p->err);
    p->buffers++;
    return *t;
}

struct tensor planned_positions(const struct planned *p, int block)
{
    const struct tensor all = positions_of(&p->g.at, p->plan->block[block].home);
    return tensor_1d((int32_t *)all.data + p->at[block].row, I32, planned_tokens(p, block));
}

struct tensor planned_rows(const struct planned *p, struct tensor t, int block)
{
    return tensor_rows_of(t, p->at[block].row, planned_tokens(p, block));
}

/* The log-sum-exp is kept block by block, each as [H, n]. */
struct tensor planned_lse(const struct planned *p, int block)
{
    const struct tensor all = p->g.call->kept[0];
    const int64_t H = p->g.shape.H;
    char *first = (char *)all.data + (uint64_t)(H * p->at[block].row) * dtype_size(all.dtype);
    return tensor_2d(first, all.dtype, H, planned_tokens(p, block));
}

/* Queries are the first columns of a tensor, in both formats. */
void planned_copy_queries(struct planned *p, struct tensor to, struct tensor from)
{
    const uint64_t size = dtype_size(to.dtype);
    device_copy_rows(p->g.device, to.data, (uint64_t)tensor_cols(to) * size, from.data,
                     (uint64_t)tensor_cols(from) * size, (uint64_t)planned_width(p) * size, tensor_rows(to));
    dev_charge(p->g.device, "copy queries", tensor_2d(NULL, to.dtype, tensor_rows(to), planned_width(p)), 2, 0);
}

/* The block's queries or keys, in a buffer that can be sent, or arrive. */
static void take_buffer(struct planned *p, const struct context_move *m)
{
    struct here *h = &p->at[m->block];
    const bool own = planned_owns(p, m->block);
    struct tensor *t = m->data == CONTEXT_KEYS ? &h->keys : &h->queries;
    const int64_t n = planned_tokens(p, m->block);
    const int64_t width = m->data == CONTEXT_KEYS ? cp_keys_width(p->g.cp) : planned_width(p);
    /* A buffer of `width` columns is packed already; rows of the call are wider. */
    if ((own ? m->from : m->to) != p->g.cp->rank || (tensor_present(*t) && tensor_cols(*t) == width)) return;
    *t = planned_buffer(p, p->g.own, n, width);
    if (p->e || !own) return;
    if (m->data == CONTEXT_KEYS) cp_copy_keys(&p->g, *t, planned_rows(p, p->qkv, m->block));
    else planned_copy_queries(p, *t, planned_rows(p, p->qkv, m->block));
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

void planned_send(struct planned *p, int to, struct tensor t)
{
    p->on_way[p->messages++] = message_send(&p->g.exchange, to, t.data, tensor_bytes(t));
}

static void receive(struct planned *p, int from, struct tensor t)
{
    p->on_way[p->messages++] = message_receive(&p->g.exchange, from, t.data, tensor_bytes(t));
}

void planned_wait(struct planned *p)
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
    /* The part is rounded up so that parts of both formats stay aligned in one buffer. */
    const uint64_t n = (uint64_t)block_at(tensor_count(t), node, rank % node).count * dtype_size(t.dtype);
    return (n + sizeof(double) - 1) / sizeof(double) * sizeof(double);
}

/* Send or receive this device's parts of a message at one stage.  t has memory on the devices it is from and to. */
void planned_carry(struct planned *p, int from, int to, struct tensor t, enum proxy_stage stage)
{
    const uint64_t size = dtype_size(t.dtype), own = carries(p, from, to, t);
    for (int i = 0; i < proxy_parts(p->plan->proxies, from, to); i++) {
        const struct proxy_hop h = proxy_hop(p->plan->proxies, from, to, tensor_count(t), stage, i);
        const bool sends = h.from == p->g.cp->rank, receives = h.to == p->g.cp->rank;
        if (sends == receives || h.part.count == 0) continue;
        /* A proxy keeps the part in its own room; ends read and write the tensor itself. */
        char *const at = own ? (char *)p->through.data + p->carried : (char *)t.data + (uint64_t)h.part.first * size;
        if (sends) planned_send(p, h.to, tensor_1d(at, t.dtype, h.part.count));
        else receive(p, h.from, tensor_1d(at, t.dtype, h.part.count));
    }
    p->carried += own;
}

/* A move sends one tensor; backward queries also take along what their gradient needs. */
static int tensors_of(const struct context_move *m, bool backward)
{
    return m->data == CONTEXT_KEYS || !backward ? 1 : 4;
}

static struct tensor moved(const struct planned *p, const struct context_move *m, int i)
{
    const struct here *h = &p->at[m->block];
    const int64_t n = planned_tokens(p, m->block);
    if (m->data == CONTEXT_KEYS) return tensor_2d(h->keys.data, p->g.own, n, cp_keys_width(p->g.cp));
    /* Backward queries are four tensors: queries, d_out [n, H A], then log-sum-exp, delta [H, n]. */
    if (i < 2) return tensor_2d(i == 0 ? h->queries.data : h->d_out.data, p->g.own, n, planned_width(p));
    return tensor_2d(i == 2 ? h->lse.data : h->delta.data, p->g.wide, p->g.shape.H, n);
}

static void launch(struct planned *p, int division, bool backward, enum proxy_stage stage)
{
    p->carried = 0;
    for (int i = 0; i < p->plan->moves; i++) {
        const struct context_move *m = &p->plan->move[i];
        for (int t = 0; m->division == division && t < tensors_of(m, backward); t++)
            planned_carry(p, m->from, m->to, moved(p, m, t), stage);
    }
}

/* Run the divisions.  attend: one work of this device. */
void planned_divisions(struct planned *p, bool backward,
                          void (*attend)(struct planned *, const struct context_work *))
{
    for (int d = 0; d < p->plan->divisions; d++) {
        launch(p, d, backward, PROXY_DISPATCH);
        planned_wait(p);
        /* The long way between nodes is on its way while the works of this division compute. */
        launch(p, d, backward, PROXY_TRANSFER);
        for (int i = 0; i < p->plan->works; i++)
            if (p->plan->work[i].division == d && p->plan->work[i].device == p->g.cp->rank)
                attend(p, &p->plan->work[i]);
        planned_wait(p);
        launch(p, d, backward, PROXY_COMBINE);
        planned_wait(p);
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
    /* A run that stays on the device is copied; else its two ends send and receive it. */
    if (r->inside == rank && r->outside == rank)
        device_copy(x->p->g.device, x->back ? out.data : in.data, x->back ? in.data : out.data, tensor_bytes(in));
    else if (r->inside == rank) (x->back ? planned_send : receive)(x->p, r->outside, in);
    else if (r->outside == rank) (x->back ? receive : planned_send)(x->p, r->inside, out);
}

/* Rows outside attention to those in it, or back. */
void planned_remap(struct planned *p, struct tensor inside, struct tensor outside, bool back)
{
    if (p->plan->rows > 0 && !p->e) remap_each(p->plan, remap_run, &(struct remapping){ p, inside, outside, back });
    planned_wait(p);
}

/* A tensor of the call, or one like it with the rows of attention. */
struct tensor planned_inside(struct planned *p, struct tensor outside, bool fill)
{
    if (p->plan->rows == 0) return outside;
    const int64_t rows = positions_count(&p->g.at, p->g.cp->rank);
    const struct tensor t = planned_buffer(p, outside.dtype, rows, tensor_cols(outside));
    if (fill) planned_remap(p, t, outside, false);
    return t;
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

static void count_gradient(struct planned *p, enum context_data data, int block, int device)
{
    const int64_t width = data == CONTEXT_KEYS ? cp_keys_width(p->g.cp) : planned_width(p);
    const struct tensor t = tensor_2d(NULL, p->g.wide, planned_tokens(p, block), width);
    p->carried += carries(p, device, p->plan->block[block].home, t);
}

/* Room for what this device carries for others in a division, or of gradients. */
static void open_through(struct planned *p, bool backward)
{
    uint64_t most = 0, sum = 0;
    const struct context_plan *const plan = p->plan;
    /* Room is used again in every division, so the fullest one decides. */
    for (int d = 0; d < plan->divisions && plan->proxies > 0; d++, sum = 0) {
        for (int i = 0; i < plan->moves; i++)
            for (int t = 0; plan->move[i].division == d && t < tensors_of(&plan->move[i], backward); t++)
                sum += carries(p, plan->move[i].from, plan->move[i].to, moved(p, &plan->move[i], t));
        if (sum > most) most = sum;
    }
    p->carried = 0;
    if (backward && plan->proxies > 0)
        for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++)
            planned_each_guest(p, data, count_gradient);
    if (p->carried > most) most = p->carried;
    if (most > 0) p->through = planned_buffer(p, p->g.wide, (int64_t)(most / dtype_size(p->g.wide)), 1);
}

enum error_code planned_begin(struct planned *p, struct attention_call *c, enum tensor_pass pass, struct error *err)
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
    if (!p->e) p->qkv = planned_inside(p, c->qkv, true);
    for (int b = 0; b < p->plan->blocks && !p->e; b++) {
        /* Blocks of one home lie one after another in its rows. */
        const bool follows = b > 0 && p->plan->block[b].home == p->plan->block[b - 1].home;
        p->at[b].row = follows ? p->at[b - 1].row + planned_tokens(p, b - 1) : 0;
        /* At home queries and keys are read where the call has them, without a copy. */
        if (planned_owns(p, b)) p->at[b].queries = p->at[b].keys = planned_rows(p, p->qkv, b);
    }
    for (int i = 0; i < p->plan->moves && !p->e; i++) take_buffer(p, &p->plan->move[i]);
    open_through(p, pass == INPUT_PASS);
    return OK;
}

/* Buffers for one more of the longest block. */
void planned_open_more(struct planned *p, enum dtype type, int64_t width0, int64_t width1)
{
    int64_t longest = 0;
    for (int b = 0; b < p->plan->blocks; b++)
        if (planned_tokens(p, b) > longest) longest = planned_tokens(p, b);
    p->more[0] = planned_buffer(p, type, longest, width0);
    p->more[1] = planned_buffer(p, type, longest, width1);
}

enum error_code planned_end(struct planned *p)
{
    for (int i = 0; i < p->buffers; i++) cp_close(&p->g, &p->opened[i], 1);
    free(p->at), free(p->opened), free(p->on_way), free(p->came);
    cp_end(&p->g);
    return p->e;
}
