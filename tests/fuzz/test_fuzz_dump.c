/* What the files of a dump say of themselves (docs/checking/dumps.md): what is accepted cuts tensors into pieces that
 * lie inside them, and nothing is put together twice.
 * tier: check
 *
 * The input is the metadata of the first of two files, a line for each: KEY=TEXT.  The second is rank 1 of two along
 * dp.  Both have pieces of the matrix "act/a" of 6 x 8, and all of "act/w" and of the transpose "act/t"; and a weight
 * "start/w.weight" with A and B of an adapter "x", which the metadata may tell of.
 */
#include "emulated_devices/check/dump/assembly.h"
#include "tests/fuzz/fuzz.h"

enum { ROWS = 6, COLS = 8, PAIRS = 32 };

/* Of each tensor name, format, shape and bytes; all numbers are 0. */
static const struct { const char *name, *dtype; int dims, dim[3], bytes; } tensors[] = {
    { "act/a", "F32", 2, { 3, 8 }, 3 * 8 * 4 },
    { "act/a#1", "F32", 2, { 1, 8 }, 8 * 4 },
    { "act/w", "F64", 3, { 2, 3, 8 }, ROWS * COLS * 8 },
    { "act/t", "BF16", 2, { COLS, ROWS }, ROWS * COLS * 2 },
    { "start/w.weight", "F32", 2, { ROWS, COLS }, ROWS * COLS * 4 },
    { "start/x.lora_A.weight", "F32", 2, { 2, COLS }, 2 * COLS * 4 },
    { "start/x.lora_B.weight", "F32", 2, { ROWS, 2 }, ROWS * 2 * 4 },
};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static cJSON *header_of(const struct safetensors_pair *pair, int pairs)
{
    cJSON *root = cJSON_CreateObject(), *about = cJSON_AddObjectToObject(root, "__metadata__");
    int at = 0;
    for (int i = 0; i < pairs; i++) cJSON_AddStringToObject(about, pair[i].key, pair[i].value);
    for (int i = 0; i < TENSORS; i++) {
        cJSON *t = cJSON_AddObjectToObject(root, tensors[i].name);
        const int offset[] = { at, at + tensors[i].bytes };
        at += tensors[i].bytes;
        cJSON_AddStringToObject(t, "dtype", tensors[i].dtype);
        cJSON_AddItemToObject(t, "shape", cJSON_CreateIntArray(tensors[i].dim, tensors[i].dims));
        cJSON_AddItemToObject(t, "data_offsets", cJSON_CreateIntArray(offset, 2));
    }
    return root;
}

static void make_file(const char *name, const struct safetensors_pair *pair, int pairs)
{
    enum { DATA = 3 * 8 * 4 + 8 * 4 + ROWS * COLS * (8 + 2 + 4) + 2 * (ROWS + COLS) * 4 };
    cJSON *root = header_of(pair, pairs);
    char *text = cJSON_PrintUnformatted(root);
    const size_t n = strlen(text);
    uint8_t *bytes = calloc(8 + n + DATA, 1);
    must(bytes != NULL, "no memory");
    for (int i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(bytes + 8, text, n);
    as_file_named(name, bytes, 8 + n + DATA);
    free(bytes), free(text);
    cJSON_Delete(root);
}

static int read_pairs(char *text, struct safetensors_pair *pair)
{
    int n = 0;
    for (char *line = text, *end; line && *line && n < PAIRS; line = end) {
        char *value = strchr(line, '=');
        end = strchr(line, '\n');
        if (end) *end++ = '\0';
        if (value == NULL || (end && value > end)) continue;
        *value = '\0';
        pair[n++] = (struct safetensors_pair){ line, value + 1 };
    }
    return n;
}

static void count_run(void *context, int64_t at, int64_t length, const double *values)
{
    int64_t *count = context;
    must(at >= 0 && length > 0 && at <= ROWS * COLS - length, "%lld elements from %lld", (long long)length,
         (long long)at);
    must(values[0] == 0 && values[length - 1] == 0, "numbers of no tensor");
    *count += length;
}

static void use(const struct actual *a, const char *ours)
{
    static const int64_t dim[2] = { ROWS, COLS };
    double whole[ROWS * COLS];
    struct actual_pieces pieces;
    struct assembly all;
    struct error err = { 0 };
    if (actual_find(a, ours, dim, &pieces, &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    for (int i = 0; i < pieces.count; i++) {
        int64_t count = 0;
        must(actual_read(&pieces.all[i], count_run, &count, &err) == OK, "%s", err.text);
        must(count == pieces.all[i].count, "%lld of %lld elements", (long long)count, (long long)pieces.all[i].count);
    }
    actual_pieces_free(&pieces);
    for (int i = 0; i < ROWS * COLS; i++) whole[i] = 1;
    if (assembly_make(&all, a, ours, dim, whole, NULL, &err) != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    int64_t missing = 0;
    for (int i = 0; i < ROWS * COLS; i++) missing += whole[i] != 0;
    must(missing == all.missing, "%lld elements are missing, not %lld", (long long)missing, (long long)all.missing);
}

/* Adapters and declared patterns that were accepted can be asked for. */
static void use_adapters(const struct actual *a)
{
    static const int64_t dim[2] = { ROWS, COLS };
    char pattern[ACTUAL_OUR_NAME];
    double whole[ROWS * COLS];
    struct assembly all;
    struct error err = { 0 };
    for (int i = 0; actual_declared(a, i, pattern); i++) must(pattern[0] != '\0', "an empty pattern");
    actual_declares(a, "act/a");
    for (int i = 0; i < a->adapters.count; i++) {
        const struct adapter *const one = &a->adapters.all[i];
        must(one->rank > 0 && one->rows.first >= 0 && one->rows.count > 0, "adapter %s of no rows", one->name);
    }
    if (assembly_make(&all, a, "start/w.weight", dim, whole, NULL, &err) != OK)
        must(err.text[0] != '\0', "refused without a word");
    else for (int i = 0; i < ROWS * COLS && all.missing == 0; i++)
        must(whole[i] == 0 || !(whole[i] == whole[i]), "%g of zeros", whole[i]);
}

static void try(const uint8_t *data, size_t size)
{
    static const struct safetensors_pair second[] = {
        { "orrery_dump", "1" }, { "rank", "1" }, { "mesh", "{\"dp\": 2}" },
        { "layout", "{\"act/a\": {\"rows\": [[3, 3]]}, \"act/a#1\": {\"rows\": [[0, 1]]},"
                    " \"act/t\": {\"transposed\": true}}" } };
    static bool made;
    struct safetensors_pair pair[PAIRS];
    struct actual a;
    struct error err = { 0 };
    char *text = as_text(data, size);
    make_file("0.safetensors", pair, read_pairs(text, pair));
    if (!made) make_file("1.safetensors", second, 4);
    made = true;
    if (actual_open(&a, fuzz_place(), NULL, &err) != OK) must(err.text[0] != '\0', "refused without a word");
    else {
        must(a.ranks == a.mesh.devices && (a.ranks == 2 || !a.dump), "%d ranks", a.ranks);
        use(&a, "act/a"), use(&a, "act/w"), use(&a, "act/t"), use(&a, "act/none");
        use_adapters(&a);
        actual_close(&a);
    }
    free(text);
}

FUZZ_TARGET("dump")
