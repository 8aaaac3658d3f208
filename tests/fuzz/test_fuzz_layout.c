/* A --map from anybody (emulated_devices/check/dump/actual.h): what is accepted cuts tensors into parts that lie
 * inside them.
 * tier: check
 *
 * Four files have, of the matrix "act/a" of 6 x 8, the numbers row * 8 + column, as a mesh of dp=2, tp=2 cuts it, and
 * it whole as "act/w".  Where parts have the sizes of "act/a"'s, the map and the files fit, and every number must be
 * where the map says.
 */
#include "emulated_devices/check/dump/assembly.h"
#include "tests/fuzz/fuzz.h"

enum { ROWS = 6, COLS = 8, RANKS = 4 };

static size_t put_numbers(uint8_t *to, int row, int rows, int col, int cols)
{
    size_t n = 0;
    for (int r = row; r < row + rows; r++)
        for (int c = col; c < col + cols; c++) {
            const float x = (float)(r * COLS + c);
            memcpy(to + n, &x, sizeof x);
            n += sizeof x;
        }
    return n;
}

static void make_rank(int rank)
{
    enum { A = ROWS / 2 * (COLS / 2) * 4, W = ROWS * COLS * 4 };
    char header[400], name[32];
    uint8_t bytes[8 + sizeof header + A + W];
    const int n = snprintf(header, sizeof header,
                           "{\"act/a\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[0,%d]},"
                           "\"act/w\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]}}",
                           ROWS / 2, COLS / 2, A, ROWS, COLS, A, A + W);
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(bytes + 8, header, (size_t)n);
    size_t at = 8 + (size_t)n;
    at += put_numbers(bytes + at, rank / 2 * (ROWS / 2), ROWS / 2, rank % 2 * (COLS / 2), COLS / 2);
    at += put_numbers(bytes + at, 0, ROWS, 0, COLS);
    snprintf(name, sizeof name, "rank%d.safetensors", rank);
    as_file_named(name, bytes, at);
}

static void check_spans(const struct intervals *s, int64_t dim)
{
    must(s->count >= 0 && s->count <= s->room, "%d intervals in a room of %d", s->count, s->room);
    for (int i = 0; i < s->count; i++)
        must(s->at[i].first >= 0 && s->at[i].count >= 0 && s->at[i].first <= dim - s->at[i].count,
             "%lld from %lld of %lld", (long long)s->at[i].count, (long long)s->at[i].first, (long long)dim);
}

struct used { int64_t count, elements; double sum; };

static void use_run(void *context, int64_t at, int64_t length, const double *values)
{
    struct used *u = context;
    must(at >= 0 && length > 0 && at <= u->elements - length, "%lld elements from %lld", (long long)length,
         (long long)at);
    for (int64_t i = 0; i < length; i++) u->sum += values[i];
    u->count += length;
}

/* What the checker does with a piece: every number of every part, and where it belongs. */
static void use(const struct actual_piece *p, const int64_t dim[2])
{
    struct used u = { .elements = dim[0] * dim[1] };
    struct error err = { 0 };
    int64_t count = 0;
    for (int i = 0; i < p->parts; i++) {
        const struct part *part = &p->part[i];
        must(part->dim[0] * part->dim[1] == dim[0] * dim[1], "a part of %lld x %lld", (long long)part->dim[0],
             (long long)part->dim[1]);
        check_spans(&part->rows, part->dim[0]);
        check_spans(&part->cols, part->dim[1]);
        count += part_count(part);
    }
    must(count == p->count, "parts have %lld elements, the piece %lld", (long long)count, (long long)p->count);
    must(actual_read(p, use_run, &u, &err) == OK, "%s", err.text);
    must(u.count == p->count, "%lld of %lld elements were read", (long long)u.count, (long long)p->count);
}

static void read_all(const struct actual *a, const char *ours)
{
    static const int64_t whole[2] = { ROWS, COLS };
    char name[ACTUAL_NAME];
    struct actual_pieces pieces;
    struct assembly all;
    struct error err = { 0 };
    double numbers[ROWS * COLS];
    actual_name(a, ours, name);
    must(strlen(name) < sizeof name, "a name without an end");
    if (actual_find(a, ours, whole, &pieces, &err) == OK) {
        for (int i = 0; i < pieces.count; i++) use(&pieces.all[i], whole);
        actual_pieces_free(&pieces);
    } else must(err.text[0] != '\0', "refused without a word");
    if (assembly_make(&all, a, ours, whole, numbers, NULL, &err) == OK)
        must(all.missing >= 0 && all.missing <= ROWS * COLS, "%lld are missing", (long long)all.missing);
}

static void try(const uint8_t *data, size_t size)
{
    static bool made;
    struct actual a;
    struct error err = { 0 };
    for (int r = 0; r < RANKS && !made; r++) make_rank(r);
    made = true;
    if (actual_open(&a, fuzz_place(), as_file_named("map.json", data, size), &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    must(a.ranks >= 1 && a.ranks == a.mesh.devices, "%d ranks on a mesh of %d", a.ranks, a.mesh.devices);
    read_all(&a, "act/a");
    read_all(&a, "act/w");
    read_all(&a, "grad/h.0.attn.qkv.weight");
    actual_close(&a);
}

FUZZ_TARGET("layout")
