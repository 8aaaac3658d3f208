/* Who is slow and who hangs: steps of training in a crew with something made slow, judged by the records of all
 * devices.  Class and device are right for every seed, with noise in every operation and message; and steps in which
 * nothing is slow raise no alarm.
 */
#include "emulated_devices/check/slow/slow.h"
#include "emulated_devices/train/dry_run/dry_run.h"
#include "emulated_devices/verify/cases/case.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include "tests/tier.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICES = 8, NOISE = 20 };
static struct error err;
static struct cluster cluster;

static int open_cluster(void **state)
{
    (void)state;
    return cluster_find(&cluster, CLUSTER_USUAL, &err);
}

/* A device of the run and what disturbs it. */
struct trial { struct recorder of[DEVICES]; struct disturbances disturbances; };

static enum error_code begin(struct trainer *t, void *context, struct error *e)
{
    struct trial *trial = context;
    (void)e;
    t->comm->recorder = &trial->of[t->comm->rank];
    t->device->clock.disturbed = (struct disturbed){ .all = &trial->disturbances, .rank = t->comm->rank };
    return OK;
}

static enum error_code end(struct trainer *t, void *context, struct error *e)
{
    (void)t, (void)context, (void)e;
    return OK;
}

/* Meshes on which each device sends to several others: row, column and cell can be told apart. */
static const int meshes[][2] = { { 8, 1 }, { 4, 2 }, { 2, 4 } };        /* dp, tp */
enum { MESHES = sizeof meshes / sizeof *meshes };

static struct plan plan_of(int m)
{
    struct plan p = case_plan(meshes[m][0], meshes[m][1], 1);
    p.model.V = 64, p.model.H = p.model.K = 8, p.model.D = 32, p.model.A = 4, p.model.F = 128, p.B = 16;
    p.model.S = p.S = 8, p.cluster = &cluster;
    if (plan_check(&p, &err)) fail_msg("%s", err.text);
    return p;
}

/* Run steps with some words of --disturb; what is found, in *slow.  A hang is run in a process of its own, whose
 * records are shared memory. */
static void diagnose(int m, const char *words, uint64_t seed, int steps, bool hangs, struct slow *slow,
                     char text[SLOW_SENTENCE])
{
    struct trial t;
    const struct records records = { DEVICES, t.of };
    struct plan p = plan_of(m);
    struct dry_run run;
    if (disturbances_parse(&t.disturbances, words, &err)) fail_msg("%s", err.text);
    t.disturbances.seed = seed;
    for (int d = 0; d < DEVICES; d++) assert_int_equal(recorder_open(&t.of[d], NULL, d, DEVICES, 0, &err), OK);
    if (hangs) {
        fflush(NULL);
        const pid_t child = fork();
        if (child == 0) {
            if (freopen("/dev/null", "w", stderr) == NULL) _exit(9);
            dry_run(&p, steps, true, NULL, begin, end, &t, &run, &err);
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);     /* the crew says that nobody can go on */
    } else if (dry_run(&p, steps, true, NULL, begin, end, &t, &run, &err)) fail_msg("%s: %s", words, err.text);
    assert_int_equal(slow_judge(slow, &records, hangs, &err), OK);
    text[0] = '\0';
    for (int i = 0; i < slow->count && i < 1; i++) slow_sentence(text, slow, &slow->of[i], &records);
    if (!hangs) assert_int_equal(slow->steps, steps);
    for (int d = 0; d < DEVICES; d++) recorder_close(&t.of[d]);
}

static uint64_t drawn;
static int draw(int below)
{
    drawn = drawn * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((drawn >> 33) % (uint64_t)below);
}

/* ---- what is made slow is found ---------------------------------------------------------------------------------- */

struct kind { const char *word; enum slow_class class; enum slow_part part; bool hangs, once; };
static const struct kind kinds[] = {
    { "compute", SLOW_OUTSIDE, PART_DEVICE, false, false },
    { "link", SLOW_COMMUNICATION, PART_LINK, false, false },
    { "out", SLOW_COMMUNICATION, PART_SENDER, false, false },
    { "in", SLOW_COMMUNICATION, PART_RECEIVER, false, false },
    { "hang", HANG_OUTSIDE, PART_DEVICE, true, false },
    { "hang-inside", HANG_COMMUNICATION, PART_DEVICE, true, false },
    { "compute", SLOW_OUTSIDE, PART_DEVICE, false, true },
};
enum { KINDS = sizeof kinds / sizeof *kinds, STEPS = 6, ONE_IN = 100 };

