/* Devices of a plan that stand for others: what all devices do, by ==, is what it is when each of them runs; and what
 * cannot be folded is not.  Every algorithm that says that all members do the same is held to it.
 */
#include "emulated_devices/train/dry_run/alike.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/cases/sectioned.h"
#include "ref/model/kinds.h"
#include "ref/numeric/philox.h"
#include "tests/devices/on_crew.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/tier.h"
#include <stdlib.h>
#include <string.h>

static struct error err;

/* ---- whole plans ------------------------------------------------------------------------------------------------- */

/* What a device did. */
struct deeds { picoseconds time, computing; struct arena_use peak; struct ledger counted; };

static enum error_code note(struct trainer *t, void *context, struct error *e)
{
    (void)e;
    struct deeds *all = context;
    all[t->comm->rank] = (struct deeds){ t->device->clock.now, t->device->clock.computing, t->device->arena.peak,
                                         t->comm->counted };
    return OK;
}

static struct { int plans, folded, lives, devices; } seen;

/* A plan on all devices, and folded. */
static struct dry_run compare(struct plan p, const char *what)
{
    struct deeds each[64], some[64];
    struct dry_run all, folded;
    char text[80];
    assert_true(p.mesh.devices <= 64);
    if (plan_check(&p, &err)) fail_msg("%s: %s", what, err.text);
    memset(each, 0, sizeof each), memset(some, 0, sizeof some);
    if (dry_run(&p, 2, true, NULL, NULL, note, each, &all, &err)) fail_msg("%s: %s", what, err.text);
    if (dry_run(&p, 2, false, NULL, NULL, note, some, &folded, &err)) fail_msg("%s: %s", what, err.text);
    const char *how = folding_describe(&folded.folding, text, sizeof text);
    for (int rank = 0; rank < p.mesh.devices; rank++) {
        const struct deeds *a = &each[rank], *b = &some[folding_stands_for(&folded.folding, rank)];
        if (a->time != b->time || a->computing != b->computing)
            fail_msg("%s: device %d ends at %lld ps, folded (%s) at %lld", what, rank, (long long)a->time, how,
                     (long long)b->time);
        if (memcmp(&a->peak, &b->peak, sizeof a->peak) != 0)
            fail_msg("%s: device %d takes %llu bytes, folded (%s) %llu", what, rank, (unsigned long long)a->peak.total,
                     how, (unsigned long long)b->peak.total);
        for (int k = 0; k < TRAFFIC_KIND_COUNT; k++)
            for (int op = 0; op < OPERATION_COUNT; op++)
                if (memcmp(&a->counted.of[k].of[op], &b->counted.of[k].of[op], sizeof(struct traffic)) != 0)
                    fail_msg("%s: device %d: %s %s differ when folded (%s)", what, rank, traffic_kind_name(k),
                             operation_name(op), how);
    }
    seen.plans++, seen.folded += folded.crew.lives < p.mesh.devices;
    seen.lives += folded.crew.lives, seen.devices += p.mesh.devices;
    return folded;
}

/* Nodes of four devices, long messages that wait, and no two links alike. */
static struct cluster clusters[3];

static int open_clusters(void **state)
{
    (void)state;
    assert_int_equal(cluster_find(&clusters[0], CLUSTER_USUAL, &err), OK);
    assert_int_equal(cluster_find(&clusters[1], "textbook", &err), OK);
    assert_int_equal(cluster_find(&clusters[2], "a100-ethernet", &err), OK);
    for (int l = 0; l < clusters[0].levels; l++) clusters[0].link[l].eager = 256;
    return 0;
}

