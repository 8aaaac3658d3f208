/* Where the time of a planned step goes: the pieces of the critical path follow each other from the end of the step to
 * its beginning; a device's work and waits fill the step; both are known for two devices by hand.
 * tier: check
 */
#include "emulated_devices/device/contention.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/train/dry_run/step_path.h"
#include "emulated_devices/verify/cases/case.h"
#include "tests/devices/on_crew.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "tests/tier.h"

enum { MOST = 64 };
static struct error err;

/* ---- a path that is watched -------------------------------------------------------------------------------------- */

struct seen {
    const char *what;
    const struct cluster *cluster;
    picoseconds now, kind[3], traffic[TRAFFIC_KIND_COUNT], level[CLUSTER_LEVELS];
    int pieces;
};

static void watch(const struct path_piece *p, void *context)
{
    struct seen *s = context;
    if (s->pieces > 0 && p->to != s->now)
        fail_msg("%s: a piece ends at %lld ps, the next one begins at %lld", s->what, (long long)p->to,
                 (long long)s->now);
    if (p->from >= p->to) fail_msg("%s: a piece from %lld to %lld", s->what, (long long)p->from, (long long)p->to);
    s->now = p->from, s->pieces++;
    s->kind[p->kind] += p->to - p->from;
    if (p->kind == PATH_MESSAGE) s->traffic[p->traffic] += p->to - p->from;
    if (p->kind == PATH_MESSAGE && s->cluster)
        s->level[link_between(s->cluster->link, s->cluster->levels, p->sender, p->device)] += p->to - p->from;
}

/* ---- whole plans ------------------------------------------------------------------------------------------------- */

struct planned {
    struct dry_events lists;
    struct events **events;             /* of the lists */
    picoseconds time[MOST], computing[MOST];
    struct dry_run d;
};

static enum error_code note(struct trainer *t, void *context, struct error *e)
{
    struct planned *r = context;
    (void)e;
    r->time[t->comm->rank] = t->device->clock.now, r->computing[t->comm->rank] = t->device->clock.computing;
    return OK;
}

static struct planned *run_plan_of(struct plan *p, bool unfolded, const char *what)
{
    struct planned *r = calloc(1, sizeof *r);
    assert_int_equal(dry_events_open(&r->lists, MOST, NULL, &err), OK);
    r->events = r->lists.of;
    if (plan_check(p, &err)) fail_msg("%s: %s", what, err.text);
    if (dry_run(p, 1, unfolded, &r->lists, NULL, note, r, &r->d, &err)) fail_msg("%s: %s", what, err.text);
    return r;
}

static void close_run(struct planned *r)
{
    dry_events_close(&r->lists, MOST);
    free(r);
}

static picoseconds sum_of(const struct step_share *s)
{
    picoseconds sum = s->computing + s->engines + s->ended;
    for (int k = 0; k < TRAFFIC_KIND_COUNT; k++) {
        if (s->waiting[k] < 0) return -1;
        sum += s->waiting[k];
    }
    return s->engines < 0 || s->ended < 0 ? -1 : sum;
}

/* The path and the shares of a run.  @return what was seen. */
static struct seen hold(const struct planned *r, const struct cluster *c, picoseconds end, const char *what)
{
    struct seen seen = { .what = what, .cluster = c, .now = end };
    const picoseconds total = step_path(&r->d.folding, r->events, watch, &seen);
    if (total != end)
        fail_msg("%s: the step ends at %lld ps, the path at %lld", what, (long long)end, (long long)total);
    if (seen.now != 0) fail_msg("%s: the path begins at %lld ps", what, (long long)seen.now);
    for (int d = 0; d < r->d.folding.mesh.devices; d++) {
        if (folding_stands_for(&r->d.folding, d) != d) continue;
        const struct step_share s = step_share(r->events[d], end);
        if (sum_of(&s) != end)
            fail_msg("%s: device %d works and waits %lld ps, of %lld", what, d, (long long)sum_of(&s), (long long)end);
        if (step_share_bubble(&s) + step_share_exposed(&s) + s.computing != end)
            fail_msg("%s: device %d: bubble and exposed communication are not the rest", what, d);
        if (s.computing > r->computing[d])
            fail_msg("%s: device %d computes %lld ps, by its clock %lld", what, d, (long long)s.computing,
                     (long long)r->computing[d]);
    }
    return seen;
}

