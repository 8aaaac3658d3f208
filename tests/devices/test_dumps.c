/* A golden file beside the folder that a recorder writes (docs/checking/dumps.md): pieces of every kind, several of
 * them and several files for a rank, sums, copies, microbatches; and everything that such a folder should not have.
 * tier: check
 */
#include "emulated_devices/check/report/checker.h"
#include "emulated_devices/check/report/singles.h"
#include "ref/io/output.h"
#include "tests/devices/golden_dump.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { N = 21, D = 21, V = 61, S = 7, MOST = 32 };
static const char QKV[] = "act/h.0.attn.qkv", FUSED[] = "act/h.1.attn.qkv", MID[] = "act/h.0.mid",
                  WTE[] = "grad/wte.weight", BIAS[] = "grad/h.1.mlp.c_fc.bias";

/* ---- writing what a recorder might ------------------------------------------------------------------------------- */

/* One file: its tensors, and the text of its layout. */
struct file {
    int count, pairs;
    struct safetensors_entry entry[MOST];
    double *data[MOST];
    char key[MOST][64], layout[2048];
    struct safetensors_pair pair[12];
};

static void say(struct file *f, const char *key, const char *value)
{
    for (int i = 0; i < f->pairs; i++)
        if (strcmp(f->pair[i].key, key) == 0) {
            f->pair[i].value = value;
            return;
        }
    f->pair[f->pairs++] = (struct safetensors_pair){ key, value };
}

static struct file begin(const char *rank, const char *mesh)
{
    struct file f = { 0 };
    say(&f, "orrery_dump", "1");
    if (rank) say(&f, "rank", rank);
    if (mesh) say(&f, "mesh", mesh);
    return f;
}

/* @param entry  its layout, JSON; NULL: none.  @param cols  0: a vector. */
static void add(struct file *f, const char *key, int64_t rows, int64_t cols, double *data, const char *entry)
{
    assert_true(f->count < MOST);
    snprintf(f->key[f->count], sizeof f->key[0], "%s", key);
    f->entry[f->count] = (struct safetensors_entry){ .dtype = "F64", .ndim = cols ? 2 : 1, .dim = { rows, cols } };
    f->data[f->count++] = data;
    if (entry == NULL) return;
    const size_t used = strlen(f->layout);
    snprintf(f->layout + used, sizeof f->layout - used, "%s\"%s\": %s", used ? ", " : "", key, entry);
}

static void put(struct file *f, const char *name)
{
    char layout[sizeof f->layout + 8];
    for (int i = 0; i < f->count; i++) f->entry[i].name = f->key[i];
    snprintf(layout, sizeof layout, "{%s}", f->layout);
    if (f->layout[0]) say(f, "layout", layout);
    write_tensors(name, f->entry, f->data, f->count, f->pair, f->pairs);
}

/* These columns of these rows, times a factor. */
static double *cut(const char *name, int64_t cols, int64_t row, int64_t height, int64_t col, int64_t width,
                   double factor)
{
    double *whole = values(name), *out = malloc((size_t)(height * width + 1) * sizeof *out);
    for (int64_t i = 0; i < height * width; i++)
        out[i] = factor * whole[(row + i / width) * cols + col + i % width];
    free(whole);
    return out;
}

static int clear(void **state)
{
    char command[sizeof folder + 32];
    (void)state;
    snprintf(command, sizeof command, "rm -f '%s'/*.safetensors", folder);
    return system(command);
}

static int open_golden(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/orrery-dumps-XXXXXX", temporary_folder());
    return mkdtemp(folder) == NULL || golden_open(&golden, "golden/gpt2-tied.safetensors", &err) != OK;
}

