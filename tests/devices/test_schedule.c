/* Every pipeline schedule: it runs, and its bubble, memory and messages are what its header says, exactly.
 * tier: check
 */
#include "emulated_devices/draw/schedule.h"
#include "emulated_devices/schemes/pipeline/placement.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

struct times { int64_t f, i, w; };

static int64_t largest(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smallest(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- what the headers say ---------------------------------------------------------------------------------------- */

/* Idle time of the busiest device between its first start and last end; -1 where no closed form is claimed. */
typedef int64_t idle_form(int P, int M, int v, struct times t);
/* Microbatches (chunks of them) that a device holds at most; -1 where none is claimed. */
typedef int64_t peak_form(int P, int M, int v, int r);

static int64_t idle_1f1b(int P, int M, int v, struct times t) { return (void)M, (void)v, (P - 1) * (t.f + t.i + t.w); }
static int64_t idle_interleaved(int P, int M, int v, struct times t)
{
    return M >= P || v == 1 ? idle_1f1b(P, M, v, t) : -1;
}

static int64_t idle_bfs(int P, int M, int v, struct times t)
{
    return ((v - 1) * largest(M, P) + M + P - 1 - (int64_t)M * v) * (t.f + t.i + t.w);
}

static int64_t idle_zb_h1(int P, int M, int v, struct times t)
{
    (void)v;
    return M >= P && t.w <= t.i && t.w <= t.f ? (P - 1) * (t.f + t.i - t.w) : -1;
}

static int64_t idle_zb_h2(int P, int M, int v, struct times t)
{
    (void)v;
    return M >= 2 * P - 1 && t.w <= t.i && t.w <= t.f ? (P - 1) * (t.f + t.i - 2 * t.w) : -1;
}

static bool equal(struct times t) { return t.f == t.i && t.i == t.w; }

static int64_t idle_zb_v(int P, int M, int v, struct times t) { return (void)v, equal(t) && M >= 2 * P ? 0 : -1; }

static int64_t idle_v_half(int P, int M, int v, struct times t)
{
    (void)v;
    return !equal(t) || P < 3 || M < P ? -1 : (P % 2 == 0 ? 3 * P - 7 : 3 * P - 4) * t.f;
}

static int64_t idle_v_min(int P, int M, int v, struct times t)
{
    (void)v;
    return !equal(t) || P < 3 || M < 2 * P ? -1 : (P % 3 == 0 ? 4 * P - 6 : 4 * P - 5) * t.f;
}

static int64_t idle_chimera(int P, int M, int v, struct times t)
{
    (void)v;
    return M == P && t.f <= t.i + t.w ? (P - 2) * (t.i + t.w) : -1;
}

static int64_t idle_dualpipe(int P, int M, int v, struct times t)
{
    (void)v;
    return equal(t) && M >= 2 * P && M % 2 == 0 ? (P / 2 - 1) * t.f : -1;
}

static int64_t idle_dualpipev(int P, int M, int v, struct times t)
{
    return (void)v, equal(t) && M >= 2 * P ? (P - 1) * t.f : -1;
}

static int64_t peak_1f1b(int P, int M, int v, int r) { return (void)v, smallest(P - r, M); }
static int64_t peak_gpipe(int P, int M, int v, int r) { return (void)P, (void)r, (int64_t)M * v; }
static int64_t peak_zb_h1(int P, int M, int v, int r) { return (void)v, (void)r, smallest(P, M); }
static int64_t peak_zb_h2(int P, int M, int v, int r) { return (void)v, (void)r, smallest(2 * P - 1, M); }
static int64_t peak_zb_v(int P, int M, int v, int r) { return (void)v, (void)r, M >= 2 * P ? 2 * P : -1; }
static int64_t peak_v_half(int P, int M, int v, int r)
{
    return (void)v, (void)r, M >= P && P > 1 ? 2 * (P / 2 + 1) : -1;
}
static int64_t peak_v_min(int P, int M, int v, int r)
{
    return (void)v, (void)r, M >= 2 * P && P > 2 ? 2 * ((P + 4) / 3) : -1;
}
static int64_t peak_dualpipe(int P, int M, int v, int r) { return (void)v, (void)r, M >= 2 * P ? P + 1 : -1; }
static int64_t peak_dualpipev(int P, int M, int v, int r) { return (void)v, (void)r, M >= 2 * P ? 2 * P + 1 : -1; }

static int64_t peak_interleaved(int P, int M, int v, int r)
{
    if (v == 1) return peak_1f1b(P, M, v, r);
    const int groups = M > P ? M / P : 1, first = (M + groups - 1) / groups;
    return smallest(2 * (P - 1 - r) + (v - 1) * first + 1, (int64_t)M * v);
}

static int64_t peak_chimera(int P, int M, int v, int r)
{
    (void)v;
    return M >= P ? smallest(P - r, P / 2) + smallest(r + 1, P / 2) : -1;
}

static const struct {
    const char *name;
    idle_form *idle;
    peak_form *peak;
    bool in_order;                      /* weight gradients added in the order of the microbatches */
} claims[] = {
    { "1f1b", idle_1f1b, peak_1f1b, true },
    { "gpipe", idle_1f1b, peak_gpipe, true },
    { "interleaved", idle_interleaved, peak_interleaved, true },
    { "bfs", idle_bfs, peak_gpipe, true },
    { "zb-h1", idle_zb_h1, peak_zb_h1, true },
    { "zb-h2", idle_zb_h2, peak_zb_h2, true },
    { "zb-1p", NULL, NULL, true },
    { "zb-2p", NULL, NULL, true },
    { "zb-v", idle_zb_v, peak_zb_v, true },
    { "v-half", idle_v_half, peak_v_half, true },
    { "v-min", idle_v_min, peak_v_min, true },
    { "chimera", idle_chimera, peak_chimera, true },
    { "dualpipe", idle_dualpipe, peak_dualpipe, true },
    { "dualpipev", idle_dualpipev, peak_dualpipev, true },
    { "pipedream-2bw", idle_1f1b, peak_1f1b, true },
    { "skippipe", NULL, NULL, true },
};
enum { CLAIMS = sizeof claims / sizeof claims[0] };

/* ---- help -------------------------------------------------------------------------------------------------------- */

/* A schedule made and proven, or the test fails with its error. */
static struct schedule made(const char *name, struct schedule_request q)
{
    struct schedule s;
    struct error err;
    if (schedule_make(&s, name, &q, &err) != OK)
        fail_msg("%s P=%d M=%d v=%d: %s", name, q.devices, q.micros, q.chunks, err.text);
    if (schedule_validate(&s, &err) != OK)
        fail_msg("%s P=%d M=%d v=%d: %s", name, q.devices, q.micros, q.chunks, err.text);
    return s;
}

static struct timing timed(const struct schedule *s, struct times t, int64_t communication)
{
    struct error err;
    struct timing out;
    int64_t *room = malloc(3 * (size_t)s->stages * sizeof *room);
    assert_non_null(room);
    const struct schedule_times times = uniform_times(s->stages, t.f, t.i, t.w, communication, room);
    if (schedule_time(&out, s, &times, &err) != OK) fail_msg("%s: %s", s->name, err.text);
    free(room);
    return out;
}

static int64_t idle_of(const struct timing *t)
{
    int64_t most = 0;
    for (int d = 0; d < t->devices; d++) most = largest(most, t->busy[d]);
    return t->span - most;
}

/* GPipe, P=2, M=2, by hand.  Stage 0: F 2, I 1, W 1; stage 1: F 1, I 1, W 1; messages take 3. */
static void test_timer_by_hand(void **state)
{
    (void)state;
    static const int64_t f[] = { 2, 1 }, one[] = { 1, 1 };
    /* F0 sa0 F1 sa1 rg0 B0 rg1 B1 | ra0 F0 ra1 F1 B0 sg0 B1 sg1 */
    static const int64_t start[2][8] = { { 0, 2, 2, 4, 4, 13, 15, 15 }, { 0, 5, 6, 7, 8, 10, 10, 12 } };
    static const int64_t end[2][8] = { { 2, 2, 4, 4, 13, 15, 15, 17 }, { 5, 6, 7, 8, 10, 10, 12, 12 } };
    const struct schedule_times times = { f, one, one, 3, 0 };
    struct schedule s = made("gpipe", (struct schedule_request){ .devices = 2, .micros = 2 });
    struct timing t;
    assert_int_equal(schedule_time(&t, &s, &times, NULL), OK);
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < 8; i++) {
            assert_int_equal(s.count[d], 8);
            if (t.start[d][i] != start[d][i] || t.end[d][i] != end[d][i])
                fail_msg("device %d, action %d: %lld..%lld, by hand %lld..%lld", d, i, (long long)t.start[d][i],
                         (long long)t.end[d][i], (long long)start[d][i], (long long)end[d][i]);
        }
    assert_int_equal(t.makespan, 17);
    assert_int_equal(t.busy[0], 8);
    assert_int_equal(t.busy[1], 6);
    assert_true(t.bubble > 0.5294 && t.bubble < 0.5295);       /* 1 - 8/17 */
    timing_free(&t);
    schedule_free(&s);
}

/* ---- every schedule, every size ---------------------------------------------------------------------------------- */

static const struct times sample_times[] = { { 1, 1, 1 }, { 7, 7, 7 }, { 3, 5, 2 }, { 2, 1, 1 } };

static void check_claims(int claim, const struct schedule *s, int v)
{
    const int P = s->devices, M = s->micros;
    for (size_t k = 0; claims[claim].idle != NULL && k < sizeof sample_times / sizeof sample_times[0]; k++) {
        const struct times t = sample_times[k];
        const int64_t want = claims[claim].idle(P, M, v, t);
        struct timing timing = timed(s, t, 0);
        if (want >= 0 && idle_of(&timing) != want)
            fail_msg("%s P=%d M=%d v=%d F=%d I=%d W=%d: idle %lld, its header says %lld", s->name, P, M, v, (int)t.f,
                     (int)t.i, (int)t.w, (long long)idle_of(&timing), (long long)want);
        timing_free(&timing);
    }
    for (int r = 0; claims[claim].peak != NULL && r < P; r++) {
        const int64_t want = claims[claim].peak(P, M, v, r);
        if (want >= 0 && schedule_peak(s, r) != want)
            fail_msg("%s P=%d M=%d v=%d: device %d holds %d, its header says %lld", s->name, P, M, v, r,
                     schedule_peak(s, r), (long long)want);
    }
    if (schedule_adds_in_order(s) != claims[claim].in_order)
        fail_msg("%s P=%d M=%d v=%d: weight gradients out of order", s->name, P, M, v);
}

/* A message for each pair of neighbouring stages on different devices, there and back, for each microbatch. */
static int64_t messages_by_routes(const struct schedule *s)
{
    int64_t n = 0;
    for (int m = 0; m < s->micros; m++)
        for (int t = 0; t < s->stages; t++) {
            const struct place here = place_of(s, m, t), next = place_after(s, m, t);
            n += here.device >= 0 && next.device >= 0 && next.device != here.device ? 2 : 0;
        }
    return n;
}

static int64_t messages_by_formula(const struct schedule *s)
{
    const int64_t P = s->devices, M = s->micros;
    if (strcmp(s->name, "skippipe") == 0) return 2 * M * (P - 1 - (P > 3 ? P / 3 : 0));
    if (P == 1) return 0;
    const bool v_shaped = s->chunks == 2 && s->stages == 2 * P && s->stage_of[P - 1][1] == P;
    return v_shaped ? 4 * M * (P - 1) : 2 * M * (s->stages - 1);
}

static const int sizes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 16 };

