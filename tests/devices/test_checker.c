/* A golden file beside somebody's tensors: whole, cut over ranks in every way that a map knows, broken, incomplete,
 * hostile.
 * tier: check
 */
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/check/report/checked_kinds.h"
#include "ref/io/output.h"
#include "tests/devices/golden_dump.h"
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char golden_path[] = "golden/gpt2-tied.safetensors";

/* ---- writing what somebody might --------------------------------------------------------------------------------- */

enum { MOST = 64 };
struct dump { int count; struct safetensors_entry entry[MOST]; double *data[MOST]; };

static void add(struct dump *d, const char *name, int64_t rows, int64_t cols, double *data)
{
    assert_true(d->count < MOST);
    d->entry[d->count] =
        (struct safetensors_entry){ .name = name, .dtype = "F64", .ndim = cols ? 2 : 1, .dim = { rows, cols } };
    d->data[d->count++] = data;
}

/* A part of a golden matrix: these columns of these rows. */
static double *cut(const char *name, int64_t rows, int64_t cols, int64_t row, int64_t height, int64_t col,
                   int64_t width)
{
    double *whole = values(name), *out = malloc((size_t)(height * width + 1) * sizeof *out);
    (void)rows;
    for (int64_t i = 0; i < height; i++)
        memcpy(out + i * width, whole + (row + i) * cols + col, (size_t)width * sizeof *out);
    free(whole);
    return out;
}

static void write_dump(struct dump *d, const char *name)
{
    write_tensors(name, d->entry, d->data, d->count, NULL, 0);
    *d = (struct dump){ 0 };
}

/* Not by place(), whose path is another argument of the same call in most tests. */
static char *write_map(const char *text)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/map.json", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static int open_golden(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/orrery-checker-XXXXXX", temporary_folder());
    return mkdtemp(folder) == NULL || golden_open(&golden, golden_path, &err) != OK;
}

