/* sbp_file.c -- reads and writes the signatures of tensor_sbp.h as text.
 *
 * sbp_shipped.c reads a layout with sbp_layout_parse.  cli/show/sbp.c writes a layout with sbp_layout_write, and
 * model/sbp/sbp_layout.c asks sbp_layout_refuses.  Errors are ERR_FORMAT with file and line, ERR_FILE and ERR_MEMORY.
 */
#include "emulated_devices/schemes/tensor/tensor_sbp.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct { const char *name; bool weight; } roles[SBP_ROLE_COUNT] = {
#define X(id, text, is_weight) [SBP_##id] = { text, is_weight },
    SBP_ROLES(X)
#undef X
};

const char *sbp_role_name(enum sbp_role sbp_role) { return roles[sbp_role].name; }

/* Signatures are read and written on a mesh with one axis; its size plays no part. */
static const struct sbp_mesh line_of_devices = { .axes = 1, .size = { 2, 1 } };

static bool is(const struct sbp_layout *layout, enum sbp_role sbp_role, struct sbp what)
{
    return sbp_equal(layout->of[sbp_role], what);
}

/* ---- what can be ------------------------------------------------------------------------------------------------- */

static const struct sbp B = ON_B, P = ON_P, S0 = ON_S(0), S1 = ON_S(1);

/* Inside, tokens can be cut only between sequences, because attention needs whole sequences. */
static bool cuts_tokens_inside(const struct sbp_layout *layout)
{
    return is(layout, SBP_HEADS, S0) || is(layout, SBP_HIDDEN, S0) || is(layout, SBP_LOGITS, S0);
}