static void every_size(void (*check)(int claim, const struct schedule *, int v))
{
    for (int i = 0; i < CLAIMS; i++) {
        const struct schedule_generator *g = schedule_generator(claims[i].name, NULL);
        assert_non_null(g);
        for (size_t p = 0; p < sizeof sizes / sizeof sizes[0]; p++)
            for (int M = 1; M <= 3 * sizes[p]; M++)
                for (int v = 1; v <= (g->chunks == 0 ? 4 : 1); v++) {
                    const struct schedule_request q = { .devices = sizes[p],
                                                        .micros = M,
                                                        .chunks = g->chunks > 0 ? g->chunks : v };
                    if (g->refuses != NULL && g->refuses(&q) != NULL) continue;
                    struct schedule s = made(claims[i].name, q);
                    check(i, &s, q.chunks);
                    schedule_free(&s);
                }
    }
}

static void test_every_schedule_keeps_its_promises(void **state) { (void)state; every_size(check_claims); }

static void check_messages(int claim, const struct schedule *s, int v)
{
    (void)claim;
    if (schedule_messages(s) != messages_by_formula(s) || schedule_messages(s) != messages_by_routes(s))
        fail_msg("%s P=%d M=%d v=%d: %lld messages, by formula %lld, by routes %lld", s->name, s->devices, s->micros, v,
                 (long long)schedule_messages(s), (long long)messages_by_formula(s), (long long)messages_by_routes(s));
}

