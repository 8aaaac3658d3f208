/* Training a mixture on meshes over which its experts are folded, by every expert scheme and data scheme.
 * ranks: 1 2 3 4
 * verify ranks: 5 6 8
 */
#include "tests/devices/trained.h"
#include "emulated_devices/schemes/experts/experts.h"

/* The nth scheme that moves rows, beginning again after the last. */
static const char *nth_scheme(int n)
{
    int count = 0;
    for (int i = 0; expert_scheme_at(i); i++) count += expert_scheme_at(i)->cuts_experts;
    n %= count;
    for (int i = 0;; i++)
        if (expert_scheme_at(i)->cuts_experts && n-- == 0) return expert_scheme_at(i)->head.name;
}

static struct plan mixtral(int dp, int tp, int pp, int cp, int ep)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_mixtral(&p);
    if (cp > 1) case_take_context(&p, cp, "ring-zigzag");
    case_take_experts(&p, ep, "alltoall");
    return p;
}

/* All meshes of the job with all divisors; below `make verify` a third of them. */
static void test_folded_meshes(void **state)
{
    int n = 0;
    (void)state;
    for (int dp = 1; dp <= test_size; dp++)
        for (int tp = 1; tp <= test_size; tp++)
            for (int cp = 1; cp <= test_size; cp++)
                for (int i = 0; i < test_size * test_size && test_size % (dp * tp * cp) == 0; i++) {
                    struct plan p = mixtral(dp, tp, test_size / (dp * tp * cp), cp, 1 + i / test_size);
                    p.etp = 1 + i % test_size;
                    if (plan_check(&p, &err) != OK) continue;
                    const int part = tier_now() == TIER_VERIFY ? (test_size > 4 ? 5 : 1) : test_size < 4 ? 3 : 17;
                    p.dispatch = nth_scheme(n / part);
                    if (n++ % part == part - 1) check(&p);
                }
}

/* Five axes: a pipeline whose backward passes begin early, on all arrangements of a stage for attention and for
 * experts; without a capacity and with one that drops choices; with balance losses of microbatches and of sequences. */
static void test_pipelines(void **state)
{
    static const char *const schedules[] = { "interleaved", "1f1b", "zb-h1", "zb-v", "dualpipev" };
    static const struct { int size, dp, tp, cp; } stages[] = {
        { 4, 1, 2, 1 }, { 4, 1, 1, 2 }, { 4, 2, 1, 1 }, { 8, 1, 2, 2 }, { 8, 2, 1, 2 }, { 8, 2, 2, 1 },
    };
    int n = 0, trained = 0;
    (void)state;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++)
        for (int ep = 1; ep <= 4; ep++)
            for (int etp = 1; ep * etp <= 4; etp++) {
                if (stages[i].size != test_size || ep * etp == 1 || test_size / 2 % (ep * etp) != 0) continue;
                struct plan p = mixtral(stages[i].dp, stages[i].tp, 2, stages[i].cp, ep);
                p.etp = etp, p.dispatch = etp > 1 ? "alltoall" : nth_scheme(n);
                p.model.mixture.capacity_factor = n % 2 ? 0.75 : 0;
                p.model.mixture.balance.over = n % 3 == 2 ? OVER_SEQUENCE : OVER_MICROBATCH;
                p.model.mixture.balance.layers = n % 2 ? LAYERS_EACH : LAYERS_TOGETHER;
                if (stages[i].tp > 1 && n % 2 == 0) p.tensor = "1d-sp";
                if (stages[i].dp > 1) p.data.scheme = "zero1";
                const enum error_code e = case_take_schedule(&p, schedules[n++ % 5], &err);
                ASSERT_ALL(e == OK, "%s: %s", schedules[(n - 1) % 5], err.text);
                check(&p), trained++;
            }
    ASSERT_ALL(trained == (test_size == 4 ? 6 : test_size == 8 ? 15 : 0), "%d plans were trained", trained);
}

/* Weights of experts are in shards of fewer devices than all else, of one, or of more. */
static void test_every_data_scheme(void **state)
{
    static const struct { int dp, tp, ep; } mesh[] = { { 4, 1, 2 }, { 2, 2, 4 }, { 2, 2, 2 }, { 1, 4, 2 } };
    (void)state;
    if (test_size != 4) skip();
    for (int i = 0; data_scheme_at(i); i++)
        for (int m = 0; m < 4; m++) {
            struct plan p = mixtral(mesh[m].dp, mesh[m].tp, 1, 1, mesh[m].ep);
            p.data.scheme = data_scheme_at(i)->head.name;
            p.dispatch = nth_scheme(i + m);
            if (m % 2 == 0) p.ep /= 2, p.etp = 2;
            if (data_scheme_at(i)->outer.every > 0 || plan_check(&p, &err) != OK) continue;
            if (tier_now() == TIER_VERIFY || m == i % 4) check(&p);
        }
}

