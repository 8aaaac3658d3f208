/* weights_packed.c -- makes numbers of GPTQ's and AWQ's packed integers.  weights.c and weights_others.c call.  Errors:
 * ERR_FORMAT of a tensor, ERR_FILE, ERR_MEMORY. */
#include "ref/model/weights_packed.h"
#include "ref/io/json.h"
#include "ref/numeric/tensor.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 32, AWQ_BITS = 4, AWQ_WORD = 8 };

/* ---- the config -------------------------------------------------------------------------------------------------- */

static const char *packed_text(const cJSON *codes, const char *key, const char *otherwise)
{
    const cJSON *const v = cJSON_GetObjectItemCaseSensitive(codes, key);
    return cJSON_IsString(v) ? v->valuestring : otherwise;
}

static double packed_number(const cJSON *codes, const char *key, double otherwise)
{
    const cJSON *const v = cJSON_GetObjectItemCaseSensitive(codes, key);
    return cJSON_IsNumber(v) ? v->valuedouble : cJSON_IsTrue(v) ? 1 : cJSON_IsFalse(v) ? 0 : otherwise;
}

static bool one_of(const char *word, const char *a, const char *b)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0;
}

bool packed_form_of(const cJSON *codes, struct packed_form *form, char *why, size_t size)
{
    const char *const method = packed_text(codes, "quant_method", ""),
               *const format = packed_text(codes, "checkpoint_format", "gptq"),
               *const version = packed_text(codes, "version", "gemm");
    const double bits = packed_number(codes, "bits", 4), group = packed_number(codes, "group_size", 128);
    const bool gptq = strcmp(method, "gptq") == 0, awq = strcmp(method, "awq") == 0;
    why[0] = '\0';
    if (!gptq && !awq) return false;
    if (!(bits == 4 || (gptq && (bits == 2 || bits == 3 || bits == 8))))
        snprintf(why, size, "bits %g", bits);
    else if (group != -1 && !(group >= 1 && group <= 1e9 && group == (double)(int64_t)group))
        snprintf(why, size, "group_size %g", group);
    else if (gptq && (!one_of(format, "gptq", "gptq_v2") || packed_number(codes, "is_marlin_format", 0) != 0))
        snprintf(why, size, "checkpoint_format \"%.20s\"", strcmp(format, "gptq") ? format : "marlin");
    else if (gptq && cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(codes, "dynamic")) > 0)
        snprintf(why, size, "dynamic, settings by layer");
    else if (awq && !one_of(version, "gemm", "GEMM"))
        snprintf(why, size, "version \"%.20s\"", version);
    *form = (struct packed_form){ .kind = gptq ? PACKED_GPTQ : PACKED_AWQ, .bits = (int)bits,
                                  .group = group == -1 ? 0 : (int64_t)group,
                                  .less_one = gptq && strcmp(format, "gptq") == 0,
                                  .even = gptq && packed_number(codes, "sym", 0) == 1 };
    return why[0] == '\0';
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static int64_t packed_groups(const struct packed_matrix *m)
{
    return m->form.group == 0 ? 1 : (m->K + m->form.group - 1) / m->form.group;
}

static enum error_code check_tensor(const struct packed_matrix *m, const struct packed_tensor *tensor,
                                    const char *what, int64_t rows, int64_t cols, struct error *err)
{
    const struct safetensors_entry *const e = tensor->entry;
    if (e == NULL)
        return fail(err, ERR_FORMAT, "%s: %s is there, but not its %s", printable_path(m->q.file->path).text,
                    printable(m->q.entry->name).text, what);
    const bool vector = cols == 0;
    if (e->ndim == (vector ? 1 : 2) && e->dim[0] == rows && (vector || e->dim[1] == cols)) return OK;
    return fail(err, ERR_FORMAT, "%s: %s must be %lld x %lld for %d bits, %lld inputs and %lld outputs",
                printable_path(tensor->file->path).text, printable(e->name).text, (long long)rows,
                (long long)(vector ? 1 : cols), m->form.bits, (long long)m->K, (long long)m->N);
}

