/* space.c -- the table of all dimensions of the test cases: how each value changes a plan, and the value's name.
 *
 * A dimension is one thing that differs from case to case, such as the mesh, the model or the schedule.  cases.c opens
 * the space and makes plans of choices; verify/jobs/schemes.c asks for names.  covering.c calls space_check through the
 * pointer that cases.c hands to it.
 * space_open reports ERR_MEMORY.  space_check returns ERR_PLAN if plan_check refuses a choice.  A combination that
 * would only waste time is ERR_USAGE.  covering.c leaves out the choice in both cases. */
#include "emulated_devices/verify/cases/space.h"
#include "emulated_devices/schemes/tensor/tensor_sbp.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/model/attention_mask.h"
#include "ref/model/kinds.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    EVERY = (1u << PLAN_KINDS) - 1, ONLY_ATTENTION = 1u << ATTENTION_SCHEME, ONLY_DATA = 1u << DATA_SCHEME,
    ONLY_PIPELINE = 1u << PIPELINE_SCHEME, ONLY_EXPERTS = 1u << EXPERT_SCHEME
};

/* A dimension has these properties. */
struct info {
    const char *name;
    unsigned varies;                    /* kinds of schemes in whose cases it varies */
    int values;                         /* 0: counted in space_open */
    void (*take)(struct plan *, int value);
    void (*take_of)(const struct space *, struct plan *, int value);            /* instead: values of this space */
    const char *format;                 /* of a value's name, for one of the next three; NULL: "%s" */
    const char *const *words;
    const int *numbers;
    const char *(*word)(int value);
    void (*show)(const struct space *, int value, struct value_name *);         /* instead of these */
};

/* ---- mesh -------------------------------------------------------------------------------------------------------- */

/* Experts lie over the devices of other axes. */
static const enum axis axis_of[PLAN_KINDS] = {
    [TENSOR_SCHEME] = TP, [ATTENTION_SCHEME] = CP, [EXPERT_SCHEME] = AXIS_COUNT, [DATA_SCHEME] = DP,
    [PIPELINE_SCHEME] = PP,
};

/* Whether an axis has schemes at all; an axis without any stays at size 1. */
static bool has_schemes(enum axis axis)
{
    for (int k = 0; k < PLAN_KINDS; k++)
        if (axis_of[k] == axis) return scheme_at((enum scheme_kind)k, 0) != NULL;
    return false;
}

/* Whether a table takes another value; otherwise space_open fails, since cases would be left out. */
static bool has_room(struct space *space, const char *table, int used, int most)
{
    if (used >= most && space->full == NULL) space->full = table;
    return used < most;
}

/* Add all ways to split the remaining devices over the axes from this one on. */
static void add_meshes(struct space *space, int size[AXIS_COUNT], int axis, int left)
{
    if (axis == AXIS_COUNT && left == 1 && has_room(space, "meshes", space->meshes, SPACE_MOST_MESHES))
        memcpy(space->mesh[space->meshes++], size, sizeof space->mesh[0]);
    if (axis == AXIS_COUNT) return;
    for (int n = 1; n <= left; n++) {
        if (left % n != 0 || (n > 1 && !has_schemes((enum axis)axis))) continue;
        size[axis] = n;
        add_meshes(space, size, axis + 1, left / n);
    }
}

/* The mesh is the first dimension: it initialises the plan. */
static void take_mesh(const struct space *space, struct plan *plan, int value)
{
    const int *size = space->mesh[value];
    *plan = case_plan(size[DP], size[TP], size[PP]);
    (void)mesh_make(&plan->mesh, size, NULL);
}

/* Describe a mesh by its axes larger than 1: "dp=2 tp=4". */
static void show_mesh(const struct space *space, int value, struct value_name *name)
{
    int used = 0;
    snprintf(name->text, sizeof name->text, "one device");
    for (int a = 0; a < AXIS_COUNT; a++)
        if (space->mesh[value][a] > 1)
            used += snprintf(name->text + used, sizeof name->text - (size_t)used, "%s%s=%d", used ? " " : "",
                             axis_name((enum axis)a), space->mesh[value][a]);
}

/* ---- model ------------------------------------------------------------------------------------------------------- */

static void take_model(struct plan *plan, int value) { case_model_at(value)->take(plan); }
static const char *model_word(int value) { return case_model_at(value)->name; }

static const char *const embeddings[] = { "tied", "untied" };
static void take_embedding(struct plan *plan, int value)
{
    if (value) case_take_dropout(plan);
}

