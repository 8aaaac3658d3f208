/* at_memory.c -- emulates the memories of devices that multiply and sum around a ring.  claims/tensor.c calls these
 * functions.  Errors: ERR_MEMORY; ERR_CHECK if a chunk is not complete at the end. */
#include "emulated_devices/bench/schemes/at_memory.h"
#include <stdlib.h>
#include <string.h>

/* The memories of all devices, and what they have moved. */
struct memories {
    const struct at_memory *sizes;
    int64_t chunk;                      /* elements of a chunk */
    double *product[AT_MEMORY_DEVICES]; /* [rows * columns] of each device */
    double *came[AT_MEMORY_DEVICES];    /* [chunk] apart: the sum that has come from the left */
    int *stores[AT_MEMORY_DEVICES];     /* [rows] at memory: how often each row has been stored to: the tracker */
    struct memory_moves *moves;
};

static int64_t rows_of(const struct memories *m) { return m->sizes->rows / m->sizes->devices; }
static int chunk_at(const struct memories *m, int device, int step)
{
    const int P = m->sizes->devices;
    return ((device - 1 - step) % P + P) % P;
}

/* One row of a product, without a memory. */
static void multiply_row(const struct at_memory *sizes, const double *X, const double *W, int64_t row, double *out)
{
    for (int64_t j = 0; j < sizes->columns; j++) {
        double sum = 0;
        for (int64_t k = 0; k < sizes->depth; k++) sum += X[row * sizes->depth + k] * W[k * sizes->columns + j];
        out[j] = sum;
    }
}

static void count_inputs(struct memories *m, int device)
{
    m->moves[device].inputs = (uint64_t)((m->sizes->rows + m->sizes->columns) * m->sizes->depth);
}

/* ---- apart ------------------------------------------------------------------------------------------------------- */

static void multiply_all(struct memories *m, int device, const double *X, const double *W)
{
    const int64_t D = m->sizes->columns;
    count_inputs(m, device);
    for (int64_t row = 0; row < m->sizes->rows; row++) {
        multiply_row(m->sizes, X, W, row, m->product[device] + row * D);
        m->moves[device].results += (uint64_t)D;
    }
}

/* A device reads its chunk, and what has come if this is not the first step; the sum goes to `to`, in the memory of
 * device `at`. */
static void ring_step(struct memories *m, int device, int step, int at, double *to)
{
    const double *const own = m->product[device] + chunk_at(m, device, step) * m->chunk;
    for (int64_t i = 0; i < m->chunk; i++) to[i] = step > 0 ? m->came[device][i] + own[i] : own[i];
    m->moves[device].sum_reads += (uint64_t)m->chunk * (step > 0 ? 2 : 1);
    m->moves[at].sum_writes += (uint64_t)m->chunk;
}

/* In a step all devices send at once: what comes is kept beside what a device still reads. */
static enum error_code sum_apart(struct memories *m, double *Y, struct error *err)
{
    const int P = m->sizes->devices;
    double *const next = malloc((size_t)(P * m->chunk) * sizeof *next);
    if (next == NULL) return fail(err, ERR_MEMORY, "no memory for chunks of %d devices", P);
    for (int step = 0; step < P - 1; step++) {
        for (int d = 0; d < P; d++) ring_step(m, d, step, (d + 1) % P, next + (d + 1) % P * m->chunk);
        for (int d = 0; d < P; d++) memcpy(m->came[d], next + d * m->chunk, (size_t)m->chunk * sizeof *next);
    }
    for (int d = 0; d < P; d++) ring_step(m, d, P - 1, d, Y + d * m->chunk);
    free(next);
    return OK;
}

/* ---- at the memory ----------------------------------------------------------------------------------------------- */

/* Add a row to what lies in a device's memory: the memory does it.  The tracker counts the store. */
static void memory_add(struct memories *m, int device, int64_t row, const double *values)
{
    const int64_t D = m->sizes->columns;
    for (int64_t j = 0; j < D; j++) m->product[device][row * D + j] += values[j];
    m->stores[device][row]++;
}

/* Whether every row of a chunk has been stored to twice: by the device's own product, and from the left. */
static bool tracker_has(const struct memories *m, int device, int chunk)
{
    const int64_t n = rows_of(m);
    for (int64_t row = chunk * n; row < (chunk + 1) * n; row++)
        if (m->stores[device][row] != 2) return false;
    return true;
}

/* The chunk's rows are stored where the address map says: the first chunk's in the next device's memory. */
static void multiply_chunk(struct memories *m, int device, int step, const double *X, const double *W, double *row)
{
    const int64_t n = rows_of(m), first = chunk_at(m, device, step) * n;
    const int at = step == 0 ? (device + 1) % m->sizes->devices : device;
    for (int64_t i = first; i < first + n; i++) {
        multiply_row(m->sizes, X, W, i, row);
        memory_add(m, at, i, row);
    }
    *(step == 0 ? &m->moves[at].sum_writes : &m->moves[at].results) += (uint64_t)m->chunk;
}