static int close_golden(void **state)
{
    char command[sizeof folder + 16];
    (void)state;
    golden_close(&golden);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static enum error_code check(const char *path, const char *map, struct check_result *r)
{
    struct actual a;
    enum error_code e = actual_open(&a, path, map, &err);
    if (e) return e;
    e = check_files(&golden, &a, F64, r, &err);
    actual_close(&a);
    return e;
}

/* These many hold, and nothing fails. */
static void expect_holds(const char *path, const char *map, int tensors)
{
    struct check_result r;
    const enum error_code e = check(path, map, &r);
    if (e != OK) fail_msg("%s", err.text);
    if (r.first >= 0)
        fail_msg("%s %s %s", r.all[r.first].name, finding_words(r.all[r.first].finding), r.all[r.first].why);
    assert_int_equal(r.found[HOLDS], tensors);
    assert_int_equal(r.extras, 0);
    check_result_free(&r);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const char QKV[] = "act/h.0.attn.qkv", MID[] = "act/h.0.mid", WTE[] = "grad/wte.weight",
                  BIAS[] = "grad/h.1.mlp.c_fc.bias";
enum { N = 21, D = 21, V = 61, F = 37 };

static void test_what_is_enough(void **state)
{
    struct checked_kinds n = { .all = { 2, 3 }, .of[KIND_LOSS][JUDGED_RIGHT] = 2 };
    struct check_result r = { 0 };
    unsigned set;
    (void)state;
    assert_int_equal(checked_kind_of("adamw/norm"), KIND_LOSS);
    assert_int_equal(checked_kind_of("grad/h.0.router.weights"), KIND_ACT_GRAD);
    assert_int_equal(checked_kind_of("grad/h.0.ln_1.weight"), KIND_GRAD);
    assert_int_equal(checked_kinds_enough(&n, &r, F32, 0, &err), ERR_CHECK);    /* losses alone */
    assert_int_equal(checked_kinds_read("loss,act", &set, &err), OK);
    assert_int_equal(set, 1u << KIND_LOSS | 1u << KIND_ACT);
    assert_int_equal(checked_kinds_enough(&n, &r, F32, set, &err), ERR_CHECK);
    n.of[KIND_ACT][JUDGED_LOOSELY] = 1;
    assert_int_equal(checked_kinds_enough(&n, &r, F32, set, &err), OK);
    assert_int_equal(checked_kinds_enough(&n, &r, F32, 0, &err), OK);
    assert_int_equal(checked_kinds_read("act,", &set, &err), ERR_USAGE);
    r.unknown = 1;
    assert_int_equal(checked_kinds_enough(&n, &r, F32, 0, &err), ERR_CHECK);    /* names that are not known */
    r.unknown = 0, n.of[KIND_STEP][CANNOT_BE_JUDGED] = 1, n.first_open = "adamw/2/grad/wte.weight";
    assert_int_equal(checked_kinds_enough(&n, &r, BF16, set, &err), ERR_CHECK);
    assert_non_null(strstr(err.text, "1 tensor cannot be judged, adamw/2/grad/wte.weight: in bf16"));
    n.lacks = "act/h.0.ln_1";
    assert_int_equal(checked_kinds_enough(&n, &r, BF16, 0, &err), ERR_CHECK);
    assert_non_null(strstr(err.text, "dump act/h.0.ln_1"));
}

/* A tensor is right as a whole or by itself, and wrong if it is so in either way. */
static void test_what_is_judged(void **state)
{
    static const struct { enum finding as_a_whole; double bound; int by_itself; enum judgement is; } of[] = {
        { HOLDS, 0.05, -1, JUDGED_RIGHT },          { HOLDS, 0.5, -1, JUDGED_LOOSELY },
        { HOLDS, 0.5, SINGLE_RIGHT, JUDGED_RIGHT }, { HOLDS, 0.05, SINGLE_WRONG, JUDGED_WRONG },
        { HOLDS, 0.5, SINGLE_LACKS, JUDGED_LOOSELY }, { HOLDS, 0.05, SINGLE_UNKNOWN, JUDGED_RIGHT },
        { OPEN, 2, -1, CANNOT_BE_JUDGED },          { OPEN, 2, SINGLE_LACKS, CANNOT_BE_JUDGED },
        { OPEN, 2, SINGLE_STEPWISE, JUDGED_RIGHT }, { ELSEWHERE, 0.01, -1, CANNOT_BE_JUDGED },
        { ELSEWHERE, 0.01, SINGLE_RIGHT, JUDGED_RIGHT }, { DIFFERS, 0.5, SINGLE_RIGHT, JUDGED_WRONG },
        { MISSING, 0.01, -1, JUDGED_WRONG },        { LEFT_OUT, 0.01, -1, NOT_JUDGED },
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const struct checked c = { .finding = of[i].as_a_whole, .bound = of[i].bound };
        const struct single_result r = { .verdict = (enum single_verdict)of[i].by_itself };
        assert_int_equal(judgement_of(&c, of[i].by_itself < 0 ? NULL : &r), of[i].is);
    }
}

/* Tensors that cannot be judged are counted by kind and step. */
static void test_what_cannot_be_judged(void **state)
{
    struct checked all[] = { { .name = "act/h.0.ln_1", .finding = HOLDS, .bound = 0.01 },
                             { .name = "adamw/2/grad/wte.weight", .finding = OPEN, .bound = 1.5 },
                             { .name = "adamw/2/grad/wpe.weight", .finding = OPEN, .bound = 1.5 },
                             { .name = "adamw/3/grad/wpe.weight", .finding = HOLDS, .bound = 0.7 },
                             { .name = "adamw/loss", .finding = OPEN, .bound = 1.5 } };
    const struct check_result r = { .count = 5, .all = all };
    const struct singles none = { 0 };
    const struct checked_kinds n = checked_kinds_count(&r, &none);
    (void)state;
    assert_int_equal(checked_kinds_of(&n, CANNOT_BE_JUDGED), 3);
    assert_int_equal(checked_kinds_of(&n, JUDGED_LOOSELY), 1);
    assert_int_equal(n.groups, 2);
    assert_string_equal(n.group[0].name, "adamw/2/grad");
    assert_int_equal(n.group[0].tensors, 2);
    assert_string_equal(n.group[1].name, "adamw/loss");
    assert_string_equal(n.first_open, "adamw/2/grad/wte.weight");
    assert_true(n.loosest == 0.7);
}

/* Tensors of golden kinds under other names than the golden ones. */
static void test_names_that_are_not_golden(void **state)
{
    static const struct { const char *name; int unknown; } of[] = {
        { "act/blocks.0.norm", 1 }, { "grad/transformer.wte.weight", 1 }, { "adamw/weight/transformer.wte.weight", 1 },
        { "micro/0/grad/wte.weight", 1 }, { "slowmo/weight/wte.weight", 0 }, { "debug/wte.weight", 0 }, { "ids", 0 },
    };
    struct check_result r;
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct dump d = { 0 };
        add(&d, "loss", 1, 0, values("loss")), add(&d, of[i].name, 1, 0, values("loss"));
        write_dump(&d, "x.safetensors");
        assert_int_equal(check(place("x.safetensors"), NULL, &r), OK);
        if (r.unknown != of[i].unknown) fail_msg("%s: %d", of[i].name, r.unknown);
        check_result_free(&r);
    }
    struct dump d = { 0 };                  /* the kind is there: what is beside it is the program's own */
    add(&d, MID, N, D, values(MID)), add(&d, "act/h.0.mine", N, D, values(MID));
    write_dump(&d, "x.safetensors");
    assert_int_equal(check(place("x.safetensors"), NULL, &r), OK);
    assert_int_equal(r.unknown, 0);
    assert_int_equal(r.extras, 1);
    check_result_free(&r);
    unlink(place("x.safetensors"));
}

/* First weights may be rounded, and may not be anything else: in 16 bits, too. */
static void test_first_weights(void **state)
{
    static const char name[] = "start/wte.weight";
    static const enum dtype formats[] = { F64, F32, BF16, F16 };
    (void)state;
    for (int t = 0; t < 4; t++)
        for (int wrong = 0; wrong < 2; wrong++) {
            struct dump d = { 0 };
            struct check_result r;
            struct actual a;
            double *w = values(name), buffer;
            for (int i = 0; i < V * D; i++) {
                const struct tensor one = tensor_1d(&buffer, formats[t], 1);
                tensor_set(one, 0, wrong && i / D == 3 ? 1.25 * w[i] : w[i]);
                w[i] = tensor_get(one, 0);
            }
            add(&d, "loss", 1, 0, values("loss")), add(&d, name, V, D, w);
            write_dump(&d, "x.safetensors");
            assert_int_equal(actual_open(&a, place("x.safetensors"), NULL, &err), OK);
            assert_int_equal(check_files(&golden, &a, formats[t], &r, &err), OK);
            if (!wrong && r.first >= 0) fail_msg("%s: %s %s", dtype_name(formats[t]), r.all[r.first].name,
                                                 finding_words(r.all[r.first].finding));
            if (wrong && r.first < 0) fail_msg("%s: another first weight is right", dtype_name(formats[t]));
            if (wrong) assert_string_equal(r.all[r.first].name, name);
            check_result_free(&r);
            actual_close(&a);
        }
    unlink(place("x.safetensors"));
}

static void test_itself(void **state)
{
    (void)state;
    struct check_result r;
    assert_int_equal(check(golden_path, NULL, &r), OK);
    assert_int_equal(r.first, -1);
    assert_true(r.found[HOLDS] > 220);
    int at[3] = { -1, -1, -1 };             /* weights are made from states: they come after them */
    for (int i = 0; i < r.count; i++)
        for (int k = 0; k < 3; k++) {
            static const char *const of[] = { "adamw/exp_avg/wte.weight", "adamw/exp_avg_sq/ln_f.bias",
                                              "adamw/weight/h.0.ln_1.bias" };
            if (strcmp(r.all[i].name, of[k]) == 0) at[k] = i;
        }
    assert_true(at[0] >= 0 && at[1] > at[0] && at[2] > at[1]);
    check_result_free(&r);
}

/* Two ranks along tp: queries, keys and values each cut after the second of three heads;
 * rows of a matrix and of a vector. */
static void test_tensor_parallel(void **state)
{
    (void)state;
    for (int r = 0; r < 2; r++) {
        struct dump d = { 0 };
        const int64_t col = r ? 14 : 0, width = r ? 7 : 14;
        double *qkv = malloc(N * 3 * 14 * sizeof *qkv), *whole = values(QKV);
        for (int64_t i = 0; i < N; i++)
            for (int64_t p = 0; p < 3; p++)
                memcpy(qkv + i * 3 * width + p * width, whole + i * 3 * D + p * D + col, (size_t)width * sizeof *qkv);
        free(whole);
        add(&d, QKV, N, 3 * width, qkv);
        add(&d, MID, N, D, values(MID));
        add(&d, WTE, r ? 30 : 31, D, cut(WTE, V, D, r ? 31 : 0, r ? 30 : 31, 0, D));
        add(&d, BIAS, r ? 18 : 19, 0, cut(BIAS, F, 1, r ? 19 : 0, r ? 18 : 19, 0, 1));
        write_dump(&d, r ? "rank1.safetensors" : "rank0.safetensors");
    }
    const char *map = write_map("{ \"mesh\": { \"tp\": 2 }, \"layout\": ["
        "{ \"tensors\": \"*qkv\", \"split\": \"columns\", \"over\": \"tp\", \"parts\": 3 },"
        "{ \"tensors\": \"grad/*\", \"split\": \"rows\", \"over\": \"tp\" } ] }");
    struct check_result r;
    assert_int_equal(check(folder, map, &r), OK);       /* others of these kinds are missing, which is said */
    assert_int_equal(r.found[HOLDS], 4);
    assert_int_equal(r.found[DIFFERS] + r.found[MISSHAPED] + r.found[INCOMPLETE] + r.found[NOT_FINITE], 0);
    assert_int_equal(r.all[r.first].finding, MISSING);
    check_result_free(&r);
    unlink(place("rank0.safetensors")), unlink(place("rank1.safetensors"));
}

static void write_losses(const char *name, double factor, double *loss)
{
    struct dump d = { 0 };
    loss[0] *= factor;
    add(&d, "loss", 1, 0, loss);
    write_dump(&d, name);
}

/* One tensor of its kind: nothing is missing. Flat with padding, zigzag by sequences, boxes, another
 * name, a transpose. */
static void test_by_name(void **state)
{
    (void)state;
    write_losses("one.safetensors", 1, values("loss"));
    expect_holds(place("one.safetensors"), NULL, 1);

    struct dump d = { 0 };
    double *whole = values("adamw/norm");
    for (int r = 0; r < 2; r++) {
        double *two = calloc(2, sizeof *two);
        memcpy(two, whole + 2 * r, (r ? 1 : 2) * sizeof *two);      /* three numbers, two a rank: the last is padding */
        if (r) two[1] = 99;
        add(&d, "adamw/norm", 2, 0, two);
        add(&d, "the loss", 1, 0, values("loss"));
        write_dump(&d, r ? "flat1.safetensors" : "flat0.safetensors");
    }
    free(whole);
    unlink(place("one.safetensors"));
    struct check_result r;
    assert_int_equal(check(folder,
                           write_map("{ \"mesh\": { \"dp\": 2 }, \"names\": { \"l*s\": \"the l*s\" }, \"layout\": [ { "
                                     "\"tensors\": \"adamw/norm\", \"split\": \"flat\", \"over\": \"dp\" } ] }"),
                           &r),
                     OK);
    assert_int_equal(r.found[HOLDS], 2);
    assert_int_equal(r.found[MISSING], 1);                              /* adamw/loss, of one kind with adamw/norm */
    check_result_free(&r);
    unlink(place("flat0.safetensors")), unlink(place("flat1.safetensors"));
}

static void test_zigzag_boxes_and_transpose(void **state)
{
    (void)state;
    double *mid = values(MID), *wte = values(WTE);
    for (int r = 0; r < 2; r++) {
        struct dump d = { 0 };
        double *rows = malloc(N * D * sizeof *rows), *turned = malloc(V * D * sizeof *turned),
               *box = malloc(N * D * sizeof *box);
        int64_t n = 0, m = 0;
        for (int64_t b = 0; b < 3; b++)
            for (int c = 0; c < 2; c++)
                for (int64_t s = block_start(7, 4, c ? 3 - r : r); s < block_start(7, 4, (c ? 3 - r : r) + 1); s++, n++)
                    memcpy(rows + n * D, mid + (b * 7 + s) * D, D * sizeof *rows);
        for (int64_t i = 0; i < D; i++)
            for (int64_t k = 0; k < V; k++) turned[i * V + k] = wte[k * D + i];
        for (int64_t i = 0; i < N; i++)                    /* rank 0: columns 0 to 9; rank 1: 10 to 14, then 15 to 20 */
            for (int64_t k = r ? 10 : 0; k < (r ? 15 : 10); k++) box[m++] = mid[i * D + k];
        for (int64_t i = 0; i < N && r; i++)
            for (int64_t k = 15; k < D; k++) box[m++] = mid[i * D + k];
        add(&d, "dealt", n, D, rows);
        add(&d, "turned", D, V, turned);
        write_dump(&d, r ? "z1.safetensors" : "z0.safetensors");
        add(&d, "boxed", m, 0, box);
        write_dump(&d, r ? "b1.safetensors" : "b0.safetensors");
    }
    free(mid), free(wte);
    struct check_result r;
    assert_int_equal(check(folder,
                           write_map(
                               "{ \"ranks\": [\"z0.safetensors\", \"z1.safetensors\"], \"mesh\": { \"cp\": 2 }, "
                               "\"names\": { \"act/h.0.mid\": \"dealt\", \"grad/wte.weight\": \"turned\" },"
                               "\"layout\": [ { \"tensors\": \"act/h.0.mid\", \"split\": \"zigzag\", \"over\": \"cp\", "
                               "\"sequences\": 3 }, { \"tensors\": \"grad/wte.weight\", \"transposed\": true } ] }"),
                           &r),
                     OK);
    assert_int_equal(r.found[HOLDS], 2);
    assert_int_equal(r.found[MISSHAPED] + r.found[DIFFERS], 0);
    check_result_free(&r);
    assert_int_equal(check(folder,
                           write_map(
                               "{ \"ranks\": [\"b0.safetensors\", \"b1.safetensors\"], \"names\": { \"act/h.0.mid\": "
                               "\"boxed\" }, \"layout\": [ { \"tensors\": \"act/h.0.mid\", \"split\": \"boxes\","
                               "\"boxes\": [ [ [[0,0],[21,10]] ], [ [[0,10],[21,5]], [[0,15],[21,6]] ] ] } ] }"),
                           &r),
                     OK);
    assert_int_equal(r.found[HOLDS], 1);
    check_result_free(&r);
    const char *files[] = { "z0.safetensors", "z1.safetensors", "b0.safetensors", "b1.safetensors" };
    for (int i = 0; i < 4; i++) unlink(place(files[i]));
}

/* Four ranks have copies of a tensor; on two of them, tp=1, it is doubled. */
static void test_broken_on_an_axis(void **state)
{
    (void)state;
    char name[] = "c0.safetensors", text[128];
    for (int r = 0; r < 4; r++) {
        name[1] = (char)('0' + r);
        write_losses(name, r % 2 ? 2 : 1, values("loss"));
    }
    struct check_result r;
    struct mesh mesh;
    const int size[AXIS_COUNT] = { [DP] = 2, [TP] = 2, [PP] = 1, [CP] = 1, [EP] = 1 };
    assert_int_equal(mesh_make(&mesh, size, &err), OK);
    assert_int_equal(check(folder, write_map("{ \"mesh\": { \"dp\": 2, \"tp\": 2 } }"), &r), OK);
    assert_true(r.first >= 0 && r.all[r.first].finding == DIFFERS);
    assert_string_equal(diagnose_place(text, sizeof text, &mesh, r.all[r.first].on), "tp=1, any dp");
    assert_string_equal(diagnose_scale(text, sizeof text, &mesh, 1, r.all[r.first].on),
                        "expected times 2.0000 = dp or tp");
    check_result_free(&r);
    for (int i = 0; i < 4; i++) name[1] = (char)('0' + i), unlink(place(name));
}

static void test_what_fails(void **state)
{
    (void)state;
    struct check_result r;
    struct dump d = { 0 };
    write_losses("x.safetensors", NAN, values("loss"));
    assert_int_equal(check(place("x.safetensors"), NULL, &r), OK);
    assert_int_equal(r.all[r.first].finding, NOT_FINITE);
    check_result_free(&r);

    add(&d, WTE, D, V, values(WTE));
    add(&d, "nobody's", 1, 0, values("loss"));
    write_dump(&d, "x.safetensors");
    assert_int_equal(check(place("x.safetensors"), NULL, &r), OK);
    assert_int_equal(r.found[MISSHAPED], 1);
    assert_int_equal(r.extras, 1);
    assert_string_equal(r.extra[0], "nobody's");
    check_result_free(&r);

    add(&d, MID, N - 1, D, cut(MID, N, D, 0, N - 1, 0, D));
    write_dump(&d, "x.safetensors");
    assert_int_equal(check(place("x.safetensors"),
                           write_map("{ \"layout\": [ { \"tensors\": \"act/h.0.mid\", \"split\": \"boxes\", \"boxes\": "
                                     "[ [ [[0,0],[20,21]] ] ] } ] }"),
                           &r),
                     OK);
    assert_int_equal(r.found[INCOMPLETE], 1);
    check_result_free(&r);

    add(&d, "unknown", 1, 0, values("loss"));
    write_dump(&d, "x.safetensors");
    assert_int_equal(check(place("x.safetensors"), NULL, &r), ERR_CHECK);
    assert_non_null(strstr(err.text, "nothing to compare"));
    unlink(place("x.safetensors"));
}

static int place_of(const struct check_result *r, const char *name)
{
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->all[i].name, name) == 0) return i;
    fail_msg("no %s", name);
    return -1;
}

