/* Connecting when MPI fails on some device: the same error on all, nothing left behind, and the next attempt works.
 * tier: check
 * ranks: 1 2 3
 *
 * This program's MPI_Comm_idup, MPI_Comm_free and MPI_Irecv stand before MPI's: they count, and fail when they are told
 * to.
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/collectives/collective.h"

static int fail_at, calls, made, freed;             /* which duplicate fails here, 1 for the first; 0: none */
static bool fail_receive;                           /* the next one */

/* A failure that the others do not notice by themselves: the duplicate is made with them, and thrown away. */
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *copy, MPI_Request *request)
{
    const int rc = PMPI_Comm_idup(comm, copy, request);
    if (++calls != fail_at) {
        made++;
        return rc;
    }
    patience_settle(request);
    PMPI_Comm_free(copy);
    return MPI_ERR_OTHER;
}

int MPI_Comm_free(MPI_Comm *comm)
{
    freed++;
    return PMPI_Comm_free(comm);
}

int MPI_Irecv(void *data, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request)
{
    if (!fail_receive) return PMPI_Irecv(data, count, type, from, tag, comm, request);
    fail_receive = false;
    *request = MPI_REQUEST_NULL;
    return MPI_ERR_OTHER;
}

static struct device device;
static struct comm comm;
static struct error err;

/* Long messages wait for their receivers, which takes a third communicator. */
static const struct cluster rendezvous = { .name = "rendezvous",
                                           .levels = 1,
                                           .link = { { .latency = 1000, .gap = 1000, .rate = 1000, .eager = 64 } } };

static int open_device(void **state)
{
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    clock_open(&device.clock, &rendezvous, F32);
    return harness_before(state);
}

static int close_device(void **state)
{
    (void)state;
    device_close(&device);
    return 0;
}

static void connect_and_add(void)
{
    float x[3] = { 1, 2, 3 };
    fail_at = calls = made = freed = 0;
    const enum error_code code = comm_open(&comm, &device, &err);
    ASSERT_ALL(code == OK && made == 3, "%s; %d communicators", err.text, made);
    const enum error_code sum = allreduce(comm.everyone, x, 3, F32, SUM, NULL, &err);
    ASSERT_ALL(sum == OK && x[2] == 3 * (float)comm.size, "the sum is %g", x[2]);
    comm_close(&comm);
    ASSERT_ALL(freed == 3, "%d of 3 communicators freed", freed);
}

static void test_a_duplicate_fails(void **state)
{
    (void)state;
    for (int which = 1; which <= 3; which++)
        for (int who = 0; who <= test_size; who++) {            /* test_size: everybody */
            char want[80];
            snprintf(want, sizeof want, "device %d: MPI could not make a communicator", who % test_size);
            fail_at = who == test_rank || who == test_size ? which : 0;
            calls = made = freed = 0;
            const enum error_code code = comm_open(&comm, &device, &err);
            ASSERT_ALL(code == ERR_COMM && strcmp(err.text, want) == 0, "duplicate %d: got code %d \"%s\", want \"%s\"",
                       which, (int)code, err.text, want);
            ASSERT_ALL(made == freed, "duplicate %d: %d communicators made, %d freed", which, made, freed);
            connect_and_add();
        }
}

/* Between machines the body of the message is posted all the same; MPI must not write into it later, nor into what
 * comes to lie there. */
static void test_a_receive_fails(void **state)
{
    enum { LONG = 100000 };
    static unsigned char in[LONG], out[LONG];
    (void)state;
    setenv("ORRERY_MAPPED", "0", 1);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    unsetenv("ORRERY_MAPPED");
    struct group *all = comm.everyone;
    const int right = (all->rank + 1) % all->size, left = (all->rank + all->size - 1) % all->size;
    for (int i = 0; i < 3; i++) {
        struct exchange lost = exchange_begin(all, POINT_TO_POINT);
        fail_receive = true;
        const enum error_code code = message_wait(&comm, message_receive(&lost, left, in, i % 2 ? LONG : 10), &err);
        ASSERT_ALL(code == ERR_COMM && strstr(err.text, "could not receive from device") != NULL, "got code %d \"%s\"",
                   (int)code, err.text);
        struct exchange x = exchange_begin(all, POINT_TO_POINT);
        memset(out, 17 + i, sizeof out);
        const enum error_code again = exchange_both(&x, right, out, LONG, left, in, LONG, &err);
        ASSERT_ALL(again == OK && in[0] == 17 + i && in[LONG - 1] == 17 + i, "afterwards: %s", err.text);
    }
    comm_close(&comm);
}

#define WITH_DEVICE(f) cmocka_unit_test_setup_teardown(f, open_device, close_device)

int main(void)
{
    const struct CMUnitTest tests[] = { WITH_DEVICE(test_a_duplicate_fails), WITH_DEVICE(test_a_receive_fails) };
    return MPI_RUN("connect", tests);
}
