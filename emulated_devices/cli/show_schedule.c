/* show_schedule.c -- draw a schedule and say what it costs. */
#include "emulated_devices/cli/show_schedule.h"
#include "emulated_devices/schemes/pipeline/draw.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "ref/io/options.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COLUMNS = 100 };

struct asked {
    const char *name, *file, *svg, *save;
    int pp, micro, chunks, limit, batch, skip;
    uint64_t forward, backward_input, backward_weight, communication;
    bool plain;
};

static enum error_code parse(struct asked *a, int argc, char **argv, FILE *to, bool *done, struct error *err)
{
    static const uint64_t LONGEST = 100000000000;      /* a tenth of a second: times four million cells it fits in 64 bits */
    const struct option table[] = {
        { "NAME", NULL, OPTION_STRING, &a->name, .help = "a registered schedule; without it, the list of them" },
        { .kind = OPTION_HEADING, .help = "Schedule" },
        { "--pp", "P", OPTION_INT, &a->pp, .min = 1, .max = 4096, .help = "devices" },
        { "--micro", "M", OPTION_INT, &a->micro, .min = 1, .max = 1 << 20, .help = "microbatches" },
        { "--chunks", "V", OPTION_INT, &a->chunks, .min = 0, .max = 1024, .help = "stages on each device; 0: as the schedule has it" },
        { "--limit", "N", OPTION_INT, &a->limit, .min = 0, .max = 1 << 20, .help = "memory for zb-1p and zb-2p, in microbatches" },
        { "--batch", "N", OPTION_INT, &a->batch, .min = 0, .max = 1 << 20, .help = "microbatches of a pipedream-2bw batch" },
        { "--skip", "N", OPTION_INT, &a->skip, .min = 0, .max = 4096, .help = "stages that a skippipe microbatch leaves out" },
        { "--file", "FILE", OPTION_STRING, &a->file, .help = "a schedule of your own instead of NAME" },
        { .kind = OPTION_HEADING, .help = "Times of a stage, in picoseconds" },
        { "--F", "T", OPTION_UINT64, &a->forward, .help = "forward" },
        { "--I", "T", OPTION_UINT64, &a->backward_input, .help = "backward for the input" },
        { "--W", "T", OPTION_UINT64, &a->backward_weight, .help = "backward for the weights" },
        { "--comm", "T", OPTION_UINT64, &a->communication, .help = "a message, from send to arrival" },
        { .kind = OPTION_HEADING, .help = "Output" },
        { "--svg", "FILE", OPTION_STRING, &a->svg, .help = "also draw to an SVG file" },
        { "--save", "FILE", OPTION_STRING, &a->save, .help = "also write the schedule as text" },
        { "--plain", NULL, OPTION_SWITCH, &a->plain, .help = "no colours" },
        { 0 }
    };
    enum error_code code = options_parse("show schedule", argc, argv, table, done, err);
    if (code == OK && *done) options_print_help(to, table);
    const uint64_t times[] = { a->forward, a->backward_input, a->backward_weight, a->communication };
    static const char *const flag[] = { "--F", "--I", "--W", "--comm" };
    for (int i = 0; code == OK && i < 4; i++)
        if (times[i] > LONGEST)
            code = fail(err, ERR_USAGE, "show schedule: %s=%llu must be at most 1e11", flag[i], (unsigned long long)times[i]);
    if (code == OK && a->name != NULL && a->file != NULL)
        code = fail(err, ERR_USAGE, "show schedule: NAME and --file exclude each other");
    return code;
}

static void list_schedules(FILE *to)
{
    fprintf(to, "%-14s %-32s %-38s %s\n", "schedule", "bubble", "memory (microbatches or chunks)", "what");
    for (int i = 0; schedule_generators[i] != NULL; i++) {
        const struct schedule_generator *g = schedule_generators[i];
        fprintf(to, "%-14s %-32s %-38s %s\n", g->name, g->bubble, g->memory, g->description);
    }
}

static enum error_code from_file(struct schedule *s, const char *file, struct error *err)
{
    FILE *f = fopen(file, "r");
    if (f == NULL) return fail(err, ERR_FILE, "%s: cannot be opened: %s", file, strerror(errno));
    enum error_code code = schedule_read(s, f, file, err);
    fclose(f);
    return code;
}