static enum error_code check_matrix(const struct packed_matrix *m, struct error *err)
{
    const bool gptq = m->form.kind == PACKED_GPTQ;
    const int64_t words = m->N * m->form.bits / WORD, groups = packed_groups(m);
    if (m->N * m->form.bits % WORD != 0 || (gptq && m->K * m->form.bits % WORD != 0))
        return fail(err, ERR_FORMAT, "%s: %s: %lld x %lld integers of %d bits do not fill words",
                    printable_path(m->q.file->path).text, printable(m->q.entry->name).text, (long long)m->K,
                    (long long)m->N, m->form.bits);
    enum error_code e = gptq ? check_tensor(m, &m->q, "qweight", m->K * m->form.bits / WORD, m->N, err)
                             : check_tensor(m, &m->q, "qweight", m->K, words, err);
    if (!e) e = check_tensor(m, &m->zeros, "qzeros", groups, words, err);
    if (!e) e = check_tensor(m, &m->scales, "scales", groups, m->N, err);
    return e || m->index.entry == NULL ? e : check_tensor(m, &m->index, "g_idx", m->K, 0, err);
}

/* ---- integers ---------------------------------------------------------------------------------------------------- */

/* The words that hold numbers first .. end - 1 of a run of packed ones. */
struct word_range { int64_t first, count; };

static struct word_range packed_words(int64_t first, int64_t end, int bits)
{
    const int64_t from = first * bits / WORD;
    return (struct word_range){ from, (end * bits - 1) / WORD + 1 - from };
}

/* The number that begins at a bit; `apart` words of the run are apart in memory.  It may end in the next word. */
static int packed_at(const int32_t *word, int64_t apart, int64_t bit, int bits)
{
    const int shift = (int)(bit % WORD);
    const uint32_t *const w = (const uint32_t *)word + bit / WORD * apart;
    uint32_t value = w[0] >> shift;
    if (shift + bits > WORD) value |= w[apart] << (WORD - shift);
    return (int)(value & ((1u << bits) - 1));
}

/* The bit of a column within AWQ's word. */
static int awq_shift(int64_t column)
{
    static const int place[AWQ_WORD] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    return AWQ_BITS * place[column % AWQ_WORD];
}

/* A box has these words and factors of a matrix, and each of its inputs a group. */
struct packed_box {
    const struct packed_matrix *m;
    int64_t n, k, outputs, inputs;      /* the box */
    struct word_range down, along;      /* words of q that it has, down a column and along a row; zeros: along */
    int32_t *q, *zeros, *group;         /* [down.count, along.count], [groups, along.count], [inputs] */
    double *scale;                      /* [groups, outputs] */
};

static void box_free(struct packed_box *box)
{
    free(box->q), free(box->zeros), free(box->group), free(box->scale);
}

static enum error_code box_read_index(struct packed_box *box, struct error *err)
{
    const struct packed_matrix *const m = box->m;
    const int64_t groups = packed_groups(m), each = m->form.group;
    for (int64_t i = 0; i < box->inputs; i++) box->group[i] = each ? (int32_t)((box->k + i) / each) : 0;
    if (m->index.entry == NULL) return OK;
    enum error_code e = safetensors_read_box(m->index.file, m->index.entry, &box->k, &box->inputs, false, I32,
                                             box->group, err);
    for (int64_t i = 0; i < box->inputs && !e; i++)
        if (box->group[i] < 0 || box->group[i] >= groups)
            e = fail(err, ERR_FORMAT, "%s: %s: input %lld is of group %d; there are %lld",
                     printable_path(m->index.file->path).text, printable(m->index.entry->name).text,
                     (long long)(box->k + i), (int)box->group[i], (long long)groups);
    return e;
}

