/* How much a check of single results reads: where copies of many tensors differ and are wrong, and where every result
 * of a pass is wrong.  The program under test is our own run of a golden file's model, on two ranks along dp that have
 * copies of all tensors. */
#include "emulated_devices/check/report/singles.h"
#include "ref/golden/replay.h"
#include "ref/io/output.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct program { struct golden golden; struct replay replay; };

static const char gpt2[] = "golden/gpt2-tied.safetensors";
static char folder[512];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "%s/orrery-singles-XXXXXX", temporary_folder());
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char command[sizeof folder + 16];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* The golden file has no tensors of the steps between; the program has them, and the check needs none of the file. */
static void open_run(struct program *r, const char *path, enum dtype format)
{
    struct error err;
    *r = (struct program){ 0 };
    if (golden_open(&r->golden, path, &err) != OK) fail_msg("%s", err.text);
    r->golden.every_step = true;
    if (replay_run(&r->replay, &r->golden, format, NULL, &err) != OK) fail_msg("%s", err.text);
}

static void close_run(struct program *r)
{
    replay_free(&r->replay);
    golden_close(&r->golden);
}

static void write_rank(const struct program *r, const char *rank)
{
    const struct safetensors_pair metadata[] = { { "orrery_dump", "1" }, { "rank", rank }, { "mesh", "{\"dp\": 2}" },
                                                 { "dtype", "fp32" } };
    char path[600];
    struct error err;
    snprintf(path, sizeof path, "%s/rank%s.safetensors", folder, rank);
    if (records_write(r->replay.record, r->replay.records, metadata, 4, path, &err) != OK) fail_msg("%s", err.text);
}

/* Every element of the tensors with this text in their names gets an error of its own. */
static void disturb(const struct program *r, const char *text, double by)
{
    for (int i = 0; i < r->replay.records; i++) {
        const struct record *one = &r->replay.record[i];
        for (int64_t k = 0; strstr(one->name, text) == one->name && k < tensor_count(one->values); k++)
            tensor_set(one->values, k, tensor_get(one->values, k) *
                       (1 + by * (random_uniform(3, (uint64_t)i, (uint64_t)k) - 0.5)));
    }
}

/* This counts the tensors that are read, and the results that are wrong. */
static int64_t read_of(const struct program *r, int *wrong)
{
    struct actual actual;
    struct singles out;
    struct error err;
    if (actual_open(&actual, folder, NULL, &err) != OK) fail_msg("%s", err.text);
    if (singles_check(&r->golden, &actual, F32, rounding_of(F32, DTYPE_COUNT, 1), &out, &err) != OK)
        fail_msg("%s", err.text);
    const int64_t read = out.read;
    *wrong = out.found[SINGLE_WRONG];
    singles_free(&out);
    actual_close(&actual);
    return read;
}

/* A check that explains what is wrong reads at most so many times as much as that of a right program. */
static void expect_little(int64_t right, int64_t read, double times, int wrong, int least)
{
    print_message("%lld tensors are read where nothing is wrong, %lld where %d results are\n", (long long)right,
                  (long long)read, wrong);
    assert_true(wrong >= least);
    if ((double)read > times * (double)right)
        fail_msg("tensors are read %lld times for %d wrong results, and %lld times for none", (long long)read, wrong,
                 (long long)right);
}

static void wrong_copies_are_judged_with_few_reads(void **state)
{
    struct program r;
    int wrong;
    (void)state;
    open_run(&r, gpt2, F32);
    write_rank(&r, "0"), write_rank(&r, "1");
    const int64_t right = read_of(&r, &wrong);
    assert_int_equal(wrong, 0);
    disturb(&r, "adamw/1/exp_avg", 0.1);
    write_rank(&r, "1");
    const int64_t read = read_of(&r, &wrong);
    expect_little(right, read, 1.5, wrong, 40);
    close_run(&r);
}

static void a_wrong_pass_is_searched_with_few_reads(void **state)
{
    struct program r;
    int wrong;
    (void)state;
    open_run(&r, gpt2, F32);
    write_rank(&r, "0"), write_rank(&r, "1");
    const int64_t right = read_of(&r, &wrong);
    disturb(&r, "act/h.", 0.1), disturb(&r, "grad/h.", 0.1);
    write_rank(&r, "0"), write_rank(&r, "1");
    const int64_t read = read_of(&r, &wrong);
    expect_little(right, read, 3, wrong, 40);
    close_run(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(wrong_copies_are_judged_with_few_reads, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_wrong_pass_is_searched_with_few_reads, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
