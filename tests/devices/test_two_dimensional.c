/* Attention in two dimensions: every split of the devices along cp trains as one device does, equals ulysses and
 * ring-zigzag at its ends, and sends between nodes what the formulas say.
 * ranks: 1 4
 * verify ranks: 6 8
 */
#include "tests/devices/trained.h"
#include "emulated_devices/model/trainer.h"

static struct plan plan_of(const char *attention, int cp, struct context_split split)
{
    struct plan p = case_plan(1, 1, 1);
    case_take_context(&p, cp, attention);
    p.split = split;
    if (cp > p.S) p.S = p.model.S;
    return p;
}

/* ---- numbers, messages, memory ----------------------------------------------------------------------------------- */

/* h x C, and windows. */
static const struct context_split splits[] = {
    { 4, 0, false }, { 1, 0, false }, { 2, 0, false }, { 2, 0, true }, { 1, 2, false }, { 3, 0, true }, { 2, 3, false },
    { 1, 3, false }, { 2, 2, false }, { 2, 2, true }, { 1, 4, false }, { 4, 1, true }, { 8, 0, false },
};
enum { SPLITS = sizeof splits / sizeof *splits };

static void check_each(void (*take)(struct plan *))
{
    int tried = 0;
    for (int i = 0; i < SPLITS; i++) {
        struct plan p = plan_of("loongtrain", test_size, splits[i]);
        take(&p);
        if (test_size % splits[i].heads != 0 || plan_check(&p, &err) != OK) continue;
        check(&p);
        tried++;
    }
    ASSERT_ALL(test_size == 1 || tried >= 4, "only %d splits of %d devices", tried, test_size);
}

static void usual(struct plan *p) { (void)p; }
static void test_every_split(void **state) { (void)state; check_each(usual); }

/* Three key/value heads: with more devices they have copies. */
static void take_llama(struct plan *p) { case_take_llama(p), case_take_dropout(p), p->recompute = "selective"; }
static void test_grouped_queries_with_dropout(void **state) { (void)state; check_each(take_llama); }

/* The default: as many heads as there are for the devices of tp. */
static void test_with_tp(void **state)
{
    (void)state;
    if (test_size % 2 != 0) return;
    struct plan p = case_plan(1, test_size / 2, 1);
    case_take_context(&p, 2, "usp");
    check(&p);
    p = case_plan(1, 2, 1), case_take_context(&p, test_size / 2, "loongtrain");
    p.split = (struct context_split){ .heads = test_size == 6 ? 3 : 2, .context_first = true };
    case_take_llama(&p);
    check(&p);
}

/* ---- the ends ---------------------------------------------------------------------------------------------------- */

static uint64_t bits_of(const char *attention, struct context_split split, enum dtype format)
{
    struct plan p = plan_of(attention, test_size, split);
    uint64_t hash = 0;
    case_take_llama(&p), case_take_dropout(&p);
    p.dtype = format;
    ASSERT_ALL(plan_check(&p, &err) == OK && case_train(&p, 2, &hash, NULL, &err) == OK, "%s: %s", attention, err.text);
    return hash;
}

static void test_the_ends_have_the_bits_of_one_dimension(void **state)
{
    static const enum dtype formats[] = { F32, BF16 };
    static const char *const schemes[] = { "usp", "loongtrain" };
    const struct context_split all = { .heads = test_size }, none = { .heads = 1 };
    (void)state;
    for (int f = 0; f < 2 && test_size == 4; f++) {
        const uint64_t ulysses = bits_of("ulysses", (struct context_split){ 0 }, formats[f]),
                       ring = bits_of("ring-zigzag", (struct context_split){ 0 }, formats[f]);
        ASSERT_ALL(test_rank > 0 || ulysses != ring, "ulysses and ring-zigzag end with the same bits");
        for (int s = 0; s < 2; s++) {
            const uint64_t of_all = bits_of(schemes[s], all, formats[f]),
                           of_none = bits_of(schemes[s], none, formats[f]);
            ASSERT_ALL(of_all == ulysses, "%s of 4 x 1: not the bits of ulysses", schemes[s]);
            ASSERT_ALL(of_none == ring, "%s of 1 x 4: not the bits of ring-zigzag", schemes[s]);
        }
    }
}

/* ---- messages between nodes -------------------------------------------------------------------------------------- */

enum { FORWARDS, BACKWARDS, PASSES };

/* Predicted, on nodes of `node` devices: messages of one layer and microbatch that a device sends inside its node and
 * to others, except the exchange's. */
