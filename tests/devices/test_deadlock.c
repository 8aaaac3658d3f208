/* A deadlock made on purpose: within the limit one line says who waits for whom, and the job ends.  A device that does
 * not run is named; one that computes for longer than the limit is no deadlock.  And collectives whose members disagree
 * without noticing before, which would be one: the job ends at once, with one line.
 *
 * The test is one plain process; it starts this program again under mpiexec, as devices that wait for each other.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/collectives/collective.h"

static const char *program;

/* Each waits for the next one to send first. */
static void wait_in_a_ring(struct comm *c)
{
    int x;
    struct error err;
    struct exchange e = exchange_begin(c->everyone, POINT_TO_POINT);
    exchange_both(&e, -1, NULL, 0, (c->rank + 1) % c->size, &x, sizeof x, &err);
}

/* Device 2 leaves the others alone in a collective of theirs. */
static void stay_away(struct comm *c)
{
    char x[100000] = { 0 };
    struct error err;
    struct exchange e = exchange_begin(c->everyone, ALLREDUCE), other = exchange_begin(c->everyone, POINT_TO_POINT);
    if (c->rank < 2) exchange_both(&e, (c->rank + 1) % c->size, x, sizeof x, -1, NULL, 0, &err);
    else exchange_both(&other, -1, NULL, 0, 0, x, 1, &err);
}

/* Device 1 has one element more.  Nobody checks calls. */
static void disagree(struct comm *c)
{
    float x[5000] = { 0 };
    struct error err;
    c->checks_calls = false;
    allreduce(c->everyone, x, 4000 + (c->rank == 1), F32, SUM, "doubling", &err);
}

/* Device 1 stops, when the others have been waiting for it. */
static void stop(struct comm *c)
{
    if (c->rank == 1) raise(SIGSTOP);
    comm_barrier(c);
}

/* Three times the limit; the others wait for device 1 all the time, with nothing to do. */
static void compute_for_long(struct comm *c)
{
    struct timespec start, t;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do clock_gettime(CLOCK_MONOTONIC, &t);
    while (c->rank == 1 && t.tv_sec - start.tv_sec < 4);
    comm_barrier(c);
}

static int be_a_device(const char *what)
{
    struct device d;
    struct comm c;
    struct error err;
    if (device_open(&d, NULL, F32, 0, &err) != OK || comm_open(&c, &d, &err) != OK) return 9;
    if (strcmp(what, "ring") == 0) wait_in_a_ring(&c);
    else if (strcmp(what, "away") == 0) stay_away(&c);
    else if (strcmp(what, "stop") == 0) stop(&c);
    else if (strcmp(what, "compute") == 0) {
        compute_for_long(&c);
        comm_close(&c);
        device_close(&d);
        return 0;
    }
    else disagree(&c);
    return 8;                                           /* it must not come back */
}

/* What three such devices say before their end. */
static void run_devices(const char *what, char *said, size_t size, int *status)
{
    char command[1000];
    const char *mpiexec = getenv("MPIEXEC");
    snprintf(command, sizeof command, "ORRERY_WAIT_LIMIT=1 MPIEXEC_TIMEOUT=60 %s -n 3 %s %s </dev/null 2>&1",
             mpiexec ? mpiexec : "mpiexec", program, what);
    FILE *from = popen(command, "r");
    assert_non_null(from);
    size_t used = fread(said, 1, size - 1, from);
    said[used] = '\0';
    *status = WEXITSTATUS(pclose(from));
}

/* mpiexec may add its own words; of ours, this is the last line. */
static void expect_last(const char *said, const char *what)
{
    const char *at = strstr(said, "orrery: "), *next = at ? strstr(at + 1, "orrery: ") : NULL,
               *end = at ? strchr(at, '\n') : NULL;
    const char *found = at ? strstr(at, what) : NULL;
    if (at == NULL || next != NULL || found == NULL || end == NULL || found > end ||
        strstr(end, " waits for device ") != NULL)
        print_error("its last line is not: orrery: ...%s...\nbut:\n%s\n", what, said);
    assert_true(at != NULL && next == NULL && found != NULL && end != NULL && found < end &&
                strstr(end, " waits for device ") == NULL);
}

static void expect(const char *said, const char *line)
{
    if (strstr(said, line) == NULL) print_error("not said: %s\nbut:\n%s\n", line, said);
    assert_non_null(strstr(said, line));
}

static void test_ring_of_waiting(void **state)
{
    char said[10000];
    int status;
    (void)state;
    run_devices("ring", said, sizeof said, &status);
    expect(said, "device 0 waits for device 1 to send: send over all devices, exchange 0\n");
    expect(said, "device 1 waits for device 2 to send: send over all devices, exchange 0\n");
    expect(said, "device 2 waits for device 0 to send: send over all devices, exchange 0\n");
    expect_last(said, "orrery: nothing has moved for 1 s (--wait-limit): device ");
    expect_last(said, "device 1 waits for device 2 to send: send over all devices, exchange 0; ");
    expect_last(said, "; a ring of 3, in which none can go on\n");
    assert_int_equal(status, 1);
}

static void test_one_stays_away(void **state)
{
    char said[10000];
    int status;
    (void)state;
    run_devices("away", said, sizeof said, &status);
    expect(said, "device 0 waits for device 1 to receive: allreduce over all devices, exchange 0\n");
    expect(said, "device 1 waits for device 2 to receive: allreduce over all devices, exchange 0\n");
    expect(said, "device 2 waits for device 0 to send: send over all devices, exchange 1\n");
    expect_last(said, "device 0 waits for device 1 to receive: allreduce over all devices, exchange 0; ");
    assert_int_equal(status, 1);
}

static void test_device_that_does_not_run(void **state)
{
    char said[10000];
    int status;
    (void)state;
    run_devices("stop", said, sizeof said, &status);
    expect_last(said, "device 1, process ");
    expect_last(said, ", does not run\n");
    expect_last(said, " over all devices, exchange ");
    assert_int_equal(status, 1);
}

static void test_device_that_computes_is_waited_for(void **state)
{
    char said[10000];
    int status;
    (void)state;
    run_devices("compute", said, sizeof said, &status);
    if (status != 0) print_error("ended with status %d:\n%s\n", status, said);
    assert_int_equal(status, 0);
    assert_string_equal(said, "");
}

static void test_counts_that_differ(void **state)
{
    char said[10000];
    int status;
    (void)state;
    run_devices("counts", said, sizeof said, &status);
    expect(said, "allreduce over all devices: device ");
    expect(said, " bytes from device ");
    assert_null(strstr(said, "waits for"));
    assert_int_equal(status, 1);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ring_of_waiting), cmocka_unit_test(test_one_stays_away),
                                       cmocka_unit_test(test_device_that_does_not_run),
                                           cmocka_unit_test(test_device_that_computes_is_waited_for),
                                       cmocka_unit_test(test_counts_that_differ) };
    if (argc > 1) return be_a_device(argv[1]);
    program = argv[0];
    return cmocka_run_group_tests(tests, NULL, NULL) != 0;
}
