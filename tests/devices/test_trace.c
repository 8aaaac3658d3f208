/* The trace file: JSON with a row for each stream and port, nothing overlapping within a row, an arrow for every
 * message, and the same bytes whatever really comes first.
 * tier: check
 * ranks: 1 2 4
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/draw/trace_file.h"
#include "emulated_devices/collectives/collective.h"
#include "ref/io/json.h"
#include "ref/io/output.h"

enum { COUNT = 20000, MESSAGES = 4096 };

static struct device device;
static struct comm comm;
static struct trace trace;
static struct error err;
static float x[COUNT], y[COUNT];
static char path[2][4096];
static uint64_t sent, received;                         /* messages while the trace was on */
static picoseconds busy;                                /* the compute stream's end */

/* A ring, a direct all-to-all, some computing and copying, on a cluster of pairs; then the file. */
static void record(const char *file)
{
    struct cluster c;
    struct mesh m;
    int size[AXIS_COUNT];
    assert_int_equal(cluster_find(&c, "a100-ethernet", &err), OK);
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    clock_open(&device.clock, &c, F32);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    for (int a = 0; a < AXIS_COUNT; a++) size[a] = a == DP ? comm.size : 1;
    assert_int_equal(mesh_make(&m, size, &err), OK);
    trace = (struct trace){ .span = NULL };
    device.clock.trace = &trace;
    clock_compute(&device.clock, "think", (struct op_cost){ .flops = 1e6 * (comm.rank + 1) });
    clock_copy(&device.clock, FETCH, device.clock.now, 1000000);
    bool good = allreduce(comm.everyone, x, COUNT, F32, SUM, "ring", &err) == OK;
    const struct collective all = { .in = x, .out = y, .count = COUNT / comm.size, .dtype = F32 };
    good = good && collective_run(comm.everyone, ALLTOALL, "linear", &all, &err) == OK;
    comm_barrier(&comm);                                /* CONTROL: takes no time and is not shown */
    device.clock.trace = NULL;
    sent = comm.counted.of[TRAFFIC_OTHER].of[ALLREDUCE].messages_sent +
           comm.counted.of[TRAFFIC_OTHER].of[ALLTOALL].messages_sent;
    received = comm.counted.of[TRAFFIC_OTHER].of[ALLREDUCE].messages_received +
               comm.counted.of[TRAFFIC_OTHER].of[ALLTOALL].messages_received;
    busy = device.clock.now;
    good = good && trace_write(&comm, &m, &trace, c.name, file, &err) == OK;
    ASSERT_ALL(good, "%s", err.text);
    trace_free(&trace);
    comm_close(&comm);
    device_close(&device);
}

static int64_t whole(const cJSON *e, const char *key)
{
    int64_t n = -1;
    if (json_int(e, "event", key, 0, INT64_MAX >> 10, &n, &err) != OK) print_error("%s\n", err.text);
    assert_true(n >= 0);
    return n;
}

/* Microseconds as the file has them, in picoseconds. */
static int64_t ps(const cJSON *e, const char *key)
{
    double us = -1;
    assert_int_equal(json_double(e, "event", key, &us, &err), OK);
    return (int64_t)(us * 1e6 + 0.5);
}

static const char *text_of(const cJSON *e, const char *key)
{
    const char *text = "";
    assert_int_equal(json_string(e, "event", key, &text, &err), OK);
    return text;
}

struct arrow { int64_t id, from, to; int ends; };

static struct arrow *arrow(struct arrow *all, int *n, int64_t id)
{
    int i = 0;
    while (i < *n && all[i].id != id) i++;
    assert_true(i < MESSAGES);
    if (i == *n) all[(*n)++] = (struct arrow){ .id = id };
    return &all[i];
}

/* Within a row slices follow each other, in the order of the file or not. */
static void check_rows(const cJSON *events)
{
    const cJSON *a, *b;
    cJSON_ArrayForEach(a, events) if (strcmp(text_of(a, "ph"), "X") == 0)
        for (b = a->next; b != NULL; b = b->next) {
        if (strcmp(text_of(b, "ph"), "X") != 0 || whole(a, "pid") != whole(b, "pid") ||
            whole(a, "tid") != whole(b, "tid"))
            continue;
        assert_true(ps(a, "ts") + ps(a, "dur") <= ps(b, "ts") || ps(b, "ts") + ps(b, "dur") <= ps(a, "ts"));
        }
}

