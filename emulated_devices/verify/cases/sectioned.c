/* sectioned.c -- draws plans with sections by counter-based random numbers.
 * verify/jobs/plans.c and tests/devices/test_sections.c call.  A draw that plan_check refuses is drawn again. */
#include "emulated_devices/verify/cases/sectioned.h"
#include "ref/model/kinds.h"
#include "ref/numeric/philox.h"
#include "ref/routers/router.h"
#include <stdlib.h>

/* One stream of drawn numbers. */
struct drawing { uint64_t seed, next; };

/* A number from 0 to n - 1. */
static int draw_below(struct drawing *drawing, int n)
{
    return (int)(random_uniform(drawing->seed, 53, drawing->next++) * n);
}

/* ---- one section ------------------------------------------------------------------------------------------------- */

/* A divisor of n. */
static int draw_divisor(struct drawing *drawing, int n)
{
    int divisor = 1 + draw_below(drawing, n);
    while (n % divisor != 0) divisor = 1 + draw_below(drawing, n);
    return divisor;
}

static const char *draw_word(struct drawing *drawing, const char *const *words, int count)
{
    return words[draw_below(drawing, count)];
}

static void draw_mesh(struct drawing *drawing, struct plan *section, struct interval devices)
{
    int size[AXIS_COUNT] = { [PP] = 1, [EP] = 1 };
    size[TP] = draw_divisor(drawing, (int)devices.count);
    size[CP] = draw_divisor(drawing, (int)devices.count / size[TP]);
    size[DP] = (int)devices.count / size[TP] / size[CP];
    (void)mesh_make(&section->mesh, size, NULL);        /* sizes are positive and their product is small */
    section->mesh.first = (int)devices.first;
}

/* All experts on each device, or parts of them over the section's devices. */
static void draw_experts(struct drawing *drawing, struct plan *section)
{
    static const char *const dispatch[] = { "alltoall", "allgather", "two-step", "tutel", "fssdp", "speculative" };
    const int devices = section->mesh.devices;
    if (devices == 1 || draw_below(drawing, 3) == 0) return;
    section->ep = draw_divisor(drawing, devices);
    section->etp = draw_divisor(drawing, devices / section->ep);
    if (section->ep * section->etp > 1) case_take_experts(section, section->ep, draw_word(drawing, dispatch, 6));
}

static void draw_section(struct drawing *drawing, struct plan *section, struct interval layers,
                         struct interval devices)
{
    static const char *const tensor[] = { "1d", "1d", "1d-sp", "1d-sp-keep", "1d-sp-overlap", "2d" },
        *const attention[] = { "ring-zigzag", "ring", "ulysses", "allgather-kv", "hdp", "flexsp" },
        *const data[] = { "ddp", "zero1", "zero2", "zero3" }, *const recompute[] = { "none", "full", "selective" };
    section->layers = layers;
    draw_mesh(drawing, section, devices);
    section->tensor = section->mesh.size[TP] > 1 ? draw_word(drawing, tensor, 6) : "1d";
    section->attention = section->mesh.size[CP] > 1 && STREAMS(&section->model) == 1
        ? draw_word(drawing, attention, 6) : plan_usual_attention(section);
    section->data.scheme = draw_word(drawing, data, 4);
    section->recompute = section->optimizer->forward_only ? "none" : draw_word(drawing, recompute, 3);
    if (section->model.mixture.E > 0) draw_experts(drawing, section);
}

/* Some sections share rows in proportions; a copy may have none. */
static enum error_code draw_rows(struct drawing *drawing, struct sections *sections, int i, struct error *err)
{
    int rows[MESH_MOST_LISTED];
    const int copies = sections->at[i].mesh.size[DP];
    if (copies == 1 || draw_below(drawing, 3) > 0) return OK;
    for (int k = 0; k < copies; k++) rows[k] = draw_below(drawing, 4);
    rows[draw_below(drawing, copies)] = 3;
    return sections_share_rows(sections, i, rows, err);
}

