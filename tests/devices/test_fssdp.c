/* Experts with copies: training equals one device wherever copies are; what is sent follows from who has copies; and on
 * a load that follows Zipf's law the busiest device has less to compute.
 * ranks: 2 4
 * verify ranks: 1 3 5 6 8
 */
#include "tests/devices/on_devices.h"
#include "tests/tier.h"
#include "emulated_devices/schemes/experts/experts.h"
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/cases/experts.h"
#include <stdlib.h>

static struct error err;
static struct expert_layer layer;

static const struct expert_scheme *scheme(const char *name)
{
    const struct expert_scheme *s = NULL;
    assert_int_equal(expert_scheme_find(&s, name, &err), OK);
    return s;
}

/* The sum of a number over the devices, and the largest; known on rank 0. */
static double over_devices(double own, double *most)
{
    double all[64], sum = 0;
    assert_int_equal(comm_bring(&comm, &own, sizeof own, all, &err), OK);
    *most = 0;
    for (int i = 0; i < test_size && test_rank == 0; i++) sum += all[i], *most = all[i] > *most ? all[i] : *most;
    return sum;
}

/* A layer whose loads have been seen, with its rows announced. */
static void open_layer(const char *name, struct expert_shape shape)
{
    shape.ep = test_size, shape.etp = 1;
    ASSERT_ALL(expert_layer_open(&layer, &comm, scheme(name), shape, &err) == OK, "%s", err.text);
    ASSERT_ALL(expert_layer_learn(&layer, &err) == OK, "%s", err.text);
    ASSERT_ALL(expert_layer_announce(&layer, &err) == OK, "%s", err.text);
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

static const struct expert_copying copyings[] = {
    { .slots = 1 }, { .slots = 2, .again = true }, { .slots = 9 }, { .slots = 3, .top = 2 },
    { .slots = 3, .top = 3, .again = true }, { .slots = 1, .top = 2 },
};
enum { COPYINGS = sizeof copyings / sizeof *copyings };

/* Three steps: the first has no copies. */
static void train(struct plan p, const struct expert_copying *copying)
{
    struct outcome o = { 0 };
    p.dispatch = "fssdp", p.copying = *copying;
    enum error_code e = plan_check(&p, &err);
    if (!e) e = case_run(&p, &o, &err);
    ASSERT_ALL(e == OK && o.verdict.code == OK, "dp=%d tp=%d pp=%d cp=%d ep=%d %s, copies %d, to all %d, again %d: %s",
               p.mesh.size[DP], p.mesh.size[TP], p.mesh.size[PP], p.mesh.size[CP], p.ep, p.data.scheme, copying->slots,
               copying->top, copying->again, e ? err.text : o.verdict.text);
}

static struct plan mixtral(int dp, int tp, int pp, int cp, int ep)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_mixtral(&p);
    if (cp > 1) case_take_context(&p, cp, "ring-zigzag");
    case_take_experts(&p, ep, "fssdp");
    return p;
}

/* Each kind of copies, on the mesh of all devices along dp; E does not divide. */
static void test_training(void **state)
{
    (void)state;
    for (int i = 0; i < COPYINGS; i++) {
        struct plan p = mixtral(test_size, 1, 1, 1, test_size);
        p.recompute = i == 4 ? "full" : p.recompute;
        p.data.scheme = i == 5 ? "zero3" : p.data.scheme;
        if (tier_now() == TIER_VERIFY || i % 2 == test_size / 2 % 2) train(p, &copyings[i]);
    }
}

/* Adam, whose second moments see the sum of an expert's gradients, not its parts. */
static void test_adam(void **state)
{
    struct plan p = mixtral(test_size, 1, 1, 1, test_size);
    const struct optimizer *adam;
    (void)state;
    assert_int_equal(optimizer_find(&adam, "adamw", &err), OK);
    case_take_optimizer(&p, adam, 1);
    train(p, &copyings[0]);
}

static void test_other_axes(void **state)
{
    static const struct { int dp, tp, pp, cp, ep; } mesh[] = {
        { 1, 2, 2, 1, 2 }, { 2, 1, 1, 2, 4 }, { 1, 4, 1, 1, 4 }, { 1, 1, 2, 2, 2 }, { 2, 2, 1, 1, 2 },
    };
    (void)state;
    if (test_size != 4) skip();
    for (int i = 0; i < 5; i++) {
        struct plan p = mixtral(mesh[i].dp, mesh[i].tp, mesh[i].pp, mesh[i].cp, mesh[i].ep);
        if (i == 2) p.tensor = "1d-sp";
        if (tier_now() == TIER_VERIFY || i < 2) train(p, &copyings[i]);
    }
}

/* Other owners in each layer, and not as many experts of each layer on each device; one has none of the first. */
static void test_owners(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct plan p = mixtral(test_size, 1, 1, 1, test_size);
        struct expert_owners owners;
        const int64_t E = p.model.mixture.E, L = p.model.L;
        assert_int_equal(expert_owners_make(&owners, L, E, test_size, &err), OK);
        for (int64_t n = 0; n < L * E; n++) owners.member[n] = (int32_t)((n * n + n / E) % test_size);
        for (int64_t n = 0; n < E; n++) owners.member[n] = test_size > 1 ? (int32_t)(n % (test_size - 1)) : 0;
        p.owners = &owners;
        if (i == 1) p.data.scheme = "zero2";
        if (i == 2) p = mixtral(1, test_size, 1, 1, test_size), p.owners = &owners;
        if (tier_now() == TIER_VERIFY || i == 1) train(p, &copyings[i]);
        expert_owners_free(&owners);
    }
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Copies of this layer on all devices. */
static int64_t copies(void)
{
    int64_t n = 0;
    for (int64_t e = 0; e < layer.shape.E; e++)
        for (int m = 0; m < test_size; m++)
            n += layer.routing.held[e * test_size + m] && layer.routing.owner[e] != m;
    return n;
}

