/* yaml_text.c -- frees and searches trees of YAML, and prints texts so that they are read back.
 *
 * settings.c and run/origin.c print with this file; yaml.c and its callers free their trees.  No function returns an
 * error code.
 */
#include "ref/io/yaml.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

void yml_free(struct yaml *yaml)
{
    while (yaml != NULL) {
        struct yaml *const next = yaml->next;
        yml_free(yaml->child);            /* no deeper than YAML_DEPTH */
        free(yaml->key), free(yaml->text), free(yaml);
        yaml = next;
    }
}

const struct yaml *yml_find(const struct yaml *mapping, const char *key)
{
    const struct yaml *y = mapping->child;
    while (y != NULL && (y->key == NULL || strcmp(y->key, key) != 0)) y = y->next;
    return y;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Letters, digits and what is no sign of YAML, wherever it stands. */
static bool is_plain(const char *text)
{
    if (!isalnum((unsigned char)text[0]) && text[0] != '/' && text[0] != '.' && text[0] != '_') return false;
    for (const char *c = text; *c; c++)
        if (!isalnum((unsigned char)*c) && strchr("/._+-,=", *c) == NULL) return false;
    return strchr(text, ',') == NULL;
}

/* One character, or a byte of one, inside quotes.  Line ends and control characters, Unicode's too, get an escape: raw
 * they would be folded or refused.  @return bytes used. */
static int print_quoted(FILE *to, const unsigned char *c)
{
    if (*c == '"' || *c == '\\') return fprintf(to, "\\%c", *c), 1;
    if (*c < ' ' || *c == 0x7f) return fprintf(to, "\\x%02x", *c), 1;
    if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0) return fprintf(to, "\\x%02x", c[1]), 2;
    const unsigned code = *c >= 0xe2 && c[1] && c[2] ? (*c & 15u) << 12 | (c[1] & 63u) << 6 | (c[2] & 63u) : 0;
    const bool special = code == 0x2028 || code == 0x2029 || code == 0xfeff || code >= 0xfffe;
    if (special && *c < 0xf0) return fprintf(to, "\\u%04x", code), 3;
    return fputc(*c, to), 1;
}

void yml_print_text(FILE *to, const char *text)
{
    if (is_plain(text)) {
        fputs(text, to);
        return;
    }
    fputc('"', to);
    for (const unsigned char *c = (const unsigned char *)text; *c;) c += print_quoted(to, c);
    fputc('"', to);
}
