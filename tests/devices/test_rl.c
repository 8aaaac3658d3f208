/* Reinforcement learning on devices: runs held to one device, bits that do not depend on places or staleness 0, a queue
 * that gives each row once, flows in virtual time, and rewards by hand.
 * ranks: 1 3
 * verify ranks: 2 4 6 8
 */
#include "emulated_devices/rl/cases.h"
#include "emulated_devices/rl/flow.h"
#include "tests/mpi_cmocka.h"
#include <math.h>

static struct error err;
static struct rl_job job;               /* plans are large */

static void run_job(struct rl_record *record, struct comm *comm)
{
    const enum error_code e = rl_run(comm, &job, (struct rl_listener){ NULL, NULL }, record, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
}

/* A job on all devices along one axis. */
static void make_job(enum axis axis, const char *rule, enum exact_rule exact)
{
    int size[AXIS_COUNT] = { 1, 1, 1, 1, 1 };
    size[axis] = test_size;
    const enum error_code e = rl_small_job(&job, size, rule, exact ? F32 : F64, exact, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
}

static void with_comm(void (*body)(struct comm *))
{
    struct device device;
    struct comm comm;
    enum error_code e = device_open(&device, NULL, job.plan.dtype, 0, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
    e = comm_open(&comm, &device, &err);
    ASSERT_ALL(e == OK, "%s", err.text);
    body(&comm);
    comm_close(&comm);
    device_close(&device);
}

static void run_checked(struct comm *comm)
{
    struct rl_record record;
    run_job(&record, comm);
    const bool right = comm->rank != 0 || (rl_verdict(&record, &job.plan, &err) == OK
                                           && record.serial.answers.right > 0 && record.comparison.compared > 0);
    ASSERT_ALL(right, "%s", err.text);
    rl_record_free(&record);
}

static void a_run_is_that_of_one_device(void **state)
{
    (void)state;
    make_job(DP, "verl-grpo", SUMS_ROUND);
    job.check = true, job.warm = 1, job.warm_lr = 1e-3, job.minibatches = 2, job.epochs = 2, job.staleness = 1;
    with_comm(run_checked);
}

static void a_critic_is_that_of_one_device(void **state)
{
    (void)state;
    make_job(DP, "carl", SUMS_ROUND);
    job.check = true;
    with_comm(run_checked);
}

static double losses[2][4], mismatch[2];
static int which;

static void note_losses(struct comm *comm)
{
    struct rl_record record;
    run_job(&record, comm);
    for (int i = 0; i < 2 && comm->rank == 0; i++) {
        losses[which][2 * i] = record.step[i].loss, losses[which][2 * i + 1] = record.step[i].norm;
        mismatch[which] = fmax(mismatch[which], record.step[i].mismatch);
    }
    rl_record_free(&record);
}

/* With exact sums the same losses and norms come from any mesh, and drawing and training agree on every bit. */
static void exact_sums_have_no_mismatch(void **state)
{
    (void)state;
    for (which = 0; which < 2; which++) {
        make_job(which ? TP : DP, "verl-grpo", SUMS_EXACT);
        with_comm(note_losses);
    }
    ASSERT_ALL(memcmp(losses[0], losses[1], sizeof losses[0]) == 0, "losses %.17g and %.17g", losses[0][0],
               losses[1][0]);
    ASSERT_ALL(mismatch[0] == 0 && mismatch[1] == 0, "mismatch %g and %g", mismatch[0], mismatch[1]);
}

/* ---- the queue and flows: no devices ----------------------------------------------------------------------------- */

static void each_task_gets_each_row_once(void **state)
{
    struct queue q;
    int64_t first, row[8];
    (void)state;
    queue_open(&q, 1u << TASK_ROLLOUT | 1u << TASK_REWARD);
    assert_int_equal(queue_add(&q, 4, &first, &err), OK);
    for (int64_t i = 3; i >= 0; i--) assert_int_equal(queue_put(&q, i, COLUMN_PROMPT, &err), OK);
    assert_int_equal(queue_take(&q, TASK_ROLLOUT, INT64_MAX, 3, row), 3);
    assert_int_equal(queue_take(&q, TASK_ROLLOUT, INT64_MAX, 3, row), 1);
    assert_int_equal(row[0], 3);
    assert_int_equal(queue_take(&q, TASK_ROLLOUT, INT64_MAX, 3, row), 0);
    assert_int_equal(queue_take(&q, TASK_REWARD, INT64_MAX, 3, row), 0);
    assert_int_equal(queue_check(&q, &err), ERR_INTERNAL);
    assert_string_equal(err.text, "the task reward has not had sample 0");
    /* Rows that are ready early are given early. */
    assert_int_equal(queue_put(&q, 2, COLUMN_ANSWER, &err), OK);
    assert_int_equal(queue_take(&q, TASK_REWARD, 2, 3, row), 0);
    assert_int_equal(queue_ready(&q, TASK_REWARD, 0, 4), 1);
    assert_int_equal(queue_take(&q, TASK_REWARD, INT64_MAX, 3, row), 1);
    assert_int_equal(row[0], 2);
    for (int64_t i = 0; i < 4; i++)
        assert_int_equal(queue_put(&q, i, COLUMN_ANSWER, &err), i == 2 ? ERR_INTERNAL : OK);
    assert_int_equal(queue_take(&q, TASK_REWARD, INT64_MAX, 8, row), 3);
    assert_int_equal(queue_check(&q, &err), OK);
    assert_int_equal(queue_put(&q, 4, COLUMN_ANSWER, &err), ERR_INTERNAL);
    queue_close(&q);
}

/* Two iterations of two answers on two slots, one of which takes 3 seconds: times by hand. */
static void flows_take_their_times(void **state)
{
    static const double draw[] = { 1, 3, 1, 3 };
    struct flow_times t = { .iterations = 2, .samples = 2, .group = 1, .draw = draw, .slots = 2, .train = 1,
                            .update = 1, .part = 2 };
    struct flow flow;
    (void)state;
    assert_int_equal(flow_run(&t, &flow, &err), OK);
    /* 3 to draw, 2 to train, 1 to update, twice. */
    assert_true(flow.seconds == 12 && flow.most_stale == 0);
    assert_true(fabs(flow.idle[FLOW_TRAIN] - 0.5) < 1e-12 && fabs(flow.idle[FLOW_DRAW] - (1 - 8. / 24)) < 1e-12);
    /* The first answer is trained on while the second is drawn: 3 + 1 + 1, twice. */
    t.part = 1;
    assert_int_equal(flow_run(&t, &flow, &err), OK);
    assert_true(flow.seconds == 10);
    /* The second iteration is drawn meanwhile: 3 + 1 + 1, then 1 + 1 + 1. */
    t.staleness = 1;
    assert_int_equal(flow_run(&t, &flow, &err), OK);
    assert_true(flow.seconds == 8 && flow.most_stale == 1);
    /* On shared devices nothing overlaps. */
    t.turns = true, t.staleness = 0, t.part = 2;
    assert_int_equal(flow_run(&t, &flow, &err), OK);
    assert_true(flow.seconds == 12);
}

static void tasks_reward_places(void **state)
{
    const struct task task = { 1, 10, 7 };
    const int32_t prompt[] = { 9, TASK_PLUS, 4, TASK_IS }, right[] = { 1, 3, TASK_END }, wrong[] = { 1, 4, TASK_END };
    int32_t answer[3];
    (void)state;
    assert_int_equal(task_answer(&task, prompt, answer), 3);
    assert_memory_equal(answer, right, sizeof right);
    assert_true(task_reward(&task, prompt, right, 3) == 1);
    assert_true(fabs(task_reward(&task, prompt, wrong, 3) - 2. / 3) < 1e-15);
    assert_true(fabs(task_reward(&task, prompt, right, 1) - 1. / 3) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(each_task_gets_each_row_once), MPI_TEST(flows_take_their_times),
        MPI_TEST(tasks_reward_places), MPI_TEST(a_run_is_that_of_one_device),
        MPI_TEST(a_critic_is_that_of_one_device), MPI_TEST(exact_sums_have_no_mismatch),
    };
    return MPI_RUN("rl", tests);
}
