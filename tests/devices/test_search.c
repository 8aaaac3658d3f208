/* The search for plans: pruning by memory never loses the winner, held to brute force; what the planners find, and in
 * which order; a scheme takes part by being registered; estimates beside plans.
 */
#include "emulated_devices/search/planner.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/verify/cases/case.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "tests/tier.h"

static struct error err;
static struct cluster cluster;
static struct plan base;

/* Sizes that four devices divide along every axis, and that differ. */
static int open_base(void **state)
{
    (void)state;
    assert_int_equal(cluster_find(&cluster, CLUSTER_USUAL, &err), OK);
    base = case_plan(1, 1, 1);
    base.model.L = 4, base.model.V = 64, base.model.H = base.model.K = 4, base.model.D = 16, base.model.A = 4;
    base.model.F = 48, base.model.S = base.S = 16, base.B = 8, base.ep = base.etp = 1, base.cluster = &cluster;
    return 0;
}

static struct plan_space space_of(int devices)
{
    struct plan_space s = { .base = &base, .devices = devices };
    s.only[BY_TENSOR] = "1d,1d-sp", s.only[BY_ATTENTION] = "whole,ring-zigzag,ulysses";
    s.only[BY_DATA] = "ddp,zero3", s.only[BY_SCHEDULE] = "1f1b,gpipe", s.only[BY_RECOMPUTE] = "none,full";
    s.only[BY_MICROS] = tier_now() == TIER_VERIFY ? NULL : "2,4";
    assert_int_equal(plan_space_open(&s, &err), OK);
    return s;
}

/* ---- brute force ------------------------------------------------------------------------------------------------- */

/* Every legal plan of a space, planned. */
struct every { struct candidate of[2000]; int count; };

static enum error_code plan_one(const struct plan *p, const struct choice *c, void *context, struct error *e)
{
    struct every *all = context;
    struct candidate *new = &all->of[all->count++];
    assert_true(all->count <= 2000);
    new->choice = *c;
    assert_int_equal(search_bound(p, &new->least, e), OK);
    return search_plan(p, new, e);
}

/* Of the space of four devices, once. */
static const struct every *brute_force(const struct plan_space *s)
{
    static struct every all;
    if (all.count == 0) assert_int_equal(plan_space_each(s, plan_one, &all, &err), OK);
    return &all;
}

static const struct candidate *best_of(const struct every *all, uint64_t memory)
{
    const struct candidate *best = NULL;
    for (int i = 0; i < all->count; i++) {
        const struct candidate *c = &all->of[i];
        if (c->peak <= memory && (!best || c->time < best->time || (c->time == best->time && c->peak < best->peak)))
            best = c;
    }
    return best;
}

static int run_planner(struct search *s, const char *name)
{
    const struct planner *p;
    int ranked;
    assert_int_equal(planner_find(&p, name, &err), OK);
    s->most = p->most;
    if (p->choose(s, &err) || search_rank(s, &ranked, &err)) fail_msg("%s: %s", name, err.text);
    return ranked;
}

static void name_of(const struct plan_space *s, const struct choice *c, char *text)
{
    struct plan p;
    plan_space_make(s, c, &p);
    plan_space_words(&p, text, PLAN_WORDS);
}

/* The exhaustive planner at one memory: its winner is brute force's, and so are the plans that fit. */
static void hold_to(const struct every *all, const struct plan_space *s, uint64_t memory)
{
    const struct candidate *best = best_of(all, memory);
    struct search search = { .space = s, .memory = memory };
    const int ranked = run_planner(&search, "exhaustive");
    int fit = 0;
    char ours[PLAN_WORDS], theirs[PLAN_WORDS];
    for (int i = 0; i < all->count; i++) fit += all->of[i].peak <= memory;
    if (ranked != fit) fail_msg("at %llu bytes %d plans fit, ranked are %d", (unsigned long long)memory, fit, ranked);
    if (best && memcmp(&best->choice, &search.of[0].choice, sizeof best->choice) != 0) {
        name_of(s, &best->choice, theirs), name_of(s, &search.of[0].choice, ours);
        fail_msg("at %llu bytes the best plan is %s with %lld ps; found is %s with %lld", (unsigned long long)memory,
                 theirs, (long long)best->time, ours, (long long)search.of[0].time);
    }
    assert_true(search.planned + search.over == search.count && search.count == all->count);
    search_close(&search);
}

static int by_peak(const void *a, const void *b)
{
    const uint64_t x = ((const struct candidate *)a)->peak, y = ((const struct candidate *)b)->peak;
    return x < y ? -1 : x > y;
}

