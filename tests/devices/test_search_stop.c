/* A step that is planned is stopped in the middle, and a search then has what it had before; estimates of mixtures
 * whose first layers are dense.
 */
#include "emulated_devices/search/planner.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/model/config.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static struct error err;
static struct cluster cluster;

/* Four devices of a pipeline of two stages, whose step has some thousand messages. */
static struct plan piped_plan(void)
{
    struct plan p = case_plan(1, 1, 1);
    const int size[AXIS_COUNT] = { [PP] = 2, [DP] = 2, [CP] = 1, [EP] = 1, [TP] = 1 };
    assert_int_equal(mesh_make(&p.mesh, size, &err), OK);
    p.model.L = 4, p.model.V = 64, p.model.H = p.model.K = 4, p.model.D = 16, p.model.A = 4;
    p.model.F = 48, p.model.S = p.S = 16, p.B = 128, p.micros = 64, p.ep = p.etp = 1, p.cluster = &cluster;
    p.data.scheme = "ddp";
    assert_int_equal(plan_check(&p, &err), OK);
    return p;
}

/* Somebody who asks for the end after so many questions, and counts those behind that. */
struct asker { int left, asked, later; };

static bool asks(void *context)
{
    struct asker *a = context;
    if (a->left < 0) a->later++;
    a->asked++;
    return a->left-- <= 0;
}

static enum error_code ignore(struct trainer *trainer, void *context, struct error *e)
{
    (void)trainer, (void)context, (void)e;
    return OK;
}

/* A step that is asked to end sends at most a tenth of what was left, wherever it is. */
static void test_step_stops(void **state)
{
    (void)state;
    const struct plan p = piped_plan();
    struct asker endless = { .left = 1 << 30 };
    struct dry_run whole, part;
    const struct crew_stop never = { asks, &endless };
    assert_int_equal(dry_run_step(&p, &never, NULL, ignore, NULL, &whole, &err), OK);
    if (endless.asked < 20 || whole.crew.stopped) fail_msg("a step that nobody ends asks %d times", endless.asked);
    for (int left = 0; left < endless.asked; left += endless.asked / 5) {
        struct asker asker = { .left = left };
        const struct crew_stop stop = { asks, &asker };
        const enum error_code e = dry_run_step(&p, &stop, NULL, ignore, NULL, &part, &err);
        if (e != ERR_STOPPED) fail_msg("asked to end by question %d, the step runs to its end", asker.asked);
        const uint64_t before = whole.crew.events * (uint64_t)asker.asked / (uint64_t)endless.asked,
                       most = before + whole.crew.events / 10 + 32;
        if (asker.later > 0 || part.crew.events > most)
            fail_msg("asked to end at message %llu of %llu, the step goes on to message %llu, and asks %d times more",
                     (unsigned long long)before, (unsigned long long)whole.crew.events,
                     (unsigned long long)part.crew.events, asker.later);
    }
}

/* A search that is stopped while a plan is planned has the plans before, and the stopped one has no time. */
static void test_search_stops(void **state)
{
    (void)state;
    const struct plan base = piped_plan();
    struct plan_space s = { .base = &base, .devices = 4 };
    struct search whole = { .space = &s, .most = 8 }, search;
    struct asker endless = { .left = 1 << 30 };
    int ranked, stopped = 0;
    s.only[BY_TENSOR] = "1d", s.only[BY_ATTENTION] = "whole", s.only[BY_RECOMPUTE] = "none", s.only[BY_MICROS] = "8";
    s.only[BY_DATA] = "ddp,zero3", s.only[BY_SCHEDULE] = "1f1b";
    assert_int_equal(plan_space_open(&s, &err), OK);
    whole.stop = (struct crew_stop){ asks, &endless };
    assert_int_equal(planner_at(0)->choose(&whole, &err), OK);
    assert_int_equal(search_rank(&whole, &ranked, &err), OK);
    assert_true(ranked > 1 && !whole.ended);
    for (int left = 0; left < endless.asked; left += 1 + endless.asked / 24) {
        struct asker asker = { .left = left };
        search = (struct search){ .space = &s, .most = 8, .stop = { asks, &asker } };
        assert_int_equal(planner_at(0)->choose(&search, &err), OK);
        assert_int_equal(search_rank(&search, &ranked, &err), OK);
        int planned = 0;
        for (int i = 0; i < search.count; i++) planned += search.of[i].time > 0;
        assert_true(search.ended);
        assert_int_equal(search.planned, planned);
        assert_int_equal(ranked, planned);
        stopped += planned > 0;
        search_close(&search);
    }
    if (stopped < 4) fail_msg("only %d of the stopped searches had a plan", stopped);
    search_close(&whole), plan_space_close(&s);
}

static struct model_config model_of(const char *name)
{
    int i = 0;
    while (model_presets[i].config.name[0] && strcmp(model_presets[i].config.name, name) != 0) i++;
    assert_string_equal(model_presets[i].config.name, name);
    return model_presets[i].config;
}

/* The first layers of these are dense, and no model has only such: what an estimate plans has a mixture, too. */
static void test_dense_layers_first(void **state)
{
    static const char *const names[] = { "deepseek-v3-tiny", "deepseek-v2-tiny", "glm4-moe-tiny" };
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct plan p = case_plan(2, 1, 1);
        struct estimator estimator = { .count = 0 };
        struct estimate estimate;
        struct candidate planned = { .time = 0 };
        p.model = model_of(names[i]);
        p.S = p.model.S, p.B = 4, p.micros = 1, p.ep = p.etp = 1, p.cluster = &cluster, p.data.scheme = "ddp";
        if (plan_check(&p, &err)) fail_msg("%s: %s", names[i], err.text);
        if (estimate_step(&estimator, &p, &estimate, &err)) fail_msg("%s has no estimate: %s", names[i], err.text);
        assert_int_equal(search_plan(&p, &planned, &err), OK);
        const double ratio = (double)estimate.time / (double)planned.time;
        if (!(ratio > 0.5 && ratio < 2 && estimate.work > 0))
            fail_msg("%s: a step takes %lld ps, its estimate is %lld", names[i], (long long)planned.time,
                     (long long)estimate.time);
        estimator_close(&estimator);
    }
}

static int open_cluster(void **state)
{
    (void)state;
    assert_int_equal(cluster_find(&cluster, CLUSTER_USUAL, &err), OK);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_step_stops), cmocka_unit_test(test_search_stops),
        cmocka_unit_test(test_dense_layers_first),
    };
    return cmocka_run_group_tests(tests, open_cluster, NULL);
}
