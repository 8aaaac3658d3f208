/* Every algorithm of every collective against golden/collectives, which numpy has made: bits, not values.
 * tier: check
 * ranks: 2 3 5 8
 *
 * Algorithms that take a call must give its bits, leave what lies round them alone and the input as it was; those that
 * do not must refuse it and touch nothing.  The group lists the devices in reverse, so that world ranks are not
 * members.
 */
#include "tests/mpi_cmocka.h"
#include "tests/golden_cases.h"
#include "ref/io/output.h"

enum { PAD = 64, MOST_CASES = 400 };
static const unsigned char PAD_BYTE = 0x5a, POISON_BYTE = 0xa5;

static struct device device;
static struct comm comm;
static struct group group;

static const struct cluster flat = { .name = "flat", .levels = 1, .link = { { .gap = 1000, .eager = ALWAYS_EAGER,
                                                                             .reduces = true } } };
static const struct cluster nodes_of_two = { .name = "nodes", .levels = 2,
                                             .link = { { .devices = 2, .gap = 1000, .eager = ALWAYS_EAGER },
                                                       { .gap = 1000, .eager = ALWAYS_EAGER } } };

struct complaint { char text[900]; };
#define COMPLAIN(...) do { if (bad->text[0] == '\0') snprintf(bad->text, sizeof bad->text, __VA_ARGS__); } while (0)

/* ---- one call ---------------------------------------------------------------------------------------------------- */

static bool all_are(const unsigned char *x, size_t n, unsigned char byte)
{
    for (size_t i = 0; i < n; i++)
        if (x[i] != byte) return false;
    return true;
}

static int64_t first_difference(const unsigned char *got, const unsigned char *want, int64_t n, size_t each)
{
    int64_t i = 0;
    while (i < n && memcmp(got + each * (size_t)i, want + each * (size_t)i, each) == 0) i++;
    return i;
}

static void compare(struct complaint *bad, const struct algorithm *a, const struct golden_case *c,
                    const unsigned char *out)
{
    const size_t each = dtype_size(c->args.dtype);
    const int64_t i = first_difference(out, c->want, c->out_length, each);
    char got[20], want[20];
    if (i == c->out_length) return;
    for (size_t b = 0; b < each; b++) {
        snprintf(got + 2 * b, 3, "%02x", out[each * ((size_t)i + 1) - 1 - b]);
        snprintf(want + 2 * b, 3, "%02x", ((const unsigned char *)c->want)[each * ((size_t)i + 1) - 1 - b]);
    }
    COMPLAIN("%s %s: %s/out/%d[%lld] has the bits %s, golden are %s", operation_name(c->operation), a->name, c->name,
             c->rank, (long long)i, got, want);
}

/* @return whether the algorithm took the call. */
static bool run_case(struct complaint *bad, const struct algorithm *a, struct golden_case *c)
{
    const size_t each = dtype_size(c->args.dtype), out_bytes = each * (size_t)c->out_length,
                 in_bytes = each * (size_t)c->in_length;
    unsigned char *const memory = malloc(out_bytes + 2 * PAD), *const out = memory + PAD,
                         *const before = malloc(in_bytes + 1);
    struct error err = { .code = OK };
    assert_true(memory != NULL && before != NULL);
    memset(memory, PAD_BYTE, out_bytes + 2 * PAD);
    memset(out, POISON_BYTE, out_bytes);
    if (in_bytes > 0) memcpy(before, c->in, in_bytes);
    c->args.out = out;
    c->args.nodes = group_nodes(&group);
    if (c->args.placement) c->args.placement = &c->placement;       /* the case may have been moved */

    const char *needs = algorithm_refuses(a, c->P, &c->args);
    const enum error_code code = collective_run(&group, c->operation, a->name, &c->args, &err);
    if (needs == NULL && code != OK) COMPLAIN("%s", err.text);
    if (needs == NULL) compare(bad, a, c, out);
    if (needs != NULL && (code != ERR_USAGE || strstr(err.text, needs) == NULL))
        COMPLAIN("%s %s: %s needs %s, but ran with code %d", operation_name(c->operation), a->name, c->name, needs,
                 (int)code);
    if (needs != NULL && !all_are(out, out_bytes, POISON_BYTE))
        COMPLAIN("%s %s: %s is refused, but out is written", operation_name(c->operation), a->name, c->name);
    if (!all_are(memory, PAD, PAD_BYTE) || !all_are(out + out_bytes, PAD, PAD_BYTE))
        COMPLAIN("%s %s: %s wrote outside out", operation_name(c->operation), a->name, c->name);
    if (in_bytes > 0 && memcmp(before, c->in, in_bytes) != 0)
        COMPLAIN("%s %s: %s/in/%d was changed", operation_name(c->operation), a->name, c->name, c->rank);
    free(memory), free(before);
    return needs == NULL;
}