static const int meshes[][3] = {        /* dp, tp, pp */
    { 2, 1, 1 }, { 1, 2, 1 }, { 4, 1, 1 }, { 2, 2, 1 }, { 2, 1, 2 }, { 8, 1, 1 }, { 3, 1, 1 }, { 4, 2, 1 }, { 1, 2, 2 },
    { 4, 1, 2 }, { 2, 2, 2 }, { 16, 1, 1 }, { 4, 4, 1 }, { 8, 2, 1 }, { 4, 2, 2 }, { 2, 4, 2 }, { 6, 1, 2 },
    { 1, 4, 4 },
};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* Even sizes, of which all is divided; or those of every case, of which little is. */
static struct plan plan_on(int mesh, bool even)
{
    struct plan p = case_plan(meshes[mesh][0], meshes[mesh][1], meshes[mesh][2]);
    if (even) p.model.V = 64, p.model.H = p.model.K = 8, p.model.D = 32, p.model.A = 4, p.model.F = 128, p.B = 48,
              p.model.S = p.S = 8;
    return p;
}

static void test_plans(void **state)
{
    static const char *const data[] = { "ddp", "zero1", "zero2", "zero3" }, *const tensor[] = { "1d", "1d-sp", "2d" };
    const int step = tier_now() == TIER_VERIFY ? 1 : 5;
    char what[120];
    int n = 0;
    (void)state;
    for (int m = 0; m < MESHES; m++)
        for (int d = 0; d < 4; d++)
            for (int t = 0; t < 3; t++)
                for (int even = 0; even < 2; even++) {
                    struct plan p = plan_on(m, even);
                    const bool fits = t == 0 || p.mesh.size[TP] == 4 || (t == 1 && p.mesh.size[TP] == 2);
                    if (!fits || n++ % step != 0) continue;
                    p.data.scheme = data[d], p.tensor = tensor[t], p.cluster = &clusters[n % 3];
                    if (n % 5 == 0) p.recompute = "full";
                    if (n % 2) p.dtype = F32;
                    snprintf(what, sizeof what, "dp=%d tp=%d pp=%d %s %s %s %s", p.mesh.size[DP], p.mesh.size[TP],
                             p.mesh.size[PP], data[d], tensor[t], p.cluster->name, even ? "even" : "uneven");
                    compare(p, what);
                }
    printf("%d plans, %d folded; %d of %d devices ran\n", seen.plans, seen.folded, seen.lives, seen.devices);
    assert_true(seen.folded > seen.plans / 4 && seen.folded < seen.plans);
}

/* ---- who stands for whom ----------------------------------------------------------------------------------------- */

/* Along each axis a coordinate is taken modulo `every`; the others are moved by as much.  Classes are numbered in the
 * order of the devices that run, and are equally large. */
static void expect_classes(const struct folding *f)
{
    int share[64] = { 0 };
    for (int n = 1; n < folding_lives(f); n++) assert_true(folding_first(f, n) > folding_first(f, n - 1));
    for (int rank = 0; rank < f->mesh.devices; rank++) {
        const int stands = folding_stands_for(f, rank), n = folding_class(f, rank);
        assert_in_range(n, 0, folding_lives(f) - 1);
        assert_int_equal(folding_first(f, n), stands);
        share[n]++;
        for (enum axis a = 0; a < AXIS_COUNT; a++) {
            const int c = mesh_coordinate(&f->mesh, rank, a), size = f->mesh.size[a];
            assert_int_equal(mesh_coordinate(&f->mesh, stands, a), c % f->every[a]);
            for (int other = 0; other < f->mesh.devices; other++)
                assert_int_equal(mesh_coordinate(&f->mesh, folding_move(f, other, rank), a),
                                 (mesh_coordinate(&f->mesh, other, a) - (c - c % f->every[a]) + size) % size);
        }
    }
    for (int n = 0; n < folding_lives(f); n++) assert_int_equal(share[n], folding_share(f));
}

static void test_classes(void **state)
{
    static const int every[][AXIS_COUNT] = { { 2, 6, 1, 1, 4 }, { 2, 1, 1, 1, 4 }, { 2, 3, 1, 1, 4 }, { 2, 2, 1, 1, 1 },
                                             { 1, 1, 1, 1, 1 } };
    const int size[AXIS_COUNT] = { 2, 6, 1, 1, 4 };
    struct mesh m;
    (void)state;
    assert_int_equal(mesh_make(&m, size, &err), OK);
    for (size_t i = 0; i < sizeof every / sizeof *every; i++) {
        struct folding f = folding_none(&m);
        memcpy(f.every, every[i], sizeof f.every);
        expect_classes(&f);
    }
}

