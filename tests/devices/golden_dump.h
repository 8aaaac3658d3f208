/* golden_dump.h -- a golden file's tensors, and paths in a folder for what a test writes beside it.  test_checker.c and
 * test_dumps.c include this file and open the golden file.  A tensor that cannot be read fails the test. */
#ifndef TESTS_GOLDEN_DUMP_H
#define TESTS_GOLDEN_DUMP_H

#include "ref/golden/golden.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

static struct golden golden;
static char folder[512];
static struct error err;

static double *values(const char *name)
{
    const struct safetensors_entry *e = safetensors_find(&golden.file, name);
    double *out = malloc((size_t)e->count * sizeof *out);
    assert_int_equal(golden_read(&golden, name, F64, e->count, out, &err), OK);
    return out;
}

static char *place(const char *name)
{
    static char path[1024];
    snprintf(path, sizeof path, "%s/%.400s", folder, name);
    return path;
}

/* Write tensors into a file of the folder, and free them. */
static void write_tensors(const char *name, struct safetensors_entry *entry, double *const *data, int count,
                          const struct safetensors_pair *pair, int pairs)
{
    struct safetensors_writer w;
    assert_int_equal(safetensors_create(&w, place(name), entry, count, pair, pairs, &err), OK);
    for (int i = 0; i < count; i++) {
        assert_int_equal(safetensors_write(&w, i, data[i], &err), OK);
        free(data[i]);
    }
    assert_int_equal(safetensors_commit(&w, &err), OK);
}

#endif
