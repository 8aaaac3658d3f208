/* Loads: a plan is, to the byte and the picosecond, what devices with numbers do whose tokens go to the same experts:
 * every family of mixtures, every router, every dispatch scheme, every kind of load.  Devices with numbers are a crew
 * in this process, too; what they compute is for test_folded_experts.c and others.
 */
#include "emulated_devices/device/backend.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/model/mixture.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/io/output.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"
#include "ref/numeric/philox.h"
#include "tests/devices/on_crew.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/tier.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 2, MOST = 8 };

static struct error err;
static struct cluster clusters[2];

/* ---- what devices do --------------------------------------------------------------------------------------------- */

struct deeds { picoseconds time, computing; double flops; struct arena_use peak; struct ledger counted; };

static struct deeds deeds_of(const struct trainer *t)
{
    return (struct deeds){ t->device->clock.now, t->device->clock.computing, t->device->done.flops,
                           t->device->arena.peak, t->comm->counted };
}

static enum error_code note(struct trainer *t, void *context, struct error *e)
{
    (void)e;
    ((struct deeds *)context)[t->comm->rank] = deeds_of(t);
    return OK;
}

/* Speculative dispatch orders rows by the text; a plan's has only zeros. */
static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    const struct plan *p = context;
    (void)within;
    for (int64_t i = 0; i < count * p->S; i++) {
        const uint64_t at = (uint64_t)(first * p->S + i);
        ids[i] = p->affinity ? 0 : (int32_t)(random_uniform((uint64_t)step, 1, at) * (double)p->model.V);
        labels[i] = (int32_t)(random_uniform((uint64_t)step, 2, at) * (double)p->model.V);
    }
}

/* A run with numbers; chosen: [STEPS, L, rows, k], or NULL: not wanted. */
struct training { const struct plan *plan; struct deeds *deeds; int32_t *chosen; };

static enum error_code train(struct comm *c, void *asked, struct error *e)
{
    const struct training *run = asked;
    const struct plan *p = run->plan;
    const int64_t each = p->model.L * plan_stream_rows(p) * p->model.mixture.k;
    struct trainer t;
    struct step_result result = { 0 };
    enum error_code code = trainer_open(&t, p, c, (struct batch_source){ fill, p }, e);
    if (code) return code;
    if (run->chosen) code = routers_watch(&t, e);
    for (int64_t i = 0; i < STEPS && !code; i++) {
        code = trainer_gradients(&t, &result, e);
        if (!code) code = trainer_update(&t, &result, e);
        run->deeds[c->rank] = deeds_of(&t);
        if (!code && run->chosen) code = routers_bring(&t, run->chosen + i * each, e);
    }
    trainer_close(&t);
    return code;
}

static void run_with_numbers(const struct plan *p, struct deeds *deeds, int32_t *chosen, const char *what)
{
    struct training run = { p, deeds, chosen };
    const struct crew_job j = { "cpu", p->dtype, p->cluster, train, &run };
    memset(deeds, 0, MOST * sizeof *deeds);
    if (crew_run(p->mesh.devices, be_device, &j, &err)) fail_msg("%s: %s", what, err.text);
}

/* ---- a plan beside it -------------------------------------------------------------------------------------------- */

/* Agreements and what this test brings are not of the step. */
static void expect_same_traffic(const struct ledger *plan, const struct ledger *run, int rank, const char *what)
{
    for (int k = 0; k < TRAFFIC_KIND_COUNT; k++)
        for (int op = 0; op < OPERATION_COUNT; op++) {
            const struct traffic *a = &plan->of[k].of[op], *b = &run->of[k].of[op];
            if (op != CONTROL && memcmp(a, b, sizeof *a) != 0)
                fail_msg("%s: device %d sends %llu messages, %llu bytes for %s %s; planned are %llu, %llu", what, rank,
                         (unsigned long long)b->messages_sent, (unsigned long long)b->bytes_sent, traffic_kind_name(k),
                         operation_name(op), (unsigned long long)a->messages_sent, (unsigned long long)a->bytes_sent);
        }
}

static struct { int plans, folded; char why[200]; } seen;

