/* Data parallelism with codes in the messages: whole cases beside one device, bytes by link level, what is refused.
 * ranks: 4
 * verify ranks: 6 8
 */
#include "tests/devices/trained.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <math.h>

#define NODES_OF(n) { .name = "nodes of " #n, .levels = 2, \
    .flop_rate = { [F32] = 1000000, [F64] = 1000000, [BF16] = 1000000, [F16] = 1000000 }, \
    .link = { { .level = "node", .devices = n, .latency = 1000, .rate = 50000, .eager = ALWAYS_EAGER }, \
              { .level = "cluster", .latency = 10000, .rate = 5000, .eager = ALWAYS_EAGER } } }
static const struct cluster pairs = NODES_OF(2), fours = NODES_OF(4);

static const struct block_format int8 = { 8, 100 }, int4 = { 4, 50 }, none = { 0, 0 };

static struct plan quantised_plan(const char *scheme, int group, struct block_format weights,
                                  struct block_format gradients)
{
    struct plan p = case_plan(test_size, 1, 1);
    p.data.scheme = scheme, p.data.group = group;
    p.data.quantise_weights = weights, p.data.quantise_gradients = gradients;
    return p;
}

static void expect_case(struct plan p)
{
    struct outcome o;
    char what[96];
    snprintf(what, sizeof what, "%s, %s, int%d int%d, M=%d, %s", p.data.scheme, dtype_name(p.dtype),
             p.data.quantise_weights.bits, p.data.quantise_gradients.bits, p.micros,
             p.cluster ? p.cluster->name : "one node");
    ASSERT_ALL(plan_check(&p, &err) == OK, "%s: %s", what, err.text);
    ASSERT_ALL(case_run(&p, &o, &err) == OK, "%s: %s", what, err.text);
    ASSERT_ALL(o.verdict.code == OK, "%s: %s", what, o.verdict.text);
    const struct comparison *c = &o.comparison;
    ASSERT_ALL(test_rank != 0 || (c->quantised.tensor[0] != 0) == (p.data.quantise_gradients.bits > 0),
               "%s: what quantising does was %scompared", what, c->quantised.tensor[0] ? "" : "not ");
    /* A bound that is ten times what happens would hold for wrong numbers too. */
    ASSERT_ALL(test_rank != 0 || c->quantised.tensor[0] == 0 || (c->quantised.ratio > 0.1 && c->quantised.ratio <= 1),
               "%s: error/bound %g", what, c->quantised.ratio);
}

/* Two steps inside one level, since the group is on two nodes or more; in two levels; with copies; by rows;
 * in all formats. */
static void test_beside_one_device(void **state)
{
    (void)state;
    struct plan p = quantised_plan("zero3", 0, int8, int4);
    p.cluster = &pairs;
    expect_case(p);
    if (test_size == 6) return;
    p = quantised_plan("hpz", 2, int4, int8);
    p.cluster = &pairs, p.dtype = F32;
    expect_case(p);
    if (test_size > 4) return;
    p = quantised_plan("hsdp", test_size / 2, int8, int4);
    p.dtype = F32;
    expect_case(p);
    p = quantised_plan("zero1", 0, none, int4);
    p.cluster = &fours;
    expect_case(p);
    p = quantised_plan("zero3", 0, int8, int4);
    p.cluster = &pairs, p.dtype = BF16, p.data.narrow_gradients = true, p.micros = 1;
    expect_case(p);
    p = quantised_plan("zero2", 2, int8, int8);
    p.dtype = F16, p.loss_scale = 1024, p.model.tied = false;
    expect_case(p);
}

/* With Adam, whose steps do not know how large a gradient is, and clipping by the norm of the quantised ones. */
static void test_with_adam_and_clipping(void **state)
{
    (void)state;
    if (test_size > 6) return;
    struct plan p = case_plan(test_size / 2, 2, 1);
    p.data.scheme = "zero3", p.data.quantise_weights = int8, p.data.quantise_gradients = int4;
    p.dtype = F32, p.optimizer = optimizers[0], p.hyper = p.optimizer->usual;
    p.hyper.clip = 0.05;
    expect_case(p);
}

/* Both stages of a tied embedding have quantised it for themselves;
 * the sum of the two is held to the sum of the bounds. */
static void test_tied_over_a_pipeline(void **state)
{
    (void)state;
    if (test_size != 4) return;
    struct plan p = case_plan(2, 1, 2);
    p.data.scheme = "zero3", p.data.quantise_weights = int8, p.data.quantise_gradients = int4;
    expect_case(p);
    p.data.scheme = "zero1", p.dtype = F32;
    expect_case(p);
}

