/* Many jobs on one cluster: blocks, books, schedulers, virtual time, growth under a budget, prices by plans.  Most jobs
 * here have formulas for plans: "MS K" takes MS milliseconds (1 + K (n - 1)) / (n f) a step.
 * tier: check
 */
#include "emulated_devices/cli/cluster/cluster.h"
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/cluster/fit.h"
#include "emulated_devices/cluster/powerflow.h"
#include "emulated_devices/cluster/report.h"
#include "emulated_devices/cluster/virtual_time.h"
#include "emulated_devices/run/plan.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct error err;

static int drawn(uint64_t seed, int at, int below)
{
    return (int)(random_uniform(seed, random_stream("cluster"), (uint64_t)at) * below);
}

/* ---- formulas for plans ------------------------------------------------------------------------------------------ */

static enum error_code formula_step(void *context, const char *plan, int devices, int percent, struct job_price *price,
                                    struct error *e)
{
    double ms = 0, k = 0;
    (void)context, (void)e;
    assert_int_equal(sscanf(plan, "%lf %lf", &ms, &k), 2);
    const double step = 1e9 * ms * (1 + k * (devices - 1)) / devices / (0.01 * percent);
    *price = (struct job_price){ .step = (picoseconds)step, .computing = (picoseconds)(0.75 * step), .fits = true };
    return OK;
}

static enum error_code formula_move(void *context, const char *plan, int from, int to, bool apart,
                                    struct job_move *move, struct error *e)
{
    (void)context, (void)plan, (void)e;
    *move = (struct job_move){ .bytes = 1000 * (uint64_t)(apart ? to : to > from ? to - from : 0), .most = 1000,
                               .time = 3000000000 };
    return OK;
}

static const struct price_source formulas = { NULL, formula_step, formula_move };
static const struct device_power power = { 50, 100, 300 };
static const int clocks[] = { 60, 80, 100 };

static void add(struct cluster_jobs *jobs, const char *user, int64_t arrival, int64_t steps, int devices,
                const char *plan)
{
    struct cluster_job job = { .arrival = arrival, .steps = steps, .devices = devices, .least = devices,
                               .most = devices };
    snprintf(job.name, sizeof job.name, "j%d", jobs->count + 1);
    assert_int_equal(cluster_jobs_add(jobs, job, plan, user, &err), OK);
}

static struct simulation_setting setting_of(const char *scheduler, int devices)
{
    struct simulation_setting s = cluster_usual_setting();
    s.devices = devices, s.node = devices < 8 ? devices : 8, s.copy_rate = 1000;
    assert_int_equal(scheduler_find(&s.scheduler, scheduler, &err), OK);
    return s;
}

/* Simulate, with formulas for plans. */
static void run(struct simulated *out, struct cluster_jobs *jobs, const struct simulation_setting *setting)
{
    struct pricing pricing;
    assert_int_equal(pricing_open(&pricing, jobs, &formulas, clocks, 3, &power, setting->node, &err), OK);
    if (simulate(out, jobs, &pricing, setting, &err)) fail_msg("%s: %s", setting->scheduler->name, err.text);
    pricing_close(&pricing);
}