/* Copies with as many sequences do not do the same if others have more: along a ring of a collective, where a device
 * waits depends on how far behind a late one it stands.  So nothing is folded along dp. */
static void test_unequal_copies(void **state)
{
    struct deeds each[8];
    struct dry_run all;
    (void)state;
    struct plan p = plan_on(5, true);                   /* dp 8 */
    struct cluster busy = clusters[1];                  /* equal links, and operations that take time */
    for (enum dtype t = 0; t < DTYPE_COUNT; t++) busy.flop_rate[t] = 1000;
    p.cluster = &busy, p.data.scheme = "ddp", p.allreduce = "ring", p.B = 20;
    assert_int_equal(compare(p, "copies of three and of two").crew.lives, 8);
    assert_int_equal(plan_check(&p, &err), OK);
    assert_int_equal(dry_run(&p, 1, true, NULL, NULL, note, each, &all, &err), OK);
    int ends = 1;
    for (int d = 1; d < 4; d++) ends += each[d].time != each[d - 1].time;       /* the four that have three */
    assert_true(ends > 1);
}

/* ---- what is folded, and what is not ----------------------------------------------------------------------------- */

static void test_what_is_folded(void **state)
{
    (void)state;
    struct plan p = plan_on(14, true);                  /* dp 4, tp 2, pp 2 */
    p.cluster = &clusters[1], p.data.scheme = "zero3";
    struct dry_run d = compare(p, "even");
    assert_int_equal(d.crew.lives, 2);
    assert_string_equal(d.why, "");
    p.model.V = 63;
    d = compare(p, "an uneven vocabulary");
    assert_int_equal(d.crew.lives, 4);
    assert_non_null(strstr(d.why, "tp: the vocabulary is no multiple of tp; --pad-vocabulary 128"));
    p.model.V = 64, p.model.F = 127;
    assert_non_null(strstr(compare(p, "uneven feed-forward layers").why, "tp: parts of a layer differ in size"));
    p.model.V = 63, p.model.F = 128;
    p.B = 47;
    d = compare(p, "an uneven batch");
    assert_int_equal(d.crew.lives, 16);
    assert_non_null(strstr(d.why, "dp: copies have different numbers of sequences"));
}

static void test_links(void **state)
{
    (void)state;
    struct plan p = plan_on(5, true);                   /* dp 8 */
    p.cluster = &clusters[0], p.data.scheme = "zero3";
    struct dry_run d = compare(p, "two nodes of 4");
    assert_int_equal(d.folding.every[DP], 4);
    assert_non_null(strstr(d.why, "links"));
    struct cluster half = clusters[1];
    half.speeds = 2, half.percent[0] = 100, half.percent[1] = 50;
    p.cluster = &half;
    assert_int_equal(compare(p, "every second device is slower").folding.every[DP], 2);
}

/* Some groups have only part of a class: copies of shards of 2. */
static void test_groups_inside(void **state)
{
    (void)state;
    struct plan p = plan_on(5, true);
    p.cluster = &clusters[1], p.data.scheme = "hsdp", p.data.group = 2;
    const struct dry_run d = compare(p, "hsdp");
    assert_int_equal(d.folding.every[DP], 2);
    assert_non_null(strstr(d.why, "data"));
}

/* What a tree sends differs from member to member. */
static void test_what_a_tree_sends(void **state)
{
    (void)state;
    struct plan p = plan_on(2, true);
    p.cluster = &clusters[1], p.data.scheme = "ddp", p.allreduce = "tree";
    const struct dry_run d = compare(p, "a tree");
    assert_int_equal(d.crew.lives, 4);
    assert_string_equal(d.why, "data allreduce over dp is not the same for all members");
}

