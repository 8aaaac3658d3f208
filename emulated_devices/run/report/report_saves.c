/* report_saves.c -- the saves of --save-async in a run's report: what was copied and written, and what it has cost.
 * report_end.c, report_json.c and run/session.c call these functions.  No function returns an error code. */
#include "emulated_devices/run/report/report.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"

enum { SHOWN = 3 };                     /* saves in the text */

static struct figure virtual_time_of(picoseconds time) { return time_format(1e-12 * (double)time); }

/* A step's save: times in virtual time, then seconds of the wall clock. */
static void print_one(FILE *out, const struct save_record *save)
{
    say(out, 8, "saving  step %lld meanwhile: %s, at most %s of a device; copied in %s, written in %s; held %s, "
        "waited %s for the buffer; a synchronous save would hold %s", (long long)save->step,
        size_format(save->bytes).text, size_format(save->most).text, virtual_time_of(save->copy).text,
        virtual_time_of(save->write).text,
        virtual_time_of(save->counted.held).text, virtual_time_of(save->counted.waited).text,
        virtual_time_of(save->copy + save->write).text);
    say(out, 8, "        known to count after step %lld; by the wall clock: begun in %s, copied in %s, written in %s, "
        "held %s", (long long)save->known, time_format(save->wall.begun).text, time_format(save->wall.copied).text,
        time_format(save->wall.written).text, time_format(save->wall.waited).text);
}

void report_saves(const struct train_record *record)
{
    const struct saves *const s = &record->saves;
    const int shown = s->count > SHOWN ? SHOWN : s->count;
    for (int i = 0; i < shown; i++) print_one(record->out, &s->at[i]);
    if (s->count > shown)
        say(record->out, 8, "        %d more save%s: --json has all", s->count - shown, plural(s->count - shown));
    if (s->count > 0)
        say(record->out, 8, "        counted times of all saves equal max(0, copy - passes) and the wait for the "
            "buffer, on every device");
}

void report_saves_json(cJSON *root, const struct train_record *record)
{
    const struct saves *const s = &record->saves;
    if (!record->options->save_async) return;
    cJSON *const list = cJSON_AddArrayToObject(root, "saves");
    for (int i = 0; i < s->count; i++) {
        const struct save_record *const one = &s->at[i];
        json_add(json_row(list), "step %g known_after_step %g bytes %g most_bytes %g copy_ps %g write_ps %g held_ps %g "
                 "waited_ps %g begun_s %g copied_s %g written_s %g held_s %g", (double)one->step, (double)one->known,
                 (double)one->bytes, (double)one->most, (double)one->copy, (double)one->write,
                 (double)one->counted.held, (double)one->counted.waited, one->wall.begun, one->wall.copied,
                 one->wall.written, one->wall.waited);
    }
}
