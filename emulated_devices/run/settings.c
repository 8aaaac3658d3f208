/* run.c -- the settings that define a run: saved with a checkpoint, read by --resume, and compared.
 *
 * A run is a list of names and texts.  Names that begin with "--" are flags: a resumed run takes those that it is not
 * given from the list.  The others are facts: the model's shape, the text's checksum.  Settings that do not change the
 * function are not in the list: the mesh, schemes that compute the same sums, the number of steps, what is printed.
 * ERR_FORMAT is for a setting that is no text, ERR_USAGE for a run that --resume would change; ERR_MEMORY.
 */
#include "emulated_devices/train/data/data_words.h"
#include "emulated_devices/run/run.h"
#include "ref/io/samples.h"
#include "ref/io/sha256.h"
#include "ref/model/adapters.h"
#include "ref/model/attention_mask.h"
#include "ref/model/family.h"
#include "ref/model/kinds.h"
#include "ref/model/trained.h"
#include "ref/optim/moments.h"
#include "ref/optim/rates.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_LENGTH = 4200 };             /* bytes: a path and more */

/* ---- writing it down --------------------------------------------------------------------------------------------- */

struct run_list { cJSON *run; bool full; };

static void run_add(struct run_list *l, const char *name, const char *format,
                    ...) __attribute__((format(printf, 3, 4)));
static void run_add(struct run_list *run_list, const char *name, const char *format, ...)
{
    char text[TEXT_LENGTH];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (cJSON_AddStringToObject(run_list->run, name, text) == NULL) run_list->full = true;
}

static void add_real(struct run_list *run_list, const char *name, double x)
{
    run_add(run_list, name, "%s", real_format(x).text);
}

static void add_whole(struct run_list *run_list, const char *name, int64_t n)
{
    run_add(run_list, name, "%lld", (long long)n);
}

/* Facts, because there are three for one flag.  Only config.json of a GPT-2 or a GPT-J has a place for all. */
static const char *const dropout_name[] = { "dropout of embeddings", "dropout of residuals", "dropout of attention" };
enum { DROPOUTS = sizeof dropout_name / sizeof *dropout_name };

static void add_model(struct run_list *run_list, const struct model_config *config)
{
    struct model_number number[MODEL_NUMBERS];
    const int numbers = model_config_numbers(config, number);
    const double dropout[DROPOUTS] = { config->dropout_embedding, config->dropout_residual, config->dropout_attention };
    run_add(run_list, "model family", "%s", config->family->name);
    for (int i = 0; i < numbers; i++) {
        char name[40];
        snprintf(name, sizeof name, "model %s", number[i].name);
        if (number[i].whole) add_whole(run_list, name, (int64_t)number[i].value);
        else add_real(run_list, name, number[i].value);
    }
    for (int i = 0; i < DROPOUTS; i++) add_real(run_list, dropout_name[i], dropout[i]);
    if (config->mixture.z_coefficient > 0) add_real(run_list, "--z-loss", config->mixture.z_coefficient);
    if (config->trains) run_add(run_list, "--train-only", "%s", trained_text(config->trains).text);
    if (config->adapters.rank == 0) return;
    add_whole(run_list, "--lora", config->adapters.rank);
    add_real(run_list, "--lora-alpha", config->adapters.alpha);
    run_add(run_list, "--lora-of", "%s", adapted_text(config->adapters.of).text);
}

