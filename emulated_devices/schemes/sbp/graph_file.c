/* graph_file.c -- graphs and pins as text: lines are read into a graph, pins of an assignment are written.
 *
 * cli/show/sbp.c calls graph_read and graph_write_pins.  A file is not trusted: every name, size and shape is checked,
 * and a mistake is ERR_FORMAT with its line.  A tensor of more than 2^36 elements is refused, and so is a text of more
 * than 1 MiB.  Without memory the code is ERR_MEMORY.
 */
#include "emulated_devices/schemes/sbp/graph_file.h"
#include "ref/io/output.h"
#include "ref/model/kinds.h"
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

/* Report what is wrong in the line at hand.  @return ERR_FORMAT. */
__attribute__((format(printf, 2, 3))) static enum error_code graph_file_bad(struct reader *reader,
                                                                            const char *format, ...)
{
    char text[240];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return fail(reader->err, ERR_FORMAT, "%s:%d: %s", printable_path(reader->file).text, reader->line, text);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Whether a word can be the name of a tensor. */
static bool is_name(const char *s)
{
    const size_t n = strlen(s);
    return n > 0 && n < SBP_NAME && (isalpha((unsigned char)*s) || *s == '_') &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == n;
}

/* Add a tensor that a line declares or makes, if its name is new and its size allowed. */
static enum error_code add_tensor(struct reader *reader, const char *name, struct shape shape)
{
    int64_t count = 1;
    if (!is_name(name))
        return graph_file_bad(reader, "%s: must be a name of letters, digits, . and _, shorter than %d",
                              printable(name).text, SBP_NAME);
    if (graph_find(reader->graph, name) >= 0) return graph_file_bad(reader, "%s is there already", name);
    for (int d = 0; d < shape.ndim; d++) {
        /* The division keeps the product from overflowing. */
        if (shape.dim[d] > ((int64_t)1 << MOST_ELEMENTS_BITS) / count)
            return graph_file_bad(reader, "%s has more than 2^%d elements", name, MOST_ELEMENTS_BITS);
        count *= shape.dim[d];
    }
    graph_tensor(reader->graph, name, shape, -1);
    return reader->graph->full ? graph_file_bad(reader, "the graph has more than %d tensors", SBP_MOST_TENSORS) : OK;
}

/* "64", and for rows also "8*16": multiples of 16 stay together. */
static bool read_size(const char *text, bool rows, int64_t *size, int64_t *granule)
{
    char *end;
    if (!isdigit((unsigned char)*text)) return false;
    *size = strtoll(text, &end, 10), *granule = 1;
    if (*end == '*' && rows && isdigit((unsigned char)end[1])) {
        *granule = strtoll(end + 1, &end, 10);
        /* Both factors are small, so their product does not overflow. */
        if (*granule > 1 << 20 || *size > 1 << 20) return false;
        *size *= *granule;
    }
    return *end == '\0' && *size >= 1 && *size <= (int64_t)1 << MOST_ELEMENTS_BITS && *granule >= 1;
}

/* Read the line "tensor NAME SIZES": only the first size may have a granule. */
static enum error_code read_tensor(struct reader *reader)
{
    struct shape s = { .ndim = reader->words - 2, .granule = 1 };
    if (s.ndim < 1 || s.ndim > TENSOR_MAX_DIMS)
        return graph_file_bad(reader, "a tensor has a name and 1 to %d sizes, such as: tensor x 8*16 64",
                              TENSOR_MAX_DIMS);
    for (int d = 0; d < s.ndim; d++) {
        int64_t granule;
        if (!read_size(reader->word[2 + d], d == 0, &s.dim[d], &granule))
            return graph_file_bad(reader, "%s: must be a size%s", printable(reader->word[2 + d]).text,
                                  d == 0 ? ", or like 8*16" : "");
        if (d == 0) s.granule = granule;
    }
    return add_tensor(reader, reader->word[1], s);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* A line's operation has these letters so far, and the sizes they stand for.  Letters 1 and 2 of `known` are a group:
 * one dimension or more. */
struct letters {
    char group[2][TENSOR_MAX_DIMS + 1];
    int64_t size[128], granule;
    char text[SBP_LETTERS];
    size_t used;
};

/* Append a letter; a text that is full stays so, which read_operation finds. */
static void graph_file_put(struct letters *letters, char c)
{
    if (letters->used < sizeof letters->text - 1)
        letters->text[letters->used++] = c, letters->text[letters->used] = '\0';
}

/* A group that is met for the first time has all dimensions that the operand's other letters leave. */
static bool set_group(struct letters *letters, int which, int dims)
{
    static const char names[2][TENSOR_MAX_DIMS + 1] = { "fghi", "dcba" };
    if (dims < 1 || dims > TENSOR_MAX_DIMS) return false;
    memcpy(letters->group[which], names[which], (size_t)dims);
    return true;
}

/* The letters of one operand, as many as it has dimensions. */
static bool expand(struct letters *letters, const char *shapes, size_t n, int ndim)
{
    /* left becomes the dimensions that a group met for the first time has to take. */
    int left = ndim;
    for (size_t i = 0; i < n; i++) {
        const int which = shapes[i] - '1';
        left -= which == 0 || which == 1 ? (int)strlen(letters->group[which]) : 1;
    }
    for (size_t i = 0; i < n; i++) {
        const int which = shapes[i] - '1';
        if (which != 0 && which != 1) {
            graph_file_put(letters, shapes[i]);
            continue;
        }
        if (letters->group[which][0] == '\0') {
            if (!set_group(letters, which, left)) return false;
            left = 0;
        }
        for (const char *c = letters->group[which]; *c; c++) graph_file_put(letters, *c);
    }
    return left == 0;
}

/* Give the letters from `first` on the sizes of a tensor.  @return the dimension that disagrees; -1: none does. */
static int take_sizes(struct letters *letters, size_t first, const struct sbp_tensor *tensor)
{
    for (int d = 0; d < tensor->shape.ndim; d++) {
        int64_t *const size = &letters->size[(unsigned char)letters->text[first + (size_t)d]];
        if (*size && *size != tensor->shape.dim[d]) return d;
        *size = tensor->shape.dim[d];
        if (letters->text[first + (size_t)d] == 'n' && tensor->shape.granule > letters->granule)
            letters->granule = tensor->shape.granule;
    }
    return -1;
}

/* Find the operands of a line, expand their letters, and check that equal letters have equal sizes. */
static enum error_code read_operands(struct reader *reader, const struct known *known,
                                     struct letters *letters, int in[])
{
    const char *shapes = known->shapes;
    for (int i = 0; i + 3 < reader->words; i++, shapes++) {
        const size_t n = strcspn(shapes, ",-"), first = letters->used;
        in[i] = graph_find(reader->graph, reader->word[3 + i]);
        if (in[i] < 0) return graph_file_bad(reader, "%s: there is no such tensor yet",
                                             printable(reader->word[3 + i]).text);
        const struct sbp_tensor *t = &reader->graph->tensor[in[i]];
        if (!expand(letters, shapes, n, t->shape.ndim))
            return graph_file_bad(reader, "%s of %d dimensions cannot be operand %d of %s", t->name, t->shape.ndim,
                                  i + 1, known->name);
        const int off = take_sizes(letters, first, t);
        if (off >= 0)
            return graph_file_bad(reader, "%s has %lld in dimension %d, where another operand of %s has %lld", t->name,
                                  (long long)t->shape.dim[off], off, known->name,
                                  (long long)letters->size[(unsigned char)letters->text[first + (size_t)off]]);
        shapes += n;
        graph_file_put(letters, ',');
    }
    /* The last comma goes; "->" follows.  Every operation has an operand, so there is one. */
    if (letters->used > 0) letters->text[--letters->used] = '\0';
    return OK;
}

/* A gate stands beside what is gated; a norm has w and b, or w alone, and all norms of a graph are alike. */
static enum error_code check_fixed(struct reader *reader, const struct known *known, const struct letters *letters)
{
    const int64_t gates = letters->size['T'], rows = letters->size['W'];
    struct model_config *const m = &reader->graph->model;
    if (gates && gates != 2)
        return graph_file_bad(reader, "%s takes [rows, 2, columns], not %lld", known->name, (long long)gates);
    if (!rows) return OK;
    if (rows != 1 && rows != 2)
        return graph_file_bad(reader, "%s takes parameters of [2, columns], w and b, or of [1, columns] for an rmsnorm",
                              known->name);
    if (m->eps > 0 && (m->norm == NORM_RMS) != (rows == 1))
        return graph_file_bad(reader, "all norms of a graph have b, or none has");
    m->norm = rows == 1 ? NORM_RMS : NORM_LAYER, m->eps = 1e-5;
    return OK;
}

/* Read the line "NAME = OPERATION OPERANDS": check the operands, derive the result's letters and shape, add both. */
static enum error_code read_operation(struct reader *reader)
{
    const struct known *k = known;
    struct letters l = { .granule = 1 };
    int in[SBP_OPERANDS], inputs = 1;
    while (k < known + KNOWN && strcmp(k->name, reader->word[2]) != 0) k++;
    if (k == known + KNOWN)
        return graph_file_bad(reader, "%s: is no operation; docs/parallelism/signatures.md has them",
                              printable(reader->word[2]).text);
    for (const char *c = k->shapes; *c; c++) inputs += *c == ',';
    if (reader->words - 3 != inputs)
        return graph_file_bad(reader, "%s has %d operand%s, not %d", k->name, inputs, inputs == 1 ? "" : "s",
                              reader->words - 3);
    enum error_code e = read_operands(reader, k, &l, in);
    if (!e) e = check_fixed(reader, k, &l);
    if (e) return e;
    /* Every letter of the result stands in an operand, so its size is known. */
    const char *out = strchr(k->shapes, '>') + 1;
    struct shape s = { .granule = *out == 'n' ? l.granule : 1 };
    graph_file_put(&l, '-'), graph_file_put(&l, '>');
    const size_t first = l.used;
    for (; *out; out++) {
        const char one[2] = { *out }, *group = *out == '1' || *out == '2' ? l.group[*out - '1'] : one;
        for (; *group; group++) graph_file_put(&l, *group);
    }
    s.ndim = (int)(l.used - first);
    if (s.ndim > TENSOR_MAX_DIMS || l.used == sizeof l.text - 1)
        return graph_file_bad(reader, "%s has more dimensions than %d", reader->word[0], TENSOR_MAX_DIMS);
    for (int d = 0; d < s.ndim; d++) s.dim[d] = l.size[(unsigned char)l.text[first + (size_t)d]];
    e = add_tensor(reader, reader->word[0], s);
    if (e) return e;
    graph_op(reader->graph, k->operator, l.text, reader->graph->tensors - 1, in);
    return reader->graph->full ? graph_file_bad(reader, "the graph has more than %d operations", SBP_MOST_OPS) : OK;
}

/* ---- how tensors lie --------------------------------------------------------------------------------------------- */

/* Read the line "pin NAME SIGNATURE"; the graph checks that the signature fits. */
static enum error_code read_pin(struct reader *reader)
{
    struct signature s;
    struct error why = { 0 };
    if (reader->words < 3) return graph_file_bad(reader, "a pin has a tensor and a signature, such as: pin x S(0)");
    if (graph_find(reader->graph, reader->word[1]) < 0)
        return graph_file_bad(reader, "%s: there is no such tensor", printable(reader->word[1]).text);
    enum error_code e = signature_parse(reader->mesh, reader->rest, &s, &why);
    if (!e) e = graph_pin(reader->graph, reader->mesh, reader->word[1], s, &why);
    return e ? graph_file_bad(reader, "%s", why.text) : OK;
}

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->ndim == b->ndim && memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) == 0;
}

