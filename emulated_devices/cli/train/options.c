/* options.c -- the command line of `orrery train`. */
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const codes[] = { "int8", "int4", NULL };
static const char *const placements[] = { "even", "speed", NULL };

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The batch with which a folder's model was trained, if this program has saved it. */
static enum error_code take_folder(struct train_options *o, struct checkpoint *c, int64_t *batch, struct error *err)
{
    uint64_t found;
    const cJSON *saved = c->there ? cJSON_GetObjectItemCaseSensitive(c->run, "--batch") : NULL;
    if (cJSON_IsString(saved) && size_parse(saved->valuestring, &found) && found > 0 && found <= INT32_MAX)
        *batch = (int64_t)found;
    return checkpoint_config(c, &o->plan.model, err);
}

/* A preset has no weights yet, so it gets positions for longer sequences. */
static enum error_code take_preset(struct train_options *o, const char *model, int seq, int64_t *batch,
                                   struct error *err)
{
    struct model_config *const c = &o->plan.model;
    const enum error_code e = model_config_preset(c, batch, model, err);
    if (!e && seq > c->S) c->S = seq;
    return e;
}

/* --model NAME or DIR; a resumed run uses the checkpoint's, unless one is given, which train_check_saved compares. */
static enum error_code take_model(struct train_options *o, const char *model, int seq, int64_t *batch,
                                  struct error *err)
{
    *batch = 8;
    if (o->resume && model == NULL) return fail_about(err, take_folder(o, &o->saved, batch, err), "--resume");
    if (model == NULL) model = model_presets[0].config.name;
    if (!is_folder(model)) return take_preset(o, model, seq, batch, err);
    struct checkpoint c;
    enum error_code e = checkpoint_open(&c, model, err);
    if (!e) e = take_folder(o, &c, batch, err);
    if (!e && !o->resume) o->model_dir = model, o->saved = c;
    else if (!e) checkpoint_close(&c);
    return fail_about(err, e, "--model");
}

/* Take from the checkpoint what the command line does not give; then compute the remaining steps. */
static enum error_code take_resumed(struct train_options *o, const struct option *table, int argc, char **argv,
                                    int *steps, const int *lr_steps, struct error *err)
{
    if (!is_folder(o->resume))
        return fail(err, ERR_FILE, "--resume %s: there is no such folder", printable_path(o->resume).text);
    enum error_code e = fail_about(err, checkpoint_open(&o->saved, o->resume, err), "--resume");
    if (e) return e;
    if (!o->saved.there)
        return fail(
            err, ERR_FORMAT,
            "--resume %s: not a checkpoint of orrery train --save, without %s; --model DIR takes its weights alone",
            printable_path(o->resume).text, CHECKPOINT_LIST);
    e = fail_about(err, train_take_saved(&o->saved, table, argc, argv, err), "--resume");
    if (e || options_given(argc, argv, "--steps")) return e;
    if (*lr_steps <= o->saved.step)
        return fail(err, ERR_USAGE, "--resume %s: all of its %lld steps are done; --steps N continues for N more",
                    printable_path(o->resume).text, (long long)o->saved.step);
    *steps = *lr_steps - (int)o->saved.step;
    return OK;
}

/* Take from the schedule what the command line does not give: stages per device; from a file, also microbatches. */
static enum error_code take_schedule(struct plan *p, bool chunks_given, bool micro_given, struct error *err)
{
    if (schedule_is_file(p->schedule)) {
        struct plan whatever = *p;
        struct schedule s;
        whatever.mesh.size[PP] = whatever.micros = whatever.chunks = 0;
        enum error_code e = plan_schedule(&whatever, &s, err);
        if (e) return e;
        if (!chunks_given) p->chunks = s.chunks;
        if (!micro_given) p->micros = s.micros;
        schedule_free(&s);
        return OK;
    }
    const struct schedule_generator *g = schedule_generator(p->schedule, err);
    if (g == NULL) return err->code;
    if (g->chunks && !chunks_given) p->chunks = g->chunks;
    return OK;
}

/* A place of the pipeline is as fast as the slowest of its devices. */
static void take_speeds(struct plan *p, const struct cluster *c)
{
    const int inside = p->mesh.devices / p->mesh.size[PP];
    for (int rank = 0; rank < p->mesh.devices; rank++) {
        const int place = mesh_coordinate(&p->mesh, rank, PP), percent = cluster_percent(c, rank);
        if (place < PLAN_MOST_STAGES && (rank % inside == 0 || percent < p->speed[place])) p->speed[place] = percent;
    }
}

/* Read sizes of batches from a file; flags must not give them, too. */
static enum error_code take_batches(struct train_options *o, const char *file, int batch, int micro, struct error *err)
{
    struct plan *p = &o->plan;
    const char *flag = batch ? "--batch" : micro ? "--micro" : o->golden ? "--check FILE" : NULL;
    if (flag)
        return fail(err, ERR_USAGE, "%s: --batches %s says how many sequences there are", flag,
                    printable_path(file).text);
    if (batch_plan_load(&o->batches, file, err)) return fail_about(err, ERR_USAGE, "--batches");
    p->batches = &o->batches;
    p->micros = o->batches.micros;
    plan_take_step(p, 0);
    return OK;
}

/* Flags of data parallelism that are not stored in the request directly. */
struct data_flags {
    const char *scheme, *shards, *weights, *gradients;
    int zero, block, local_steps;
    bool reshard, prefetch, block_given, momentum_given;
};

