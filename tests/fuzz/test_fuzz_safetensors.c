/* Safetensors from anybody: opened or refused; every box of what was opened is read, or refused, within its bounds. */
#include "ref/io/safetensors.h"
#include "ref/io/safetensors_box.h"
#include "tests/fuzz/fuzz.h"

enum { MOST_ELEMENTS = 1 << 9 };

static int64_t elements(int ndim, const int64_t *extent)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++) n *= extent[i];
    return n;
}

/* What the box's runs touch, in the file and in memory, stays inside both, and is all of it once. */
static void walk(const struct safetensors_entry *e, const int64_t *start, const int64_t *extent, bool transposed)
{
    struct box b;
    struct error err;
    if (box_open(&b, "fuzz", e, start, extent, transposed, &err) != OK) return;
    const int64_t want = extent ? elements(e->ndim, extent) : e->count;
    int64_t seen = 0;
    while (box_next(&b)) {
        const struct run *r = &b.run;
        must(r->count > 0 && r->file_at >= 0 && r->file_at + r->count <= e->count, "%s: a run outside the tensor",
             e->name);
        must(r->memory_at >= 0 && r->memory_at + (r->count - 1) * r->stride < want, "%s: a run outside the box",
             e->name);
        seen += r->count;
    }
    must(seen == want, "%s: runs have %lld elements, the box %lld", e->name, (long long)seen, (long long)want);
}

static void read_box(const struct safetensors *f, const struct safetensors_entry *e, const int64_t *start,
                     const int64_t *extent, bool transposed)
{
    static const enum dtype wants[] = { F32, F64, I32, I64, U8 };
    struct error err;
    for (int i = 0; i < 5; i++) {
        const int64_t n = extent ? elements(e->ndim, extent) : e->count;
        void *out = malloc((size_t)n * dtype_size(wants[i]) + 1);
        must(out != NULL, "no memory for %lld elements", (long long)n);
        if (safetensors_read_box(f, e, start, extent, transposed, wants[i], out, &err) != OK)
            must(err.text[0] != '\0', "refused without a word");
        free(out);
    }
}

/* The middle of the tensor, and a box that the input's last bytes choose, inside or not. */
static void read_entry(const struct safetensors *f, const struct safetensors_entry *e, const uint8_t *data, size_t size)
{
    int64_t start[SAFETENSORS_MAX_DIMS], extent[SAFETENSORS_MAX_DIMS], chosen[SAFETENSORS_MAX_DIMS];
    must(e->ndim >= 0 && e->ndim <= SAFETENSORS_MAX_DIMS && e->count >= 0 && e->offset >= 8 && e->bytes >= 0,
         "%s: impossible", e->name);
    must(safetensors_find(f, e->name) != NULL, "%s: not found by its name", e->name);
    for (int i = 0; i < e->ndim; i++) {
        start[i] = e->dim[i] / 3, extent[i] = e->dim[i] - start[i];
        chosen[i] = size > 0 ? (int8_t)data[size - 1 - (size_t)i % size] : 0;
    }
    if (e->count > MOST_ELEMENTS) return;
    for (int transposed = 0; transposed < 2; transposed++) {
        if (transposed && e->ndim == 2) {
            const int64_t s = start[0], x = extent[0];
            start[0] = start[1], start[1] = s, extent[0] = extent[1], extent[1] = x;
        }
        walk(e, start, extent, transposed);
        walk(e, NULL, NULL, transposed);
        walk(e, start, chosen, transposed);
        walk(e, chosen, extent, transposed);
        read_box(f, e, start, extent, transposed);
        read_box(f, e, NULL, NULL, transposed);
    }
}

static void try(const uint8_t *data, size_t size)
{
    struct safetensors f;
    struct error err = { 0 };
    if (safetensors_open(&f, as_file(data, size), &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    for (int i = 0; i < f.count; i++) read_entry(&f, &f.entry[i], data, size);
    for (int i = 0; i < f.metadata_count; i++)
        must(safetensors_metadata(&f, f.metadata[i].key) != NULL, "metadata %s not found by its key",
             f.metadata[i].key);
    safetensors_close(&f);
}

FUZZ_TARGET("safetensors")
