#include "emulated_devices/schemes/attention/planned/planned.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/planned/planned_pass.h"

static struct tensor shaped(struct tensor buffer, int64_t rows, int64_t cols)
{
    return tensor_2d(buffer.data, buffer.dtype, rows, cols);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static void take_result(struct planned *p, int block, struct tensor o, struct tensor lse)
{
    struct here *h = &p->at[block];
    /* The first result of a block is taken as it is; later ones are merged by their log-sum-exp. */
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
    const int64_t n = planned_tokens(p, w->query);
    /* The first work of a block writes the result itself, so nothing has to be cleared. */
    const struct tensor o = h->begun ? shaped(p->more[0], n, planned_width(p)) : h->o;
    const struct tensor lse = h->begun ? shaped(p->more[1], p->g.shape.H, n) : h->lse;
    dev_attention_part_forward(p->g.device, o, lse, h->queries, p->at[w->key].keys, planned_positions(p, w->query),
                               planned_positions(p, w->key),
                               attention_of_pairs(p->g.shape, context_work_pairs(p->plan, w)));
    if (h->begun) dev_attention_merge(p->g.device, h->o, h->lse, o, lse, p->g.shape);
    h->begun = true;
}

static void send_result(struct planned *p, enum context_data data, int block, int device)
{
    (void)data;
    const int home = p->plan->block[block].home;
    if (device == p->g.cp->rank) planned_send(p, home, p->at[block].o), planned_send(p, home, p->at[block].lse);
}

static void receive_result(struct planned *p, enum context_data data, int block, int device)
{
    const int64_t n = planned_tokens(p, block);
    const struct tensor o = shaped(p->more[0], n, planned_width(p)), lse = shaped(p->more[1], p->g.shape.H, n);
    (void)data;
    if (!planned_owns(p, block)) return;
    /* All guests' results arrive in the same buffer, so each is merged before the next is received. */
    struct message m[2] = { message_receive(&p->g.exchange, device, o.data, tensor_bytes(o)),
                            message_receive(&p->g.exchange, device, lse.data, tensor_bytes(lse)) };
    cp_arrive(&p->g, m[0]), cp_arrive(&p->g, m[1]);
    take_result(p, block, o, lse);
}

static void open_results(struct planned *p)
{
    const bool rounds = p->g.own != p->g.wide;
    p->out = planned_inside(p, p->g.call->out, false);
    p->o = rounds ? planned_buffer(p, p->g.wide, tensor_rows(p->out), tensor_cols(p->out)) : p->out;
    planned_open_more(p, p->g.wide, planned_width(p), p->g.shape.H);
    for (int b = 0; b < p->plan->blocks && !p->e; b++) {
        struct here *h = &p->at[b];
        if (planned_owns(p, b)) {
            h->o = planned_rows(p, p->o, b), h->lse = planned_lse(p, b);
        } else if (context_works_with(p->plan, CONTEXT_QUERIES, b, p->g.cp->rank)) {
            h->o = planned_buffer(p, p->g.wide, planned_tokens(p, b), planned_width(p));
            h->lse = planned_buffer(p, p->g.wide, p->g.shape.H, planned_tokens(p, b));
        }
    }
}

enum error_code planned_forward(struct attention_call *c, struct error *err)
{
    struct planned p;
    const enum error_code e = planned_begin(&p, c, FORWARD_PASS, err);
    if (e || p.g.B == 0) return e;
    if (!p.e) open_results(&p);
    if (!p.e) {
        planned_divisions(&p, false, attend);
        /* Guests send their results home, where those of one block are merged in one order. */
        planned_each_guest(&p, CONTEXT_QUERIES, send_result);
        planned_each_guest(&p, CONTEXT_QUERIES, receive_result);
        planned_wait(&p);
        if (p.g.own != p.g.wide) dev_round(p.g.device, p.out, p.o);
        planned_remap(&p, p.out, c->out, true);
    }
    return planned_end(&p);
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static void attend_backward(struct planned *p, const struct context_work *w)
{
    const struct here *q = &p->at[w->query], *k = &p->at[w->key];
    /* One pass adds to the gradient of these queries and of these keys. */
    dev_attention_part_backward(p->g.device, q->d_queries, k->d_keys, q->d_out, q->delta, q->lse, q->queries, k->keys,
                                planned_positions(p, w->query), planned_positions(p, w->key),
                                attention_of_pairs(p->g.shape, context_work_pairs(p->plan, w)));
}

static struct tensor *gradient(struct planned *p, enum context_data data, int block)
{
    return data == CONTEXT_KEYS ? &p->at[block].d_keys : &p->at[block].d_queries;
}

static void send_gradient(struct planned *p, enum context_data data, int block, int device)
{
    if (device == p->g.cp->rank) planned_send(p, p->plan->block[block].home, *gradient(p, data, block));
}

static void receive_gradient(struct planned *p, enum context_data data, int block, int device)
{
    const struct tensor sum = *gradient(p, data, block);
    const struct tensor share = shaped(p->more[data == CONTEXT_KEYS], tensor_rows(sum), tensor_cols(sum));
    if (!planned_owns(p, block)) return;
    cp_arrive(&p->g, message_receive(&p->g.exchange, device, share.data, tensor_bytes(share)));
    dev_add(p->g.device, sum, sum, share);
}

/* The gradient of a block that goes from a device to the block's home. */
static void carry_gradient(struct planned *p, enum context_data data, int block, int device)
{
    const int64_t width = data == CONTEXT_KEYS ? cp_keys_width(p->g.cp) : planned_width(p);
    const void *at = planned_owns(p, block) ? p->came[p->next++].data : gradient(p, data, block)->data;
    const struct tensor t = tensor_2d((void *)at, p->g.wide, planned_tokens(p, block), width);
    planned_carry(p, device, p->plan->block[block].home, t, p->stage);
}

static void add_gradient(struct planned *p, enum context_data data, int block, int device)
{
    const struct tensor sum = *gradient(p, data, block);
    (void)device;
    if (planned_owns(p, block)) dev_add(p->g.device, sum, sum, p->came[p->next++]);
}

static void open_came(struct planned *p, enum context_data data, int block, int device)
{
    const int64_t width = tensor_cols(*gradient(p, data, block));
    (void)device;
    if (planned_owns(p, block)) p->came[p->comes++] = planned_buffer(p, p->g.wide, planned_tokens(p, block), width);
}

static void for_both(struct planned *p, void (*f)(struct planned *, enum context_data, int block, int device))
{
    p->carried = 0, p->next = 0;
    for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++) planned_each_guest(p, data, f);
}

static void return_gradients(struct planned *p)
{
    /* Without proxies a gradient goes straight home, and is added as soon as it arrives. */
    if (p->plan->proxies == 0) for_both(p, send_gradient), for_both(p, receive_gradient);
    /* With proxies all gradients move stage by stage, and are added after the last stage. */
    for (p->stage = PROXY_DISPATCH; p->plan->proxies > 0 && p->stage < PROXY_STAGES; p->stage++)
        for_both(p, carry_gradient), planned_wait(p);
    if (p->plan->proxies > 0) for_both(p, add_gradient);
    planned_wait(p);
}

static struct tensor open_gradient(struct planned *p, int64_t rows, int64_t cols)
{
    const struct tensor t = planned_buffer(p, p->g.wide, rows, cols);
    if (!p->e) device_zero(p->g.device, t);
    return t;
}

static void open_gradients(struct planned *p)
{
    const struct attention_call *c = p->g.call;
    const int64_t H = p->g.shape.H, width = planned_width(p);
    const int rank = p->g.cp->rank;
    const struct tensor out = planned_inside(p, c->out, true), d_out = planned_inside(p, c->d_out, true);
    planned_open_more(p, p->g.wide, width, cp_keys_width(p->g.cp));
    for (int b = 0; b < p->plan->blocks && !p->e; b++) {
        struct here *h = &p->at[b];
        /* A device asks for a block if it attends with its queries, at home or as a guest. */
        const bool own = planned_owns(p, b), asks = own || context_works_with(p->plan, CONTEXT_QUERIES, b, rank);
        const int64_t n = planned_tokens(p, b);
        if (asks) h->delta = planned_buffer(p, p->g.wide, H, n), h->d_queries = open_gradient(p, n, width);
        if (own || context_works_with(p->plan, CONTEXT_KEYS, b, rank))
            h->d_keys = open_gradient(p, n, cp_keys_width(p->g.cp));
        /* A guest is sent d_out, log-sum-exp and delta along with the queries. */
        if (asks && !own) h->d_out = planned_buffer(p, p->g.own, n, width), h->lse = planned_buffer(p, p->g.wide, H, n);
        if (!own || p->e) continue;
        /* The home computes delta [H, n] once and sends it to all guests. */
        h->d_out = planned_rows(p, d_out, b), h->lse = planned_lse(p, b);
        dev_attention_delta(p->g.device, h->delta, h->d_out, planned_rows(p, out, b), p->g.shape);
    }
    if (p->plan->proxies > 0) for_both(p, open_came);
}

static void take_gradients(struct planned *p)
{
    const struct tensor d_qkv = planned_inside(p, p->g.call->d_qkv, false);
    const struct tensor all = p->g.own == p->g.wide ? d_qkv
        : planned_buffer(p, p->g.wide, tensor_rows(d_qkv), tensor_cols(d_qkv));
    for (int b = 0; b < p->plan->blocks && !p->e; b++)
        if (planned_owns(p, b)) {
            planned_copy_queries(p, planned_rows(p, all, b), p->at[b].d_queries);
            cp_copy_keys(&p->g, planned_rows(p, all, b), p->at[b].d_keys);
        }
    if (!p->e && p->g.own != p->g.wide) dev_round(p->g.device, d_qkv, all);
    planned_remap(p, d_qkv, p->g.call->d_qkv, true);
}

enum error_code planned_backward_input(struct attention_call *c, struct error *err)
{
    struct planned p;
    const enum error_code e = planned_begin(&p, c, INPUT_PASS, err);
    if (e || p.g.B == 0) return e;
    if (!p.e) open_gradients(&p);
    if (!p.e) {
        planned_divisions(&p, true, attend_backward);
        return_gradients(&p);
        take_gradients(&p);
    }
    return planned_end(&p);
}