static enum error_code box_read(struct packed_box *box, struct error *err)
{
    const struct packed_matrix *const m = box->m;
    const int bits = m->form.bits;
    const bool gptq = m->form.kind == PACKED_GPTQ;
    const int64_t groups = packed_groups(m);
    const struct word_range inputs = packed_words(box->k, box->k + box->inputs, bits);
    box->along = packed_words(box->n, box->n + box->outputs, bits);
    box->down = gptq ? inputs : (struct word_range){ box->k, box->inputs };
    const struct word_range across = gptq ? (struct word_range){ box->n, box->outputs } : box->along;
    const int64_t q_start[2] = { box->down.first, across.first }, q_extent[2] = { box->down.count, across.count },
                  z_start[2] = { 0, box->along.first }, z_extent[2] = { groups, box->along.count },
                  s_start[2] = { 0, box->n }, s_extent[2] = { groups, box->outputs };
    box->q = malloc((size_t)(q_extent[0] * q_extent[1]) * sizeof *box->q);
    box->zeros = malloc((size_t)(groups * box->along.count) * sizeof *box->zeros);
    box->group = malloc((size_t)box->inputs * sizeof *box->group);
    box->scale = malloc((size_t)(groups * box->outputs) * sizeof *box->scale);
    if (!box->q || !box->zeros || !box->group || !box->scale)
        return fail(err, ERR_MEMORY, "no memory to read %s", printable(m->q.entry->name).text);
    enum error_code e = safetensors_read_box(m->q.file, m->q.entry, q_start, q_extent, false, I32, box->q, err);
    if (!e)
        e = safetensors_read_box(m->zeros.file, m->zeros.entry, z_start, z_extent, false, I32, box->zeros, err);
    if (!e)
        e = safetensors_read_box(m->scales.file, m->scales.entry, s_start, s_extent, false, F64, box->scale, err);
    return e ? e : box_read_index(box, err);
}

/* The integer of output n and input k, counted in the box. */
static int box_code(const struct packed_box *box, int64_t n, int64_t k)
{
    const int bits = box->m->form.bits;
    if (box->m->form.kind == PACKED_GPTQ)
        return packed_at(box->q + n, box->outputs, (box->k + k) * bits - box->down.first * WORD, bits);
    const int64_t column = box->n + n;
    const int32_t word = box->q[k * box->along.count + column / AWQ_WORD - box->along.first];
    return (int)((uint32_t)word >> awq_shift(column) & 15);
}

static int box_zero(const struct packed_box *box, int64_t n, int64_t group)
{
    const struct packed_form *const f = &box->m->form;
    const int32_t *const row = box->zeros + group * box->along.count;
    const int64_t column = box->n + n;
    if (f->kind == PACKED_AWQ)
        return (int)((uint32_t)row[column / AWQ_WORD - box->along.first] >> awq_shift(column) & 15);
    const int stored = packed_at(row, 1, column * f->bits - box->along.first * WORD, f->bits);
    return f->less_one ? (stored + 1) & ((1 << f->bits) - 1) : stored;
}

static enum error_code check_zeros(const struct packed_box *box, struct error *err)
{
    const struct packed_matrix *const m = box->m;
    const int half = 1 << (m->form.bits - 1);
    for (int64_t g = 0; g < packed_groups(m) && m->form.even; g++)
        for (int64_t n = 0; n < box->outputs; n++)
            if (box_zero(box, n, g) != half)
                return fail(err, ERR_FORMAT, "%s: %s: a zero point is %d; the config says sym, so that all are %d: is "
                            "checkpoint_format \"%s\" right?", printable_path(m->zeros.file->path).text,
                            printable(m->zeros.entry->name).text, box_zero(box, n, g), half,
                            m->form.less_one ? "gptq" : "gptq_v2");
    return OK;
}

enum error_code packed_read_box(const struct packed_matrix *matrix, const int64_t start[2], const int64_t extent[2],
                                enum dtype want, void *out, struct error *err)
{
    struct packed_box box = { .m = matrix, .n = start[0], .k = start[1], .outputs = extent[0], .inputs = extent[1] };
    const struct tensor to = tensor_2d(out, want, extent[0], extent[1]);
    enum error_code e = check_matrix(matrix, err);
    if (!e) e = box_read(&box, err);
    if (!e) e = check_zeros(&box, err);
    for (int64_t n = 0; n < box.outputs && !e; n++)
        for (int64_t k = 0; k < box.inputs; k++)
            tensor_set(to, n * box.inputs + k, (box_code(&box, n, k) - box_zero(&box, n, box.group[k]))
                       * box.scale[box.group[k] * box.outputs + n]);
    box_free(&box);
    return e;
}