static int close_golden(void **state)
{
    char command[sizeof folder + 16];
    (void)state;
    golden_close(&golden);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static enum error_code check_as(enum dtype format, struct check_result *r, struct actual *a)
{
    enum error_code e = actual_open(a, folder, NULL, &err);
    if (e) return e;
    e = check_files(&golden, a, format, r, &err);
    if (e) actual_close(a);
    return e;
}

static const struct checked *found(const struct check_result *r, const char *name)
{
    for (int i = 0; i < r->count; i++)
        if (strcmp(r->all[i].name, name) == 0) return &r->all[i];
    fail_msg("no %s", name);
    return NULL;
}

static void expect(const char *name, enum finding finding, const char *why)
{
    struct check_result r;
    struct actual a;
    if (check_as(F64, &r, &a) != OK) fail_msg("%s", err.text);
    const struct checked *c = found(&r, name);
    if (c->finding != finding || (why && strstr(c->why, why) == NULL))
        fail_msg("%s %s: %s", name, finding_words(c->finding), c->why);
    assert_int_equal(r.extras, 0);
    check_result_free(&r);
    actual_close(&a);
}

/* ---- what a dump may have ---------------------------------------------------------------------------------------- */

/* Four ranks, tp=2 after dp=2.  Along tp queries, keys and values are cut after two of three heads, as pieces of their
 * own and as one; along dp rows are cut in the middle of a sequence, and each half is two microbatches. */
static void write_pieces(int r)
{
    static const struct { const char *name; int64_t col; } part[] = { { "q", 0 }, { "k", D }, { "v", 2 * D } };
    const int dp = r / 2, tp = r % 2;
    const int64_t row = dp ? 10 : 0, height = dp ? 11 : 10, col = tp ? 14 : 0, width = tp ? 7 : 14;
    char name[64], entry[128], rank[8];
    snprintf(rank, sizeof rank, "%d", r);
    struct file f = begin(rank, "{\"dp\": 2, \"tp\": 2}");
    for (int p = 0; p < 3; p++)
        for (int m = 0; m < 2; m++) {
            const int64_t first = m ? row + 4 : row, count = m ? height - 4 : 4;
            snprintf(name, sizeof name, "%s#%s%d", QKV, part[p].name, m);
            snprintf(entry, sizeof entry, "{\"rows\": [[%d, %d]], \"cols\": [[%d, %d]], \"micro\": %d}", (int)first,
                     (int)count, (int)(part[p].col + col), (int)width, m);
            add(&f, name, count, width, cut(QKV, 3 * D, first, count, part[p].col + col, width, 1), entry);
        }
    double *fused = malloc((size_t)(3 * width * height) * sizeof *fused), *whole = values(FUSED);
    for (int64_t i = 0; i < 3 * width * height; i++)
        fused[i] = whole[(row + i / (3 * width)) * 3 * D + i % (3 * width) / width * D + col + i % width];
    free(whole);
    snprintf(entry, sizeof entry, "{\"rows\": [[%d, %d]], \"cols\": [[%d, %d], [%d, %d], [%d, %d]]}", (int)row,
             (int)height, (int)col, (int)width, (int)(D + col), (int)width, (int)(2 * D + col), (int)width);
    add(&f, FUSED, height, 3 * width, fused, entry);
    snprintf(name, sizeof name, "%d.safetensors", r);
    put(&f, name);
}

static void test_pieces(void **state)
{
    (void)state;
    for (int r = 0; r < 4; r++) write_pieces(r);
    expect(QKV, HOLDS, NULL);
    expect(FUSED, HOLDS, NULL);
}

/* Rows of a matrix and of a vector, a transpose, a flat shard with padding, a factor, and sums over tp of halves and of
 * the whole and nothing; a second file for the last rank; the order of axes is the program's own. */
static void test_kinds_of_pieces(void **state)
{
    static const char mesh[] = "{\"tp\": 2, \"dp\": 1}";
    (void)state;
    for (int r = 0; r < 2; r++) {
        struct file f = begin(r ? "1" : "0", mesh);
        double *flat = values("grad/wpe.weight"), *shard = calloc(120, sizeof *shard), *turned = malloc(V * D * 8),
               *wte = values(WTE);
        memcpy(shard, flat + 120 * r, (r ? 111 : 120) * sizeof *shard);         /* [11,21] is 231 = 120 + 111 */
        for (int i = 0; i < V * D; i++) turned[i % D * V + i / D] = wte[i];
        add(&f, "grad/wpe.weight", 120, 0, shard, r ? "{\"flat\": [120, 111]}" : "{\"flat\": [0, 120]}");
        add(&f, BIAS, 10, 0, cut(BIAS, 1, 10 * r, 10, 0, 1, 0.25),
            r ? "{\"rows\": [[10, 10]], \"times\": 4}" : "{\"rows\": [[0, 10]], \"times\": 4}");
        add(&f, MID, N, D, cut(MID, D, 0, N, 0, D, r ? 0.75 : 0.25), "{\"partial\": [\"tp\"], \"of\": [21, 21]}");
        add(&f, "loss", 1, 0, cut("loss", 1, 0, 1, 0, 1, r ? 0 : 1), "{\"partial\": [\"tp\"]}");
        if (r == 0) add(&f, WTE, D, V, turned, "{\"transposed\": true}");
        else free(turned);
        free(flat), free(wte);
        put(&f, r ? "z.safetensors" : "a.safetensors");
    }
    struct file more = begin("1", mesh);
    add(&more, "grad/h.1.mlp.c_fc.bias#rest", 17, 0, cut(BIAS, 1, 20, 17, 0, 1, 1), "{\"rows\": [[20, 17]]}");
    put(&more, "more.safetensors");
    expect("grad/wpe.weight", HOLDS, NULL);
    expect(WTE, HOLDS, NULL);
    expect(BIAS, HOLDS, NULL);
    expect(MID, HOLDS, NULL);
    expect("loss", HOLDS, NULL);
}

/* "coordinates" say where a rank stands, whatever its number: the tensors of tp=1 are wrong. */
static void test_coordinates(void **state)
{
    static const char *const at[] = { "{\"tp\": 1, \"dp\": 1}", "{\"tp\": 0, \"dp\": 1}", "{\"tp\": 1, \"dp\": 0}",
                                      "{\"tp\": 0, \"dp\": 0}" };
    struct check_result r;
    struct actual a;
    char text[128], name[] = "0.safetensors";
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct file f = begin((const char *[]){ "0", "1", "2", "3" }[i], "{\"dp\": 2, \"tp\": 2}");
        say(&f, "coordinates", at[i]);
        add(&f, "loss", 1, 0, cut("loss", 1, 0, 1, 0, 1, i % 2 ? 1 : 2), NULL);
        name[0] = (char)('0' + i);
        put(&f, name);
    }
    assert_int_equal(check_as(F64, &r, &a), OK);
    assert_string_equal(diagnose_place(text, sizeof text, &a.mesh, found(&r, "loss")->on), "tp=1, any dp");
    assert_non_null(strstr(found(&r, "loss")->copies, "rank 2 (dp=0 tp=1)"));
    check_result_free(&r);
    actual_close(&a);
}

