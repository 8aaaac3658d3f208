/* Generators and timer against golden/schedules: the same actions in the same order, beginning and ending at the same
 * times.
 * tier: check
 *
 * What is in the files, and which of them an independent program has made: golden/README.md.
 */
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include <errno.h>
#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { SETTINGS = 2, LINE = 200 };

/* ---- the order --------------------------------------------------------------------------------------------------- */

/* An action as files spell it. */
struct spelling { char text[40]; };

static struct spelling spell(const struct schedule *s, struct action a)
{
    struct spelling w;
    const char *mark = a.kind == SEND_ACTIVATION || a.kind == SEND_GRADIENT ? ">" : "<";
    int n = snprintf(w.text, sizeof w.text, "%s%d", action_letter(a.kind), a.micro);
    if (s->chunks > 1) n += snprintf(w.text + n, sizeof w.text - (size_t)n, ".%d", a.chunk);
    if (action_is_message(a.kind)) snprintf(w.text + n, sizeof w.text - (size_t)n, "%s%d", mark, a.peer);
    return w;
}

static void compare_places(const char *path, const struct schedule *got, const struct schedule *want)
{
    if (got->stages != want->stages || got->routes != want->routes || got->update_every != want->update_every ||
        got->weight_versions != want->weight_versions)
        fail_msg("%s: made with %d stages, %d routes, a step every %d, %d weight versions; golden are %d, %d, %d, %d",
                 path, got->stages, got->routes, got->update_every, got->weight_versions, want->stages, want->routes,
                 want->update_every, want->weight_versions);
    for (int d = 0; d < want->devices; d++)
        for (int c = 0; c < want->chunks; c++)
            if (got->stage_of[d][c] != want->stage_of[d][c])
                fail_msg("%s: device %d holds stage %d as chunk %d; golden is stage %d", path, d, got->stage_of[d][c],
                         c, want->stage_of[d][c]);
    for (int m = 0; m < want->micros; m++)
        for (int t = 0; t < want->stages; t++) {
            const struct place g = place_of(got, m, t), w = place_of(want, m, t);
            if (g.device != w.device || (g.device >= 0 && g.chunk != w.chunk))
                fail_msg("%s: stage %d of microbatch %d is on device %d, chunk %d; golden is device %d, chunk %d", path,
                         t, m, g.device, g.chunk, w.device, w.chunk);
        }
}

static void compare_actions(const char *path, const struct schedule *got, const struct schedule *want)
{
    for (int d = 0; d < want->devices; d++) {
        for (int i = 0; i < got->count[d] && i < want->count[d]; i++) {
            const struct spelling g = spell(got, got->actions[d][i]), w = spell(want, want->actions[d][i]);
            if (strcmp(g.text, w.text) != 0)
                fail_msg("%s: device %d, action %d is %s; golden is %s", path, d, i, g.text, w.text);
        }
        if (got->count[d] != want->count[d])
            fail_msg("%s: device %d has %d actions; golden are %d", path, d, got->count[d], want->count[d]);
    }
}

/* ---- the times --------------------------------------------------------------------------------------------------- */

struct events { FILE *file; const char *path; int line; char text[LINE]; };

static void next_line(struct events *e)
{
    e->line++;
    if (fgets(e->text, sizeof e->text, e->file) == NULL) fail_msg("%s:%d: the file ends here", e->path, e->line);
    e->text[strcspn(e->text, "\n")] = '\0';
}

static struct timing time_as_told(struct events *e, const struct schedule *s)
{
    long long forward, input, weight, update, message;
    struct timing t;
    struct error err;
    next_line(e);
    if (sscanf(e->text, "times F=%lld I=%lld W=%lld U=%lld message=%lld", &forward, &input, &weight, &update,
               &message) != 5)
        fail_msg("%s:%d: expected times, found \"%s\"", e->path, e->line, e->text);
    int64_t *room = calloc(3 * (size_t)s->stages, sizeof *room);
    assert_non_null(room);
    struct schedule_times times = uniform_times(s->stages, forward, input, weight, message, room);
    times.update = update;
    if (schedule_time(&t, s, &times, &err) != OK) fail_msg("%s: %s", e->path, err.text);
    free(room);
    return t;
}

