/* step.c -- watches a step of one device and draws what the device holds and sends, as text.  The caller,
 * cli/show/step.c, opens a trainer, watches a step and draws.  Nothing here returns an error; a line without memory
 * sets `failed`. */
#include "emulated_devices/draw/step.h"
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/schemes/data/units.h"
#include "ref/io/figures.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <stdlib.h>
#include <string.h>

/* ---- watching ---------------------------------------------------------------------------------------------------- */

/* A unit is a bit of a set; units beyond the 64th are not drawn. */
static uint64_t bit(int unit) { return unit < STEP_UNITS ? UINT64_C(1) << unit : 0; }

/* Begin another line.  Older lines may move; without memory `failed` is set and the result is NULL. */
static struct step_line *new_line(struct step_record *record, int part, enum step_pass pass)
{
    if (record->lines == record->room) {
        const int more = record->room > 0 ? 2 * record->room : 64;
        struct step_line *line = realloc(record->line, (size_t)more * sizeof *line);
        if (line == NULL) return record->failed = true, NULL;
        record->line = line, record->room = more;
    }
    record->line[record->lines] = (struct step_line){ .part = part, .pass = pass };
    return &record->line[record->lines++];
}

/* Whether a call belongs to a pass over a part; the other calls end a step. */
static bool is_pass(enum data_call call) { return call == DATA_ACQUIRED || call == DATA_GRADIENT_BEGUN; }

/* Find the line that a call belongs to.  Gradients of weights are in the line of the same part's backward pass, if
 * that line is the last. */
static struct step_line *step_line_of(struct step_record *record, const struct data_parallel *dp,
                                      enum data_call call, int part)
{
    struct step_line *last = record->lines > 0 ? &record->line[record->lines - 1] : NULL;
    /* The call decides: after the backward passes come reductions, then the update, each in a line of its own. */
    const enum step_pass after = call == DATA_STEPPED ? STEP_UPDATE : STEP_REDUCTIONS;
    /* Sections reduce one after another, and step so: that is one line. */
    if (call == DATA_GRADIENTS_FINISHED || call == DATA_STEPPED)
        return last && last->pass == after ? last : new_line(record, -1, after);
    if (!is_pass(call)) return last;
    if (call == DATA_GRADIENT_BEGUN && last && last->pass == STEP_BACKWARD && last->part == part) return last;
    if (call == DATA_GRADIENT_BEGUN) return new_line(record, part, STEP_WEIGHT_GRADIENTS);
    return new_line(record, part, dp->use[dp->at].pass == PASS_FORWARD ? STEP_FORWARD : STEP_BACKWARD);
}

/* Its units, and which are whole now. */
static void note_units(struct step_record *record, struct step_line *step_line, const struct data_parallel *dp,
                       int part)
{
    int unit[PART_UNITS];
    struct trainer *section;
    for (int k = 0, n = data_units_of_part(dp->config, &dp->request, part, unit); k < n; k++)
        step_line->used |= bit(unit[k]);
    for (int i = 0; (section = trainer_section(record->trainer, i)) != NULL; i++)
        for (int u = 0; u < section->data.units; u++) {
            /* A unit is whole on the device while its gathered weights or its whole gradient have memory. */
            if (section->data.unit[u].w.data != NULL) step_line->weights |= bit(u);
            if (section->data.unit[u].g.data != NULL) step_line->gradients |= bit(u);
        }
}

/* The seam calls this after each of its calls.  The line gets times, units, and the bytes sent since the last call.
 * The peak of memory is that since the last call, so it starts again. */
static void saw(struct data_watch *watch, const struct data_parallel *dp, enum data_call call, int part)
{
    struct step_record *r = (struct step_record *)watch;
    struct device *d = dp->device;
    const int before = r->lines;
    struct step_line *l = step_line_of(r, dp, call, part);
    if (l == NULL) return;
    const struct traffic now = ledger_kind(&dp->group->comm->counted, TRAFFIC_DATA);
    /* A line that is no pass begins where the line before it ended. */
    if (r->lines > before) {
        l->start = l->end = d->clock.now;
        if (!is_pass(call) && r->lines > 1) l->start = r->line[r->lines - 2].end;
    }
    l->end = d->clock.now;
    if (is_pass(call)) note_units(r, l, dp, part);
    l->bytes += now.bytes_sent - r->sent.bytes_sent, l->messages += now.messages_sent - r->sent.messages_sent;
    r->sent = now;
    if (d->arena.peak.total > l->held.total) l->held = d->arena.at_peak;
    arena_reset_peak(&d->arena);
}

