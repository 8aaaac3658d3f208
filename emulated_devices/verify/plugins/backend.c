/* backend.c -- the laws of a backend: its memory, each operation beside ref/ in fp64, and training with it.
 *
 * kinds.c lists law_kind_backend.  Operations are those of the conformance suite.  Errors are ERR_MEMORY, and
 * ERR_DEVICE if the device cannot be opened.
 */
#include "emulated_devices/verify/conformance/conformance.h"
#include "emulated_devices/verify/plugins/laws.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY, COPIES, VIEWS, OPERATIONS, TRAINS };
static const struct law backend_laws[] = {
    [MEMORY] = { "memory", "blocks are aligned to 64 bytes, apart, and keep what is written" },
    [COPIES] = { "copies", "rows are copied with their pitches, and a row that overlaps itself is moved" },
    [VIEWS] = { "views", "a host view shows what is there, and what is written through it stays" },
    [OPERATIONS] = { "operations", "each operation is ref/'s in four formats, and writes nothing outside" },
    [TRAINS] = { "trains", "training with it on two devices is that of one device" },
    { NULL, NULL }
};

enum { BLOCKS = 16, WIDTH = 24, ROWS = 5, PITCH = 40 };

static void fill_bytes(unsigned char *to, size_t bytes, int which)
{
    for (size_t i = 0; i < bytes; i++) to[i] = (unsigned char)(i * 7 + (size_t)which * 31 + 1);
}

/* Write blocks of different lengths through views, then read all of them. */
static void judge_blocks(struct book *book, struct device *d)
{
    unsigned char *block[BLOCKS], want[BLOCKS * 100 + 64];
    size_t wrong = 0;
    law_now(book, ".allocate");
    for (int k = 0; k < BLOCKS; k++) {
        const size_t bytes = (size_t)k * 100 + 1;
        block[k] = d->backend->allocate(d, bytes);
        law_judge(book, MEMORY, block[k] != NULL && (uintptr_t)block[k] % 64 == 0,
                  "a block of %zu bytes is not aligned to 64 bytes, or not there", bytes);
        if (block[k] == NULL) return;
        unsigned char *const view = d->backend->host_write(d, block[k], bytes);
        fill_bytes(view, bytes, k);
        d->backend->host_done(d, view);
    }
    for (int k = 0; k < BLOCKS; k++) {
        const size_t bytes = (size_t)k * 100 + 1;
        const void *const view = d->backend->host_read(d, block[k], bytes);
        fill_bytes(want, bytes, k);
        wrong += memcmp(view, want, bytes) != 0;
        d->backend->host_done(d, view);
    }
    law_judge(book, VIEWS, wrong == 0, "%zu of %d blocks do not have what was written through their views", wrong,
              BLOCKS);
    law_judge(book, MEMORY, wrong == 0, "%zu of %d blocks changed when others were written", wrong, BLOCKS);
    law_now(book, ".release");
    for (int k = 0; k < BLOCKS; k++) d->backend->release(d, block[k], (size_t)k * 100 + 1);
}

/* Copy rows from the host, on the device, and back. */
static void judge_copies(struct book *book, struct device *d)
{
    unsigned char from[ROWS * PITCH], back[ROWS * PITCH] = { 0 };
    unsigned char *const here = d->backend->allocate(d, ROWS * PITCH);
    if (here == NULL) return;
    size_t wrong = 0;
    fill_bytes(from, sizeof from, 3);
    law_now(book, ".copy");
    d->backend->copy(d, here, WIDTH, from, PITCH, WIDTH, ROWS);
    d->backend->copy(d, back, PITCH, here, WIDTH, WIDTH, ROWS);
    for (int r = 0; r < ROWS; r++) {
        wrong += memcmp(back + r * PITCH, from + r * PITCH, WIDTH) != 0;
        for (int i = WIDTH; i < PITCH; i++) wrong += back[r * PITCH + i] != 0;
    }
    law_judge(book, COPIES, wrong == 0, "%d rows of %d bytes are not as they were, or more was written", ROWS, WIDTH);
    d->backend->copy(d, here + 8, 100, here, 100, 100, 1);
    d->backend->copy(d, back, 100, here + 8, 100, 100, 1);
    for (int i = 0; i < 100; i++) wrong += back[i] != from[i / WIDTH * PITCH + i % WIDTH];
    law_judge(book, COPIES, wrong == 0, "a row that overlaps itself is not moved");
    d->backend->release(d, here, ROWS * PITCH);
}