/* Read the line "like NAME OTHER"; a circle would leave no tensor with a variable of its own. */
static enum error_code read_like(struct reader *reader)
{
    if (reader->words != 3) return graph_file_bad(reader, "like has two tensors, such as: like dw w");
    const int t = graph_find(reader->graph, reader->word[1]), other = graph_find(reader->graph, reader->word[2]);
    if (t < 0 || other < 0)
        return graph_file_bad(reader, "%s: there is no such tensor", printable(reader->word[t < 0 ? 1 : 2]).text);
    for (int at = other; at >= 0; at = reader->graph->tensor[at].like)
        if (at == t) return graph_file_bad(reader, "%s is like itself", reader->word[1]);
    if (!same_shape(&reader->graph->tensor[t].shape, &reader->graph->tensor[other].shape))
        return graph_file_bad(reader, "%s and %s have different shapes", reader->word[1], reader->word[2]);
    reader->graph->tensor[t].like = other;
    return OK;
}

/* ---- lines ------------------------------------------------------------------------------------------------------- */

/* Cut a line into words at blanks; what follows # is a comment. */
static void split(struct reader *reader, char *line)
{
    line[strcspn(line, "#")] = '\0';
    reader->words = 0, reader->rest = line + strlen(line);
    for (char *at = line + strspn(line, " \t\r"); *at && reader->words < MOST_WORDS;) {
        if (reader->words == 2) reader->rest = at;
        reader->word[reader->words++] = at;
        at += strcspn(at, " \t\r");
        if (reader->words == 3 && strcmp(reader->word[0], "pin") == 0) {          /* a signature has spaces */
            for (char *end = at + strlen(at); end > reader->rest && isspace((unsigned char)end[-1]);) *--end = '\0';
            return;
        }
        if (*at) *at++ = '\0';
        at += strspn(at, " \t\r");
    }
}