static int bits_of(const char *code) { return code == NULL ? 0 : strcmp(code, "int8") == 0 ? 8 : 4; }

static enum error_code take_data(struct data_request *q, const struct data_flags *f, struct error *err)
{
    static const char *const stage[] = { "ddp", "zero1", "zero2", "zero3" };
    int used = 0;
    if (f->zero >= 0 && f->scheme && strcmp(f->scheme, stage[f->zero]) != 0)
        return fail(err, ERR_USAGE, "--zero %d: is %s; --data-parallel says %s", f->zero, stage[f->zero], f->scheme);
    if (f->zero >= 0) q->scheme = stage[f->zero];
    else if (f->scheme) q->scheme = f->scheme;
    else if (f->shards) q->scheme = "chain";
    q->outer.every = f->local_steps;
    const struct outer outer = data_outer(q);
    const bool apart = outer.every > 0;
    if (f->momentum_given && q->outer.momentum == 0 && outer_has_momentum(&outer))
        return fail(err, ERR_USAGE, "--outer-momentum 0: without momentum %s is --data-parallel local-sgd", q->scheme);
    if (f->shards && strcmp(q->scheme, "chain") != 0 && strcmp(q->scheme, "buff") != 0 && !apart)
        return fail(err, ERR_USAGE, "--shards %s: is for --data-parallel chain, buff and copies that train apart, not "
                    "%s", f->shards, q->scheme);
    if (f->shards && (sscanf(f->shards, "%4d,%4d,%4d%n", &q->shards[0], &q->shards[1], &q->shards[2], &used) != 3 ||
                      f->shards[used] != '\0' || q->shards[0] < 1 || q->shards[1] < 1 || q->shards[2] < 1))
        return fail(err, ERR_USAGE, "--shards %s: three numbers of devices, such as 2,4,8", f->shards);
    q->keep = !f->reshard;
    q->no_prefetch = !f->prefetch;
    q->quantise_weights = (struct block_format){ bits_of(f->weights), f->block };
    q->quantise_gradients = (struct block_format){ bits_of(f->gradients), f->block };
    if (f->block_given && !data_quantises(q))
        return fail(err, ERR_USAGE, "--quantize-block %d: is for --quantize-weights and --quantize-gradients",
                    f->block);
    return OK;
}

/* Flags of low-rank optimizers; 0, below 0: not given. */
struct low_rank_flags { int rank, refresh, history; double scale, damping; };

/* Defaults: the optimizer's numbers, and a quarter of the model's width as rank. */
static enum error_code take_low_rank(struct plan *p, const struct low_rank_flags *f, struct error *err)
{
    const char *const flag = f->rank ? "--rank" : f->refresh ? "--refresh" : f->scale >= 0 ? "--galore-scale"
                           : f->history ? "--history" : f->damping >= 0 ? "--damping" : NULL;
    if (flag && !p->optimizer->low_rank)
        return fail(err, ERR_USAGE, "%s: is for --optimizer galore and natural-galore, not %s", flag,
                    p->optimizer->name);
    if (!p->optimizer->low_rank) return OK;
    if (!p->optimizer->natural && (f->history || f->damping >= 0))
        return fail(err, ERR_USAGE, "%s: is for --optimizer natural-galore, not %s",
                    f->history ? "--history" : "--damping", p->optimizer->name);
    struct hyperparameters *h = &p->hyper;
    h->rank = f->rank ? f->rank : p->model.D >= 8 ? p->model.D / 4 : 1;
    if (f->refresh) h->refresh = f->refresh;
    if (f->scale >= 0) h->galore_scale = f->scale;
    if (f->history) h->history = f->history;
    if (f->damping >= 0) h->damping = f->damping;
    return OK;
}

/* Gradients have the model's format; with 16-bit weights they may be fp32. */
static enum error_code take_formats(struct train_options *o, const char *gradients, struct error *err)
{
    const enum dtype own = o->plan.dtype, wide = dtype_wide(own), asked = gradients ? dtype_by_name(gradients) : wide;
    if (asked != own && asked != wide)
        return fail(err, ERR_USAGE, "--grad-dtype %s: gradients of a model in %s are kept in %s%s", gradients,
                    dtype_name(own), dtype_name(wide), own == wide ? " too" : " or in its own format");
    if (o->golden && data_quantises(&o->plan.data))
        return fail(err, ERR_USAGE,
                    "--check %s: golden files are not quantised; use --check ref, which quantises as the devices do",
                    printable_path(o->check).text);
    o->plan.data.narrow_gradients = asked != wide;
    return OK;
}

/* The distance of an optimizer that uses only losses; refuses flags that clash with it and are not in the plan. */
static enum error_code take_distance(struct train_options *o, double distance, bool gradients_given, struct error *err)
{
    struct plan *p = &o->plan;
    const char *const name = p->optimizer->name;
    if (distance >= 0) p->hyper.distance = distance;
    if (p->optimizer->infers) return OK;
    if (!p->optimizer->forward_only)
        return distance < 0
                   ? OK
                   : fail(err, ERR_USAGE, "--mezo-eps %g: is for --optimizer mezo; %s has gradients", distance, name);
    if (gradients_given) return fail(err, ERR_USAGE, "--grad-dtype: --optimizer %s has no gradients", name);
    if (o->golden)
        return fail(err, ERR_USAGE, "--check %s: golden files have no steps of %s; use --check ref",
                    printable_path(o->check).text, name);
    if (o->isolate)
        return fail(err, ERR_USAGE,
                    "--isolate: with --optimizer %s only losses and weights are compared, no activations", name);
    if (o->timeline)
        return fail(err, ERR_USAGE,
                    "--timeline %s: draws forward and backward passes; for --optimizer %s use --trace FILE",
                    printable_path(o->timeline).text, name);
    return OK;
}

