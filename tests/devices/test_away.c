/* Activations on the slow tier: the same bits wherever they lie between forward and backward, on every mesh, and the
 * memory and moves of it by formula.
 * ranks: 1 2 4
 * verify ranks: 3 6 8
 *
 * That each agrees with one device, and that reads, writes and memory equal their formulas, is part of every case
 * (verify/cases/case.h).
 */
#include "tests/mpi_cmocka.h"
#include "tests/tier.h"
#include "emulated_devices/model/away.h"
#include "emulated_devices/train/dry_run/plan_memory.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/io/output.h"
#include <string.h>

static struct error err;
static struct outcome o;

static struct plan deep_plan(int dp, int tp, int pp, int cp)
{
    const int sizes[AXIS_COUNT] = { [DP] = dp, [TP] = tp, [PP] = pp, [CP] = cp, [EP] = 1 };
    struct plan p = case_plan(dp, tp, pp);
    ASSERT_ALL(mesh_make(&p.mesh, sizes, &err) == OK, "%s", err.text);
    if (cp > 1) p.attention = "ring-zigzag";
    p.model.L = 4 * pp;
    p.B = 2 * dp, p.S = 8, p.micros = 2;
    p.hyper.clip = 0;
    ASSERT_ALL(optimizer_find(&p.optimizer, "sgd", &err) == OK, "%s", err.text);
    return p;
}

static uint64_t checked(struct plan *p)
{
    ASSERT_ALL(plan_check(p, &err) == OK, "refused: %s", err.text);
    ASSERT_ALL(case_run(p, &o, &err) == OK, "%s", err.text);
    ASSERT_ALL(o.verdict.code == OK, "dp=%d tp=%d pp=%d cp=%d %s %s%s: %s", p->mesh.size[DP], p->mesh.size[TP],
               p->mesh.size[PP], p->mesh.size[CP], p->schedule, p->recompute ? p->recompute : "",
               p->offload_activations ? ", activations on the tier" : "", o.verdict.text);
    return o.whole_hash;
}