static const char *router_word(int value) { return routers[value]->name; }
static void take_router(struct plan *plan, int value)
{
    if (value) case_take_router(plan, routers[value]);
}

/* Every scope and rule of layers, and every count of choices, with the default first. */
static const struct { const char *name; struct balance_rule rule; } balances[] = {
    { "balance", { OVER_MICROBATCH, LAYERS_TOGETHER, CHOICES_ALL } },
    { "balance in microbatches of each layer", { OVER_MICROBATCH, LAYERS_EACH, CHOICES_MEAN } },
    { "balance in sequences", { OVER_SEQUENCE, LAYERS_TOGETHER, CHOICES_FIRST } },
    { "balance in sequences of each layer", { OVER_SEQUENCE, LAYERS_EACH, CHOICES_ALL } },
    { "balance in the batch", { OVER_BATCH, LAYERS_TOGETHER, CHOICES_ALL } },
    { "balance in the batch of each layer", { OVER_BATCH, LAYERS_EACH, CHOICES_FIRST } },
};
static const char *balance_word(int value) { return balances[value].name; }
static void take_balance(struct plan *plan, int value) { plan->model.mixture.balance = balances[value].rule; }

/* ---- schemes ----------------------------------------------------------------------------------------------------- */

static const char *tensor_word(int value) { return tensor_scheme_at(value)->head.name; }
static void take_tensor(struct plan *plan, int value) { plan->tensor = tensor_word(value); }

static const char *attention_word(int value) { return attention_scheme_at(value)->head.name; }
static void take_attention(struct plan *plan, int value) { plan->attention = attention_word(value); }

static void add_split(struct space *space, struct context_split one)
{
    if (has_room(space, "splits", space->splits, SPACE_MOST_SPLITS)) space->split[space->splits++] = one;
}

/* The default; then every two dimensions of all devices, with one ring and with windows. */
static void add_splits(struct space *space)
{
    add_split(space, (struct context_split){ 0 });
    for (int h = 1; h <= space->devices; h++)
        for (int w = 1, C = space->devices / h; w <= C && space->devices % h == 0; w++) {
            if (C % w != 0 || (w > 1 && w == C)) continue;
            const struct context_split one = { .heads = h, .window = w > 1 ? w : 0 };
            add_split(space, one);
            if (h > 1 && C > 1) add_split(space, (struct context_split){ one.heads, one.window,
                                                                        .context_first = true });
        }
}

static void take_split(const struct space *space, struct plan *plan, int value) { plan->split = space->split[value]; }
/* Describe a split of two dimensions: heads h, windows w, and which dimension is first. */
static void show_split(const struct space *space, int value, struct value_name *name)
{
    const struct context_split split = space->split[value];
    const char *order = split.context_first ? " context-first" : "";
    if (value == 0) snprintf(name->text, sizeof name->text, "split by heads");
    else if (split.window) snprintf(name->text, sizeof name->text, "h=%d w=%d%s", split.heads, split.window, order);
    else snprintf(name->text, sizeof name->text, "h=%d%s", split.heads, order);
}

static void add_expert_form(struct space *space, struct expert_form form)
{
    if (has_room(space, "expert forms", space->expert_forms, SPACE_MOST_EXPERTS))
        space->expert_form[space->expert_forms++] = form;
}

/* Schemes that cut the list of experts, into as many parts as there can be; and with slices of each expert, as few as
 * can be. */
static void add_experts(struct space *space)
{
    for (int i = 0; expert_scheme_at(i); i++) {
        const struct expert_scheme *e = expert_scheme_at(i);
        if (!e->cuts_experts || (space->devices == 1 && i == 1))
            add_expert_form(space, (struct expert_form){ .scheme = e, .ep = 1, .etp = 1, .degree = -1 });
        for (int n = 2, slices = 2; e->cuts_experts && n <= space->devices; n++, slices = 2) {
            while (n % slices != 0) slices++;
            if (space->devices % n != 0) continue;
            add_expert_form(space, (struct expert_form){ .scheme = e, .ep = n, .etp = 1, .degree = -1 });
            add_expert_form(space, (struct expert_form){ .scheme = e, .ep = n / slices, .etp = slices, .degree = -1 });
            /* Two parts, also where a device has no row of some expert in one of them. */
            if (e->has_parts)
                add_expert_form(space, (struct expert_form){ .scheme = e, .ep = n, .etp = 1, .degree = -1,
                                                         .parts = 2 });
            if (e->has_parts)
                add_expert_form(space, (struct expert_form){ .scheme = e, .ep = n / slices, .etp = slices,
                                                             .degree = slices, .parts = 3 });
            if (e->copies) add_expert_form(space, (struct expert_form){ .scheme = e, .ep = n, .etp = 1, .degree = -1,
                                                                          .copying = { .slots = 1, .again = true } });
            for (int degree = 0; degree <= 1 && e->has_degrees; degree++)
                add_expert_form(space, (struct expert_form){ .scheme = e, .ep = n / slices, .etp = slices,
                                                             .degree = degree });
        }
    }
}