void train_set_rates(struct hyperparameters *h, const struct train_options *o, int64_t first_step)
{
    const int64_t updates = o->plan.updates;            /* the optimizer counts its own steps */
    h->steps = updates * (o->lr_steps ? o->lr_steps : first_step + o->steps);
    h->warmup = o->warmup >= 0 ? updates * o->warmup : h->steps / 10;
}

/* Refuse flags that need numbers, if the backend has none. */
static enum error_code refuse_numbers(const struct train_options *o, const char *backend, struct error *err)
{
    const char *flag = o->check ? "--check" : o->save ? "--save" : o->dump ? "--dump" : o->sample ? "--sample" : NULL;
    return flag ? fail(err, ERR_USAGE, "%s: the backend %s only counts, and has no numbers", flag, backend) : OK;
}

/* Experts lie over the devices of a stage.  If these are too few, each copy's part of the batch is cut further. */
static void take_experts(struct plan *p, const char *dispatch, int size[AXIS_COUNT])
{
    const int n = p->ep <= MESH_MOST_DEVICES / p->etp ? p->ep * p->etp : MESH_MOST_DEVICES;
    if (size[DP] * size[CP] * size[TP] % n != 0 && size[DP] <= MESH_MOST_DEVICES / n) size[DP] *= n;
    p->dispatch = dispatch ? dispatch : expert_scheme_at(n > 1)->head.name;
}

/* Where speculative dispatch expects the experts of each token. */
static enum error_code take_affinity(struct train_options *o, const char *file, struct error *err)
{
    struct plan *p = &o->plan;
    const struct expert_scheme *s;
    const enum error_code e = file ? OK : expert_scheme_find(&s, p->dispatch, err);
    if (e || (!file && !s->predicts)) return e;
    if (!file)
        return fail(err, ERR_USAGE, "--dispatch %s: needs --affinity FILE, which `orrery affinity` makes", p->dispatch);
    if (affinity_read(&o->affinity, file, err)) return fail_about(err, ERR_USAGE, "--affinity");
    p->affinity = &o->affinity;
    return OK;
}

static const char *const encoder_places[] = { "everywhere", "apart", NULL };

static enum error_code take_encoders(struct train_options *o, const char *where, struct error *err)
{
    struct encoder_request *r = &o->plan.encoders;
    const bool apart = where && strcmp(where, "apart") == 0;
    r->placement = apart ? ENCODERS_APART : ENCODERS_EVERYWHERE;
    if (r->kinds == 0 && (where || r->chunks > 0 || r->slack > 0))
        return fail(err, ERR_USAGE, "%s: needs --modalities", where ? "--encoders" : r->chunks ? "--bridge-chunks"
                                                                                            : "--encoder-slack");
    if (r->kinds > 0 && (o->save || o->resume || o->golden))
        return fail(err, ERR_USAGE, "--modalities: encoders are neither saved nor read: not with %s",
                    o->save ? "--save" : o->resume ? "--resume" : "--check of a file");
    return OK;
}

static enum error_code take_owners(struct train_options *o, const char *file, struct error *err)
{
    struct plan *p = &o->plan;
    const struct expert_scheme *s;
    const enum error_code e = expert_scheme_find(&s, p->dispatch, err);
    if (e || (!file && !o->owners_out)) return e;
    if (!s->copies)
        return fail(err, ERR_USAGE, "%s: --dispatch %s copies no experts; fssdp does",
                    file ? "--owners" : "--owners-out", p->dispatch);
    if (file && expert_owners_read(&o->owners, file, err)) return fail_about(err, ERR_USAGE, "--owners");
    if (file) p->owners = &o->owners;
    return OK;
}

static const char *usual_attention(const struct plan *p)
{
    if (p->mesh.size[CP] == 1) return attention_scheme_at(0)->head.name;
    return STREAMS(&p->model) > 1 ? "streams" : "ring-zigzag";
}

static bool is_one_of(const char *const *names, const struct option *o)
{
    for (; names && *names && o->name; names++)
        if (strcmp(o->name, *names) == 0) return true;
    return false;
}

/* The options that a command has, in memory for free(); headings without options are left out. */
static struct option *options_of(const struct run_kind *kind, const struct option *all, struct error *err)
{
    size_t n = 0, kept = 0;
    while (all[n].kind != OPTION_END) n++;
    struct option *table = calloc(n + 1, sizeof *table);
    if (table == NULL) {
        fail(err, ERR_MEMORY, "no memory for a table of %zu options", n);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        if (is_one_of(kind->without, &all[i])) continue;
        if (all[i].kind == OPTION_HEADING && kept > 0 && table[kept - 1].kind == OPTION_HEADING) kept--;
        table[kept++] = all[i];
    }
    return table;
}

static enum error_code parse(struct train_options *o, const struct run_kind *kind, const struct option *all, int argc,
                             char **argv, struct error *err)
{
    struct option *const own = options_of(kind, all, err);
    if (own == NULL) return ERR_MEMORY;
    const enum error_code e = parse_command(kind->command, "[options]", kind->what, argc, argv, own, &o->help, err);
    free(own);
    return e;
}

static const char *const of_plans[] = { "--unfolded", NULL };

const struct run_kind run_train = { .command = "train", .steps = 100, .without = of_plans,
                                    .what = "Train a model on a mesh of emulated devices." };

