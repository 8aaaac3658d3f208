/* A schedule from anybody: what the validator accepts can be timed to its end, and written, read and accepted again.
 * tier: check
 */
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include "tests/fuzz/fuzz.h"

static enum error_code read_text(struct schedule *s, char *text, size_t size, struct error *err)
{
    FILE *f = size > 0 ? fmemopen(text, size, "r") : fopen("/dev/null", "r");
    must(f != NULL, "no file of %zu bytes", size);
    const enum error_code e = schedule_read(s, f, "fuzz", err);
    fclose(f);
    return e;
}

static void check_time(const struct schedule *s)
{
    struct error err;
    struct timing t;
    int64_t *room = malloc((size_t)(3 * s->stages) * sizeof *room);
    must(room != NULL, "no memory for %d stages", s->stages);
    const struct schedule_times times = uniform_times(s->stages, 3, 2, 1, 1, room);
    const enum error_code e = schedule_time(&t, s, &times, &err);
    must(e == OK, "accepted, and does not end: %s", err.text);
    must(t.makespan >= 0 && t.span <= t.makespan && t.bubble >= 0 && t.bubble <= 1, "makespan %lld, bubble %g",
         (long long)t.makespan, t.bubble);
    timing_free(&t);
    free(room);
}

static void check_traffic(const struct schedule *s)
{
    int64_t held = 0;
    for (int d = 0; d < s->devices; d++) {
        held += s->count[d];
        must(schedule_peak(s, d) >= 0 && schedule_peak(s, d) <= s->micros * s->chunks, "device %d holds %d", d,
             schedule_peak(s, d));
    }
    must(schedule_messages(s) <= held, "more messages than actions");
    (void)schedule_survives_blocking_sends(s);
    (void)schedule_adds_in_order(s);
}

static bool same_action(const struct action *a, const struct action *b)
{
    return a->kind == b->kind && a->micro == b->micro && a->chunk == b->chunk && a->peer == b->peer &&
           a->beside == b->beside;
}

static bool same_actions(const struct schedule *a, const struct schedule *b, int device)
{
    if (a->count[device] != b->count[device]) return false;
    for (int64_t i = 0; i < a->count[device]; i++)
        if (!same_action(&a->actions[device][i], &b->actions[device][i])) return false;
    return true;
}

static void check_again(const struct schedule *s)
{
    struct error err;
    struct schedule again;
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    must(f != NULL && schedule_write(f, s, &err) == OK && fclose(f) == 0, "accepted, and cannot be written");
    must(read_text(&again, text, size, &err) == OK, "accepted, written and refused: %s", err.text);
    for (int d = 0; d < s->devices; d++)
        must(same_actions(s, &again, d), "written and read, device %d does something else", d);
    schedule_free(&again);
    free(text);
}

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    struct schedule s;
    char *text = as_text(data, size);
    const enum error_code e = read_text(&s, text, size, &err);
    free(text);
    if (e != OK) {
        must(err.text[0] != '\0', "refused without a word");
        return;
    }
    check_time(&s);
    check_traffic(&s);
    check_again(&s);
    schedule_free(&s);
}

FUZZ_TARGET("schedule")