/* Watch one section, or a plan without sections.  Units that are never passed on are kept whole from step to step. */
static void watch_section(struct step_record *record, struct data_parallel *dp)
{
    dp->watch = &record->watch;
    for (int u = 0; u < dp->units; u++) {
        if (dp->unit[u].count == 0) continue;
        record->there |= bit(u);
        record->elements += dp->unit[u].elements;
        if (!dp->unit[u].passing_w) record->kept_whole_weights |= bit(u);
        if (!dp->unit[u].passing_g) record->kept_whole_gradients |= bit(u);
    }
}

void step_watch(struct step_record *record, struct trainer *trainer)
{
    struct trainer *section;
    *record = (struct step_record){ .watch = { saw }, .units = trainer->data.units, .trainer = trainer };
    for (int i = 0; (section = trainer_section(trainer, i)) != NULL; i++)
        if (trainer_takes_part(section)) watch_section(record, &section->data);
    /* The lines count from here: earlier messages are taken off. */
    record->sent = ledger_kind(&trainer->comm->counted, TRAFFIC_DATA);
    arena_reset_peak(&trainer->device->arena);
    trainer->device->clock.trace = &record->trace;
}

void step_watched(struct step_record *record, struct trainer *trainer)
{
    record->end = trainer->device->clock.now;
    trainer->device->clock.trace = NULL;
    struct trainer *section;
    for (int i = 0; (section = trainer_section(trainer, i)) != NULL; i++) section->data.watch = NULL;
    record->trainer = NULL;
}