static enum error_code get(struct schedule *s, const struct asked *a, struct error *err)
{
    if (a->file != NULL) return from_file(s, a->file, err);
    const struct schedule_request q = {
        .devices = a->pp, .micros = a->micro, .chunks = a->chunks, .memory_limit = a->limit, .update_every = a->batch, .skip = a->skip,
        .forward = (int64_t)a->forward, .backward_input = (int64_t)a->backward_input,
        .backward_weight = (int64_t)a->backward_weight, .communication = (int64_t)a->communication,
    };
    enum error_code code = schedule_make(s, a->name, &q, err);
    if (code == OK && (code = schedule_validate(s, err)) != OK) schedule_free(s);
    return code;
}

static void say_numbers(FILE *to, const struct schedule *s, const struct timing *t)
{
    fprintf(to, "%s: %d devices, %d microbatches, %d chunk%s a device\n", s->name, s->devices, s->micros, s->chunks,
            s->chunks == 1 ? "" : "s");
    fprintf(to, "time      %lld ps; longest span of a device %lld ps, bubble %.2f %%\n", (long long)t->makespan,
            (long long)t->span, 100 * t->bubble);
    fprintf(to, "memory   ");
    for (int d = 0; d < s->devices && d < 16; d++) fprintf(to, " %d", schedule_peak(s, d));
    fprintf(to, "%s %s held at most, device by device\n", s->devices > 16 ? " ..." : "",
            s->chunks > 1 ? "chunks of microbatches" : "microbatches");
    fprintf(to, "messages  %lld\n", (long long)schedule_messages(s));
    fprintf(to, "weight gradients added in the order of the microbatches: %s\n", schedule_adds_in_order(s) ? "yes" : "no");
    fprintf(to, "runs even if a send blocks until its receive: %s\n", schedule_survives_blocking_sends(s) ? "yes" : "no");
}

/* Written beside and renamed: no half a file under the final name. */
static enum error_code to_file(const char *file, const struct schedule *s, const struct timing *t, struct error *err)
{
    char beside[4096];
    if ((size_t)snprintf(beside, sizeof beside, "%s.part", file) >= sizeof beside)
        return fail(err, ERR_USAGE, "%.60s...: name too long", file);
    FILE *f = fopen(beside, "w");
    if (f == NULL) return fail(err, ERR_FILE, "%s: cannot be written: %s", beside, strerror(errno));
    enum error_code code = t != NULL ? schedule_draw_svg(f, s, t, err) : schedule_write(f, s, err);
    if (fclose(f) != 0 && code == OK) code = fail(err, ERR_FILE, "%s: cannot be written: %s", beside, strerror(errno));
    if (code == OK && rename(beside, file) != 0) code = fail(err, ERR_FILE, "%s: cannot be renamed: %s", beside, strerror(errno));
    if (code != OK) remove(beside);
    return code;
}

static enum error_code time_it(struct timing *t, const struct schedule *s, const struct asked *a, struct error *err)
{
    int64_t *room = malloc(3 * (size_t)s->stages * sizeof *room);
    if (room == NULL) return fail(err, ERR_MEMORY, "schedule %s: no memory to time it", s->name);
    const struct schedule_times times = uniform_times(s->stages, (int64_t)a->forward, (int64_t)a->backward_input,
                                                      (int64_t)a->backward_weight, (int64_t)a->communication, room);
    enum error_code code = schedule_time(t, s, &times, err);
    free(room);
    return code;
}

enum error_code show_schedule(int argc, char **argv, FILE *to, struct error *err)
{
    struct asked a = { .pp = 4, .micro = 8, .forward = 1, .backward_input = 1, .backward_weight = 1 };
    struct schedule s;
    struct timing t;
    bool help = false;
    enum error_code code = parse(&a, argc, argv, to, &help, err);
    if (code != OK || help) return code;
    if (a.name == NULL && a.file == NULL) return list_schedules(to), OK;
    if ((code = get(&s, &a, err)) != OK) return code;
    if ((code = time_it(&t, &s, &a, err)) == OK) {
        schedule_draw_text(to, &s, &t, COLUMNS, !a.plain && isatty(fileno(to)));
        say_numbers(to, &s, &t);
        if (a.svg != NULL) code = to_file(a.svg, &s, &t, err);
        if (code == OK && a.save != NULL) code = to_file(a.save, &s, NULL, err);
        timing_free(&t);
    }
    schedule_free(&s);
    return code;
}
