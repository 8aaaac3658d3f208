/* sbp_shipped.c -- schemes by the names "sbp:NAME", of the layouts that are shipped, and "sbp:FILE".
 *
 * registry.c calls sbp_scheme_make for a name that begins with "sbp:"; cli/list/ and verify/cases/space.c add the
 * shipped layouts with sbp_schemes_add.  A scheme made here lives until the program ends.  ERR_USAGE is for a name
 * without a layout, ERR_FORMAT for a file that is not text; ERR_MEMORY.
 */
#include "emulated_devices/schemes/tensor/tensor_sbp.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A layout has 12 short lines; a longer file is surely something else. */
enum { MOST_BYTES = 1 << 16 };

static const char prefix[] = "sbp:";

/* A shipped text lies in the program, so a name without a file works in every folder. */
static const char *shipped(const char *name)
{
    for (const char *const *t = sbp_layout_texts; *t; t += 2)
        if (strcmp(t[0], name) == 0) return t[1];
    return NULL;
}

/* A copy of a shipped text, or the file's. */
static enum error_code sbp_shipped_text_of(const char *name, char **text, struct error *err)
{
    const char *own = shipped(name);
    size_t bytes;
    if (own) return (*text = strdup(own)) ? OK : fail(err, ERR_MEMORY, "no memory for the text of %s", name);
    /* Names that are not shipped are files. */
    const enum error_code e = file_read_all(name, MOST_BYTES, text, &bytes, err);
    if (e || strlen(*text) == bytes) return e;
    return fail(err, ERR_FORMAT, "%s: is not text: it has a byte 0", printable_path(name).text);
}

/* The comment in the first line; of a text without one, what all have in common. */
static void sbp_shipped_describe(char *out, size_t size, const char *text)
{
    const char *at = text + strspn(text, "# \t");
    const int length = (int)strcspn(at, "\r\n");
    snprintf(out, size, "signatures from a text (docs/parallelism/signatures.md) decide what is sent");
    if (*text == '#' && length > 0) snprintf(out, size, "%.*s", length, at);
    /* The description is printed on terminals, so bytes outside printable ASCII become blanks. */
    for (char *c = out; *c; c++)
        if ((unsigned char)*c < ' ' || (unsigned char)*c >= 127) *c = ' ';
}

/* @param scheme  of which the name is kept: "sbp:" and the name of the text. */
static enum error_code make_of_text(struct sbp_scheme *scheme, const char *name, struct error *err)
{
    struct sbp_layout l;
    char *text, description[sizeof scheme->description];
    enum error_code e = sbp_shipped_text_of(name + sizeof prefix - 1, &text, err);
    if (e) return e;
    sbp_shipped_describe(description, sizeof description, text);
    /* The description is read first, because sbp_layout_parse changes the text. */
    e = sbp_layout_parse(&l, text, name + sizeof prefix - 1, err);
    free(text);
    if (e) return e;
    *scheme = sbp_scheme_of(&l, name);
    memcpy(scheme->description, description, sizeof description);
    /* The pointer is set after the copy, so that it points into this very struct. */
    scheme->scheme.head.description = scheme->description;
    return OK;
}

enum error_code sbp_scheme_make(const struct scheme **made, const char *name, struct error *err)
{
    if (strncmp(name, prefix, sizeof prefix - 1) != 0 || name[sizeof prefix - 1] == '\0')
        return fail(err, ERR_USAGE, "--tensor %s: must be sbp:FILE", printable(name).text);
    /* The scheme keeps a copy of its name, because the caller's text may end before the scheme does. */
    struct sbp_scheme *s = malloc(sizeof *s);
    char *own = strdup(name);
    const enum error_code e = s && own ? make_of_text(s, own, err)
                                       : fail(err, ERR_MEMORY, "no memory for the scheme %s", printable(name).text);
    if (!e) return *made = &s->scheme.head, OK;
    free(s), free(own);
    return e;
}

enum error_code sbp_schemes_add(struct error *err)
{
    enum error_code e = OK;
    /* scheme_find makes an unknown sbp: name and adds the scheme to the registry. */
    for (const char *const *t = sbp_layout_texts; *t && !e; t += 2) {
        char name[64] = "";
        const struct scheme *s;
        strcat(strcat(name, prefix), t[0]);
        e = scheme_find(&s, TENSOR_SCHEME, name, err);
    }
    return e;
}
