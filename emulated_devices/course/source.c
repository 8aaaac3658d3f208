#include "emulated_devices/course/source.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 4096 };

static const char *const headers[] = { "math.h", "string.h", "stddef.h", "stdint.h", "stdbool.h", "float.h", "limits.h",
                                       "course.h", NULL };

/* The next line, with those that a backslash continues.  @return what follows it; NULL: it is too long. */
static const char *read_line(const char *at, char line[LINE], int *lines)
{
    size_t n = 0;
    for (*lines = 0; *at; at++) {
        if (*at == '\r') continue;
        if (*at == '\\' && (at[1] == '\n' || (at[1] == '\r' && at[2] == '\n'))) {
            at += at[1] == '\r' ? 2 : 1;
            ++*lines;
            continue;
        }
        if (*at == '\n') {
            at++, ++*lines;
            break;
        }
        if (n == LINE - 1) return NULL;
        line[n++] = *at;
    }
    line[n] = 0;
    return at;
}

static bool continues_name(char c) { return isalnum((unsigned char)c) || c == '_'; }

static bool has_identifier(const char *line, const char *word)
{
    const size_t n = strlen(word);
    for (const char *at = line; (at = strstr(at, word)) != NULL; at += n) {
        if ((at == line || !continues_name(at[-1])) && !continues_name(at[n])) return true;
    }
    return false;
}

/* Whether the line is no directive that includes something, or includes something that is allowed. */
static bool includes_well(const char *line, const char *contract, char name[80])
{
    char open, close;
    name[0] = 0;
    while (isspace((unsigned char)*line)) line++;
    if (*line == '#') line++;
    else if (line[0] == '%' && line[1] == ':') line += 2;
    else return true;
    while (isspace((unsigned char)*line)) line++;
    if (strncmp(line, "include", 7) != 0) return strncmp(line, "embed", 5) != 0;
    if (sscanf(line, "include %c%79[^>\"]%c", &open, name, &close) != 3) return false;
    for (int i = 0; headers[i]; i++)
        if (strcmp(name, headers[i]) == 0) return true;
    return strcmp(name, contract) == 0;
}

bool source_is_fine(const char *text, const char *contract, char *why, size_t size)
{
    static const char *const assembly[] = { "asm", "__asm", "__asm__", NULL };
    char line[LINE], name[80];
    int number = 1, lines;
    for (const char *at = text; *at; number += lines) {
        at = read_line(at, line, &lines);
        if (at == NULL) {
            snprintf(why, size, "line %d: longer than %d characters\n", number, LINE - 1);
            return false;
        }
        if (!includes_well(line, contract, name)) {
            snprintf(why, size, "line %d: it includes %.70s; only course.h, %.70s and math.h, string.h, float.h, "
                     "limits.h, stdbool.h, stddef.h, stdint.h can be included\n", number, name[0] ? name : "something",
                     contract);
            return false;
        }
        for (int i = 0; assembly[i]; i++)
            if (has_identifier(line, assembly[i])) {
                snprintf(why, size, "line %d: %s: there can be no assembly\n", number, assembly[i]);
                return false;
            }
        if (strstr(line, "##") || strstr(line, "%:%:") || strstr(line, "??")) {
            snprintf(why, size, "line %d: ##, %%:%%: and ?? cannot be used\n", number);
            return false;
        }
    }
    return true;
}