static void test_brute_force(void **state)
{
    (void)state;
    struct plan_space s = space_of(4);
    const struct every *all = brute_force(&s);
    struct candidate *sorted = malloc(sizeof *sorted * (size_t)all->count);
    memcpy(sorted, all->of, sizeof *sorted * (size_t)all->count);
    qsort(sorted, (size_t)all->count, sizeof *sorted, by_peak);
    printf("%d legal plans of %d meshes; peaks %llu to %llu bytes\n", all->count, s.meshes,
           (unsigned long long)sorted[0].peak, (unsigned long long)sorted[all->count - 1].peak);
    assert_true(all->count > 100);
    for (int i = 0; i < all->count; i++)
        if (all->of[i].least > all->of[i].peak) {
            char words[PLAN_WORDS];
            name_of(&s, &all->of[i].choice, words);
            fail_msg("%s: the lower bound is %llu bytes, the peak %llu", words, (unsigned long long)all->of[i].least,
                     (unsigned long long)all->of[i].peak);
        }
    if (tier_now() == TIER_VERIFY) hold_to(all, &s, sorted[all->count - 1].peak);       /* everything fits */
    hold_to(all, &s, sorted[all->count / 2].peak);
    hold_to(all, &s, sorted[all->count / 10].peak - 1);
    hold_to(all, &s, sorted[0].peak);                   /* one fits */
    hold_to(all, &s, sorted[0].peak - 1);               /* none does */
    free(sorted);
    plan_space_close(&s);
}

/* ---- the order, and the frontier --------------------------------------------------------------------------------- */

static void test_order(void **state)
{
    (void)state;
    struct plan_space s = space_of(4);
    struct search search = { .space = &s };
    const int ranked = run_planner(&search, "exhaustive");
    int *place = calloc((size_t)ranked, sizeof *place);
    for (int i = 1; i < ranked; i++) assert_true(search.of[i - 1].time <= search.of[i].time);
    const int n = search_frontier(search.of, ranked, place);
    assert_true(n >= 2 && place[0] == 0);
    for (int i = 0; i < ranked; i++) {                  /* each is on the frontier, or beaten by one that is */
        bool on = false, beaten = false;
        for (int k = 0; k < n; k++) {
            const struct candidate *f = &search.of[place[k]];
            on = on || place[k] == i;
            beaten = beaten || (place[k] != i && f->time <= search.of[i].time && f->peak <= search.of[i].peak);
        }
        assert_true(on != beaten);
    }
    for (int i = 0; i < ranked; i++) {
        const struct step_share *h = &search.of[i].share;
        const picoseconds sum = h->computing + step_share_bubble(h) + step_share_exposed(h);
        assert_true(sum <= search.of[i].time && sum > search.of[i].time - 100);
    }
    free(place);
    search_close(&search), plan_space_close(&s);
}

static bool has_mesh(const struct candidate *of, int count, int mesh)
{
    int i = 0;
    while (i < count && of[i].choice.value[BY_MESH] != mesh) i++;
    return i < count;
}

/* Also at meshes on which the first scheme of each kind is not legal, such as whole sequences with cp. */
static void check_every_mesh(const struct plan_space *s, const struct every *all, const struct search *search)
{
    for (int m = 0; m < s->meshes; m++) {
        struct plan p = *s->base;
        plan_space_set(s, BY_MESH, &p, m);
        if (has_mesh(all->of, all->count, m) && !has_mesh(search->of, search->count, m))
            fail_msg("the beam never looks at dp %d, cp %d, tp %d, pp %d, which has legal plans", p.mesh.size[DP],
                     p.mesh.size[CP], p.mesh.size[TP], p.mesh.size[PP]);
    }
}

/* The beam looks at less, and finds as good a plan here; its plans are legal ones. */
static void test_beam(void **state)
{
    (void)state;
    struct plan_space s = space_of(4);
    const struct every *all = brute_force(&s);
    for (int tight = 0; tight < 2; tight++) {
        struct search search = { .space = &s, .memory = tight ? 150000 : 0 };
        const int ranked = run_planner(&search, "beam");
        const struct candidate *best = best_of(all, tight ? search.memory : UINT64_MAX);
        assert_true(ranked > 0 && best);
        printf("beam: %d of %d plans looked at, %lld planned; %.4f times the best\n", search.count, all->count,
               (long long)search.planned, (double)search.of[0].time / (double)best->time);
        assert_true(search.count < all->count);
        check_every_mesh(&s, all, &search);
        assert_true(search.of[0].peak <= (tight ? search.memory : UINT64_MAX));
        assert_true((double)search.of[0].time <= 1.05 * (double)best->time);
        search_close(&search);
    }
    plan_space_close(&s);
}

