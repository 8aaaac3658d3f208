/* check.c -- judges lesson 04.  ring_time and other_time are held to what Orrery's own algorithms take on the
 * virtual clock.  The student writes cost.c: two measurements and three formulas.  Links have other latencies and
 * rates in each run.  Numbers are compared with a relative error of 1e-9.  emulated_devices/course/judge.c runs each
 * check in a process of its own; a failed check is a line for the student. */
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/course/lesson.h"
#include <math.h>
#include <stdlib.h>

/* Links of a latency in ns and a rate in MB/s: alpha = 1000 ns ps, beta = 10^6 / rate ps. */
struct links { int64_t latency, rate; };

/* Choose the links of run i.  Rates divide 10^6, so that beta is whole and times are not rounded. */
static struct links draw_links(struct judge *j, int i)
{
    static const struct links usual[] = { { 10000, 50000 }, { 1000, 2000 }, { 700, 500 } };
    static const int64_t rates[] = { 500, 1000, 2000, 4000, 10000, 20000, 25000, 50000, 100000 };
    if (!j->hidden) return usual[i % 3];
    const int64_t latency = judge_draw(j, 300, 20000);
    return (struct links){ latency, rates[judge_draw(j, 0, 8)] };
}

/* alpha is the picoseconds of a message of no bytes, beta those of each byte. */
static double alpha(struct links l) { return 1000.0 * (double)l.latency; }
static double beta(struct links l) { return 1e6 / (double)l.rate; }

static void set_links(struct cluster *c, struct links l)
{
    c->link[0].latency = 1000 * l.latency, c->link[0].rate = l.rate;
}

/* ---- what Orrery's algorithms take ------------------------------------------------------------------------------- */

/* One all-reduce that the judge runs itself: `last` is the time of the slowest device. */
struct timed { const char *algorithm; struct cluster cluster; int64_t count; picoseconds last; };

/* Each device of the crew runs this, and the latest clock counts. */
static enum error_code time_one(struct crew *crew, int rank, const void *asked, struct error *err)
{
    struct timed *t = *(struct timed *const *)asked;
    struct device d;
    struct comm c;
    struct group g;
    float *x = calloc((size_t)t->count + 1, sizeof *x);
    enum error_code e = x ? device_open(&d, backend_find("cpu"), F32, 0, err) : ERR_MEMORY;
    if (e) return e;
    /* The clock starts anew, with this run's links. */
    clock_restart(&d.clock, &t->cluster, F32);
    e = crew_join(&c, crew, rank, &d, err);
    if (!e) e = group_world(&g, &c, err);
    if (!e) {
        e = allreduce(&g, x, t->count, F32, SUM, t->algorithm, err);
        /* An all-reduce takes as long as its slowest device. */
        if (d.clock.now > t->last) t->last = d.clock.now;
        group_close(&g);
        comm_close(&c);
    }
    device_close(&d);
    free(x);
    return e;
}

/* Messages are always eager, so that no algorithm waits for a receiver. */
static double time_of(struct judge *j, const char *algorithm, int W, int64_t count, struct links l)
{
    struct timed t = { .algorithm = algorithm, .count = count }, *asked = &t;
    struct error err = { OK, "" };
    if (cluster_find(&t.cluster, "textbook", &err) != OK) abort();
    t.cluster.link[0].eager = ALWAYS_EAGER;
    set_links(&t.cluster, l);
    if (crew_run(W, time_one, &asked, &err) != OK) judge_fails(j, "the check cannot run %s: %s", algorithm, err.text);
    return (double)t.last;
}

/* ---- measuring --------------------------------------------------------------------------------------------------- */

/* Times are sums of whole picoseconds, so only double's own rounding is allowed. */
static bool about(double got, double want) { return fabs(got - want) <= 1e-9 * fabs(want) + 1e-9; }

