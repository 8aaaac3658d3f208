/* Writing safetensors: any failure leaves no unfinished file; several processes write one file.
 * tier: check
 */
#include "tests/ref/safetensors_model.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static void refuses_to_write_nonsense(void **state)
{
    (void)state;
    static const struct { struct safetensors_entry tensor; const char *words; } cases[] = {
        { { .name = "", .dtype = "F32" }, "tensor \"\" has a name that is not allowed" },
        { { .name = "__metadata__", .dtype = "F32" }, "has a name that is not allowed" },
        { { .name = "x", .dtype = "fp32" }, "tensor \"x\" has a dtype that the format does not know" },
        { { .name = "x", .dtype = "F32", .ndim = 9 }, "tensor \"x\" has more than 8 dimensions" },
        { { .name = "x", .dtype = "F32", .ndim = 1, .dim = { -1 } }, "tensor \"x\" has a negative dimension" },
        { { .name = "x", .dtype = "F32", .ndim = 2, .dim = { INT64_MAX, 2 } }, "tensor \"x\" has a shape whose" },
        { { .name = "x", .dtype = "F4", .ndim = 1, .dim = { 2 } }, "tensor \"x\" has elements of less than a byte" },
        { { .name = "same", .dtype = "F32" }, "\"same\" is there twice" },
        { { .name = "\xff", .dtype = "F32" }, "is not UTF-8" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct safetensors_entry two[] = { { .name = "same", .dtype = "F64" }, cases[i].tensor };
        struct safetensors_writer w;
        struct error err = { OK, "" };
        assert_int_equal(safetensors_create(&w, scratch("nonsense"), two, 2, NULL, 0, &err), ERR_USAGE);
        assert_says("nonsense", err.text, cases[i].words);
        assert_says("nonsense", err.text, "/nonsense: ");
    }
    assert_int_equal(scratch_count("nonsense"), 0);
}

static void assert_kept(void)                           /* the old file is as it was, and nothing lies beside it */
{
    size_t n;
    char *text = get_file(scratch("kept"), &n);
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(scratch_count(".tmp."), 0);
}

/* Run `what` while no file may be longer than `bytes`: a full disk, for all that the program can tell. */
static enum error_code with_limit(rlim_t bytes, enum error_code (*what)(struct safetensors_writer *, struct error *),
                                  struct safetensors_writer *w, struct error *err)
{
    struct rlimit old, small;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){ bytes, old.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const enum error_code e = what(w, err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    return e;
}

static enum error_code create_kept(struct safetensors_writer *w, struct error *err)
{
    return safetensors_create(w, scratch("kept"), model, MODEL, NULL, 0, err);
}

static enum error_code write_T(struct safetensors_writer *w, struct error *err)
{
    return safetensors_write(w, 4, T, err);
}

static void failures_keep_the_old_file(void **state)
{
    (void)state;
    struct safetensors_writer w;
    struct error err;
    put_text(scratch("kept"), "old");

    assert_int_equal(with_limit(100, create_kept, &w, &err), ERR_FILE);
    assert_says("header", err.text, "/kept: writing failed: File too large");
    assert_kept();
    assert_int_equal(with_limit(1000, create_kept, &w, &err), ERR_FILE);
    assert_says("room", err.text, "/kept: making room failed: File too large");
    assert_kept();

    assert_int_equal(create_kept(&w, &err), OK);
    assert_int_equal(scratch_count("kept.tmp."), 1);
    assert_int_equal(with_limit(1000, write_T, &w, &err), ERR_FILE);
    assert_says("data", err.text, "/kept: writing failed: File too large");
    assert_kept();
    assert_int_equal(safetensors_write(&w, 0, ids, &err), ERR_FILE);    /* too late for everything */
    assert_int_equal(safetensors_commit(&w, &err), ERR_FILE);
    safetensors_abort(&w);
    assert_kept();

    assert_int_equal(create_kept(&w, &err), OK);
    safetensors_abort(&w);
    assert_kept();

    const int64_t start[2] = { 0, 1 }, extent[2] = { ROWS, COLS };
    assert_int_equal(create_kept(&w, &err), OK);
    assert_int_equal(safetensors_write_box(&w, 1, start, extent, false, W, &err), ERR_USAGE);
    assert_kept();

    assert_int_equal(safetensors_create(&w, scratch("no/such/file"), model, MODEL, NULL, 0, &err), ERR_FILE);
    assert_says("folder", err.text, "/no/such/file: cannot be written: No such file or directory");
}

static void an_unfinished_file_is_not_seen(void **state)
{
    (void)state;
    struct safetensors_writer w;
    struct error err;
    assert_int_equal(safetensors_create(&w, scratch("late"), model, MODEL, NULL, 0, &err), OK);
    assert_int_equal(access(scratch("late"), F_OK), -1);
    assert_int_equal(safetensors_commit(&w, &err), OK);
    assert_int_equal(access(scratch("late"), F_OK), 0);
    struct safetensors st = open_good(scratch("late"));         /* never written: zeros */
    double got[DEEP * ROWS * COLS];
    assert_int_equal(safetensors_read(&st, safetensors_find(&st, "T"), F64, got, &err), OK);
    for (int i = 0; i < DEEP * ROWS * COLS; i++) assert_true(got[i] == 0);
    safetensors_close(&st);
}

/* Child r writes the columns r, r + 2, ... of W, knowing only W. */
static int write_columns(const char *path, const char *temp, int r)
{
    struct safetensors_writer w;
    if (safetensors_join(&w, path, temp, &model[1], 1, NULL) != OK) return 1;
    for (int c = r; c < COLS; c += 2) {
        const int64_t start[2] = { 0, c }, extent[2] = { ROWS, 1 };
        float column[ROWS];
        for (int i = 0; i < ROWS; i++) column[i] = (float)(100 * i + c);
        if (safetensors_write_box(&w, 0, start, extent, false, column, NULL) != OK) return 1;
    }
    return safetensors_commit(&w, NULL) != OK;
}

static void processes_write_together(void **state)
{
    (void)state;
    struct safetensors_writer w;
    struct error err;
    float got[ROWS * COLS];
    assert_int_equal(safetensors_create(&w, scratch("shared"), model, MODEL, notes, 2, &err), OK);
    for (int r = 0; r < 2; r++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) _exit(write_columns(w.file.path, w.file.temp, r));
    }
    for (int r = 0, status; r < 2; r++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    assert_int_equal(access(scratch("shared"), F_OK), -1);
    assert_int_equal(safetensors_commit(&w, &err), OK);
    struct safetensors st = open_good(scratch("shared"));
    assert_int_equal(safetensors_read(&st, safetensors_find(&st, "W"), F32, got, &err), OK);
    for (int i = 0; i < ROWS; i++)
        for (int c = 0; c < COLS; c++) assert_true(got[i * COLS + c] == (float)(100 * i + c));
    safetensors_close(&st);
}

static void joins_only_what_fits(void **state)
{
    (void)state;
    struct safetensors_writer w, other;
    struct error err;
    struct safetensors_entry t = model[1];
    assert_int_equal(safetensors_create(&w, scratch("fits"), model, MODEL, NULL, 0, &err), OK);
    t.dim[0]++;
    assert_int_equal(safetensors_join(&other, w.file.path, w.file.temp, &t, 1, &err), ERR_USAGE);
    assert_says("shape", err.text, "tensor \"W\" is not in it with this dtype and shape");
    assert_int_equal(safetensors_join(&other, w.file.path, scratch("gone"), &t, 1, &err), ERR_FILE);
    /* A process that cannot write its part keeps the others from finishing the file. */
    assert_int_equal(safetensors_join(&other, w.file.path, w.file.temp, &model[1], 1, &err), OK);
    safetensors_abort(&other);
    assert_int_equal(safetensors_commit(&w, &err), ERR_FILE);
    assert_says("gone", err.text, "/fits: renaming the finished file failed: No such file or directory");
    assert_int_equal(scratch_count("fits"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_to_write_nonsense),
        cmocka_unit_test(failures_keep_the_old_file),
        cmocka_unit_test(an_unfinished_file_is_not_seen),
        cmocka_unit_test(processes_write_together),
        cmocka_unit_test(joins_only_what_fits),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
