#include "emulated_devices/schemes/sbp/graph_file.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, MOST_ELEMENTS_BITS = 36 };

/* Operations by the names that a file has for them.  shapes: letters of the operands, then of what is made; n rows, and
 * 1 and 2 stand for one dimension or more. */
struct known { const char *name, *shapes; const struct sbp_operator *operator; };
static const struct known known[] = {
    { "linear", "n2,12->n1", &sbp_linear },         { "linear_dx", "n1,12->n2", &sbp_linear_dx },
    { "linear_dw", "n1,n2->12", &sbp_linear_dw },   { "copy", "n1->n1", &sbp_copy },
    { "add", "n1,n1->n1", &sbp_add },               { "add_bias", "n1,1->n1", &sbp_add_bias },
    { "bias_dw", "n1->1", &sbp_bias_dw },           { "gelu", "n1->n1", &sbp_gelu },
    { "gelu_dx", "n1,n1->n1", &sbp_gelu_dx },       { "swiglu", "nTf->nf", &sbp_swiglu },
    { "swiglu_dx", "nf,nTf->nTf", &sbp_swiglu_dx }, { "geglu", "nTf->nf", &sbp_geglu },
    { "geglu_dx", "nf,nTf->nTf", &sbp_geglu_dx },   { "norm", "nD,WD->nD", &sbp_norm },
    { "norm_dx", "nD,nD,WD->nD", &sbp_norm_dx },    { "norm_dw", "nD,nD,WD->WD", &sbp_norm_dw },
};
enum { KNOWN = sizeof known / sizeof *known, MOST_WORDS = 8 };

struct reader {
    struct sbp_graph *graph;
    const struct sbp_mesh *mesh;
    const char *file;
    int line;
    bool pins_only;
    char *word[MOST_WORDS], *rest;      /* rest: of the line after the second word */
    int words;
    struct error *err;
};