/* ---- estimates --------------------------------------------------------------------------------------------------- */

/* Of pipelines, which are not estimated from the plan itself. */
/* A search that shall end after so many questions. */
struct patience { int left, asked; };

static bool is_over(void *context)
{
    struct patience *patience = context;
    patience->asked++;
    return patience->left-- <= 0;
}

/* Whenever a search ends, it says that it ended early, and its plan is no worse than with less patience.  With enough
 * patience it has what a search without an end has. */
static void test_early_end(void **state)
{
    (void)state;
    struct plan_space s = space_of(4);
    const struct every *all = brute_force(&s);
    static const char *const planners[] = { "beam", "exhaustive" };
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < all->count; i++) least = all->of[i].peak < least ? all->of[i].peak : least;
    const uint64_t memory = least + least / 4;
    for (int k = 0; k < 2; k++) {
        struct search whole = { .space = &s, .memory = memory };
        struct patience endless = { .left = 1 << 30 };
        whole.ends = is_over, whole.context = &endless;
        assert_true(run_planner(&whole, planners[k]) > 0);
        assert_false(whole.ended);
        picoseconds last = INT64_MAX;
        for (int left = 0; left <= endless.asked; left += 1 + left / 2) {
            struct patience patience = { .left = left };
            struct search search = { .space = &s, .memory = memory, .ends = is_over, .context = &patience };
            if (run_planner(&search, planners[k]) < 1) {
                /* The plans so far do not fit; a search with an answer has one with more patience, too. */
                assert_true(search.ended && last == INT64_MAX);
            } else {
                const struct candidate *best = search_best(&search);
                assert_ptr_equal(best, &search.of[0]);
                assert_true(best->peak <= memory && best->time >= whole.of[0].time);
                if (best->time > last) fail_msg("%s: worse after %d questions", planners[k], left);
                last = best->time;
                assert_true(search.ended == (left < endless.asked));
            }
            search_close(&search);
        }
        search_close(&whole);
    }
    plan_space_close(&s);
}

static void test_estimates(void **state)
{
    (void)state;
    struct plan_space s = space_of(4);
    struct search search = { .space = &s, .most = 1 };
    double worst = 1;
    int n = 0, close = 0;
    assert_int_equal(planner_at(1)->choose(&search, &err), OK);
    for (int i = 0; i < search.count; i++) {
        struct plan p;
        struct candidate c = search.of[i];
        if (!plan_space_make(&s, &c.choice, &p) || i % 3 != 0) continue;
        assert_int_equal(search_plan(&p, &c, &err), OK);
        const double ratio = c.estimate > c.time ? (double)c.estimate / (double)c.time
                                                 : (double)c.time / (double)c.estimate;
        worst = ratio > worst ? ratio : worst;
        n++, close += ratio < 1.25;
    }
    printf("%d of %d estimates within a quarter of the plan, the worst %.2f times\n", close, n, worst);
    assert_true(close >= n * 9 / 10 && worst < 2);
    search_close(&search), plan_space_close(&s);
}

/* ---- arrangements ------------------------------------------------------------------------------------------------ */

/* A space of one mesh, cp 4, in which splits and shards are chosen. */
static struct plan_space space_of_arrangements(void)
{
    struct plan_space s = { .base = &base, .devices = 4, .splits = true, .shards = true };
    s.sizes[CP] = "4", s.sizes[TP] = "1", s.only[BY_MICROS] = "1", s.only[BY_RECOMPUTE] = "none";
    s.only[BY_ATTENTION] = "loongtrain,ring-zigzag", s.only[BY_DATA] = "buff,ddp";
    assert_int_equal(plan_space_open(&s, &err), OK);
    return s;
}