static void expect_plan(const struct plan *p, const struct deeds *run, bool unfolded, const char *what)
{
    struct deeds planned[MOST];
    struct dry_run d;
    memset(planned, 0, sizeof planned);
    if (dry_run(p, STEPS, unfolded, NULL, NULL, note, planned, &d, &err)) fail_msg("%s: %s", what, err.text);
    for (int rank = 0; rank < p->mesh.devices; rank++) {
        const struct deeds *a = &planned[folding_stands_for(&d.folding, rank)], *b = &run[rank];
        if (a->time != b->time || a->computing != b->computing || a->flops != b->flops)
            fail_msg("%s: device %d takes %lld ps for %.0f operations; planned are %lld for %.0f", what, rank,
                     (long long)b->time, b->flops, (long long)a->time, a->flops);
        for (int tag = 0; tag < ARENA_TAG_COUNT; tag++)
            if (a->peak.tag[tag] != b->peak.tag[tag])
                fail_msg("%s: device %d has at most %llu bytes of %s; planned are %llu", what, rank,
                         (unsigned long long)b->peak.tag[tag], arena_tag_name(tag),
                         (unsigned long long)a->peak.tag[tag]);
        if (a->peak.total != b->peak.total)
            fail_msg("%s: device %d has at most %llu bytes; planned are %llu", what, rank,
                     (unsigned long long)b->peak.total, (unsigned long long)a->peak.total);
        expect_same_traffic(&a->counted, &b->counted, rank, what);
    }
    seen.plans++, seen.folded += d.crew.lives < p->mesh.devices;
    snprintf(seen.why, sizeof seen.why, "%s", d.why);
}

/* Experts compute: k rows for each token, unless choices are dropped or not computed; forward, and twice backward. */
static void expect_experts(const struct plan *p, const struct deeds *run, const char *what)
{
    const struct mixture_config *m = &p->model.mixture;
    double done = 0;
    for (int rank = 0; rank < p->mesh.devices; rank++) done += run[rank].flops;
    const double least = STEPS * model_step_flops(&p->model, p->B, p->S);
    if (m->capacity_factor == 0 && m->zero == 0 && m->router.top_p == 0 && done < least)
        fail_msg("%s: %.0f operations are charged, of at least %.0f", what, done, least);
}

/* Choices of a run as a load. */
static void take_choices(struct load *load, const struct plan *p, const int32_t *chosen, const char *what)
{
    char path[300];
    snprintf(path, sizeof path, "%s/orrery-load-XXXXXX", temporary_folder());
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    if (load_write(path, &p->model, chosen, STEPS, plan_stream_rows(p), &err)) fail_msg("%s: %s", what, err.text);
    if (load_open(load, path, &p->model, plan_stream_rows(p), &err)) fail_msg("%s: %s", what, err.text);
    unlink(path);
}

/* Where its routers decide, and with what they have chosen. */
static void compare_learned(struct plan p, const char *what)
{
    struct deeds learned[MOST], again[MOST];
    struct load load;
    int32_t *chosen = calloc((size_t)(STEPS * p.model.L * plan_stream_rows(&p) * p.model.mixture.k), sizeof *chosen);
    assert_non_null(chosen);
    p.load = NULL;
    run_with_numbers(&p, learned, chosen, what);
    take_choices(&load, &p, chosen, what);
    p.load = &load;
    expect_plan(&p, learned, true, what);
    run_with_numbers(&p, again, NULL, what);
    expect_plan(&p, again, false, what);
    load_close(&load), free(chosen);
}

static void compare(struct plan p, const char *word, const char *what)
{
    struct deeds run[MOST];
    struct load load;
    if (strcmp(word, "file") == 0) {
        compare_learned(p, what);
        return;
    }
    if (load_open(&load, word, &p.model, plan_stream_rows(&p), &err)) fail_msg("%s: %s", what, err.text);
    p.load = &load;
    run_with_numbers(&p, run, NULL, what);
    expect_experts(&p, run, what);
    expect_plan(&p, run, true, what);
    expect_plan(&p, run, false, what);
    load_close(&load);
}

/* ---- which plans ------------------------------------------------------------------------------------------------- */