/* One element of a tensor moved by so much of its bound in fp32; the others are as they should be. */
static void check_moved(const char *name, int64_t element, double times_bound, struct check_result *r)
{
    static double bound;                /* from the first call, which moves nothing */
    const struct safetensors_entry *e = safetensors_find(&golden.file, name);
    double *x = values(name), sum = 0;
    struct dump d = { 0 };
    struct actual a;
    for (int64_t i = 0; i < e->count; i++) sum += x[i] * x[i];
    if (times_bound != 0) x[element] += times_bound * bound * sqrt(sum);
    add(&d, name, e->dim[0], e->ndim > 1 ? e->dim[1] : 0, x);
    write_dump(&d, "moved.safetensors");
    assert_int_equal(actual_open(&a, place("moved.safetensors"), NULL, &err), OK);
    assert_int_equal(check_files(&golden, &a, F32, r, &err), OK);
    actual_close(&a);
    unlink(place("moved.safetensors"));
    bound = r->all[place_of(r, name)].bound;
}

/* Either side of the bound, upwards and downwards, at either end: the first element, the last, one between. */
static void test_border(void **state)
{
    (void)state;
    static const int64_t element[] = { 0, V * D / 2, V * D - 1 };
    struct check_result r;
    check_moved(WTE, 0, 0, &r);
    assert_true(r.all[place_of(&r, WTE)].error == 0 && r.all[place_of(&r, WTE)].bound > 1e-8 &&
                r.all[place_of(&r, WTE)].bound < 1e-4);
    check_result_free(&r);
    for (int i = 0; i < 3; i++)
        for (int sign = -1; sign <= 1; sign += 2)
            for (int wrong = 0; wrong < 2; wrong++) {
                const double times = sign * (wrong ? 1.005 : 0.995);
                check_moved(WTE, element[i], times, &r);
                const struct checked *c = &r.all[place_of(&r, WTE)];
                assert_int_equal(c->finding, wrong ? DIFFERS : HOLDS);
                assert_true(fabs(c->error / c->bound - fabs(times)) < 1e-3);
                check_result_free(&r);
            }
}