/* Do what the first words of a line say.  Beside a graph that was built, only pins and likes are allowed. */
static enum error_code graph_file_read_line(struct reader *reader)
{
    if (reader->words == 0) return OK;
    if (strcmp(reader->word[0], "pin") == 0) return read_pin(reader);
    if (strcmp(reader->word[0], "like") == 0) return read_like(reader);
    if (reader->pins_only) return graph_file_bad(reader, "%s: beside a graph only pin and like can stand",
                                                 printable(reader->word[0]).text);
    if (strcmp(reader->word[0], "tensor") == 0) return read_tensor(reader);
    if (reader->words >= 3 && strcmp(reader->word[1], "=") == 0) return read_operation(reader);
    return graph_file_bad(reader, "%s: a line is: tensor NAME SIZES, NAME = OPERATION OPERANDS, pin or like",
                          printable(reader->word[0]).text);
}

enum error_code graph_parse(struct sbp_graph *graph, const struct sbp_mesh *sbp_mesh, char *text, const char *file,
                            struct error *err)
{
    /* A graph with tensors is complete: the text may only say how they lie. */
    struct reader r = { .graph = graph, .mesh = sbp_mesh, .file = file, .pins_only = graph->tensors > 0, .err = err };
    enum error_code e = OK;
    /* Lines are read until the first mistake. */
    for (char *line = text, *next; line && !e; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        r.line++;
        split(&r, line);
        e = graph_file_read_line(&r);
    }
    return !e && graph->ops == 0 ? graph_file_bad(&r, "there is no operation") : e;
}

