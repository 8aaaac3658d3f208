#include "emulated_devices/schemes/attention/pass.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/config.h"

int cp_before(const struct context_parallel *cp, int steps)
{
    return ((cp->rank - steps) % cp->devices + cp->devices) % cp->devices;
}

int64_t cp_keys_width(const struct context_parallel *cp) { return 2 * cp->heads->keys.count * cp->tp->config->A; }

static void expect(struct cp_pass *p, enum tensor_pass pass)
{
    struct forecast f = { .tp = p->cp->tp };
    p->cp->scheme->cost(&f, p->cp, pass, tensor_rows(p->call->qkv));
    traffic_add(&p->cp->group->comm->expected.of[p->cp->group->kind].of[POINT_TO_POINT], &f.sum.of[POINT_TO_POINT]);
}

enum error_code cp_prepare(struct cp_pass *p, struct attention_call *c, struct error *err)
{
    struct context_parallel *cp = c->cp;
    struct device *d = cp->tp->device;
    *p = (struct cp_pass){ .call = c, .cp = cp, .device = d, .shape = c->shape, .own = d->dtype,
                           .wide = dtype_wide(d->dtype), .B = context_sequences(cp, tensor_rows(c->qkv)) };
    if (p->B == 0) return OK;
    const enum error_code e = positions_open(&p->at, cp, err);
    if (e) return e;
    /* Buffers for blocks of other members have room for the longest. */
    for (int m = 0; m < cp->devices; m++)
        if (p->B * positions_count(&p->at, m) > p->longest) p->longest = p->B * positions_count(&p->at, m);
    return OK;
}

enum error_code cp_begin(struct cp_pass *p, struct attention_call *c, enum tensor_pass pass, struct error *err)
{
    const enum error_code e = cp_prepare(p, c, err);
    if (e || p->B == 0 || p->cp->devices == 1) return e;
    /* The pass's messages are entered as expected before they are sent, to compare with what is counted. */
    p->exchange = exchange_begin(p->cp->group, POINT_TO_POINT);
    expect(p, pass);
    return OK;
}

void cp_end(struct cp_pass *p) { positions_close(&p->at); }

enum error_code cp_open(struct cp_pass *p, struct tensor *t, int n, enum dtype type, int64_t rows, int64_t cols,
                        struct error *err)
{
    for (int i = 0; i < n; i++) t[i] = tensor_none;
    for (int i = 0; i < n; i++) {
        const struct tensor buffer = device_tensor_in(p->device, BUFFERS, type, rows * cols);
        if (buffer.data == NULL) return fail(err, ERR_MEMORY, "no memory for attention over parts of sequences");
        t[i] = tensor_2d(buffer.data, type, rows, cols);
    }
    return OK;
}

void cp_close(struct cp_pass *p, struct tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        if (tensor_present(t[i])) device_free(p->device, t[i]);
}

struct tensor cp_rows(const struct cp_pass *p, struct tensor buffer, int member)
{
    return tensor_rows_of(buffer, 0, p->B * positions_count(&p->at, member));
}

struct tensor cp_by_heads(const struct cp_pass *p, struct tensor t)
{
    return tensor_2d(t.data, t.dtype, p->B * p->shape.H, positions_count(&p->at, p->cp->rank));
}

void cp_copy_columns(struct cp_pass *p, struct tensor to, int64_t to_first, struct tensor from, int64_t from_first,
                     int64_t width)
{
    const uint64_t size = dtype_size(to.dtype);
    device_copy_rows(p->device, (char *)to.data + (uint64_t)to_first * size, (uint64_t)tensor_cols(to) * size,
                     (const char *)from.data + (uint64_t)from_first * size, (uint64_t)tensor_cols(from) * size,
                     (uint64_t)width * size, tensor_rows(to));
    dev_charge(p->device, "copy keys and values", tensor_2d(NULL, to.dtype, tensor_rows(to), width), 2, 0);
}

void cp_copy_keys(struct cp_pass *p, struct tensor to, struct tensor from)
{
    const int64_t width = cp_keys_width(p->cp);
    cp_copy_columns(p, to, tensor_cols(to) - width, from, tensor_cols(from) - width, width);
}

struct cp_turn cp_turn(struct cp_pass *p, struct tensor buffer[2], int step)
{
    const struct tensor in = cp_rows(p, buffer[(step + 1) % 2], cp_before(p->cp, step + 1)),
                        out = cp_rows(p, buffer[step % 2], cp_before(p->cp, step));
    /* The block of step + 1 comes from the left; the one of this step goes to the right. */
    const int right = (p->cp->rank + 1) % p->cp->devices;
    return (struct cp_turn){ .in = message_receive(&p->exchange, cp_before(p->cp, 1), in.data, tensor_bytes(in)),
                             .out = message_send(&p->exchange, right, out.data, tensor_bytes(out)) };
}

void cp_arrive(struct cp_pass *p, struct message m)
{
    struct error err;
    /* The others wait for this device's messages and cannot be told: an error ends the job. */
    if (message_wait(p->cp->group->comm, m, &err) != OK) comm_give_up(p->cp->group->comm, &err);
}

struct attention cp_shape(const struct cp_pass *p, int member)
{
    struct attention a = p->shape;
    /* Each query's sink counts once, with the block of its own keys. */
    if (member != p->cp->rank) a.sinks = tensor_none;
    return a;
}

double cp_pairs(const struct cp_pass *p, int member)
{
    return positions_pairs(&p->at, p->shape, p->B, p->cp->rank, member);
}