/* Of several ranks one is wrong, the first or the last: it is named, and a NaN is not forgotten for
 * what comes after it. */
static void test_every_rank_is_checked(void **state)
{
    (void)state;
    enum { RANKS = 3 };
    static const double wrong[] = { 2, NAN, INFINITY };
    char name[] = "c0.safetensors";
    for (int w = 0; w < 3; w++)
        for (int at = 0; at < RANKS; at++) {
            struct check_result r;
            for (int i = 0; i < RANKS; i++) {
                name[1] = (char)('0' + i);
                write_losses(name, i == at ? wrong[w] : 1 + 1e-3, values("loss"));
            }
            assert_int_equal(check(folder, write_map("{ \"mesh\": { \"dp\": 3 } }"), &r), OK);
            const struct checked *c = &r.all[place_of(&r, "loss")];
            assert_int_equal(c->finding, w == 0 ? DIFFERS : NOT_FINITE);
            assert_int_equal(c->rank, at);
            assert_true(w == 1 ? isnan(c->error) : w == 0 ? fabs(c->error - 1) < 1e-12 : isinf(c->error));
            assert_int_equal(devices_count(&c->on->holding), RANKS);
            assert_int_equal(devices_count(&c->on->failing), RANKS);
            check_result_free(&r);
        }
    for (int i = 0; i < RANKS; i++) name[1] = (char)('0' + i), unlink(place(name));
}