static void check_events(const cJSON *events, int *arrows, int64_t *last)
{
    static struct arrow all[MESSAGES];
    const cJSON *e;
    *arrows = 0;
    *last = 0;
    cJSON_ArrayForEach(e, events) {
        const char *kind = text_of(e, "ph");
        assert_true(whole(e, "pid") < test_size);
        const bool own_work = strcmp(kind, "X") == 0 && whole(e, "pid") == 0 && whole(e, "tid") == COMPUTE;
        if (own_work && ps(e, "ts") + ps(e, "dur") > *last) *last = ps(e, "ts") + ps(e, "dur");
        if (strcmp(kind, "s") == 0)
            arrow(all, arrows, whole(e, "id"))->from = ps(e, "ts"), arrow(all, arrows, whole(e, "id"))->ends += 1;
        if (strcmp(kind, "f") == 0)
            arrow(all, arrows, whole(e, "id"))->to = ps(e, "ts"), arrow(all, arrows, whole(e, "id"))->ends += 100;
    }
    for (int i = 0; i < *arrows; i++) {
        assert_int_equal(all[i].ends, 101);             /* one beginning, one end */
        assert_true(all[i].to >= all[i].from + 3400000);/* the least latency of the cluster */
    }
}

static bool has_row(const cJSON *events, const char *name)
{
    const cJSON *e;
    cJSON_ArrayForEach(e, events)
        if (strcmp(text_of(e, "ph"), "M") == 0 && strcmp(text_of(e, "name"), "thread_name") == 0
            && strcmp(text_of(cJSON_GetObjectItem(e, "args"), "name"), name) == 0) return true;
    return false;
}

static void test_the_file_is_a_trace(void **state)
{
    uint64_t mine[2], all[2];
    (void)state;
    record(path[0]);
    mine[0] = sent, mine[1] = received;
    MPI_Request request;
    MPI_Iallreduce(mine, all, 2, MPI_UINT64_T, MPI_SUM, harness, &request);
    patience_meet(&request);
    if (test_rank != 0) return;
    cJSON *root;
    const cJSON *events;
    int arrows;
    int64_t last;
    assert_int_equal(json_read(path[0], &root, &err), OK);
    assert_int_equal(json_array(root, "trace", "traceEvents", &events, &err), OK);
    check_events(events, &arrows, &last);
    check_rows(events);
    assert_int_equal(arrows, all[0]);
    assert_int_equal(arrows, all[1]);
    assert_true(last <= busy && last > 0);              /* of rank 0 */
    assert_true(has_row(events, "compute") && has_row(events, "copy from host"));
    assert_true(has_row(events, "send, pair") == (test_size > 1) &&
                has_row(events, "receive, node") == (test_size > 2));
    cJSON_Delete(root);
}

static void test_the_same_bytes_whatever_comes_first(void **state)
{
    char *a, *b;
    size_t n, m;
    (void)state;
    setenv("ORRERY_DELAY", "200", 1);
    record(path[1]);
    unsetenv("ORRERY_DELAY");
    if (test_rank != 0) return;
    assert_int_equal(file_read_all(path[0], 1 << 26, &a, &n, &err), OK);
    assert_int_equal(file_read_all(path[1], 1 << 26, &b, &m, &err), OK);
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    free(a), free(b);
    remove(path[0]), remove(path[1]);
}

static void test_a_folder_that_is_not_there(void **state)
{
    const int size[AXIS_COUNT] = { 1, test_size, 1, 1, 1 };
    const struct trace none = { .span = NULL };
    struct mesh m;
    (void)state;
    assert_int_equal(mesh_make(&m, size, &err), OK);
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    const enum error_code e = trace_write(&comm, &m, &none, "x", "/nowhere/not/there.json", &err);
    ASSERT_ALL(e == ERR_FILE && strstr(err.text, "/nowhere/not/there.json") != NULL, "code %d: %s", (int)e, err.text);
    comm_close(&comm);
    device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_the_file_is_a_trace), MPI_TEST(test_the_same_bytes_whatever_comes_first),
            MPI_TEST(test_a_folder_that_is_not_there),
    };
    for (int i = 0; i < 2; i++)
        snprintf(path[i], sizeof path[i], "%s/orrery_trace_%ld_%d.json", temporary_folder(), (long)getpid(), i);
    return MPI_RUN("trace", tests);
}
