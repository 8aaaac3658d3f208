/* What single schedules promise beyond closed forms: what the search finds, rounds of Chimera, routes of SkipPipe,
 * versions of 2BW, which of them survive blocking sends; and the timer that all are held to, by hand.
 * tier: check
 */
#include "tests/devices/scheduling.h"

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
        cmocka_unit_test(test_timer_by_hand),
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
        cmocka_unit_test(test_many_devices_and_microbatches),
    };
    return cmocka_run_group_tests_name("schedule claims", tests, NULL, NULL);
}