/* The rules go from a single role to pairs of roles.  The first broken rule is reported. */
const char *sbp_layout_refuses(const struct sbp_layout *layout, enum sbp_role *role)
{
    for (int r = 0; r < SBP_ROLE_COUNT; r++) {
        *role = (enum sbp_role)r;
        if (is(layout, *role, P))
            return roles[r].weight ? "nobody is given partial sums; a weight is B, S(0) or S(1)"
                                   : "what reads it needs whole numbers; it is B, S(0), tokens, or S(1), columns";
        if (layout->of[r].kind == SBP_S && layout->of[r].dim > 1) return "has two dimensions: S(0) or S(1)";
    }
    /* From here on, *role names the signature that the sentence is about. */
    *role = SBP_INPUTS;
    if (!is(layout, SBP_INPUTS, layout->of[SBP_STREAM]) && !(is(layout, SBP_INPUTS, B) && is(layout, SBP_STREAM, S0)))
        return "inputs lie as the stream, or are B beside a stream S(0)";
    *role = SBP_NORMS;
    if (is(layout, SBP_NORMS, S1)) return "a norm's weight has one dimension: B or S(0)";
    if (is(layout, SBP_STREAM, S1) && !is(layout, SBP_NORMS, S0))
        return "beside a stream S(1), whose columns they belong to: S(0)";
    if (is(layout, SBP_STREAM, B) && !is(layout, SBP_NORMS, B)) return "beside a stream B, which reads them whole: B";
    if (is(layout, SBP_STREAM, S0) && is(layout, SBP_NORMS, S0) && cuts_tokens_inside(layout))
        return "S(0) beside a stream S(0) needs heads, hidden and logits that are not S(0)";
    return NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct reader { struct sbp_layout *layout; int at[SBP_ROLE_COUNT], line; const char *file; struct error *err; };

/* sbp_file_bad reports ERR_FORMAT at FILE:LINE, with a text as of printf. */
__attribute__((format(printf, 3, 4))) static enum error_code sbp_file_bad(const struct reader *reader, int line,
                                                                          const char *format, ...)
{
    char text[240];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    return fail(reader->err, ERR_FORMAT, "%s:%d: %s", printable_path(reader->file).text, line, text);
}

/* Cut off a comment and the spaces around. */
static char *trimmed(char *line)
{
    line[strcspn(line, "#")] = '\0';
    while (isspace((unsigned char)*line)) line++;
    for (char *end = line + strlen(line); end > line && isspace((unsigned char)end[-1]);) *--end = '\0';
    return line;
}

/* sbp_file_read_line reads `ROLE SIGNATURE`.  An empty line is OK, a role that has a signature already is not. */
static enum error_code sbp_file_read_line(struct reader *reader, char *line)
{
    const char *names[SBP_ROLE_COUNT];
    char *word = trimmed(line), *rest = word + strcspn(word, " \t");
    struct signature s;
    struct error why = { 0 };
    int role = 0;
    if (*word == '\0') return OK;
    /* `word` ends here, and `rest` is the signature. */
    if (*rest) *rest++ = '\0', rest += strspn(rest, " \t");
    for (int i = 0; i < SBP_ROLE_COUNT; i++) names[i] = roles[i].name;
    while (role < SBP_ROLE_COUNT && strcmp(names[role], word) != 0) role++;
    if (role == SBP_ROLE_COUNT) {
        fail_unknown_name(&why, "role", word, names, SBP_ROLE_COUNT);
        return sbp_file_bad(reader, reader->line, "%s", why.text);
    }
    /* The message names the line that gave the signature first. */
    if (reader->at[role])
        return sbp_file_bad(reader, reader->line, "%s has a signature already, in line %d", word, reader->at[role]);
    if (signature_parse(&line_of_devices, rest, &s, &why))
        return sbp_file_bad(reader, reader->line, "%s %s", word, why.text);
    reader->layout->of[role] = s.on[0], reader->at[role] = reader->line;
    return OK;
}

/* Roles without a line: two follow from the stream, and no other may be left out. */
static enum error_code sbp_file_complete(const struct reader *reader)
{
    struct sbp_layout *l = reader->layout;
    char text[SBP_TEXT];
    enum sbp_role role;
    if (!reader->at[SBP_INPUTS]) l->of[SBP_INPUTS] = l->of[SBP_STREAM];
    if (!reader->at[SBP_NORMS]) l->of[SBP_NORMS] = is(l, SBP_STREAM, S1) ? S0 : B;
    for (int i = 0; i < SBP_ROLE_COUNT; i++)
        if (!reader->at[i] && i != SBP_INPUTS && i != SBP_NORMS)
            return sbp_file_bad(reader, reader->line, "there is no line for %s, such as: %s %s", roles[i].name,
                                roles[i].name, i == SBP_STREAM ? "B" : roles[i].weight ? "S(0)" : "S(1)");
    const char *why = sbp_layout_refuses(l, &role);
    if (why == NULL) return OK;
    return sbp_file_bad(reader, reader->at[role] ? reader->at[role] : reader->line, "%s %s: %s", roles[role].name,
                        signature_text(&line_of_devices, (struct signature){ { l->of[role], ON_B } }, text), why);
}

/* sbp_layout_parse cuts the text into lines in place, so the caller must own the text. */
enum error_code sbp_layout_parse(struct sbp_layout *layout, char *text, const char *file, struct error *err)
{
    struct reader r = { .layout = layout, .file = file, .err = err };
    enum error_code e = OK;
    *layout = (struct sbp_layout){ 0 };
    for (char *line = text, *next; line && !e; line = next) {
        next = strchr(line, '\n');
        if (next) *next++ = '\0';
        /* A last line that is empty does not count, so errors at the end name the last line with text. */
        if (next || *line) r.line++;
        e = sbp_file_read_line(&r, line);
    }
    return e ? e : sbp_file_complete(&r);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The whole text is made in memory first: the file is then written at once, or not at all. */
enum error_code sbp_layout_write(const struct sbp_layout *layout, const char *head, const char *file, struct error *err)
{
    char text[2048], signature[SBP_TEXT];
    size_t used = (size_t)snprintf(text, sizeof text, "# %s\n", head);
    for (int r = 0; r < SBP_ROLE_COUNT && used < sizeof text; r++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%-9s %s\n", roles[r].name,
                                 signature_text(&line_of_devices,
                                                (struct signature){ { layout->of[r], ON_B } }, signature));
    if (used >= sizeof text) return fail(err, ERR_MEMORY, "%s: no room for its text", printable_path(file).text);
    return file_write_all(file, text, used, err);
}