static void add_optimizer(struct run_list *run_list, const struct train_options *options)
{
    const struct plan *p = &options->plan;
    const struct hyperparameters *h = &p->hyper;
    const int64_t lr_steps = options->lr_steps ? options->lr_steps
        : (options->resume ? options->saved.step : 0) + options->steps;
    run_add(run_list, "--optimizer", "%s", p->optimizer->name);
    if (h->as.text[0]) run_add(run_list, "--as", "%s", h->as.text);
    add_real(run_list, "--lr", h->lr);
    run_add(run_list, "--lr-schedule", "%s", rate_schedule_names[h->schedule]);
    if (options->lr_decay) add_whole(run_list, "--lr-decay", options->lr_decay);
    add_real(run_list, "--min-lr", h->min_lr);
    add_real(run_list, "--clip", h->clip);
    add_real(run_list, "--weight-decay", h->weight_decay);
    for (int i = 0; i < MOMENT_FLAGS; i++)
        if (optimizer_has_moment(p->optimizer, i)) add_real(run_list, moment_rows[i].flag, moment_number(h, i));
    if (lr_steps > 0) add_whole(run_list, "--lr-steps", lr_steps);
    if (options->warmup >= 0) add_whole(run_list, "--warmup", options->warmup);
    if (p->optimizer->forward_only) add_real(run_list, "--mezo-eps", h->distance);
    if (!p->optimizer->low_rank) return;
    add_whole(run_list, "--rank", h->rank);
    add_whole(run_list, "--refresh", h->refresh);
    add_real(run_list, "--galore-scale", h->galore_scale);
    if (!p->optimizer->natural) return;
    add_whole(run_list, "--history", h->history);
    add_real(run_list, "--damping", h->damping);
}

static void add_formats(struct run_list *run_list, const struct plan *plan)
{
    const struct block_format *const f[] = { &plan->data.quantise_weights, &plan->data.quantise_gradients };
    static const char *const flag[] = { "--quantize-weights", "--quantize-gradients" };
    run_add(run_list, "--dtype", "%s", dtype_name(plan->dtype));
    if (plan->model.exact) run_add(run_list, "--arithmetic", exact_rule_names[plan->model.exact]);
    if (!plan->optimizer->forward_only)
        run_add(run_list, "--grad-dtype", "%s", dtype_name(plan->data.narrow_gradients ? plan->dtype
                                                           : dtype_wide(plan->dtype)));
    if (plan_loss_scale(plan).interval > 0) add_real(run_list, "--loss-scale", plan_loss_scale(plan).scale);
    for (int i = 0; i < 2; i++)
        if (f[i]->bits) run_add(run_list, flag[i], "int%d", f[i]->bits);
    if (data_quantises(&plan->data)) add_whole(run_list, "--quantize-block", plan->data.quantise_weights.block);
}

/* The number of replicas that train apart: each is its own model. */
static void add_replicas(struct run_list *run_list, const struct plan *plan)
{
    const struct outer outer = data_outer(&plan->data);
    if (outer.every == 0) return;
    run_add(run_list, "--data-parallel", "%s", plan->data.scheme);
    add_whole(run_list, "--local-steps", outer.every);
    add_real(run_list, "--outer-lr", outer.lr);
    if (outer_has_momentum(&outer)) add_real(run_list, "--outer-momentum", outer.momentum);
    add_whole(run_list, "replicas", plan_replicas(plan));
}

static const char balance_microbatches[] = "microbatches of balance losses";

/* How many microbatches balance losses are of: with another number the loss is another one. */
static void add_balance(struct run_list *run_list, const struct plan *plan)
{
    const struct mixture_config *m = &plan->model.mixture;
    if (plan->model.mlp == MLP_MIXTURE && m->balance_coefficient > 0 && m->balance.over == OVER_MICROBATCH)
        add_whole(run_list, balance_microbatches, (int64_t)plan->mesh.size[DP] * plan->micros);
}

/* A schedule that does not compute plain training changes the function, as do its numbers of microbatches and
 * places. */