static void compare_event(struct events *e, const struct schedule *s, const struct timing t[SETTINGS], int d, int i)
{
    char want[LINE];
    const struct spelling a = spell(s, s->actions[d][i]);
    next_line(e);
    snprintf(want, sizeof want, "%d %s %lld %lld %lld %lld", d, a.text, (long long)t[0].start[d][i],
             (long long)t[0].end[d][i], (long long)t[1].start[d][i], (long long)t[1].end[d][i]);
    if (strcmp(e->text, want) != 0)
        fail_msg("%s:%d: device %d, action %d (device, action, start and end twice) is \"%s\"; golden is \"%s\"",
                 e->path, e->line, d, i, want, e->text);
}

static void compare_times(const char *path, const struct schedule *s)
{
    struct events e = { .file = fopen(path, "r"), .path = path };
    struct timing t[SETTINGS];
    if (e.file == NULL) fail_msg("%s: %s", path, strerror(errno));
    next_line(&e);
    if (strcmp(e.text, "orrery events 1") != 0) fail_msg("%s: begins with \"%s\"", path, e.text);
    next_line(&e);                              /* which schedule */
    for (int k = 0; k < SETTINGS; k++) t[k] = time_as_told(&e, s);
    next_line(&e);                              /* what the columns are */
    for (int d = 0; d < s->devices; d++)
        for (int i = 0; i < s->count[d]; i++) compare_event(&e, s, t, d, i);
    if (fgets(e.text, sizeof e.text, e.file) != NULL)
        fail_msg("%s:%d: more than there should be: \"%s\"", path, e.line + 1, e.text);
    for (int k = 0; k < SETTINGS; k++) timing_free(&t[k]);
    fclose(e.file);
}

/* ---- every file, every generator --------------------------------------------------------------------------------- */

static struct schedule read_golden(const char *path)
{
    struct schedule s;
    struct error err;
    FILE *f = fopen(path, "r");
    if (f == NULL) fail_msg("%s: %s", path, strerror(errno));
    if (schedule_read(&s, f, path, &err) != OK) fail_msg("%s", err.text);
    fclose(f);
    return s;
}

static struct schedule make_anew(const char *path, const struct schedule *want)
{
    struct schedule s;
    struct error err;
    const struct schedule_generator *g = schedule_generator(want->name, &err);
    if (g == NULL) fail_msg("%s: %s", path, err.text);
    const struct schedule_request q = { .devices = want->devices, .micros = want->micros, .chunks = want->chunks,
                                        .update_every = g->streams ? want->update_every : 0 };
    if (schedule_make(&s, want->name, &q, &err) != OK) fail_msg("%s: %s", path, err.text);
    return s;
}

static void check_file(const char *path)
{
    char events[LINE];
    struct schedule want = read_golden(path), got = make_anew(path, &want);
    compare_places(path, &got, &want);
    compare_actions(path, &got, &want);
    snprintf(events, sizeof events, "%.*s.events", (int)(strlen(path) - strlen(".txt")), path);
    compare_times(events, &got);
    schedule_free(&got);
    schedule_free(&want);
}

static glob_t golden_files(const char *pattern)
{
    glob_t found;
    if (glob(pattern, 0, NULL, &found) != 0) fail_msg("there are no %s", pattern);
    return found;
}

static void test_golden_schedules(void **state)
{
    glob_t found = golden_files("golden/schedules/*.txt");
    (void)state;
    for (size_t i = 0; i < found.gl_pathc; i++) check_file(found.gl_pathv[i]);
    globfree(&found);
}

static void test_every_generator_has_one(void **state)
{
    (void)state;
    for (int g = 0; schedule_generator_at(g); g++) {
        char pattern[LINE];
        snprintf(pattern, sizeof pattern, "golden/schedules/%s-p*.txt", schedule_generator_at(g)->head.name);
        glob_t found = golden_files(pattern);
        globfree(&found);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_golden_schedules),
                                        cmocka_unit_test(test_every_generator_has_one) };
    return cmocka_run_group_tests_name("golden schedules", tests, NULL, NULL);
}