/* Every split and all shards of a mesh are looked at once, by both planners, and have estimates of their own. */
static void test_arrangements(void **state)
{
    (void)state;
    struct plan_space s = space_of_arrangements();
    struct search search = { .space = &s }, beam = { .space = &s };
    char words[PLAN_WORDS], found[PLAN_WORDS];
    picoseconds estimate[2] = { 0 };
    const int ranked = run_planner(&search, "exhaustive");
    /* h = 4; h = 2 in both placements; h = 1 without and with windows of 2; a ring.  1|1|1 to 4|4|4, and ddp. */
    assert_int_equal(ranked, (1 + 2 + 2 + 1) * (10 + 1));
    assert_true(run_planner(&beam, "beam") > 0);
    name_of(&s, &search.of[0].choice, words), name_of(&s, &beam.of[0].choice, found);
    if (beam.of[0].time > search.of[0].time)
        fail_msg("the beam takes %lld ps, %s; the best arrangement %lld, %s", (long long)beam.of[0].time, found,
                 (long long)search.of[0].time, words);
    for (int i = 0; i < ranked; i++) {
        name_of(&s, &search.of[i].choice, words);
        if (strstr(words, "ddp") == NULL) continue;
        if (strstr(words, "--head-parallel 4")) estimate[0] = search.of[i].estimate;
        if (strstr(words, "--head-parallel 1 --ring-window 2")) estimate[1] = search.of[i].estimate;
    }
    if (estimate[0] == 0 || estimate[0] == estimate[1]) fail_msg("estimates of a split are %lld and %lld ps",
                                                                 (long long)estimate[0], (long long)estimate[1]);
    search_close(&search), search_close(&beam), plan_space_close(&s);
}

/* ---- the registry ------------------------------------------------------------------------------------------------ */

static enum error_code look_for(const struct plan *p, const struct choice *c, void *context, struct error *e)
{
    int *seen = context;
    (void)c, (void)e;
    seen[0] += strcmp(p->data.scheme, "mine") == 0;
    seen[1] += strcmp(p->data.scheme, "mine-differs") == 0 || strcmp(p->data.scheme, "diloco") == 0;
    return OK;
}

/* ---- groups ------------------------------------------------------------------------------------------------------ */

static bool is_near(const struct candidate *first, const struct candidate *c)
{
    return first->choice.value[BY_MESH] == c->choice.value[BY_MESH] && (double)c->time < 1.01 * (double)first->time &&
           (double)c->peak > 0.99 * (double)first->peak;
}

/* Every plan is near the first of its group and of no earlier group; of equal ones the usual words stand first. */
static void test_groups(void **state)
{
    (void)state;
    struct plan_space s = space_of(4);
    s.only[BY_DATA] = "fsdp,zero3,buff,zero1,ddp";
    struct search search = { .space = &s };
    const int ranked = run_planner(&search, "exhaustive");
    int *first = calloc((size_t)ranked, sizeof *first), equal = 0, firsts = 0;
    const int groups = search_group(search.of, ranked, first);
    for (int i = 0; i < ranked; i++) {
        const struct candidate *c = search.of;
        firsts += first[i] == i;
        assert_true(first[i] == i || (first[i] < i && first[first[i]] == first[i] && is_near(&c[first[i]], &c[i])));
        for (int k = 0; k < first[i]; k++) assert_false(first[k] == k && is_near(&c[k], &c[i]));
        if (i == 0 || !search_equal(&c[i - 1], &c[i])) continue;
        assert_int_equal(first[i - 1], first[i]);
        assert_true(c[i - 1].unusual <= c[i].unusual);
        equal++;
    }
    printf("%d plans, %d groups, %d equal to the one before\n", ranked, groups, equal);
    assert_int_equal(firsts, groups);
    assert_true(equal > 0 && groups < ranked - equal);
    free(first);
    search_close(&search), plan_space_close(&s);
}

/* A step with more events than are kept has its time and peak all the same, and its share is said to be unknown. */
static void test_too_many_events(void **state)
{
    (void)state;
    struct plan_space s = space_of(2);
    struct search kept = { .space = &s }, lost = { .space = &s, .most_events = 100 };
    const int ranked = run_planner(&kept, "exhaustive");
    assert_int_equal(run_planner(&lost, "exhaustive"), ranked);
    for (int i = 0; i < ranked; i++) {
        assert_true(kept.of[i].share_known && !lost.of[i].share_known);
        assert_true(kept.of[i].share.computing > 0 && kept.of[i].sent > 0);
        assert_true(kept.of[i].time == lost.of[i].time && kept.of[i].peak == lost.of[i].peak);
    }
    search_close(&kept), search_close(&lost), plan_space_close(&s);
}

