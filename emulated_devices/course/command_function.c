/* command_function.c -- whether a student's flags keep the function that one device computes.
 *
 * Some schemes train another function by design: a schedule whose microbatches skip stages, or that uses old weights.
 * The one-device run computes that function, too, so no comparison notices it.
 * command.h offers it to lessons 17 and 18; without it a student could trade another function for speed.
 * tutorials/17_plan/check.c and tutorials/18_capstone/check.c call command_keeps_function().  No function returns an
 * error code.
 */
#include "emulated_devices/course/command.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "emulated_devices/schemes/scheme.h"
#include <string.h>

/* Whether a value names a registered scheme of this flag's kind that trains another function. */
static bool is_another_function(const char *flag, const char *value)
{
    for (enum scheme_kind kind = 0; kind < PLAN_KINDS; kind++) {
        const struct scheme_kind_info *info = scheme_kind_info(kind);
        if (info->flag == NULL || strcmp(info->flag, flag) != 0) continue;
        for (int i = 0; scheme_at(kind, i); i++)
            if (strcmp(scheme_at(kind, i)->name, value) == 0) return scheme_at(kind, i)->equality == DIFFERS;
    }
    return false;
}

/* How a schedule of the student's text changes the function, or NULL.  The planner refuses a schedule that it
 * cannot read. */
static const char *what_schedule_changes(const struct judge *judge, const char *value)
{
    const size_t n = strlen(judge->lesson->file);
    struct schedule s;
    const char *what = NULL;
    if (strncmp(value, judge->lesson->file, n) != 0 || value[n] != ':') return NULL;
    if (schedule_read_named(&s, judge->text, value + n + 1, judge->lesson->file, NULL) != OK) return NULL;
    if (schedule_is_partial(&s)) what = "microbatches skip stages";
    else if (s.update_every < s.micros || s.weight_versions > 1) what = "weights change inside the schedule";
    schedule_free(&s);
    return what;
}

/* Look at each flag and its value.  @return false: one of them changes what is computed, and the check has failed. */
bool command_keeps_function(struct judge *judge, const char *name, const struct command *command)
{
    for (int i = 0; i + 1 < command->count; i++) {
        const char *flag = command->word[i], *value = command->word[i + 1], *what = NULL;
        if (strcmp(flag, "--schedule") == 0) what = what_schedule_changes(judge, value);
        if (what || is_another_function(flag, value))
            return judge_fails(judge,
                               "%s: %s %s changes what is computed%s%s: another function than that of one device",
                               name, flag, value, what ? ", " : "", what ? what : "");
    }
    return true;
}