static void test_experts(void **state)
{
    (void)state;
    struct plan p = case_plan(4, 1, 1);
    case_take_mixtral(&p);
    p.B = 8, p.cluster = &clusters[1], p.data.scheme = "zero3";
    compare(p, "a mixture");
    case_take_experts(&p, 2, "alltoall");
    const struct dry_run d = compare(p, "experts on two devices");
    assert_int_equal(d.crew.lives, 4);
    assert_string_equal(d.why, "dp: a sequence has more rows for some experts");
}

/* ---- sections ---------------------------------------------------------------------------------------------------- */

/* The devices of each stage are cut into as many parts; turning by a part moves all partners along. */
static void test_stages(void **state)
{
    static const int first[] = { 0, 8, 12, 24 };        /* of 8, 4 and 12 devices; the last is their number */
    const int size[AXIS_COUNT] = { 1, 24, 1, 1, 1 };
    struct mesh m;
    char text[80];
    (void)state;
    assert_int_equal(mesh_make(&m, size, &err), OK);
    const struct folding f = folding_of_stages(&m, first, 3, 4);
    assert_int_equal(folding_lives(&f), 6);
    assert_int_equal(folding_share(&f), 4);
    assert_string_equal(folding_describe(&f, text, sizeof text), "4 equal parts of each stage");
    for (int s = 0, class = 0; s < 3; s++) {
        const int n = first[s + 1] - first[s], lives = n / 4;
        for (int i = 0; i < n; i++) {
            const int rank = first[s] + i;
            assert_int_equal(folding_stands_for(&f, rank), first[s] + i % lives);
            assert_int_equal(folding_class(&f, rank), class + i % lives);
            assert_int_equal(folding_first(&f, class + i % lives), first[s] + i % lives);
            assert_int_equal(folding_next(&f, rank, DP), first[s] + (i + lives) % n);
            assert_int_equal(folding_next(&f, rank, TP), rank);
            /* Device 4 of the first stage is turned back by two parts: so is every partner. */
            assert_int_equal(folding_move(&f, rank, 4), first[s] + (i + n - 2 * lives) % n);
        }
        class += lives;
    }
}

/* Schemes for the sections of a drawn plan; tp and dp are what is left of a stage's devices. */
static void draw_section_of(struct plan *q, int n, int copies, const uint64_t seed)
{
    static const char *const data[] = { "zero1", "zero2", "zero3", "zero1", "zero2", "zero3", "zero1", "ddp" },
        *const tensor[] = { "1d", "1d-sp" }, *const recompute[] = { "none", "full", "selective" };
    const int inside = q->mesh.devices / copies;
    int size[AXIS_COUNT] = { 1, copies, 1, 1, inside };
    if (inside % 2 == 0 && random_uniform(seed, 1, (uint64_t)n) < 0.3) size[CP] = 2, size[TP] = inside / 2;
    const int at = q->mesh.first;
    assert_int_equal(mesh_make(&q->mesh, size, &err), OK);
    q->mesh.first = at;
    q->data.scheme = data[(int)(random_uniform(seed, 2, (uint64_t)n) * 8)];
    q->tensor = size[TP] > 1 && q->model.mlp != MLP_MIXTURE ? tensor[(int)(random_uniform(seed, 3, (uint64_t)n) * 2)]
        : "1d";
    q->attention = size[CP] > 1 ? "ring-zigzag" : q->attention;
    q->recompute = recompute[(int)(random_uniform(seed, 4, (uint64_t)n) * 3)];
}

/* Stages of 4, 8 and 16 devices with two sections each, of meshes and schemes of their own, on each cluster; some
 * models are mixtures, and some have one embedding at both ends. */