static picoseconds last_of(const struct planned *r)
{
    picoseconds end = 0;
    for (int d = 0; d < MOST; d++) end = r->time[d] > end ? r->time[d] : end;
    return end;
}

/* Folded and unfolded: both add up, and nothing is unknown. */
static void compare(struct plan p, const char *what)
{
    struct planned *all = run_plan_of(&p, true, what), *some = run_plan_of(&p, false, what);
    const struct seen a = hold(all, p.cluster, last_of(all), what),
                      b = hold(some, p.cluster, last_of(all), what);
    if (a.kind[PATH_IDLE] || b.kind[PATH_IDLE])
        fail_msg("%s: %lld ps of the path wait for nothing that is known", what, (long long)a.kind[PATH_IDLE]);
    if (a.kind[PATH_MESSAGE] == 0 || a.kind[PATH_WORK] == 0) fail_msg("%s: the path has only one kind of piece", what);
    close_run(all), close_run(some);
}

/* Copies on two nodes of 4: what they send goes between nodes, also where one of them stands for both. */
static void test_levels(void **state)
{
    static struct cluster c;
    (void)state;
    assert_int_equal(cluster_find(&c, "a100-ethernet", &err), OK);
    c.link[c.levels - 2].devices = 4, c.link[c.levels - 1].rate /= 1000;
    struct plan p = case_plan(2, 4, 1);
    p.model.V = 64, p.model.H = p.model.K = 8, p.model.D = 32, p.model.A = 4, p.model.F = 128, p.B = 48;
    p.model.S = p.S = 8, p.cluster = &c, p.data.scheme = "zero3";
    struct planned *r = run_plan_of(&p, false, "levels");
    assert_int_equal(r->d.folding.every[DP], 1);
    const struct seen s = hold(r, &c, last_of(r), "levels");
    assert_true(s.level[c.levels - 1] > s.kind[PATH_WORK]);
    assert_int_equal(s.level[c.levels - 1] + s.level[c.levels - 2], s.kind[PATH_MESSAGE]);
    close_run(r);
}

static void test_plans(void **state)
{
    static const int meshes[][3] = { { 2, 1, 1 }, { 1, 2, 1 }, { 1, 1, 2 }, { 2, 2, 1 }, { 2, 2, 2 }, { 4, 1, 2 },
                                     { 2, 3, 2 }, { 1, 4, 4 } };
    static const char *const data[] = { "ddp", "zero1", "zero3" }, *const schedules[] = { "1f1b", "zb-h1", "gpipe" };
    static struct cluster clusters[2];
    const int step = tier_now() == TIER_VERIFY ? 1 : 3;
    char what[120];
    (void)state;
    assert_int_equal(cluster_find(&clusters[0], CLUSTER_USUAL, &err), OK);
    assert_int_equal(cluster_find(&clusters[1], "a100-ethernet", &err), OK);
    for (int l = 0; l < clusters[0].levels; l++) clusters[0].link[l].eager = 256;       /* rendezvous */
    for (int n = 0; n < 8 * 3 * 2; n += step) {
        const int m = n % 8;
        struct plan p = case_plan(meshes[m][0], meshes[m][1], meshes[m][2]);
        p.data.scheme = data[n / 8 % 3], p.cluster = &clusters[n / 24], p.micros = 3;
        p.schedule = schedules[n / 8 % 3], p.recompute = n % 5 == 0 ? "full" : NULL;
        snprintf(what, sizeof what, "dp=%d tp=%d pp=%d %s %s %s", meshes[m][0], meshes[m][1], meshes[m][2],
                 p.data.scheme, p.schedule, p.cluster->name);
        compare(p, what);
    }
}

/* On shared links the times are those of the replay. */
static void test_replayed(void **state)
{
    static struct cluster c;
    picoseconds end[MOST], most = 0;
    (void)state;
    assert_int_equal(cluster_find(&c, "frontier", &err), OK);
    struct plan p = case_plan(4, 2, 2);
    p.cluster = &c;
    struct planned *r = run_plan_of(&p, false, "replayed");
    assert_true(folding_is_none(&r->d.folding));
    assert_int_equal(contention_replay(&c, r->events, p.mesh.devices, end, &err), OK);
    for (int d = 0; d < p.mesh.devices; d++) most = end[d] > most ? end[d] : most;
    hold(r, &c, most, "replayed");
    close_run(r);
}

/* ---- two devices, by hand ---------------------------------------------------------------------------------------- */