static enum error_code add_schedule(struct run_list *run_list, const struct plan *plan, struct error *err)
{
    struct schedule s;
    const enum error_code e = plan_schedule(plan, &s, err);
    if (e) return e;
    bool plain = plan->updates == 1 && s.weight_versions == 1;
    for (int m = 0; m < s.micros; m++)
        for (int stage = 0; stage < s.stages; stage++) plain = plain && place_of(&s, m, stage).device >= 0;
    schedule_free(&s);
    if (plain) return OK;
    run_add(run_list, "--schedule", "%s", plan->schedule);
    add_whole(run_list, "--micro", plan->micros);
    add_whole(run_list, "--skip", plan->skip);
    add_whole(run_list, "--update-every", plan->update_every);
    add_whole(run_list, "pp", plan->mesh.size[PP]);
    add_whole(run_list, "dp", plan->mesh.size[DP]);
    return OK;
}

static void add_path(struct run_list *run_list, const char *flag, const char *path)
{
    char here[TEXT_LENGTH / 2];
    if (path[0] == '/') run_add(run_list, flag, "%s", path);
    else if (getcwd(here, sizeof here)) run_add(run_list, flag, "%s/%s", here, path);
}

/* A list of files may be long. */
static void add_data(struct run_list *run_list, const char *flag, const char *words)
{
    char here[TEXT_LENGTH / 2];
    char *text = words && getcwd(here, sizeof here) ? data_words_with_paths(words, here) : NULL;
    if (words && (text == NULL || cJSON_AddStringToObject(run_list->run, flag, text) == NULL)) run_list->full = true;
    free(text);
}

static void add_text(struct run_list *run_list, const struct train_options *options, const struct train_data *data,
                     int64_t step)
{
    const struct data_facts facts = train_data_facts(data);
    const struct packing *p = &data->text.packing;
    add_data(run_list, "--data", options->data);
    add_data(run_list, "--eval-data", options->eval_data);
    if (options->tokenizer) add_path(run_list, "--tokenizer", options->tokenizer);
    run_add(run_list, "text", "%s", facts.train);
    if (facts.held[0]) run_add(run_list, "held-out text", "%s", facts.held);
    if (train_data_has_tokens(data)) add_whole(run_list, SEQUENCES_TAKEN, train_data_position(data, step));
    if (options->pack == NULL) return;
    if (samples_are_drawn(options->pack)) run_add(run_list, "--pack", "%s", options->pack);
    else add_path(run_list, "--pack", options->pack);
    run_add(run_list, "lengths of samples", "SHA-256 %s",
            sha256_of(p->length, (size_t)p->samples * sizeof *p->length).text);
}

/* The modalities that have clips, where some have none. */
static void add_clips(struct run_list *list, unsigned only)
{
    char names[80] = "";
    for (int m = 0; m < MODALITIES; m++)
        if (only >> m & 1)
            snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", names[0] ? "," : "",
                     modalities[m].name);
    run_add(list, "--clips-of", "%s", names);
}

cJSON *train_run(const struct train_options *options, const struct train_data *data, int64_t step, struct error *err)
{
    struct run_list l = { .run = cJSON_CreateObject() };
    enum error_code e = OK;
    add_model(&l, &options->plan.model);
    if (!options->golden) add_text(&l, options, data, step);
    run_add(&l, "--seed", "%llu", (unsigned long long)options->plan.seed);
    if (options->plan.batches) run_add(&l, "batch plan of --batches", "SHA-256 %s", options->batches.digest.text);
    else add_whole(&l, "--batch", options->plan.B);
    add_whole(&l, "--seq", options->plan.S);
    if (!attention_mask_is_causal(&options->plan.model.mask))
        run_add(&l, "--mask", "%s", attention_mask_text(&options->plan.model.mask).text);
    if (options->plan.encoders.kinds > 0) add_whole(&l, "--modalities", options->plan.encoders.kinds);
    if (options->plan.encoders.only) add_clips(&l, options->plan.encoders.only);
    add_optimizer(&l, options);
    if (options->load_word && options->load.kind == LOAD_FILE) add_path(&l, "--load", options->load_word);
    else if (options->load_word) run_add(&l, "--load", "%s", options->load_word);
    add_formats(&l, &options->plan);
    add_replicas(&l, &options->plan);
    add_balance(&l, &options->plan);
    e = add_schedule(&l, &options->plan, err);
    if (!e && l.full) e = fail(err, ERR_MEMORY, "no memory for the settings of this run");
    if (e) cJSON_Delete(l.run);
    return e ? NULL : l.run;
}

