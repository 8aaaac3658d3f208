/* pair.c -- prints two numbers with as many digits as tell them apart.  Reports and verify/ call this file; no
 * function here can fail. */
#include "ref/io/pair.h"
#include <stdio.h>
#include <string.h>

enum { MOST_DIGITS = 17 };              /* of a double that is read back as itself */

struct pair_text pair_text(char format, int digits, double first, double second)
{
    struct pair_text t;
    const char *const how = format == 'e' ? "%.*e" : "%.*g";
    do {
        snprintf(t.first, sizeof t.first, how, digits, first);
        snprintf(t.second, sizeof t.second, how, digits, second);
    } while (digits++ < MOST_DIGITS && first != second && strcmp(t.first, t.second) == 0);
    return t;
}