/* Rows that leave this device. */
static int64_t rows_sent(void)
{
    int64_t n = 0;
    for (int m = 0; m < test_size; m++) n += m == test_rank ? 0 : layer.routing.hop[0].sent[m];
    return n;
}

/* Bytes that all devices send in a pass; known on rank 0. */
static double sent_by(enum error_code (*pass)(struct mixture_call *, struct error *))
{
    double most;
    const struct account before = comm.counted.of[TRAFFIC_EXPERTS];
    ASSERT_ALL(pass(&layer.call, &err) == OK, "%s", err.text);
    struct account sent = comm.counted.of[TRAFFIC_EXPERTS];
    account_add(&sent, before, -1);
    return over_devices((double)account_total(&sent).bytes_sent, &most);
}

static void check_passes(const char *name, const struct expert_copying *copying, int width)
{
    double most;
    open_layer(name, (struct expert_shape){ .E = 9, .k = 2, .tokens = 7, .D = width, .F = 5, .zipf = true,
                                            .copying = *copying });
    const double rows = 2 * over_devices((double)rows_sent(), &most) * width * 8;       /* there and back */
    const double weights = (double)copies() * 3 * 5 * width * 8;
    const struct expert_scheme *s = layer.ep.scheme;
    const double forward = sent_by(s->forward), input = sent_by(s->input), weight = sent_by(s->weight);
    ASSERT_ALL(test_size == 1 || copies() > 0, "no expert has a copy");
    ASSERT_ALL(test_rank != 0 || forward == rows + weights, "forward: %g bytes; %g of rows and %g of weights", forward,
               rows, weights);
    ASSERT_ALL(test_rank != 0 || input == rows + (copying->again ? weights : 0), "backward: %g bytes; %g of rows and "
               "%d times %g of weights", input, rows, copying->again, weights);
    ASSERT_ALL(test_rank != 0 || weight == weights, "gradients: %g bytes of %g", weight, weights);
    ASSERT_ALL(expert_layer_right(&layer), "a result is not that of one device");
    expert_layer_close(&layer);
}

/* Each copy's weights and gradients travel once, weights twice if they are sent again. */
static void test_bytes_of_copies(void **state)
{
    (void)state;
    for (int i = 0; i < COPYINGS; i++) check_passes("fssdp", &copyings[i], 3);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Copies that are sent again do not lie in memory between the passes. */
static void test_copies_kept(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) {
        open_layer("fssdp", (struct expert_shape){ .E = 9, .k = 2, .tokens = 7, .D = 3, .F = 5, .zipf = true,
                                                   .copying = { .slots = 2, .again = again } });
        const struct expert_scheme *s = layer.ep.scheme;
        int64_t here = 0;
        for (int64_t e = 0; e < 9; e++)
            here += layer.routing.held[e * test_size + test_rank] && layer.routing.owner[e] != test_rank;
        ASSERT_ALL(here <= 2, "%lld copies in 2 slots", (long long)here);
        ASSERT_ALL(tensor_count(layer.call.kept[s->slots - 1]) == (again ? 0 : here * 45), "%lld numbers are kept",
                   (long long)tensor_count(layer.call.kept[s->slots - 1]));
        expert_layer_close(&layer);
    }
}

/* ---- load -------------------------------------------------------------------------------------------------------- */

/* Rows of the busiest device over the mean; known on rank 0. */
static double imbalance(const char *name, int slots)
{
    double most;
    open_layer(name, (struct expert_shape){ .E = 16, .k = 2, .tokens = 64, .D = 1, .F = 1, .zipf = true,
                                            .copying = { .slots = slots } });
    const double sum = over_devices((double)layer.routing.received, &most);
    ASSERT_ALL(test_rank != 0 || sum == 128.0 * test_size, "%g rows are computed", sum);
    expert_layer_close(&layer);
    return test_rank == 0 ? most * test_size / sum : 0;
}

static void test_zipf(void **state)
{
    (void)state;
    double last = imbalance("alltoall", 0);
    ASSERT_ALL(test_rank != 0 || test_size == 1 || last > 1.4, "the load is even: %g", last);
    for (int slots = 1; slots <= 16; slots *= 4) {
        const double now = imbalance("fssdp", slots);
        ASSERT_ALL(test_rank != 0 || now < last || now < 1.01, "%d copies: the busiest device has %g of the mean; with "
                   "fewer %g", slots, now, last);
        last = now;
    }
    ASSERT_ALL(test_rank != 0 || last < 1.01, "with all experts on all devices: %g", last);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_training), MPI_TEST(test_adam), MPI_TEST(test_owners), MPI_TEST(test_other_axes),
        ON_DEVICES(test_bytes_of_copies), ON_DEVICES(test_copies_kept), ON_DEVICES(test_zipf),
    };
    setenv("ORRERY_CHECK_CALLS", "1", 0);               /* devices without an expert call what the others call */
    return MPI_RUN("fssdp", tests);
}
