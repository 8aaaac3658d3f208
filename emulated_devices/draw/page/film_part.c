/* film_part.c -- makes one device's part of a run's film from its trace.  run/session.c calls after the last step that
 * is filmed, run/page.c in a plan.  film_part is local; without memory it returns NULL. */
#include "emulated_devices/plan/sections.h"
#include "emulated_devices/device/streams.h"
#include "emulated_devices/device/trace.h"
#include "emulated_devices/draw/holdings.h"
#include "emulated_devices/draw/page/film_run.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_NAMES = 24, WIDEST = 16 };  /* operations of a pass by name; tiles in a row */

/* ---- the device -------------------------------------------------------------------------------------------------- */

static void add_words(char *to, size_t size, const char *name, const char *what)
{
    const size_t used = strlen(to);
    if (what[0]) snprintf(to + used, size - used, "%s%s %s", used ? "; " : "", name, what);
}

/* A row of tiles is a stage of the pipeline, else a copy of the model; a long row goes on below. */
static void part_tile(struct film_device *device, const struct mesh *mesh, int rank)
{
    const int rows = mesh->size[PP] > 1 ? mesh->size[PP] : mesh->size[DP] < mesh->devices ? mesh->size[DP] : 1;
    const int across = mesh->devices / rows;
    int wide = across;
    while (wide > WIDEST || (rows == 1 && wide * wide > 2 * across)) wide = (wide + 1) / 2;
    const int at = rank % across, high = (across + wide - 1) / wide;
    device->row = rank / across * high + at / wide, device->column = at % wide;
}

/* With sections a row is a stage. */
static void part_stage_tile(struct film_device *device, const struct plan *plan, int rank)
{
    const int stage = plan_place(plan, rank), at = rank - (int)plan_place_devices(plan, stage).first;
    int high = 0;
    for (int s = 0; s < stage; s++) high += ((int)plan_place_devices(plan, s).count + WIDEST - 1) / WIDEST;
    device->row = high + at / WIDEST, device->column = at % WIDEST;
}

static void part_device(struct film *film, struct trainer *trainer)
{
    struct holding h;
    char has[4 * HOLDINGS_TEXT] = "", place[HOLDINGS_TEXT];
    struct film_device d = { .place = place, .has = has };
    holding_note(&h, trainer);
    add_words(has, sizeof has, "layers", h.layers), add_words(has, sizeof has, "heads", h.heads);
    add_words(has, sizeof has, "sequences", h.sequences), add_words(has, sizeof has, "experts", h.experts);
    snprintf(place, sizeof place, "%s", h.place);
    if (trainer->plan.sections) part_stage_tile(&d, &trainer->plan, trainer->comm->rank);
    else part_tile(&d, &trainer->plan.mesh, trainer->comm->rank);
    film_device(film, d);
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* Passes of the pipeline have names by the letters of their actions; the last is outside the pipeline. */
static const struct { const char *letter, *name; } actions[] = {
    { "F", "forward" }, { "B", "backward" }, { "I", "backward for inputs" }, { "W", "backward for weights" },
    { NULL, "optimizer and the rest" },
};
enum { ACTIONS = sizeof actions / sizeof *actions };

/* Operations have formulas, by their names in the trace: a pass says those of the operations that it has. */
static const struct { const char *operation, *formula; } formulas[] = {
    { "linear forward", "Y = X W" }, { "linear backward input", "dX = dY W^T" },
    { "linear backward weight", "dW = X^T dY" }, { "embedding forward", "x = wte[token]" },
    { "embedding backward weight", "dwte[token] += dx" },
    { "cross entropy loss", "loss of a token = log(sum(exp(z))) - z[label]" },
    { "cross entropy backward", "dz = c (softmax(z) - onehot(label)), c = 1 / tokens of a mean" },
};

static int action_of(const struct trace_place *place)
{
    int i = 0;
    while (i < ACTIONS - 1 && (place->pass == NULL || strcmp(actions[i].letter, place->pass) != 0)) i++;
    return i;
}

/* Neighbours on a stream that belong to one pass, microbatch and layer are one pass of the film. */
struct filmed {
    struct film_pass pass;              /* so far */
    struct trace_place place;           /* whose */
    int names;                          /* entries of `sum` */
    struct { const char *name; int64_t count; double flops, bytes; } sum[MOST_NAMES + 1];   /* its operations by name;
                                                                                             * the last: the rest */
    bool open;                          /* there is one */
};

static bool is_computing(int row) { return row == COMPUTE || row == BESIDE; }

/* Work of other streams is additions of collectives, copies, or work of the host. */
static int part_kind(struct film *film, const struct span *span)
{
    if (is_computing(span->row)) {
        const int a = action_of(&span->place);
        return film_kind(film, actions[a].name, actions[a].letter ? actions[a].letter : "U", FILM_COMPUTE);
    }
    if (span->row == FETCH || span->row == FLUSH || span->row == DRIVE)
        return film_kind(film, "copies from and to the host", "C", FILM_MESSAGE);
    if (span->row == HOST || span->row == ISSUE) return film_kind(film, "work of the host", "H", FILM_OTHER);
    return film_kind(film, "additions of collectives", "+", FILM_MESSAGE);
}

static void filmed_add(struct filmed *filmed, const struct span *span)
{
    int k = 0;
    while (k < filmed->names && strcmp(filmed->sum[k].name, span->what.name) != 0) k++;
    if (k == filmed->names && k < MOST_NAMES) filmed->names++, filmed->sum[k].name = span->what.name;
    filmed->sum[k].count++, filmed->sum[k].flops += span->flops, filmed->sum[k].bytes += span->bytes;
}

static void part_formulas(char *text, size_t size, const struct filmed *filmed)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof formulas / sizeof *formulas; i++)
        for (int k = 0; k < filmed->names && k < MOST_NAMES && used < size; k++)
            if (strcmp(filmed->sum[k].name, formulas[i].operation) == 0)
                used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", formulas[i].formula);
}