/* half_round_trip on 2 to 7 devices, also of no bytes, and once with messages that wait. */
static void try_trips(struct judge *j, bool sent)
{
    for (int i = 0; i < 6 && !j->failed; i++) {
        const struct links l = draw_links(j, i);
        const int W = i < 3 ? 2 : i + 2;
        const int64_t bytes = j->hidden ? judge_draw(j, 0, 3000000) : i % 2 ? 1000000 : 4 * i;
        struct trial *r = trial_open(j, "half_round_trip", W, "%lld bytes, alpha = %.0f ps, beta = %.0f ps/byte",
                                     (long long)bytes, alpha(l), beta(l));
        set_links(&r->cluster, l);
        r->meets = i == 4;
        for (int d = 0; d < W; d++) r->device[d].number[0] = bytes;
        if (trial_call(r))
            for (int d = 0; d < W && !j->failed; d++) {
                /* Device 0 measures alpha + B beta; all others return 0. */
                const double want = d == 0 ? alpha(l) + (double)bytes * beta(l) : 0, got = r->device[d].real;
                if (!about(got, want))
                    trial_fails(r, "device %d returned %.0f ps and should return %.0f%s", d, got, want,
                                d == 0 ? ", which is alpha + B beta" : ": only device 0 measures");
                if (sent)
                    trial_expect_sent(r, d, d < 2, d < 2 ? (uint64_t)bytes : 0,
                                      d < 2 ? "one message each way" : "it takes no part");
            }
        trial_close(r);
    }
}

static void check_trip(struct judge *j) { try_trips(j, false); }
static void check_trip_sent(struct judge *j) { try_trips(j, true); }

/* fit finds both numbers on device 0 from its own measurements. */
static void check_fit(struct judge *j)
{
    for (int i = 0; i < 4 && !j->failed; i++) {
        const struct links l = draw_links(j, i);
        struct trial *r = trial_open(j, "fit", i < 3 ? 2 : 5, "alpha = %.0f ps, beta = %.0f ps/byte", alpha(l),
                                     beta(l));
        set_links(&r->cluster, l);
        /* All devices have a buffer, but only device 0 has to fill it. */
        for (int d = 0; d < r->devices; d++) trial_buffer(r, d, 0, 2 * sizeof(double), BUFFER_OUT);
        if (trial_call(r)) {
            const double *got = r->device[0].buffer[0].data;
            /* got is alpha in picoseconds and beta in picoseconds per byte. */
            if (!about(got[0], alpha(l)) || !about(got[1], beta(l)))
                trial_fails(r, "device 0 found alpha = %.6g ps and beta = %.6g ps/byte", got[0], got[1]);
        }
        trial_close(r);
    }
}

/* ---- formulas ---------------------------------------------------------------------------------------------------- */

static const char *other(const struct judge *j) { return judge_choice(j, "OTHER") == 0 ? "doubling" : "tree"; }

/* The formula must give the time that Orrery's own algorithm takes.  `powers`: only for W that are powers of two. */
static void try_time(struct judge *j, const char *function, const char *algorithm, bool powers)
{
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++) {
        if (powers && (*W & (*W - 1)) != 0) continue;
        for (int i = 0; i < 3 && !j->failed; i++) {
            const struct links l = draw_links(j, i);
            /* W divides the number of elements, as the formulas assume. */
            const int64_t count = *W * (j->hidden ? judge_draw(j, 1, 5000) : i == 0 ? 1 : 1000 * i);
            struct trial *r = trial_open(j, function, 1, "W = %d, %lld bytes, alpha = %.0f ps, beta = %.0f ps/byte", *W,
                                         (long long)(4 * count), alpha(l), beta(l));
            r->device[0].number[0] = *W;
            r->device[0].given[0] = 4.0 * (double)count;
            r->device[0].given[1] = alpha(l), r->device[0].given[2] = beta(l);
            const double want = time_of(j, algorithm, *W, count, l);
            if (trial_call(r) && !about(r->device[0].real, want))
                trial_fails(r, "it returned %.0f ps; allreduce %s takes %.0f ps on %d devices", r->device[0].real,
                            algorithm, want, *W);
            trial_close(r);
        }
    }
}

static void check_ring_time(struct judge *j) { try_time(j, "ring_time", "ring", false); }
static void check_other_time(struct judge *j) { try_time(j, "other_time", other(j), true); }

