/* schedule.c -- draws a schedule and prints its costs.  show.c calls show_schedule().  ERR_USAGE is for a time that
 * is too large; other errors are those of a schedule. */
#include "emulated_devices/cli/show/schedule.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/draw/page/page_html.h"
#include "emulated_devices/draw/timeline.h"
#include "emulated_devices/draw/schedule.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdlib.h>

struct asked {
    const char *name, *svg, *page, *save;
    int pp, micro, chunks, limit, update_every, skip;
    uint64_t forward, backward_input, backward_weight, communication, update;
    bool plain, pp_given, micro_given;
};

static enum error_code schedule_parse(struct asked *asked, int argc, char **argv, bool *done, struct error *err)
{
    /* a tenth of a second: four million times this fits in 64 bits */
    static const uint64_t LONGEST = 100000000000;
    const struct option table[] = {
        { "NAME|FILE", NULL, OPTION_STRING, &asked->name,
          .help = "a registered schedule, or a file of your own; default: list the registered ones" },
        { .kind = OPTION_HEADING, .help = "Schedule" },
        { "--pp", "P", OPTION_INT, &asked->pp, .min = 1, .max = 4096, .given = &asked->pp_given, .help = "devices" },
        { "--micro", "M", OPTION_INT, &asked->micro, .min = 1, .max = 1 << 20, .given = &asked->micro_given,
          .help = "microbatches" },
        { "--chunks", "V", OPTION_INT, &asked->chunks, .min = 0, .max = 1024,
          .help = "stages on each device; 0: the schedule's own number" },
        { "--limit", "N", OPTION_INT, &asked->limit, .min = 0, .max = 1 << 20,
          .help = "memory for zb-1p and zb-2p, in microbatches" },
        { "--skip", "N", OPTION_INT, &asked->skip, .min = 0, .max = 4096,
          .help = "stages that a skippipe microbatch skips; 0: a third of the middle ones" },
        { "--update-every", "N", OPTION_INT, &asked->update_every, .min = 0, .max = 1 << 20,
          .help = "microbatches of a pipedream-2bw batch; 0: pp" },
        { .kind = OPTION_HEADING, .help = "Times of a stage, in any unit" },
        { "--F", "T", OPTION_UINT64, &asked->forward, .help = "forward" },
        { "--I", "T", OPTION_UINT64, &asked->backward_input, .help = "backward for the input" },
        { "--W", "T", OPTION_UINT64, &asked->backward_weight, .help = "backward for the weights" },
        { "--comm", "T", OPTION_UINT64, &asked->communication, .help = "a message, from send to arrival" },
        { "--U", "T", OPTION_UINT64, &asked->update, .help = "an optimizer's step inside the schedule" },
        { .kind = OPTION_HEADING, .help = "Output" },
        { "--svg", "FILE", OPTION_STRING, &asked->svg, .help = "also draw to an SVG file" },
        { "--page", "FILE", OPTION_STRING, &asked->page, .help = "also write a page that shows it pass by pass" },
        { "--save", "FILE", OPTION_STRING, &asked->save, .help = "also write the schedule as text" },
        { "--plain", NULL, OPTION_SWITCH, &asked->plain, .help = "no colours" },
        { 0 }
    };
    enum error_code code = parse_command("show schedule", "[NAME|FILE] [options]",
                                         "Draw a pipeline schedule, with its bubble, memory and messages.",
                                         argc, argv, table, done, err);
    const uint64_t times[] = { asked->forward, asked->backward_input, asked->backward_weight, asked->communication,
                              asked->update };
    static const char *const flag[] = { "--F", "--I", "--W", "--comm", "--U" };
    for (int i = 0; code == OK && i < 5; i++)
        if (times[i] > LONGEST)
            code = fail(err, ERR_USAGE, "%s %llu: must be at most 1e11", flag[i], (unsigned long long)times[i]);
    return code;
}

static void list_schedules(FILE *to)
{
    say(to, 0, "Schedules that can be shown. `orrery list schedules` says what each needs and costs.\n");
    for (int i = 0; schedule_generator_at(i); i++) {
        fprintf(to, "  %-13s ", schedule_generator_at(i)->head.name);
        print_wrapped(to, 16, schedule_generator_at(i)->head.description);
    }
    fprintf(to, "\nTry `orrery show schedule zb-h1 --pp 4 --micro 8`.\n");
}