/* ---- taking it up again ------------------------------------------------------------------------------------------ */

/* Whether the command line has a flag with another value than was saved. */
static bool given_anew(const cJSON *run, const char *name, int argc, char *const argv[])
{
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(run, name);
    const size_t n = strlen(name);
    for (int i = 0; i < argc && saved; i++) {
        if (strncmp(argv[i], name, n) != 0) continue;
        if (argv[i][n] == '=') return strcmp(argv[i] + n + 1, saved->valuestring) != 0;
        if (argv[i][n] == '\0' && i + 1 < argc) return strcmp(argv[i + 1], saved->valuestring) != 0;
    }
    return options_given(argc, argv, name);
}

/* Flags that belong to another flag: if that one is given with a new value, they are not taken from the checkpoint. */
static bool follows_given(const cJSON *run, const char *name, int argc, char *const argv[])
{
    static const struct { const char *name, *of[2]; } about[] = {
        { "--grad-dtype", { "--dtype" } }, { "--loss-scale", { "--dtype" } },
        { "--data-parallel", { "--zero", "--shards" } },
        { "--local-steps", { "--zero", "--data-parallel" } }, { "--outer-lr", { "--zero", "--data-parallel" } },
        { "--outer-momentum", { "--zero", "--data-parallel" } }, { "--micro", { "--schedule" } },
        { "--skip", { "--schedule" } },
        { "--update-every", { "--schedule" } }, { "--rank", { "--optimizer" } }, { "--refresh", { "--optimizer" } },
        { "--galore-scale", { "--optimizer" } }, { "--history", { "--optimizer" } }, { "--damping", { "--optimizer" } },
        { "--beta1", { "--optimizer" } }, { "--beta2", { "--optimizer" } }, { "--eps", { "--optimizer" } },
        { "--mezo-eps", { "--optimizer" } }, { "--lr-decay", { "--lr-schedule" } },
    };
    for (size_t i = 0; i < sizeof about / sizeof *about; i++)
        for (int k = 0; k < 2 && strcmp(about[i].name, name) == 0; k++)
            if (about[i].of[k] && given_anew(run, about[i].of[k], argc, argv)) return true;
    return false;
}

enum error_code train_take_saved(const struct checkpoint *checkpoint, const struct option *table, int argc,
                                 char *const argv[], struct error *err)
{
    enum error_code e = OK;
    for (const cJSON *f = checkpoint->run->child; f && !e; f = f->next)
        if (!cJSON_IsString(f))
            e = fail(err, ERR_FORMAT, "%s: %s must be a text", TRAINING_FILE, printable(f->string).text);
        else if (strncmp(f->string, "--", 2) == 0 && !options_given(argc, argv, f->string) &&
                 !follows_given(checkpoint->run, f->string, argc, argv))
            e = options_set(table, f->string, f->valuestring, err);
    return e;
}

void train_take_dropout(const struct checkpoint *checkpoint, struct model_config *config)
{
    double *const dropout[DROPOUTS] = { &config->dropout_embedding, &config->dropout_residual,
                                       &config->dropout_attention };
    for (int i = 0; i < DROPOUTS; i++) {
        const cJSON *f = cJSON_GetObjectItemCaseSensitive(checkpoint->run, dropout_name[i]);
        char *end = NULL;
        const double p = cJSON_IsString(f) ? strtod(f->valuestring, &end) : -1;
        if (end && *end == '\0' && p >= 0 && p < 1) *dropout[i] = p;
    }
}