/* Parts of a gradient of weights: what the dump says; else the microbatches of all ranks in its layout, whether each
 * rank numbers its own or the batch's; else ranks. */
static void test_parts_of_gradients(void **state)
{
    static const char EMBEDDING[] = "act/embedding";
    static const struct { const char *mesh, *parts, *name; int ranks, micros, gradient, other; bool of_batch; } of[] = {
        { "{\"dp\": 1}", NULL, MID, 1, 1, 1, 1, false },       { "{\"dp\": 1}", NULL, MID, 1, 4, 4, 1, false },
        { "{\"dp\": 1}", "3", MID, 1, 4, 3, 3, false },        { "{\"dp\": 1}", NULL, MID, 1, 0, 1, 1, false },
        { "{\"dp\": 3}", NULL, EMBEDDING, 3, 2, 6, 3, false }, { "{\"dp\": 3}", NULL, EMBEDDING, 3, 2, 6, 3, true },
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct actual a;
        const int all = of[i].ranks * of[i].micros;
        for (int r = 0; r < of[i].ranks; r++) {
            char number[16], file[32];
            snprintf(number, sizeof number, "%d", r), snprintf(file, sizeof file, "%d.safetensors", r);
            struct file f = begin(number, of[i].mesh);
            if (of[i].micros == 0) add(&f, MID, N, D, values(MID), NULL);
            for (int m = 0; m < of[i].micros; m++) {
                char key[64], entry[96];
                const int k = r * of[i].micros + m, first = N * k / all, count = N * (k + 1) / all - first;
                snprintf(key, sizeof key, "%s#%d", of[i].name, m);
                snprintf(entry, sizeof entry, "{\"rows\": [[%d, %d]], \"micro\": %d}", first, count,
                         of[i].of_batch ? k : m);
                add(&f, key, count, D, cut(of[i].name, D, first, count, 0, D, 1), entry);
            }
            if (of[i].parts) say(&f, "parts", of[i].parts);
            put(&f, file);
        }
        assert_int_equal(actual_open(&a, folder, NULL, &err), OK);
        assert_int_equal(singles_gradient_parts(&golden, &a), of[i].gradient);
        assert_int_equal(singles_parts(&a), of[i].other);
        actual_close(&a);
        clear(NULL);
    }
}