static const char *const loads[] = { "even", "zipf:1.2", "file" };
static const int meshes[][6] = {        /* dp, tp, pp, cp, ep, etp */
    { 2, 1, 1, 1, 2, 1 }, { 2, 2, 1, 1, 2, 2 }, { 4, 1, 1, 1, 4, 1 }, { 2, 2, 1, 1, 1, 1 }, { 2, 1, 2, 1, 2, 1 },
    { 1, 2, 1, 2, 2, 1 }, { 4, 1, 1, 1, 1, 1 }, { 2, 2, 1, 1, 4, 1 }, { 3, 1, 1, 1, 3, 1 }, { 1, 1, 1, 1, 1, 1 },
    { 1, 4, 1, 1, 2, 2 }, { 8, 1, 1, 1, 8, 1 }, { 4, 2, 1, 1, 4, 2 }, { 2, 2, 2, 1, 2, 1 }, { 1, 2, 1, 2, 4, 1 },
    { 4, 1, 1, 1, 2, 1 }, { 1, 2, 2, 2, 4, 1 }, { 1, 1, 2, 2, 2, 1 }, { 2, 1, 2, 2, 2, 2 },
};
enum { MESHES = sizeof meshes / sizeof *meshes };

/* A table without a token: all rows are as likely anywhere. */
static int32_t nobody[CASE_VOCABULARY];
static struct affinity nowhere = { .part = nobody };

static bool take_plan(struct plan *p, const int mesh[6], void (*take)(struct plan *), const struct router *router,
                      const char *dispatch)
{
    *p = case_plan(mesh[0], mesh[1], mesh[2]);
    take(p);
    if (p->model.mlp != MLP_MIXTURE) return false;
    if (router) case_take_router(p, router);
    if (mesh[3] > 1) case_take_context(p, mesh[3], "ring-zigzag");
    const struct expert_scheme *s;
    assert_int_equal(expert_scheme_find(&s, dispatch, &err), OK);
    p->ep = mesh[4], p->etp = mesh[5], p->dispatch = dispatch, p->cluster = &clusters[0];
    if (s->predicts) {
        assert_true(p->model.V <= CASE_VOCABULARY);
        nowhere.parts = p->ep, nowhere.V = p->model.V;
        for (int i = 0; i < CASE_VOCABULARY; i++) nobody[i] = -1;
        p->affinity = &nowhere;
    }
    return plan_check(p, &err) == OK;
}

/* Take a plan with another setting, where it can be had. */
static void try_plan(struct plan *p, struct plan with)
{
    if (plan_check(&with, &err) == OK) *p = with;
}

/* The nth schedule, and the nth way to divide tokens and layers between balance losses. */
static void take_pipeline(struct plan *p, int n)
{
    static const int scopes[][2] = {
        { OVER_MICROBATCH, LAYERS_TOGETHER }, { OVER_SEQUENCE, LAYERS_TOGETHER }, { OVER_MICROBATCH, LAYERS_EACH },
        { OVER_BATCH, LAYERS_TOGETHER }, { OVER_SEQUENCE, LAYERS_EACH }, { OVER_BATCH, LAYERS_EACH },
    };
    int schedules = 0;
    struct plan with = *p;
    while (schedule_generator_at(schedules)) schedules++;
    if (p->mesh.size[PP] > 1 &&
        case_take_schedule(&with, schedule_generator_at(n % schedules)->head.name, &err) == OK) *p = with;
    with = *p;
    with.model.mixture.balance.over = scopes[n % 6][0], with.model.mixture.balance.layers = scopes[n % 6][1];
    try_plan(p, with);
}

static void compare_nth(struct plan p, int n, const char *name)
{
    char what[260];
    const char *const load = loads[n % 3];
    if (n % 4 == 1) p.recompute = "full";
    if (n % 5 == 2) p.dtype = F32;
    if (n % 2) p.cluster = &clusters[1];
    if (plan_check(&p, &err)) p.cluster = &clusters[0];         /* its nodes do not fit */
    take_pipeline(&p, n);
    snprintf(what, sizeof what, "%s dp=%d tp=%d pp=%d cp=%d ep=%d etp=%d %s %s, losses %d %d, load %s, %s%s", name,
             p.mesh.size[DP], p.mesh.size[TP], p.mesh.size[PP], p.mesh.size[CP], p.ep, p.etp, p.dispatch, p.schedule,
             p.model.mixture.balance.over, p.model.mixture.balance.layers, load, p.cluster->name,
             p.recompute ? ", recomputed" : "");
    compare(p, load, what);
}