enum { WORK = 7000, ALPHA = 300, BYTES = 100 };         /* picoseconds; 10 ps a byte */

struct pair { struct events list[2]; picoseconds before[2]; };

/* Each computes for its time; then device 0 sends to device 1, which computes once more. */
static enum error_code compute_and_send(struct comm *comm, void *asked, struct error *e)
{
    struct pair *x = asked;
    struct clock *clock = &comm->device->clock;
    const int rank = comm->rank;
    static char room[BYTES];
    struct group g;
    clock->events = &x->list[rank];
    assert_int_equal(group_world(&g, comm, e), OK);
    g.kind = TRAFFIC_PIPELINE;
    struct exchange s = exchange_begin(&g, POINT_TO_POINT);
    clock_compute(clock, "before", (struct op_cost){ .flops = (double)x->before[rank] });
    if (rank == 0) assert_int_equal(exchange_both(&s, 1, room, BYTES, -1, NULL, 0, e), OK);
    if (rank == 1) assert_int_equal(exchange_both(&s, -1, NULL, 0, 0, room, BYTES, e), OK);
    if (rank == 1) clock_compute(clock, "after", (struct op_cost){ .flops = WORK });
    group_close(&g);
    return OK;
}

static void check_pair(picoseconds before0, picoseconds before1, uint64_t eager, picoseconds work, picoseconds message,
                       picoseconds waits)
{
    struct pair x = { .before = { before0, before1 } };
    const struct cluster c = {
        .name = "pair", .levels = 1, .flop_rate = { [F32] = 1000000 },
        .link = { { .level = "cluster", .latency = ALPHA, .rate = 100000, .eager = eager } }
    };
    const struct crew_job j = { "count", F32, &c, compute_and_send, &x };
    struct events *const events[] = { &x.list[0], &x.list[1] };
    const struct mesh m = { .size = { 1, 2, 1, 1, 1 }, .devices = 2 };
    const struct folding f = folding_none(&m);
    struct seen seen = { .what = "two devices" };
    assert_int_equal(crew_run(2, be_device, &j, &err), OK);
    seen.now = step_end(&f, events);
    assert_int_equal(seen.now, work + message);
    assert_int_equal(step_path(&f, events, watch, &seen), work + message);
    assert_int_equal(seen.kind[PATH_WORK], work);
    assert_int_equal(seen.traffic[TRAFFIC_PIPELINE], message);
    assert_int_equal(step_share(events[1], work + message).waiting[TRAFFIC_PIPELINE], waits);
    events_free(&x.list[0]), events_free(&x.list[1]);
}

/* flops at 10^6 * 10^6 a second: one a picosecond. */
static void test_two_devices(void **state)
{
    const picoseconds on_the_way = ALPHA + 10 * BYTES;
    (void)state;
    check_pair(5000, 0, ALWAYS_EAGER, 5000 + WORK, on_the_way, 5000 + on_the_way);     /* it waits for the sender */
    check_pair(5000, 1000, 0, 5000 + WORK, on_the_way, 4000 + on_the_way);      /* the same, in a rendezvous */
    check_pair(1000, 9000, 0, 9000 + WORK, on_the_way, on_the_way);     /* the receiver is late: it leaves then */
    check_pair(1000, 9000, ALWAYS_EAGER, 9000 + WORK, 0, 0);            /* it has come long before */
}

/* With too little room for all events nothing is said. */
static void test_too_many(void **state)
{
    static struct cluster c;
    int64_t left = 200;
    (void)state;
    assert_int_equal(cluster_find(&c, CLUSTER_USUAL, &err), OK);
    struct plan p = case_plan(2, 1, 2);
    p.cluster = &c;
    struct planned *r = calloc(1, sizeof *r);
    assert_int_equal(dry_events_open(&r->lists, MOST, &left, &err), OK);
    r->events = r->lists.of;
    assert_int_equal(plan_check(&p, &err), OK);
    assert_int_equal(dry_run(&p, 1, true, &r->lists, NULL, note, r, &r->d, &err), OK);
    struct seen seen = { .what = "too many" };
    assert_int_equal(step_path(&r->d.folding, r->events, watch, &seen), -1);
    assert_int_equal(seen.pieces, 0);
    assert_true(left >= 0);
    close_run(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_devices), cmocka_unit_test(test_plans), cmocka_unit_test(test_replayed),
        cmocka_unit_test(test_levels), cmocka_unit_test(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