enum error_code train_parse(struct train_options *o, const struct run_kind *kind, int argc, char **argv,
                            struct error *err)
{
    const char *attention = NULL, *dispatch = NULL, *affinity = NULL, *owners = NULL, *encoders = NULL;
    const char *batches = NULL, *model = NULL, *backend = NULL, *grad_dtype = NULL, *placement = placements[0],
               *dtype = "fp32", *cluster = CLUSTER_USUAL, *optimizer = "adamw", *as = NULL;
    int size[AXIS_COUNT] = { 1, 1, 1, 1, 1 }, batch = 0, seq = 0, micro = 0, steps = kind->steps, warmup = -1,
        lr_steps = 0;
    double lr = -1, min_lr = -1, clip = -1, decay = -1, dropout = -1, distance = -1, limit = wait_limit(WAIT_LIMIT);
    uint64_t bucket = 25 << 20;
    bool untied = false, chunks_given = false;
    struct offload_flags offload = { 0 };
    struct model_flags changed = { .speed = -1, .shared = -1 };
    struct data_flags data = { .zero = -1, .block = 256, .reshard = true, .prefetch = true };
    struct low_rank_flags low_rank = { .scale = -1, .damping = -1 };
    *o = (struct train_options){ .trace_steps = 2,
                                 .plan = { .seed = 42, .chunks = 1, .tensor = tensor_scheme_at(0)->head.name,
                                           .attention = attention_scheme_at(0)->head.name,
                                           .ep = 1, .etp = 1, .degree = -1,
                                           .data = { .scheme = data_scheme_at(0)->head.name },
                                           .schedule = schedule_generator_at(0)->head.name,
                                           .allreduce = algorithm_find(ALLREDUCE, NULL)->name } };
    const struct option table[] = {
        { .kind = OPTION_HEADING, .help = "Mesh: how many devices along each axis" },
        { "--dp", "N", OPTION_INT, &size[DP], .min = 1, .max = MESH_MOST_DEVICES,
          .help = "copies of the model, each with its part of the batch" },
        { "--tp", "N", OPTION_INT, &size[TP], .min = 1, .max = MESH_MOST_DEVICES, .help = "parts of each layer" },
        { "--pp", "N", OPTION_INT, &size[PP], .min = 1, .max = MESH_MOST_DEVICES, .help = "pipeline stages" },
        { "--cp", "N", OPTION_INT, &size[CP], .min = 1, .max = MESH_MOST_DEVICES, .help = "parts of each sequence" },
        { "--ep", "N", OPTION_INT, &o->plan.ep, .min = 1, .max = MESH_MOST_DEVICES,
          .help = "parts of each layer's experts, over the devices of a stage, whatever they are along dp, cp and tp; "
                  "if it does not divide their number, dp is taken so many times" },
        { "--etp", "N", OPTION_INT, &o->plan.etp, .min = 1, .max = MESH_MOST_DEVICES,
          .help = "parts of each expert, over the devices of a stage, as with --ep" },
        { .kind = OPTION_HEADING, .help = "Schemes, by their names in `orrery list`" },
        { "--tensor", "NAME", OPTION_STRING, &o->plan.tensor, .help = "how layers are split over tp" },
        { "--attention", "NAME", OPTION_STRING, &attention,
          .help = "how sequences are split over cp; default: whole, with --cp ring-zigzag" },
        CONTEXT_SPLIT_OPTIONS(o->plan.split),
        { "--dispatch", "NAME", OPTION_STRING, &dispatch,
          .help = "how experts are split over ep and etp; default: here, with --ep or --etp alltoall" },
        { "--degree", "R", OPTION_INT, &o->plan.degree, .min = 0, .max = 4096,
          .help = "for tutel: 0: weights move, not rows; R, a divisor of etp: each row is computed by R devices; "
                  "default: what sends least" },
        { "--copies", "M", OPTION_INT, &o->plan.copying.slots, .min = 1, .max = 4096,
          .help = "for fssdp: copies of other devices' experts that a device has room for in each layer; default: 1" },
        { "--copies-to-all", "T", OPTION_INT, &o->plan.copying.top, .min = 1, .max = 4096,
          .help = "for fssdp: if T is at most M, the T experts with the most load go to all devices; default: each of "
                  "the M in proportion to load" },
        { "--copy-again", NULL, OPTION_SWITCH, &o->plan.copying.again,
          .help = "for fssdp: drop copies after the forward pass, and send them again for the backward pass" },
        { "--experts-wait", NULL, OPTION_SWITCH, &o->plan.experts_wait,
          .help = "for a mixture on a shortcut: wait for rows at once, not while the blocks beside it compute" },
        { "--owners", "FILE", OPTION_STRING, &owners,
          .help = "for fssdp: which device owns which expert of each layer, as --owners-out writes it; default: the "
                  "nth device has the nth range of each layer" },
        { "--affinity", "FILE", OPTION_STRING, &affinity,
          .help = "for speculative: where the experts of each token are likely to be, as `orrery affinity` writes it" },
        { "--recompute", "WHAT", OPTION_STRING, &o->plan.recompute,
          .help = "activations to recompute in backward: none, selective, selective++ (all but attention), full, or "
                  "a list of layers to recompute in full, such as 0,2-5" },
        { "--schedule", "NAME|FILE", OPTION_STRING, &o->plan.schedule,
          .help = "order of microbatches in the pipeline: registered, or your own" },
        { "--chunks", "N", OPTION_INT, &o->plan.chunks, .min = 1, .max = 64, .given = &chunks_given,
          .help = "stages on each device of the pipeline" },
        { "--placement", "NAME", OPTION_CHOICE, &placement, .choices = placements,
          .help = "layers over stages: evenly, or in proportion to the speed of the cluster's devices" },
        { "--skip", "N", OPTION_INT, &o->plan.skip, .min = 0, .max = 4096,
          .help = "stages that a skippipe microbatch skips; 0: a third of the middle ones" },
        { "--update-every", "N", OPTION_INT, &o->plan.update_every, .min = 0, .max = 1e6,
          .help = "microbatches of a pipedream-2bw batch; 0: pp" },
        { "--allreduce", "NAME", OPTION_STRING, &o->plan.allreduce,
          .help = "algorithm of all all-reduces, but of losses and norms; those that add in the order of ranks, such "
                  "as the default, keep copies and schemes bitwise equal; auto: the least time (orrery list "
                  "collectives)" },
        { .kind = OPTION_HEADING, .help = "Inputs that are not text" },
        { "--modalities", "N", OPTION_INT, &o->plan.encoders.kinds, .min = 0, .max = MODALITIES,
          .help = "drawn images; and audio; and video; each with an encoder" },
        { "--encoders", "WHERE", OPTION_CHOICE, &encoders, .choices = encoder_places,
          .help = "devices with an encoder, all by default, or some for each modality" },
        { "--bridge-chunks", "N", OPTION_INT, &o->plan.encoders.chunks, .min = 1, .max = 4096,
          .help = "in which embeddings travel to the language model, and their gradients back; default: 1" },
        { "--encoder-slack", "PCT", OPTION_INT, &o->plan.encoders.slack, .min = 0, .max = 1000,
          .help = "a clip is encoded where its embeddings are needed, unless that device has so many percent of the "
                  "longest clip more to do than the least loaded; default: 0" },
        { .kind = OPTION_HEADING,
          .help = "Data parallelism: which device keeps which weights, gradients and optimizer state" },
        { "--data-parallel", "NAME", OPTION_STRING, &data.scheme,
          .help = "the scheme, by its name in `orrery list data`; default: ddp" },
        { "--zero", "STAGE", OPTION_INT, &data.zero, .min = 0, .max = 3,
          .help = "short for --data-parallel: 0 is ddp, 1 to 3 are zero1 to zero3; default: not used" },
        { "--shard-group", "N", OPTION_INT, &o->plan.data.group, .min = 1, .max = 4096,
          .help = "number of neighbours along dp that share what the scheme shards; default: all; for buff --cp" },
        { "--shards", "W,G,O", OPTION_STRING, &data.shards,
          .help = "for chain, buff, and copies that train apart: how many devices share weights, gradients, "
                  "optimizer state" },
        { "--local-steps", "H", OPTION_INT, &data.local_steps, .min = 1, .max = 1e9,
          .help = "for copies that train apart: steps between two outer steps; default: the scheme's, as in "
                  "`orrery list data`" },
        { "--outer-lr", "RATE", OPTION_DOUBLE, &o->plan.data.outer.lr, .min = 1e-9, .max = 1e6,
          .help = "learning rate of the outer step; default: the scheme's" },
        { "--outer-momentum", "M", OPTION_DOUBLE, &o->plan.data.outer.momentum, .min = 0, .max = 0.999,
          .given = &data.momentum_given,
          .help = "momentum of the outer step, where the scheme's has one; default: the scheme's" },
        { "--reshard-after-forward", "yes|no", OPTION_BOOL, &data.reshard,
          .help = "drop gathered weights after forward, and gather them again for backward" },
        { "--prefetch", "yes|no", OPTION_BOOL, &data.prefetch,
          .help = "gather the next part's weights while the current one computes" },
        { "--tiles", "T", OPTION_INT, &o->plan.data.tiles, .min = 1, .max = 1e6,
          .help = "cut each matrix into T ranges of outputs, which are gathered, used and reduced one after the "
                  "other; default: 1, whole layers" },
        { "--bucket", "SIZE", OPTION_SIZE, &bucket, .min = 1, .max = 1e15,
          .help = "for ddp, zero1, zero2, and chain with whole weights: size of a bucket of gradients to reduce, or "
                  "of weights to gather after the step; a larger unit (a layer, the token embedding) has its own "
                  "bucket, but ddp cuts it; schemes that gather weights before use, such as zero3, reduce unit by "
                  "unit" },
        { "--reduce-scatter", "NAME", OPTION_STRING, &o->plan.data.reduce_scatter,
          .help = "algorithm for gradients in shards; default: direct, which adds in the order of ranks" },
        { "--allgather", "NAME", OPTION_STRING, &o->plan.data.allgather,
          .help = "algorithm for weights in shards; default: ring; two_level for mics" },
        { "--quantize-weights", "CODE", OPTION_CHOICE, &data.weights, .choices = codes,
          .help = "gather weights as int8 or int4 codes with a scale for each block; default: not quantised" },
        { "--quantize-gradients", "CODE", OPTION_CHOICE, &data.gradients, .choices = codes,
          .help = "reduce-scatter gradients as codes, by all-to-alls inside nodes, then between them; default: not "
                  "quantised" },
        { "--quantize-block", "N", OPTION_INT, &data.block, .min = 1, .max = 1e9, .given = &data.block_given,
          .help = "elements that share a scale" },
        { "--offload", "WHAT", OPTION_STRING, &offload.classes,
          .help = "what to keep on a slow tier instead of the device's memory: optimizer, gradients, weights, "
                  "activations, or a list such as optimizer,weights; experts: of these classes, or of the first "
                  "three, only those of a mixture's experts" },
        { "--offload-to", "host|DIR", OPTION_STRING, &offload.to,
          .help = "the tier: the host's memory, or one file per device in a folder; default: host" },
        { "--host-cache", "SIZE", OPTION_SIZE, &offload.cache,
          .help = "with a folder: memory of each device's host for what its device uses most often of the file; "
                  "default: 0" },
        { "--ring", "K", OPTION_INT, &o->plan.data.ring, .min = 2, .max = 100000,
          .help = "parts of the model, which are layers, embedding and loss, whose offloaded weights are on the "
                  "device: the one that computes, the next, and copies of those after it; default: 3" },
        { "--chosen-experts", NULL, OPTION_SWITCH, &offload.chosen,
          .help = "with `orrery infer --offload experts`: read an expert when a router has chosen it, and no others" },
        { "--offload-slice", "N", OPTION_INT, &offload.slice, .min = 1, .max = 2e9,
          .help = "elements of optimizer state that a step moves at a time; default: 65536" },
        { "--offload-stride", "K", OPTION_INT, &offload.stride, .min = 1, .max = 1e6,
          .help = "the device steps every Kth slice, the host the others; default: 1, the device steps all" },
        { .kind = OPTION_HEADING, .help = "Model and text" },
        { "--model", "NAME|DIR", OPTION_STRING, &model,
          .help = "a preset, or a folder with config.json and model.safetensors" },
        { "--data", "FILE", OPTION_STRING, &o->data,
          .help = "text to learn; default: Orrery's own sources and documents" },
        { "--pack", "FILE", OPTION_STRING, &o->pack,
          .help = "cut the text into samples of these lengths, one on each line, and pack them into sequences; or "
                  "lognormal: drawn lengths with a long tail; docs/packing.md" },
        { "--dtype", "NAME", OPTION_CHOICE, &dtype, .choices = number_formats,
          .help = "number format of weights and activations; for 16-bit formats the optimizer steps fp32 master "
                  "weights" },
        { "--grad-dtype", "NAME", OPTION_CHOICE, &grad_dtype, .choices = number_formats,
          .help = "format in which weight gradients of a 16-bit model are kept and reduced: fp32 or the model's own; "
                  "default: fp32" },
        { "--loss-scale", "S", OPTION_DOUBLE, &o->plan.loss_scale, .min = 0, .max = 0x1p127,
          .help = "fp16: initial loss scale, a power of two; default: 65536" },
        { "--dropout", "P", OPTION_DOUBLE, &dropout, .min = 0, .max = 0.999,
          .help = "dropout of embeddings, attention and residuals; default: the model's" },
        { "--streams", "P", OPTION_INT, &changed.streams, .min = 1, .max = 1024,
          .help = "parallel streams of a Qwen2 (ParScale), which --cp can distribute; default: the model's" },
        { "--prefix", "T", OPTION_INT, &changed.prefix, .min = 1, .max = 65536,
          .help = "learned keys and values of each stream in every layer; default: the model's, or 8" },
        { "--router", "NAME", OPTION_STRING, &changed.router,
          .help = "how a mixture's router chooses experts and weighs them: orrery list routers; default: the model's" },
        { "--router-speed", "U", OPTION_DOUBLE, &changed.speed, .min = 0, .max = 1e6,
          .help = "how far a step moves the correction bias of a router that has one; default: the rule's" },
        { "--top-p", "P", OPTION_DOUBLE, &changed.top_p, .min = 1e-6, .max = 1,
          .help = "a token goes to the fewest experts whose probabilities add up to P; default: the router's" },
        { "--zero-experts", "Z", OPTION_INT, &changed.zero, .min = 1, .max = 65536,
          .help = "experts without computation that a router can choose too, beside those of the model" },
        { "--shared-experts", "N", OPTION_INT, &changed.shared, .min = 0, .max = 1024,
          .help = "of a mixture: experts that every token goes through, beside those that are chosen; default: the "
                  "model's" },
        { "--shared-gate", NULL, OPTION_SWITCH, &changed.shared_gate,
          .help = "multiply their result by the sigmoid of a number that is computed from the token, as Qwen2-MoE" },
        { "--untied", NULL, OPTION_SWITCH, &untied, .help = "the output matrix is not tied to the token embedding" },
        { .kind = OPTION_HEADING, .help = "Training" },
        { "--steps", "N", OPTION_INT, &steps, .min = 0, .max = 1e9,
          .help = "number of steps; default: 100; for a resumed run, those left of --lr-steps" },
        { "--batch", "N", OPTION_INT, &batch, .min = 1, .max = 1e9,
          .help = "sequences in the global batch; default: the model's" },
        { "--batches", "FILE", OPTION_STRING, &batches,
          .help = "sequences of every microbatch of each copy, step by step, instead of --batch and --micro; "
                  "docs/batches.md" },
        { "--seq", "N", OPTION_INT, &seq, .min = 1, .max = 1e9,
          .help = "tokens in a sequence; default: the model's; a preset gets as many positions" },
        { "--micro", "N", OPTION_INT, &micro, .min = 1, .max = 1e6,
          .help = "microbatches per copy; default: pp, if the batch allows" },
        { "--optimizer", "NAME", OPTION_STRING, &optimizer,
          .help = "adamw, sgd, momentum, galore, natural-galore; mezo: no backward pass" },
        { "--mezo-eps", "EPS", OPTION_DOUBLE, &distance, .min = 0, .max = 1e6,
          .help = "mezo: distance from the weights, along a random direction, at which losses are taken; "
                  "default: 1e-3" },
        { "--perturb", "SIDES", OPTION_INT, &o->plan.perturb, .min = 1, .max = 2,
          .help = "mezo: 2: one half of the copies computes the loss at + eps, the other at - eps; default: 1, each "
                  "computes both" },
        { "--lr", "RATE", OPTION_DOUBLE, &lr, .min = 0, .max = 1e6, .help = "learning rate; default: the optimizer's" },
        { "--min-lr", "RATE", OPTION_DOUBLE, &min_lr, .min = 0, .max = 1e6,
          .help = "where the cosine ends; default: a tenth of --lr" },
        { "--warmup", "N", OPTION_INT, &warmup, .min = 0, .max = 1e9,
          .help = "steps of linear warm-up; default: a tenth of --lr-steps" },
        { "--lr-steps", "N", OPTION_INT, &lr_steps, .min = 1, .max = 1e9,
          .help = "step at which the cosine ends, counted from the very first; default: the last step" },
        { "--clip", "NORM", OPTION_DOUBLE, &clip, .min = 0, .max = 1e30,
          .help = "largest global gradient norm, 0: none; default: the optimizer's" },
        { "--weight-decay", "RATE", OPTION_DOUBLE, &decay, .min = 0, .max = 1e6,
          .help = "weight decay of matrices; default: the optimizer's" },
        { "--as", "PROFILE", OPTION_STRING, &as,
          .help = "conventions of a package: torch, megatron, deepspeed, galore-torch; or "
                  "PROFILE,CONVENTION=VALUE,...: orrery list profiles, docs/profiles.md" },
        { "--seed", "N", OPTION_UINT64, &o->plan.seed, .help = "seed of initial weights, batches and dropout" },
        { .kind = OPTION_HEADING, .help = "Low-rank optimizers: galore, natural-galore" },
        { "--rank", "R", OPTION_INT, &low_rank.rank, .min = 1, .max = 1e6,
          .help = "rank of the projection of each matrix's gradient; default: a quarter of the model's width" },
        { "--refresh", "T", OPTION_INT, &low_rank.refresh, .min = 1, .max = 1e9,
          .help = "steps until the projection is computed again, from whole gradients; default: 200" },
        { "--galore-scale", "A", OPTION_DOUBLE, &low_rank.scale, .min = 0, .max = 1e6,
          .help = "factor on the steps of projected matrices; default: 0.25" },
        { "--history", "N", OPTION_INT, &low_rank.history, .min = 1, .max = 64,
          .help = "natural-galore: projected gradients that make up the Fisher matrix; default: 20" },
        { "--damping", "X", OPTION_DOUBLE, &low_rank.damping, .min = 0, .max = 1e6,
          .help = "natural-galore: damping, added to the diagonal of the Fisher matrix; default: 0.001" },
        { .kind = OPTION_HEADING, .help = "Virtual time: how long the run would take on the emulated cluster" },
        CLUSTER_OPTION(cluster, "the machine"),
        { "--trace", "FILE", OPTION_STRING, &o->trace,
          .help = "write what every device does when, as a Chrome trace for ui.perfetto.dev" },
        { "--timeline", "FILE", OPTION_STRING, &o->timeline,
          .help = "draw the last step's pipeline, as SVG and for the terminal, with its bubble" },
        { "--trace-steps", "N", OPTION_INT, &o->trace_steps, .min = 1, .max = 1e9, .help = "steps in the trace" },
        { .kind = OPTION_HEADING, .help = "Checking and output" },
        { "--check", "ref|FILE", OPTION_STRING, &o->check,
          .help = "compare every activation, gradient and weight with ref, the one-device model, or with a golden "
                  "file, which also says what is trained; exit status 3 if they differ" },
        { "--dump", "FILE|DIR/", OPTION_STRING, &o->dump,
          .help = "with --check FILE: also write what the devices compute, as `orrery check` reads it: whole tensors "
                  "into a file, or what each device has into a folder (docs/dumps.md)" },
        { "--isolate", NULL, OPTION_SWITCH, &o->isolate,
          .help = "with --check: give every operation the reference's inputs, so that an error shows only where it is "
                  "made" },
        { "--paranoid", NULL, OPTION_SWITCH, &o->paranoid,
          .help = "before and after every optimizer step, compare what must be bitwise equal on several devices; exit "
                  "status 3 if it is not" },
        { "--backend", "NAME", OPTION_STRING, &backend,
          .help = "what executes operations and owns memory; `orrery list backends` shows them; default: cpu" },
        { "--memory", "SIZE", OPTION_SIZE, &o->memory, .help = "memory of a device, such as 64M; 0: no limit" },
        WAIT_LIMIT_OPTION(limit),
        { "--save", "DIR", OPTION_STRING, &o->save, .help = "write a checkpoint at the end" },
        { "--owners-out", "FILE", OPTION_STRING, &o->owners_out,
          .help = "for fssdp: write who should own which experts, by their loads in the last steps; for --owners" },
        { "--resume", "DIR", OPTION_STRING, &o->resume,
          .help = "continue from a checkpoint: text, model, training and formats are those saved; options that make "
                  "it a different run are refused; the mesh may change" },
        { "--override", NULL, OPTION_SWITCH, &o->override,
          .help = "with --resume: continue although options make it a different run" },
        { "--sample", "BYTES", OPTION_INT, &o->sample, .min = 0, .max = 1e6,
          .help = "bytes of text to generate with the trained model" },
        { "--unfolded", NULL, OPTION_SWITCH, &o->unfolded,
          .help = "run every device, also those that do the same as another" },
        { "--json", "FILE", OPTION_STRING, &o->json,
          .help = "write all results as JSON; -: to standard output, and the report for people to standard error" },
        { 0 }
    };
    enum error_code e = parse(o, kind, table, argc, argv, err);
    if (e || o->help) return e;
    set_wait_limit(limit);
    e = set_backend(backend, err);
    if (!e && backend && !backend_find(backend)->has_numbers) e = refuse_numbers(o, backend, err);
    if (e) return e;

