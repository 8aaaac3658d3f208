/* pass.c -- the parts of pass.h: positions, buffers, turns of a ring and counts of pairs.  Every function here is
 * local; only the messages of cp_turn need a partner, which takes the same turn.  Files of attention/planned/,
 * attention/rings/ and schemes/attention/ call these functions.  The only error of its own is ERR_MEMORY; a failed
 * message ends the job. */
#include "emulated_devices/schemes/attention/pass.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/config.h"

/* The remainder of a negative number is negative in C, so the ring's size is added once more. */
int cp_before(const struct context_parallel *cp, int steps)
{
    return ((cp->rank - steps) % cp->devices + cp->devices) % cp->devices;
}

int64_t cp_keys_width(const struct context_parallel *cp) { return 2 * cp->heads->keys.count * cp->tp->config->A; }

/* The scheme's formula for this pass becomes the expectation of the group's traffic.  After the step that expectation
 * is compared with the counted messages and bytes. */
static void expect(struct cp_pass *cp_pass, enum tensor_pass pass)
{
    struct forecast f = { .tp = cp_pass->cp->tp };
    /* Collectives enter their own costs when they run, so only point-to-point messages are taken from here. */
    cp_pass->cp->scheme->cost(&f, cp_pass->cp, pass, tensor_rows(cp_pass->call->qkv));
    traffic_add(&cp_pass->cp->group->comm->expected.of[cp_pass->cp->group->kind].of[POINT_TO_POINT],
                &f.sum.of[POINT_TO_POINT]);
}

enum error_code cp_prepare(struct cp_pass *cp_pass, struct attention_call *call, struct error *err)
{
    struct context_parallel *cp = call->cp;
    struct device *d = cp->tp->device;
    *cp_pass = (struct cp_pass){ .call = call, .cp = cp, .device = d, .shape = call->shape, .own = d->dtype,
                           .wide = dtype_wide(d->dtype), .sums = d->sums,
                           .B = context_sequences(cp, tensor_rows(call->qkv)) };
    /* A device without sequences in this microbatch opens nothing, and its caller returns at once. */
    if (cp_pass->B == 0) return OK;
    const enum error_code e = positions_open(&cp_pass->at, cp, err);
    if (e) return e;
    /* Buffers for blocks of other members have room for the longest. */
    for (int m = 0; m < cp->devices; m++)
        if (cp_pass->B * positions_count(&cp_pass->at, m) > cp_pass->longest)
            cp_pass->longest = cp_pass->B * positions_count(&cp_pass->at, m);
    return OK;
}

enum error_code cp_begin(struct cp_pass *cp_pass, struct attention_call *call, enum tensor_pass pass, struct error *err)
{
    /* A device without sequences, or alone, sends nothing: no exchange begins. */
    const enum error_code e = cp_prepare(cp_pass, call, err);
    if (e || cp_pass->B == 0 || cp_pass->cp->devices == 1) return e;
    /* The pass's messages are entered as expected before they are sent, to compare with what is counted. */
    cp_pass->exchange = exchange_begin(cp_pass->cp->group, POINT_TO_POINT);
    expect(cp_pass, pass);
    return OK;
}

void cp_end(struct cp_pass *cp_pass) { positions_close(&cp_pass->at); }

enum error_code cp_open(struct cp_pass *cp_pass, struct tensor *tensor, int n, enum dtype type, int64_t rows,
                        int64_t cols, struct error *err)
{
    /* All entries are absent first, so that cp_close can be called after any failure. */
    for (int i = 0; i < n; i++) tensor[i] = tensor_none;
    for (int i = 0; i < n; i++) {
        const struct tensor buffer = device_tensor_in(cp_pass->device, BUFFERS, type, rows * cols);
        if (buffer.data == NULL) return fail(err, ERR_MEMORY, "no memory for attention over parts of sequences");
        tensor[i] = tensor_2d(buffer.data, type, rows, cols);
    }
    return OK;
}

void cp_close(struct cp_pass *cp_pass, struct tensor *tensor, int n)
{
    /* The loop skips absent tensors, which a failed cp_open or an n of 0 left. */
    for (int i = 0; i < n; i++)
        if (tensor_present(tensor[i])) device_free(cp_pass->device, tensor[i]);
}

struct tensor cp_rows(const struct cp_pass *cp_pass, struct tensor buffer, int member)
{
    return tensor_rows_of(buffer, 0, cp_pass->B * positions_count(&cp_pass->at, member));
}

struct tensor cp_by_heads(const struct cp_pass *cp_pass, struct tensor t)
{
    /* The memory is B H rows of n numbers: statistics lie head by head, not token by token. */
    return tensor_2d(t.data, t.dtype, cp_pass->B * cp_pass->shape.H, positions_count(&cp_pass->at, cp_pass->cp->rank));
}

void cp_copy_columns(struct cp_pass *cp_pass, struct tensor to, int64_t to_first, struct tensor from,
                     int64_t from_first, int64_t width)
{
    /* Both tensors have the same rows and format; their pitches differ by their columns. */
    const uint64_t size = dtype_size(to.dtype);
    device_copy_rows(cp_pass->device, (char *)to.data + (uint64_t)to_first * size, (uint64_t)tensor_cols(to) * size,
                     (const char *)from.data + (uint64_t)from_first * size, (uint64_t)tensor_cols(from) * size,
                     (uint64_t)width * size, tensor_rows(to));
    dev_charge(cp_pass->device, "copy keys and values", tensor_2d(NULL, to.dtype, tensor_rows(to), width), 2, 0);
}

void cp_copy_keys(struct cp_pass *cp_pass, struct tensor to, struct tensor from)
{
    /* Keys and values are the last 2 K A columns of qkv, and all columns of a block. */
    const int64_t width = cp_keys_width(cp_pass->cp);
    cp_copy_columns(cp_pass, to, tensor_cols(to) - width, from, tensor_cols(from) - width, width);
}

struct cp_turn cp_turn(struct cp_pass *cp_pass, struct tensor buffer[2], int step)
{
    const struct tensor in = cp_rows(cp_pass, buffer[(step + 1) % 2], cp_before(cp_pass->cp, step + 1)),
                        out = cp_rows(cp_pass, buffer[step % 2], cp_before(cp_pass->cp, step));
    /* The block of step + 1 comes from the left; the one of this step goes to the right. */
    const int right = (cp_pass->cp->rank + 1) % cp_pass->cp->devices;
    return (struct cp_turn){ .in = message_receive(&cp_pass->exchange, cp_before(cp_pass->cp, 1), in.data,
                                                   tensor_bytes(in)),
                             .out = message_send(&cp_pass->exchange, right, out.data, tensor_bytes(out)) };
}

void cp_arrive(struct cp_pass *cp_pass, struct message message)
{
    struct error err;
    /* The others wait for this device's messages and cannot be told: an error ends the job. */
    if (message_wait(cp_pass->cp->group->comm, message, &err) != OK) comm_give_up(cp_pass->cp->group->comm, &err);
}

struct attention cp_shape(const struct cp_pass *cp_pass, int member)
{
    struct attention a = cp_pass->shape;
    /* Each query's sink counts once, with the block of its own keys. */
    if (member != cp_pass->cp->rank) a.sinks = tensor_none;
    return a;
}

double cp_pairs(const struct cp_pass *cp_pass, int member)
{
    /* The pairs are counted over all B sequences, and the virtual clock is charged by this number. */
    return positions_pairs(&cp_pass->at, cp_pass->shape, cp_pass->B, cp_pass->cp->rank, member);
}