static void test_sections(void **state)
{
    static const int devices[][3] = { { 8, 8, 0 }, { 4, 8, 0 }, { 16, 0, 0 }, { 8, 4, 16 }, { 4, 4, 4 } };
    const int draws = tier_now() == TIER_VERIFY ? 120 : 15;
    int folded = 0, whole = 0;
    (void)state;
    for (uint64_t n = 0; n < (uint64_t)draws; n++) {
        const int *const of = devices[n % 5];
        struct plan p = plan_on(0, true);
        struct sections sections;
        char what[600];
        int count = 0, at = 0;
        p.model.tied = n % 4 == 0, p.B = n % 7 == 6 ? 49 : 48, p.micros = 1 + (int)(n % 3);
        if (n % 4 == 1) {
            case_take_mixtral(&p);
            p.model.mixture.E = 4;
            p.model.mixture.balance = (struct balance_rule){ OVER_SEQUENCE, LAYERS_TOGETHER, CHOICES_ALL };
        }
        p.cluster = &clusters[n % 3];
        while (count < 3 && of[count]) count++;
        p.model.L = 2 * count;
        assert_int_equal(sections_open(&sections, &p, 2 * count, &err), OK);
        for (int i = 0; i < 2 * count; i++) {
            struct plan *const q = &sections.at[i];
            q->layers = (struct interval){ i, 1 };
            q->mesh.devices = of[i / 2], q->mesh.first = at;
            draw_section_of(q, i, of[i / 2] / (random_uniform(n, 5, (uint64_t)i) < 0.5 ? 1 : 2), n);
            if (i % 2) at += of[i / 2];
        }
        p.sections = &sections;
        if (plan_check(&p, &err)) fail_msg("%llu: %s", (unsigned long long)n, err.text);
        sections_describe(&p, what, sizeof what);
        const struct dry_run d = compare(p, what);
        folded += d.crew.lives < p.mesh.devices, whole += d.crew.lives == p.mesh.devices;
        sections_free(&sections);
    }
    printf("%d plans with sections: %d folded, %d not\n", draws, folded, whole);
    assert_true(folded > draws / 4 && whole > 0);
}

/* ---- collectives that turn --------------------------------------------------------------------------------------- */

enum { ELEMENTS = 48 };
struct call { const struct algorithm *algorithm; int P; const struct cluster *cluster; picoseconds *end; };

static enum error_code run_call(struct comm *c, void *asked, struct error *e)
{
    const struct call *a = asked;
    struct mesh m;
    struct group g;
    const int size[AXIS_COUNT] = { 1, a->P, 1, 1, 1 };
    double in[ELEMENTS * 16] = { 0 }, out[ELEMENTS * 16] = { 0 };
    struct collective call = { .in = in, .out = out, .count = ELEMENTS, .dtype = F64, .reduction = SUM };
    enum error_code code = mesh_make(&m, size, e);
    if (!code) code = group_along(&g, c, &m, TRAFFIC_OTHER, AXIS_BIT(DP), e);
    if (code) return code;
    for (int twice = 0; twice < 2 && !code; twice++)
        code = collective_run(&g, a->algorithm->operation, a->algorithm->name, &call, e);
    group_close(&g);
    a->end[c->rank] = c->device->clock.now;
    return code;
}

/* A call of a group of every stride-th device. */
struct uneven_call { int P, size, stride, count; };

static enum error_code run_uneven(struct comm *c, void *asked, struct error *e)
{
    const struct uneven_call *a = asked;
    struct group g;
    int member[16];
    double in[ELEMENTS * 2] = { 0 }, out[ELEMENTS * 2] = { 0 };
    const struct collective call = { .in = in, .out = out, .count = a->count, .dtype = F64, .reduction = SUM };
    for (int i = 0; i < a->size; i++) member[i] = c->rank % a->stride + i * a->stride;
    enum error_code code = group_of(&g, c, member, a->size, TRAFFIC_OTHER, AXIS_BIT(DP), e);
    for (int twice = 0; twice < 2 && !code; twice++) code = collective_run(&g, ALLREDUCE, "two_shot", &call, e);
    group_close(&g);
    return code;
}

/* Unequal blocks turn with no folding that leaves two members in a class, so the outcome names the first that does
 * not.  After the first such call, of 4 (P - 1) sends and receives, no device sends any more. */
