/* sanitized.c -- reports of sanitizers, which have sixty lines of addresses around the two that help.
 *
 *     FOLDER/data.c:41:80: runtime error: index 4 out of bounds for type 'int [4]'
 *
 *     ==7==ERROR: AddressSanitizer: stack-buffer-overflow on address 0x7ffe ..
 *     WRITE of size 4 at 0x7ffe .. thread T0
 *         #0 0x55d0 in data_gradients FOLDER/data.c:41
 *         ..
 *         [32, 48) 'bad' (line 38) <== Memory access at offset 48 overflows this variable
 * serve.c hands it what a worker's sanitizer said.  A report that it does not know gives an empty text.
 */
#include "emulated_devices/course/compile/sanitized.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* These words say what a kind of error means.  Memory between arrays is poisoned (tutorials/worker/worker.c). */
static const struct { const char *kind, *where; } kinds[] = {
    { "use-after-poison", "outside of all arrays and allocated memory, or in memory that was released" },
    { "stack-buffer-overflow", "behind the end of a local array" },
    { "stack-buffer-underflow", "in front of a local array" },
    { "stack-use-after-scope", "in a local array whose block has ended" },
    { "stack-use-after-return", "in a local array whose function has ended" },
    { "global-buffer-overflow", "outside of a static array" },
};

/* This counts characters until one of these. */
static int length_until(const char *at, const char *any) { return (int)strcspn(at, any); }

/* Find the line number behind "/file:"; 0: there is none.  *at goes behind it; NULL: there is no more. */
static long line_in(const char **at, const char *file)
{
    const size_t n = strlen(file);
    for (const char *s = *at; (s = strstr(s, file)) != NULL; s += n) {
        if (s == *at || s[-1] != '/' || s[n] != ':') continue;
        *at = s + n + 1;
        return strtol(s + n + 1, NULL, 10);
    }
    *at = NULL;
    return 0;
}

/* For undefined behaviour this gives the line of the student's file, and the message. */
static bool undefined_text(const char *report, const char *file, char *to, size_t size)
{
    static const char mark[] = ": runtime error: ";
    const char *error = strstr(report, mark), *begin = error;
    if (error == NULL) return false;
    while (begin > report && begin[-1] != '\n') begin--;
    const long line = line_in(&begin, file);
    error += sizeof mark - 1;
    const int n = length_until(error, "\n");
    if (begin && begin < error) snprintf(to, size, "%s:%ld: %.*s", file, line, n, error);
    else snprintf(to, size, "%.*s", n, error);
    return true;
}

/* Memory that was used wrongly: the place, the array, and what was done. */
static bool address_text(const char *report, const char *file, char *to, size_t size)
{
    static const char mark[] = "ERROR: AddressSanitizer: ";
    const char *kind = strstr(report, mark);
    char place[120] = "", name[80] = "";
    if (kind == NULL) return false;
    kind += sizeof mark - 1;
    const char *at = kind, *where = NULL, *variable = strstr(kind, "<== Memory access");
    const long line = line_in(&at, file);
    if (line > 0) snprintf(place, sizeof place, "%s:%ld: ", file, line);
    const int n = length_until(kind, " :\n");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strncmp(kind, kinds[i].kind, (size_t)n) == 0 && kinds[i].kind[n] == '\0') where = kinds[i].where;
    /* A report names the variable in a later line, in quotes. */
    while (variable && variable > kind && *variable != '\n' && *variable != '\'') variable--;      /* 'bad' (line 38) */
    const char *end = variable;
    while (variable && variable > kind && variable[-1] != '\n' && variable[-1] != '\'') variable--;
    if (variable && *end == '\'') snprintf(name, sizeof name, ", %.*s", (int)(end - variable), variable);
    const bool writes = strstr(kind, "\nWRITE of size") != NULL, reads = strstr(kind, "\nREAD of size") != NULL;
    const char *what = writes ? "it writes" : "it reads";
    if (where && (writes || reads)) snprintf(to, size, "%s%s %s%s", place, what, where, name);
    else snprintf(to, size, "%s%.*s", place, n, kind);
    return true;
}

bool sanitizer_text(const char *report, const char *file, char *to, size_t size)
{
    to[0] = 0;
    return undefined_text(report, file, to, size) || address_text(report, file, to, size);
}