enum error_code graph_read(struct sbp_graph *graph, const struct sbp_mesh *sbp_mesh, const char *file,
                           struct error *err)
{
    char *text;
    size_t bytes;
    enum error_code e = file_read_all(file, MOST_BYTES, &text, &bytes, err);
    if (e) return e;
    /* A byte 0 would hide the rest of the text. */
    e = strlen(text) == bytes
            ? graph_parse(graph, sbp_mesh, text, file, err)
            : fail(err, ERR_FORMAT, "%s: is not text: it has a byte 0", printable_path(file).text);
    free(text);
    return e;
}

enum error_code graph_write_pins(const struct sbp_graph *sbp_graph, const struct assignment *assignment,
                                 const char *file, struct error *err)
{
    enum { MOST_LINE = SBP_NAME + SBP_TEXT + 8 };
    char *text = malloc((SBP_MOST_TENSORS + 1) * MOST_LINE), signature[SBP_TEXT];
    size_t used = 0;
    if (text == NULL) return fail(err, ERR_MEMORY, "no memory for the signatures of %d tensors", sbp_graph->tensors);
    /* Each tensor has a line: read as pins, the lines leave the search nothing to choose. */
    for (int t = 0; t < sbp_graph->tensors; t++)
        used += (size_t)snprintf(text + used, MOST_LINE, "pin %s %s\n", sbp_graph->tensor[t].name,
                                 signature_text(&assignment->mesh, assignment->tensor[t], signature));
    const enum error_code e = file_write_all(file, text, used, err);
    free(text);
    return e;
}
