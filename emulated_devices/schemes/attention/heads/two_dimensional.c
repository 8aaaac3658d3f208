/* two_dimensional.c -- an all-to-all before a ring and after it.  Forward takes qkv [n, (H+2K) A] and writes out [n, H
 * A].  In between the ring has whole places of fewer heads.  model/run/run_attention.c calls these functions through
 * the schemes ulysses, usp and loongtrain.  Errors: ERR_MEMORY without room for heads, ERR_COMM of the exchange, and
 * those of the ring inside. */
#include "emulated_devices/schemes/attention/heads/two_dimensional.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/heads/head_exchange.h"
#include "emulated_devices/schemes/attention/positions.h"
#include "emulated_devices/schemes/attention/rings/ring.h"

enum { QKV, OUT, LSE };                 /* the slots that are kept: after the exchange */
/* The groups in cp->part have these places, in which two_dimensional_open makes them. */
enum { HEADS, RING, GROUPS };

/* ---- the arrangement --------------------------------------------------------------------------------------------- */

static int ring_size(const struct context_parallel *cp) { return cp->devices / cp->split.heads; }

/* Return a member's place on its ring.  With context-first, neighbours differ in this place. */
static int ring_place(const struct context_parallel *cp, int member)
{
    return cp->split.context_first ? member % ring_size(cp) : member / cp->split.heads;
}

/* Return a member's place among those that exchange tokens for heads.  Without context-first, neighbours differ in this
 * place. */
static int head_place(const struct context_parallel *cp, int member)
{
    return cp->split.context_first ? member / ring_size(cp) : member % cp->split.heads;
}

/* A ring of one device needs no messages.  Windows of more than one and fewer than C devices make a double ring. */
static const struct attention_scheme *inner_scheme(const struct context_parallel *cp)
{
    const int C = ring_size(cp), w = cp->split.window;
    if (C == 1) return &attention_scheme_whole;
    return w > 1 && w < C ? &attention_double_ring : &attention_scheme_ring_zigzag;
}

/* A member's ring, without its heads. */
static struct context_parallel ring_of(const struct context_parallel *cp, int member)
{
    return (struct context_parallel){ .scheme = inner_scheme(cp), .tp = cp->tp,
                                      .group = cp->part ? &cp->part[RING] : NULL, .devices = ring_size(cp),
                                      .rank = ring_place(cp, member), .S = cp->S, .split = cp->split };
}

/* Both dimensions, as this device sees them. */
struct arrangement { struct head_exchange exchange; struct heads heads; struct context_parallel ring; };

/* Both dimensions are derived anew in every call; nothing is kept between calls. */
static void arrange(struct arrangement *arrangement, const struct context_parallel *cp)
{
    /* The ring's sequence part is the tokens that all members of a head group have together. */
    arrangement->ring = ring_of(cp, cp->rank);
    arrangement->exchange = (struct head_exchange){ .tp = cp->tp, .heads = cp->heads,
                                          .group = cp->part ? &cp->part[HEADS] : NULL, .devices = cp->split.heads,
                                          .rank = head_place(cp, cp->rank),
                                          .tokens = context_count(&arrangement->ring, arrangement->ring.rank) };
    arrangement->heads = head_exchange_heads(&arrangement->exchange, arrangement->exchange.rank);
    arrangement->ring.heads = &arrangement->heads;
}

const char *two_dimensional_refuses(const struct context_parallel *cp, const struct model_config *config)
{
    (void)config;
    /* A device without a query head would have nothing to attend with. */
    if (cp->heads->queries.count < cp->split.heads)
        return "at least as many query heads on each device of tp as devices that exchange tokens for heads";
    for (int m = 0; m < cp->devices; m++)
        if (context_count(cp, m) == 0) return "a token of each sequence for every device";
    return NULL;
}

void two_dimensional_cut(struct intervals *tokens, const struct context_parallel *cp, int member)
{
    /* The ring cuts the sequence into places; the members at one place cut it further. */
    const struct context_parallel ring = ring_of(cp, member);
    struct intervals place = context_tokens(&ring);
    /* The members that exchange heads have nearly equal ranges of their ring place's tokens. */
    intervals_add_part(tokens, &place, block_at(intervals_total(&place), cp->split.heads, head_place(cp, member)));
    if (intervals_lost(&place)) tokens->room = -1;
    intervals_free(&place);
}

enum error_code two_dimensional_open(struct context_parallel *cp, struct error *err)
{
    int member[GROUPS][MESH_MOST_LISTED], size[GROUPS] = { 0 };
    for (int m = 0; m < cp->devices; m++) {
        const int rank = cp->group->member[m];
        /* Members at the same ring place exchange tokens for heads; members at the same head place form a ring. */
        if (ring_place(cp, m) == ring_place(cp, cp->rank)) member[HEADS][size[HEADS]++] = rank;
        if (head_place(cp, m) == head_place(cp, cp->rank)) member[RING][size[RING]++] = rank;
    }
    enum error_code e = OK;
    /* Groups are opened in one order on all devices; an error leaves the first ones open for the caller. */
    for (int i = 0; i < GROUPS && !e; i++)
        e = group_of(&cp->part[i], cp->group->comm, member[i], size[i], TRAFFIC_ATTENTION, AXIS_BIT(CP), err);
    return e;
}