/* Set an expert scheme with its parts, slices, degree and copies. */
static void take_experts(const struct space *space, struct plan *plan, int value)
{
    const struct expert_form *f = &space->expert_form[value];
    plan->dispatch = f->scheme->head.name, plan->ep = f->ep, plan->etp = f->etp, plan->degree = f->degree;
    plan->row_parts = f->parts;
    plan->copying = f->copying;
}

/* Describe an expert form: parts, parts x slices, degree r, or copying again. */
static void show_experts(const struct space *space, int value, struct value_name *value_name)
{
    const struct expert_form *f = &space->expert_form[value];
    const char *name = f->scheme->head.name;
    if (f->parts > 1) snprintf(value_name->text, sizeof value_name->text, "%s /%dx%d in %d", name, f->ep, f->etp,
                               f->parts);
    else if (f->degree >= 0) snprintf(value_name->text, sizeof value_name->text, "%s /%dx%d r%d", name, f->ep,
                                 f->etp, f->degree);
    else if (f->copying.again) snprintf(value_name->text, sizeof value_name->text, "%s /%d again", name, f->ep);
    else if (f->etp > 1) snprintf(value_name->text, sizeof value_name->text, "%s /%dx%d", f->scheme->head.name,
                                  f->ep, f->etp);
    else if (f->ep == 1) snprintf(value_name->text, sizeof value_name->text, "%s", f->scheme->head.name);
    else snprintf(value_name->text, sizeof value_name->text, "%s /%d", f->scheme->head.name, f->ep);
}

/* Whether a data scheme with these groups can run on P copies. */
static bool space_takes(const struct data_form *data_form, int P)
{
    const struct data_request q = { .scheme = data_form->scheme->head.name,
                                    .group = data_form->group,
                                    .shards = { data_form->shards[0], data_form->shards[1], data_form->shards[2] } };
    struct shards any;
    return data_shards(&any, &q, P, 0, NULL) == OK;
}

/* Add a data scheme with its groups if some number of copies that divides the devices takes this form. */
static void add_form(struct space *space, struct data_form data_form)
{
    for (int P = 1; P <= space->devices; P++)
        if (space->devices % P == 0 && space_takes(&data_form, P)) {
            if (has_room(space, "data forms", space->forms, SPACE_MOST_FORMS))
                space->form[space->forms++] = data_form;
            return;
        }
}

/* Add every chain w | g | o of group sizes in which each divides the next. */
static void add_chains(struct space *space, const struct data_scheme *scheme)
{
    for (int o = 1; o <= space->devices; o++)
        for (int g = 1; g <= o; g++)
            for (int w = 1; w <= g; w++)
                if (o % g == 0 && g % w == 0)
                    add_form(space, (struct data_form){ .scheme = scheme, .shards = { w, g, o } });
}

/* Each scheme once; with groups of every size if its copies train apart or it needs a group; with every chain if it
 * needs a chain of groups. */
static void add_forms(struct space *space)
{
    for (int i = 0; data_scheme_at(i); i++) {
        const struct data_scheme *d = data_scheme_at(i);
        const int before = space->forms;
        add_form(space, (struct data_form){ .scheme = d });
        for (int n = 2; n < space->devices && (space->forms == before || d->outer.every > 0); n++)
            if (space->devices % n == 0) add_form(space, (struct data_form){ .scheme = d, .group = n });
        if (space->forms == before) add_chains(space, d);
    }
}

static void take_data(const struct space *space, struct plan *plan, int value)
{
    const struct data_form *f = &space->form[value];
    case_take_data(plan, f->scheme);
    plan->data.group = f->group;
    memcpy(plan->data.shards, f->shards, sizeof f->shards);
}

/* Describe a data scheme with its chain "w|g|o" or its group, such as "zero3 /2". */
static void show_data(const struct space *space, int value, struct value_name *value_name)
{
    const struct data_form *f = &space->form[value];
    const char *name = f->scheme->head.name;
    if (f->shards[0]) snprintf(value_name->text, sizeof value_name->text, "%s %d|%d|%d", name, f->shards[0],
                               f->shards[1], f->shards[2]);
    else if (f->group) snprintf(value_name->text, sizeof value_name->text, "%s /%d", name, f->group);
    else snprintf(value_name->text, sizeof value_name->text, "%s", name);
}