/* The first in order of execution and the worst are two things; a worst that is NaN stays the worst. */
static void test_first_and_worst(void **state)
{
    (void)state;
    static const double factor[] = { 3, NAN };
    for (int i = 0; i < 2; i++) {
        struct check_result r;
        struct dump d = { 0 };
        const char *name[] = { "loss", "act/embedding", WTE };         /* in order of execution: embedding, loss, WTE */
        double *x[3];
        for (int k = 0; k < 3; k++) x[k] = values(name[k]);
        x[1][0] *= 1.5, x[0][0] *= factor[i], x[2][0] += 1e-3;
        add(&d, name[0], 1, 0, x[0]), add(&d, name[1], N, D, x[1]), add(&d, name[2], V, D, x[2]);
        write_dump(&d, "x.safetensors");
        assert_int_equal(check(place("x.safetensors"), NULL, &r), OK);
        assert_string_equal(r.all[r.first].name, name[1]);
        assert_string_equal(r.all[r.worst].name, "loss");
        assert_int_equal(r.found[DIFFERS], i ? 2 : 3);
        assert_int_equal(r.found[NOT_FINITE], i);
        check_result_free(&r);
    }
    unlink(place("x.safetensors"));
}

/* An element at either end is on no rank. */
static void test_incomplete_at_the_ends(void **state)
{
    (void)state;
    static const char *const box[] = { "[[1,0],[20,21]]", "[[0,0],[20,21]]", "[[0,1],[21,20]]", "[[0,0],[21,20]]" };
    for (int i = 0; i < 4; i++) {
        struct check_result r;
        struct dump d = { 0 };
        char map[200];
        const int64_t height = i < 2 ? N - 1 : N, width = i < 2 ? D : D - 1;
        add(&d, MID, height, width, cut(MID, N, D, i == 0, height, i == 2, width));
        write_dump(&d, "x.safetensors");
        snprintf(map, sizeof map,
                 "{ \"layout\": [ { \"tensors\": \"%s\", \"split\": \"boxes\", \"boxes\": [ [ %s ] ] } ] }", MID,
                 box[i]);
        assert_int_equal(check(place("x.safetensors"), write_map(map), &r), OK);
        assert_int_equal(r.all[place_of(&r, MID)].finding, INCOMPLETE);
        assert_non_null(strstr(r.all[place_of(&r, MID)].why, "21 of its 441 elements are on no rank"));
        check_result_free(&r);
    }
    unlink(place("x.safetensors"));
}