/* Ranks along tp have the same tokens, and copies of tokens along dp are nobody's part. */
static void test_parts_of_a_batch(void **state)
{
    (void)state;
    for (int copies = 0; copies < 2; copies++) {
        struct actual a;
        for (int r = 0; r < 4; r++) {
            char number[16], file[32], entry[96];
            const int first = copies ? 0 : r / 2 * (N / 2), count = copies ? N : r < 2 ? N / 2 : N - N / 2;
            snprintf(number, sizeof number, "%d", r), snprintf(file, sizeof file, "%d.safetensors", r);
            struct file f = begin(number, "{\"dp\": 2, \"tp\": 2}");
            snprintf(entry, sizeof entry, "{\"rows\": [[%d, %d]], \"times\": %s}", first, count, r ? "3" : "2");
            add(&f, "act/embedding", count, D, cut("act/embedding", D, first, count, 0, D, 1), entry);
            put(&f, file);
        }
        assert_int_equal(actual_open(&a, folder, NULL, &err), OK);
        const struct batch_parts parts = batch_parts_of(&golden, &a);
        assert_int_equal(parts.count, copies ? 0 : 2);
        for (int i = 0; i < N && !copies; i++) assert_int_equal(parts.part[i], i >= N / 2);
        assert_int_equal(parts.scaled, !copies);
        free(parts.part), free(parts.owner);
        actual_close(&a);
        clear(NULL);
    }
}

/* One of four microbatches of one rank has another row's numbers. */
static void test_microbatches(void **state)
{
    struct check_result r;
    struct actual a;
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct file f = begin(rank ? "1" : "0", "{\"dp\": 2}");
        for (int m = 0; m < 4; m++) {
            char key[64], entry[96];
            const int first = 5 * m + 2 * rank, count = m == 3 ? 2 + 2 * rank : rank ? 3 : 2;
            snprintf(key, sizeof key, "%s#%d", MID, m);
            snprintf(entry, sizeof entry, "{\"rows\": [[%d, %d]], \"micro\": %d}", first, count, m);
            add(&f, key, count, D, cut(MID, D, rank && m == 2 ? 0 : first, count, 0, D, 1), entry);
        }
        put(&f, rank ? "b.safetensors" : "a.safetensors");
    }
    assert_int_equal(check_as(F64, &r, &a), OK);
    assert_int_equal(found(&r, MID)->finding, DIFFERS);
    assert_string_equal(found(&r, MID)->micros, "wrong in microbatch 2; right in 0, 1, 3");
    assert_int_equal(found(&r, MID)->rank, 1);
    check_result_free(&r);
    actual_close(&a);
}