static const char *schedule_word(int value) { return schedule_generator_at(value)->head.name; }
/* Set a schedule with its own number of chunks.  In cases of kinds where schedules do not vary the default stays. */
static void take_schedule(const struct space *space, struct plan *plan, int value)
{
    const struct schedule_generator *g = schedule_generator_at(value);
    if (!space_varies(space->kind, DIM_SCHEDULE)) return;
    plan->schedule = g->head.name;
    if (g->chunks) plan->chunks = g->chunks;
    plan->pairs = g->pairs;
}

static const int micros[SPACE_MICROS] = { 2, 4, 1 };
static const int streams[SPACE_MICROS] = { 2, 1, 3 };
static void take_micros(struct plan *plan, int value)
{
    plan->micros = micros[value], plan->receives_ahead = value, plan->comm_streams = streams[value];
}

/* Copies and steps with other numbers of sequences, microbatches without any, and copies without any. */
enum { BATCH_STEPS = 2, BATCH_MOST = 4 };
static enum error_code make_batches(struct batch_plan *plan, int copies, int M, struct error *err)
{
    int *sequences = calloc((size_t)(BATCH_STEPS * copies * M), sizeof *sequences);
    if (sequences == NULL) return fail(err, ERR_MEMORY, "no memory for a batch plan of %d copies", copies);
    for (int s = 0, i = 0; s < BATCH_STEPS; s++)
        for (int c = 0; c < copies; c++)
            for (int m = 0; m < M; m++) sequences[i++] = (1 + s + 3 * c + 2 * m) % BATCH_MOST;
    return batch_plan_make(plan, BATCH_STEPS, copies, M, sequences, err);
}

/* Make a batch plan for each size of dp and number of microbatches.  Sizes that do not divide the devices stay
 * empty. */
static enum error_code add_batches(struct space *space, struct error *err)
{
    enum error_code e = OK;
    space->batches = calloc((size_t)(space->devices * SPACE_MICROS), sizeof *space->batches);
    if (space->batches == NULL) return fail(err, ERR_MEMORY, "no memory for batch plans of %d devices", space->devices);
    for (int dp = 1; dp <= space->devices; dp++)
        for (int i = 0; i < SPACE_MICROS && space->devices % dp == 0 && !e; i++)
            e = make_batches(&space->batches[(dp - 1) * SPACE_MICROS + i], dp, micros[i], err);
    return e;
}

static const char *const batches[] = { "batches even", "batches uneven" };
static void take_batches(const struct space *space, struct plan *plan, int value)
{
    int i = 0;
    if (value == 0) return;
    /* take_micros ran before, so the number is in the table. */
    while (micros[i] != plan->micros) i++;
    plan->batches = &space->batches[(plan->mesh.size[DP] - 1) * SPACE_MICROS + i];
    plan_take_step(plan, 0);
}

static const char *const samples[] = { "whole samples", "packed", "packed, chosen microbatches" };
static void take_samples(struct plan *plan, int value)
{
    plan->packed = value;
    /* One microbatch may hold all samples, so the scheme has a choice, if it chooses at all.  Samples are not cut: with
     * room for one more each, they fit in whatever groups the devices form. */
    if (value == 2) plan->micro_tokens = (uint64_t)(plan->B * plan->S / plan->mesh.size[CP] + plan->S);
}

/* Encoders of every modality, whose embeddings cross in one part or in several. */
static const struct { const char *name; enum encoder_placement placement; int chunks; } clips[] = {
    { "text", ENCODERS_EVERYWHERE, 0 }, { "clips", ENCODERS_EVERYWHERE, 1 }, { "clips apart", ENCODERS_APART, 3 },
};
static const char *clips_word(int value) { return clips[value].name; }
static void take_clips(struct plan *plan, int value)
{
    if (value == 0) return;
    plan->encoders = (struct encoder_request){ .kinds = MODALITIES, .placement = clips[value].placement,
                                               .chunks = clips[value].chunks, .slack = 50 };
}

/* Every mask, with numbers for which sequences of CASE_TOKENS tokens and samples of a few have all its ranges. */
static const struct { const char *name; struct attention_mask mask; } masks[] = {
    { "causal", { .kind = ATTENTION_CAUSAL } },
    { "mask lambda:1,2", { ATTENTION_LAMBDA, { 1, 2 } } },
    { "mask shared-question:2,0.3", { ATTENTION_SHARED_QUESTION, { 2, 0.3 } } },
    { "mask blockwise:2,0", { ATTENTION_BLOCKWISE, { 2, 0 } } },
};
static const char *mask_word(int value) { return masks[value].name; }
static void take_mask(struct plan *plan, int value) { plan->model.mask = masks[value].mask; }