static void test_messages(void **state) { (void)state; every_size(check_messages); }

static void test_every_registered_schedule_is_tested(void **state)
{
    (void)state;
    assert_string_equal(schedule_generator_at(0)->head.name, "1f1b");
    for (int g = 0; schedule_generator_at(g); g++) {
        bool found = false;
        for (int i = 0; i < CLAIMS; i++)
            found = found || strcmp(claims[i].name, schedule_generator_at(g)->head.name) == 0;
        if (!found)
            fail_msg("%s is registered, but has no line in this test's table", schedule_generator_at(g)->head.name);
        assert_true(schedule_generator_at(g)->head.description && schedule_generator_at(g)->head.source &&
                    schedule_generator_at(g)->head.needs && schedule_generator_at(g)->bubble &&
                    schedule_generator_at(g)->head.memory);
    }
}

/* ---- particular claims ------------------------------------------------------------------------------------------- */

/* Interleaved, any M: no slower than breadth first. */
static void test_interleaved_between_multiples(void **state)
{
    (void)state;
    for (int P = 2; P <= 6; P++)
        for (int M = 1; M <= 3 * P; M++)
            for (int v = 2; v <= 4; v++) {
                const struct schedule_request q = { .devices = P, .micros = M, .chunks = v };
                struct schedule s = made("interleaved", q), wide = made("bfs", q);
                const struct times each = { 1, 1, 1 };
                struct timing t = timed(&s, each, 0), other = timed(&wide, each, 0);
                if (t.makespan > other.makespan)
                    fail_msg("P=%d M=%d v=%d: makespan %lld, breadth first %lld", P, M, v, (long long)t.makespan,
                             (long long)other.makespan);
                timing_free(&t), timing_free(&other);
                schedule_free(&s), schedule_free(&wide);
            }
}