/* A file defines its numbers of devices, microbatches and chunks; given flags must be equal. */
static enum error_code get(struct schedule *schedule, const struct asked *asked, struct error *err)
{
    const bool file = schedule_is_file(asked->name);
    const struct schedule_request q = {
        .devices = file && !asked->pp_given ? 0 : asked->pp, .micros = file && !asked->micro_given ? 0 : asked->micro,
        .chunks = asked->chunks,
        .memory_limit = asked->limit, .update_every = asked->update_every, .skip = asked->skip,
        .forward = (int64_t)asked->forward, .backward_input = (int64_t)asked->backward_input,
        .backward_weight = (int64_t)asked->backward_weight, .communication = (int64_t)asked->communication,
    };
    enum error_code code = schedule_by_name(schedule, asked->name, &q, err);
    if (code == OK && (code = schedule_validate(schedule, err)) != OK) schedule_free(schedule);
    return code;
}

static int64_t busiest(const struct timing *timing)
{
    int64_t most = 0;
    for (int d = 0; d < timing->devices; d++) most = timing->busy[d] > most ? timing->busy[d] : most;
    return most;
}

static void say_numbers(FILE *to, const struct schedule *schedule, const struct timing *timing,
                        const struct asked *asked)
{
    say(to, 0, "\n%s: %d device%s, %d microbatch%s, %d stage%s on each device", schedule->name, schedule->devices,
        plural(schedule->devices), schedule->micros, schedule->micros == 1 ? "" : "es", schedule->chunks,
        plural(schedule->chunks));
    say(to, 12, "  time      %lld, with stage times F %llu, I %llu, W %llu, and %llu for a message",
            (long long)timing->makespan, (unsigned long long)asked->forward, (unsigned long long)asked->backward_input,
            (unsigned long long)asked->backward_weight, (unsigned long long)asked->communication);
    say(to, 12, "  bubble    %.2f %%: %lld of work, in %lld from a device's first action to its last",
            100 * timing->bubble, (long long)busiest(timing), (long long)timing->span);
    if (timing->makespan > timing->span)
        say(to, 12, "            %.2f %% with fill and drain, in %lld", 100 * timing->idle,
            (long long)timing->makespan);
    timeline_say_rest(to, schedule);
}

/* Every pass of every device, for --json. */
static void schedule_add_to_document(const struct schedule *schedule, const struct timing *timing)
{
    cJSON *data = document_data();
    if (data == NULL) return;
    json_add(data, "schedule %s devices %d microbatches %d chunks %d time %g bubble %g idle %g", schedule->name,
             schedule->devices, schedule->micros, schedule->chunks, (double)timing->makespan, timing->bubble,
             timing->idle);
    document_table("passes");
    for (int d = 0; d < schedule->devices; d++)
        for (int i = 0; i < schedule->count[d]; i++) {
            const struct action a = schedule->actions[d][i];
            if (action_is_message(a.kind)) continue;
            json_add(document_row(), "device %d pass %s microbatch %d chunk %d start %g end %g", d,
                     action_letter(a.kind), a.micro, a.chunk, (double)timing->start[d][i], (double)timing->end[d][i]);
        }
}

static enum error_code write_page(const struct asked *asked, const struct schedule *schedule,
                                  const struct timing *timing, struct error *err)
{
    struct film film, *const films[] = { &film };
    enum error_code e = schedule_film(&film, schedule, timing, (int64_t)asked->communication, err);
    if (e == OK) e = page_html_write(asked->page, films, 1, err);
    film_close(&film);
    return e;
}

static enum error_code time_it(struct timing *timing, const struct schedule *schedule, const struct asked *asked,
                               struct error *err)
{
    const struct even_times each = { (int64_t)asked->forward, (int64_t)asked->backward_input,
                                    (int64_t)asked->backward_weight,
                                     (int64_t)asked->communication, (int64_t)asked->update };
    return schedule_time_evenly(timing, schedule, each, err);
}

enum error_code show_schedule(int argc, char **argv, FILE *to, struct error *err)
{
    struct asked a = { .pp = 4, .micro = 8, .forward = 1, .backward_input = 1, .backward_weight = 1 };
    struct schedule s;
    struct timing t;
    bool help = false;
    enum error_code code = schedule_parse(&a, argc, argv, &help, err);
    if (code != OK || help) return code;
    if (a.name == NULL) return list_schedules(to), OK;
    if ((code = get(&s, &a, err)) != OK) return code;
    if ((code = time_it(&t, &s, &a, err)) == OK) {
        schedule_draw_text(to, &s, &t, picture_columns(to), !a.plain && terminal_has_colours(to));
        schedule_add_to_document(&s, &t);
        say_numbers(to, &s, &t, &a);
        fflush(to);                     /* FILE may be the standard output */
        if (a.svg != NULL) code = timeline_to_file(a.svg, &s, &t, false, err);
        if (code == OK && a.page != NULL) code = write_page(&a, &s, &t, err);
        if (code == OK && a.save != NULL) code = timeline_to_file(a.save, &s, NULL, false, err);
        timing_free(&t);
    }
    schedule_free(&s);
    return code;
}