/* Every schedule by every dispatch scheme, on a pipeline over which experts are folded. */
static void test_schedules(void **state)
{
    static const int mesh[6] = { 2, 2, 2, 1, 4, 1 };
    const int part = tier_now() == TIER_VERIFY ? 1 : tier_now() == TIER_TEST ? 9 : 23;
    int n = 0, compared = 0;
    (void)state;
    for (int s = 0; schedule_generator_at(s); s++)
        for (int i = 0; expert_scheme_at(i); i++)
            for (int pairs = 0; pairs < 2; pairs++) {
                struct plan p;
                if (!take_plan(&p, mesh, case_take_mixtral, NULL, expert_scheme_at(i)->head.name)) continue;
                p.pairs = pairs;
                if (case_take_schedule(&p, schedule_generator_at(s)->head.name, &err) || n++ % part != 0) continue;
                char what[120];
                snprintf(what, sizeof what, "%s%s, %s", p.schedule, pairs ? " in pairs" : "", p.dispatch);
                p.model.mixture.balance.over = n % 2 ? OVER_MICROBATCH : OVER_SEQUENCE;
                compare(p, loads[n % 3], what);
                compared++;
            }
    printf("%d plans of %d\n", compared, n);
    assert_true(n > 80 && compared >= n / part);
}

/* Every family on every mesh by every scheme; below `make verify` some of them. */
static void test_families(void **state)
{
    const int part = tier_now() == TIER_VERIFY ? 1 : tier_now() == TIER_TEST ? 15 : 41;
    int n = 0;
    (void)state;
    for (int model = 0; case_model_at(model); model++)
        for (int mesh = 0; mesh < MESHES; mesh++)
            for (int i = 0; expert_scheme_at(i); i++) {
                struct plan p;
                if (take_plan(&p, meshes[mesh], case_model_at(model)->take, NULL, expert_scheme_at(i)->head.name) &&
                    n++ % part == 0)
                    compare_nth(p, n / part, case_model_at(model)->name);
            }
    printf("%d plans of %d, %d of them folded\n", seen.plans, n, seen.folded);
    assert_true(n > 150 && seen.plans >= n / part);
}

/* Every router: groups, biases, capacities by place and by weight, experts that compute nothing, fewer than k. */
static void test_routers(void **state)
{
    const int part = tier_now() == TIER_VERIFY ? 1 : tier_now() == TIER_TEST ? 23 : 61;
    int n = 0;
    (void)state;
    for (int r = 0; routers[r]; r++)
        for (int mesh = 0; mesh < MESHES; mesh++)
            for (int i = 0; expert_scheme_at(i); i++) {
                struct plan p;
                if (take_plan(&p, meshes[mesh], case_take_mixtral, routers[r], expert_scheme_at(i)->head.name) &&
                    n++ % part == 0)
                    compare_nth(p, n / part, routers[r]->name);
            }
    assert_true(n > 300);
}