static void test_which_findings_fail(void **state)
{
    (void)state;
    static const bool fails[FINDING_COUNT] = {
        [DIFFERS] = true, [NOT_FINITE] = true, [MISSHAPED] = true, [INCOMPLETE] = true, [COPIES] = true,
        [MISSING] = true, [RESUMED] = true
    };
    for (enum finding f = 0; f < FINDING_COUNT; f++) assert_int_equal(finding_fails(f), fails[f]);
}

static void test_bounds_of_a_golden_file(void **state)
{
    (void)state;
    struct golden_list list;
    assert_int_equal(golden_measure(&golden, F32, 1, 1, &list, &err), OK);
    assert_true(list.count > 220);
    for (int i = 0; i < list.count; i++)
        assert_true(list.all[i].bound > 0 && golden_list_bound(&list, list.all[i].name) == list.all[i].bound);
    assert_true(golden_list_bound(&list, "act/h.0") == 0 && golden_list_bound(&list, "") == 0);
    golden_list_free(&list);
}

/* A golden file that is another model's: its bounds would be another's too. */
static void test_golden_of_another_run(void **state)
{
    (void)state;
    struct golden_list list;
    assert_int_equal(golden_measure(&golden, F32, 1, 1, &list, &err), ERR_CHECK);
    assert_non_null(strstr(err.text, "act/h.0.ln_1 is not what our model computes; it differs by"));
}

