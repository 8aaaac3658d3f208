/* attending.h -- one call of an attention scheme on the devices of a test, without a model: what it sends, how long it
 * takes, and what it returns.
 */
#ifndef TESTS_ATTENDING_H
#define TESTS_ATTENDING_H

#include "tests/mpi_cmocka.h"
#include "emulated_devices/schemes/attention/attention.h"

/* A call's sizes; every device has the same. */
struct sizes { int64_t B, S, H, K, A; };

/* What one device did in a call. */
struct attended {
    struct account sent[2];             /* forward, backward */
    picoseconds took[2];
    uint64_t bits[2];                   /* a sum of the output and of its statistics; of the gradients */
};

static struct error err;

static uint64_t bits_of(struct tensor t)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < tensor_bytes(t); i++) sum = sum * 31 + ((const unsigned char *)t.data)[i];
    return sum;
}

/* Numbers between -1 and 1 that depend on the place in the whole tensor, not on who has it. */
static struct tensor made(int64_t rows, int64_t cols, const struct intervals *tokens, int seed)
{
    float *data = calloc((size_t)(rows * cols + 1), sizeof *data);
    for (int64_t row = 0, i = 0; i < tokens->count && seed != 0; i++)
        for (int64_t k = 0; k < tokens->at[i].count && row < rows; k++, row++)
            for (int64_t c = 0; c < cols; c++)
                data[row * cols + c] = (float)(((tokens->at[i].first + k) * 37 + c * 11 + seed) % 19 - 9) / 9;
    return tensor_2d(data, F32, rows, cols);
}

static void one_pass(struct attention_call *c, enum tensor_pass pass, struct attended *a)
{
    struct comm *comm = c->cp->group->comm;
    const struct ledger before = comm->counted;
    const struct attention_scheme *s = c->cp->scheme;
    const bool backward = pass == INPUT_PASS;
    clock_reset(&comm->device->clock);
    comm_barrier(comm);
    const enum error_code e = backward ? s->backward_input(c, &err) : s->forward(c, &err);
    ASSERT_ALL(e == OK, "%s: %s", s->head.name, err.text);
    a->sent[backward] = comm->counted.of[c->cp->group->kind];
    account_add(&a->sent[backward], before.of[c->cp->group->kind], -1);
    a->took[backward] = comm->device->clock.now;
    a->bits[backward] = backward ? bits_of(c->d_qkv) : bits_of(c->out) ^ bits_of(c->kept[0]);
}

/* Both passes of a scheme in fp32 on all devices of the job; a causal mask.  B sequences have the same numbers only if
 * B is 1. */
static struct attended attend(const char *scheme, struct sizes n, const struct cluster *cluster)
{
    struct device device;
    struct comm comm;
    struct group group;
    struct attended a = { 0 };
    struct model_config config = { .S = n.S, .D = n.H * n.A, .H = n.H, .K = n.K, .A = n.A };
    struct heads heads = { .queries = { 0, n.H }, .keys = { 0, n.K }, .copies = 1 };
    ASSERT_ALL(device_open(&device, NULL, F32, 0, &err) == OK, "%s", err.text);
    clock_open(&device.clock, cluster, F32);
    ASSERT_ALL(comm_open(&comm, &device, &err) == OK && group_world(&group, &comm, &err) == OK, "%s", err.text);
    struct tensor_parallel tp = { .config = &config, .device = &device, .S = n.S };
    struct context_parallel cp = { .tp = &tp, .heads = &heads, .group = &group, .devices = group.size,
                                   .rank = group.rank, .S = n.S };
    ASSERT_ALL(attention_scheme_find(&cp.scheme, scheme, &err) == OK, "%s", err.text);
    struct intervals tokens = context_tokens(&cp);
    const int64_t rows = n.B * intervals_total(&tokens), width = (n.H + 2 * n.K) * n.A;
    struct attention_call c = {
        .cp = &cp, .shape = { .S = n.S, .H = n.H, .K = n.K, .A = n.A, .scale = 0.5 },
        .qkv = made(rows, width, &tokens, 1), .out = made(rows, n.H * n.A, &tokens, 0),
        .d_qkv = made(rows, width, &tokens, 0), .d_out = made(rows, n.H * n.A, &tokens, 2),
        .kept = { made(rows, n.H, &tokens, 0) }
    };
    one_pass(&c, FORWARD_PASS, &a), one_pass(&c, INPUT_PASS, &a);
    struct tensor used[] = { c.qkv, c.out, c.d_qkv, c.d_out, c.kept[0] };
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) free(used[i].data);
    intervals_free(&tokens);
    group_close(&group), comm_close(&comm), device_close(&device);
    return a;
}

#endif