__attribute__((format(printf, 2, 3))) static enum error_code bad(struct reader *r, const char *format, ...)
{
    char text[240];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return fail(r->err, ERR_FORMAT, "%s:%d: %s", printable_path(r->file).text, r->line, text);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static bool is_name(const char *s)
{
    const size_t n = strlen(s);
    return n > 0 && n < SBP_NAME && (isalpha((unsigned char)*s) || *s == '_') &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == n;
}

static enum error_code add_tensor(struct reader *r, const char *name, struct shape shape)
{
    int64_t count = 1;
    if (!is_name(name))
        return bad(r, "%s: must be a name of letters, digits, . and _, shorter than %d", printable(name).text,
                   SBP_NAME);
    if (graph_find(r->graph, name) >= 0) return bad(r, "%s is there already", name);
    for (int d = 0; d < shape.ndim; d++) {
        if (shape.dim[d] > ((int64_t)1 << MOST_ELEMENTS_BITS) / count)
            return bad(r, "%s has more than 2^%d elements", name, MOST_ELEMENTS_BITS);
        count *= shape.dim[d];
    }
    graph_tensor(r->graph, name, shape, -1);
    return r->graph->full ? bad(r, "the graph has more than %d tensors", SBP_MOST_TENSORS) : OK;
}

/* "64", and for rows also "8*16": multiples of 16 stay together. */
static bool read_size(const char *text, bool rows, int64_t *size, int64_t *granule)
{
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    *size = strtoll(text, &end, 10), *granule = 1;
    if (*end == '*' && rows && isdigit((unsigned char)end[1])) {
        *granule = strtoll(end + 1, &end, 10);
        if (*granule > 1 << 20 || *size > 1 << 20) return false;
        *size *= *granule;
    }
    return *end == '\0' && *size >= 1 && *size <= (int64_t)1 << MOST_ELEMENTS_BITS && *granule >= 1;
}

static enum error_code read_tensor(struct reader *r)
{
    struct shape s = { .ndim = r->words - 2, .granule = 1 };
    if (s.ndim < 1 || s.ndim > TENSOR_MAX_DIMS)
        return bad(r, "a tensor has a name and 1 to %d sizes, such as: tensor x 8*16 64", TENSOR_MAX_DIMS);
    for (int d = 0; d < s.ndim; d++) {
        int64_t granule;
        if (!read_size(r->word[2 + d], d == 0, &s.dim[d], &granule))
            return bad(r, "%s: must be a size%s", printable(r->word[2 + d]).text, d == 0 ? ", or like 8*16" : "");
        if (d == 0) s.granule = granule;
    }
    return add_tensor(r, r->word[1], s);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* What the letters of an operation stand for; those of 1 and 2 are one dimension or more. */
struct letters {
    char group[2][TENSOR_MAX_DIMS + 1];
    int64_t size[128], granule;
    char text[SBP_LETTERS];
    size_t used;
};

static void put(struct letters *l, char c)
{
    if (l->used < sizeof l->text - 1) l->text[l->used++] = c, l->text[l->used] = '\0';
}

/* A group that is met for the first time has all dimensions that the operand's other letters leave. */
static bool set_group(struct letters *l, int which, int dims)
{
    static const char names[2][TENSOR_MAX_DIMS + 1] = { "fghi", "dcba" };
    if (dims < 1 || dims > TENSOR_MAX_DIMS) return false;
    memcpy(l->group[which], names[which], (size_t)dims);
    return true;
}

/* The letters of one operand, as many as it has dimensions. */
static bool expand(struct letters *l, const char *shapes, size_t n, int ndim)
{
    int left = ndim;
    for (size_t i = 0; i < n; i++) {
        const int which = shapes[i] - '1';
        left -= which == 0 || which == 1 ? (int)strlen(l->group[which]) : 1;
    }
    for (size_t i = 0; i < n; i++) {
        const int which = shapes[i] - '1';
        if (which != 0 && which != 1) {
            put(l, shapes[i]);
            continue;
        }
        if (l->group[which][0] == '\0') {
            if (!set_group(l, which, left)) return false;
            left = 0;
        }
        for (const char *c = l->group[which]; *c; c++) put(l, *c);
    }
    return left == 0;
}

/* Give the letters from `first` on the sizes of a tensor.  @return the dimension that disagrees; -1: none does. */
static int take_sizes(struct letters *l, size_t first, const struct sbp_tensor *t)
{
    for (int d = 0; d < t->shape.ndim; d++) {
        int64_t *const size = &l->size[(unsigned char)l->text[first + (size_t)d]];
        if (*size && *size != t->shape.dim[d]) return d;
        *size = t->shape.dim[d];
        if (l->text[first + (size_t)d] == 'n' && t->shape.granule > l->granule) l->granule = t->shape.granule;
    }
    return -1;
}

static enum error_code read_operands(struct reader *r, const struct known *k, struct letters *l, int in[])
{
    const char *shapes = k->shapes;
    for (int i = 0; i + 3 < r->words; i++, shapes++) {
        const size_t n = strcspn(shapes, ",-"), first = l->used;
        in[i] = graph_find(r->graph, r->word[3 + i]);
        if (in[i] < 0) return bad(r, "%s: there is no such tensor yet", printable(r->word[3 + i]).text);
        const struct sbp_tensor *t = &r->graph->tensor[in[i]];
        if (!expand(l, shapes, n, t->shape.ndim))
            return bad(r, "%s of %d dimensions cannot be operand %d of %s", t->name, t->shape.ndim, i + 1, k->name);
        const int off = take_sizes(l, first, t);
        if (off >= 0)
            return bad(r, "%s has %lld in dimension %d, where another operand of %s has %lld", t->name,
                       (long long)t->shape.dim[off], off, k->name,
                       (long long)l->size[(unsigned char)l->text[first + (size_t)off]]);
        shapes += n;
        put(l, ',');
    }
    l->text[--l->used] = '\0';
    return OK;
}

/* A gate stands beside what is gated; a norm has w and b, or w alone, and all norms of a graph are alike. */
static enum error_code check_fixed(struct reader *r, const struct known *k, const struct letters *l)
{
    const int64_t gates = l->size['T'], rows = l->size['W'];
    struct model_config *const m = &r->graph->model;
    if (gates && gates != 2) return bad(r, "%s takes [rows, 2, columns], not %lld", k->name, (long long)gates);
    if (!rows) return OK;
    if (rows != 1 && rows != 2)
        return bad(r, "%s takes parameters of [2, columns], w and b, or of [1, columns] for an rmsnorm", k->name);
    if (m->eps > 0 && (m->norm == NORM_RMS) != (rows == 1)) return bad(r, "all norms of a graph have b, or none has");
    m->norm = rows == 1 ? NORM_RMS : NORM_LAYER, m->eps = 1e-5;
    return OK;
}

static enum error_code read_operation(struct reader *r)
{
    const struct known *k = known;
    struct letters l = { .granule = 1 };
    int in[SBP_OPERANDS], inputs = 1;
    while (k < known + KNOWN && strcmp(k->name, r->word[2]) != 0) k++;
    if (k == known + KNOWN)
        return bad(r, "%s: is no operation; docs/parallelism/signatures.md has them", printable(r->word[2]).text);
    for (const char *c = k->shapes; *c; c++) inputs += *c == ',';
    if (r->words - 3 != inputs)
        return bad(r, "%s has %d operand%s, not %d", k->name, inputs, inputs == 1 ? "" : "s", r->words - 3);
    enum error_code e = read_operands(r, k, &l, in);
    if (!e) e = check_fixed(r, k, &l);
    if (e) return e;
    const char *out = strchr(k->shapes, '>') + 1;
    struct shape s = { .granule = *out == 'n' ? l.granule : 1 };
    put(&l, '-'), put(&l, '>');
    const size_t first = l.used;
    for (; *out; out++) {
        const char one[2] = { *out }, *group = *out == '1' || *out == '2' ? l.group[*out - '1'] : one;
        for (; *group; group++) put(&l, *group);
    }
    s.ndim = (int)(l.used - first);
    if (s.ndim > TENSOR_MAX_DIMS || l.used == sizeof l.text - 1)
        return bad(r, "%s has more dimensions than %d", r->word[0], TENSOR_MAX_DIMS);
    for (int d = 0; d < s.ndim; d++) s.dim[d] = l.size[(unsigned char)l.text[first + (size_t)d]];
    e = add_tensor(r, r->word[0], s);
    if (e) return e;
    graph_op(r->graph, k->operator, l.text, r->graph->tensors - 1, in);
    return r->graph->full ? bad(r, "the graph has more than %d operations", SBP_MOST_OPS) : OK;
}

/* ---- how tensors lie --------------------------------------------------------------------------------------------- */

static enum error_code read_pin(struct reader *r)
{
    struct signature s;
    struct error why = { 0 };
    if (r->words < 3) return bad(r, "a pin has a tensor and a signature, such as: pin x S(0)");
    if (graph_find(r->graph, r->word[1]) < 0) return bad(r, "%s: there is no such tensor", printable(r->word[1]).text);
    enum error_code e = signature_parse(r->mesh, r->rest, &s, &why);
    if (!e) e = graph_pin(r->graph, r->mesh, r->word[1], s, &why);
    return e ? bad(r, "%s", why.text) : OK;
}

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) == 0;
}