struct tensor two_dimensional_kept(const struct context_parallel *cp, int slot, int64_t rows)
{
    struct arrangement a;
    arrange(&a, cp);
    /* Slots have the rows after the exchange: B sequences, and all tokens of the ring place in each. */
    const int64_t gathered = head_exchange_sequences(&a.exchange, rows) * a.exchange.tokens;
    if (slot == LSE) return a.ring.scheme->kept(&a.ring, 0, gathered);
    return tensor_2d(NULL, cp->tp->device->dtype, gathered,
                     head_exchange_width(&a.exchange, a.exchange.rank, slot == QKV));
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* The call of the ring, with what was exchanged. */
static struct attention_call call_inside(const struct attention_call *call, struct arrangement *arrangement)
{
    return (struct attention_call){ .cp = &arrangement->ring,
                                   .shape = head_exchange_shape(&arrangement->exchange, call->shape),
                                    .qkv = call->kept[QKV], .out = call->kept[OUT], .kept = { call->kept[LSE] } };
}

enum error_code two_dimensional_forward(struct attention_call *call, struct error *err)
{
    struct arrangement a;
    arrange(&a, call->cp);
    struct attention_call inside = call_inside(call, &a);
    /* A device gets all tokens of its group for some heads; devices with the same heads run a ring; results go back. */
    enum error_code e = head_exchange_gather(&a.exchange, call->qkv, inside.qkv, true, err);
    if (!e) e = a.ring.scheme->forward(&inside, err);
    if (!e) e = head_exchange_back(&a.exchange, call->out, inside.out, false, err);
    return e;
}

enum error_code two_dimensional_backward_input(struct attention_call *call, struct error *err)
{
    struct device *d = call->cp->tp->device;
    struct arrangement a;
    arrange(&a, call->cp);
    struct attention_call inside = call_inside(call, &a);
    /* Gradients inside the exchange have the shapes of the kept out [B tokens, h A] and qkv. */
    inside.d_out = device_tensor_2d(d, BUFFERS, tensor_rows(inside.out), tensor_cols(inside.out));
    inside.d_qkv = head_exchange_sums(&a.exchange, tensor_rows(inside.qkv), tensor_cols(inside.qkv));
    inside.d_sinks = head_exchange_sinks(&a.exchange, call->d_sinks);
    enum error_code e = inside.d_out.data && inside.d_qkv.data
                            ? OK : fail(err, ERR_MEMORY, "no memory for the gradients of attention");
    /* The output's gradient goes to heads, the ring runs backward, and d_qkv comes home with copies added. */
    if (!e) e = head_exchange_gather(&a.exchange, call->d_out, inside.d_out, false, err);
    if (!e) e = a.ring.scheme->backward_input(&inside, err);
    if (!e) e = head_exchange_gradients(&a.exchange, call->d_qkv, inside.d_qkv, err);
    device_free(d, inside.d_out), device_free(d, inside.d_qkv);
    return e;
}

enum error_code two_dimensional_exchange(struct attention_call *call, struct error *err)
{
    struct arrangement a;
    arrange(&a, call->cp);
    /* Recomputation fills the kept qkv and out again from the tensors before the exchange; the ring does not run. */
    const enum error_code e = head_exchange_gather(&a.exchange, call->qkv, call->kept[QKV], true, err);
    return e ? e : head_exchange_gather(&a.exchange, call->out, call->kept[OUT], false, err);
}

void two_dimensional_cost(struct forecast *forecast, const struct context_parallel *cp, enum tensor_pass pass,
                          int64_t rows)
{
    struct arrangement a;
    /* Attention has no weights, so the pass for weights sends nothing. */
    if (pass == WEIGHT_PASS) return;
    arrange(&a, cp);
    const int64_t B = head_exchange_sequences(&a.exchange, rows);
    /* Forward takes the fused qkv there and the output back; backward takes d_out there and d_qkv back. */
    head_exchange_cost(forecast, &a.exchange, B, pass != INPUT_PASS, true);
    /* The exchange pass gathers qkv and the output, and has no ring. */
    if (a.ring.scheme->cost && pass != EXCHANGE_PASS)
        a.ring.scheme->cost(forecast, &a.ring, pass, B * a.exchange.tokens);
    if (pass == INPUT_PASS) head_exchange_gradients_cost(forecast, &a.exchange, B);
    else head_exchange_cost(forecast, &a.exchange, B, false, pass == EXCHANGE_PASS);
}