/* A tensor that a program cannot show is not missing; but a gradient of a weight can always be shown. */
static void test_left_out(void **state)
{
    static const struct { const char *name; enum finding without, with; } of[] = {
        { "act/h.1.mid", MISSING, LEFT_OUT },      { "grad/h.1.mid", MISSING, LEFT_OUT },
        { "act/h.0.ln_1", MISSING, MISSING },      { "act/h.0.mid", HOLDS, HOLDS },
        { "grad/wpe.weight", MISSING, MISSING },   { "grad/h.0.mid", HOLDS, HOLDS },
    };
    (void)state;
    for (int said = 0; said < 2; said++) {
        for (int r = 0; r < 2; r++) {
            struct file f = begin(r ? "1" : "0", "{\"tp\": 2}");
            add(&f, MID, N, D, values(MID), NULL);
            add(&f, "grad/h.0.mid", N, D, values("grad/h.0.mid"), NULL);
            add(&f, WTE, V, D, values(WTE), NULL);
            if (said && r) say(&f, "left_out", "{\"h.1.mid\": \"inside\", \"h.0.mid\": \"\", \"wpe.weight\": \"\"}");
            put(&f, r ? "1.safetensors" : "0.safetensors");
        }
        for (size_t i = 0; i < sizeof of / sizeof *of; i++) expect(of[i].name, said ? of[i].with : of[i].without, NULL);
    }
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Three ranks have copies; `which` of them has one element moved by so much of the norm. */
static void write_copies(int which, double moved)
{
    double sum = 0;
    for (int r = 0; r < 3; r++) {
        struct file f = begin((const char *[]){ "0", "1", "2" }[r], "{\"dp\": 3}");
        double *x = values(MID);
        if (r == 0)
            for (int i = 0; i < N * D; i++) sum += x[i] * x[i];
        if (r == which) x[5 * D + 7] += moved * sqrt(sum);
        add(&f, MID, N, D, x, NULL);
        put(&f, (const char *[]){ "0.safetensors", "1.safetensors", "2.safetensors" }[r]);
    }
}

/* In bf16 bounds are wide: a copy that is off by a part of them is found because the others are not.  Bits alone may
 * differ. */
static void test_copies(void **state)
{
    struct check_result r;
    struct actual a;
    (void)state;
    for (int which = 0; which < 3; which++)
        for (int far = 0; far < 2; far++) {
            write_copies(which, far ? 0.02 : 0.001);
            assert_int_equal(check_as(BF16, &r, &a), OK);
            const struct checked *c = found(&r, MID);
            assert_true(c->bound > 0.02 && c->error < c->bound);
            assert_int_equal(c->finding, far ? COPIES : HOLDS);
            assert_non_null(strstr(c->copies, "in row 5, column 7"));
            assert_non_null(
                strstr(c->copies, which == 2 ? "rank 2 (dp=2)" : which ? "rank 1 (dp=1)" : "rank 0 (dp=0)"));
            assert_non_null(strstr(c->copies, which ? "; 1 copies" : "; 2 copies"));
            if (far) assert_string_equal(c->why, c->copies);
            check_result_free(&r);
            actual_close(&a);
        }
    write_copies(2, 1);
    expect(MID, DIFFERS, NULL);
    write_copies(0, 0);
    assert_int_equal(check_as(BF16, &r, &a), OK);
    assert_string_equal(found(&r, MID)->copies, "");
    check_result_free(&r);
    actual_close(&a);
}

/* ---- what it should not have: the tensor is named ---------------------------------------------------------------- */

/* Two ranks along tp, each with all of MID and an entry. */
static void write_two(const char *first, const char *second, double factor)
{
    for (int r = 0; r < 2; r++) {
        struct file f = begin(r ? "1" : "0", "{\"tp\": 2}");
        if (!r || second) add(&f, MID, N, D, cut(MID, D, 0, N, 0, D, factor), r ? second : first);
        add(&f, "loss", 1, 0, values("loss"), NULL);
        put(&f, r ? "1.safetensors" : "0.safetensors");
    }
}

static void test_pieces_that_do_not_fit(void **state)
{
    static const struct { const char *first, *second, *why; enum finding finding; } bad[] = {
        { "{\"partial\": [\"tp\"]}", NULL, "rank 0 (tp=0) has a part of a sum, of which rank 1 (tp=1) has none",
          MISSHAPED },
        { "{\"partial\": [\"tp\"]}", "{}", "of which rank 1 (tp=1) has none", MISSHAPED },
        { "{\"of\": [21, 22]}", "{}", "it is of 21 x 22 (\"of\"), but the golden tensor is 21 x 21", MISSHAPED },
        { "{\"rows\": [[0, 20]]}", "{}", "it is 21 x 21, but its part of the golden 21 x 21 is 20 x 21", MISSHAPED },
        { "{\"rows\": [[1, 21]]}", "{}", "\"rows\": 21 from 1 are not inside the golden 21 rows", MISSHAPED },
        { "{\"cols\": [[9007199254740991, 21]]}", "{}", "21 from 9007199254740991 are not inside", MISSHAPED },
        { "{\"rows\": [[0, 11], [10, 10]]}", "{}", "row 10, column 0: rank 0 (tp=0) has it in two pieces", MISSHAPED },
        { "{\"flat\": [1, 441]}", "{}", "\"flat\": 441 from 1 are not inside the golden 441 elements", MISSHAPED },
        { "{\"flat\": [0, 440]}", NULL, "1 of its 441 elements are on no rank; the first is row 20, column 20",
          INCOMPLETE },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_two(bad[i].first, bad[i].second, 1);
        expect(MID, bad[i].finding, bad[i].why);
        expect("loss", HOLDS, NULL);
    }
}

/* Four ranks along tp have the first columns of MID whole, and parts of the others: of some those of ranks 0 and 1, of
 * some those of ranks 1 to 3, as ranks that have copies of keys do.  lacking: a rank without its part; -1: none. */
static void write_parts_of_some(int lacking)
{
    for (int r = 0; r < 4; r++) {
        char rank[8];
        snprintf(rank, sizeof rank, "%d", r);
        struct file f = begin(rank, "{\"tp\": 4}");
        add(&f, "act/h.0.mid#q", N, 9, cut(MID, D, 0, N, 0, 9, 1), "{\"cols\": [[0, 9]]}");
        if (r < 2 && r != lacking)
            add(&f, "act/h.0.mid#a", N, 5, cut(MID, D, 0, N, 9, 5, r ? 0.75 : 0.25),
                "{\"cols\": [[9, 5]], \"partial\": {\"tp\": [[0, 2]]}}");
        if (r > 0 && r != lacking)
            add(&f, "act/h.0.mid#b", N, 7, cut(MID, D, 0, N, 14, 7, r == 1 ? 0.5 : 0.25),
                "{\"cols\": [[14, 7]], \"partial\": {\"tp\": [[1, 1], [2, 2]]}}");
        put(&f, r == 0 ? "0.safetensors" : r == 1 ? "1.safetensors" : r == 2 ? "2.safetensors" : "3.safetensors");
    }
}

/* Places that are not on the axis, not in order, or not those of the rank itself. */
static void test_bad_places(void **state)
{
    static const char *const bad[] = { "[[0, 3]]", "[[1, 1]]", "[[1, 1], [0, 1]]", "[[0, 0]]", "[]", "2",
                                       "[[0, 1], [0, 1]]" };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char entry[96];
        struct actual a;
        snprintf(entry, sizeof entry, "{\"partial\": {\"tp\": %s}}", bad[i]);
        write_two(entry, "{}", 1);
        assert_int_equal(actual_open(&a, folder, NULL, &err), ERR_FORMAT);
        if (strstr(err.text, "\"partial\": \"tp\" is not a list of [begin, count]") == NULL) fail_msg("%s", err.text);
    }
}