/* A complete chunk that is another device's is read once, and added to the next device's memory. */
static void send_on(struct memories *m, int device, int chunk)
{
    const int64_t n = rows_of(m), D = m->sizes->columns;
    const int right = (device + 1) % m->sizes->devices;
    for (int64_t i = chunk * n; i < (chunk + 1) * n; i++) memory_add(m, right, i, m->product[device] + i * D);
    m->moves[device].sum_reads += (uint64_t)m->chunk;
    m->moves[right].sum_writes += (uint64_t)m->chunk;
}

/* A chunk has been stored to: when it is complete, it goes on, and may be complete there. */
static void chunk_stored(struct memories *m, int device, int chunk)
{
    if (chunk == device || !tracker_has(m, device, chunk)) return;
    send_on(m, device, chunk);
    chunk_stored(m, (device + 1) % m->sizes->devices, chunk);
}

/* Devices multiply one after the other, as if the first were the fastest: only the tracker says when a chunk goes.
 * The row is scratch of the product: a register file, not memory. */
static enum error_code sum_at_memory(struct memories *m, const double *const *X, const double *const *W, double *Y,
                                     struct error *err)
{
    const int P = m->sizes->devices;
    double *const row = malloc((size_t)m->sizes->columns * sizeof *row);
    if (row == NULL) return fail(err, ERR_MEMORY, "no memory for a row of %lld elements", (long long)m->sizes->columns);
    for (int d = 0; d < P; d++)
        for (int step = 0; step < P; step++) {
            multiply_chunk(m, d, step, X[d], W[d], row);
            chunk_stored(m, step == 0 ? (d + 1) % P : d, chunk_at(m, d, step));
        }
    free(row);
    for (int d = 0; d < P; d++) {
        count_inputs(m, d);
        if (!tracker_has(m, d, d))
            return fail(err, ERR_CHECK, "at memory: chunk %d is not complete on its device", d);
        memcpy(Y + d * m->chunk, m->product[d] + d * m->chunk, (size_t)m->chunk * sizeof *Y);
    }
    return OK;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static void close_memories(struct memories *m)
{
    for (int d = 0; d < m->sizes->devices; d++) free(m->product[d]), free(m->came[d]), free(m->stores[d]);
}

static enum error_code open_memories(struct memories *m, struct error *err)
{
    bool ok = true;
    for (int d = 0; d < m->sizes->devices; d++) {
        m->moves[d] = (struct memory_moves){ 0 };
        m->product[d] = calloc((size_t)(m->sizes->rows * m->sizes->columns), sizeof **m->product);
        m->came[d] = calloc((size_t)m->chunk, sizeof **m->came);
        m->stores[d] = calloc((size_t)m->sizes->rows, sizeof **m->stores);
        ok = ok && m->product[d] && m->came[d] && m->stores[d];
    }
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for those of %d devices", m->sizes->devices);
}

enum error_code at_memory_run(const struct at_memory *sizes, bool at_memory, const double *const *X,
                              const double *const *W, double *Y, struct memory_moves *moves, struct error *err)
{
    struct memories m = { .sizes = sizes, .chunk = sizes->rows / sizes->devices * sizes->columns, .moves = moves };
    enum error_code e = open_memories(&m, err);
    for (int d = 0; d < sizes->devices && !e && !at_memory; d++) multiply_all(&m, d, X[d], W[d]);
    if (!e) e = at_memory ? sum_at_memory(&m, X, W, Y, err) : sum_apart(&m, Y, err);
    close_memories(&m);
    return e;
}

struct memory_moves at_memory_moves(const struct at_memory *sizes, bool at_memory)
{
    const uint64_t P = (uint64_t)sizes->devices, chunk = (uint64_t)(sizes->rows / sizes->devices * sizes->columns);
    const uint64_t inputs = (uint64_t)((sizes->rows + sizes->columns) * sizes->depth);
    if (!at_memory) return (struct memory_moves){ inputs, P * chunk, (2 * P - 1) * chunk, P * chunk };
    return (struct memory_moves){ inputs, (P - 1) * chunk, (P - 2) * chunk, (P - 1) * chunk };
}

static double moves_together(const struct at_memory *sizes, bool at_memory)
{
    const struct memory_moves m = at_memory_moves(sizes, at_memory);
    /* Around the ring of an all-gather a device reads and writes P-1 chunks. */
    const double gather = 2.0 * (sizes->devices - 1) * (double)(sizes->rows / sizes->devices * sizes->columns);
    return (double)(m.inputs + m.results + m.sum_reads + m.sum_writes) + gather;
}

double at_memory_saved(const struct at_memory *sizes)
{
    return 100 * (1 - moves_together(sizes, true) / moves_together(sizes, false));
}