/* ---- a plan ------------------------------------------------------------------------------------------------------ */

/* Cut n into so many parts of at least 1 each: their ends. */
static void draw_cuts(struct drawing *drawing, int n, int parts, int *end)
{
    int before = 0;
    for (int i = 0; i < parts; i++) {
        const int free = n - before - (parts - i);
        end[i] = i == parts - 1 ? n : before + 1 + draw_below(drawing, free + 1);
        before = end[i];
    }
}

enum { MOST_DRAWN_STAGES = 4, MOST_DRAWN_SECTIONS = 2 * MOST_DRAWN_STAGES };

/* A mixture's router, and which rows a balance loss is of. */
static void draw_mixture(struct drawing *drawing, struct plan *plan)
{
    static const int over[] = { OVER_MICROBATCH, OVER_SEQUENCE, OVER_BATCH },
        layers[] = { LAYERS_EACH, LAYERS_TOGETHER }, choices[] = { CHOICES_ALL, CHOICES_MEAN, CHOICES_FIRST };
    int rules = 0;
    while (routers[rules]) rules++;
    if (draw_below(drawing, 3) == 0) case_take_router(plan, routers[draw_below(drawing, rules)]);
    plan->model.mixture.balance = (struct balance_rule){ over[draw_below(drawing, 3)], layers[draw_below(drawing, 2)],
                                                         choices[draw_below(drawing, 3)] };
}

static void draw_model(struct drawing *drawing, struct plan *plan, int layers, enum exact_rule exact)
{
    static const enum dtype stored[] = { F32, F32, BF16, F16 };
    int models = 0;
    while (case_model_at(models)) models++;
    *plan = case_plan(1, 1, 1);
    plan->model.L = layers, plan->model.tied = draw_below(drawing, 2) == 1;
    case_model_at(draw_below(drawing, models))->take(plan);
    if (plan->model.mlp == MLP_MIXTURE) draw_mixture(drawing, plan);
    if (exact) plan->dtype = stored[draw_below(drawing, 4)], plan->model.exact = exact;
    if (dtype_is_scaled(plan->dtype)) plan->loss_scale = 1024;
}

/* Where weights, gradients and state are, and how they travel: mostly as usual. */
static void draw_storage(struct drawing *drawing, struct plan *plan)
{
    enum { EVERYTHING = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER, SLICE = 100, BLOCK = 100 };
    static const unsigned away[] = { EVERYTHING, 1u << OPTIMIZER, 1u << GRADIENTS | 1u << OPTIMIZER };
    struct data_request *const q = &plan->data;
    const int what = draw_below(drawing, 10);
    q->offload_slice = SLICE;
    if (what == 0) q->offload = away[draw_below(drawing, 3)], q->offload_stride = 1 + 2 * draw_below(drawing, 2);
    if (what == 1) plan->offload_activations = true;
    if (what == 2) q->quantise_weights = (struct block_format){ 8, BLOCK };
    if (what == 2 && draw_below(drawing, 2)) q->quantise_gradients = (struct block_format){ 8, BLOCK };
    q->keep = what == 4;
    if (what == 5) case_take_mezo(plan, 1);
    if (what == 3) {
        const struct optimizer *low_rank[16];
        int count = 0;
        for (int i = 0; optimizers[i] && count < 16; i++)
            if (optimizers[i]->low_rank) low_rank[count++] = optimizers[i];
        if (count > 0) case_take_low_rank(plan, low_rank[draw_below(drawing, count)]);
    }
}

enum { MOST_DRAWN_MICROS = 3 };