/* Exchange the logits of two experts between which some token decides by least, so that rounding could have done it. */
static void send_one_elsewhere(double *logits, int64_t tokens, int64_t experts, int64_t k)
{
    int64_t token = 0, in = 0, out = 1;
    double least = INFINITY;
    for (int64_t n = 0; n < tokens; n++)
        for (int64_t a = 0; a < experts; a++)
            for (int64_t b = 0; b < experts; b++) {
                const double *x = logits + n * experts, gap = x[a] - x[b];
                int64_t above = 0;
                for (int64_t e = 0; e < experts; e++) above += x[e] >= x[a];
                if (above == k && gap > 0 && gap < least) least = gap, token = n, in = a, out = b;
            }
    double *x = logits + token * experts, kept = x[in];
    x[in] = x[out], x[out] = kept;
}

static enum finding found(const struct check_result *r, const char *name)
{
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->all[i].name, name) == 0) return r->all[i].finding;
    fail_msg("no %s", name);
    return FINDING_COUNT;
}

/* Another golden file for one test, whatever becomes of the test. */
static struct golden usual;

static int take_mixtral(void **state)
{
    (void)state;
    usual = golden;
    return golden_open(&golden, "golden/mixtral-top2.safetensors", &err) != OK;
}

static int close_mixtral(void **state)
{
    (void)state;
    golden_close(&golden);
    golden = usual;
    return 0;
}

static int take_another_eps(void **state)
{
    (void)state;
    usual = golden;
    golden.config.eps = 1e-2;
    return 0;
}

static int take_usual(void **state)
{
    (void)state;
    golden = usual;
    return 0;
}

/* In bf16 what comes after a token that rounding has sent elsewhere is not judged, what comes before it is;
 * in fp32 all is. */
static void test_other_experts(void **state)
{
    (void)state;
    static const char logits[] = "act/h.0.router.logits", before[] = "act/h.0.ln_2", after[] = "act/h.0.mlp.up";
    struct check_result r;
    struct dump d = { 0 };
    const struct safetensors_entry *e = safetensors_find(&golden.file, logits),
                                   *w = safetensors_find(&golden.file, after),
                                   *b = safetensors_find(&golden.file, before);
    for (int elsewhere = 0; elsewhere < 2; elsewhere++)
        for (int narrow = 0; narrow < 2; narrow++) {
            struct actual a;
            double *sent = values(logits), *broken = values(after);
            if (elsewhere) send_one_elsewhere(sent, e->dim[0], e->dim[1], golden.config.mixture.k);
            memset(broken, 0, (size_t)w->count * sizeof *broken);
            add(&d, logits, e->dim[0], e->dim[1], sent), add(&d, before, b->dim[0], b->dim[1], values(before)),
                add(&d, after, w->dim[0], w->dim[1], broken);
            write_dump(&d, "x.safetensors");
            assert_int_equal(actual_open(&a, place("x.safetensors"), NULL, &err), OK);
            assert_int_equal(check_files(&golden, &a, narrow ? BF16 : F32, &r, &err), OK);
            assert_int_equal(found(&r, before), HOLDS);
            assert_int_equal(found(&r, logits), elsewhere && !narrow ? DIFFERS : HOLDS);
            assert_int_equal(found(&r, after), elsewhere && narrow ? ELSEWHERE : DIFFERS);
            check_result_free(&r);
            actual_close(&a);
        }
    unlink(place("x.safetensors"));
}