/* Weights move instead of rows, or both. */
static void test_degrees(void **state)
{
    static const struct { int ep, etp, degree; } form[] = { { 2, 2, 0 }, { 2, 2, 1 }, { 1, 4, 2 }, { 1, 4, 1 } };
    (void)state;
    if (test_size != 4) skip();
    for (int i = 0; i < 4; i++) {
        struct plan p = mixtral(i % 2 ? 4 : 2, i % 2 ? 1 : 2, 1, 1, form[i].ep);
        p.dispatch = "tutel", p.etp = form[i].etp, p.degree = form[i].degree;
        if (i == 1) p.data.scheme = "zero3";
        if (i == 2) p.recompute = "full";
        check(&p);
    }
}

/* Fewer experts than devices, so that some have none; as many; one choice; dropout and recomputation. */
static void test_few_experts(void **state)
{
    (void)state;
    for (int i = 0; expert_scheme_at(i); i++) {
        if (!expert_scheme_at(i)->cuts_experts) continue;
        if (tier_now() != TIER_VERIFY && (i + test_size / 2) % 2 == 0) continue;
        struct plan p = mixtral(test_size, 1, 1, 1, test_size);
        p.dispatch = expert_scheme_at(i)->head.name;
        p.model.mixture.E = 2;
        if (tier_now() == TIER_VERIFY || test_size % 2 == 1) check(&p);
        p = mixtral(1, test_size, 1, 1, test_size);
        p.dispatch = expert_scheme_at(i)->head.name;
        p.model.mixture.E = test_size, p.model.mixture.k = 1, p.model.mixture.router.normalized = false;
        case_take_dropout(&p);
        p.recompute = "full";
        if (tier_now() == TIER_VERIFY || test_size % 2 == 0) check(&p);
    }
}

/* Rows have 16 bits, and the weights that travel with them 32. */
static void test_sixteen_bits(void **state)
{
    (void)state;
    for (int i = 0; expert_scheme_at(i) && test_size % 2 == 0; i++) {
        if (!expert_scheme_at(i)->cuts_experts || (tier_now() != TIER_VERIFY && test_size > 2 && i % 2 == 0)) continue;
        struct plan p = mixtral(test_size, 1, 1, 1, test_size);
        p.dispatch = expert_scheme_at(i)->head.name;
        p.dtype = i % 2 ? F16 : BF16;
        check(&p);
    }
}

static void test_refusals(void **state)
{
    struct cluster fours;
    (void)state;
    assert_int_equal(cluster_find(&fours, "a100-ethernet", &err), OK);
    expect_refused(mixtral(2, 2, 1, 1, 3), "--ep 3: must be a divisor of the 4 devices of a stage");
    struct plan p = mixtral(2, 1, 1, 1, 2);
    p.dispatch = "here";
    expect_refused(p, "--ep 2: --dispatch here needs all experts on each device");
    p = mixtral(2, 2, 2, 1, 2), p.etp = 4;
    expect_refused(p, "--ep 2 x --etp 4: must be a divisor of the 4 devices of a stage, --dp x --cp x --tp: experts "
                   "have the same stages as attention");
    p = mixtral(2, 64, 1, 1, 1), p.etp = 128;
    expect_refused(p, "--etp 128: an expert has F=");
    p = mixtral(4, 1, 1, 1, 2), p.degree = 1;
    expect_refused(p, "--degree 1: --dispatch alltoall has no degrees; tutel has");
    p = mixtral(4, 1, 1, 1, 2), p.copying.slots = 2;
    expect_refused(p, "--copies: --dispatch alltoall copies no experts; fssdp does");
    p.copying = (struct expert_copying){ .again = true };
    expect_refused(p, "--copy-again: --dispatch alltoall copies no experts; fssdp does");
    p.copying = (struct expert_copying){ .top = 1 };
    expect_refused(p, "--copies-to-all: --dispatch alltoall copies no experts; fssdp does");
    p = mixtral(4, 1, 1, 1, 2), p.dispatch = "fssdp", p.etp = 2;
    expect_refused(p, "--ep 2 x --etp 2: --dispatch fssdp needs whole experts, so --etp 1");
    p = mixtral(4, 1, 1, 1, 2);
    p.etp = 2, p.degree = 3, p.dispatch = "tutel";
    expect_refused(p, "--ep 2 x --etp 2: --dispatch tutel needs a degree of 0, or one that divides etp");
    p = case_plan(2, 1, 1);
    case_take_experts(&p, 2, "alltoall");
    expect_refused(p, "--ep 2: --model nasty has no experts");
    p = mixtral(4, 1, 1, 1, 2);
    p = mixtral(6, 1, 1, 1, 6);
    p.cluster = &fours, p.dispatch = "two-step";
    expect_refused(p, "--ep 6: --dispatch two-step needs as many devices of a group on every node");
    p = mixtral(4, 1, 1, 1, 2);
    p.data.scheme = "hsdp", p.data.group = 4;
    expect_refused(p, "--ep 2: leaves 2 devices with the same experts: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_folded_meshes), MPI_TEST(test_pipelines), MPI_TEST(test_every_data_scheme),
        MPI_TEST(test_few_experts), MPI_TEST(test_degrees), MPI_TEST(test_sixteen_bits),
        MPI_TEST(test_refusals),
    };
    return MPI_RUN("folded experts", tests);
}