/* The device's part of a microbatch, if its tokens are equal parts of each sequence.  @return text; "": they are
 * not. */
static const char *part_shape(char *text, size_t size, const struct trainer *trainer, int micro)
{
    const struct plan *const p = plan_of_device(&trainer->plan, trainer->comm->rank);
    const struct context_parallel *const cp = &trainer_of_layer(trainer, (int)plan_layers(p).first)->seams.cp;
    text[0] = '\0';
    if (cp->scheme == NULL || cp->scheme->cut == NULL || p->S % p->mesh.size[CP] != 0) return text;
    const int dp = mesh_coordinate(&p->mesh, trainer->comm->rank, DP);
    const struct interval sequences = plan_sequences(p, dp % plan_parts(p),
                                                     micro >= 0 && micro < p->micros ? micro : 0);
    snprintf(text, size, "[%lld, %lld, %lld]: sequences, tokens, width", (long long)sequences.count,
             (long long)(p->S / p->mesh.size[CP]), (long long)p->model.D);
    return text;
}

/* Title, shape, operations and formula of a pass; passes of equal texts share one. */
static int part_detail(struct film *film, const struct filmed *filmed, const struct trainer *trainer,
                       const struct trace *trace)
{
    const struct trace_text layer = trace_layer_name(trace, &filmed->place);
    const int a = action_of(&filmed->place);
    char text[FILM_TEXT];
    double flops = 0, bytes = 0;
    snprintf(text, sizeof text, "%s%s%s", film->of[filmed->pass.kind].name, layer.text[0] ? " of " : "", layer.text);
    const int detail = film_detail(film, text);
    if (filmed->place.pass && part_shape(text, sizeof text, trainer, filmed->place.micro)[0])
        film_detail_row(film, detail, "microbatch here", text);
    for (int k = 0; k <= filmed->names && k <= MOST_NAMES; k++)
        flops += filmed->sum[k].flops, bytes += filmed->sum[k].bytes;
    film_detail_row(film, detail, "operations", flop_format(flops).text);
    film_detail_row(film, detail, "bytes read and written", size_format((uint64_t)bytes).text);
    part_formulas(text, sizeof text, filmed);
    if (text[0]) film_detail_row(film, detail, "formula", text);
    if (a == ACTIONS - 1 && is_computing((int)filmed->pass.lane))
        film_detail_row(film, detail, "optimizer", trainer->plan.optimizer->name);
    for (int k = 0; k < filmed->names && k < MOST_NAMES; k++) {
        char name[TRACE_NAME + 24];
        snprintf(name, sizeof name, "%s%s%.0lld", filmed->sum[k].name, filmed->sum[k].count > 1 ? " x" : "",
                 (long long)(filmed->sum[k].count > 1 ? filmed->sum[k].count : 0));
        snprintf(text, sizeof text, "%s, %s", flop_format(filmed->sum[k].flops).text,
                 size_format((uint64_t)filmed->sum[k].bytes).text);
        film_detail_row(film, detail, name, text);
    }
    return film_detail_same(film, detail);
}