static void test_sums_over_some_ranks(void **state)
{
    (void)state;
    write_parts_of_some(-1);
    expect(MID, HOLDS, NULL);
    write_parts_of_some(1);
    expect(MID, MISSHAPED, "rank 0 (tp=0) has a part of a sum, of which rank 1 (tp=1) has none");
    write_parts_of_some(3);
    expect(MID, MISSHAPED, "has a part of a sum, of which rank 3 (tp=3) has none");
}

/* The parts that ranks have of a sum, and what is no sum, are together the tensor. */
static void test_parts_of_sums(void **state)
{
    struct actual a;
    double *truth = values(MID), sum[N * D] = { 0 }, some[N * D];
    (void)state;
    write_parts_of_some(-1);
    assert_int_equal(actual_open(&a, folder, NULL, &err), OK);
    assert_int_equal(actual_parts(&a, MID), 3);
    assert_int_equal(actual_parts(&a, "loss"), 1);
    for (int part = 0; part <= 3; part++) {
        const struct assembly_watch watch = { .part = part ? part : ASSEMBLY_NO_SUMS };
        struct assembly all;
        assert_int_equal(assembly_make(&all, &a, MID, (int64_t[]){ N, D }, some, &watch, &err), OK);
        assert_true(some[0] == (part ? 0 : truth[0]));
        for (int i = 0; i < N * D; i++) sum[i] += some[i];
    }
    for (int i = 0; i < N * D; i++) assert_true(fabs(sum[i] - truth[i]) <= 1e-15 * fabs(truth[i]));
    free(truth);
    actual_close(&a);
}

/* If copies differ, the one that is no number is furthest, wherever it is. */
static void test_a_copy_that_is_no_number(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct actual a;
        struct assembly all;
        double *one = values(MID), *two = values(MID), whole[N * D];
        two[first ? 7 : 40] = NAN, two[20] += 1, two[60] += 2;
        struct file f = begin("0", "{\"dp\": 2}"), g = begin("1", "{\"dp\": 2}");
        add(&f, MID, N, D, one, NULL), put(&f, "0.safetensors");
        add(&g, MID, N, D, two, NULL), put(&g, "1.safetensors");
        assert_int_equal(actual_open(&a, folder, NULL, &err), OK);
        assert_int_equal(assembly_make(&all, &a, MID, (int64_t[]){ N, D }, whole, NULL, &err), OK);
        assert_int_equal(all.copies.elements, 3);
        assert_int_equal(all.copies.worst, first ? 7 : 40);
        actual_close(&a);
    }
}

/* Two pieces of one rank that overlap, whole or as parts of a sum. */
static void test_overlap_in_a_rank(void **state)
{
    (void)state;
    for (int sum = 0; sum < 2; sum++) {
        for (int r = 0; r < 2; r++) {
            struct file f = begin(r ? "1" : "0", "{\"tp\": 2}");
            const char *partial = sum ? ", \"partial\": [\"tp\"]" : "";
            char a[96], b[96];
            snprintf(a, sizeof a, "{\"rows\": [[0, 11]]%s}", partial);
            snprintf(b, sizeof b, "{\"rows\": [[%d, %d]]%s}", r ? 10 : 11, r ? 11 : 10, partial);
            add(&f, "act/h.0.mid#0", 11, D, cut(MID, D, 0, 11, 0, D, sum ? 0.5 : 1), a);
            add(&f, "act/h.0.mid#1", r ? 11 : 10, D, cut(MID, D, r ? 10 : 11, r ? 11 : 10, 0, D, sum ? 0.5 : 1), b);
            put(&f, r ? "1.safetensors" : "0.safetensors");
        }
        expect(MID, MISSHAPED, "act/h.0.mid, row 10, column 0: rank 1 (tp=1) has it in two pieces");
    }
}