/* The ring saves so many picoseconds at this size, by the formulas of cost.h. */
static double gain(const struct judge *j, int W, double bytes, struct links l)
{
    const int steps = (judge_choice(j, "OTHER") + 1) * (int)lround(log2(W));
    /* The other algorithm takes `steps` times the whole vector, the ring 2 (W-1) times n / W bytes. */
    return steps * (alpha(l) + bytes * beta(l)) - 2 * (W - 1) * (alpha(l) + bytes / W * beta(l));
}

/* The answer is the first whole number of bytes at which the ring is faster, or -1. */
static void check_crossover(struct judge *j)
{
    for (int W = 2; W <= 64 && !j->failed; W *= 2)
        for (int i = 0; i < 3 && !j->failed; i++) {
            const struct links l = draw_links(j, i);
            struct trial *r = trial_open(j, "crossover", 1, "W = %d, alpha = %.0f ps, beta = %.0f ps/byte", W, alpha(l),
                                         beta(l));
            r->device[0].number[0] = W, r->device[0].given[0] = alpha(l), r->device[0].given[1] = beta(l);
            /* At 10^15 bytes latencies do not matter: if the ring does not win there, it never wins. */
            const bool ever = gain(j, W, 1e15, l) > 1e6;
            if (trial_call(r)) {
                const int64_t got = r->device[0].result;
                /* `at` is the ring's gain at the answer, `before` its gain with a byte less. */
                const double at = gain(j, W, (double)got, l), before = gain(j, W, (double)got - 1, l);
                const double rounding = W == 4 ? 0 : 1e-3;      /* of a quotient; with W = 4 all of them are exact */
                if (!ever && got != -1)
                    trial_fails(r, "it returned %lld; the ring is never faster: the answer is -1", (long long)got);
                if (ever && got < 1)
                    trial_fails(r, "it returned %lld; there is a size from which the ring is faster", (long long)got);
                if (ever && got >= 1 && at < -rounding)
                    trial_fails(r, "it returned %lld; there the ring still takes %.0f ps more", (long long)got, -at);
                else if (ever && got >= 1 && at == 0 && rounding == 0)
                    trial_fails(r, "it returned %lld; there both take as long, and the ring not less", (long long)got);
                if (ever && got > 1 && before > rounding)
                    trial_fails(r, "it returned %lld; with a byte less the ring is faster too, by %.0f ps",
                                (long long)got, before);
            }
            trial_close(r);
        }
}

static const char *const functions[] = { "half_round_trip", "fit", "ring_time", "other_time", "crossover", NULL };

extern const struct lesson lesson_04_cost;
const struct lesson lesson_04_cost = {
    .folder = "04_cost", .title = "Reading a cost", .file = "cost.c", .functions = functions,
    .vary = { { "OTHER", 2 } },
    .check = {
        { 1, "trip", "half a round trip is alpha + B beta", 4, { check_trip },
          { "Which devices take part?  The others return at once.",
            "time_now() before the send and after the receive, on the same device: two clocks cannot be compared.",
            "Device 1 must have received before it sends back." } },
        { 1, "trip-sent", "one message each way", 2, { check_trip_sent }, { "Nothing else needs to be sent." } },
        { 2, "fit", "alpha and beta of unknown links", 4, { check_fit },
          { "What is left of alpha + B beta if B is 0?",
            "Two measurements at different sizes: the slope is beta, the time at 0 bytes is alpha." } },
        { 3, "ring-time", "the time of a ring all-reduce", 3, { check_ring_time },
          { "How many steps, and how many bytes in each?  Look at the table of lesson 03.",
            "Divide in double: bytes / W." } },
        { 4, "other-time", "the time of the other all-reduce", 3, { check_other_time },
          { "Count the steps for W = 2, 4 and 8; every step sends the whole vector." } },
        { 5, "crossover", "from which size on the ring is faster", 4, { check_crossover },
          { "Both times are straight lines over the number of bytes.  When do they meet?",
            "ring: 2(W-1) alpha + n beta 2(W-1)/W.  Write the other one in the same way, and solve for n.",
            "Parallel lines never meet: look at the factor of n.  And 'less than' begins at the next whole number." } },
    },
};