/* More memory never makes the search's result worse than the hand-made schedule of that memory. */
static void test_search_beats_hand_made(void **state)
{
    (void)state;
    static const char *const pair[2][2] = { { "zb-1p", "zb-h1" }, { "zb-2p", "zb-h2" } };
    static const struct times t = { 5, 5, 4 };
    for (int P = 1; P <= 8; P++)
        for (int M = 1; M <= 3 * P; M++)
            for (int k = 0; k < 2; k++) {
                struct schedule_request q = { .devices = P,
                                              .micros = M,
                                              .forward = t.f,
                                              .backward_input = t.i,
                                              .backward_weight = t.w,
                                              .communication = 1 };
                struct schedule found = made(pair[k][0], q), hand = made(pair[k][1], q);
                struct timing a = timed(&found, t, 1), b = timed(&hand, t, 1);
                if (M >= 2 * P && a.span > b.span)
                    fail_msg("P=%d M=%d: %s takes %lld, %s %lld", P, M, pair[k][0], (long long)a.span, pair[k][1],
                             (long long)b.span);
                for (int d = 0; d < P; d++)
                    if (schedule_peak(&found, d) > (k + 1) * P)
                        fail_msg("P=%d M=%d: %s holds %d on device %d", P, M, pair[k][0], schedule_peak(&found, d), d);
                timing_free(&a);
                timing_free(&b);
                schedule_free(&found);
                schedule_free(&hand);
            }
}

/* The search keeps to any memory limit, down to one microbatch. */
static void test_search_keeps_to_memory(void **state)
{
    (void)state;
    for (int limit = 1; limit <= 12; limit++) {
        struct schedule s =
            made("zb-1p", (struct schedule_request){ .devices = 4, .micros = 12, .memory_limit = limit });
        for (int d = 0; d < 4; d++)
            if (schedule_peak(&s, d) > limit) fail_msg("limit %d: device %d holds %d", limit, d, schedule_peak(&s, d));
        schedule_free(&s);
    }
    for (int64_t kept = 0; kept <= 10; kept += 5) {
        struct schedule s =
            made("zb-2p",
                 (struct schedule_request){
                     .devices = 4, .micros = 16, .memory_limit = 4, .activation = 10, .kept_for_weight = kept });
        for (int d = 0; d < 4; d++) assert_true(schedule_peak_memory(&s, d, 10, kept) <= 40);
        schedule_free(&s);
    }
}

/* The family's table of P. Qi et al. (F = I = W; 1F1B idles 6(P-1) chunks' parts): V-Half idles at most half of that,
 * V-Min at most two thirds, ZB-V not at all; memory 1/2, 1/3 and 1 of 1F1B's 2P chunks, up to what
 * one building block needs. */
static void test_v_family(void **state)
{
    (void)state;
    static const struct times one = { 1, 1, 1 };
    for (int P = 3; P <= 16; P++)
        for (int M = P; M <= 4 * P; M += P) {
            const struct schedule_request q = { .devices = P, .micros = M };
            struct schedule half = made("v-half", q), min = made("v-min", q);
            struct timing h = timed(&half, one, 0), m = timed(&min, one, 0);
            assert_true(idle_of(&h) <= 3 * (P - 1));
            assert_true(idle_of(&m) <= 4 * (P - 1));
            for (int d = 0; d < P; d++) {
                assert_true(schedule_peak(&half, d) <= P + 2);
                assert_true(3 * schedule_peak(&min, d) <= 2 * P + 8);
            }
            timing_free(&h);
            timing_free(&m);
            schedule_free(&half);
            schedule_free(&min);
        }
}