void step_free(struct step_record *record)
{
    free(record->line);
    trace_free(&record->trace);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

const char *step_pass_name(enum step_pass pass)
{
    static const char *const name[] = { "forward", "backward", "gradient", "reductions", "optimizer" };
    return name[pass];
}

const char *step_name(const struct step_drawing *drawing, const struct step_line *step_line, char *out, size_t size)
{
    const char *const pass = step_pass_name(step_line->pass);
    const int64_t L = drawing->plan->model.L;
    if (step_line->part < 0) snprintf(out, size, "%s", pass);
    else if (step_line->part == 0 || step_line->part > L)
        snprintf(out, size, "%-8s  %s", pass, step_line->part == 0 ? "embedding" : "loss");
    else snprintf(out, size, "%-8s  layer %d", pass, step_line->part - 1);
    return out;
}

const struct plan *step_part(const struct step_drawing *drawing, int i)
{
    const struct sections *const all = drawing->plan->sections;
    if (all == NULL) return i == 0 ? drawing->plan : NULL;
    for (int s = 0; s < all->count; s++)
        if (mesh_has(&all->at[s].mesh, drawing->device) && i-- == 0) return &all->at[s];
    return NULL;
}

const char *step_schemes(const struct step_drawing *drawing, char *out, size_t size)
{
    const struct plan *part;
    size_t used = 0;
    out[0] = '\0';
    for (int i = 0; (part = step_part(drawing, i)) != NULL && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%s", i > 0 ? ", " : "", part->data.scheme);
    return out;
}

const char *step_unit(const struct step_drawing *drawing, int unit, char *out, size_t size)
{
    const int64_t L = drawing->plan->model.L;
    if (unit == UNIT_TOKENS) snprintf(out, size, "tok");
    else if (unit == UNIT_POSITIONS) snprintf(out, size, "pos");
    else if (unit < UNIT_BLOCKS + L) snprintf(out, size, "%d", unit - UNIT_BLOCKS);
    else snprintf(out, size, unit == UNIT_BLOCKS + L ? "end" : "+");
    return out;
}

/* All text of these drawings fits into 80 columns. */
enum { WIDE = 80 };

/* ---- who keeps what ---------------------------------------------------------------------------------------------- */

/* The result says which of the parts, in the order of the row, a device keeps. */
static int part_number(struct shards shards, int rank, enum shard_level level, int parts)
{
    shards.rank = rank;
    const int64_t padded = shards_pad(&shards, shards.optimizer);
    return (int)(shards_range(&shards, level, padded).first * parts / padded);
}

/* Print the data scheme's own words on what it sends and holds. */
static void draw_scheme(FILE *to, const struct plan *plan)
{
    const struct data_scheme *s = data_scheme_at(0);
    for (int i = 0; s && strcmp(s->head.name, plan->data.scheme) != 0; i++) s = data_scheme_at(i);
    if (s == NULL) return;
    char text[400];
    snprintf(text, sizeof text, "%s: %s", s->head.name, s->head.description);
    print_wrapped_at(to, 0, WIDE, text);
    fprintf(to, "  sends  "), print_wrapped_at(to, 9, WIDE, s->head.volume);
    fprintf(to, "  holds  "), print_wrapped_at(to, 9, WIDE, s->head.memory);
}

/* Print which part of weights, gradients and states each device along dp keeps, at most 14 devices. */
static void draw_keepers(FILE *to, const struct plan *plan, int device)
{
    struct shards of, *const s = &of;
    if (plan_shards(s, plan, device, false, NULL) != OK) return;
    const struct { const char *name; int parts; enum shard_level level; } kind[] = {
        { "weights", s->weights, BY_WEIGHTS }, { "gradients", s->gradients, BY_GRADIENTS },
        { "optimizer state", s->optimizer, BY_OPTIMIZER },
    };
    const int shown = s->P < 14 ? s->P : 14;
    fprintf(to, "\nwhich part of everything each device along dp keeps from step to step\n\n  %-16s", "device");
    for (int d = 0; d < shown; d++) fprintf(to, "%4d", d);
    fprintf(to, "%s\n", s->P > shown ? " .." : "");
    for (int k = 0; k < 3; k++) {
        fprintf(to, "  %-16s", kind[k].name);
        for (int d = 0; d < shown; d++)
            if (kind[k].parts == 1) fprintf(to, " all");
            else fprintf(to, "%4d", part_number(*s, d, kind[k].level, kind[k].parts));
        fprintf(to, s->P > shown ? " ..\n" : "\n");
    }
}

/* ---- a line for each pass ---------------------------------------------------------------------------------------- */

/* A line has room for eleven units; a drawing has at most sixty lines. */
enum { MOST_UNITS = 11, MOST_LINES = 60 };

/* step_name in 13 columns. */
static const char *short_name(const struct step_drawing *drawing, const struct step_line *step_line,
                              char *out, size_t size)
{
    const char *const pass = step_pass_name(step_line->pass);
    const int64_t L = drawing->plan->model.L;
    if (step_line->part < 0) snprintf(out, size, "%s", pass);
    else if (step_line->part == 0 || step_line->part > L)
        snprintf(out, size, "%-8s %s", pass, step_line->part == 0 ? "tok" : "loss");
    else snprintf(out, size, "%-8s %d", pass, step_line->part - 1);
    return out;
}

/* Print two letters for one unit: its weights, then its gradient.  Capitals are whole, small letters are a part. */
static void draw_cell(FILE *to, const struct step_record *record, const struct step_line *step_line, int u)
{
    const bool cut_w = !(record->kept_whole_weights & bit(u)), cut_g = !(record->kept_whole_gradients & bit(u));
    const bool whole_w = !cut_w || (step_line->weights & bit(u)), whole_g = !cut_g || (step_line->gradients & bit(u));
    fprintf(to, "  %c%c", !whole_w ? 'w' : step_line->used & bit(u) ? 'W' : '=', whole_g ? 'G' : 'g');
}

/* Print the heads of the columns: time, pass, and a name for each unit shown. */
static void draw_heads(FILE *to, const struct step_drawing *drawing, int shown, const char *unit)
{
    fprintf(to, "  %8s  %-13s", unit, "pass");
    for (int u = 0, n = 0; u < drawing->record->units && n < shown; u++) {
        char name[12];
        if (drawing->record->there & bit(u)) fprintf(to, "%4s", step_unit(drawing, u, name, sizeof name)), n++;
    }
    fprintf(to, "  sends\n");
}

/* Print one line: its start, its pass, two letters for each unit, and the bytes that it sends. */
static void draw_line(FILE *to, const struct step_drawing *drawing, const struct step_line *step_line, int shown,
                      const struct figure_scale *scale)
{
    char name[40];
    fprintf(to, "  %8s  %-13s", scale_format(scale, 1e-12 * (double)step_line->start).text,
            short_name(drawing, step_line, name, sizeof name));
    for (int u = 0, n = 0; u < drawing->record->units && n < shown; u++)
        if (drawing->record->there & bit(u)) draw_cell(to, drawing->record, step_line, u), n++;
    if (step_line->bytes > 0) fprintf(to, "  %s", size_format(step_line->bytes).text);
    fprintf(to, "\n");
}

void step_draw_data(FILE *to, const struct step_drawing *drawing)
{
    const struct step_record *r = drawing->record;
    uint64_t bytes = 0, messages = 0;
    int units = 0;
    for (int u = 0; u < r->units; u++) units += (r->there & bit(u)) != 0;
    const int shown = units < MOST_UNITS ? units : MOST_UNITS, lines = r->lines < MOST_LINES ? r->lines : MOST_LINES;
    char text[300];
    const struct plan *part;
    for (int i = 0; (part = step_part(drawing, i)) != NULL; i++) {
        if (i > 0) fprintf(to, "\n");
        if (drawing->plan->sections) section_describe(part, text, sizeof text), print_wrapped_at(to, 0, WIDE, text);
        draw_scheme(to, part), draw_keepers(to, part, drawing->device);
    }
    snprintf(text, sizeof text,
             "a step of device %d, a line for each pass, a column for each group of parameters: those of tokens, of "
             "positions, of each layer, and at the end. W: whole weights, in use; =: whole, not in use; w: its part of "
             "them; G: whole gradient; g: its part", drawing->device);
    fprintf(to, "\n"), print_wrapped_at(to, 0, WIDE, text), fprintf(to, "\n");
    const struct figure_scale scale = time_scale(1e-12 * (double)r->end);
    draw_heads(to, drawing, shown, scale.name);
    for (int i = 0; i < r->lines; i++) {
        bytes += r->line[i].bytes, messages += r->line[i].messages;
        if (i < lines) draw_line(to, drawing, &r->line[i], shown, &scale);
    }
    if (lines < r->lines) fprintf(to, "  .. and %d more passes\n", r->lines - lines);
    if (shown < units) fprintf(to, "  (the first %d of %d groups of parameters)\n", shown, units);
    fprintf(to, "\n  %s, %s sent in %llu messages for weights and gradients\n",
            picoseconds_format((double)r->end).text, size_format(bytes).text, (unsigned long long)messages);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* The longest bar has 40 letters; the letters stand for the arena's tags in their order. */
enum { BAR = 40 };
static const char letter[ARENA_TAG_COUNT] = { 'W', 'G', 'O', 'A', 'B' };

/* The most bytes that any line holds, at least 1, are a whole bar. */
static uint64_t most_held(const struct step_record *record)
{
    uint64_t most = 1;
    for (int i = 0; i < record->lines; i++)
        most = record->line[i].held.total > most ? record->line[i].held.total : most;
    return most;
}

/* As many letters as the largest has columns; a part's letters end where its share of the bar does. */
static void draw_bar(FILE *to, const struct arena_use *held, uint64_t most)
{
    /* Rounding goes by the sum so far, so that all letters together have the length of the whole bar. */
    uint64_t sum = 0;
    int at = 0;
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) {
        sum += held->tag[tag];
        for (const int end = (int)((sum * BAR + most / 2) / most); at < end; at++) fputc(letter[tag], to);
    }
    fprintf(to, "%*s", BAR - at, "");
}

void step_draw_memory(FILE *to, const struct step_drawing *drawing)
{
    const struct step_record *r = drawing->record;
    const uint64_t most = most_held(r);
    /* Long steps have several passes in a line; the line shows the one that holds most. */
    const int group = (r->lines + MOST_LINES - 1) / MOST_LINES;
    char name[40], text[300];
    snprintf(text, sizeof text,
             "what device %d, the fullest of %d, holds, the most in each pass: W weights, G gradients, O optimizer "
             "state, A activations, B buffers; a letter is %s%s", drawing->device, drawing->plan->mesh.devices,
             size_format(most / BAR).text, group > 1 ? "; a line has several passes" : "");
    print_wrapped_at(to, 0, WIDE, text), fprintf(to, "\n");
    for (int i = 0; i < r->lines; i += group) {
        const struct step_line *l = &r->line[i];
        for (int k = i; k < i + group && k < r->lines; k++)
            if (r->line[k].held.total > l->held.total) l = &r->line[k];
        fprintf(to, "  %-19s  ", step_name(drawing, l, name, sizeof name));
        draw_bar(to, &l->held, most);
        fprintf(to, "  %s\n", size_format(l->held.total).text);
    }
}