/* Sizes that come out even: with an even load devices stand for each other, with others they do not. */
static void test_folds(void **state)
{
    static const struct { int dp, tp, ep; const char *dispatch, *tensor; int lives; } of[] = {
        { 4, 1, 1, "here", "1d", 1 }, { 4, 1, 4, "alltoall", "1d", 1 }, { 4, 1, 2, "alltoall", "1d", 2 },
        { 4, 1, 4, "allgather", "1d", 1 }, { 2, 2, 4, "alltoall", "1d-sp", 2 }, { 4, 1, 4, "two-step", "1d", 4 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int even = 0; even < 2; even++) {
            char what[80];
            struct plan p = case_plan(of[i].dp, of[i].tp, 1);
            case_take_mixtral(&p);
            p.model.mixture.E = 4, p.B = 8, p.model.S = p.S = 8, p.micros = 2;
            p.data.scheme = "zero3", p.model.V = 64, p.model.H = p.model.K = 8, p.model.D = 32, p.model.A = 4;
            p.model.F = 128;
            p.ep = of[i].ep, p.dispatch = of[i].dispatch, p.tensor = of[i].tensor, p.cluster = &clusters[0];
            snprintf(what, sizeof what, "folds? dp=%d tp=%d ep=%d %s, %s", of[i].dp, of[i].tp, of[i].ep, of[i].dispatch,
                     even ? "even" : "zipf:1.2");
            if (plan_check(&p, &err)) fail_msg("%s: %s", what, err.text);
            const int before = seen.folded;
            compare(p, even ? "even" : "zipf:1.2", what);
            if ((seen.folded > before) != (even && of[i].lives < p.mesh.devices))
                fail_msg("%s: %s: %s", what, seen.folded > before ? "is folded" : "is not folded", seen.why);
        }
}

/* ---- the function ------------------------------------------------------------------------------------------------ */

static struct model_config mixture_of(int64_t E, int64_t k)
{
    return (struct model_config){ .L = 3, .mlp = MLP_MIXTURE, .mixture = { .E = E, .k = k } };
}

static void deal(const struct load *load, const struct model_config *c, int64_t layer, int64_t rows, int32_t *choice)
{
    assert_int_equal(load_deal(load, c, rows, 0, layer, 0, rows, choice, &err), OK);
    for (int64_t i = 0; i < rows * c->mixture.k; i++) {
        assert_true(choice_made(choice[i]) >= 0 && choice_made(choice[i]) < mixture_columns(&c->mixture));
        for (int64_t j = i - i % c->mixture.k; j < i; j++)
            assert_true(choice_made(choice[i]) != choice_made(choice[j]));
    }
}

/* As many for each expert, wherever the numbers divide, and never two more than for another. */
static void test_even(void **state)
{
    enum { ROWS = 96 };
    int32_t choice[ROWS * 9];
    (void)state;
    for (int64_t E = 1; E <= 12; E++)
        for (int64_t k = 1; k <= E && k <= 9; k++)
            for (int64_t groups = 0; groups <= E; groups++) {
                struct model_config c = mixture_of(E, k);
                const struct router r = { .rule = { .groups = groups, .kept = 2 } };
                c.mixture.router = router_fit(&r, E, k);
                int64_t got[12] = { 0 }, least = ROWS * k, most = 0;
                deal(NULL, &c, 1, ROWS, choice);
                for (int64_t i = 0; i < ROWS * k; i++) got[choice[i]]++;
                for (int64_t e = 0; e < E; e++)
                    least = got[e] < least ? got[e] : least, most = got[e] > most ? got[e] : most;
                assert_true(most - least <= (ROWS * k % E > 0));
            }
}

/* Counts that follow without dealing are those of the choices that are dealt, wherever the rows begin. */
static void test_counts(void **state)
{
    enum { ROWS = 40 };
    int32_t choice[ROWS * 9];
    (void)state;
    for (int64_t E = 1; E <= 12; E++)
        for (int64_t k = 1; k <= E && k <= 9; k++)
            for (int64_t first = 0; first < 30; first += 7)
                for (int64_t rows = 0; rows <= ROWS; rows += 13) {
                    struct model_config c = mixture_of(E, k);
                    int32_t dealt[12] = { 0 }, counted[12] = { 0 };
                    assert_int_equal(load_deal(NULL, &c, ROWS, 0, 0, first, rows, choice, &err), OK);
                    for (int64_t i = 0; i < rows * k; i++) dealt[choice[i]]++;
                    assert_true(load_count(NULL, &c, first, rows, counted));
                    for (int64_t e = 0; e < E; e++)
                        if (counted[e] != dealt[e])
                            fail_msg("%lld rows from %lld on, %lld of %lld experts a token: expert %lld is dealt %d "
                                     "times, and counted %d times", (long long)rows, (long long)first, (long long)k,
                                     (long long)E, (long long)e, (int)dealt[e], (int)counted[e]);
                    c.mixture.capacity_factor = 1;
                    assert_false(load_count(NULL, &c, first, rows, counted));
                }
}

/* By hand: 8 experts, 2 a token: parts 0 to 3 and 4 to 7, in turn.  In 4 groups of which 2 are kept: 0 1, 2 3 | .. */
static void test_even_order(void **state)
{
    static const int32_t plain[8] = { 0, 4, 1, 5, 2, 6, 3, 7 }, grouped[8] = { 0, 2, 1, 3, 4, 6, 5, 7 },
                         three[6] = { 0, 2, 4, 1, 3, 5 };       /* of 7, the last is dealt after the parts */
    struct model_config c = mixture_of(8, 2);
    int32_t choice[9];
    (void)state;
    deal(NULL, &c, 0, 4, choice);
    assert_memory_equal(choice, plain, sizeof plain);
    c.mixture.router.groups = 4, c.mixture.router.kept = 2;
    deal(NULL, &c, 2, 4, choice);
    assert_memory_equal(choice, grouped, sizeof grouped);
    c = mixture_of(7, 3);
    deal(NULL, &c, 0, 3, choice);
    assert_memory_equal(choice, three, sizeof three);
    assert_int_equal(choice[6], 6);
}

/* A capacity: of 6 rows' choices of an expert the first 2 stay; rows alone are dealt as among all. */
static void test_capacity(void **state)
{
    struct model_config c = mixture_of(3, 2);
    int32_t all[12], one[2];
    (void)state;
    c.mixture.capacity_factor = 0.5;                    /* of 12 choices over 3 experts */
    assert_int_equal(load_deal(NULL, &c, 6, 0, 0, 0, 6, all, &err), OK);
    int32_t taken[3] = { 0 };
    for (int i = 0; i < 12; i++) {
        const int32_t made = choice_made(all[i]);
        assert_true(made >= 0 && made < 3);
        assert_int_equal(all[i], taken[made]++ < 2 ? made : choice_dropped(made));
    }
    for (int row = 0; row < 6; row++) {
        assert_int_equal(load_deal(NULL, &c, 6, 0, 0, row, 1, one, &err), OK);
        assert_memory_equal(one, all + 2 * row, sizeof one);
    }
}

/* Shares in proportion to 1 / n^S, for one choice; n^0: all alike.  5 standard deviations of a binomial. */
static void test_zipf(void **state)
{
    enum { ROWS = 20000, E = 6 };
    static int32_t choice[ROWS * 3];
    const double exponents[] = { 0, 1, 1.2 };
    (void)state;
    for (int s = 0; s < 3; s++) {
        struct model_config c = mixture_of(E, 1);
        char word[20];
        struct load load;
        double all = 0, got[E] = { 0 };
        snprintf(word, sizeof word, "zipf:%g", exponents[s]);
        assert_int_equal(load_open(&load, word, &c, ROWS, &err), OK);
        deal(&load, &c, 1, ROWS, choice);
        for (int i = 0; i < ROWS; i++) got[choice[i]]++;
        for (int n = 1; n <= E; n++) all += pow(n, -exponents[s]);
        for (int n = 1; n <= E; n++) {
            const double share = pow(n, -exponents[s]) / all, seen_share = got[load.expert[E + n - 1]] / ROWS;
            assert_true(fabs(seen_share - share) < 5 * sqrt(share * (1 - share) / ROWS));
        }
        load_close(&load);
        c.mixture.k = 3;                                /* the second choice is of those that are left */
        assert_int_equal(load_open(&load, word, &c, ROWS, &err), OK);
        deal(&load, &c, 1, ROWS, choice);
        load_close(&load);
        c.mixture.k = E;
        assert_int_equal(load_open(&load, word, &c, ROWS, &err), OK);
        deal(&load, &c, 1, ROWS / 100, choice);         /* all of them, each once */
        load_close(&load);
    }
}

static void test_refused(void **state)
{
    const struct model_config c = mixture_of(4, 2);
    static const char *const words[] = { "zipf:", "zipf:x", "zipf:-1", "zipf:11", "zipf:1 ", "zipf:nan" };
    struct load load;
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        assert_int_equal(load_open(&load, words[i], &c, 8, &err), ERR_USAGE);
    assert_int_equal(load_open(&load, "/nowhere/at/all", &c, 8, &err), ERR_FILE);
}

static int open_clusters(void **state)
{
    (void)state;
    assert_int_equal(cluster_find(&clusters[0], CLUSTER_USUAL, &err), OK);
    assert_int_equal(cluster_find(&clusters[1], "a100-ethernet", &err), OK);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_even), cmocka_unit_test(test_counts), cmocka_unit_test(test_even_order),
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_zipf), cmocka_unit_test(test_refused), cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_routers), cmocka_unit_test(test_folds),
    };
    return cmocka_run_group_tests(tests, open_clusters, NULL);
}