/* Chimera beyond M = P: with F = B, rounds of P microbatches follow each other without a gap. */
static void test_chimera_rounds(void **state)
{
    (void)state;
    for (int P = 2; P <= 8; P += 2)
        for (int M = P; M <= 5 * P; M += P) {
            struct schedule s =
                made("chimera",
                     (struct schedule_request){
                         .devices = P, .micros = M, .forward = 2, .backward_input = 1, .backward_weight = 1 });
            struct timing t = timed(&s, (struct times){ 2, 1, 1 }, 0);
            if (idle_of(&t) != 2 * (P - 2))
                fail_msg("P=%d M=%d: idle %lld, expected %d", P, M, (long long)idle_of(&t), 2 * (P - 2));
            assert_int_equal(schedule_holders(&s, 0, NULL, 0), 2);
            timing_free(&t);
            schedule_free(&s);
        }
}

/* With B = 2F rounds do not fit together; of the two ways to break ties the better one is taken (the other: 34). */
static void test_chimera_ties(void **state)
{
    (void)state;
    struct schedule s = made("chimera", (struct schedule_request){ .devices = 4, .micros = 8 });
    struct timing t = timed(&s, (struct times){ 1, 1, 1 }, 0);
    assert_int_equal(t.makespan, 30);
    timing_free(&t);
    schedule_free(&s);
}

/* Every switch of the search earns its place: without the first one this takes 213. */
static void test_search_switches(void **state)
{
    (void)state;
    const struct times times = { 10, 9, 7 };
    struct schedule s = made("zb-2p", (struct schedule_request){ .devices = 2, .micros = 8, .forward = times.f,
                                      .backward_input = times.i, .backward_weight = times.w, .communication = 3 });
    struct timing t = timed(&s, times, 3);
    assert_int_equal(t.span, 212);
    timing_free(&t);
    schedule_free(&s);
}

/* Each stage left out saves a stage's forward and backward of the way through; load is even. */
static void test_skippipe(void **state)
{
    (void)state;
    for (int P = 3; P <= 8; P++)
        for (int skip = 1; skip <= P - 2; skip++) {
            const int M = 3 * (P - 2);
            struct schedule s = made("skippipe", (struct schedule_request){ .devices = P, .micros = M, .skip = skip });
            struct timing t = timed(&s, (struct times){ 1, 1, 1 }, 0);
            if (idle_of(&t) != 3 * (P - 1 - skip))
                fail_msg("P=%d skip=%d: idle %lld, expected %d", P, skip, (long long)idle_of(&t), 3 * (P - 1 - skip));
            for (int d = 1; d < P - 1; d++) {
                const int64_t want = 3 * M * (P - 2 - skip) / (P - 2);
                if (t.busy[d] != want)
                    fail_msg("P=%d skip=%d: device %d is busy %lld, expected %lld", P, skip, d, (long long)t.busy[d],
                             (long long)want);
            }
            assert_int_equal(schedule_messages(&s), 2 * M * (P - 1 - skip));
            timing_free(&t);
            schedule_free(&s);
        }
}

static void test_2bw_updates(void **state)
{
    (void)state;
    for (int P = 1; P <= 6; P++)
        for (int n = P; n <= 2 * P; n++) {
            struct schedule s = made("pipedream-2bw",
                                     (struct schedule_request){ .devices = P, .micros = 4 * P + 1, .update_every = n });
            int updates = 0;
            for (int i = 0; i < s.count[0]; i++) updates += s.actions[0][i].kind == UPDATE;
            assert_int_equal(updates, (4 * P + 1 + n - 1) / n);
            assert_int_equal(s.weight_versions, 2);
            schedule_free(&s);
        }
    struct schedule s;
    struct error err;
    assert_int_equal(schedule_make(&s, "pipedream-2bw",
                                   &(struct schedule_request){ .devices = 4, .micros = 8, .update_every = 2 }, &err),
                     ERR_PLAN);
    /* With one version less, a microbatch would have to wait for an update that comes later in its device's list. */
    s = made("pipedream-2bw", (struct schedule_request){ .devices = 4, .micros = 16, .update_every = 4 });
    s.weight_versions = 1;
    static const char want[] = "device 0, action 10: F4 of chunk 0: expected after U3 of chunk 0, which is action 22";
    const enum error_code code = schedule_validate(&s, &err);
    if (code != ERR_PLAN || strcmp(err.text, want) != 0)
        fail_msg("one version of weights: got code %d \"%s\", want \"%s\"", code, err.text, want);
    schedule_free(&s);
}

/* ---- blocking sends ---------------------------------------------------------------------------------------------- */