static const char *const chunks[] = { "v=1", "v=2" };
static void take_chunks(struct plan *plan, int value) { plan->chunks = value ? 2 : plan->chunks; }

static const char *const placements[] = { "even", "by speed" };
static void take_placement(struct plan *plan, int value)
{
    if (value) case_take_speeds(plan);
}

/* ---- optimizer and format ---------------------------------------------------------------------------------------- */

/* Plain SGD is first: it hides no constant factor.  A forward_only optimizer has a second value: each half of the
 * copies computes one loss. */
static const struct optimizer *optimizer_at(int value, int *sides)
{
    const struct plan usual = case_plan(1, 1, 1);
    *sides = 1;
    if (value-- == 0) return usual.optimizer;
    for (int i = 0; optimizers[i]; i++)
        for (*sides = 1; optimizers[i] != usual.optimizer && *sides <= 1 + optimizers[i]->forward_only; ++*sides)
            if (value-- == 0) return optimizers[i];
    return NULL;
}

static void take_optimizer(struct plan *plan, int value)
{
    int sides;
    const struct optimizer *o = optimizer_at(value, &sides);
    if (value) case_take_optimizer(plan, o, sides);
}

static void show_optimizer(const struct space *space, int value, struct value_name *name)
{
    int sides;
    const struct optimizer *o = optimizer_at(value, &sides);
    (void)space, snprintf(name->text, sizeof name->text, "%s%s", o->name, sides > 1 ? " /2" : "");
}

static void take_profile(struct plan *plan, int value)
{
    if (value) case_take_profile(plan, value);
}

/* bf16 cases have fp32 gradients; fp16 cases have fp16 gradients if possible.  So both kinds of gradients are
 * tested. */
static const struct { const char *name; enum dtype dtype; enum exact_rule exact; } formats[] = {
    { "fp64", F64, SUMS_ROUND }, { "fp32", F32, SUMS_ROUND }, { "bf16", BF16, SUMS_ROUND }, { "fp16", F16, SUMS_ROUND },
    { "fp32 exact", F32, SUMS_EXACT }, { "bf16 exact", BF16, SUMS_EXACT }, { "fp16 exact", F16, SUMS_EXACT },
    { "fp32 exact2", F32, SUMS_EXACT2 }, { "bf16 exact2", BF16, SUMS_EXACT2 }, { "fp16 exact2", F16, SUMS_EXACT2 },
};
/* The first with exact sums; they lie rule by rule, so many of each. */
enum { FIRST_EXACT = 4, OF_A_RULE = 3 };

/* The value's place in the table: where only exact sums are tried, the first value is theirs. */
static int format_at(const struct space *space, int value)
{
    return value + (space->exact ? FIRST_EXACT + OF_A_RULE * ((int)space->exact - 1) : 0);
}

static void show_format(const struct space *space, int value, struct value_name *name)
{
    snprintf(name->text, sizeof name->text, "%s", formats[format_at(space, value)].name);
}

static void take_format(const struct space *space, struct plan *plan, int value)
{
    const bool projects = plan->optimizer->low_rank, none = plan->optimizer->forward_only;
    const int at = format_at(space, value);
    plan->dtype = formats[at].dtype, plan->model.exact = formats[at].exact;
    if (plan->dtype != F16 || none) return;
    plan->loss_scale = 1024;
    plan->data.narrow_gradients = !projects && !plan->model.exact;
}

static const char *const recomputes[] = { "none", "full", "selective", "selective++" };
static void take_recompute(struct plan *plan, int value) { plan->recompute = recomputes[value]; }

/* ---- how weights, gradients and optimizer state move ------------------------------------------------------------- */

/* Bits of codes of weights and of gradients; the block size divides no tensor. */
static const struct { const char *name; int weights, gradients; } codes[] = {
    { "int0 int0", 0, 0 }, { "int8 int4", 8, 4 }, { "int4 int8", 4, 8 },
};
enum { BLOCK = 100 };
static const char *codes_word(int value) { return codes[value].name; }
static void take_codes(struct plan *plan, int value)
{
    if (value == 0) return;
    plan->data.quantise_weights = (struct block_format){ codes[value].weights, BLOCK };
    plan->data.quantise_gradients = (struct block_format){ codes[value].gradients, BLOCK };
}