/* A device of the same copy or of the same shard as another: these send to each other. */
static int neighbour(int m, int device)
{
    const int tp = meshes[m][1];
    for (;;) {
        const int other = draw(DEVICES);
        if (other != device && (other % tp == device % tp || other / tp == device / tp)) return other;
    }
}

static void try(const struct kind *k, uint64_t seed)
{
    char words[100], text[SLOW_SENTENCE], at[30] = "";
    struct slow slow;
    drawn = seed * 977 + 1;
    const int m = draw(MESHES), device = draw(DEVICES), times = 2 + draw(7), steps = k->once ? ONE_IN : STEPS,
              step = 1 + draw(steps), other = neighbour(m, device);
    if (k->once || k->hangs) snprintf(at, sizeof at, "@%d", step);
    if (k->hangs) snprintf(words, sizeof words, "%s:%d%s,noise:%d", k->word, device, at, NOISE);
    else if (k->part == PART_LINK) snprintf(words, sizeof words, "link:%d-%d:%d,noise:%d", device, other, times, NOISE);
    else snprintf(words, sizeof words, "%s:%d:%d%s,noise:%d", k->word, device, times, at, NOISE);
    diagnose(m, words, seed, steps, k->hangs, &slow, text);
    if (slow.count != 1)
        fail_msg("dp %d, tp %d, --disturb %s: %d findings, first: %s", meshes[m][0], meshes[m][1], words, slow.count,
                 text);
    const struct slow_finding *const f = &slow.of[0];
    if (f->class != k->class || f->part != k->part || f->device != device
        || (k->part == PART_LINK && f->other != other))
        fail_msg("dp %d, tp %d, --disturb %s: found: %s", meshes[m][0], meshes[m][1], words, text);
    const int64_t in = k->once || k->hangs ? 1 : steps;
    if (f->steps != in) fail_msg("--disturb %s: found in %lld steps, not %lld: %s", words, (long long)f->steps,
                                 (long long)in, text);
    if ((k->once || k->hangs) && f->first != step) fail_msg("--disturb %s: found in step %lld: %s", words,
                                                           (long long)f->first, text);
    if (k->class == SLOW_OUTSIDE && strstr(text, "waits least") == NULL) fail_msg("--disturb %s: %s", words, text);
}

static void test_found(void **state)
{
    const int seeds = tier_now() == TIER_VERIFY ? 100 : 2;
    (void)state;
    for (int k = 0; k < KINDS; k++)
        for (int s = 0; s < (kinds[k].once && seeds < 100 ? 1 : seeds); s++) try(&kinds[k], (uint64_t)(100 * k + s));
}

/* ---- what is not slow is not ------------------------------------------------------------------------------------- */

static void test_no_alarm(void **state)
{
    const int steps = tier_now() == TIER_VERIFY ? 1000 : 40;
    char text[SLOW_SENTENCE], words[40];
    struct slow slow;
    (void)state;
    snprintf(words, sizeof words, "noise:%d", NOISE);
    for (int m = 0; m < MESHES; m++) {
        diagnose(m, words, (uint64_t)m, steps, false, &slow, text);
        if (slow.count > 0) fail_msg("dp %d, tp %d: nothing is slow, but: %s", meshes[m][0], meshes[m][1], text);
    }
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static void test_words(void **state)
{
    static const char *const wrong[] = { "", "compute", "compute:3", "compute:3:0.5", "link:1:4", "link:1-1x:4",
                                         "out:1:4@0", "hang:3:4",
                                         "noise", "noise:-1", "compute:1:2,", "compute:1:2.345", "slow:1:2",
                                         "compute:99999999999:2" };
    struct disturbances d;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (disturbances_parse(&d, wrong[i], &err) != ERR_USAGE) fail_msg("--disturb %s is taken", wrong[i]);
    assert_int_equal(disturbances_parse(&d, "compute:1:2.5@7-,link:0-3:4@2,noise:5", &err), OK);
    assert_true(d.count == 2 && d.noise == 5 && d.of[0].percent == 250 && d.of[0].first == 7);
    assert_true(d.of[0].last == INT64_MAX);
    assert_true(d.of[1].device == 0 && d.of[1].other == 3 && d.of[1].first == 2 && d.of[1].last == 2);
    assert_int_equal(disturbances_check(&d, 4, &err), OK);
    assert_int_equal(disturbances_check(&d, 3, &err), ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_words), cmocka_unit_test(test_found),
                                        cmocka_unit_test(test_no_alarm) };
    return cmocka_run_group_tests(tests, open_cluster, NULL);
}