static void test_blocks_that_no_folding_turns(void **state)
{
    static const struct { struct uneven_call call; int every, apart; } of[] = {
        { { 12, 12, 1, 48 }, 1, 0 },                    /* equal blocks turn: folded to one */
        { { 12, 12, 1, 49 }, 1, 12 }, { { 12, 12, 1, 49 }, 4, 12 },
        { { 12, 3, 4, 49 }, 1, 3 },                     /* 0, 4 and 8 are three classes, where every third one runs */
        { { 12, 6, 2, 49 }, 2, 12 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct uneven_call a = of[i].call;
        const struct crew_job job = { "count", F64, &clusters[1], run_uneven, &a };
        const int size[AXIS_COUNT] = { 1, a.P, 1, 1, 1 };
        struct folding f;
        struct crew_outcome o;
        assert_int_equal(mesh_make(&f.mesh, size, &err), OK);
        f = folding_none(&f.mesh), f.every[DP] = of[i].every;
        assert_int_equal(crew_run_folded(&f, NULL, be_device, &job, &o, &err), OK);
        assert_int_equal(o.inexact[0] != '\0', of[i].apart > 0);
        assert_int_equal(o.apart, of[i].apart);
        if (of[i].apart > 0) assert_in_range(o.events, 1, 4 * (uint64_t)(a.size - 1));
    }
}

/* Folded to one member, the call takes as long as with all of them, each of which ends at the same time. */
static void test_collectives_that_turn(void **state)
{
    int turning = 0;
    (void)state;
    for (int i = 0; algorithms[i]; i++)
        for (int P = 2; P <= 16; P++)
            for (int waits = 0; waits < 2; waits++) {
                const struct collective c = { .count = ELEMENTS, .dtype = F64, .reduction = SUM };
                struct cluster flat = clusters[1];
                picoseconds end[16], alone[16];
                struct call all = { algorithms[i], P, &flat, end }, one = { algorithms[i], P, &flat, alone };
                const struct crew_job of_all = { "count", F64, &flat, run_call, &all },
                                      of_one = { "count", F64, &flat, run_call, &one };
                const int size[AXIS_COUNT] = { 1, P, 1, 1, 1 };
                struct folding f;
                struct crew_outcome o;
                if (!algorithms[i]->turns || !algorithms[i]->turns(P, &c)) continue;
                flat.link[0].eager = waits ? 16 : ALWAYS_EAGER, flat.memory_rate = 1000, flat.link[0].gap = 1234;
                flat.link[0].reduces = true;
                assert_int_equal(mesh_make(&f.mesh, size, &err), OK);
                f = folding_none(&f.mesh), f.every[DP] = 1;
                assert_int_equal(crew_run(P, be_device, &of_all, &err), OK);
                assert_int_equal(crew_run_folded(&f, NULL, be_device, &of_one, &o, &err), OK);
                assert_string_equal(o.inexact, "");
                assert_int_equal(o.lives, 1);
                for (int r = 0; r < P; r++)
                    if (end[r] != alone[0])
                        fail_msg("%s %s, P=%d: member %d ends at %lld ps, one that stands for all at %lld",
                                 operation_name(algorithms[i]->operation), algorithms[i]->name, P, r,
                                 (long long)end[r], (long long)alone[0]);
                turning++;
            }
    assert_true(turning > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes), cmocka_unit_test(test_unequal_copies),
        cmocka_unit_test(test_plans), cmocka_unit_test(test_what_is_folded), cmocka_unit_test(test_links),
        cmocka_unit_test(test_groups_inside), cmocka_unit_test(test_what_a_tree_sends), cmocka_unit_test(test_experts),
        cmocka_unit_test(test_stages), cmocka_unit_test(test_sections),
        cmocka_unit_test(test_collectives_that_turn),
        cmocka_unit_test(test_blocks_that_no_folding_turns),
    };
    return cmocka_run_group_tests(tests, open_clusters, NULL);
}