/* No offload; everything, stepped by the device; everything, stepped by device and host in turn; optimizer state
 * only; activations; only experts; only their weights; these by choice, in
 * inference. */
enum { OFFLOAD_ALL = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER, SLICE = 100 };
static const struct { const char *name; unsigned what; int stride; bool experts, chosen; } offloads_[] = {
    { "none", 0, 0, false, false }, { "offload", OFFLOAD_ALL, 1, false, false },
    { "offload /3", OFFLOAD_ALL, 3, false, false }, { "offload state", 1u << OPTIMIZER, 1, false, false },
    { "activations", 1u << ACTIVATIONS, 1, false, false }, { "offload experts", OFFLOAD_ALL, 1, true, false },
    { "offload expert weights", 1u << PARAMETERS, 1, true, false },
    { "chosen experts", 1u << PARAMETERS, 1, true, true },
};
static const char *offload_word(int value) { return offloads_[value].name; }
/* In cases of expert schemes the data scheme does not vary; gradients can leave only if they are in shards. */
static void take_offload(const struct space *space, struct plan *plan, int value)
{
    plan->offload_activations = offloads_[value].what == 1u << ACTIVATIONS;
    plan->data.offload = plan->offload_activations ? 0 : offloads_[value].what;
    plan->data.offload_stride = offloads_[value].stride, plan->data.offload_experts = offloads_[value].experts;
    plan->data.offload_slice = SLICE;
    plan->data.chosen = offloads_[value].chosen;
    if (plan->data.chosen) plan->optimizer = &no_optimizer, plan->hyper = no_optimizer.usual;
    if (space->kind == EXPERT_SCHEME && offloads(&plan->data, GRADIENTS)) plan->data.scheme = "zero3";
}

static const int tiles[] = { 1, 3, 5 };
static void take_tiles(struct plan *plan, int value) { plan->data.tiles = tiles[value]; }

static const char *const gatherings[] = { "prefetch", "no prefetch", "kept", "4 streams" };
static void take_gathering(struct plan *plan, int value)
{
    plan->data.no_prefetch = value == 1, plan->data.keep = value == 2;
    if (value == 3) plan->comm_streams = MOST_COMM_STREAMS;
}

static const int buckets[] = { 1000, 20000 };
static void take_bucket(struct plan *plan, int value) { plan->data.bucket = buckets[value]; }

/* ---- all --------------------------------------------------------------------------------------------------------- */

#define LENGTH(a) ((int)(sizeof(a) / sizeof *(a)))

/* In the order in which a plan is built. */
static const struct info info[DIMENSIONS] = {
    [DIM_MESH]      = { "mesh", EVERY, .take_of = take_mesh, .show = show_mesh },
    [DIM_MODEL]     = { "model", EVERY, .take = take_model, .word = model_word },
    [DIM_EMBEDDING] = { "embedding", EVERY, LENGTH(embeddings), take_embedding, .words = embeddings },
    [DIM_ROUTER]    = { "router", ONLY_EXPERTS, .take = take_router, .word = router_word },
    [DIM_BALANCE]   = { "balance", ONLY_EXPERTS | ONLY_PIPELINE, LENGTH(balances), take_balance,
                        .word = balance_word },
    [DIM_TENSOR]    = { "tensor", EVERY, .take = take_tensor, .word = tensor_word },
    [DIM_ATTENTION] = { "attention", EVERY, .take = take_attention, .word = attention_word },
    [DIM_SPLIT]     = { "split", ONLY_ATTENTION, .take_of = take_split, .show = show_split },
    [DIM_EXPERTS]   = { "experts", EVERY, .take_of = take_experts, .show = show_experts },
    [DIM_DATA]      = { "data", ONLY_DATA, .take_of = take_data, .show = show_data },
    [DIM_SCHEDULE]  = { "schedule", ONLY_DATA | ONLY_PIPELINE | ONLY_EXPERTS, .take_of = take_schedule,
                        .word = schedule_word },
    [DIM_MICROS]    = { "microbatches", ONLY_DATA | ONLY_PIPELINE | ONLY_EXPERTS, SPACE_MICROS, take_micros,
                        .format = "M=%d", .numbers = micros },
    [DIM_BATCHES]   = { "batches", ONLY_DATA | ONLY_PIPELINE, LENGTH(batches), .take_of = take_batches,
                        .words = batches },
    [DIM_SAMPLES]   = { "samples", EVERY, LENGTH(samples), take_samples, .words = samples },
    [DIM_CLIPS]     = { "clips", EVERY, LENGTH(clips), take_clips, .word = clips_word },
    [DIM_MASK]      = { "mask", ONLY_ATTENTION, LENGTH(masks), take_mask, .word = mask_word },
    [DIM_CHUNKS]    = { "chunks", ONLY_PIPELINE, LENGTH(chunks), take_chunks, .words = chunks },
    [DIM_PLACEMENT] = { "placement", ONLY_PIPELINE, LENGTH(placements), take_placement, .words = placements },
    [DIM_OPTIMIZER] = { "optimizer", ONLY_DATA, .take = take_optimizer, .show = show_optimizer },
    [DIM_PROFILE]   = { "profile", ONLY_DATA, PROFILES, take_profile, .words = profile_names },
    [DIM_FORMAT]    = { "format", EVERY, LENGTH(formats), .take_of = take_format, .show = show_format },
    [DIM_RECOMPUTE] = { "recompute", EVERY, LENGTH(recomputes), take_recompute, .format = "recompute %s",
                        .words = recomputes },
    [DIM_CODES]     = { "codes", ONLY_DATA, LENGTH(codes), take_codes, .word = codes_word },
    [DIM_OFFLOAD]   = { "offload", ONLY_DATA | ONLY_EXPERTS, LENGTH(offloads_), .take_of = take_offload,
                        .word = offload_word },
    [DIM_TILES]     = { "tiles", ONLY_DATA, LENGTH(tiles), take_tiles, .format = "tiles %d", .numbers = tiles },
    [DIM_GATHERING] = { "gathering", ONLY_DATA, LENGTH(gatherings), take_gathering, .words = gatherings },
    [DIM_BUCKET]    = { "bucket", ONLY_DATA, LENGTH(buckets), take_bucket, .format = "bucket %d", .numbers = buckets },
};

