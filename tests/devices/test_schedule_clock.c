/* Every pipeline schedule, executed: the virtual clock of every device says what the schedule's own timer says.
 * tier: check
 * ranks: 1 2 4
 * verify ranks: 3
 *
 * Stages are uniform and messages have one latency and no length, as the timer has it (timing.h).  Then each action of
 * each device must begin and end at the same picosecond in both, and the bubble follows: the closed forms that
 * test_schedule.c holds the timer to are those of the clock.
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/schemes/pipeline/execute.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include <stdlib.h>

enum { FORWARD_TIME = 3000000, INPUT_TIME = 5000000, WEIGHT_TIME = 2000000, UPDATE_TIME = 1000000, LATENCY = 700000 };

static struct device device;
static struct comm comm;
static struct group group;
static struct error err;

/* ---- stages that only take time ---------------------------------------------------------------------------------- */

static enum error_code stage_compute(void *context, enum action_kind kind, int chunk, int micro, struct error *e)
{
    static const picoseconds time[ACTION_KINDS] = {
        [FORWARD] = FORWARD_TIME, [BACKWARD] = INPUT_TIME + WEIGHT_TIME, [BACKWARD_INPUT] = INPUT_TIME,
        [BACKWARD_WEIGHT] = WEIGHT_TIME, [UPDATE] = UPDATE_TIME,
    };
    (void)context, (void)chunk, (void)micro, (void)e;
    device.clock.now += time[kind];
    return OK;
}

static struct tensor made(void *context, int chunk, int micro)
{
    (void)context, (void)chunk, (void)micro;
    return device_tensor_1d(&device, BUFFERS, 5);
}

/* What was received or handed over, to be freed in the end. */
enum { MOST_RECEIVES = 4096 };
static struct tensor received[MOST_RECEIVES];
static int receives;

static struct tensor to_receive(void *context, int chunk, int micro)
{
    assert_true(receives < MOST_RECEIVES);
    return received[receives++] = made(context, chunk, micro);
}

static const struct stage_operations stage = { .compute = stage_compute,
                                               .input = to_receive,
                                               .output_gradient = to_receive,
                                               .take_output = made,
                                               .take_input_gradient = made };

/* ---- a schedule in both clocks ----------------------------------------------------------------------------------- */

static void open_on(picoseconds latency)
{
    struct cluster c;
    assert_int_equal(cluster_find(&c, "textbook", &err), OK);
    c.link[0].eager = ALWAYS_EAGER, c.link[0].latency = latency, c.link[0].rate = 0;
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    clock_open(&device.clock, &c, F32);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    assert_int_equal(group_world(&group, &comm, &err), OK);
    receives = 0;
}

static void close_all(void)
{
    for (int i = 0; i < receives; i++) device_free(&device, received[i]);
    group_close(&group);
    comm_close(&comm);
    device_close(&device);
}

static struct timing timed(const struct schedule *s, picoseconds latency)
{
    struct timing t;
    int64_t *room = malloc(3 * (size_t)s->stages * sizeof *room);
    assert_non_null(room);
    struct schedule_times times = uniform_times(s->stages, FORWARD_TIME, INPUT_TIME, WEIGHT_TIME, latency, room);
    times.update = UPDATE_TIME;
    assert_int_equal(schedule_time(&t, s, &times, &err), OK);
    free(room);
    return t;
}

static void check(const struct schedule *s, picoseconds latency)
{
    const int n = s->count[test_rank];
    struct timing want = timed(s, latency);
    struct action_time *got = calloc((size_t)n + 1, sizeof *got);
    int wrong = -1;
    assert_non_null(got);
    open_on(latency);
    const enum error_code e = schedule_execute(s, &group, &stage, NULL, got, &err);
    ASSERT_ALL(e == OK, "%s: %s", s->name, err.text);
    for (int i = n - 1; i >= 0; i--)
        if (got[i].start != want.start[test_rank][i] || got[i].end != want.end[test_rank][i]) wrong = i;
    const int at = wrong >= 0 ? wrong : 0;
    const int64_t timer[2] = { want.start[test_rank][at], want.end[test_rank][at] };
    ASSERT_ALL(wrong < 0, "%s M=%d v=%d: action %d (%s%d) took %lld..%lld on the clock, %lld..%lld by the timer",
               s->name, s->micros, s->chunks, at, action_letter(s->actions[test_rank][at].kind),
               s->actions[test_rank][at].micro, (long long)got[at].start, (long long)got[at].end, (long long)timer[0],
               (long long)timer[1]);
    close_all();
    free(got);
    timing_free(&want);
}

static void each_schedule(picoseconds latency)
{
    const int P = test_size, micros[] = { 1, P, 2 * P + 1, 3 * P };
    int run = 0;
    for (int g = 0; schedule_generator_at(g); g++)
        for (int m = 0; m < 4; m++) {
            struct schedule s;
            const struct schedule_request q = { .devices = P,
                                                .micros = micros[m],
                                                .chunks = schedule_generator_at(g)->chunks ? 0 : 2 };
            if (schedule_make(&s, schedule_generator_at(g)->head.name, &q, &err) != OK) continue;
            check(&s, latency);
            schedule_free(&s);
            run++;
        }
    ASSERT_ALL(run >= 13 * 4 - 4, "only %d schedules were run", run);
}

static void test_messages_at_once(void **state) { (void)state; each_schedule(0); }
static void test_messages_take_time(void **state) { (void)state; each_schedule(LATENCY); }

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_messages_at_once), MPI_TEST(test_messages_take_time) };
    return MPI_RUN("schedule_clock", tests);
}
