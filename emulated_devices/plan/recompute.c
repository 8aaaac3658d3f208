/* recompute.c -- reads which layers recompute their activations.  plan_check calls recompute_check, the model asks
 * recompute_of layer by layer.  ERR_USAGE says what would fit. */
#include "emulated_devices/plan/recompute.h"
#include "ref/io/options.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {
    [RECOMPUTE_NONE] = "none", [RECOMPUTE_SELECTIVE] = "selective", [RECOMPUTE_FULL] = "full",
    [RECOMPUTE_BUT_ATTENTION] = "selective++"
};

/* Read a number at *text, and move *text past it. */
static bool take_number(const char **text, int64_t *n)
{
    char *end;
    if (**text < '0' || **text > '9') return false;
    *n = strtoll(*text, &end, 10);
    *text = end;
    return true;
}

/* Read the next range of a list, and move *list past it and its comma. */
static bool take_stretch(const char **list, int64_t *first, int64_t *last)
{
    if (!take_number(list, first)) return false;
    *last = *first;
    if (**list == '-') {
        ++*list;
        if (!take_number(list, last)) return false;
    }
    if (**list == ',') return *++*list != 0;
    return **list == 0;
}

/* The result is the mode of a name; -1: it is not a name. */
static int named(const char *choice)
{
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(choice, names[i]) == 0) return i;
    return -1;
}

/* Refuse a choice; the most similar name is suggested where one is near. */
static enum error_code recompute_refuse(const char *choice, struct error *err)
{
    const size_t n = sizeof names / sizeof *names;
    if (nearest_name(choice, names, n)) return fail_unknown_name(err, "--recompute", choice, names, n);
    return fail(err, ERR_USAGE, "--recompute %.80s: must be " RECOMPUTE_CHOICES " such as 0,2-5", choice);
}

enum error_code recompute_check(const char *choice, int64_t layers, struct error *err)
{
    int64_t first, last;
    if (choice == NULL || named(choice) >= 0) return OK;
    /* A list is read range by range; the layers of a range must exist. */
    for (const char *list = choice; *list; ) {
        if (!take_stretch(&list, &first, &last)) return recompute_refuse(choice, err);
        if (first > last || last >= layers)
            return fail(err, ERR_USAGE, "--recompute %.80s: %lld-%lld: the layers are 0 to %lld", choice,
                        (long long)first, (long long)last, (long long)layers - 1);
    }
    return *choice ? OK : fail(err, ERR_USAGE, "--recompute: must be " RECOMPUTE_CHOICES " such as 0,2-5");
}

enum recompute recompute_of(const char *choice, int64_t layer)
{
    int64_t first, last;
    if (choice == NULL) return RECOMPUTE_NONE;
    if (named(choice) >= 0) return (enum recompute)named(choice);
    for (const char *list = choice; *list && take_stretch(&list, &first, &last); )
        if (layer >= first && layer <= last) return RECOMPUTE_FULL;
    return RECOMPUTE_NONE;
}