static bool survives(const char *name, int P, int M, int v)
{
    struct schedule s = made(name, (struct schedule_request){ .devices = P, .micros = M, .chunks = v });
    const bool yes = schedule_survives_blocking_sends(&s);
    schedule_free(&s);
    return yes;
}

/* GPipe never has two neighbours that both want to send; 1F1B has as soon as there is a steady state. */
static void test_blocking_sends(void **state)
{
    (void)state;
    for (int P = 1; P <= 5; P++)
        for (int M = 1; M <= 6; M++) {
            assert_true(survives("gpipe", P, M, 1));
            if (survives("1f1b", P, M, 1) != (P == 1 || M <= 1)) fail_msg("1f1b P=%d M=%d", P, M);
        }
    assert_true(survives("interleaved", 1, 4, 3));
    assert_false(survives("interleaved", 4, 8, 2));
    assert_false(survives("zb-h1", 4, 8, 1));
}

/* ---- faults ------------------------------------------------------------------------------------------------------ */

static void expect_fault(struct schedule *s, const char *want)
{
    struct error err = { OK, "accepted" };
    schedule_validate(s, &err);
    if (strcmp(err.text, want) != 0) fail_msg("got  \"%s\"\n      want \"%s\"", err.text, want);
    schedule_free(s);
}

/* 1F1B, P=2, M=3: device 0 is F0 sa0 F1 sa1 rg0 B0 F2 sa2 rg1 B1 rg2 B2, device 1 is ra0 F0 B0 sg0 ra1
 * F1 B1 sg1 ra2 F2 B2 sg2. */
static struct schedule small(void) { return made("1f1b", (struct schedule_request){ .devices = 2, .micros = 3 }); }

static void drop(struct schedule *s, int d, int i)
{
    memmove(&s->actions[d][i], &s->actions[d][i + 1], (size_t)(--s->count[d] - i) * sizeof(struct action));
}

static void swap(struct schedule *s, int d, int i, int j)
{
    const struct action a = s->actions[d][i];
    s->actions[d][i] = s->actions[d][j];
    s->actions[d][j] = a;
}

static void test_validator_names_the_fault(void **state)
{
    (void)state;
    struct schedule s = small();
    drop(&s, 1, 1);
    expect_fault(&s, "device 1: F0 of chunk 0 is missing (forward of a stage)");
    s = small();
    drop(&s, 0, 1);
    expect_fault(&s, "device 0: sa0 of chunk 0 is missing (a stage's output to the device of the next stage)");
    s = small();
    drop(&s, 0, 4);
    expect_fault(&s, "device 0: rg0 of chunk 0 is missing (the gradient of a stage's output from the device after)");
    s = small();
    s.actions[0][2] = s.actions[0][0];
    expect_fault(&s, "device 0, action 2: F0 of chunk 0: done twice, first as action 0");
    s = small();
    swap(&s, 1, 0, 1);
    expect_fault(&s, "device 1, action 0: F0 of chunk 0: expected after ra0 of chunk 0, which is action 1");
    s = small();
    swap(&s, 0, 0, 1);
    expect_fault(&s, "device 0, action 0: sa0 of chunk 0: expected after F0 of chunk 0, which is action 1");
    s = small();
    s.actions[0][1].peer = 0;
    expect_fault(&s, "device 0, action 1: sa0 of chunk 0: peer is device 0, expected 1");
    s = small();
    s.actions[1][4].micro = 3;
    expect_fault(&s, "device 1, action 4: ra3 of chunk 0: expected a microbatch of 0..2");
    s = small();
    s.actions[0][5].kind = BACKWARD_INPUT;
    expect_fault(&s, "device 0: W0 of chunk 0 is missing (backward for the stage's weights; frees the microbatch)");
    s = small();
    s.actions[0][5].kind = UPDATE;
    expect_fault(&s, "device 0: the backward of microbatch 0, chunk 0 is missing: expected B0, or I0 and W0");
    s = small();
    s.route[0][1].device = 0;
    expect_fault(&s, "route 0: stage 1 is not on device 0, chunk 0");
    s = small();
    s.stage_of[1][0] = 0;
    expect_fault(&s, "stage 1 is on no device");
    s = small();
    s.actions[1][s.count[1]++] = (struct action){ .kind = SEND_ACTIVATION };
    expect_fault(
        &s,
        "device 1, action 12: sa0 of chunk 0: no message is needed: the neighbouring stage is here, or there is none");
    s = small();
    s.route_of[1] = 1;
    expect_fault(&s, "microbatch 1: route 1 is not one of 0..0");
    s = made("chimera", (struct schedule_request){ .devices = 2, .micros = 2 });   /* microbatch 1 begins on device 1 */
    s.actions[0][0].micro = 1;
    expect_fault(
        &s,
        "device 0, action 0: F1 of chunk 0: microbatch 1 does not come here: its route computes stage 0 on device 1");
    /* F0 B0 U0 F1 B1 U1 */
    s = made("pipedream-2bw", (struct schedule_request){ .devices = 1, .micros = 2, .update_every = 1 });
    swap(&s, 0, 1, 2);
    expect_fault(&s, "device 0, action 1: U0 of chunk 0: expected after B0 of chunk 0, which is action 2");
}