/* Two steps of one copy, in which microbatches have no sequence, one or several; made once for each number of them. */
static enum error_code sectioned_take_batches(struct plan *plan, struct error *err)
{
    enum { STEPS = 2, MOST = 6 };
    static struct batch_plan of[MOST_DRAWN_MICROS + 1];
    struct batch_plan *const batches = &of[plan->micros];
    enum error_code e = OK;
    if (batches->steps == 0) {
        int *const sequences = calloc((size_t)(STEPS * plan->micros), sizeof *sequences);
        if (sequences == NULL) return fail(err, ERR_MEMORY, "no memory for a batch plan");
        for (int i = 0; i < STEPS * plan->micros; i++) sequences[i] = (5 + 4 * i) % MOST;
        e = batch_plan_make(batches, STEPS, 1, plan->micros, sequences, err);
    }
    plan->batches = batches;
    plan_take_step(plan, 0);
    return e;
}

/* All sections have the same batch: mostly equal microbatches of whole sequences of text. */
static enum error_code draw_batch(struct drawing *drawing, struct plan *plan, struct sections *sections,
                                  struct error *err)
{
    const int what = draw_below(drawing, 6);
    enum error_code e = OK;
    plan->packed = what == 0;
    if (what == 1) e = sectioned_take_batches(plan, err);
    if (what == 2)
        plan->encoders = (struct encoder_request){ .kinds = 1 + draw_below(drawing, MODALITIES),
                                                   .placement = draw_below(drawing, 2) ? ENCODERS_APART
                                                       : ENCODERS_EVERYWHERE,
                                                   .chunks = 1 + draw_below(drawing, 2), .slack = 50 };
    for (int i = 0; i < sections->count; i++)
        sections->at[i].packed = plan->packed, sections->at[i].batches = plan->batches, sections->at[i].B = plan->B;
    return e;
}

static enum error_code draw_plan(struct drawing *drawing, struct plan *plan, struct sections *sections, int devices,
                                 enum exact_rule exact, struct error *err)
{
    static const char *const schedule[] = { "1f1b", "gpipe", "zb-h1" };
    int device_end[MOST_DRAWN_STAGES], layer_end[MOST_DRAWN_SECTIONS], stage_of[MOST_DRAWN_SECTIONS], count = 0;
    const int most = devices < MOST_DRAWN_STAGES ? devices : MOST_DRAWN_STAGES, stages = 1 + draw_below(drawing, most);
    draw_cuts(drawing, devices, stages, device_end);
    for (int s = 0; s < stages; s++)
        for (int n = 1 + draw_below(drawing, 2); n > 0; n--) stage_of[count++] = s;
    const int layers = count + draw_below(drawing, 3);
    draw_model(drawing, plan, layers, exact);
    draw_storage(drawing, plan);
    plan->micros = 1 + draw_below(drawing, MOST_DRAWN_MICROS);
    plan->schedule = draw_word(drawing, schedule, 3);
    draw_cuts(drawing, layers, count, layer_end);
    enum error_code e = sections_open(sections, plan, count, err);
    for (int i = 0; i < count && !e; i++) {
        const int stage = stage_of[i], first = i > 0 ? layer_end[i - 1] : 0, device = stage > 0 ? device_end[stage - 1]
            : 0;
        draw_section(drawing, &sections->at[i], (struct interval){ first, layer_end[i] - first },
                     (struct interval){ device, device_end[stage] - device });
        e = draw_rows(drawing, sections, i, err);
    }
    plan->sections = sections;
    return e ? e : draw_batch(drawing, plan, sections, err);
}

enum error_code case_draw_sections(struct plan *plan, struct sections *sections, int devices, int draw,
                                   enum exact_rule exact, struct error *err)
{
    enum error_code e = OK;
    for (int try = 0; try < SECTIONED_TRIES; try++) {
        struct drawing drawing = { (uint64_t)draw * SECTIONED_TRIES + (uint64_t)try, (uint64_t)devices * 1000 };
        e = draw_plan(&drawing, plan, sections, devices, exact, err);
        if (e) return e;
        e = plan_check(plan, err);
        if (e != ERR_PLAN) break;
        sections_free(sections);
    }
    return e;
}
