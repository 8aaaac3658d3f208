/* attending.h -- one call of an attention scheme on the devices of a test, without a model: what it sends, how long it
 * takes, and what it returns.  test_allgather_kv.c, test_rsa.c and test_tokenring.c call these functions. */
#ifndef TESTS_ATTENDING_H
#define TESTS_ATTENDING_H

#include "tests/mpi_cmocka.h"
#include "emulated_devices/verify/cases/attention.h"

/* What one device did: in forward, and in backward. */
struct attended {
    struct account sent[2];
    picoseconds took[2];
    uint64_t bits[2];                   /* a sum over the output and the log-sum-exp; over the gradients */
};

static struct error err;

static uint64_t bits_of(struct device *d, struct tensor t)
{
    struct views v = views_of(d);
    const unsigned char *const at = view_read(&v, t).data;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < tensor_bytes(t); i++) sum = sum * 31 + at[i];
    views_end(&v);
    return sum;
}

/* Numbers between -1 and 1 that depend on the token, not on who has it. */
static void fill(struct device *d, struct tensor t, struct intervals tokens, int64_t B, int seed)
{
    struct views v = views_of(d);
    float *to = view_write(&v, t).data;
    for (int64_t b = 0; b < B; b++)
        for (int i = 0; i < tokens.count; i++)
            for (int64_t k = tokens.at[i].first; k < tokens.at[i].first + tokens.at[i].count; k++)
                for (int64_t c = 0; c < tensor_cols(t); c++)
                    *to++ = (float)((k * 37 + b * 23 + c * 11 + seed) % 19 - 9) / 9;
    views_end(&v);
}

static void one_pass(struct attention_layer *l, struct comm *comm, bool backward, struct attended *a)
{
    const struct account before = comm->counted.of[TRAFFIC_ATTENTION];
    clock_reset(&comm->device->clock);
    comm_barrier(comm);
    const enum error_code e = attention_layer_pass(l, backward ? INPUT_PASS : FORWARD_PASS, &err);
    ASSERT_ALL(e == OK, "%s: %s", l->plan.attention, err.text);
    a->sent[backward] = comm->counted.of[TRAFFIC_ATTENTION];
    account_add(&a->sent[backward], before, -1);
    a->took[backward] = comm->device->clock.now;
    struct device *const d = comm->device;
    a->bits[backward] = backward ? bits_of(d, l->call.d_qkv) : bits_of(d, l->call.out) ^ bits_of(d, l->call.kept[0]);
}

/* Both passes of a scheme, which keeps the log-sum-exp, in fp32 on all devices of the job. */
static struct attended attend(const char *scheme, struct attention_shape shape, const struct cluster *cluster)
{
    struct device device;
    struct comm comm;
    struct plan plan;
    struct attention_layer l;
    struct attended a = { 0 };
    enum error_code e = attention_layer_plan(&plan, shape, F32, scheme, (struct context_split){ 0 }, test_size, cluster,
                                             &err);
    if (!e) e = device_open(&device, NULL, F32, 0, &err);
    ASSERT_ALL(e == OK, "%s: %s", scheme, err.text);
    clock_open(&device.clock, cluster, F32);
    e = comm_open(&comm, &device, &err);
    if (!e) e = attention_layer_open(&l, &plan, &comm, tensor_none, &err);
    ASSERT_ALL(e == OK, "%s: %s", scheme, err.text);
    struct intervals tokens = context_tokens(&l.cp);
    fill(&device, l.call.qkv, tokens, shape.B, 1), fill(&device, l.call.d_out, tokens, shape.B, 2);
    intervals_free(&tokens);
    one_pass(&l, &comm, false, &a), one_pass(&l, &comm, true, &a);
    attention_layer_close(&l), comm_close(&comm), device_close(&device);
    return a;
}

#endif