/* ---- what it should not have: the file is named ------------------------------------------------------------------ */

struct bad { const char *rank, *mesh, *key, *value, *entry, *says; };

static const struct bad bad_files[] = {
    { "0", "{\"dp\": 1}", "orrery_dump", "2", NULL, "\"orrery_dump\" must be \"1\"" },
    { NULL, "{\"dp\": 1}", NULL, NULL, NULL, "\"rank\" must be the rank, a number of 0 to 0" },
    { "-1", "{\"dp\": 1}", NULL, NULL, NULL, "\"rank\" must be" },
    { "1", "{\"dp\": 1}", NULL, NULL, NULL, "\"rank\" must be" },
    { "0x0", "{\"dp\": 1}", NULL, NULL, NULL, "\"rank\" must be" },
    { "99999999999999999999", "{\"dp\": 1}", NULL, NULL, NULL, "\"rank\" must be" },
    { "0", NULL, NULL, NULL, NULL, "\"mesh\" is missing" },
    { "0", "[2]", NULL, NULL, NULL, "\"mesh\" is not an object" },
    { "0", "{\"dp\"", NULL, NULL, NULL, "metadata \"mesh\"" },
    { "0", "{\"xp\": 1}", NULL, NULL, NULL, "mesh: \"xp\" is not one of" },
    { "0", "{\"dp\": 0}", NULL, NULL, NULL, "mesh: \"dp\" is not one of" },
    { "0", "{\"dp\": \"1\"}", NULL, NULL, NULL, "mesh: \"dp\" is not one of" },
    { "0", "{\"dp\": 4096, \"tp\": 4096}", NULL, NULL, NULL, "mesh: has more than 16384 ranks" },
    { "0", "{\"dp\": 2}", NULL, NULL, NULL, "there is no file of the rank with dp=1" },
    { "1", "{\"dp\": 2}", NULL, NULL, NULL, "there is no file of the rank with dp=0" },
    { "0", "{\"dp\": 1}", "coordinates", "3", NULL, "\"coordinates\" is not an object" },
    { "0", "{\"dp\": 1}", "coordinates", "{\"dp\": 1}", NULL, "\"coordinates\": \"dp\" is not an axis with a place" },
    { "0", "{\"dp\": 2}", "coordinates", "{\"tp\": 0}", NULL, "\"coordinates\" has no \"dp\"" },
    { "0", "{\"dp\": 1}", "dtype", "int8", NULL, "\"dtype\" is none of fp64" },
    { "0", "{\"dp\": 1}", "sums", "", NULL, "\"sums\" is none of fp64" },
    { "0", "{\"dp\": 1}", "parts", "0", NULL, "\"parts\" is not a number of 1 to 64" },
    { "0", "{\"dp\": 1}", "layout", "{\"act/h.0.mud\": {}}", NULL, "describes \"act/h.0.mud\", but the file has no" },
    { "0", "{\"dp\": 1}", "layout", "[]", NULL, "\"layout\" is not an object" },
    { "0", "{\"dp\": 1}", NULL, NULL, "3", "its layout is not an object" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"row\": [[0, 21]]}", "its layout has \"row\", which is none of" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"rows\": [0, 21]}", "\"rows\" is not a list of [begin, count]" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"rows\": [[-1, 21]]}", "\"rows\" is not a list of [begin, count]" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"cols\": [[0, 1e300]]}", "\"cols\" is not a list of [begin, count]" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"cols\": {}}", "\"cols\" is not a list of [begin, count]" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"flat\": [0]}", "\"flat\" is not [begin, count]" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"flat\": [0, 441], \"rows\": [[0, 21]]}", "\"flat\" goes with none of" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"of\": [21]}", "\"of\" is not [rows, columns]" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"times\": 0}", "\"times\" is not a number other than 0" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"times\": 1e999}", "\"times\"" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"micro\": 4096}", "\"micro\" is not the number of a microbatch" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"transposed\": 1}", "\"transposed\" is not true or false" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"step\": \"one\"}", "\"step\" is no field: names say of which step" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"partial\": \"dp\"}", "\"partial\" is not a list of axes" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"partial\": [\"dp\"]}", "\"partial\": \"dp\" is not an axis of the" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"partial\": [\"zp\"]}", "\"partial\": \"zp\" is not an axis of the mesh" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"partial\": {\"dp\": [[0, 1]]}}", "\"dp\" is not an axis of the mesh" },
    { "0", "{\"dp\": 1}", NULL, NULL, "{\"partial\": [1]}", "\"partial\": \"?\" is not an axis of the mesh" },
};