/* Each device alone is in order, but device 0 wants gradient 0 before it sends what device 1 needs to make it. */
static void test_validator_finds_deadlock(void **state)
{
    (void)state;
    struct schedule s = small();
    const struct action receive = s.actions[1][0];
    /* F0 B0 sg0 ra1 | ra0: not yet a cycle, but wrong */
    memmove(&s.actions[1][0], &s.actions[1][1], 4 * sizeof receive);
    s.actions[1][4] = receive;
    expect_fault(&s, "device 1, action 0: F0 of chunk 0: expected after ra0 of chunk 0, which is action 4");
    s = small();
    /* device 0: F0 F1 rg0 sa0 sa1 ...: rg0 now comes before sa0 */
    const struct action gradient = s.actions[0][4];
    memmove(&s.actions[0][2], &s.actions[0][1], 3 * sizeof gradient);
    s.actions[0][1] = gradient;
    expect_fault(&s, "deadlock: device 0, action 1 (rg0 of chunk 0) waits for device 1; device 1, action 0 (ra0 of "
                     "chunk 0) waits for device 0");
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct schedule_request q;
        enum error_code code;
        const char *text;
    } bad[] = {
        { "1f2b",
          { .devices = 2, .micros = 2 },
          ERR_USAGE,
          "--schedule 1f2b: there is no such choice; did you mean 1f1b?" },
        { "1f1b",
          { .devices = 0, .micros = 2 },
          ERR_PLAN,
          "schedule 1f1b: devices=0, micros=2, chunks=0: expected at least 1" },
        { "1f1b",
          { .devices = 2, .micros = 2, .chunks = 3 },
          ERR_PLAN,
          "schedule 1f1b: chunks=3, but it holds 1 on each device" },
        { "chimera",
          { .devices = 3, .micros = 2 },
          ERR_PLAN,
          "schedule chimera: P=3, M=2, v=2: P must be even: two pipelines meet in the middle; P=2 or P=4 would fit" },
        { "skippipe",
          { .devices = 4, .micros = 2, .skip = 3 },
          ERR_PLAN,
          "schedule skippipe: P=4, M=2, v=1: only the P-2 middle stages can be left out; skip=1..2 would fit" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct schedule s;
        struct error err;
        assert_int_equal(schedule_make(&s, bad[i].name, &bad[i].q, &err), bad[i].code);
        assert_string_equal(err.text, bad[i].text);
        assert_int_equal(schedule_make(&s, bad[i].name, &bad[i].q, NULL), bad[i].code);
    }
    struct schedule s;
    assert_int_equal(schedule_make(&s, "gpipe", &(struct schedule_request){ .devices = 4096, .micros = 1 << 20 }, NULL),
                     ERR_PLAN);
}

/* ---- placement, drawing, speed ----------------------------------------------------------------------------------- */

/* The slowest stage's time, layers/speed, as a fraction compared by cross multiplication, over all ways to cut. */
static void best_cut(int left, int stages, const int64_t *speed, int64_t layers, int64_t per, int64_t best[2])
{
    if (stages == 0) {
        if (left == 0 && layers * best[1] < best[0] * per) best[0] = layers, best[1] = per;
        return;
    }
    for (int n = 1; n <= left - (stages - 1); n++) {
        const bool slower = n * per > layers * speed[0];
        best_cut(left - n, stages - 1, speed + 1, slower ? n : layers, slower ? speed[0] : per, best);
    }
}