/* A difference has the values of the second plan, also those that its words leave out. */
static void test_difference(void **state)
{
    (void)state;
    struct plan a = base, b;
    char text[PLAN_WORDS];
    const int size[AXIS_COUNT] = { [PP] = 1, [DP] = 4, [CP] = 1, [EP] = 1, [TP] = 1 };
    assert_int_equal(mesh_make(&a.mesh, size, &err), OK);
    a.micros = 2, a.data.scheme = "ddp", a.recompute = "full", b = a;
    b.micros = 1, b.data.scheme = "buff", b.recompute = NULL;
    assert_string_equal(plan_space_words(&b, text, sizeof text), "--dp 4 --data-parallel buff --micro 1");
    assert_string_equal(plan_space_difference(&a, &b, text, sizeof text),
                        "--data-parallel buff --recompute none --micro 1");
    assert_string_equal(plan_space_difference(&a, &a, text, sizeof text), "");
    assert_int_equal(plan_space_unusual(&a, &b), 2);
}

/* What is registered takes part, unless it trains another function. */
static void test_registered(void **state)
{
    static struct data_scheme mine, differs;
    const struct data_scheme *zero1;
    int seen[2] = { 0 };
    (void)state;
    assert_int_equal(data_scheme_find(&zero1, "zero1", &err), OK);
    mine = differs = *zero1;
    mine.head.name = "mine", differs.head.name = "mine-differs", differs.head.equality = DIFFERS;
    assert_int_equal(scheme_add(&mine.head, &err), OK);
    assert_int_equal(scheme_add(&differs.head, &err), OK);
    struct plan_space s = space_of(2);
    s.only[BY_DATA] = NULL;
    assert_int_equal(plan_space_each(&s, look_for, seen, &err), OK);
    assert_true(seen[0] > 0);
    assert_int_equal(seen[1], 0);
    plan_space_close(&s);
}

/* ---- changes ----------------------------------------------------------------------------------------------------- */

static void test_changes(void **state)
{
    (void)state;
    struct plan_space s = space_of(4);
    struct change change[3];
    struct plan p = base;
    const int size[AXIS_COUNT] = { [PP] = 1, [DP] = 4, [CP] = 1, [EP] = 1, [TP] = 1 };
    assert_int_equal(mesh_make(&p.mesh, size, &err), OK);
    p.micros = 2, p.data.scheme = "ddp";
    assert_int_equal(plan_check(&p, &err), OK);
    struct candidate c = { .time = 0 };
    assert_int_equal(search_plan(&p, &c, &err), OK);
    const uint64_t memory = c.peak * 3 / 4;
    const int n = search_changes(&s, &p, memory, change, 3);
    for (int i = 0; i < n; i++) {
        printf("%s: %llu of %llu bytes, %lld ps\n", change[i].words, (unsigned long long)change[i].peak,
               (unsigned long long)memory, (long long)change[i].time);
        assert_true(change[i].peak <= memory && change[i].words[0] == '-');
        assert_true(i == 0 || change[i - 1].time <= change[i].time);
    }
    assert_true(n >= 2);
    assert_int_equal(search_changes(&s, &p, 1000, change, 3), 0);
    plan_space_close(&s);
}

/* ---- words that are wrong ---------------------------------------------------------------------------------------- */

static void refuse(struct plan_space s, const char *what)
{
    s.base = &base, s.mesh = NULL, s.meshes = 0;
    assert_true(plan_space_open(&s, &err) != OK);
    if (strstr(err.text, what) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, what);
    plan_space_close(&s);
}

static void test_wrong_words(void **state)
{
    (void)state;
    refuse((struct plan_space){ .devices = 4, .only = { [BY_TENSOR] = "1d,1d-pp" } }, "--tensor 1d-pp");
    refuse((struct plan_space){ .devices = 4, .only = { [BY_MICROS] = "2,x" } }, "--micro 2,x");
    refuse((struct plan_space){ .devices = 4, .only = { [BY_MICROS] = "2," } }, "--micro 2,");
    refuse((struct plan_space){ .devices = 4, .only = { [BY_RECOMPUTE] = "all" } }, "--recompute all");
    refuse((struct plan_space){ .devices = 4, .sizes = { [TP] = "0" } }, "--tp 0");
    refuse((struct plan_space){ .devices = 4, .sizes = { [TP] = "" } }, "--tp");
    refuse((struct plan_space){ .devices = 4, .sizes = { [TP] = "3" } }, "cannot be divided by the 3 of --tp 3");
    assert_int_equal(planner_find(&(const struct planner *){ NULL }, "beem", &err), ERR_USAGE);
    assert_non_null(strstr(err.text, "beam"));
}

/* ---- memory of the search itself --------------------------------------------------------------------------------- */

