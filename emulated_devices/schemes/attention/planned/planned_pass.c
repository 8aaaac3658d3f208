/* planned_pass.c -- buffers and messages of a pass by a plan.  planned.c calls these functions.  Lists are allocated
 * once for the largest count that the plan allows; the first failure stays in planned->e.  Its code is ERR_MEMORY or
 * ERR_COMM. */
#include "emulated_devices/schemes/attention/planned/planned_pass.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/planned/remap.h"
#include <stdlib.h>

enum { BUFFERS_OF_A_BLOCK = 8, MESSAGES_OF_A_BLOCK = 8 };

/* ---- who works with whose blocks --------------------------------------------------------------------------------- */

/* Call f for every block and guest of which this device sends, receives or carries something, in one order on all
 * devices. */
void planned_each_guest(struct planned *planned, enum context_data data,
                           void (*f)(struct planned *, enum context_data, int block, int device))
{
    const struct context_index *const index = planned->plan->index;
    const int rank = planned->g.cp->rank, *const entry = context_list_of(&index->guests[data], rank);
    for (int64_t i = 0; i < context_list_count(&index->guests[data], rank); i++)
        f(planned, data, index->guest[data][entry[i]].block, index->guest[data][entry[i]].device);
}

/* ---- what a device has of a block -------------------------------------------------------------------------------- */

struct tensor planned_buffer(struct planned *planned, enum dtype type, int64_t rows, int64_t cols)
{
    struct tensor *t = &planned->opened[planned->buffers];
    /* After a failure nothing more is opened, and the caller goes on to planned_end. */
    if (planned->e) return tensor_none;
    planned->e = cp_open(&planned->g, t, 1, type, rows, cols, planned->err);
    planned->buffers++;
    return *t;
}

struct tensor planned_positions(const struct planned *planned, int block)
{
    /* A home's positions lie in the order of its blocks. */
    const struct tensor all = positions_of(&planned->g.at, planned->plan->block[block].home);
    return tensor_1d((int32_t *)all.data + planned->plan->index->row[block], I32, planned_tokens(planned, block));
}

struct tensor planned_rows(const struct planned *planned, struct tensor t, int block)
{
    return tensor_rows_of(t, planned->plan->index->row[block], planned_tokens(planned, block));
}

/* The log-sum-exp is kept block by block, each as [H, n]. */
struct tensor planned_lse(const struct planned *planned, int block)
{
    const struct tensor all = planned->g.call->kept[0];
    const int64_t H = planned->g.shape.H;
    char *first = (char *)all.data + (uint64_t)(H * planned->plan->index->row[block]) * dtype_size(all.dtype);
    return tensor_2d(first, all.dtype, H, planned_tokens(planned, block));
}

/* Queries are the first columns of a tensor, in both formats. */
void planned_copy_queries(struct planned *planned, struct tensor to, struct tensor from)
{
    const uint64_t size = dtype_size(to.dtype);
    device_copy_rows(planned->g.device, to.data, (uint64_t)tensor_cols(to) * size, from.data,
                     (uint64_t)tensor_cols(from) * size, (uint64_t)planned_width(planned) * size, tensor_rows(to));
    dev_charge(planned->g.device, "copy queries", tensor_2d(NULL, to.dtype, tensor_rows(to),
                                                            planned_width(planned)), 2, 0);
}