static void test_layers_by_speed(void **state)
{
    (void)state;
    static const int64_t speed[][4] = {
        { 1, 1, 1, 1 }, { 197, 160, 122, 149 }, { 1, 2, 3, 4 }, { 100, 1, 1, 1 }, { 3, 3, 2, 2 }
    };
    int count[4];
    for (size_t k = 0; k < sizeof speed / sizeof speed[0]; k++)
        for (int layers = 4; layers <= 20; layers++) {
            assert_int_equal(layers_by_speed(layers, 4, speed[k], count, NULL), OK);
            int64_t best[2] = { 1000000, 1 }, got[2] = { 0, 1 };
            int sum = 0;
            best_cut(layers, 4, speed[k], 0, 1, best);
            for (int i = 0; i < 4; i++) {
                sum += count[i];
                if (count[i] * got[1] > got[0] * speed[k][i]) got[0] = count[i], got[1] = speed[k][i];
            }
            assert_int_equal(sum, layers);
            assert_int_equal(got[0] * best[1], best[0] * got[1]);
        }
    assert_int_equal(layers_by_speed(6, 4, speed[0], count, NULL), OK);       /* of equals the first */
    assert_memory_equal(count, ((int[]){ 2, 2, 1, 1 }), sizeof count);
    struct error err;
    assert_int_equal(layers_by_speed(3, 4, speed[0], count, &err), ERR_PLAN);
    assert_int_equal(layers_by_speed(8, 2, (int64_t[]){ 1, 0 }, count, &err), ERR_PLAN);
}

static void read_back(FILE *f, char *text, size_t room)
{
    rewind(f);
    text[fread(text, 1, room - 1, f)] = '\0';
    fclose(f);
}

static void test_drawing(void **state)
{
    (void)state;
    static char text[1 << 16];
    struct schedule s = made("zb-h1", (struct schedule_request){ .devices = 3, .micros = 5 });
    struct timing t = timed(&s, (struct times){ 1, 1, 1 }, 0);
    FILE *f = tmpfile();
    schedule_draw_text(f, &s, &t, 100, false);
    read_back(f, text, sizeof text);
    assert_string_equal(text, "  0  F0-F1-F2-......I0-W0-F3-I1-W1-F4-I2-W2-I3-W3-I4-W4-\n"
                              "  1  ...F0-F1-...I0-F2-I1-W0-F3-I2-W1-F4-I3-W2-I4-W3-W4-\n"
                              "  2  ......F0-I0-F1-I1-F2-I2-W0-F3-I3-W1-F4-I4-W2-W3-W4-\n"
                              "     F forward  I backward for input  W backward for weights  \n");
    f = tmpfile();
    assert_int_equal(schedule_draw_svg(f, &s, &t, true, NULL), OK);
    read_back(f, text, sizeof text);
    assert_non_null(strstr(text, "<svg xmlns="));
    assert_non_null(strstr(text, "</svg>"));
    timing_free(&t);
    schedule_free(&s);
}

/* No line is wider than asked, however many microbatches and however odd the times. */
static void test_drawing_width(void **state)
{
    (void)state;
    static char text[1 << 18];
    for (int columns = 40; columns <= 100; columns += 20)
        for (int M = 1; M <= 200; M += 37) {
            struct schedule s = made("zb-v", (struct schedule_request){ .devices = 5, .micros = M });
            struct timing t = timed(&s, (struct times){ 18522, 18086, 9337 }, 601);
            FILE *f = tmpfile();
            schedule_draw_text(f, &s, &t, columns, false);
            read_back(f, text, sizeof text);
            char *line = strtok(text, "\n");
            for (int i = 0; i < 10; i++, line = strtok(NULL, "\n"))
                if (strlen(line) > (size_t)columns)
                    fail_msg("M=%d: line of %zu columns, asked for %d", M, strlen(line), columns);
            timing_free(&t);
            schedule_free(&s);
        }
}

static void test_many_devices_and_microbatches(void **state)
{
    (void)state;
    for (int i = 0; schedule_generator_at(i); i++) {
        const struct schedule_generator *g = schedule_generator_at(i);
        const struct schedule_request want = { .devices = 64, .micros = 512, .chunks = g->chunks > 0 ? g->chunks : 2 };
        struct schedule s = made(g->head.name, want);
        schedule_free(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_registered_schedule_is_tested),
        cmocka_unit_test(test_timer_by_hand),
        cmocka_unit_test(test_every_schedule_keeps_its_promises),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_interleaved_between_multiples),
        cmocka_unit_test(test_search_beats_hand_made),
        cmocka_unit_test(test_search_keeps_to_memory),
        cmocka_unit_test(test_v_family),
        cmocka_unit_test(test_chimera_rounds),
        cmocka_unit_test(test_chimera_ties),
        cmocka_unit_test(test_search_switches),
        cmocka_unit_test(test_skippipe),
        cmocka_unit_test(test_2bw_updates),
        cmocka_unit_test(test_blocking_sends),
        cmocka_unit_test(test_validator_names_the_fault),
        cmocka_unit_test(test_validator_finds_deadlock),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_layers_by_speed),
        cmocka_unit_test(test_drawing),
        cmocka_unit_test(test_drawing_width),
        cmocka_unit_test(test_many_devices_and_microbatches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
