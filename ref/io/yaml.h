/* yaml.h -- the small part of YAML that settings need, read with libyaml.
 *
 *     dp: 2                   # a text; what it means is decided by its reader
 *     prefetch: false         # for libyaml a text, too: no word is a truth value by itself
 *     grid:
 *       lr: [1e-3, 2e-3]
 *
 * Mappings, sequences and texts, and nothing that surprises: one document; no anchors, aliases or tags; no key twice; a
 * value after each key; no byte 0.  (Names that begin with yaml_ are libyaml's.)
 *
 * settings_file.c and cli/sweep.c read files with these functions.
 */
#ifndef ORRERY_YAML_H
#define ORRERY_YAML_H

#include "ref/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { YAML_FILE_LIMIT = 1 << 20, YAML_DEPTH = 8 };     /* bytes; mappings and sequences inside each other */

enum yaml_kind { YAML_TEXT, YAML_MAPPING, YAML_SEQUENCE };

struct yaml {
    enum yaml_kind kind;                /* mapping, sequence or text */
    int line;                           /* where it begins; of a value in a mapping, its key's */
    char *key;                          /* in a mapping; NULL elsewhere */
    char *text;                         /* YAML_TEXT: the text, not empty unless in quotes; else NULL */
    struct yaml *child, *next;          /* first element; the next one of the same parent */
};

/**
 * Read a document from memory.
 * @param where      names it in messages: usually the path.
 * @param[out] root  its mapping, for yml_free; an empty one for a document without content; NULL on failure.
 * @return OK, or ERR_FORMAT with the line of the first fault; ERR_MEMORY.
 */
enum error_code yml_parse(const char *text, size_t length, const char *where, struct yaml **root, struct error *);

/** Read a file.  @return as yml_parse, or ERR_FILE; ERR_FORMAT also above YAML_FILE_LIMIT. */
enum error_code yml_read(const char *path, struct yaml **root, struct error *);

void yml_free(struct yaml *);

/** The value of a key; NULL if a mapping has none. */
const struct yaml *yml_find(const struct yaml *mapping, const char *key);

/** Print a text as a value or a key, on one line: in double quotes if it could be read as something else. */
void yml_print_text(FILE *to, const char *text);

#endif
