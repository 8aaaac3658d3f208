/* tops.c -- sends keys [n, K A] around the ring of all members, so that each device can raise its queries' tops.
 * blocks.c and planned/planned.c call these functions, which are collective over the cp group.  ERR_MEMORY is the only
 * error; a failed message ends the job. */
#include "emulated_devices/schemes/attention/tops.h"
#include "emulated_devices/schemes/attention/planned/context_index.h"

static int64_t keys_width(const struct context_parallel *cp) { return cp_keys_width(cp) / 2; }

/* Return the tokens of attention that a member has in each sequence; by a plan rows may lie elsewhere outside. */
static int64_t tokens_of(const struct context_parallel *cp, int member)
{
    const struct context_index *const index = cp->plan ? cp->plan->index : NULL;
    return index ? index->start[member + 1] - index->start[member] : context_count(cp, member);
}

void tops_cost(struct forecast *forecast, const struct context_parallel *cp, enum tensor_pass pass, int64_t B)
{
    const struct device *const d = cp->tp->device;
    const int right = (cp->rank + 1) % cp->devices;
    if (!d->exact || pass != FORWARD_PASS || B == 0) return;
    for (int step = 0; step < cp->devices - 1; step++) {
        /* By a plan a member may have no token: its block is not sent. */
        const int64_t n = B * tokens_of(cp, cp_before(cp, step));
        if (n > 0) forecast_message(forecast, cp->group, right, (uint64_t)(n * keys_width(cp)) * dtype_size(d->dtype));
    }
}

/* Send the block of a step to the right, and receive the next one from the left; blocks without tokens stay. */
static void tops_turn(struct cp_pass *cp_pass, struct tensor out, struct tensor in)
{
    const int right = (cp_pass->cp->rank + 1) % cp_pass->cp->devices, left = cp_before(cp_pass->cp, 1);
    const bool receives = tensor_count(in) > 0, sends = tensor_count(out) > 0;
    struct message come = { -1 }, gone = { -1 };
    if (receives) come = message_receive(&cp_pass->exchange, left, in.data, tensor_bytes(in));
    if (sends) gone = message_send(&cp_pass->exchange, right, out.data, tensor_bytes(out));
    if (receives) cp_arrive(cp_pass, come);
    if (sends) cp_arrive(cp_pass, gone);
}

enum error_code tops_travel(struct cp_pass *cp_pass, struct tensor qkv, tops_visit *visit, void *context,
                            struct error *err)
{
    const struct context_parallel *const cp = cp_pass->cp;
    const int P = cp->devices;
    const int64_t width = keys_width(cp), first = tensor_cols(qkv) - 2 * width;
    struct tensor block[2];
    const enum error_code e = cp_open(cp_pass, block, P > 1 ? 2 : 0, cp_pass->own, cp_pass->longest, width, err);
    visit(cp_pass, context, qkv, first, cp->rank);
    if (!e && P > 1) cp_copy_columns(cp_pass, cp_rows(cp_pass, block[0], cp->rank), 0, qkv, first, width);
    /* Step s brings the keys of the member s + 1 before this device. */
    for (int step = 0; step < P - 1 && !e; step++) {
        const int next = cp_before(cp, step + 1);
        const struct tensor in = cp_rows(cp_pass, block[(step + 1) % 2], next);
        tops_turn(cp_pass, cp_rows(cp_pass, block[step % 2], cp_before(cp, step)), in);
        visit(cp_pass, context, in, 0, next);
    }
    cp_close(cp_pass, block, P > 1 ? 2 : 0);
    return e;
}
