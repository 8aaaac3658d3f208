/* safetensors_model.h -- a small file with a tensor of every kind, for the tests of safetensors.  test_safetensors.c,
 * test_safetensors_hostile.c and test_safetensors_write.c include this file.  An error fails the test. */
#ifndef TESTS_REF_SAFETENSORS_MODEL_H
#define TESTS_REF_SAFETENSORS_MODEL_H

#include "ref/io/safetensors.h"
#include "tests/ref/scratch.h"

static inline struct safetensors open_good(const char *path)
{
    struct safetensors st;
    struct error err = { OK, "" };
    if (safetensors_open(&st, path, &err) != OK) fail_msg("%s", err.text);
    return st;
}

enum { ROWS = 5, COLS = 7, DEEP = 3 };

static const struct safetensors_entry model[] = {
    { .name = "ids", .dtype = "U8", .ndim = 1, .dim = { 3 } },
    { .name = "W", .dtype = "F32", .ndim = 2, .dim = { ROWS, COLS } },
    { .name = "scalar", .dtype = "F64", .ndim = 0 },
    { .name = "empty", .dtype = "F32", .ndim = 2, .dim = { 4, 0 } },
    { .name = "T", .dtype = "F64", .ndim = 3, .dim = { DEEP, ROWS, COLS } },
    { .name = "name \"with\" \xc3\xa4\n", .dtype = "I64", .ndim = 1, .dim = { 2 } },
};
enum { MODEL = sizeof model / sizeof *model };
static const struct safetensors_pair notes[] = { { "format", "pt" }, { "seed", "1234" } };

static float W[ROWS * COLS];
static double T[DEEP * ROWS * COLS];
static const double scalar = 2.5;
static const int64_t longs[2] = { INT64_MIN, INT64_MAX };
static const uint8_t ids[3] = { 0, 128, 255 };
static const void *const content[MODEL] = { ids, W, &scalar, NULL, T, longs };

static inline void write_model(const char *path)
{
    struct safetensors_writer w;
    struct error err = { OK, "" };
    for (int i = 0; i < ROWS * COLS; i++) W[i] = (float)i;
    for (int i = 0; i < DEEP * ROWS * COLS; i++) T[i] = i + 0.1;
    if (safetensors_create(&w, path, model, MODEL, notes, 2, &err) != OK) fail_msg("%s", err.text);
    for (int i = MODEL - 1; i >= 0; i--) assert_int_equal(safetensors_write(&w, i, content[i], &err), OK);
    assert_int_equal(safetensors_commit(&w, &err), OK);
}

#endif
