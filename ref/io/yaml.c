/* yaml.c -- reads a small part of YAML into a tree with libyaml.  yaml_text.c has what needs no library.
 *
 * settings_file.c and cli/sweep.c call this file.  Errors are ERR_FORMAT with the line, ERR_FILE and ERR_MEMORY.  The
 * caller frees the tree with yml_free.
 */
#include "ref/io/yaml.h"
#include "ref/io/output.h"
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* ---- reading ----------------------------------------------------------------------------------------------------- */

struct reader {
    yaml_parser_t parser;
    const char *where;
    struct yaml *open[YAML_DEPTH], **end[YAML_DEPTH];   /* where the next element of each open node goes */
    int depth;
    char *key;                          /* read, and without a value so far */
    int key_line;
    struct yaml *root;
};

static int yaml_line_of(const yaml_event_t *v) { return (int)v->start_mark.line + 1; }

static enum error_code yaml_refuse(const struct reader *reader, int line, const char *what, struct error *err)
{
    return fail(err, ERR_FORMAT, "%s: line %d: %s", printable_path(reader->where).text, line, what);
}

/* libyaml's own words: "did not find expected key", or of its reader, which knows no line. */
static enum error_code fail_parser(const struct reader *reader, struct error *err)
{
    const yaml_parser_t *const p = &reader->parser;
    if (p->error == YAML_MEMORY_ERROR) return fail(err, ERR_MEMORY, "%s: no memory to read it", reader->where);
    if (p->error == YAML_READER_ERROR)
        return fail(err, ERR_FORMAT, "%s: byte %zu: %s", printable_path(reader->where).text,
                    p->problem_offset, p->problem);
    return yaml_refuse(reader, (int)p->problem_mark.line + 1, p->problem ? p->problem : "it is not YAML", err);
}

/* Hang a node under the open one, with the key that waits for it. */
static enum error_code yaml_add_node(struct reader *reader, enum yaml_kind kind, int line, char *text,
                                     struct error *err)
{
    struct yaml *const y = calloc(1, sizeof *y), *const parent = reader->depth > 0
        ? reader->open[reader->depth - 1] : NULL;
    if (y == NULL) {
        free(text);
        return fail(err, ERR_MEMORY, "%s: no memory to read it", reader->where);
    }
    /* An error about a value names the line of its key. */
    *y = (struct yaml){ .kind = kind, .line = reader->key ? reader->key_line : line, .key = reader->key, .text = text };
    reader->key = NULL;
    if (parent == NULL) reader->root = y;
    else *reader->end[reader->depth - 1] = y, reader->end[reader->depth - 1] = &y->next;
    if (kind == YAML_TEXT) return OK;
    if (reader->depth == YAML_DEPTH) return yaml_refuse(reader, line, "it is nested too deeply", err);
    reader->open[reader->depth] = y;
    reader->end[reader->depth++] = &y->child;
    return OK;
}

static bool wants_key(const struct reader *reader)
{
    return reader->depth > 0 && reader->open[reader->depth - 1]->kind == YAML_MAPPING && reader->key == NULL;
}

/* A key may stand once in a mapping; the message names the line of the first. */
static enum error_code take_key(struct reader *reader, char *text, int line, struct error *err)
{
    const struct yaml *const before = yml_find(reader->open[reader->depth - 1], text);
    enum error_code e = OK;
    if (text[0] == '\0') e = yaml_refuse(reader, line, "there is a value without a key", err);
    else if (before != NULL)
        e = fail(err, ERR_FORMAT, "%s: line %d: %s stands in line %d already", printable_path(reader->where).text, line,
                 printable(text).text, before->line);
    if (e) free(text);
    else reader->key = text, reader->key_line = line;
    return e;
}

