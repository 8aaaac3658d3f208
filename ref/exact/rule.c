/* rule.c -- the names of the arithmetics.  Options, reports and dumps ask for them.  Nothing fails. */
#include "ref/exact/rule.h"
#include <stddef.h>
#include <string.h>

const char *const exact_rule_names[EXACT_RULES + 1] = { "ordinary", "exact", "exact2", NULL };

enum exact_rule exact_rule_named(const char *name)
{
    for (int rule = 0; name && rule < EXACT_RULES; rule++)
        if (strcmp(name, exact_rule_names[rule]) == 0) return (enum exact_rule)rule;
    return SUMS_ROUND;
}