static void same_bits(struct plan p)
{
    const uint64_t plain = checked(&p);
    p.offload_activations = true;
    const uint64_t bits = checked(&p);
    ASSERT_ALL(test_rank != 0 || bits == plain, "dp=%d tp=%d pp=%d cp=%d %s: other bits with activations on the tier",
               p.mesh.size[DP], p.mesh.size[TP], p.mesh.size[PP], p.mesh.size[CP], p.schedule);
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static void test_meshes(void **state)
{
    static const int mesh[][5] = {      /* devices, dp, tp, pp, cp */
        { 1, 1, 1, 1, 1 }, { 2, 2, 1, 1, 1 }, { 2, 1, 1, 2, 1 }, { 2, 1, 1, 1, 2 }, { 3, 1, 3, 1, 1 },
        { 4, 1, 2, 2, 1 }, { 4, 2, 1, 1, 2 }, { 6, 2, 3, 1, 1 }, { 6, 1, 1, 3, 2 }, { 8, 2, 2, 2, 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof mesh / sizeof *mesh; i++) {
        if (mesh[i][0] != test_size) continue;
        same_bits(deep_plan(mesh[i][1], mesh[i][2], mesh[i][3], mesh[i][4]));
    }
}

static void test_with_recomputation(void **state)
{
    static const char *const choices[] = { "full", "selective", "selective++", "0,2" };
    (void)state;
    if (test_size > 2) return;
    for (int i = 0; i < (tier_now() < TIER_VERIFY ? 2 : 4); i++) {
        struct plan p = deep_plan(1, 1, 1, test_size);
        if (test_size > 1) p.attention = "loongtrain";
        p.recompute = choices[i];
        same_bits(p);
    }
}

/* Passes in other orders; a device with two stages. */
static void test_with_schedules(void **state)
{
    static const char *const schedules[] = { "zb-h1", "dualpipe", "1f1b", "zb-v" };
    (void)state;
    if (test_size != 2) return;
    for (int i = 0; i < (tier_now() < TIER_VERIFY ? 2 : 4); i++) {
        struct plan p = deep_plan(1, 1, 2, 1);
        p.schedule = schedules[i], p.micros = 4, p.B = 4, p.model.L = 12;
        same_bits(p);
    }
}

/* Of long samples everything leaves if copies take no time, and they are on fewer devices; of short ones nothing. */
static void test_selective(void **state)
{
    (void)state;
    if (test_size != 4) return;
    struct cluster quick;
    struct context_plan placed;
    struct plan p = deep_plan(1, 1, 1, 4);
    ASSERT_ALL(cluster_find(&quick, "h100-infiniband", &err) == OK, "%s", err.text);
    quick.copy_rate = 0;
    p.cluster = &quick, p.attention = "hdp", p.model.L = 8, p.B = 3, p.micros = 3, p.model.S = p.S = 16;
    p.offload_activations = true;
    checked(&p);
    double most = 0;
    for (int i = 0; i < p.micros; i++) {
        ASSERT_ALL(plan_context(&p, 0, i, tensor_none, &placed, &err) == OK, "%s", err.text);
        for (int d = 0; placed.blocks > 0 && d < 4; d++) most = placed.away[d] > most ? placed.away[d] : most;
        context_plan_free(&placed);
    }
    ASSERT_ALL(most == 1, "%g of the layers leave at most", most);
}

/* Where not all layers leave, those that do are as far apart as possible, so that a copy has the time of several. */
static void test_far_apart(void **state)
{
    (void)state;
    if (test_size != 1) return;
    for (int most = 1; most <= 30; most++)
        for (int layers = 1; layers <= most; layers++) {
            int count = 0, before = 0, least = most;
            for (int l = 0; l < most; l++) {
                if (!away_is_chosen(layers, most, l)) continue;
                if (count == 0) assert_int_equal(l, 0);
                if (count++ > 0 && l - before < least) least = l - before;
                before = l;
            }
            if (most - before < least) least = most - before;
            ASSERT_ALL(count == layers && least >= most / layers,
                       "of %d layers %d leave, not %d; two are %d layers apart, not %d", most, count, layers, least,
                       most / layers);
        }
    for (int l = -1; l < 4; l++) assert_false(away_is_chosen(0, 3, l));
}

/* With all else on the tier too, in a file; each microbatch has another size. */
static void test_a_file(void **state)
{
    (void)state;
    if (test_size != 2) return;
    struct plan p = deep_plan(2, 1, 1, 1);
    p.B = 7, p.micros = 2;
    p.data.scheme = "zero3", p.data.offload_slice = 100;
    p.data.offload = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER;
    p.data.offload_to = temporary_folder();
    p.optimizer = optimizers[0], p.hyper = p.optimizer->usual, p.dtype = F32;
    same_bits(p);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Of L layers the device has two at once: of each of M microbatches L - 2 layers' activations are elsewhere when all
 * forward passes are done. */
static void test_memory(void **state)
{
    struct plan_memory here, away;
    (void)state;
    if (test_size != 1) return;
    struct plan p = deep_plan(1, 1, 1, 1);
    p.model.L = 8, p.schedule = "gpipe";
    assert_int_equal(plan_check(&p, &err), OK);
    assert_int_equal(plan_memory(&p, 0, 1, &here, &err), OK);
    p.offload_activations = true;
    assert_int_equal(plan_check(&p, &err), OK);
    assert_int_equal(plan_memory(&p, 0, 1, &away, &err), OK);
    assert_int_equal(here.offloaded, 0);
    assert_int_equal(here.peak.tag[ACTIVATIONS] - away.peak.tag[ACTIVATIONS], away.offloaded);
    checked(&p);
}

static void expect_refused(struct plan *p, const char *why)
{
    p->offload_activations = true;
    assert_int_equal(plan_check(p, &err), ERR_PLAN);
    assert_non_null(strstr(err.text, why));
}

static void test_refused(void **state)
{
    (void)state;
    if (test_size != 1) return;
    struct plan p = deep_plan(1, 1, 1, 1);
    p.model.L = 2;
    expect_refused(&p, "--offload activations: the last two layers of a stage stay");
    p = deep_plan(1, 1, 1, 1);
    assert_int_equal(optimizer_find(&p.optimizer, "mezo", &err), OK);
    p.hyper = p.optimizer->usual;
    expect_refused(&p, "--optimizer mezo keeps no activations");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_meshes),
        MPI_TEST(test_with_recomputation),
        MPI_TEST(test_with_schedules),
        MPI_TEST(test_selective),
        MPI_TEST(test_far_apart),
        MPI_TEST(test_a_file),
        MPI_TEST(test_memory),
        MPI_TEST(test_refused),
    };
    return MPI_RUN("away", tests);
}
