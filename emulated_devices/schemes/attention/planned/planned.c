/* planned.c -- runs the two passes of attention that follows a plan.  Forward writes out [n, H A] and the
 * log-sum-exp; backward writes d_qkv [n, (H+2K) A].  The schemes hdp, dcp and zeppelin call it; the first failure is
 * in planned->e. */
#include "emulated_devices/schemes/attention/planned/planned.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/planned/planned_pass.h"
#include "emulated_devices/schemes/attention/tops.h"
#include <stdlib.h>

/* View the first rows x cols numbers of a buffer as a matrix of that shape. */
static struct tensor shaped(struct tensor buffer, int64_t rows, int64_t cols)
{
    return tensor_2d(buffer.data, buffer.dtype, rows, cols);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* Merge a result that a guest has sent into the block's result at home; with exact sums `lse` are their totals. */
static void take_result(struct planned *planned, int block, struct tensor o, struct tensor lse)
{
    struct here *h = planned_at(planned, block);
    if (planned->g.device->exact) {
        dev_add(planned->g.device, h->o, h->o, o), dev_add(planned->g.device, h->total, h->total, lse);
        return;
    }
    /* The first result of a block is taken as it is; later ones are merged by their log-sum-exp. */
    if (h->begun) {
        dev_attention_merge(planned->g.device, h->o, h->lse, o, lse, planned->g.shape);
    } else {
        device_copy(planned->g.device, h->o.data, o.data, tensor_bytes(o));
        device_copy(planned->g.device, h->lse.data, lse.data, tensor_bytes(lse));
    }
    h->begun = true;
}

/* Do one work of this device: attention of block `query` [n, H A] with the keys of block `key`. */
static void planned_attend(struct planned *planned, const struct context_work *work)
{
    struct here *h = planned_at(planned, work->query);
    const int64_t n = planned_tokens(planned, work->query);
    if (planned->g.device->exact) {
        dev_attention_part_sums(planned->g.device, h->o, h->total, h->top, h->queries,
                                planned_at(planned, work->key)->keys,
                                planned_positions(planned, work->query), planned_positions(planned, work->key),
                                attention_of_pairs(planned->g.shape, context_work_pairs(planned->plan, work)));
        return;
    }
    /* The first work of a block writes the result itself, so nothing has to be cleared. */
    const struct tensor o = h->begun ? shaped(planned->more[0], n, planned_width(planned)) : h->o;
    const struct tensor lse = h->begun ? shaped(planned->more[1], planned->g.shape.H, n) : h->lse;
    /* The result is (o, lse) of this work alone; the merge weighs it against that of earlier works. */
    dev_attention_part_forward(planned->g.device, o, lse, h->queries, planned_at(planned, work->key)->keys,
                               planned_positions(planned, work->query), planned_positions(planned, work->key),
                               attention_of_pairs(planned->g.shape, context_work_pairs(planned->plan, work)));
    if (h->begun) dev_attention_merge(planned->g.device, h->o, h->lse, o, lse, planned->g.shape);
    h->begun = true;
}

/* In the guest's turn of planned_each_guest, send o and lse of the block home. */
static void send_result(struct planned *planned, enum context_data data, int block, int device)
{
    (void)data;
    const int home = planned->plan->block[block].home;
    const struct here *const h = planned_at(planned, block);
    if (device == planned->g.cp->rank)
        planned_send(planned, home, h->o), planned_send(planned, home, planned->g.device->exact ? h->total : h->lse);
}

/* In the home's turn, receive one guest's o and lse, and merge them at once. */
static void receive_result(struct planned *planned, enum context_data data, int block, int device)
{
    const int64_t n = planned_tokens(planned, block);
    const struct tensor o = shaped(planned->more[0], n, planned_width(planned)),
        lse = shaped(planned->more[1], planned->g.shape.H, n);
    (void)data;
    if (!planned_owns(planned, block)) return;
    /* All guests' results arrive in the same buffer, so each is merged before the next is received. */
    struct message m[2] = { message_receive(&planned->g.exchange, device, o.data, tensor_bytes(o)),
                            message_receive(&planned->g.exchange, device, lse.data, tensor_bytes(lse)) };
    cp_arrive(&planned->g, m[0]), cp_arrive(&planned->g, m[1]);
    take_result(planned, block, o, lse);
}

/* With exact sums a block also has tops and totals; sums begin with zeros. */
static void open_exact(struct planned *planned, int block)
{
    struct here *const h = planned_at(planned, block);
    h->top = planned_buffer(planned, planned->g.wide, planned->g.shape.H, planned_tokens(planned, block));
    h->total = planned_buffer(planned, planned->g.sums, planned->g.shape.H, planned_tokens(planned, block));
    if (planned->e) return;
    device_zero(planned->g.device, h->o), device_zero(planned->g.device, h->total);
}

/* Give every block with queries here a result: at home a part of the output, as a guest a buffer. */
static void open_results(struct planned *planned)
{
    /* In 16 bits the results of all own blocks are wide until the end of the pass. */
    const bool rounds = planned->g.own != planned->g.sums;
    planned->out = planned_inside(planned, planned->g.call->out, false);
    planned->o = rounds ? planned_buffer(planned, planned->g.sums, tensor_rows(planned->out), tensor_cols(planned->out))
        : planned->out;
    planned_open_more(planned, planned->g.sums, planned_width(planned), planned->g.shape.H);
    for (int i = 0; i < planned_blocks(planned) && !planned->e; i++) {
        const int b = planned_block(planned, i);
        struct here *h = &planned->at[i];
        if (planned_owns(planned, b)) {
            h->o = planned_rows(planned, planned->o, b), h->lse = planned_lse(planned, b);
        } else if (context_works_with(planned->plan, CONTEXT_QUERIES, b, planned->g.cp->rank)) {
            h->o = planned_buffer(planned, planned->g.sums, planned_tokens(planned, b), planned_width(planned));
            h->lse = planned_buffer(planned, planned->g.wide, planned->g.shape.H, planned_tokens(planned, b));
        }
        if (planned->g.device->exact && tensor_present(h->o)) open_exact(planned, b);
    }
}

/* The pairs of each own block's queries with the keys of each member: [own blocks, devices]. */
struct raising { struct planned *p; double *pairs; int first, count; };

static enum error_code count_pairs(struct raising *raising, struct error *err)
{
    const struct context_plan *const plan = raising->p->plan;
    const struct interval own = planned_own(raising->p);
    raising->first = (int)own.first, raising->count = (int)own.count;
    raising->pairs = calloc((size_t)raising->count * (size_t)plan->devices + 1, sizeof *raising->pairs);
    if (raising->pairs == NULL) return fail(err, ERR_MEMORY, "no memory for pairs of %d blocks", raising->count);
    for (int w = 0; w < plan->works; w++) {
        const struct context_work *const work = &plan->work[w];
        if (planned_owns(raising->p, work->query))
            raising->pairs[(work->query - raising->first) * plan->devices + plan->block[work->key].home] +=
                context_work_pairs(plan, work);
    }
    return OK;
}

/* Raise the tops of all own blocks to those of a member's keys, which are columns from `first` on. */
static void raise_tops(struct cp_pass *cp_pass, void *context, struct tensor keys, int64_t first, int owner)
{
    const struct raising *const r = context;
    const bool own = owner == cp_pass->cp->rank;
    for (int b = r->first; b < r->first + r->count; b++) {
        const double pairs = r->pairs[(b - r->first) * r->p->plan->devices + owner];
        if (!own && pairs == 0) continue;
        dev_attention_part_top(cp_pass->device, planned_at(r->p, b)->top, planned_at(r->p, b)->queries, keys, first,
                               planned_positions(r->p, b), positions_of(&cp_pass->at, owner),
                               attention_of_pairs(cp_shape(cp_pass, owner), pairs), !own);
    }
}

/* With exact sums: find the tops of the own blocks.  Collective. */
static void find_tops(struct planned *planned)
{
    struct raising r = { .p = planned };
    planned->e = count_pairs(&r, planned->err);
    if (!planned->e) planned->e = tops_travel(&planned->g, planned->qkv, raise_tops, &r, planned->err);
    free(r.pairs);
}

/* With exact sums the finished sums of the own blocks are rounded, block by block. */
static void finish_exact(struct planned *planned)
{
    const struct interval own = planned_own(planned);
    for (int b = (int)own.first; b < interval_end(own); b++) {
        const struct here *const h = planned_at(planned, b);
        dev_attention_part_finish(planned->g.device, planned_rows(planned, planned->out, b), planned_lse(planned, b),
                                  h->o, h->total, h->top, planned->g.shape);
    }
}

enum error_code planned_forward(struct attention_call *call, struct error *err)
{
    struct planned p;
    /* An error of cp_begin leaves nothing to end; a later failure is in p.e, and planned_end frees. */
    const enum error_code e = planned_begin(&p, call, FORWARD_PASS, err);
    if (e || p.g.B == 0) return e;
    if (!p.e) open_results(&p);
    if (!p.e && p.g.device->exact) find_tops(&p);
    if (!p.e) {
        planned_divisions(&p, false, planned_attend);
        /* Guests send their results home, where those of one block are merged in one order. */
        planned_each_guest(&p, CONTEXT_QUERIES, send_result);
        planned_each_guest(&p, CONTEXT_QUERIES, receive_result);
        planned_wait(&p);
        if (p.g.device->exact) finish_exact(&p);
        else if (p.g.own != p.g.wide) dev_round(p.g.device, p.out, p.o);
        /* Last, rows go back to where other layers have them. */
        planned_remap(&p, p.out, call->out, true);
    }
    return planned_end(&p);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

/* Do one work of this device, backward: shares of dQ [n, H A] of the queries, of dK and dV [n, 2 K A] of the keys. */
static void attend_backward(struct planned *planned, const struct context_work *work)
{
    const struct here *q = planned_at(planned, work->query), *k = planned_at(planned, work->key);
    /* This operation adds to the gradient of these queries and of these keys. */
    dev_attention_part_backward(planned->g.device, q->d_queries, k->d_keys, q->d_out, q->delta, q->lse,
                                q->queries, k->keys,
                                planned_positions(planned, work->query), planned_positions(planned, work->key),
                                attention_of_pairs(planned->g.shape, context_work_pairs(planned->plan, work)));
}

/* Return the gradient of a block's queries or keys: the share of a guest, the sum at home. */
static struct tensor *gradient(struct planned *planned, enum context_data data, int block)
{
    return data == CONTEXT_KEYS ? &planned_at(planned, block)->d_keys : &planned_at(planned, block)->d_queries;
}

/* In the guest's turn, send the guest's share home. */
static void send_gradient(struct planned *planned, enum context_data data, int block, int device)
{
    if (device == planned->g.cp->rank)
        planned_send(planned, planned->plan->block[block].home, *gradient(planned, data, block));
}

/* In the home's turn, receive one share and add the share, in the order of devices. */
static void receive_gradient(struct planned *planned, enum context_data data, int block, int device)
{
    const struct tensor sum = *gradient(planned, data, block);
    const struct tensor share = shaped(planned->more[data == CONTEXT_KEYS], tensor_rows(sum), tensor_cols(sum));
    if (!planned_owns(planned, block)) return;
    cp_arrive(&planned->g, message_receive(&planned->g.exchange, device, share.data, tensor_bytes(share)));
    dev_add(planned->g.device, sum, sum, share);
}

/* With proxies: send a guest's share one stage further on its way to the block's home.  At home the share arrives in
 * `came`. */
static void carry_gradient(struct planned *planned, enum context_data data, int block, int device)
{
    const int64_t width = data == CONTEXT_KEYS ? cp_keys_width(planned->g.cp) : planned_width(planned);
    const void *at = planned_owns(planned, block) ? planned->came[planned->next++].data
        : gradient(planned, data, block)->data;
    const struct tensor t = tensor_2d((void *)at, planned->g.sums, planned_tokens(planned, block), width);
    planned_carry(planned, device, planned->plan->block[block].home, t, planned->stage);
}

/* With proxies: the home adds a share that has arrived, in the same order as without. */
static void add_gradient(struct planned *planned, enum context_data data, int block, int device)
{
    const struct tensor sum = *gradient(planned, data, block);
    (void)device;
    if (planned_owns(planned, block)) dev_add(planned->g.device, sum, sum, planned->came[planned->next++]);
}

/* With proxies, open room at home for each share, since all are on their way at once. */
static void open_came(struct planned *planned, enum context_data data, int block, int device)
{
    const int64_t width = tensor_cols(*gradient(planned, data, block));
    (void)device;
    if (planned_owns(planned, block)) planned->came[planned->comes++] =
        planned_buffer(planned, planned->g.sums, planned_tokens(planned, block), width);
}

/* Run one turn for all guests' queries, then for their keys; every device takes the same order. */
static void for_both(struct planned *planned, void (*f)(struct planned *, enum context_data, int block, int device))
{
    planned->carried = 0, planned->next = 0;
    for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++) planned_each_guest(planned, data, f);
}

/* All shares of guests go home and are added there.  Collective over the cp group. */
static void return_gradients(struct planned *planned)
{
    /* Without proxies a gradient goes straight home, and is added as soon as it arrives. */
    if (planned->plan->proxies == 0) for_both(planned, send_gradient), for_both(planned, receive_gradient);
    /* With proxies all gradients move stage by stage, and are added after the last stage. */
    for (planned->stage = PROXY_DISPATCH; planned->plan->proxies > 0 && planned->stage < PROXY_STAGES; planned->stage++)
        for_both(planned, carry_gradient), planned_wait(planned);
    if (planned->plan->proxies > 0) for_both(planned, add_gradient);
    planned_wait(planned);
}

/* Open a buffer of zeros, to which works add. */
static struct tensor open_gradient(struct planned *planned, int64_t rows, int64_t cols)
{
    const struct tensor t = planned_buffer(planned, planned->g.sums, rows, cols);
    if (!planned->e) device_zero(planned->g.device, t);
    return t;
}

/* Open what backward needs of every block: as home, as guest of its queries, as guest of its keys. */
static void planned_open_gradients(struct planned *planned)
{
    const struct attention_call *c = planned->g.call;
    const int64_t H = planned->g.shape.H, width = planned_width(planned);
    const int rank = planned->g.cp->rank;
    /* The output and its gradient come into attention's rows, by messages if rows are remapped. */
    const struct tensor out = planned_inside(planned, c->out, true), d_out = planned_inside(planned, c->d_out, true);
    planned_open_more(planned, planned->g.sums, width, cp_keys_width(planned->g.cp));
    for (int i = 0; i < planned_blocks(planned) && !planned->e; i++) {
        const int b = planned_block(planned, i);
        struct here *h = &planned->at[i];
        /* A device asks for a block if it attends with its queries, at home or as a guest. */
        const bool own = planned_owns(planned, b), asks = own
            || context_works_with(planned->plan, CONTEXT_QUERIES, b, rank);
        const int64_t n = planned_tokens(planned, b);
        if (asks) h->delta = planned_buffer(planned, planned->g.wide, H, n),
            h->d_queries = open_gradient(planned, n, width);
        if (own || context_works_with(planned->plan, CONTEXT_KEYS, b, rank))
            h->d_keys = open_gradient(planned, n, cp_keys_width(planned->g.cp));
        /* A guest is sent d_out, log-sum-exp and delta along with the queries. */
        if (asks && !own) h->d_out = planned_buffer(planned, planned->g.own, n, width),
            h->lse = planned_buffer(planned, planned->g.wide, H, n);
        if (!own || planned->e) continue;
        /* The home computes delta [H, n] once and sends it to all guests. */
        h->d_out = planned_rows(planned, d_out, b), h->lse = planned_lse(planned, b);
        dev_attention_delta(planned->g.device, h->delta, h->d_out, planned_rows(planned, out, b), planned->g.shape);
    }
    /* This call comes last: it needs the gradients' columns. */
    if (planned->plan->proxies > 0) for_both(planned, open_came);
}

/* Put the sums at home into d_qkv: queries in the first columns, keys and values in the last ones. */
static void take_gradients(struct planned *planned)
{
    const struct tensor d_qkv = planned_inside(planned, planned->g.call->d_qkv, false);
    const bool rounds = d_qkv.dtype != planned->g.sums;
    const struct tensor all = !rounds ? d_qkv
        : planned_buffer(planned, planned->g.sums, tensor_rows(d_qkv), tensor_cols(d_qkv));
    const struct interval own = planned_own(planned);
    for (int b = (int)own.first; b < interval_end(own) && !planned->e; b++) {
        planned_copy_queries(planned, planned_rows(planned, all, b), planned_at(planned, b)->d_queries);
        cp_copy_keys(&planned->g, planned_rows(planned, all, b), planned_at(planned, b)->d_keys);
    }
    if (!planned->e && rounds) dev_round(planned->g.device, d_qkv, all);
    planned_remap(planned, d_qkv, planned->g.call->d_qkv, true);
}

enum error_code planned_backward_input(struct attention_call *call, struct error *err)
{
    struct planned p;
    const enum error_code e = planned_begin(&p, call, INPUT_PASS, err);
    if (e || p.g.B == 0) return e;
    if (!p.e) planned_open_gradients(&p);
    if (!p.e) {
        planned_divisions(&p, true, attend_backward);
        return_gradients(&p);
        take_gradients(&p);
    }
    return planned_end(&p);
}