static int count_optimizers(void)
{
    int n = 0, sides;
    while (optimizer_at(n, &sides)) n++;
    return n;
}

static int count_schemes(enum scheme_kind kind)
{
    int n = 0;
    while (scheme_at(kind, n)) n++;
    return n;
}

enum error_code space_open(struct space *space, int devices, enum exact_rule exact, struct error *err)
{
    int size[AXIS_COUNT] = { 0 };
    *space = (struct space){ .devices = devices, .exact = exact };
    /* Schemes that are derived from signatures enter the registry first, so that they become values, too. */
    const enum error_code e = sbp_schemes_add(err);
    if (e) return e;
    add_meshes(space, size, 0, devices);
    add_forms(space);
    add_splits(space);
    add_experts(space);
    if (space->full)
        return fail(err, ERR_PLAN, "%d devices have more %s than the table of cases has room for", devices,
                    space->full);
    for (int d = 0; d < DIMENSIONS; d++) space->values[d] = info[d].values;
    if (exact) space->values[DIM_FORMAT] = OF_A_RULE;
    space->values[DIM_MESH] = space->meshes, space->values[DIM_DATA] = space->forms,
        space->values[DIM_OPTIMIZER] = count_optimizers();
    space->values[DIM_ATTENTION] = count_schemes(ATTENTION_SCHEME), space->values[DIM_SPLIT] = space->splits;
    space->values[DIM_EXPERTS] = space->expert_forms;
    space->values[DIM_TENSOR] = count_schemes(TENSOR_SCHEME),
        space->values[DIM_SCHEDULE] = count_schemes(PIPELINE_SCHEME);
    while (case_model_at(space->values[DIM_MODEL])) space->values[DIM_MODEL]++;
    while (routers[space->values[DIM_ROUTER]]) space->values[DIM_ROUTER]++;
    return add_batches(space, err);
}

void space_close(struct space *space)
{
    for (int i = 0; i < space->devices * SPACE_MICROS && space->batches; i++) batch_plan_free(&space->batches[i]);
    free(space->batches);
    space->batches = NULL;
}

static const enum dimension of_kind[PLAN_KINDS] = {
    [TENSOR_SCHEME] = DIM_TENSOR, [ATTENTION_SCHEME] = DIM_ATTENTION, [EXPERT_SCHEME] = DIM_EXPERTS,
    [DATA_SCHEME] = DIM_DATA, [PIPELINE_SCHEME] = DIM_SCHEDULE,
};
enum dimension space_of_kind(enum scheme_kind kind) { return of_kind[kind]; }

bool space_varies(enum scheme_kind kind, enum dimension dimension) { return info[dimension].varies >> kind & 1
                                                                    || dimension == of_kind[kind]; }
const char *dimension_name(enum dimension dimension) { return info[dimension].name; }