/* Clear the middle of a block: the operation that has no row of its own. */
static void judge_zero(struct book *book, struct device *d)
{
    enum { BYTES = 192, FROM = 64, COUNT = 7 };
    size_t wrong = 0;
    unsigned char *const block = d->backend->allocate(d, BYTES);
    if (block == NULL) return;
    unsigned char *const view = d->backend->host_write(d, block, BYTES);
    memset(view, 1, BYTES);
    d->backend->host_done(d, view);
    law_now(book, ".zero");
    device_zero(d, tensor_1d(block + FROM, F32, COUNT));
    const unsigned char *const seen = d->backend->host_read(d, block, BYTES);
    for (int i = 0; i < BYTES; i++) wrong += seen[i] != !(i >= FROM && i < FROM + COUNT * 4);
    d->backend->host_done(d, seen);
    d->backend->release(d, block, BYTES);
    law_judge(book, OPERATIONS, wrong == 0, "zero: %zu bytes are not cleared, or are and should not be", wrong);
}

static void say_row(void *to, const char *line)
{
    struct book *const book = to;
    law_judge(book, OPERATIONS, false, "%s", line);
}

static enum error_code judge_backend(struct book *book, const struct plugin_item *item, struct error *err)
{
    const struct backend *const b = item->backend;
    const char *const words[] = { "--model", "tiny", "--backend", b->name, "--dp", "2", "--batch", "2", NULL };
    struct device d;
    law_now(book, ".open");
    enum error_code e = device_open(&d, b, F32, 0, err);
    if (e) return e;
    if (b->has_numbers) judge_blocks(book, &d), judge_copies(book, &d), judge_zero(book, &d);
    else for (int law = 0; law < OPERATIONS; law++) law_leave_out(book, law);
    law_now(book, ".close");
    device_close(&d);
    for (int row = 0; row < conformance_rows() && !e; row++) {
        struct conforms c = { 0 };
        law_now(book, "%s", conformance_row(row));
        e = conformance_try(&c, b, row, book->is_short ? CONFORMANCE_QUICK : CONFORMANCE_SIZES, say_row, book, err);
        law_judge(book, OPERATIONS, e || c.wrong == 0, "%s: %d of %d cases are wrong", conformance_row(row), c.wrong,
                  c.cases);
    }
    if (!e && b->has_numbers) e = law_trains(book, TRAINS, words, err);
    else law_leave_out(book, TRAINS);
    return e;
}

static bool is_backend(const struct plugin_item *item) { return item->backend != NULL; }

static void name_backend(const struct plugin_item *item, char name[LAW_NAME])
{
    snprintf(name, LAW_NAME, "%s", item->backend->name ? item->backend->name : "without a name");
}

/* Backends of a GPU have a machine of their own, and those without numbers compute none. */
static bool built_in_backend(int place, struct plugin_item *item)
{
    for (int i = 0; backends[i]; i++)
        if (backends[i]->has_numbers && strncmp(backends[i]->name, "cuda", 4) != 0 && place-- == 0)
            return *item = (struct plugin_item){ .backend = backends[i] }, true;
    return false;
}

const struct law_kind law_kind_backend = {
    .name = "backend", .laws = backend_laws, .prints = true, .is = is_backend, .names = name_backend,
    .built_in = built_in_backend, .judge = judge_backend,
};