/* ---- the cases of one operation ---------------------------------------------------------------------------------- */

static struct golden_case cases[MOST_CASES];

/* The file's name for it goes with the file. */
static void keep_name(struct golden_case *c)
{
    c->name = strdup(c->name);
    assert_non_null(c->name);
}

/* Those for a group of this size. */
static int read_cases(struct complaint *bad, enum operation op, const char *path)
{
    struct golden_cases file;
    struct error err;
    int n = 0, P = 0;
    if (golden_cases_open(&file, path, &err) != OK) {
        COMPLAIN("%s", err.text);
        return 0;
    }
    for (int i = 0; golden_cases_name(&file, i) != NULL && n < MOST_CASES; i++) {
        if (golden_case_size(&file, i, &P, &err) != OK) COMPLAIN("%s", err.text);
        else if (P == group.size) {
            if (golden_case_read(&cases[n], &file, i, group.rank, &err) != OK) COMPLAIN("%s", err.text);
            else if (cases[n].operation != op) COMPLAIN("%s: %s is of another operation", path, cases[n].name);
            else keep_name(&cases[n++]);
        }
    }
    golden_cases_close(&file);
    return n;
}

static void free_cases(int n)
{
    for (int i = 0; i < n; i++) {
        free((char *)cases[i].name);
        golden_case_free(&cases[i]);
    }
}

/* On devices that are all alike; those shaped by nodes again on nodes of two. */
static int run_algorithm(const struct algorithm *a, int n)
{
    struct complaint bad_here = { "" }, *bad = &bad_here;
    int taken = 0;
    for (int nodes = 0; nodes <= (int)a->by_nodes; nodes++) {
        clock_restart(&device.clock, nodes ? &nodes_of_two : &flat, F32);
        for (int i = 0; i < n; i++) taken += run_case(bad, a, &cases[i]);
    }
    ASSERT_ALL(bad->text[0] == '\0', "%s", bad->text);
    return taken;
}

static void run_operation(enum operation op)
{
    struct complaint bad_here = { "" }, *bad = &bad_here;
    char path[100];
    snprintf(path, sizeof path, "golden/collectives/%s.safetensors", operation_name(op));
    const int n = read_cases(bad, op, path);
    ASSERT_ALL(bad->text[0] == '\0', "%s", bad->text);
    ASSERT_ALL(n >= 4 && n < MOST_CASES, "%s has %d cases for P=%d", path, n, group.size);
    for (int i = 0; algorithms[i] != NULL; i++) {
        if (algorithms[i]->operation != op) continue;
        const int taken = run_algorithm(algorithms[i], n);
        ASSERT_ALL(taken > 0 || group.size != 8, "%s %s refuses all %d cases of P=8", operation_name(op),
                   algorithms[i]->name, n);
    }
    free_cases(n);
}

/* A barrier has no numbers; every other operation that has an algorithm must have cases. */
static void test_every_algorithm(void **state)
{
    (void)state;
    for (int op = 0; op < OPERATION_COUNT; op++)
        if (op != BARRIER && algorithm_find((enum operation)op, NULL) != NULL) run_operation((enum operation)op);
}

/* ---- files that are not what they should be ---------------------------------------------------------------------- */

static void write_file(const char *path, const char *cases_text, const char *dtype, int64_t n)
{
    const struct safetensors_entry t = { .name = "a/in/0", .dtype = dtype, .ndim = 1, .dim = { n } };
    const struct safetensors_pair metadata = { "cases", cases_text };
    struct safetensors_writer w;
    struct error err;
    assert_int_equal(
        safetensors_create(&w, path, &t, 1, cases_text != NULL ? &metadata : NULL, cases_text != NULL, &err), OK);
    assert_int_equal(safetensors_commit(&w, &err), OK);
}