struct value_name space_value(const struct space *space, enum dimension dimension, int value)
{
    const struct info *i = &info[dimension];
    const char *format = i->format ? i->format : "%s";
    struct value_name n;
    if (i->show) i->show(space, value, &n);
    else if (i->numbers) snprintf(n.text, sizeof n.text, format, i->numbers[value]);
    else snprintf(n.text, sizeof n.text, format, i->word ? i->word(value) : i->words[value]);
    return n;
}

struct plan space_plan(const struct space *space, const struct choice *choice)
{
    struct plan p;
    for (int d = 0; d < DIMENSIONS; d++) {
        if (info[d].take) info[d].take(&p, choice->value[d]);
        else info[d].take_of(space, &p, choice->value[d]);
    }
    return p;
}

/* The most devices with 16-bit formats: more would only take longer.  Pipelines are left out, because they do not
 * round. */
enum { MOST_IN_16_BITS = 4 };

/* Whether a choice leaves the experts whole on every device. */
static bool whole_experts(const struct space *space, const struct choice *choice)
{
    const struct expert_form *f = &space->expert_form[choice->value[DIM_EXPERTS]];
    return f->ep * f->etp == 1;
}

enum error_code space_check(const void *context, const struct choice *choice, struct error *err)
{
    const struct space *s = context;
    const int *size = s->mesh[choice->value[DIM_MESH]];
    /* The kind of the cases must split its axis; a kind whose axis has size 1 keeps its default scheme. */
    for (int k = 0; k < PLAN_KINDS; k++) {
        const bool own = k == (int)s->kind;
        const bool splits = k == EXPERT_SCHEME ? !whole_experts(s, choice) : size[axis_of[k]] > 1;
        if (own ? !splits && s->devices > 1 : !splits && of_kind[k] && choice->value[of_kind[k]] != 0)
            return fail(err, ERR_USAGE, "%s is 1", k == EXPERT_SCHEME ? "ep" : axis_name(axis_of[k]));
    }
    const bool narrow = dtype_size(formats[format_at(s, choice->value[DIM_FORMAT])].dtype) == 2;
    if (narrow && (s->devices > MOST_IN_16_BITS || s->kind == PIPELINE_SCHEME))
        return fail(err, ERR_USAGE, "16 bits on fewer devices, and where a format can matter");
    /* The checks below refuse combinations that would repeat another case, or that have nothing to compare. */
    struct plan p = space_plan(s, choice);
    if (p.model.mlp != MLP_MIXTURE && choice->value[DIM_ROUTER])
        return fail(err, ERR_USAGE, "only a mixture has a router");
    if ((p.model.mlp != MLP_MIXTURE || p.model.mixture.balance_coefficient == 0) && choice->value[DIM_BALANCE])
        return fail(err, ERR_USAGE, "only a mixture has a balance loss");
    if (s->kind == EXPERT_SCHEME && choice->value[DIM_OFFLOAD] && !offloads_[choice->value[DIM_OFFLOAD]].experts)
        return fail(err, ERR_USAGE, "only experts leave here; other offloading is in the cases of data schemes");
    if (offloads_[choice->value[DIM_OFFLOAD]].chosen && (choice->value[DIM_OPTIMIZER] || choice->value[DIM_PROFILE]))
        return fail(err, ERR_USAGE, "inference has no optimizer");
    if (p.optimizer->low_rank && p.packed && p.batches)
        return fail(err, ERR_USAGE, "so few tokens see another that a gradient has fewer directions than the rank");
    if (choice->value[DIM_CHUNKS] && schedule_generator_at(choice->value[DIM_SCHEDULE])->chunks)
        return fail(err, ERR_USAGE, "%s says how many stages a device has", p.schedule);
    return plan_check(&p, err);
}

bool space_plain(const struct space *space, const struct choice *choice, struct choice *plain)
{
    uint64_t key, other;
    struct plan p = space_plan(space, choice);
    *plain = *choice;
    if (plan_check(&p, NULL) != OK || case_bits_key(&p, &key, NULL) != OK) return false;
    for (int i = 0; i < 2 * DIMENSIONS; i++) {          /* twice: some can change only after others */
        const int d = i % DIMENSIONS;
        struct choice c = *plain;
        c.value[d] = 0;
        if (plain->value[d] == 0) continue;
        struct plan q = space_plan(space, &c);
        if (plan_check(&q, NULL) == OK && case_bits_key(&q, &other, NULL) == OK && other == key) *plain = c;
    }
    return memcmp(plain, choice, sizeof *choice) != 0;
}
