/* Wrong backends: the host's memory and ref/'s operations.  tests/cli/test_verify_plugin.sh compiles the file with
 * -DWRONG=N, and wants the law beside N to be broken.
 *
 *  1 memory       gives blocks that are not aligned
 *  2 memory       gives one block twice
 *  3 copies       forgets the pitch of what it reads
 *  4 copies       moves an overlapping row from its beginning
 *  5 views        shows a copy of the first block
 *  6 operations   does not clear
 *  7 operations   converts without rounding
 *  8 operations   adds the wrong way round
 *  9 ends         crashes when it is closed
 * 10 quiet        prints to standard output
 * 11 complete     has no function copy
 * 12 operations   clears one element too many
 */
#include "emulated_devices/schemes/plugin.h"
#include "ref/numeric/convert.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifndef WRONG
#define WRONG 0
#endif

static char twice[1 << 16] __attribute__((aligned(64)));

static void *allocate(struct device *d, size_t bytes)
{
    (void)d;
    if (WRONG == 2 && bytes < sizeof twice) return twice;
    char *const block = aligned_alloc(64, (bytes + 191) / 64 * 64);
    return block && WRONG == 1 ? block + 8 : block;
}

static void release(struct device *d, void *data, size_t bytes)
{
    (void)d, (void)bytes;
    if (WRONG != 2 || data != twice) free(WRONG == 1 ? (char *)data - 8 : data);
}

static void copy(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                 size_t rows)
{
    (void)d;
    if (WRONG == 3) from_pitch = width;
    for (size_t r = 0; r < rows; r++) {
        char *const a = (char *)to + r * to_pitch;
        const char *const b = (const char *)from + r * from_pitch;
        if (WRONG != 4) memmove(a, b, width);
        else for (volatile size_t i = 0; i < width; i++) a[i] = b[i];
    }
}

static void *view(struct device *d, void *data, size_t bytes)
{
    static char first[1 << 12];
    (void)d;
    if (WRONG != 5 || bytes > sizeof first) return data;
    return memcpy(first, data, bytes);
}

static const void *reads(struct device *d, const void *data, size_t bytes)
{
    (void)d, (void)bytes;
    return data;
}

static void given_back(struct device *d, const void *at) { (void)d, (void)at; }

static void zero(struct device *d, struct tensor y)
{
    (void)d;
    if (WRONG != 6) memset(y.data, 0, tensor_bytes(y));
    if (WRONG == 12 && tensor_count(y) > 0) memset((char *)y.data + tensor_bytes(y), 0, 1);
}

static void convert(struct device *d, struct tensor y, struct tensor x)
{
    (void)d;
    tensor_convert(y, x);
    if (WRONG == 7 && y.dtype == BF16)
        for (int64_t i = 0; i < tensor_count(y); i++) ((uint16_t *)y.data)[i] += 3;
}

static void reduce(struct device *d, enum reduction how, enum dtype t, void *into, const void *from, int64_t n)
{
    (void)d;
    reduction_apply(WRONG == 8 && how == MAX ? MIN : how, t, into, from, n);
}

static void closes(struct device *d)
{
    (void)d;
    if (WRONG == 9) abort();
}

static void begins(struct device *d)
{
    (void)d;
    if (WRONG == 10) printf("an operation\n");
}

static const struct backend mine = {
    .name = "mine", .description = "as cpu", .has_numbers = true, .close = closes, .begin = begins,
    .allocate = allocate, .release = release, .copy = WRONG == 11 ? NULL : copy,
    .host_read = reads, .host_write = view, .host_done = given_back, .ops = ops_for,
    .zero = zero, .convert = convert, .reduce = reduce,
};

PLUGIN(PLUGIN_BACKEND(mine));
