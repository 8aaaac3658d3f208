/* Every pipeline schedule: it runs, and its bubble, memory and messages are what its header says, exactly.
 * tier: check
 */
#include "tests/devices/scheduling.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_registered_schedule_is_tested),
        cmocka_unit_test(test_every_schedule_keeps_its_promises),
        cmocka_unit_test(test_messages),
    };
    return cmocka_run_group_tests_name("schedule", tests, NULL, NULL);
}
