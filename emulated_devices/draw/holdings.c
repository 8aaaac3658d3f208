#include "emulated_devices/draw/holdings.h"
#include "emulated_devices/draw/svg.h"
#include "ref/io/columns.h"
#include "ref/io/output.h"
#include <string.h>

/* ---- what a device has ------------------------------------------------------------------------------------------- */

static void add(char *to, const char *word)
{
    const size_t used = strlen(to);
    if (used + strlen(word) + 4 < HOLDINGS_TEXT)
        snprintf(to + used, HOLDINGS_TEXT - used, "%s%s", used ? ", " : "", word);
    else if (used < 3 || strcmp(to + used - 2, "..") != 0) snprintf(to + used, HOLDINGS_TEXT - used, "..");
}

static void add_range(char *to, struct interval i)
{
    char word[40];
    if (i.count == 0) return;
    if (i.count == 1) snprintf(word, sizeof word, "%lld", (long long)i.first);
    else snprintf(word, sizeof word, "%lld-%lld", (long long)i.first, (long long)(i.first + i.count - 1));
    add(to, word);
}

static void note_layers(struct holding *h, const struct trainer *t)
{
    bool first = false, last = false;
    for (int c = 0; c < t->plan.chunks; c++) first |= t->stage[c].first, last |= t->stage[c].last;
    if (first) add(h->layers, "embedding");
    for (int c = 0; c < t->plan.chunks; c++)
        add_range(h->layers, (struct interval){ t->stage[c].first_layer, t->stage[c].layers });
    if (last) add(h->layers, "loss");
}

/* Microbatches that follow each other are one range. */
static void note_sequences(struct holding *h, const struct trainer *t)
{
    struct interval all = { 0, 0 };
    const int dp = mesh_coordinate(&t->plan.mesh, t->comm->rank, DP);
    for (int m = 0; m < t->plan.micros; m++) {
        const struct interval i = plan_sequences(&t->plan, dp, m);
        if (all.count > 0 && i.first != all.first + all.count) add_range(h->sequences, all), all = i;
        else if (all.count == 0) all = i;
        else all.count += i.count;
    }
    add_range(h->sequences, all);
}

static void note_tokens(struct holding *h, const struct trainer *t)
{
    const struct context_parallel *cp = &t->seams.cp;
    struct intervals tokens = { 0 };
    if (cp->scheme == NULL || cp->scheme->cut == NULL) {
        add(h->tokens, "by lengths");
        return;
    }
    cp->scheme->cut(&tokens, cp, cp->rank);
    for (int i = 0; i < tokens.count && !intervals_lost(&tokens); i++) add_range(h->tokens, tokens.at[i]);
    intervals_free(&tokens);
}

void holding_note(struct holding *h, const struct trainer *t)
{
    *h = (struct holding){ .stage = mesh_coordinate(&t->plan.mesh, t->comm->rank, PP) };
    mesh_describe(&t->plan.mesh, t->comm->rank, h->place, sizeof h->place);
    note_layers(h, t);
    add_range(h->heads, t->tensor.heads.queries);
    note_sequences(h, t);
    note_tokens(h, t);
    if (t->plan.model.mixture.E > 0) add_range(h->experts, experts_of(&t->seams.ep, t->seams.ep.rank));
    for (int u = 0; u < t->data.units; u++) h->parameters += t->data.unit[u].count > 0 ? t->data.unit[u].elements : 0;
}

/* ---- text -------------------------------------------------------------------------------------------------------- */

static const struct { const char *name; size_t at; } column[] = {
    { "layers", offsetof(struct holding, layers) }, { "heads", offsetof(struct holding, heads) },
    { "sequences", offsetof(struct holding, sequences) }, { "tokens", offsetof(struct holding, tokens) },
    { "experts", offsetof(struct holding, experts) },
};
enum { KINDS = sizeof column / sizeof *column };

static const char *text_of(const struct holding *h, int kind) { return (const char *)h + column[kind].at; }

/* Whether devices differ in it. */
static bool differs(const struct holdings *a, int kind)
{
    for (int d = 1; d < a->plan->mesh.devices; d++)
        if (strcmp(text_of(&a->of[d], kind), text_of(&a->of[0], kind)) != 0) return true;
    return false;
}

void holdings_draw(FILE *to, const struct holdings *a)
{
    struct columns t = columns_start(to);
    fprintf(to, "%d device%s\n", a->plan->mesh.devices, a->plan->mesh.devices == 1 ? "" : "s");
    for (int k = 0; k < KINDS; k++)
        if (!differs(a, k) && text_of(a->of, k)[0]) fprintf(to, "all have %s %s\n", column[k].name, text_of(a->of, k));
    fprintf(to, "\n");
    do {
        columns_add(&t, RIGHT_ALIGNED, "device");
        columns_add(&t, LEFT_ALIGNED, "where");
        for (int k = 0; k < KINDS; k++)
            if (differs(a, k)) columns_add(&t, LEFT_ALIGNED, "%s", column[k].name);
        columns_add(&t, RIGHT_ALIGNED, "parameters");
        columns_end_row(&t);
        for (int d = 0; d < a->plan->mesh.devices; d++) {
            columns_add(&t, RIGHT_ALIGNED, "%d", d);
            columns_add(&t, LEFT_ALIGNED, "%s", a->of[d].place);
            for (int k = 0; k < KINDS; k++)
                if (differs(a, k)) columns_add(&t, LEFT_ALIGNED, "%s", text_of(&a->of[d], k));
            columns_add(&t, RIGHT_ALIGNED, "%lld", (long long)a->of[d].parameters);
            columns_end_row(&t);
        }
    } while (columns_again(&t));
}

/* ---- SVG --------------------------------------------------------------------------------------------------------- */

enum { MARGIN = 20, TOP = 50, BOX = 190, GAP = 14, LINE = 18, ACROSS = 8 };

/* A hue for each copy of the model, so that who has the same weights has the same colour. */
static struct colour colour_of(const struct holdings *a, int device)
{
    static const int hue[] = { 208, 100, 42, 280, 166, 355, 30, 230 };
    return (struct colour){ hue[mesh_coordinate(&a->plan->mesh, device, DP) % 8], 60, 88 };
}

static void draw_device(FILE *to, const struct holdings *a, int device, double x, double y, int lines)
{
    const struct holding *h = &a->of[device];
    svg_box(to, x, y, BOX, LINE * (lines + 2) + 8, colour_of(a, device));
    svg_text(to, x + 8, y + LINE, "start", 14, "device %d", device);
    if (a->plan->mesh.devices > 1) svg_text(to, x + BOX - 8, y + LINE, "end", 12, "%s", h->place);
    y += LINE;
    for (int k = 0; k < KINDS; k++)
        if (differs(a, k)) svg_text(to, x + 8, y += LINE, "start", 12, "%s %s", column[k].name, text_of(h, k));
    svg_text(to, x + 8, y + LINE, "start", 12, "%lld parameters", (long long)h->parameters);
}

enum error_code holdings_svg(FILE *to, const void *holdings, struct error *err)
{
    const struct holdings *a = holdings;
    const int devices = a->plan->mesh.devices, stages = a->plan->mesh.size[PP], each = devices / stages;
    const int across = each < ACROSS ? each : ACROSS, down = (each + across - 1) / across;
    int lines = 0, y = TOP;
    for (int k = 0; k < KINDS; k++) lines += differs(a, k);
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