static void expect_refused(const char *says)
{
    struct actual a;
    err.text[0] = '\0';
    const enum error_code e = actual_open(&a, folder, NULL, &err);
    if (e != ERR_FORMAT || strstr(err.text, says) == NULL) fail_msg("code %d, '%s', not '%s'", e, err.text, says);
}

static void test_bad_files(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof bad_files / sizeof *bad_files; i++) {
        const struct bad *b = &bad_files[i];
        struct file f = begin(b->rank, b->mesh);
        add(&f, MID, N, D, values(MID), b->entry);
        if (b->key) say(&f, b->key, b->value);
        put(&f, "0.safetensors");
        expect_refused(b->says);
        assert_non_null(strstr(err.text, "0.safetensors"));
    }
}

/* The first file is right, of a mesh of two; what the second says does not go with it. */
static void test_files_that_do_not_agree(void **state)
{
    static const struct bad bad[] = {
        { "1", "{\"tp\": 2}", NULL, NULL, NULL, "\"mesh\" is not that of " },
        { "1", "{\"dp\": 2, \"tp\": 2}", NULL, NULL, NULL, "\"mesh\" is not that of " },
        { "0", "{\"dp\": 2}", NULL, NULL, NULL, "\"act/h.0.mid\" of rank 0 is in " },
        { "0", "{\"dp\": 2}", "coordinates", "{\"dp\": 1}", NULL, "rank 0 has other coordinates than in " },
        { "1", "{\"dp\": 2}", "coordinates", "{\"dp\": 0}", NULL, "has the coordinates of rank 0, dp=0" },
        { "1", "{\"dp\": 2}", "dtype", "bf16", NULL, "\"dtype\" is not that of the files before it" },
        { "1", "{\"dp\": 2}", "parts", "3", NULL, "\"parts\" is not that of the files before it" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (int second = 0; second < 2; second++) {
            struct file f = begin(second ? bad[i].rank : "0", second ? bad[i].mesh : "{\"dp\": 2}");
            add(&f, MID, N, D, values(MID), NULL);
            say(&f, "dtype", "fp64"), say(&f, "parts", "2");
            if (second && bad[i].key) say(&f, bad[i].key, bad[i].value);
            put(&f, second ? "1.safetensors" : "0.safetensors");
        }
        if (i == 2) {                                   /* all ranks are there, one of them twice */
            struct file f = begin("1", "{\"dp\": 2}");
            put(&f, "2.safetensors");
        }
        expect_refused(bad[i].says);
        clear(NULL);
    }
}

static void test_a_dump_and_other_files(void **state)
{
    struct actual a;
    (void)state;
    struct file f = begin("0", "{\"dp\": 1}"), other = { 0 };
    add(&f, MID, N, D, values(MID), NULL);
    add(&other, MID, N, D, values(MID), NULL);
    put(&f, "0.safetensors");
    char map[600];
    snprintf(map, sizeof map, "%s/map.json", folder);
    FILE *m = fopen(map, "w");
    fputs("{}", m);
    fclose(m);
    assert_int_equal(actual_open(&a, folder, map, &err), ERR_FORMAT);
    assert_non_null(strstr(err.text, "is a dump that says itself what is in it"));
    put(&other, "1.safetensors");
    expect_refused("1.safetensors: its metadata has no \"orrery_dump\", but that of ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_pieces, clear),
        cmocka_unit_test_teardown(test_kinds_of_pieces, clear),
        cmocka_unit_test_teardown(test_coordinates, clear),
        cmocka_unit_test_teardown(test_parts_of_a_batch, clear),
        cmocka_unit_test_teardown(test_microbatches, clear),
        cmocka_unit_test_teardown(test_parts_of_gradients, clear),
        cmocka_unit_test_teardown(test_left_out, clear),
        cmocka_unit_test_teardown(test_copies, clear),
        cmocka_unit_test_teardown(test_pieces_that_do_not_fit, clear),
        cmocka_unit_test_teardown(test_overlap_in_a_rank, clear),
        cmocka_unit_test_teardown(test_bad_places, clear),
        cmocka_unit_test_teardown(test_sums_over_some_ranks, clear),
        cmocka_unit_test_teardown(test_parts_of_sums, clear),
        cmocka_unit_test_teardown(test_a_copy_that_is_no_number, clear),
        cmocka_unit_test_teardown(test_bad_files, clear),
        cmocka_unit_test_teardown(test_files_that_do_not_agree, clear),
        cmocka_unit_test_teardown(test_a_dump_and_other_files, clear),
    };
    return cmocka_run_group_tests(tests, open_golden, close_golden);
}