/* Copies along tp are coded in units of their own: the same bits on each device, also where tp cuts unevenly. */
static void test_with_tensor_parallelism(void **state)
{
    (void)state;
    const struct { const char *tensor, *data; int tp, group; struct block_format weights, gradients; } plans[] = {
        { "1d", "zero3", 2, 0, int8, int4 },
        { "1d-sp", "zero1", 2, 0, int4, int8 },
        { "1d", "fsdp", 3, 0, int8, int8 },
        { "1d-sp-overlap", "zero2", 3, 0, none, int4 },
        { "1d", "hpz", 2, 2, int8, int4 },
        { "2d", "zero3", 4, 0, int4, int4 },
    };
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        const int tp = plans[i].tp, dp = test_size / tp;
        if (test_size % tp != 0 || dp == 1 || (plans[i].group > 0 && (dp % 2 != 0 || dp == 2))) continue;
        struct plan p = case_plan(dp, tp, 1);
        p.tensor = plans[i].tensor, p.data.scheme = plans[i].data;
        p.data.group = plans[i].group;
        p.data.quantise_weights = plans[i].weights, p.data.quantise_gradients = plans[i].gradients;
        expect_case(p);
    }
}

/* ---- bytes by link level ----------------------------------------------------------------------------------------- */

/* Every unit is a multiple of 64, so that blocks of 8 fill the pieces of 4 and of 8 devices. */
static const struct model_config even = {
    .name = "even", .S = 64, .D = 64, .H = 4, .K = 4, .A = 16, .F = 64, .L = 2, .V = 64, .family = &family_gpt2,
    .biases = BIASES_BLOCK,
    .eps = 1e-5, .init_std = 0.2,
};
enum { PARTS = 4, SCALED = 8 };

/* All parts forward, then all backward in the same order: no part is used twice in a row, so each is gathered twice. */
static struct use *list_uses(int *n)
{
    struct use *list = calloc(3 * PARTS, sizeof *list);
    assert_non_null(list);
    *n = 0;
    for (int part = 0; part < PARTS; part++) list[(*n)++] = (struct use){ .part = part, .pass = PASS_FORWARD };
    for (int part = 0; part < PARTS; part++) {
        list[(*n)++] = (struct use){ .part = part, .pass = PASS_BACKWARD_INPUT };
        list[(*n)++] = (struct use){ .part = part, .pass = PASS_BACKWARD_WEIGHT };
    }
    return list;
}

static enum error_code step_once(struct data_parallel *dp)
{
    int n;
    struct use *list = list_uses(&n);
    enum error_code e = OK;
    data_set_uses(dp, list, n);
    for (int i = 0; i < n && !e; i++) {
        if (list[i].pass == PASS_BACKWARD_WEIGHT) {
            e = data_begin_gradient(dp, list[i].part, &err);
            if (!e) e = data_end_gradient(dp, list[i].part, &err);
            continue;
        }
        e = data_acquire(dp, list[i].part, &err);
        data_release(dp, list[i].part);
    }
    if (!e) e = data_finish_gradients(dp, &err);
    return e ? e : data_step(dp, 1, 1, &err);
}

/* Bytes of a step: what all devices send between nodes, and what this one's levels of sharding say. */
struct volume { uint64_t between, own_between, by_gradients; int64_t elements; };

static struct volume volume_of(struct data_request q)
{
    struct device device;
    struct comm comm;
    struct group world;
    static struct parameter all[64];
    struct parameters parameters = { .count = model_param_count(&even), .all = all };
    struct hyperparameters hyper;
    const struct cluster *nodes = test_size == 8 ? &fours : &pairs;
    struct volume v = { 0 };
    assert_int_equal(device_open(&device, NULL, BF16, 0, &err), OK);
    clock_open(&device.clock, nodes, BF16);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    assert_int_equal(group_world(&world, &comm, &err), OK);
    for (int i = 0; i < parameters.count; i++) {
        all[i] = (struct parameter){ .spec = model_param(&even, i), .index = i, .holders = 1 };
        all[i].layout = layout_whole(all[i].spec.ndim, all[i].spec.dim);
        all[i].counted = layout_count(&all[i].layout);
    }
    q.narrow_gradients = true;
    struct data_parallel dp = { .request = q,
                                .config = &even,
                                .device = &device,
                                .group = &world,
                                .parameters = &parameters,
                                .hyper = &hyper,
                                .versions = 1 };
    assert_int_equal(data_scheme_find(&dp.scheme, q.scheme, &err), OK);
    assert_int_equal(optimizer_find(&dp.optimizer, "sgd", NULL), OK);
    hyper = dp.optimizer->usual;
    ASSERT_ALL(data_open(&dp, 7, &err) == OK && step_once(&dp) == OK, "%s: %s", q.scheme, err.text);
    v.own_between = ledger_level(&comm.counted, 1).bytes;
    const struct account by_gradients = data_level_cost(&dp, BY_GRADIENTS);
    v.by_gradients = account_total(&by_gradients).bytes_sent;
    for (int u = 0; u < dp.units; u++) v.elements += dp.unit[u].padded;
    double sum = (double)v.own_between;
    assert_int_equal(allreduce(&world, &sum, 1, F64, SUM, NULL, &err), OK);
    v.between = (uint64_t)sum;
    data_close(&dp);
    group_close(&world);
    comm_close(&comm);
    device_close(&device);
    return v;
}