int64_t train_saved_microbatches(const struct checkpoint *checkpoint)
{
    const cJSON *f = cJSON_GetObjectItemCaseSensitive(checkpoint->run, balance_microbatches);
    return cJSON_IsString(f) ? strtoll(f->valuestring, NULL, 10) : 0;
}

/* ---- holding to it ----------------------------------------------------------------------------------------------- */

static const char *run_text_of(const cJSON *run, const char *name)
{
    const cJSON *f = cJSON_GetObjectItemCaseSensitive(run, name);
    return f ? f->valuestring : "not given";
}

static bool run_differs(const cJSON *saved, const cJSON *now, const char *name)
{
    /* files may have moved; a run goes on after what it has taken */
    static const char *const others[] = { "--data", "--eval-data", "--tokenizer", "--pack", SEQUENCES_TAKEN };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return false;
    return strcmp(run_text_of(saved, name), run_text_of(now, name)) != 0;
}

/* Settings that cannot be changed even with --override: there are no states for other values. */
static bool is_for_good(const char *name)
{
    static const char *const names[] = { "--optimizer", "--rank", "--history", "replicas", "--data-parallel",
                                         "--modalities" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return strncmp(name, "model ", 6) == 0;
}

struct found { char *text; size_t size, used; int count, left_out; const char *for_good; };

static void run_note(struct found *found, const char *name, const cJSON *saved, const cJSON *now)
{
    char line[200];
    const int n = snprintf(line, sizeof line, "%s%s: saved %.60s, now %.60s", found->count ? "; " : "", name,
                           printable(run_text_of(saved, name)).text, printable(run_text_of(now, name)).text);
    found->count++;
    if (is_for_good(name) && found->for_good == NULL && cJSON_HasObjectItem(saved, name)) found->for_good = name;
    if (found->used + (size_t)n >= found->size) found->left_out++;
    else strcpy(found->text + found->used, line), found->used += (size_t)n;
}

static void run_compare(struct found *found, const cJSON *saved, const cJSON *now)
{
    found->text[0] = '\0';
    for (const cJSON *x = saved->child; x; x = x->next)
        if (run_differs(saved, now, x->string)) run_note(found, x->string, saved, now);
    for (const cJSON *x = now->child; x; x = x->next)
        if (!cJSON_HasObjectItem(saved, x->string) && run_differs(saved, now, x->string))
            run_note(found, x->string, saved, now);
}

bool train_changes_loss_scale(const struct train_options *options)
{
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(options->saved.run, "--loss-scale");
    return saved == NULL || strtod(saved->valuestring, NULL) != plan_loss_scale(&options->plan).scale;
}

enum error_code train_check_saved(const struct train_options *options, const struct train_data *data, char *differences,
                                  size_t size, struct error *err)
{
    struct found f = { .text = differences, .size = size };
    char more[40] = "";
    differences[0] = '\0';
    if (!options->resume) return OK;
    cJSON *now = train_run(options, data, options->saved.step, err);
    if (now == NULL) return err->code;
    run_compare(&f, options->saved.run, now);
    cJSON_Delete(now);
    if (f.count == 0 || (options->override && f.for_good == NULL)) return OK;
    if (f.left_out) snprintf(more, sizeof more, "; and %d more", f.left_out);
    return fail(err, ERR_USAGE, "--resume %.80s: %s: %s%s; %s", printable_path(options->resume).text,
                f.for_good ? "cannot be resumed" : "this would be a different run", differences, more,
                f.for_good ? "--model DIR starts a new run from its weights" : "--override continues anyway");
}

void train_set_rates(struct hyperparameters *hyper, const struct train_options *options, int64_t first_step)
{
    const int64_t updates = options->plan.updates;            /* the optimizer counts its own steps */
    hyper->steps = updates * (options->lr_steps ? options->lr_steps : first_step + options->steps);
    hyper->warmup = options->warmup >= 0 ? updates * options->warmup : hyper->steps / 10;
    hyper->decay = options->lr_decay ? updates * options->lr_decay : hyper->steps / 5;
}
