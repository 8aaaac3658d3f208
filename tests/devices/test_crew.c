/* A crew: devices of one process.  Every collective, and whole training steps, are those of devices between which MPI
 * carries messages; deadlocks and messages that do not fit are seen.
 * ranks: 1 2 4
 * verify ranks: 3 5 6 8
 */
#include "tests/devices/on_crew.h"
#include "tests/devices/batches.h"
#include "emulated_devices/verify/cases/case.h"
#include "emulated_devices/verify/cases/collectives.h"
#include "tests/mpi_cmocka.h"
#include "tests/tier.h"
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct error err;
#define MUST(call) ASSERT_ALL((call) == OK, "%s", err.text)

/* ---- a ring of sums: messages that are sent before, and after, their receive is posted --------------------------- */

static enum error_code ring(struct comm *c, void *asked, struct error *e)
{
    struct group g;
    int64_t sum = c->rank, pass = c->rank, got = -1;
    (void)asked;
    enum error_code code = group_world(&g, c, e);
    if (code) return code;
    struct exchange x = exchange_begin(&g, POINT_TO_POINT);
    for (int i = 1; i < c->size && !code; i++) {
        code = exchange_both(&x, (c->rank + 1) % c->size, &pass, sizeof pass, (c->rank + c->size - 1) % c->size, &got,
                             sizeof got, e);
        pass = got, sum += got;
    }
    group_close(&g);
    if (!code && sum != (int64_t)c->size * (c->size - 1) / 2)
        code = fail(e, ERR_CHECK, "device %d has the sum %lld", c->rank, (long long)sum);
    return code;
}

static void test_thousands_of_devices(void **state)
{
    const struct crew_job j = { "cpu", F32, NULL, ring, NULL };
    (void)state;
    for (int P = 1; P < 10; P++) MUST(crew_run(P, be_device, &j, &err));
    if (test_size == 1) MUST(crew_run(tier_now() == TIER_VERIFY ? 2000 : 300, be_device, &j, &err));
}

/* ---- everybody sends to all before anybody receives: more mails wait than the table had buckets ------------------ */

static int number_of(int from, int to) { return 1000 * from + to; }

static enum error_code to_all(struct comm *c, void *asked, struct error *e)
{
    struct group g;
    struct message m[100];
    int sent[100], got = -1;
    (void)asked;
    enum error_code code = group_world(&g, c, e);
    if (code) return code;
    struct exchange x = exchange_begin(&g, POINT_TO_POINT);
    for (int to = 0; to < c->size; to++) {
        sent[to] = number_of(c->rank, to);
        if (to != c->rank) m[to] = message_send(&x, to, &sent[to], sizeof sent[to]);
    }
    for (int from = c->size - 1; from >= 0 && !code; from--) {
        if (from == c->rank) continue;
        code = message_wait(c, message_receive(&x, from, &got, sizeof got), e);
        if (!code && got != number_of(from, c->rank))
            code = fail(e, ERR_CHECK, "device %d has %d from %d", c->rank, got, from);
    }
    for (int to = 0; to < c->size && !code; to++)
        if (to != c->rank) code = message_wait(c, m[to], e);
    group_close(&g);
    return code;
}

static void test_more_mails_than_buckets(void **state)
{
    const struct crew_job j = { "cpu", F32, NULL, to_all, NULL };
    (void)state;
    if (test_size == 1) MUST(crew_run(100, be_device, &j, &err));
}

/* ---- many messages from one device to another before one is received; many receives before one is sent -------- */

static enum error_code send_many(struct exchange x[2], int to, int many, struct message *m)
{
    enum error_code code = OK;
    for (int i = 0; i < 2 * many; i++) m[i] = message_send(&x[i % 2], to, &i, sizeof i);
    for (int i = 0; i < 2 * many && !code; i++) code = message_wait(x->group->comm, m[i], NULL);
    return code;
}

static enum error_code receive_many(struct exchange x[2], int from, int many, struct message *m, struct error *e)
{
    int *got = malloc(sizeof *got * (size_t)(2 * many));
    enum error_code code = got ? OK : ERR_MEMORY;
    for (int i = 0; i < 2 * many && got; i++) m[i] = message_receive(&x[i % 2], from, &got[i], sizeof *got);
    for (int i = 0; i < 2 * many && !code; i++) code = message_wait(x->group->comm, m[i], e);
    for (int i = 0; i < 2 * many && !code; i++)
        if (got[i] != i) code = fail(e, ERR_CHECK, "message %d is number %d that was sent", i, got[i]);
    free(got);
    return code;
}