static void try_file(struct complaint *bad, const char *path, const char *cases_text, const char *dtype,
                     const char *want)
{
    struct golden_cases file;
    struct golden_case c;
    struct error err = { .text = "" };
    write_file(path, cases_text, dtype, 3);
    enum error_code code = golden_cases_open(&file, path, &err);
    if (code == OK) {
        code = golden_case_read(&c, &file, 0, 0, &err);
        golden_cases_close(&file);
    }
    if (code != ERR_FORMAT || strstr(err.text, want) == NULL)
        COMPLAIN("%s: code %d, \"%s\"; want \"%s\"", cases_text, (int)code, err.text, want);
}

static void test_bad_files(void **state)
{
    static const struct { const char *cases, *dtype, *text; } files[] = {
        { NULL, "F32", "its metadata has no cases" },
        { "[]", "F32", "expected an object of cases" },
        { "{\"a\":3}", "F32", "case a: expected an object" },
        { "{\"a\":{\"operation\":\"scan\"}}", "F32", "P" },
        { "{\"a\":{\"P\":2,\"operation\":\"no\",\"dtype\":\"F32\",\"count\":3}}", "F32", "no operation \"no\"" },
        { "{\"a\":{\"P\":2,\"operation\":\"scan\",\"dtype\":\"F3\",\"count\":3}}", "F32", "no dtype \"F3\"" },
        { "{\"a\":{\"P\":2,\"operation\":\"scan\",\"dtype\":\"F32\",\"count\":3,\"reduction\":\"xor\"}}", "F32",
          "no reduction \"xor\"" },
        { "{\"a\":{\"P\":2,\"operation\":\"reduce\",\"dtype\":\"F32\",\"count\":3,\"root\":2}}", "F32", "root" },
        { "{\"a\":{\"P\":2,\"operation\":\"scan\",\"dtype\":\"F32\",\"count\":4}}", "F32",
          "a/in/0 has 3 elements of F32; expected 4 of F32" },
        { "{\"a\":{\"P\":2,\"operation\":\"scan\",\"dtype\":\"F32\",\"count\":3}}", "I32",
          "a/in/0 has 3 elements of I32; expected 3 of F32" },
        { "{\"a\":{\"P\":2,\"operation\":\"scan\",\"dtype\":\"F32\",\"count\":3}}", "F32",
          "there is no tensor a/out/0" },
        { "{\"a\":{\"P\":2,\"operation\":\"gather\",\"dtype\":\"F32\",\"count\":0,\"counts\":[1]}}", "F32",
          "expected 2 whole numbers" },
        { "{\"a\":{\"P\":2,\"operation\":\"gather\",\"dtype\":\"F32\",\"count\":0,\"counts\":[3,-1]}}", "F32",
          "number 1 of them" },
        { "{\"a\":{\"P\":2,\"operation\":\"alltoall\",\"dtype\":\"F32\",\"count\":0,\"table\":[[1,1]]}}", "F32",
          "expected 2 rows" },
    };
    struct complaint bad_here = { "" }, *complaint = &bad_here;
    char path[4096];
    snprintf(path, sizeof path, "%s/orrery-golden-cases.XXXXXX", temporary_folder());
    const int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        try_file(complaint, path, files[i].cases, files[i].dtype, files[i].text);
    close(fd);
    unlink(path);
    ASSERT_ALL(complaint->text[0] == '\0', "%s", complaint->text);
}

/* ---- the devices ------------------------------------------------------------------------------------------------- */

static int open_devices(void **state)
{
    int reversed[64];
    struct error err;
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    device.arena.poison = true;
    clock_open(&device.clock, &flat, F32);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    for (int i = 0; i < comm.size; i++) reversed[i] = comm.size - 1 - i;
    assert_int_equal(group_of(&group, &comm, reversed, comm.size, TRAFFIC_OTHER, 0, &err), OK);
    return harness_before(state);
}

static int close_devices(void **state)
{
    (void)state;
    group_close(&group);
    comm_close(&comm);
    device_close(&device);
    return 0;
}

#define ON_DEVICES(f) cmocka_unit_test_setup_teardown(f, open_devices, close_devices)

int main(void)
{
    const struct CMUnitTest tests[] = { ON_DEVICES(test_every_algorithm), ON_DEVICES(test_bad_files) };
    return MPI_RUN("golden collectives", tests);
}