static void filmed_close(struct film *film, struct filmed *filmed, const struct trainer *trainer,
                         const struct trace *trace)
{
    if (!filmed->open || film->failed) return;
    filmed->pass.detail = part_detail(film, filmed, trainer, trace);
    filmed->pass.lane = film_lane(film, stream_name((enum stream)filmed->pass.lane));
    film_pass(film, filmed->pass);
    filmed->open = false;
}

static bool belongs(const struct filmed *filmed, const struct span *span)
{
    const struct trace_place *a = &filmed->place, *b = &span->place;
    return filmed->open && filmed->pass.end == span->start && a->pass == b->pass && a->micro == b->micro &&
           a->in_layer == b->in_layer && (!a->in_layer || a->layer == b->layer);
}

/* The layer's number for the film: -1 the embedding, -2 none. */
static int part_layer(const struct trace_place *place) { return place->in_layer ? place->layer : -2; }

static void part_passes(struct film *film, const struct trainer *trainer, const struct trace *trace)
{
    struct filmed *const of = calloc(STREAMS, sizeof *of);
    film->failed = film->failed || of == NULL;
    for (size_t i = 0; i < trace->count && !film->failed; i++) {
        const struct span *const s = &trace->span[i];
        if (s->row >= STREAMS || s->end == s->start) continue;
        struct filmed *const f = &of[s->row];
        if (!belongs(f, s)) {
            filmed_close(film, f, trainer, trace);
            memset(f, 0, sizeof *f);
            f->place = s->place, f->open = true;
            f->pass = (struct film_pass){ .device = 0, .lane = s->row, .kind = part_kind(film, s), .start = s->start,
                                          .micro = s->place.pass && is_computing(s->row) ? s->place.micro : -1,
                                          .layer = part_layer(&s->place) };
        }
        f->pass.end = s->end;
        filmed_add(f, s);
    }
    for (int row = 0; row < STREAMS && !film->failed; row++) filmed_close(film, &of[row], trainer, trace);
    free(of);
}

/* ---- messages and memory ----------------------------------------------------------------------------------------- */

static void part_flows(cJSON *flows, struct film *film, const struct trace *trace)
{
    for (size_t i = 0; i < trace->count && !film->failed; i++) {
        const struct span *const s = &trace->span[i];
        if (s->row < STREAMS) continue;
        const double row[] = { (s->row - STREAMS) % 2 == 0, (double)s->what.flow, (double)s->start, (double)s->end,
                               (double)s->what.bytes, film_kind(film, s->what.name, "", FILM_MESSAGE) };
        cJSON_AddItemToArray(flows, cJSON_CreateDoubleArray(row, 6));
        film_end(film, s->end);
    }
}

static void part_memory(struct film *film, const struct trace *trace)
{
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) film_memory_kind(film, arena_tag_name((enum arena_tag)tag));
    for (size_t i = 0; i < trace->memories; i++) {
        struct film_memory m = { .device = 0, .at = trace->memory[i].at };
        for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) m.bytes[tag] = (int64_t)trace->memory[i].use.tag[tag];
        film_memory(film, &m);
    }
}

cJSON *film_part(struct trainer *trainer, const struct trace *trace, const int64_t mark[], int marks)
{
    struct film film;
    cJSON *const part = json_add(cJSON_CreateObject(), "cut %hhd", trace->full);
    cJSON *const flows = cJSON_AddArrayToObject(part, "flows");
    film_open(&film, "run", "ps", "a device");
    part_device(&film, trainer);
    part_passes(&film, trainer, trace);
    part_flows(flows, &film, trace);
    part_memory(&film, trace);
    for (int i = 0; i < marks; i++) film_mark(&film, mark[i]);
    cJSON *const json = film_json(&film);
    if (json) cJSON_AddItemToObject(part, "film", json);
    film_close(&film);
    if (json && flows) return part;
    cJSON_Delete(part);
    return NULL;
}