static enum error_code in_line(struct comm *c, void *asked, struct error *e)
{
    const int many = *(int *)asked;
    struct group g;
    struct message *m = malloc(sizeof *m * (size_t)(2 * many));
    enum error_code code = m ? group_world(&g, c, e) : ERR_MEMORY;
    for (int sender = 0; sender < 2 && m; sender++) {           /* also after an error: the other one goes on */
        struct exchange x[] = { exchange_begin(&g, POINT_TO_POINT), exchange_begin(&g, POINT_TO_POINT) };
        const enum error_code one =
            c->rank == sender ? send_many(x, 1 - sender, many, m) : receive_many(x, sender, many, m, e);
        if (!code) code = one;
    }
    if (m) group_close(&g);
    free(m);
    return code;
}

static void test_messages_in_line(void **state)
{
    int many = 3000;
    const struct crew_job j = { "cpu", F32, NULL, in_line, &many };
    (void)state;
    if (test_size == 1) MUST(crew_run(2, be_device, &j, &err));
}

/* ---- all collectives, against sums that are exact ---------------------------------------------------------------- */

static enum error_code collectives(struct comm *c, void *asked, struct error *e)
{
    struct group g;
    enum error_code code = group_world(&g, c, e);
    (void)asked;
    for (int i = 0; algorithms[i] && !code; i++) {
        struct algorithm_outcome o;
        code = verify_algorithm(&g, algorithms[i], &o, e);
        if (!code && o.verdict.code) code = fail(e, o.verdict.code, "%s", o.verdict.text);
    }
    group_close(&g);
    return code;
}

static void test_collectives(void **state)
{
    struct cluster nodes;                       /* the smallest, and messages that wait for their receivers */
    (void)state;
    MUST(cluster_find(&nodes, "a100-ethernet", &err));
    for (int level = 0; level < nodes.levels; level++) nodes.link[level].eager = 64;
    const struct crew_job j = { "cpu", F64, &nodes, collectives, NULL };
    MUST(crew_run(test_size, be_device, &j, &err));
}

/* ---- training steps: as between processes ------------------------------------------------------------------------ */

/* What a device has done in two steps. */
struct deeds { picoseconds time; struct traffic sent[TRAFFIC_KIND_COUNT]; struct arena_use peak; };
struct training { const struct plan *plan; struct deeds *of; };         /* [devices] */

static enum error_code train(struct comm *c, void *asked, struct error *e)
{
    const struct training *a = asked;
    struct trainer t;
    struct step_result result;
    enum error_code code = trainer_open(&t, a->plan, c, (struct batch_source){ fill_counting, a->plan }, e);
    if (code) return code;
    clock_restart(&c->device->clock, a->plan->cluster, a->plan->dtype);
    arena_reset_peak(&c->device->arena);
    memset(&c->counted, 0, sizeof c->counted);
    for (int i = 0; i < 2 && !code; i++) {
        code = trainer_gradients(&t, &result, e);
        if (!code) code = trainer_update(&t, &result, e);
    }
    struct deeds *d = &a->of[c->rank];
    d->time = c->device->clock.now, d->peak = c->device->arena.peak;
    for (int k = 0; k < TRAFFIC_KIND_COUNT; k++) d->sent[k] = account_total(&c->counted.of[k]);
    trainer_close(&t);
    return code;
}

static void compare(const char *what, const struct deeds *crew, const struct deeds *real)
{
    ASSERT_ALL(crew->time == real->time, "%s: a crew takes %lld ps, processes %lld", what, (long long)crew->time,
               (long long)real->time);
    ASSERT_ALL(memcmp(&crew->peak, &real->peak, sizeof crew->peak) == 0, "%s: a crew's peak is %llu bytes, real %llu",
               what, (unsigned long long)crew->peak.total, (unsigned long long)real->peak.total);
    for (int k = 0; k < TRAFFIC_KIND_COUNT; k++)
        ASSERT_ALL(traffic_equal(&crew->sent[k], &real->sent[k], -1), "%s: kind %d: a crew sends %llu bytes, processes "
                   "%llu", what, k, (unsigned long long)crew->sent[k].bytes_sent,
                   (unsigned long long)real->sent[k].bytes_sent);
}