static void random_jobs(struct cluster_jobs *jobs, uint64_t seed, int count, int devices)
{
    static const char *const plans[] = { "40 0.02", "100 0.1", "7 0.3" };
    *jobs = (struct cluster_jobs){ .count = 0 };
    for (int i = 0; i < count; i++) {
        char user[8];
        int size = 1 << drawn(seed, 5 * i, 4);
        if (size > devices) size = devices;
        snprintf(user, sizeof user, "u%d", drawn(seed, 5 * i + 1, 3));
        add(jobs, user, 1000 * drawn(seed, 5 * i + 2, 400), 1 + drawn(seed, 5 * i + 3, 20000), size,
            plans[drawn(seed, 5 * i + 4, 3)]);
        jobs->at[i].least = 1, jobs->at[i].most = 2 * size < devices ? 2 * size : devices;
    }
    assert_int_equal(cluster_jobs_sort(jobs, &err), OK);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* Blocks never meet, stand at multiples of their sizes, and free halves are one block again. */
static void test_blocks(void **state)
{
    enum { DEVICES = 64, BLOCKS = 64 };
    struct buddy buddy;
    int size[BLOCKS] = { 0 }, place[BLOCKS], used[DEVICES] = { 0 };
    (void)state;
    assert_int_equal(buddy_open(&buddy, DEVICES, &err), OK);
    for (int i = 0; i < 20000; i++) {
        const int b = drawn(1, 2 * i, BLOCKS), want = 1 << drawn(1, 2 * i + 1, 6);
        if (size[b]) {
            buddy_give(&buddy, size[b], place[b]);
            for (int d = 0; d < size[b]; d++) used[place[b] + d] = 0;
            size[b] = 0;
            continue;
        }
        bool there = false;
        for (int at = 0; at < DEVICES; at += want) {
            int n = 0;
            for (int d = 0; d < want; d++) n += used[at + d];
            there = there || n == 0;
            assert_int_equal(buddy_is_free(&buddy, want, at), n == 0);
        }
        place[b] = buddy_take(&buddy, want);
        if ((place[b] >= 0) != there)
            fail_msg("%d devices: a block is %s", want, there ? "free, and not found" : "taken twice");
        if (place[b] < 0) continue;
        size[b] = want;
        assert_int_equal(place[b] % want, 0);
        for (int d = 0; d < want; d++) {
            if (used[place[b] + d]) fail_msg("device %d is in two blocks", place[b] + d);
            used[place[b] + d] = 1;
        }
    }
    for (int b = 0; b < BLOCKS; b++)
        if (size[b]) buddy_give(&buddy, size[b], place[b]);
    assert_int_equal(buddy_take(&buddy, DEVICES), 0);
    buddy_close(&buddy);
}

/* ---- books ------------------------------------------------------------------------------------------------------- */

static int by_start(const void *a, const void *b)
{
    const struct job_piece *const x = a, *const y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* No device has two jobs at a time; energy is that of pieces and of devices without jobs, counted once more. */
static void check_pieces(const struct simulated *out, const struct simulation_setting *setting)
{
    int64_t *const until = calloc((size_t)out->devices, sizeof *until), busy = 0, pieces = 0;
    qsort(out->piece, (size_t)out->pieces, sizeof *out->piece, by_start);
    for (int p = 0; p < out->pieces; p++) {
        const struct job_piece *const piece = &out->piece[p];
        for (int d = piece->place; d < piece->place + piece->devices; d++) {
            if (piece->from < until[d])
                fail_msg("%s: device %d runs job %d while it has another one", setting->scheduler->name, d, piece->job);
            until[d] = piece->to;
        }
        busy += (piece->to - piece->from) * piece->devices, pieces += piece->energy;
    }
    free(until);
    const struct device_books *const all = &out->all;
    assert_true(busy == all->time[DEVICE_COMPUTES] + all->time[DEVICE_WAITS] + all->time[DEVICE_MOVES]);
    assert_true(busy + all->time[DEVICE_IDLE] + all->time[DEVICE_BROKEN] == out->end * out->devices);
    int64_t energy = 0;
    for (int s = 0; s < DEVICE_STATES; s++) energy += all->energy[s];
    if (energy != out->energy) fail_msg("%s: states take %lld mJ of %lld", setting->scheduler->name, (long long)energy,
                                        (long long)out->energy);
    const int64_t without = power.idle * (all->time[DEVICE_IDLE] + all->time[DEVICE_BROKEN]);
    if (pieces + without != out->energy)
        fail_msg("%s: pieces of jobs take %lld mJ, devices without jobs %lld mJ, all %lld mJ", setting->scheduler->name,
                 (long long)pieces, (long long)without, (long long)out->energy);
    assert_true(all->energy[DEVICE_IDLE] == power.idle * all->time[DEVICE_IDLE]);
    assert_true(all->energy[DEVICE_WAITS] == power.steady * all->time[DEVICE_WAITS]);
}

/* A scheduler is asked through this one, which looks whether it leaves devices idle for nothing. */
static const struct scheduler *asked;
static int idle_for_nothing;

static enum error_code watch_decide(struct scheduling *scheduling, struct error *e)
{
    const enum error_code code = asked->decide(scheduling, e);
    struct buddy room;
    int left = scheduling->devices;
    assert_int_equal(buddy_open(&room, scheduling->room->devices, &err), OK);
    buddy_copy(&room, scheduling->room);
    for (int i = 0; i < scheduling->count; i++) {
        const struct active_job *const a = scheduling->at[i];
        left -= a->next.devices;
        if (!asked->moves && a->now.devices == 0 && a->next.devices > 0)
            assert_true(buddy_take_at(&room, a->next.devices, a->next.place));
    }
    assert_true(left >= 0);
    for (int i = 0; i < scheduling->count; i++) {
        const struct active_job *const a = scheduling->at[i];
        if (a->next.devices > 0) continue;
        idle_for_nothing += asked->moves ? a->job->devices <= left : buddy_take(&room, a->job->devices) >= 0;
    }
    buddy_close(&room);
    return code;
}

static void test_books_and_work(void **state)
{
    (void)state;
    for (int s = 0; schedulers[s]; s++)
        for (uint64_t seed = 0; seed < 12; seed++) {
            const int devices = 4 << drawn(seed, 90000, 3);
            struct simulation_setting setting = setting_of(schedulers[s]->name, devices);
            struct cluster_jobs jobs;
            struct simulated out;
            struct scheduler watched = *(asked = schedulers[s]);
            watched.decide = watch_decide;
            setting.scheduler = &watched, setting.how.quantum = 20000, setting.how.change = 500, setting.save = 60000;
            setting.seed = seed, setting.repair = 100000, setting.restart = 3000;
            if (seed % 3 == 2) setting.between = 4e6;
            random_jobs(&jobs, seed, 40, devices);
            idle_for_nothing = 0;
            run(&out, &jobs, &setting);
            check_pieces(&out, &setting);
            if (asked->conserves && idle_for_nothing > 0)
                fail_msg("%s: devices are idle %d times while a job waits that fits", asked->name, idle_for_nothing);
            for (int i = 0; i < jobs.count; i++) {
                assert_true(out.job[i].began >= jobs.at[i].arrival && out.job[i].ended > out.job[i].began);
                if (setting.between == 0) assert_int_equal(out.job[i].failures, 0);
            }
            assert_true(seed % 3 != 2 || out.failures > 0);
            simulated_free(&out), cluster_jobs_free(&jobs);
        }
}

/* A failure takes a job back to its last save: of 100 steps of a second that fail after 34, at a save every 10. */
static void test_failure_goes_back_to_save(void **state)
{
    struct simulation_setting setting = setting_of("fifo", 1);
    (void)state;
    setting.save = 10000, setting.repair = 1, setting.restart = 5000, setting.copy_rate = 0;
    for (setting.seed = 0; setting.seed < 40; setting.seed++) {
        struct cluster_jobs jobs = { .count = 0 };
        struct simulated out;
        add(&jobs, "u", 0, 100, 1, "1000 0");
        setting.between = 100000;
        run(&out, &jobs, &setting);
        const struct job_outcome *const o = &out.job[0];
        if (o->failures == 0) assert_int_equal(o->ended, 100000);
        /* No failure loses more than the steps since the last save, and part of the step that it stops. */
        if (o->redone > 10000000 * (int64_t)o->failures)
            fail_msg("%d failures: %.1f steps were done again, of 10 between two saves", o->failures,
                     1e-6 * (double)o->redone);
        assert_true(o->failures == 0 || o->ended >= 100000 + 5000 + o->redone / 1000);
        simulated_free(&out), cluster_jobs_free(&jobs);
    }
}

/* ---- schedulers -------------------------------------------------------------------------------------------------- */

/* The third fits beside the first and ends before it, so it does not delay the second; the fourth would. */
static void test_backfill(void **state)
{
    static const int64_t fifo[] = { 0, 100000, 150000, 150000 }, filled[] = { 0, 100000, 20, 150000 };
    (void)state;
    for (int way = 0; way < 2; way++) {
        const struct simulation_setting setting = setting_of(way ? "backfill" : "fifo", 4);
        struct cluster_jobs jobs = { .count = 0 };
        struct simulated out;
        add(&jobs, "u", 0, 100, 2, "2000 0"), add(&jobs, "u", 10, 50, 4, "4000 0");
        add(&jobs, "u", 20, 90, 2, "2000 0"), add(&jobs, "u", 30, 120, 2, "2000 0");
        run(&out, &jobs, &setting);
        for (int i = 0; i < 4; i++)
            if (out.job[i].began != (way ? filled : fifo)[i])
                fail_msg("%s: job %d begins at %lld ms, expected %lld", setting.scheduler->name, i + 1,
                         (long long)out.job[i].began, (long long)(way ? filled : fifo)[i]);
        simulated_free(&out), cluster_jobs_free(&jobs);
    }
}

/* With 4 devices 3250 device seconds are over after 812.5 s: 12.5 s after the second job has come. */
static void test_tiresias_falls_in_time(void **state)
{
    struct simulation_setting setting = setting_of("tiresias", 4);
    struct cluster_jobs jobs = { .count = 0 };
    struct simulated out;
    (void)state;
    add(&jobs, "u", 0, 5000, 4, "4000 0"), add(&jobs, "u", 800000, 10, 4, "4000 0");
    run(&out, &jobs, &setting);
    if (out.job[1].began != 812500)
        fail_msg("the second job begins at %lld ms; the first falls to the next queue at 812500",
                 (long long)out.job[1].began);
    simulated_free(&out), cluster_jobs_free(&jobs);
}

static void test_shortest(void **state)
{
    const struct simulation_setting setting = setting_of("shortest", 1);
    struct cluster_jobs jobs = { .count = 0 };
    struct simulated out;
    (void)state;
    add(&jobs, "u", 0, 10, 1, "1000 0"), add(&jobs, "u", 1, 90, 1, "1000 0"), add(&jobs, "u", 2, 20, 1, "1000 0");
    run(&out, &jobs, &setting);
    assert_int_equal(out.job[2].began, 10000);
    assert_int_equal(out.job[1].began, 30000);
    simulated_free(&out), cluster_jobs_free(&jobs);
}

/* ---- virtual time ------------------------------------------------------------------------------------------------ */

static void expect_deadline(const struct virtual_time *clocks, int user, int number, double D)
{
    const double is = virtual_time_deadline(clocks, user, number);
    if (fabs(is - D) > 1e-9) fail_msg("D of job %d of user %d is %g, expected %g", number, user, is, D);
}

/* The example of the released code, replayed by hand: 4 devices; A1 400 and B1 200 at 0, A2 40 at 50, C1 80 at 120. */
static void test_virtual_time(void **state)
{
    struct virtual_time clocks;
    (void)state;
    assert_int_equal(virtual_time_open(&clocks, 4, 3, &err), OK);
    assert_int_equal(virtual_time_add(&clocks, 0, 1, 400, &err), OK);
    assert_int_equal(virtual_time_add(&clocks, 1, 2, 200, &err), OK);
    virtual_time_advance(&clocks, 50);
    assert_int_equal(virtual_time_add(&clocks, 0, 3, 40, &err), OK);
    assert_float_equal(clocks.V, 100, 1e-9);
    expect_deadline(&clocks, 0, 3, 40), expect_deadline(&clocks, 1, 2, 200), expect_deadline(&clocks, 0, 1, 440);
    virtual_time_advance(&clocks, 100);
    if (clocks.user[1].active) fail_msg("user B is still there at 100 ms, when V is %g", clocks.V);
    virtual_time_advance(&clocks, 120);
    assert_float_equal(clocks.V, 280, 1e-9);
    assert_int_equal(virtual_time_add(&clocks, 2, 4, 80, &err), OK);
    expect_deadline(&clocks, 2, 4, 360), expect_deadline(&clocks, 0, 1, 440);
    virtual_time_advance(&clocks, 159);
    assert_true(clocks.user[2].active);
    virtual_time_advance(&clocks, 160);
    assert_false(clocks.user[2].active);
    virtual_time_advance(&clocks, 179);
    assert_true(clocks.user[0].active);
    virtual_time_advance(&clocks, 180);
    assert_int_equal(clocks.active, 0);
    virtual_time_close(&clocks);
}

/* Device milliseconds that a user has had until a time. */
static int64_t had_until(const struct simulated *out, const struct cluster_jobs *jobs, int user, int64_t time)
{
    int64_t had = 0;
    for (int p = 0; p < out->pieces; p++) {
        const struct job_piece *const piece = &out->piece[p];
        const int64_t to = piece->to < time ? piece->to : time;
        if (jobs->at[piece->job].user == user && to > piece->from)
            had += (to - piece->from) * piece->devices;
    }
    return had;
}

/* While both have jobs, a user with ten gets no more than a user with one, but for one piece. */
static void test_many_jobs_give_no_more(void **state)
{
    int more = 0;
    (void)state;
    for (int way = 0; way < 3; way++) {
        struct simulation_setting setting = setting_of((const char *const []){ "uwfq", "fifo", "fair" }[way], 4);
        struct cluster_jobs jobs = { .count = 0 };
        struct simulated out;
        setting.how.quantum = 1000, setting.how.change = 0, setting.copy_rate = 0;
        for (int i = 0; i < 10; i++) add(&jobs, "many", 0, 100, 4, "400 0");
        add(&jobs, "one", 0, 100, 4, "400 0");
        run(&out, &jobs, &setting);
        const int64_t until = out.job[10].ended, many = had_until(&out, &jobs, 0, until),
                      one = had_until(&out, &jobs, 1, until), piece = 4 * (setting.how.quantum + 10000);
        if (way == 0 && many > one + piece)
            fail_msg("until the user with one job is done, the user with ten has had %lld device ms, and the one %lld",
                     (long long)many, (long long)one);
        more += many > one + piece;
        simulated_free(&out), cluster_jobs_free(&jobs);
    }
    assert_int_equal(more, 2);          /* first come first served and turns of jobs give more */
}

/* ---- growth ------------------------------------------------------------------------------------------------------ */

static void fill_table(struct growth_table *table, double ms, double k)
{
    for (int size = 0; size < JOB_SIZES; size++)
        for (int c = 0; c < 3; c++) {
            const int n = 1 << size;
            const double f = 0.01 * clocks[c];
            table->seconds[size][c] = 1e-3 * ms * (1 + k * (n - 1)) / n / f;
            table->joules[size][c] = n * table->seconds[size][c] * (100 + 300 * f * f * f);
        }
}

/* The priority of the second device is (1 - k) / (2 k): k = 0.05 goes before k = 0.2. */
static void test_growth_order(void **state)
{
    struct growth_table table[2];
    struct growth_job job[2];
    (void)state;
    fill_table(&table[0], 10, 0.2), fill_table(&table[1], 10, 0.05);
    for (int i = 0; i < 2; i++) job[i] = (struct growth_job){ &table[i], 1000, 0, 3, -1, 0 };
    assert_int_equal(growth_run(job, 2, 3, 1, INFINITY, &err), OK);
    if (job[0].size != 0 || job[1].size != 1)
        fail_msg("on 3 devices k = 0.2 gets %d and k = 0.05 %d; 1 and 2 expected", 1 << job[0].size, 1 << job[1].size);
    assert_int_equal(growth_run(job, 2, 8, 1, INFINITY, &err), OK);
    assert_true(job[0].size == 2 && job[1].size == 2);
}

/* Never above devices or budget; nothing more would fit; near to the best of all choices. */
static void test_growth_beside_all_choices(void **state)
{
    double ratios = 0, worst = 1;
    int cases = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct growth_table table[3];
        struct growth_job job[3], best[3];
        const int jobs = 1 + drawn(seed, 0, 3), devices = 4 << drawn(seed, 1, 3);
        double least = 0;
        for (int i = 0; i < jobs; i++) {
            fill_table(&table[i], 1 + drawn(seed, 10 + i, 100), 0.01 * drawn(seed, 20 + i, 40));
            job[i] = (struct growth_job){ &table[i], 100 + drawn(seed, 30 + i, 5000), 0, 5, -1, 0 };
            least += job[i].steps * table[i].joules[0][0];
        }
        memcpy(best, job, sizeof job);
        const double budget = least * (1 + 0.01 * drawn(seed, 2, 300));
        assert_int_equal(growth_run(job, jobs, devices, 3, budget, &err), OK);
        const double found = growth_time(job, jobs), all = growth_best(best, jobs, devices, 3, budget);
        int used = 0;
        for (int i = 0; i < jobs; i++) used += job[i].size >= 0 ? 1 << job[i].size : 0;
        if (used > devices) fail_msg("seed %d: %d devices are given of %d", (int)seed, used, devices);
        if (growth_energy(job, jobs) > budget * (1 + 1e-12))
            fail_msg("seed %d: %g J are taken, and the budget is %g J", (int)seed, growth_energy(job, jobs), budget);
        if (found < all * (1 - 1e-12))
            fail_msg("seed %d: better than the best of all: %g of %g", (int)seed, found, all);
        ratios += found / all, cases++;
        worst = fmax(worst, found / all);
    }
    if (ratios / cases > 1.06 || worst > 2)
        fail_msg("greedy growth takes %.3f times the best of all choices on average, %.3f at most", ratios / cases,
                 worst);
}

/* The model finds a formula that it has, from prices at two clock rates, also where it was not asked. */
static void test_fit(void **state)
{
    struct cluster_jobs jobs = { .count = 0 };
    struct pricing pricing;
    struct job_fit fit;
    double mean, worst;
    (void)state;
    add(&jobs, "u", 0, 100, 1, "500 0");
    assert_int_equal(pricing_open(&pricing, &jobs, &formulas, clocks, 3, &power, 8, &err), OK);
    assert_int_equal(job_fit_make(&fit, &pricing, 0, 1, 64, &err), OK);
    assert_int_equal(job_fit_error(&fit, &pricing, 0, 1, 64, &mean, &worst, &err), OK);
    if (worst > 1e-3) fail_msg("a step without messages is %.4f off at most, %.4f on average", worst, mean);
    assert_float_equal(job_fit_watts(&fit, 0.8), 100 + 300 * 0.512 * 0.75, 25);
    pricing_close(&pricing), cluster_jobs_free(&jobs);
}

/* ---- prices by plans --------------------------------------------------------------------------------------------- */

static void test_prices_are_plans(void **state)
{
    static const char plan[] = "--model tiny --batch 16";
    struct planned_source planned;
    struct plan_numbers numbers;
    struct job_price price, slower;
    struct job_move move;
    uint64_t state_bytes;
    (void)state;
    assert_int_equal(planned_open(&planned, "a100-infiniband", cluster_parse_plan, train_options_free, &err), OK);
    const struct price_source source = planned_prices(&planned);
    assert_int_equal(source.step(source.context, plan, 4, 100, &price, &err), OK);
    assert_int_equal(train_plan_words(&numbers, 8, (const char *const []){ "--model", "tiny", "--batch", "16", "--dp",
                                      "4", "--cluster", "a100-infiniband" }, &err), OK);
    assert_true(price.fits && price.peak == numbers.peak);
    assert_float_equal(1e-12 * (double)price.step, numbers.speed.seconds, 1e-11);
    assert_true(price.computing > 0 && price.computing <= price.step);
    assert_int_equal(source.step(source.context, "--model gpt2 --batch 64", 4, 100, &price, &err), OK);
    assert_int_equal(source.step(source.context, "--model gpt2 --batch 64", 4, 50, &slower, &err), OK);
    assert_true(slower.step > price.step && slower.step < 2 * price.step + 1 && slower.peak == price.peak);
    assert_int_equal(source.step(source.context, plan, 32, 100, &price, &err), OK);
    assert_true(!price.fits && price.why[0]);           /* 16 sequences on 32 copies */
    assert_int_equal(source.step(source.context, "--model tiny --dp 2", 2, 100, &price, &err), ERR_USAGE);
    /* Copies: another device needs the whole state once, a device less needs nothing. */
    assert_int_equal(source.move(source.context, plan, 1, 1, true, &move, &err), OK);
    state_bytes = move.bytes;
    assert_true(state_bytes > 3 * 4 * 100000);          /* weights and two states of fp32 */
    assert_int_equal(source.move(source.context, plan, 1, 4, false, &move, &err), OK);
    if (move.bytes != 3 * state_bytes)
        fail_msg("3 more copies get %llu bytes; the state has %llu", (unsigned long long)move.bytes,
                 (unsigned long long)state_bytes);
    assert_int_equal(source.move(source.context, plan, 4, 2, false, &move, &err), OK);
    assert_true(move.bytes == 0 && move.time == 0);
    assert_int_equal(source.move(source.context, "--model tiny --batch 16 --zero 1", 2, 2, true, &move, &err), OK);
    assert_true(move.bytes > state_bytes && move.bytes < 2 * state_bytes && move.time > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_books_and_work),
        cmocka_unit_test(test_failure_goes_back_to_save),
        cmocka_unit_test(test_backfill),
        cmocka_unit_test(test_tiresias_falls_in_time),
        cmocka_unit_test(test_shortest),
        cmocka_unit_test(test_virtual_time),
        cmocka_unit_test(test_many_jobs_give_no_more),
        cmocka_unit_test(test_growth_order),
        cmocka_unit_test(test_growth_beside_all_choices),
        cmocka_unit_test(test_fit),
        cmocka_unit_test(test_prices_are_plans),
    };
    return cmocka_run_group_tests_name("cluster", tests, NULL, NULL);
}