/* The ZeRO++ paper's volumes between two nodes, M = 2 bytes of each weight: ZeRO-3 sends M for each of forward,
 * backward and gradients; int8 weights, weights of one copy a node, and int4 gradients 0.5 M + 0 + 0.25 M.  Scales come
 * on top: 4 bytes a block. */
static void test_a_quarter_between_nodes(void **state)
{
    (void)state;
    if (test_size == 6) return;                                 /* the nodes have as many devices each */
    const struct block_format eight = { 8, SCALED }, four = { 4, SCALED };
    const struct volume zero3 =
        volume_of((struct data_request){ .scheme = "zero3", .allgather = "two_level", .reduce_scatter = "two_level" });
    const uint64_t M = 2 * (uint64_t)zero3.elements;
    ASSERT_ALL(zero3.between == 3 * M, "zero3: %llu bytes between nodes, want 3 M = %llu",
               (unsigned long long)zero3.between, (unsigned long long)(3 * M));

    const struct volume pp = volume_of((struct data_request){
        .scheme = "hpz", .group = test_size / 2, .quantise_weights = eight, .quantise_gradients = four });
    const uint64_t scales = 4 * 2 * (uint64_t)pp.elements / SCALED;
    ASSERT_ALL(4 * (pp.between - scales) == 3 * M,
               "hpz with int8 and int4: %llu bytes between nodes, of them %llu for scales; want 0.75 M = %llu besides",
               (unsigned long long)pp.between, (unsigned long long)scales, (unsigned long long)(3 * M / 4));
    ASSERT_ALL(pp.by_gradients == pp.own_between,
               "hpz: its level between nodes costs %llu bytes by formula, %llu by links",
               (unsigned long long)pp.by_gradients, (unsigned long long)pp.own_between);

    /* zero3 alone, where codes cross in the second of two steps: gradients 0.25 M, weights 2 times 0.5 M. */
    const struct volume plain = volume_of((struct data_request){
        .scheme = "zero3", .allgather = "two_level", .quantise_weights = eight, .quantise_gradients = four });
    const uint64_t more = 4 * 3 * (uint64_t)plain.elements / SCALED;
    ASSERT_ALL(
        4 * (plain.between - more) == 5 * M,
        "zero3 with int8 and int4: %llu bytes between nodes, of them %llu for scales; want 1.25 M = %llu besides",
        (unsigned long long)plain.between, (unsigned long long)more, (unsigned long long)(5 * M / 4));
}

/* ---- what is refused, and what starts again ---------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    expect_refused(quantised_plan("ddp", 0, int8, none), "--quantize-weights int8: --data-parallel ddp");
    expect_refused(quantised_plan("ddp", 0, none, int4), "reduce-scatters no gradients");
    expect_refused(quantised_plan("zero3", 0, (struct block_format){ 5, 10 }, none), "int8 or int4");
    expect_refused(quantised_plan("zero3", 0, (struct block_format){ 8, 0 }, none), "at least 1");
    struct plan p = quantised_plan("zero3", 0, int8, int4), tp = case_plan(2, test_size / 2, 1),
                stream = case_plan(test_size / 2, 1, 2);
    p.data.reduce_scatter = "direct";
    expect_refused(p, "all-to-alls");
    tp.data = (struct data_request){ .scheme = "zero1", .bucket = 1, .quantise_gradients = int8 };
    int64_t batch;
    assert_int_equal(model_config_preset(&tp.model, &batch, "llama-small", &err), OK);
    tp.model.K = 1;
    expect_refused(tp, "a smaller --tp");
    stream.schedule = "pipedream-2bw", stream.micros = 2, stream.hyper.clip = 0;
    stream.data = (struct data_request){ .scheme = "zero1", .bucket = 1, .quantise_weights = int8 };
    expect_refused(stream, "two versions");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_beside_one_device),
        MPI_TEST(test_with_adam_and_clipping),
        MPI_TEST(test_tied_over_a_pipeline),
        MPI_TEST(test_with_tensor_parallelism),
        MPI_TEST(test_a_quarter_between_nodes),
        MPI_TEST(test_refusals),
    };
    return MPI_RUN("quantised data", tests);
}
