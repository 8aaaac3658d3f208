/* Memories of nodes by batches of events: devices have one device's numbers, and a batch is what it is by hand.
 * ranks: 1 3
 * verify ranks: 2
 */
#include "emulated_devices/bench/temporal.h"
#include "tests/mpi_cmocka.h"
#include <math.h>

enum { NODES = 10, EVENTS = 96, NUMBERS = NODES * TEMPORAL_WIDTH };

static struct device device;
static struct comm comm;
static struct error err;

static struct temporal usual(double weight) { return (struct temporal){ NODES, EVENTS, 0.001, 3, weight, 5 }; }

static void run_batches(struct temporal_state *state, const struct temporal *of, int batch, struct group *group)
{
    ASSERT_ALL(temporal_open(state, of, &err) == OK, "%s", err.text);
    for (int first = 0; first < EVENTS; first += batch)
        ASSERT_ALL(temporal_batch(state, of, first, EVENTS - first < batch ? EVENTS - first : batch, group,
                                        &err) == OK, "%s", err.text);
}

/* How many numbers of two memories differ. */
static int differences(const double *memory, const double *other)
{
    int count = 0;
    for (int i = 0; i < NUMBERS; i++) count += memory[i] != other[i];
    return count;
}

static void devices_have_the_numbers_of_one(void **state)
{
    struct temporal_state here, alone;
    struct group world;
    (void)state;
    assert_int_equal(device_open(&device, NULL, F64, 0, &err), OK);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    assert_int_equal(group_world(&world, &comm, &err), OK);
    for (int weight = 0; weight < 2; weight++)
        for (int batch = 1; batch <= 64; batch = 4 * batch + 1) {
            const struct temporal of = usual(weight ? 0.9 : 0);
            run_batches(&here, &of, batch, &world), run_batches(&alone, &of, batch, NULL);
            const int memories = differences(here.memory, alone.memory), moves = differences(here.moves, alone.moves);
            ASSERT_ALL(memories == 0 && moves == 0, "batches of %d: %d memories and %d movements differ from one "
                       "device's", batch, memories, moves);
            ASSERT_ALL(here.lost == alone.lost && (batch == 1) == (here.lost == 0), "%lld events lost in batches of %d",
                       (long long)here.lost, batch);
            temporal_close(&here), temporal_close(&alone);
        }
    group_close(&world);
    comm_close(&comm), device_close(&device);
}

/* Events of a batch in which a node has several: its memory is what the last of them gives from the old memories.  With
 * prediction the mean of that and of the old memory plus the usual movement of each of its events. */
static void a_batch_is_what_it_is_by_hand(void **state)
{
    const struct temporal plain = usual(0), predicts = usual(0.9);
    struct temporal_state before, batch, one, mean;
    int seen = 0, not_last = 0, not_mean = 0;
    (void)state;
    for (int first = 20; first < 80; first++) {
        struct temporal_state *const all[] = { &before, &batch, &one, &mean };
        for (int i = 0; i < 4; i++) {
            ASSERT_ALL(temporal_open(all[i], &plain, &err) == OK, "%s", err.text);
            for (int k = 0; k < first; k++)
                ASSERT_ALL(temporal_batch(all[i], &plain, k, 1, NULL, &err) == OK, "%s", err.text);
        }
        ASSERT_ALL(temporal_batch(&batch, &plain, first, 2, NULL, &err) == OK, "%s", err.text);
        ASSERT_ALL(temporal_batch(&one, &plain, first + 1, 1, NULL, &err) == OK, "%s", err.text);
        ASSERT_ALL(temporal_batch(&mean, &predicts, first, 2, NULL, &err) == OK, "%s", err.text);
        for (int i = 0; i < NUMBERS; i++) {
            /* The second event alone gives its nodes the same. */
            const bool of_second = one.memory[i] != before.memory[i];
            not_last += of_second && batch.memory[i] != one.memory[i];
            if (mean.memory[i] == batch.memory[i]) continue;
            const double predicted = before.memory[i] + 2 * before.moves[i];
            const double want = 0.45 * predicted + 0.55 * batch.memory[i];
            not_mean += !(fabs(mean.memory[i] - want) < 1e-15), seen++;
        }
        for (int i = 0; i < 4; i++) temporal_close(all[i]);
    }
    ASSERT_ALL(not_last == 0, "%d numbers of a node are not those of its last event", not_last);
    ASSERT_ALL(not_mean == 0, "%d of %d numbers with prediction are not the weighted mean", not_mean, seen);
    ASSERT_ALL(seen >= TEMPORAL_WIDTH, "only %d numbers were predicted", seen);
}

/* The error grows with the batch, and with slow nodes prediction makes it smaller. */
static void errors_have_their_directions(void **state)
{
    double before = 0, error, predicted, lost;
    (void)state;
    for (int batch = 1; batch <= 32; batch *= 4) {
        const struct temporal plain = { 24, 512, 0.0005, 4, 0, 42 }, predicts = { 24, 512, 0.0005, 4, 0.9, 42 };
        ASSERT_ALL(temporal_error(&plain, batch, NULL, &error, &lost, &err) == OK, "%s", err.text);
        ASSERT_ALL(temporal_error(&predicts, batch, NULL, &predicted, &lost, &err) == OK, "%s", err.text);
        const bool holds = batch == 1 ? error == 0 && predicted == 0 && lost == 0 : error > before && predicted < error;
        ASSERT_ALL(holds, "batches of %d: error %.4f, %.4f before, %.4f with prediction", batch, error, before,
                   predicted);
        before = error;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(devices_have_the_numbers_of_one), MPI_TEST(a_batch_is_what_it_is_by_hand),
        MPI_TEST(errors_have_their_directions),
    };
    return MPI_RUN("temporal", tests);
}
