/* A mixture on a shortcut in virtual time: of an exchange only what takes longer than the blocks beside it is waited
 * for, to the picosecond, forward and backward, under every scheme; results have the bits of the pass that waits.
 * And in a model: steps are shorter, and where the parts of the mixture run.
 * ranks: 2 4
 * verify ranks: 3 6 8
 */
#define DEVICE_FORMAT F64
#define DEVICE_CLUSTER textbook()
#include "emulated_devices/device/cluster.h"
static const struct cluster *textbook(void);
#include "tests/devices/on_devices.h"
#include "tests/tier.h"
#include "emulated_devices/model/program.h"
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/cases/experts.h"
#include <string.h>

static struct error err;
static struct expert_layer layer;

/* 10 us a message, 20 ps a byte; computing takes no time. */
static const struct cluster *textbook(void)
{
    static struct cluster c;
    assert_int_equal(cluster_find(&c, "textbook", &err), OK);
    c.link[0].eager = ALWAYS_EAGER;
    return &c;
}

typedef enum error_code pass(struct mixture_call *, struct error *);

static picoseconds now(void) { return device.clock.now; }

/* All devices begin at the same time. */
static picoseconds begin(void)
{
    comm_barrier(&comm);
    clock_restart(&device.clock, textbook(), F64);
    return now();
}

static void open_layer(const struct expert_scheme *s)
{
    const struct expert_shape shape = { .E = 2 * test_size, .k = 2, .tokens = 2 * test_size, .D = 3, .F = 4,
                                        .ep = test_size, .etp = 1 };
    ASSERT_ALL(expert_layer_open(&layer, &comm, s, shape, &err) == OK, "%s", err.text);
    ASSERT_ALL(expert_layer_learn(&layer, &err) == OK && expert_layer_announce(&layer, &err) == OK, "%s", err.text);
}

static void run_phase(pass *run, unsigned phases)
{
    layer.call.phases = phases;
    ASSERT_ALL(run(&layer.call, &err) == OK, "%s", err.text);
}

/* ---- one call ---------------------------------------------------------------------------------------------------- */

/* How long the two exchanges of a pass take, and what is between them. */
struct lengths { picoseconds there, between, back; };

static struct lengths measure(pass *run)
{
    struct lengths l;
    const picoseconds start = begin();
    run_phase(run, SEND_ROWS);
    assert_int_equal(now(), start);                     /* nobody waits */
    l.there = layer.routing.way.done - start;
    run_phase(run, COMPUTE_ROWS);
    l.between = now() - start - l.there;
    l.back = layer.routing.way.done - now();
    run_phase(run, RETURN_ROWS);
    assert_int_equal(now(), start + l.there + l.between + l.back);
    return l;
}

static picoseconds larger(picoseconds a, picoseconds b) { return a > b ? a : b; }

/* The blocks beside take w1 and w2.  What is sent back takes as long as before if all devices send alike; else it
 * depends on who had to wait for the first exchange. */
static void check_windows(pass *run, const char *what, struct lengths l, picoseconds w1, picoseconds w2)
{
    const bool alike = strcmp(layer.ep.scheme->head.name, "alltoall") == 0;
    const picoseconds start = begin();
    run_phase(run, SEND_ROWS);
    clock_wait(&device.clock, start + w1);
    run_phase(run, COMPUTE_ROWS);
    if (!alike) l.between = now() - start - larger(l.there, w1), l.back = layer.routing.way.done - now();
    clock_wait(&device.clock, start + larger(l.there, w1) + l.between + w2);
    run_phase(run, RETURN_ROWS);
    const picoseconds want = larger(l.there, w1) + l.between + larger(l.back, w2);
    ASSERT_ALL(now() - start == want, "%s %s: exchanges of %lld and %lld ps beside blocks of %lld and %lld take %lld, "
               "want %lld", layer.ep.scheme->head.name, what, (long long)l.there, (long long)l.back, (long long)w1,
               (long long)w2, (long long)(now() - start), (long long)want);
}

static void check_pass(pass *run, const char *what)
{
    const struct lengths l = measure(run);
    ASSERT_ALL(l.there > 0 && l.back > 0, "%s %s sends nothing", layer.ep.scheme->head.name, what);
    for (int i = 0; i < 16; i++) check_windows(run, what, l, i % 4 * l.there / 2, i / 4 * l.back / 2);
    ASSERT_ALL(expert_layer_right(&layer), "%s %s: a result is not that of one device", layer.ep.scheme->head.name,
               what);
}

static void test_exposed(void **state)
{
    (void)state;
    for (int i = 0; expert_scheme_at(i); i++) {
        const struct expert_scheme *s = expert_scheme_at(i);
        if (!s->cuts_experts) continue;
        open_layer(s);
        run_phase(s->forward, ALL_PHASES), run_phase(s->input, ALL_PHASES);
        check_pass(s->forward, "forward"), check_pass(s->input, "backward");
        expert_layer_close(&layer);
    }
}

/* ---- in a model -------------------------------------------------------------------------------------------------- */

/* Three steps on a cluster where computing takes time. */
static struct outcome train(bool waits)
{
    struct outcome o = { 0 };
    struct cluster c;
    struct plan p = case_plan(test_size, 1, 1);
    case_take_scmoe(&p);
    case_take_experts(&p, test_size, "alltoall");
    assert_int_equal(cluster_find(&c, "h100-infiniband", &err), OK);
    /* Such small kernels would wait for their host, with exchanges hidden or not. */
    memset(&c.host.issue, 0, sizeof c.host.issue);
    p.cluster = &c, p.experts_wait = waits;
    ASSERT_ALL(plan_check(&p, &err) == OK && case_run(&p, &o, &err) == OK && o.verdict.code == OK, "%s: %s", err.text,
               o.verdict.text);
    return o;
}

static void test_steps_are_shorter(void **state)
{
    (void)state;
    const struct outcome hidden = train(false), waits = train(true);
    ASSERT_ALL(hidden.time < waits.time, "%lld ps with exchanges hidden, %lld without", (long long)hidden.time,
               (long long)waits.time);
    ASSERT_ALL(hidden.whole_hash == waits.whole_hash, "other bits with exchanges hidden than without");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_exposed), MPI_TEST(test_steps_are_shorter),
    };
    return MPI_RUN("shortcut_time", tests);
}