/* The same plan three times: between processes, in a crew, in a crew without numbers. */
static void check_plan(struct plan p, const char *what)
{
    struct deeds *crew = calloc((size_t)test_size, sizeof *crew), *real = calloc((size_t)test_size, sizeof *real);
    struct device d;
    struct comm c;
    ASSERT_ALL(crew && real, "no memory");
    ASSERT_ALL(plan_check(&p, &err) == OK, "%s: %s", what, err.text);
    MUST(device_open(&d, backend_find("cpu"), p.dtype, 0, &err));
    MUST(comm_open(&c, &d, &err));
    struct training between = { &p, real };
    MUST(train(&c, &between, &err));
    comm_close(&c), device_close(&d);
    for (int numbers = 1; numbers >= 0; numbers--) {
        struct training inside = { &p, crew };
        const struct crew_job j = { numbers ? "cpu" : "count", p.dtype, NULL, train, &inside };
        const enum error_code e = crew_run(test_size, be_device, &j, &err);
        ASSERT_ALL(e == OK, "%s: %s", what, err.text);
        compare(numbers ? what : "without numbers", &crew[test_rank], &real[test_rank]);
    }
    free(crew), free(real);
}

static void test_training(void **state)
{
    struct cluster toy, rendezvous;
    (void)state;
    MUST(cluster_find(&toy, CLUSTER_USUAL, &err));
    rendezvous = toy;
    for (int level = 0; level < toy.levels; level++) rendezvous.link[level].eager = 256;
    const int P = test_size, half = P % 2 ? 1 : 2;
    struct plan p = case_plan(half, P / half, 1);
    p.cluster = &toy, p.data.scheme = "zero3";
    check_plan(p, "dp x tp, zero3");
    p = case_plan(1, half, P / half);
    p.cluster = &rendezvous, p.dtype = F32, p.schedule = "zb-h1";
    check_plan(p, "tp x pp, zb-h1, rendezvous");
    p = case_plan(1, 1, 1);
    case_take_context(&p, P, "ring-zigzag");
    p.cluster = &rendezvous;
    check_plan(p, "cp, ring-zigzag, rendezvous");
}

/* ---- what is wrong ----------------------------------------------------------------------------------------------- */

static enum error_code wrong_length(struct comm *c, void *asked, struct error *e)
{
    struct group g;
    char bytes[8] = "";
    (void)asked;
    enum error_code code = group_world(&g, c, e);
    if (code) return code;
    struct exchange x = exchange_begin(&g, POINT_TO_POINT);
    if (c->rank == 0) code = exchange_both(&x, 1, bytes, 8, -1, NULL, 0, e);
    if (c->rank == 1) code = exchange_both(&x, -1, NULL, 0, 0, bytes, 4, e);
    group_close(&g);
    return code;
}

static enum error_code both_receive(struct comm *c, void *asked, struct error *e)
{
    struct group g;
    char byte;
    (void)asked;
    enum error_code code = group_world(&g, c, e);
    struct exchange x = exchange_begin(&g, POINT_TO_POINT);
    if (!code && c->rank < 2) code = exchange_both(&x, -1, NULL, 0, 1 - c->rank, &byte, 1, e);
    group_close(&g);
    return code;
}

static void test_a_wrong_length(void **state)
{
    const struct crew_job j = { "cpu", F32, NULL, wrong_length, NULL };
    (void)state;
    ASSERT_ALL(crew_run(3, be_device, &j, &err) == ERR_COMM, "a message of the wrong length was taken");
    ASSERT_ALL(strstr(err.text, "device 1 expected 4 bytes from device 0, which sent 8"), "it says: %s", err.text);
}

/* The process ends, with a line for each device that waits. */
static void test_a_deadlock(void **state)
{
    const struct crew_job j = { "cpu", F32, NULL, both_receive, NULL };
    char text[1000] = "";
    int pipes[2], how = 0, got = 0;
    (void)state;
    ASSERT_ALL(pipe(pipes) == 0, "no pipe");
    const pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], STDERR_FILENO);
        crew_run(4, be_device, &j, &err);
        _exit(0);
    }
    close(pipes[1]);
    for (ssize_t n; got < (int)sizeof text - 1 && (n = read(pipes[0], text + got, sizeof text - 1 - (size_t)got)) > 0;)
        got += (int)n;
    close(pipes[0]);
    waitpid(child, &how, 0);
    ASSERT_ALL(WIFEXITED(how) && WEXITSTATUS(how) == 1, "a deadlock ends with %d", how);
    ASSERT_ALL(strstr(text, "device 0 waits for device 1 to send: send over all devices"), "it says: %s", text);
    ASSERT_ALL(strstr(text, "orrery: 2 of 4 devices wait for each other, and none can go on"), "it says: %s", text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_thousands_of_devices), MPI_TEST(test_more_mails_than_buckets),
        MPI_TEST(test_messages_in_line), MPI_TEST(test_collectives),
        MPI_TEST(test_training), MPI_TEST(test_a_wrong_length), MPI_TEST(test_a_deadlock),
    };
    return MPI_RUN("crew", tests);
}