/* A text is a key or a value, by what the open node waits for. */
static enum error_code take_text(struct reader *reader, const yaml_event_t *v, struct error *err)
{
    const char *const value = (const char *)v->data.scalar.value;
    const size_t n = v->data.scalar.length;
    const bool plain = v->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (v->data.scalar.anchor || v->data.scalar.tag)
        return yaml_refuse(reader, yaml_line_of(v), "there can be no anchors (&) and no tags (!)", err);
    /* A byte 0 would cut the text short. */
    if (memchr(value, 0, n)) return yaml_refuse(reader, yaml_line_of(v), "a text has a byte 0", err);
    if (n == 0 && plain && !wants_key(reader))
        return fail(err, ERR_FORMAT, "%s: line %d: %s has no value", printable_path(reader->where).text,
                    reader->key ? reader->key_line : yaml_line_of(v), reader->key ? printable(reader->key).text
                        : "an element");
    if (reader->depth == 0)
        return yaml_refuse(reader, yaml_line_of(v), "there must be lines of the form KEY: VALUE", err);
    char *const text = malloc(n + 1);
    if (text == NULL) return fail(err, ERR_MEMORY, "%s: no memory to read it", reader->where);
    memcpy(text, value, n);
    text[n] = '\0';
    return wants_key(reader) ? take_key(reader, text, yaml_line_of(v), err)
           : yaml_add_node(reader, YAML_TEXT, yaml_line_of(v), text, err);
}

/* Only mappings may stand at the top, and only words may be keys. */
static enum error_code open_node(struct reader *reader, const yaml_event_t *v, enum yaml_kind kind, bool named,
                                 struct error *err)
{
    if (named) return yaml_refuse(reader, yaml_line_of(v), "there can be no anchors (&) and no tags (!)", err);
    if (wants_key(reader)) return yaml_refuse(reader, yaml_line_of(v), "a key must be a word", err);
    if (reader->depth == 0 && kind == YAML_SEQUENCE)
        return yaml_refuse(reader, yaml_line_of(v), "there must be lines of the form KEY: VALUE", err);
    return yaml_add_node(reader, kind, yaml_line_of(v), NULL, err);
}

/* libyaml says events: beginnings, ends and texts.  What this part of YAML lacks is refused by name. */
static enum error_code take_event(struct reader *reader, const yaml_event_t *v, struct error *err)
{
    switch (v->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (reader->root) return yaml_refuse(reader, yaml_line_of(v), "there can be only one document", err);
        if (v->data.document_start.version_directive ||
            v->data.document_start.tag_directives.start != v->data.document_start.tag_directives.end)
            return yaml_refuse(reader, yaml_line_of(v), "there can be no directives (%)", err);
        return OK;
    case YAML_ALIAS_EVENT: return yaml_refuse(reader, yaml_line_of(v), "there can be no aliases (*)", err);
    case YAML_SCALAR_EVENT: return take_text(reader, v, err);
    case YAML_MAPPING_START_EVENT:
        return open_node(reader, v, YAML_MAPPING, v->data.mapping_start.anchor || v->data.mapping_start.tag, err);
    case YAML_SEQUENCE_START_EVENT:
        return open_node(reader, v, YAML_SEQUENCE, v->data.sequence_start.anchor || v->data.sequence_start.tag, err);
    case YAML_MAPPING_END_EVENT: case YAML_SEQUENCE_END_EVENT: reader->depth--; return OK;
    default: return OK;
    }
}

/* An empty file is an empty mapping. */
static enum error_code read_events(struct reader *reader, struct error *err)
{
    yaml_event_t event;
    enum error_code e = OK;
    for (bool more = true; more && !e;) {
        if (!yaml_parser_parse(&reader->parser, &event)) return fail_parser(reader, err);
        more = event.type != YAML_STREAM_END_EVENT;
        e = take_event(reader, &event, err);
        yaml_event_delete(&event);
    }
    if (!e && reader->root == NULL) return yaml_add_node(reader, YAML_MAPPING, 1, NULL, err);
    return e;
}

/* The parser's memory is freed in every case; a tree that is not complete is freed, too. */
enum error_code yml_parse(const char *text, size_t length, const char *where, struct yaml **root, struct error *err)
{
    struct reader r = { .where = where };
    *root = NULL;
    if (!yaml_parser_initialize(&r.parser)) return fail(err, ERR_MEMORY, "%s: no memory to read it", where);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, length);
    const enum error_code e = read_events(&r, err);
    yaml_parser_delete(&r.parser);
    free(r.key);
    if (e) yml_free(r.root);
    else *root = r.root;
    return e;
}

enum error_code yml_read(const char *path, struct yaml **root, struct error *err)
{
    char *text;
    size_t length;
    *root = NULL;
    enum error_code e = file_read_all(path, YAML_FILE_LIMIT, &text, &length, err);
    if (e) return e;
    e = yml_parse(text, length, path, root, err);
    free(text);
    return e;
}