static void count_messages(const struct plan *plan, int rank, int node, uint64_t inside[PASSES],
                           uint64_t between[PASSES])
{
    struct cluster cluster;
    struct device device;
    struct comm nobody;
    struct trainer t;
    assert_int_equal(cluster_find(&cluster, CLUSTER_USUAL, &err), OK);
    cluster.levels = 2, cluster.link[0].devices = node, cluster.link[1].devices = 0;
    assert_int_equal(device_open(&device, NULL, plan->dtype, 0, &err), OK);
    clock_open(&device.clock, &cluster, plan->dtype);
    assert_int_equal(comm_outline(&nobody, &device, rank, plan->mesh.devices, &err), OK);
    assert_int_equal(trainer_outline(&t, plan, &nobody, &err), OK);
    const struct context_parallel *cp = &t.seams.cp;
    const uint64_t block = (uint64_t)(2 * plan->model.K * plan->model.A * plan->S / plan->mesh.size[CP]) * 8;
    for (int pass = 0; pass < PASSES; pass++) {
        struct forecast f = { .tp = cp->tp };
        cp->scheme->cost(&f, cp, pass == FORWARDS ? FORWARD_PASS : INPUT_PASS, cp->tp->S);
        const struct traffic *sent = &f.sum.of[POINT_TO_POINT];
        inside[pass] = sent->level[0].messages, between[pass] = sent->level[1].messages;
        assert_int_equal(sent->level[1].bytes, between[pass] * block);
    }
    trainer_close(&t), comm_outline_close(&nobody), device_close(&device);
}

/* C devices on one ring, on nodes of w: all together send these between nodes, and the one that sends most. */
static void expect_between(const char *attention, int C, int w, struct context_split split, const uint64_t all[PASSES],
                           const uint64_t most[PASSES], const uint64_t each[PASSES])
{
    struct plan p = plan_of(attention, C, split);
    p.S = p.model.S = 4 * C;                            /* blocks of equal size, in fp64 */
    uint64_t sum[PASSES] = { 0 }, worst[PASSES] = { 0 };
    assert_int_equal(plan_check(&p, &err), OK);
    for (int rank = 0; rank < C; rank++) {
        uint64_t inside[PASSES], between[PASSES];
        count_messages(&p, rank, w, inside, between);
        for (int pass = 0; pass < PASSES; pass++) {
            sum[pass] += between[pass];
            if (between[pass] > worst[pass]) worst[pass] = between[pass];
            assert_int_equal(inside[pass] + between[pass], each[pass]);
        }
    }
    for (int pass = 0; pass < PASSES; pass++)
        assert_int_equal(sum[pass], all[pass]), assert_int_equal(worst[pass], most[pass]);
}

#define PAIR(forward, backward) ((const uint64_t[]){ (uint64_t)(forward), (uint64_t)(backward) })

static void test_windows_send_little_between_nodes(void **state)
{
    static const int sizes[][2] = { { 8, 4 }, { 8, 2 }, { 4, 2 }, { 6, 3 }, { 6, 2 } };
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && test_rank == 0 && test_size == 1; i++) {
        const int C = sizes[i][0], w = sizes[i][1], n = C / w;
        const struct context_split one = { .heads = 1 }, windows = { .heads = 1, .window = w };
        expect_between("ring-zigzag", C, w, (struct context_split){ 0 }, PAIR(n * (C - 1), n * (2 * C - 1)),
                       PAIR(C - 1, 2 * C - 1), PAIR(C - 1, 2 * C - 1));
        expect_between("loongtrain", C, w, one, PAIR(n * (C - 1), n * (2 * C - 1)), PAIR(C - 1, 2 * C - 1),
                       PAIR(C - 1, 2 * C - 1));
        expect_between("loongtrain", C, w, windows, PAIR(C * (n - 1), C * (2 * n - 1)), PAIR(n - 1, 2 * n - 1),
                       PAIR(C - 1, 2 * C - 1 + n));
    }
    if (test_size > 1) return;                          /* C = 8, w = 4, in numbers */
    expect_between("loongtrain", 8, 4, (struct context_split){ .heads = 1 }, PAIR(14, 30), PAIR(7, 15), PAIR(7, 15));
    expect_between("loongtrain", 8, 4, (struct context_split){ 1, 4, false }, PAIR(8, 24), PAIR(1, 3), PAIR(7, 17));
}

/* ---- refusals ---------------------------------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    (void)state;
    expect_refused(plan_of("usp", 4, (struct context_split){ .heads = 3 }), "--head-parallel 3: must be a divisor");
    expect_refused(plan_of("loongtrain", 8, (struct context_split){ 2, 3, false }),
                   "--ring-window 3: must be a divisor of the ring's 4 devices, --cp 8 / --head-parallel 2");
    expect_refused(plan_of("usp", 4, (struct context_split){ 1, 2, false }), "--ring-window 2: --attention usp has no");
    expect_refused(plan_of("ring", 4, (struct context_split){ .heads = 2 }),
                   "--head-parallel 2: --attention ring does");
    expect_refused(plan_of("ulysses", 4, (struct context_split){ .context_first = true }),
                   "--context-first: --attention ulysses does");
    struct plan p = plan_of("usp", 16, (struct context_split){ .heads = 16 });
    expect_refused(p, "--cp 16: --attention usp needs at least as many query heads");
    p = plan_of("usp", 8, (struct context_split){ .heads = 2 }), p.S = 7;
    expect_refused(p, "--cp 8: --attention usp needs a token of each sequence");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_split), MPI_TEST(test_grouped_queries_with_dropout), MPI_TEST(test_with_tp),
        MPI_TEST(test_the_ends_have_the_bits_of_one_dimension), MPI_TEST(test_windows_send_little_between_nodes),
        MPI_TEST(test_refusals),
    };
    return MPI_RUN("two dimensions", tests);
}