/* Blocks and bytes of ids, positions and labels of a device's microbatches, each block once. */
struct integers { int blocks, micros; };

static enum error_code count_integers(struct trainer *trainer, void *context, struct error *e)
{
    struct integers *const n = context;
    const struct stage *const s = &trainer->stage[0];
    (void)e;
    for (int i = 0; i < trainer->plan.micros; i++, n->micros++) {
        int first = 0;
        while (s->micro[first].ids.data != s->micro[i].ids.data) first++;
        n->blocks += first == i;
    }
    return OK;
}

/* A search plans hundreds of devices at once: they hold the tokens of one microbatch, not of the whole batch. */
static void test_microbatches_share_integers(void **state)
{
    struct plan p = base;
    struct dry_run d;
    struct integers n = { 0, 0 };
    (void)state;
    p.micros = 8;
    assert_int_equal(plan_check(&p, &err), OK);
    assert_int_equal(dry_run(&p, 1, true, NULL, NULL, count_integers, &n, &d, &err), OK);
    assert_int_equal(n.micros, 8);
    assert_int_equal(n.blocks, 1);
}

/* A search with a bound of work ends at the same place each time, and says what it left out. */
static void test_bounded_work(void **state)
{
    struct plan_space s = { .base = &base, .devices = 4 };
    struct search search[2];
    int ranked[2];
    (void)state;
    assert_int_equal(plan_space_open(&s, &err), OK);
    for (int i = 0; i < 2; i++) {
        const struct planner *beam;
        assert_int_equal(planner_find(&beam, "beam", &err), OK);
        search[i] = (struct search){ .space = &s, .most = beam->most, .work_most = 2e4 };
        assert_int_equal(beam->choose(&search[i], &err), OK);
        assert_int_equal(search_rank(&search[i], &ranked[i], &err), OK);
        assert_true(search[i].unseen > 0);
        if (search[i].dear == 0) fail_msg("%d of %d plans were planned", (int)search[i].planned, search[i].count);
        assert_true(ranked[i] > 0);
    }
    assert_int_equal(search[0].count, search[1].count);
    assert_int_equal(search[0].dear, search[1].dear);
    assert_int_equal(search[0].of[0].time, search[1].of[0].time);
    search_close(&search[0]), search_close(&search[1]);
    plan_space_close(&s);
}

/* A search of so much work, with so much memory a device. */
static struct search search_bounded(struct plan_space *s, double work, uint64_t memory, int *ranked)
{
    const struct planner *beam;
    assert_int_equal(planner_find(&beam, "beam", &err), OK);
    struct search search = { .space = s, .most = beam->most, .work_most = work, .memory = memory };
    assert_int_equal(beam->choose(&search, &err), OK);
    assert_int_equal(search_rank(&search, ranked, &err), OK);
    return search;
}

/* Where nothing fits, bounds are work, too, so that not every start is changed.  Where no plan is worth its work, the
 * one that takes least is planned all the same: an answer is owed. */
static void test_bounds_are_work(void **state)
{
    struct plan_space s = { .base = &base, .devices = 4 };
    int ranked;
    (void)state;
    assert_int_equal(plan_space_open(&s, &err), OK);
    struct search all = search_bounded(&s, 0, 1, &ranked), few = search_bounded(&s, 2e4, 1, &ranked);
    assert_int_equal(ranked, 0);
    assert_int_equal(all.unimproved + all.unseen, 0);
    assert_true(few.unimproved > 0);
    assert_true(few.count < all.count);
    search_close(&all), search_close(&few);
    few = search_bounded(&s, 1, 0, &ranked);
    assert_int_equal(few.planned, 1);
    assert_int_equal(ranked, 1);
    for (int i = 1; i < few.count; i++) assert_true(few.of[i].work >= few.of[0].work);
    search_close(&few);
    plan_space_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_microbatches_share_integers),
        cmocka_unit_test(test_bounded_work), cmocka_unit_test(test_bounds_are_work),
        cmocka_unit_test(test_brute_force), cmocka_unit_test(test_order),      cmocka_unit_test(test_beam),
        cmocka_unit_test(test_early_end),
        cmocka_unit_test(test_estimates),   cmocka_unit_test(test_changes),    cmocka_unit_test(test_wrong_words),
        cmocka_unit_test(test_groups),      cmocka_unit_test(test_too_many_events), cmocka_unit_test(test_difference),
        cmocka_unit_test(test_arrangements), cmocka_unit_test(test_registered),
    };
    return cmocka_run_group_tests(tests, open_base, NULL);
}
