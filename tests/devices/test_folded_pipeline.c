/* Parallel folding with a pipeline: what a step of a mixture sends along ep, along etp and from stage to stage, by
 * closed forms, on two stages of eight devices that are folded in every way.
 */
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/schemes/experts/experts.h"
#include "emulated_devices/verify/cases/case.h"
#include "tests/devices/on_crew.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <string.h>

enum { DEVICES = 16, STAGES = 2, LAYERS = 4, EXPERTS = 8, CHOICES = 2, WIDE = 32, TOKENS = 32, SEQUENCES = 8,
       MICROS = 4 };

static struct error err;
static struct cluster flat;

static enum error_code note(struct trainer *t, void *context, struct error *e)
{
    (void)e;
    ((struct ledger *)context)[t->comm->rank] = t->comm->counted;
    return OK;
}

/* Sizes that come out even: TP 2, CP 2, DP 2 in each of two stages. */
static struct plan folded(int ep, int etp, const char *schedule, int chunks)
{
    struct plan p = case_plan(2, 2, STAGES);
    case_take_mixtral(&p);
    case_take_context(&p, 2, "ring-zigzag");
    p.model.L = LAYERS, p.model.D = WIDE, p.model.A = 4, p.model.H = p.model.K = 8, p.model.F = 16, p.model.V = 64;
    p.model.tied = false, p.model.mixture.E = EXPERTS, p.model.mixture.k = CHOICES;
    p.B = SEQUENCES, p.S = p.model.S = TOKENS, p.micros = MICROS, p.tensor = "1d-sp";
    p.schedule = schedule, p.chunks = chunks, p.ep = ep, p.etp = etp, p.dispatch = "alltoall", p.cluster = &flat;
    return p;
}

/* What each device sends in a step: an even load, all choices to experts that are as far away as anywhere. */
static void count(struct plan p, struct ledger sent[DEVICES], const char *what)
{
    struct dry_run d;
    struct load even;
    if (load_open(&even, "even", &p.model, p.B * p.S, &err)) fail_msg("%s: %s", what, err.text);
    p.load = &even;
    if (plan_check(&p, &err)) fail_msg("%s: %s", what, err.text);
    if (dry_run(&p, 1, true, NULL, NULL, note, sent, &d, &err)) fail_msg("%s: %s", what, err.text);
    load_close(&even);
}

/* A layer and microbatch, forward and backward, in fp64: k n (ep-1)/ep rows to other devices and as many back, twice;
 * along etp each device's k n rows and their experts to all, and results back.  Before: how many rows there are. */
static uint64_t bytes_of_experts(int ep, int etp)
{
    const uint64_t n = SEQUENCES * TOKENS / MICROS / (2 * 2 * 2), rows = CHOICES * n, row = WIDE * sizeof(double);
    const uint64_t along_ep = 4 * rows * (uint64_t)(ep - 1) / (uint64_t)ep * row + (uint64_t)(ep - 1) * EXPERTS * 4,
                   along_etp = (uint64_t)(etp - 1) * (rows * (4 * row + 4) + 4);
    return MICROS * LAYERS / STAGES * (along_ep + along_etp);
}

static const struct { const char *name; int chunks; } schedules[] = {
    { "1f1b", 1 }, { "interleaved", 2 }, { "zb-h1", 1 }, { "dualpipev", 2 }, { "gpipe", 1 },
};
static const struct { int ep, etp; } mappings[] = {
    { 8, 1 }, { 4, 1 }, { 4, 2 }, { 2, 2 }, { 2, 4 }, { 2, 1 },
};

static void test_bytes_of_experts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++)
        for (size_t m = 0; m < sizeof mappings / sizeof *mappings; m++) {
            const int ep = mappings[m].ep, etp = mappings[m].etp;
            struct ledger sent[DEVICES];
            char what[80];
            snprintf(what, sizeof what, "%s, ep %d, etp %d", schedules[i].name, ep, etp);
            count(folded(ep, etp, schedules[i].name, schedules[i].chunks), sent, what);
            for (int rank = 0; rank < DEVICES; rank++) {
                const struct traffic t = account_total(&sent[rank].of[TRAFFIC_EXPERTS]);
                if (t.bytes_sent != bytes_of_experts(ep, etp))
                    fail_msg("%s: device %d sends %llu bytes for experts, not %llu", what, rank,
                             (unsigned long long)t.bytes_sent, (unsigned long long)bytes_of_experts(ep, etp));
            }
        }
    assert_true(bytes_of_experts(8, 1) < bytes_of_experts(4, 2));      /* as published: ep before etp */
}

/* The notes that travel with a loss of all layers together: probabilities, choices and a count of rows forward, slopes
 * backward; none with a loss of each layer, or of the whole batch.  Each of the 8 devices of a stage sends them, over
 * one boundary in each direction, or over three with two chunks. */
static void test_bytes_of_stages(void **state)
{
    static const struct { int over, layers, forward, backward; } rules[] = {
        { OVER_MICROBATCH, LAYERS_TOGETHER, 2 * EXPERTS + 1, EXPERTS },
        { OVER_SEQUENCE, LAYERS_TOGETHER, 2 * EXPERTS + 1, EXPERTS },       /* a microbatch has one sequence */
        { OVER_MICROBATCH, LAYERS_EACH, 0, 0 },
        { OVER_BATCH, LAYERS_TOGETHER, 0, 0 },
    };
    const uint64_t tensor = SEQUENCES * TOKENS / MICROS / 8 * WIDE * sizeof(double);
    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
            const bool batch = rules[r].over == OVER_BATCH;
            struct plan p = folded(8, 1, batch ? "gpipe" : schedules[i].name, batch ? 1 : schedules[i].chunks);
            const uint64_t boundaries = (uint64_t)(STAGES * p.chunks - 1),
                           want = 8 * MICROS * boundaries *
                                  (2 * tensor + (uint64_t)(rules[r].forward + rules[r].backward) * sizeof(double));
            struct ledger sent[DEVICES];
            uint64_t all = 0;
            p.model.mixture.balance = (struct balance_rule){ rules[r].over, rules[r].layers, CHOICES_ALL };
            count(p, sent, p.schedule);
            for (int rank = 0; rank < DEVICES; rank++)
                all += account_total(&sent[rank].of[TRAFFIC_PIPELINE]).bytes_sent;
            if (all != want)
                fail_msg("%s, rule %zu: devices send %llu bytes from stage to stage, not %llu", p.schedule, r,
                         (unsigned long long)all, (unsigned long long)want);
        }
}

static int open_cluster(void **state)
{
    (void)state;
    return cluster_find(&flat, "textbook", &err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_of_experts), cmocka_unit_test(test_bytes_of_stages),
    };
    return cmocka_run_group_tests_name("folded pipelines", tests, open_cluster, NULL);
}
