/* holdings.c -- notes what a device has, and draws a table or boxes of all devices.  The caller, cli/show/plan.c,
 * notes each device and then draws.  Only holdings_svg can fail, with ERR_FILE. */
#include "emulated_devices/draw/holdings.h"
#include "emulated_devices/draw/svg.h"
#include "emulated_devices/plan/sections.h"
#include "ref/io/columns.h"
#include "ref/io/output.h"
#include <string.h>

/* ---- what a device has ------------------------------------------------------------------------------------------- */

/* Add a word behind a comma; where the room ends, ".." says that more follows. */
static void holdings_add(char *to, const char *word)
{
    const size_t used = strlen(to);
    if (used + strlen(word) + 4 < HOLDINGS_TEXT)
        snprintf(to + used, HOLDINGS_TEXT - used, "%s%s", used ? ", " : "", word);
    else if (used < 3 || strcmp(to + used - 2, "..") != 0) snprintf(to + used, HOLDINGS_TEXT - used, "..");
}

/* Add a range as "first-last", or one number; an empty range adds nothing. */
static void add_range(char *to, struct interval interval)
{
    char word[40];
    if (interval.count == 0) return;
    if (interval.count == 1) snprintf(word, sizeof word, "%lld", (long long)interval.first);
    else snprintf(word, sizeof word, "%lld-%lld", (long long)interval.first,
                  (long long)(interval.first + interval.count - 1));
    holdings_add(to, word);
}

/* Note the layers of all chunks of a device, with embedding and loss where the device has them. */
static void note_layers(struct holding *holding, const struct trainer *trainer)
{
    bool first = false, last = false;
    for (int c = 0; c < trainer->plan.chunks; c++) first |= trainer->stage[c].first, last |= trainer->stage[c].last;
    if (first) holdings_add(holding->layers, "embedding");
    for (int c = 0; c < trainer->plan.chunks; c++)
        add_range(holding->layers, (struct interval){ trainer->stage[c].first_layer, trainer->stage[c].layers });
    if (last) holdings_add(holding->layers, "loss");
}

/* Microbatches that follow each other are one range. */
static void note_sequences(struct holding *holding, const struct trainer *trainer)
{
    /* all: the sequences of the last microbatches, as long as these follow each other. */
    struct interval all = { 0, 0 };
    const int dp = mesh_coordinate(&trainer->plan.mesh, trainer->comm->rank, DP);
    for (int m = 0; m < trainer->plan.micros; m++) {
        const struct interval i = plan_sequences(&trainer->plan, dp, m);
        if (all.count > 0 && i.first != all.first + all.count) add_range(holding->sequences, all), all = i;
        else if (all.count == 0) all = i;
        else all.count += i.count;
    }
    add_range(holding->sequences, all);
}

/* Note the tokens of a sequence; schemes that plan by lengths have no fixed part. */
static void note_tokens(struct holding *holding, const struct trainer *trainer)
{
    const struct context_parallel *cp = &trainer->seams.cp;
    struct intervals tokens = { 0 };
    if (cp->scheme == NULL || cp->scheme->cut == NULL) {
        holdings_add(holding->tokens, "by lengths");
        return;
    }
    cp->scheme->cut(&tokens, cp, cp->rank);
    for (int i = 0; i < tokens.count && !intervals_lost(&tokens); i++) add_range(holding->tokens, tokens.at[i]);
    intervals_free(&tokens);
}

/* Note what a device has of one section, or of a plan without sections. */
static void note_section(struct holding *holding, const struct trainer *trainer)
{
    note_layers(holding, trainer);
    add_range(holding->heads, trainer->tensor.heads.queries);
    note_sequences(holding, trainer);
    note_tokens(holding, trainer);
    if (trainer->plan.model.mixture.E > 0)
        add_range(holding->experts, experts_of(&trainer->seams.ep, trainer->seams.ep.rank));
    for (int u = 0; u < trainer->data.units; u++)
        holding->parameters += trainer->data.unit[u].count > 0 ? trainer->data.unit[u].elements : 0;
}

/* Where a device is: its coordinates in each of its sections, one after another. */
static void note_place(struct holding *holding, const struct trainer *section)
{
    char place[HOLDINGS_TEXT];
    holdings_add(holding->place, mesh_describe(&section->plan.mesh, section->comm->rank, place, sizeof place));
}

void holding_note(struct holding *holding, struct trainer *trainer)
{
    struct trainer *section;
    *holding = (struct holding){ .stage = plan_place(&trainer->plan, trainer->comm->rank) };
    for (int i = 0; (section = trainer_section(trainer, i)) != NULL; i++) {
        if (!trainer_takes_part(section)) continue;
        note_place(holding, section);
        note_section(holding, section);
    }
    /* With --slots a device is at another place of the machine than its number. */
    const struct cluster *const cluster = trainer->plan.cluster;
    char slot[40];
    if (cluster == NULL || cluster->slot == NULL) return;
    snprintf(slot, sizeof slot, "place %d", cluster_slot(cluster, trainer->comm->rank));
    holdings_add(holding->place, slot);
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* These columns are texts of a holding, by their offset. */
static const struct { const char *name; size_t at; } column[] = {
    { "layers", offsetof(struct holding, layers) }, { "heads", offsetof(struct holding, heads) },
    { "sequences", offsetof(struct holding, sequences) }, { "tokens", offsetof(struct holding, tokens) },
    { "experts", offsetof(struct holding, experts) },
};
enum { KINDS = sizeof column / sizeof *column };

static const char *holdings_text_of(const struct holding *holding, int kind)
{
    return (const char *)holding + column[kind].at;
}

/* Whether devices differ in it. */
static bool holdings_differs(const struct holdings *holdings, int kind)
{
    for (int d = 1; d < holdings->plan->mesh.devices; d++)
        if (strcmp(holdings_text_of(&holdings->of[d], kind), holdings_text_of(&holdings->of[0], kind)) != 0)
            return true;
    return false;
}

void holding_text(const struct holdings *holdings, int device, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int k = 0; k < KINDS && used < size; k++) {
        const char *const part = holdings_text_of(&holdings->of[device], k);
        if (part[0] == '\0' || !holdings_differs(holdings, k)) continue;
        used += (size_t)snprintf(text + used, size - used, "%s%s %s", used ? "; " : "", column[k].name, part);
    }
}