/* The block's queries or keys, in a buffer that can be sent, or arrive. */
static void take_buffer(struct planned *planned, const struct context_move *move)
{
    struct here *h = planned_at(planned, move->block);
    const bool own = planned_owns(planned, move->block);
    struct tensor *t = move->data == CONTEXT_KEYS ? &h->keys : &h->queries;
    const int64_t n = planned_tokens(planned, move->block);
    const int64_t width = move->data == CONTEXT_KEYS ? cp_keys_width(planned->g.cp) : planned_width(planned);
    /* A buffer of `width` columns is packed already; rows of the call are wider. */
    if ((own ? move->from : move->to) != planned->g.cp->rank || (tensor_present(*t) && tensor_cols(*t) == width))
        return;
    *t = planned_buffer(planned, planned->g.own, n, width);
    if (planned->e || !own) return;
    if (move->data == CONTEXT_KEYS) cp_copy_keys(&planned->g, *t, planned_rows(planned, planned->qkv, move->block));
    else planned_copy_queries(planned, *t, planned_rows(planned, planned->qkv, move->block));
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

void planned_send(struct planned *planned, int to, struct tensor t)
{
    planned->on_way[planned->messages++] = message_send(&planned->g.exchange, to, t.data, tensor_bytes(t));
}

/* Begin to receive a tensor; planned_wait ends it. */
static void planned_pass_receive(struct planned *planned, int from, struct tensor t)
{
    planned->on_way[planned->messages++] = message_receive(&planned->g.exchange, from, t.data, tensor_bytes(t));
}

void planned_wait(struct planned *planned)
{
    for (int i = 0; i < planned->messages; i++) cp_arrive(&planned->g, planned->on_way[i]);
    planned->messages = 0;
}

/* The part that this device carries of a message of others, in bytes. */
static uint64_t carries(const struct planned *planned, int from, int to, struct tensor t)
{
    const int node = planned->plan->proxies, rank = planned->g.cp->rank;
    /* A message inside a node, and its own ends, need no room for carrying. */
    if (proxy_parts(node, from, to) == 1 || rank == from || rank == to) return 0;
    /* Only devices of the sender's and the receiver's node carry parts. */
    if (rank / node != from / node && rank / node != to / node) return 0;
    /* The part is rounded up so that parts of both formats stay aligned in one buffer. */
    const uint64_t n = (uint64_t)block_at(tensor_count(t), node, rank % node).count * dtype_size(t.dtype);
    return (n + sizeof(double) - 1) / sizeof(double) * sizeof(double);
}

/* Send or receive this device's parts of a message at one stage.  t has memory on the devices it is from and to. */
void planned_carry(struct planned *planned, int from, int to, struct tensor t, enum proxy_stage stage)
{
    const uint64_t size = dtype_size(t.dtype), own = carries(planned, from, to, t);
    for (int i = 0; i < proxy_parts(planned->plan->proxies, from, to); i++) {
        const struct proxy_hop h = proxy_hop(planned->plan->proxies, from, to, tensor_count(t), stage, i);
        const bool sends = h.from == planned->g.cp->rank, receives = h.to == planned->g.cp->rank;
        /* The hop stays on a device, does not touch this one, or has nothing to carry. */
        if (sends == receives || h.part.count == 0) continue;
        /* A proxy keeps the part in its own room; ends read and write the tensor itself. */
        char *const at = own ? (char *)planned->through.data + planned->carried
            : (char *)t.data + (uint64_t)h.part.first * size;
        if (sends) planned_send(planned, h.to, tensor_1d(at, t.dtype, h.part.count));
        else planned_pass_receive(planned, h.from, tensor_1d(at, t.dtype, h.part.count));
    }
    /* All stages walk the messages in one order, so each part has the same room in every stage. */
    planned->carried += own;
}

/* A move sends one tensor; backward queries also take along what their gradient needs, forward with exact sums their
 * tops. */
static int tensors_of(const struct planned *planned, const struct context_move *move, bool backward)
{
    if (move->data == CONTEXT_KEYS) return 1;
    return backward ? 4 : planned->g.device->exact ? 2 : 1;
}

/* Return tensor i of a move: the data on the sender, the place for the data on the receiver. */
static struct tensor planned_pass_moved(const struct planned *planned, const struct context_move *move, int i)
{
    const struct here *h = planned_at(planned, move->block);
    const int64_t n = planned_tokens(planned, move->block);
    if (move->data == CONTEXT_KEYS) return tensor_2d(h->keys.data, planned->g.own, n, cp_keys_width(planned->g.cp));
    /* Forward the second tensor is the tops [H, n]. */
    if (i == 1 && planned->pass == FORWARD_PASS)
        return tensor_2d(h->top.data, planned->g.wide, planned->g.shape.H, n);
    /* Backward queries are four tensors: queries, d_out [n, H A], then log-sum-exp, delta [H, n]. */
    if (i < 2) return tensor_2d(i == 0 ? h->queries.data : h->d_out.data, planned->g.own, n, planned_width(planned));
    return tensor_2d(i == 2 ? h->lse.data : h->delta.data, planned->g.wide, planned->g.shape.H, n);
}

/* The moves of a division of which this device does something: entries of its list. */
static struct interval moves_of(const struct planned *planned, int division, int64_t from)
{
    const struct context_list *const all = &planned->plan->index->moves;
    const int *const entry = context_list_of(all, planned->g.cp->rank);
    int64_t end = from;
    while (end < context_list_count(all, planned->g.cp->rank) && planned->plan->move[entry[end]].division == division)
        end++;
    return (struct interval){ from, end - from };
}

/* Start all messages of a division at one stage; the caller waits for them. */
static void launch(struct planned *planned, struct interval moves, bool backward, enum proxy_stage stage)
{
    const int *const entry = context_list_of(&planned->plan->index->moves, planned->g.cp->rank);
    /* Each stage gives out the room for carried parts from its start. */
    planned->carried = 0;
    for (int64_t i = moves.first; i < interval_end(moves); i++) {
        const struct context_move *m = &planned->plan->move[entry[i]];
        for (int t = 0; t < tensors_of(planned, m, backward); t++)
            planned_carry(planned, m->from, m->to, planned_pass_moved(planned, m, t), stage);
    }
}

/* Run the divisions.  attend: one work of this device. */
void planned_divisions(struct planned *planned, bool backward,
                          void (*attend)(struct planned *, const struct context_work *))
{
    const struct context_plan *const plan = planned->plan;
    const int *const first = plan->index->first_work + planned->g.cp->rank;
    struct interval moves = { 0, 0 };
    int work = first[0];
    for (int d = 0; d < plan->divisions; d++) {
        moves = moves_of(planned, d, interval_end(moves));
        launch(planned, moves, backward, PROXY_DISPATCH);
        planned_wait(planned);
        /* The long way between nodes is on its way while the works of this division compute. */
        launch(planned, moves, backward, PROXY_TRANSFER);
        for (; work < first[1] && plan->work[work].division == d; work++) attend(planned, &plan->work[work]);
        planned_wait(planned);
        launch(planned, moves, backward, PROXY_COMBINE);
        planned_wait(planned);
    }
}

/* ---- rows outside attention -------------------------------------------------------------------------------------- */

struct remapping { struct planned *p; struct tensor inside, outside; bool back; };

/* Move one run of rows: `in` [count] inside attention, `out` [count] outside; `back` turns the direction. */
static void remap_run(void *context, const struct remap_run *r)
{
    struct remapping *x = context;
    const int rank = x->p->g.cp->rank;
    const struct tensor in = tensor_rows_of(x->inside, r->row_inside, r->inside == rank ? r->count : 0),
                        out = tensor_rows_of(x->outside, r->row_outside, r->outside == rank ? r->count : 0);
    /* A run that stays on the device is copied; else its two ends send and receive it. */
    if (r->inside == rank && r->outside == rank)
        device_copy(x->p->g.device, x->back ? out.data : in.data, x->back ? in.data : out.data, tensor_bytes(in));
    else if (r->inside == rank) (x->back ? planned_send : planned_pass_receive)(x->p, r->outside, in);
    else if (r->outside == rank) (x->back ? planned_pass_receive : planned_send)(x->p, r->inside, out);
}

/* Rows outside attention to those in it, or back. */
void planned_remap(struct planned *planned, struct tensor inside, struct tensor outside, bool back)
{
    if (planned->plan->rows > 0 && !planned->e)
        remap_each_of(planned->plan, planned->g.cp->rank, remap_run,
                      &(struct remapping){ planned, inside, outside, back });
    planned_wait(planned);
}

/* A tensor of the call, or one like it with the rows of attention. */
struct tensor planned_inside(struct planned *planned, struct tensor outside, bool fill)
{
    /* Without remapping the call's tensors already have attention's rows. */
    if (planned->plan->rows == 0) return outside;
    const int64_t rows = positions_count(&planned->g.at, planned->g.cp->rank);
    const struct tensor t = planned_buffer(planned, outside.dtype, rows, tensor_cols(outside));
    if (fill) planned_remap(planned, t, outside, false);
    return t;
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

/* Add the room that this device needs to carry one guest's gradient. */
static void count_gradient(struct planned *planned, enum context_data data, int block, int device)
{
    const int64_t width = data == CONTEXT_KEYS ? cp_keys_width(planned->g.cp) : planned_width(planned);
    const struct tensor t = tensor_2d(NULL, planned->g.sums, planned_tokens(planned, block), width);
    planned->carried += carries(planned, device, planned->plan->block[block].home, t);
}

/* Room for what this device carries for others in a division, or of gradients. */
static void open_through(struct planned *planned, bool backward)
{
    uint64_t most = 0, sum = 0;
    const struct context_plan *const plan = planned->plan;
    const int *const entry = context_list_of(&plan->index->moves, planned->g.cp->rank);
    struct interval moves = { 0, 0 };
    /* Room is used again in every division, so the fullest one decides. */
    for (int d = 0; d < plan->divisions && plan->proxies > 0; d++, sum = 0) {
        moves = moves_of(planned, d, interval_end(moves));
        for (int64_t i = moves.first; i < interval_end(moves); i++) {
            const struct context_move *const m = &plan->move[entry[i]];
            for (int t = 0; t < tensors_of(planned, m, backward); t++)
                sum += carries(planned, m->from, m->to, planned_pass_moved(planned, m, t));
        }
        if (sum > most) most = sum;
    }
    planned->carried = 0;
    if (backward && plan->proxies > 0)
        for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++)
            planned_each_guest(planned, data, count_gradient);
    if (planned->carried > most) most = planned->carried;
    if (most > 0) planned->through = planned_buffer(planned, planned->g.wide,
                                                    (int64_t)(most / dtype_size(planned->g.wide)), 1);
}

enum error_code planned_begin(struct planned *planned, struct attention_call *call, enum tensor_pass pass,
                              struct error *err)
{
    *planned = (struct planned){ .plan = call->cp->plan, .pass = pass, .err = err };
    enum error_code e = cp_begin(&planned->g, call, pass, err);
    if (e || planned->g.B == 0) return e;
    const struct context_index *const index = planned->plan->index;
    const int rank = planned->g.cp->rank;
    const size_t blocks = (size_t)context_list_count(&index->here, rank),
        moves = (size_t)context_list_count(&index->moves, rank),
        runs = (size_t)context_list_count(&index->remapped, rank),
        guests = (size_t)(context_list_count(&index->guests[CONTEXT_QUERIES], rank) +
                          context_list_count(&index->guests[CONTEXT_KEYS], rank));
    /* The lists have room for the most that a division or the return of gradients can need. */
    const size_t messages = MESSAGES_OF_A_BLOCK * (moves + guests + 1);
    const size_t parts = planned->plan->proxies > 0 ? (size_t)planned->plan->proxies : 1;
    planned->at = calloc(blocks + 1, sizeof *planned->at);
    planned->opened = calloc(BUFFERS_OF_A_BLOCK * (blocks + 1) + guests + 8, sizeof *planned->opened);
    planned->on_way = calloc(parts * messages + runs, sizeof *planned->on_way);
    planned->came = calloc(guests + 1, sizeof *planned->came);
    if (planned->at == NULL || planned->opened == NULL || planned->on_way == NULL || planned->came == NULL)
        planned->e = fail(err, ERR_MEMORY, "no memory for attention by a plan of %d blocks", planned->plan->blocks);
    const struct interval own = planned_own(planned);
    if (!planned->e) planned->qkv = planned_inside(planned, call->qkv, true);
    /* At home queries and keys are read where the call has them, without a copy. */
    for (int b = (int)own.first; b < interval_end(own) && !planned->e; b++)
        planned_at(planned, b)->queries = planned_at(planned, b)->keys = planned_rows(planned, planned->qkv, b);
    const int *const entry = context_list_of(&index->moves, rank);
    for (size_t i = 0; i < moves && !planned->e; i++) take_buffer(planned, &planned->plan->move[entry[i]]);
    open_through(planned, pass == INPUT_PASS);
    return OK;
}

/* Buffers for one more of the longest block. */
void planned_open_more(struct planned *planned, enum dtype type, int64_t width0, int64_t width1)
{
    const int64_t longest = planned->plan->index->longest;
    planned->more[0] = planned_buffer(planned, type, longest, width0);
    planned->more[1] = planned_buffer(planned, type, longest, width1);
}

enum error_code planned_end(struct planned *planned)
{
    for (int i = 0; i < planned->buffers; i++) cp_close(&planned->g, &planned->opened[i], 1);
    free(planned->at), free(planned->opened), free(planned->on_way), free(planned->came);
    cp_end(&planned->g);
    return planned->e;
}