    if (o->resume) e = take_resumed(o, table, argc, argv, &steps, &lr_steps, err);
    else if (o->override)
        e = fail(err, ERR_USAGE, "--override: is only for --resume DIR, with options that make it a different run");
    if (e) return e;
    o->golden = o->check && strcmp(o->check, "ref") != 0;
    if (o->golden && strpbrk(o->check, "./") == NULL)           /* a word, not a file */
        return fail(err, ERR_USAGE, "--check %s: must be ref or a golden file, NAME.safetensors; did you mean ref?",
                    printable(o->check).text);
    if (o->golden &&
        (model || o->resume || o->data || o->save || o->trace || batch || seq || lr >= 0 || dropout >= 0 || untied ||
         changed.router || changed.zero || changed.top_p > 0 || changed.streams || changed.prefix || as))
        return fail(err, ERR_USAGE,
                    "--check %s: the golden file says what is trained; of the model, the text and the training only "
                    "--optimizer can be chosen",
                    printable_path(o->check).text);
    if (o->dump && !o->golden)
        return fail(err, ERR_USAGE, "--dump %s: is of a golden file's run; --check must name the file",
                    printable_path(o->dump).text);
    if (o->isolate && !o->check) return fail(err, ERR_USAGE, "--isolate: needs --check ref");
    struct plan *p = &o->plan;
    int64_t usual_batch;
    e = take_model(o, model, seq, &usual_batch, err);
    take_experts(p, dispatch, size);
    if (!e) e = mesh_make(&p->mesh, size, err);
    if (!e) e = optimizer_find(&p->optimizer, optimizer, err);
    if (!e && kind->take) e = kind->take(o, err);
    if (!e) e = train_change_model(&p->model, &changed, err);
    if (!e) p->attention = attention ? attention : usual_attention(p);
    if (!e) e = take_affinity(o, affinity, err);
    if (!e) e = take_owners(o, owners, err);
    if (!e) e = take_encoders(o, encoders, err);
    if (e) return e;
    if (untied) p->model.tied = false;
    if (dropout >= 0) p->model.dropout_embedding = p->model.dropout_residual = p->model.dropout_attention = dropout;
    o->steps = steps;
    p->dtype = dtype_by_name(dtype);
    p->data.bucket = (int64_t)bucket;
    e = take_data(&p->data, &data, err);
    if (!e && o->golden && data_outer(&p->data).every > 0)
        e = fail(err, ERR_USAGE,
                 "--data-parallel %s: a golden file's run adds up the gradients of every step; --check ref trains "
                 "copies apart",
                 p->data.scheme);
    if (!e) e = take_formats(o, grad_dtype, err);
    if (e) return e;
    e = train_take_offload(p, &offload, err);
    if (e) return e;
    p->B = batch ? batch : usual_batch;
    p->S = seq ? seq : p->model.S;
    p->packed = o->pack != NULL;
    if (!o->golden) p->hyper = p->optimizer->usual;
    if (as) e = conventions_parse(&p->hyper.as, as, err);
    if (e) return e;
    p->model.initial = (int)convention(&p->hyper.as, INITIAL);
    e = take_distance(o, distance, grad_dtype != NULL, err);
    if (!e && o->golden) e = train_take_golden(o, err);
    if (e) return e;
    p->micros = micro ? micro : p->B >= (int64_t)size[DP] * size[PP] * p->chunks ? size[PP] * p->chunks : 1;
    if (o->pack && o->golden) return fail(err, ERR_USAGE, "--pack: a golden file has its own batches");
    if (batches) e = take_batches(o, batches, batch, micro, err);
    if (!e) e = take_schedule(p, chunks_given, micro > 0 || batches, err);
    if (e) return e;
    if (lr >= 0) p->hyper.lr = lr;
    if (clip >= 0) p->hyper.clip = clip;
    if (decay >= 0) p->hyper.weight_decay = decay;
    p->hyper.min_lr = min_lr >= 0 ? min_lr : p->hyper.lr / 10;
    e = take_low_rank(p, &low_rank, err);
    if (e) return e;
    o->lr_steps = lr_steps;
    o->warmup = warmup;
    e = cluster_find(&o->cluster, cluster, err);
    p->cluster = &o->cluster;
    if (!e && strcmp(placement, "speed") == 0) take_speeds(p, &o->cluster);
    if (!e) e = plan_check(p, err);
    if (!o->golden) train_set_rates(&p->hyper, o, 0);
    return e ? e : cluster_check(&o->cluster, p->mesh.devices, p->dtype, err);
}

void train_options_free(struct train_options *o)
{
    checkpoint_close(&o->saved);
    batch_plan_free(&o->batches);
    affinity_free(&o->affinity);
    expert_owners_free(&o->owners);
}