void holdings_draw(FILE *to, const struct holdings *holdings)
{
    struct columns t = columns_start(to);
    fprintf(to, "%d device%s\n", holdings->plan->mesh.devices, holdings->plan->mesh.devices == 1 ? "" : "s");
    for (int k = 0; k < KINDS; k++)
        if (!holdings_differs(holdings, k) && holdings_text_of(holdings->of, k)[0])
            fprintf(to, "all have %s %s\n", column[k].name, holdings_text_of(holdings->of, k));
    fprintf(to, "\n");
    /* The loop runs twice: the first round measures the columns, the second prints. */
    do {
        columns_add(&t, RIGHT_ALIGNED, "device");
        columns_add(&t, LEFT_ALIGNED, "where");
        for (int k = 0; k < KINDS; k++)
            if (holdings_differs(holdings, k)) columns_add(&t, LEFT_ALIGNED, "%s", column[k].name);
        columns_add(&t, RIGHT_ALIGNED, "parameters");
        columns_end_row(&t);
        for (int d = 0; d < holdings->plan->mesh.devices; d++) {
            columns_add(&t, RIGHT_ALIGNED, "%d", d);
            columns_add(&t, LEFT_ALIGNED, "%s", holdings->of[d].place);
            for (int k = 0; k < KINDS; k++)
                if (holdings_differs(holdings, k))
                    columns_add(&t, LEFT_ALIGNED, "%s", holdings_text_of(&holdings->of[d], k));
            columns_add(&t, RIGHT_ALIGNED, "%lld", (long long)holdings->of[d].parameters);
            columns_end_row(&t);
        }
    } while (columns_again(&t));
}

/* ---- SVG --------------------------------------------------------------------------------------------------------- */

/* Numbers are pixels, but ACROSS: the most boxes in a row. */
enum { MARGIN = 20, TOP = 50, BOX = 190, GAP = 14, LINE = 18, ACROSS = 8 };

/* Each copy of the model has a hue, so devices with the same weights have the same colour. */
static struct colour colour_of(const struct holdings *holdings, int device)
{
    static const int hue[] = { 208, 100, 42, 280, 166, 355, 30, 230 };
    const struct plan *const plan = plan_of_device(holdings->plan, device);
    return (struct colour){ hue[mesh_coordinate(&plan->mesh, device, DP) % 8], 60, 88 };
}

/* Draw one device as a box: number, place, a line for each column in which devices differ, parameters. */
static void draw_device(FILE *to, const struct holdings *holdings, int device, double x, double y, int lines)
{
    const struct holding *h = &holdings->of[device];
    svg_box(to, x, y, BOX, LINE * (lines + 2) + 8, colour_of(holdings, device));
    svg_text(to, x + 8, y + LINE, "start", 14, "device %d", device);
    if (holdings->plan->mesh.devices > 1) svg_text(to, x + BOX - 8, y + LINE, "end", 12, "%s", h->place);
    y += LINE;
    for (int k = 0; k < KINDS; k++)
        if (holdings_differs(holdings, k))
            svg_text(to, x + 8, y += LINE, "start", 12, "%s %s", column[k].name, holdings_text_of(h, k));
    svg_text(to, x + 8, y + LINE, "start", 12, "%lld parameters", (long long)h->parameters);
}

enum error_code holdings_svg(FILE *to, const void *holdings, struct error *err)
{
    const struct holdings *a = holdings;
    /* A stage has `each` devices, in rows of at most ACROSS boxes; stages lie below each other. */
    const int devices = a->plan->mesh.devices, stages = plan_places(a->plan);
    int each = 1;
    for (int t = 0; t < stages; t++)
        if (plan_place_devices(a->plan, t).count > each) each = (int)plan_place_devices(a->plan, t).count;
    const int across = each < ACROSS ? each : ACROSS, down = (each + across - 1) / across;
    int lines = 0, y = TOP;
    /* Every box has the same lines, so all boxes have the same height. */
    for (int k = 0; k < KINDS; k++) lines += holdings_differs(a, k);
    const int height = LINE * (lines + 2) + 8;
    svg_begin(to, 2 * MARGIN + across * (BOX + GAP) - GAP, TOP + stages * down * (height + GAP) + MARGIN - GAP);
    svg_text(to, MARGIN, 30, "start", 16, "%d devices; a colour is a copy of the model", devices);
    for (int s = 0; s < stages; s++) {
        int at = 0;
        for (int d = 0; d < devices; d++)
            if (a->of[d].stage == s) {
                draw_device(to, a, d, MARGIN + at % across * (BOX + GAP), y + at / across * (height + GAP), lines);
                at++;
            }
        y += down * (height + GAP);
    }
    return svg_end(to, "the plan", err);
}
