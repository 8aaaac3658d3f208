/* check_first.c -- prints and writes what `orrery check --first` has not looked at.  check.c calls both functions at
 * the end of such a check.  No function reports errors. */
#include "emulated_devices/cli/check_first.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"

void check_first_print(FILE *out, const char *first, const struct first_found *found)
{
    char text[400];
    const int left = found->all > found->looked ? found->all - found->looked : 0;
    if (left == 0) snprintf(text, sizeof text, "FAILED: first %s; all %d tensors were looked at", first, found->all);
    else snprintf(text, sizeof text, "FAILED: first %s; stopped there: %d of %d tensors %s not looked at", first, left,
                  found->all, left == 1 ? "was" : "were");
    fprintf(out, "\n");
    say_verdict(out, BAD_NEWS, text);
}

void check_first_json(cJSON *root, const char *first, const struct first_found *found)
{
    if (first) cJSON_AddStringToObject(root, "stopped_at", first);
    cJSON_AddNumberToObject(root, "looked_at", found->looked);
    cJSON_AddNumberToObject(root, "not_looked_at", found->all > found->looked ? found->all - found->looked : 0);
}