/* A name of ACTUAL may be as long as a map says; one that is too long is refused, not cut. */
static void test_long_names(void **state)
{
    static char theirs[600], map[6000], shown[5000];
    struct dump d = { 0 };
    struct check_result r;
    (void)state;
    memset(theirs, 'x', sizeof theirs - 1);
    add(&d, theirs, 1, 0, values("loss"));
    write_dump(&d, "long.safetensors");
    snprintf(map, sizeof map, "{ \"names\": { \"loss\": \"%s\" } }", theirs);
    assert_int_equal(check(place("long.safetensors"), write_map(map), &r), OK);
    assert_int_equal(r.found[HOLDS], 1);
    assert_int_equal(r.extras, 0);
    check_result_free(&r);
    memset(shown, 'y', sizeof shown - 1);
    snprintf(map, sizeof map, "{ \"names\": { \"loss\": \"%s\" } }", shown);
    assert_int_equal(check(place("long.safetensors"), write_map(map), &r), ERR_FORMAT);
    assert_non_null(strstr(err.text, "has 4999 characters beside it; with 0 * there may be 4095"));
    unlink(place("long.safetensors"));
}

static void test_bad_maps(void **state)
{
    (void)state;
    const struct { const char *map; enum error_code code; const char *says; } bad[] = {
        { "[]", ERR_FORMAT, "not an object" }, { "{ \"mesh\": { \"xp\": 2 } }", ERR_FORMAT, "mesh" },
        { "{ \"mesh\": { \"dp\": 0 } }", ERR_FORMAT, "mesh" },
        { "{ \"mesh\": { \"dp\": 3 } }", ERR_PLAN, "3 ranks" }, { "{ \"names\": { \"a\": 1 } }", ERR_FORMAT, "names" },
        { "{ \"layout\": [ {} ] }", ERR_FORMAT, "tensors" },
        { "{ \"layout\": [ 1 ] }", ERR_FORMAT, "layout" },
        { "{ \"layout\": [ { \"tensors\": \"*\", \"split\": \"diagonal\" } ] }", ERR_FORMAT, "diagonal" },
        { "{ \"layout\": [ { \"tensors\": \"*\", \"split\": \"rows\" } ] }", ERR_FORMAT, "over" },
        { "{ \"layout\": [ { \"tensors\": \"*\", \"split\": \"rows\", \"over\": \"up\" } ] }", ERR_FORMAT, "up" },
    };
    write_losses("x.safetensors", 1, values("loss"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct check_result r;
        err.text[0] = 0;
        const enum error_code e = check(place("x.safetensors"), write_map(bad[i].map), &r);
        if (e != bad[i].code || strstr(err.text, bad[i].says) == NULL)
            fail_msg("%s: code %d, %s", bad[i].map, e, err.text);
    }
    const char *outside[] = { "[[0,0],[2,1]]",   "[[1,0],[1,1]]",   "[[-1,0],[1,1]]", "[[0,0]]", "[]",
                              "[[0.5,0],[1,1]]", "[[0,0],[1e15,1]]" };
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        struct check_result r;
        char map[200];
        snprintf(map, sizeof map,
                 "{ \"layout\": [ { \"tensors\": \"loss\", \"split\": \"boxes\", \"boxes\": [ [ %s ] ] } ] }",
                 outside[i]);
        assert_int_equal(check(place("x.safetensors"), write_map(map), &r), OK);
        assert_int_equal(r.all[r.first].finding, MISSHAPED);
        check_result_free(&r);
    }
    unlink(place("x.safetensors"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_enough), cmocka_unit_test(test_what_is_judged),
        cmocka_unit_test(test_what_cannot_be_judged), cmocka_unit_test(test_names_that_are_not_golden),
        cmocka_unit_test(test_first_weights), cmocka_unit_test(test_itself),
        cmocka_unit_test(test_tensor_parallel), cmocka_unit_test(test_by_name),
        cmocka_unit_test(test_zigzag_boxes_and_transpose), cmocka_unit_test(test_broken_on_an_axis),
            cmocka_unit_test(test_what_fails), cmocka_unit_test_setup_teardown(test_other_experts, take_mixtral,
                                                                               close_mixtral),
        cmocka_unit_test(test_bad_maps), cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_border), cmocka_unit_test(test_every_rank_is_checked),
        cmocka_unit_test(test_first_and_worst), cmocka_unit_test(test_incomplete_at_the_ends),
            cmocka_unit_test(test_which_findings_fail),
        cmocka_unit_test(test_bounds_of_a_golden_file),
        cmocka_unit_test_setup_teardown(test_golden_of_another_run, take_another_eps, take_usual),
    };
    return cmocka_run_group_tests_name("checker", tests, open_golden, close_golden);
}