static enum error_code read_like(struct reader *r)
{
    if (r->words != 3) return bad(r, "like has two tensors, such as: like dw w");
    const int t = graph_find(r->graph, r->word[1]), other = graph_find(r->graph, r->word[2]);
    if (t < 0 || other < 0)
        return bad(r, "%s: there is no such tensor", printable(r->word[t < 0 ? 1 : 2]).text);
    for (int at = other; at >= 0; at = r->graph->tensor[at].like)
        if (at == t) return bad(r, "%s is like itself", r->word[1]);
    if (!same_shape(&r->graph->tensor[t].shape, &r->graph->tensor[other].shape))
        return bad(r, "%s and %s have different shapes", r->word[1], r->word[2]);
    r->graph->tensor[t].like = other;
    return OK;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static void split(struct reader *r, char *line)
{
    line[strcspn(line, "#")] = '\0';
    r->words = 0, r->rest = line + strlen(line);
    for (char *at = line + strspn(line, " \t\r"); *at && r->words < MOST_WORDS;) {
        if (r->words == 2) r->rest = at;
        r->word[r->words++] = at;
        at += strcspn(at, " \t\r");
        if (r->words == 3 && strcmp(r->word[0], "pin") == 0) {          /* a signature has spaces */
            for (char *end = at + strlen(at); end > r->rest && isspace((unsigned char)end[-1]);) *--end = '\0';
            return;
        }
        if (*at) *at++ = '\0';
        at += strspn(at, " \t\r");
    }
}

static enum error_code read_line(struct reader *r)
{
    if (r->words == 0) return OK;
    if (strcmp(r->word[0], "pin") == 0) return read_pin(r);
    if (strcmp(r->word[0], "like") == 0) return read_like(r);
    if (r->pins_only) return bad(r, "%s: beside a graph only pin and like can stand", printable(r->word[0]).text);
    if (strcmp(r->word[0], "tensor") == 0) return read_tensor(r);
    if (r->words >= 3 && strcmp(r->word[1], "=") == 0) return read_operation(r);
    return bad(r, "%s: a line is: tensor NAME SIZES, NAME = OPERATION OPERANDS, pin or like",
               printable(r->word[0]).text);
}

enum error_code graph_parse(struct sbp_graph *graph, const struct sbp_mesh *m, char *text, const char *file,
                            struct error *err)
{
    struct reader r = { .graph = graph, .mesh = m, .file = file, .pins_only = graph->tensors > 0, .err = err };
    enum error_code e = OK;
    for (char *line = text, *next; line && !e; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        r.line++;
        split(&r, line);
        e = read_line(&r);
    }
    return !e && graph->ops == 0 ? bad(&r, "there is no operation") : e;
}

enum error_code graph_read(struct sbp_graph *graph, const struct sbp_mesh *m, const char *file, struct error *err)
{
    char *text;
    size_t bytes;
    enum error_code e = file_read_all(file, MOST_BYTES, &text, &bytes, err);
    if (e) return e;
    e = strlen(text) == bytes
            ? graph_parse(graph, m, text, file, err)
            : fail(err, ERR_FORMAT, "%s: is not text: it has a byte 0", printable_path(file).text);
    free(text);
    return e;
}

enum error_code graph_write_pins(const struct sbp_graph *g, const struct assignment *a, const char *file,
                                 struct error *err)
{
    enum { MOST_LINE = SBP_NAME + SBP_TEXT + 8 };
    char *text = malloc((SBP_MOST_TENSORS + 1) * MOST_LINE), signature[SBP_TEXT];
    size_t used = 0;
    if (text == NULL) return fail(err, ERR_MEMORY, "no memory for the signatures of %d tensors", g->tensors);
    for (int t = 0; t < g->tensors; t++)
        used += (size_t)snprintf(text + used, MOST_LINE, "pin %s %s\n", g->tensor[t].name,
                                 signature_text(&a->mesh, a->tensor[t], signature));
    const enum error_code e = file_write_all(file, text, used, err);
    free(text);
    return e;
}
