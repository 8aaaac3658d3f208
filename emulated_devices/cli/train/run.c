/* run.c -- the settings that define a run: saved with a checkpoint, read by --resume, and compared.
 *
 * A run is a list of names and texts.  Names that begin with "--" are flags: a resumed run takes those that it is not
 * given from the list.  The others are facts: the model's shape, the text's checksum.  Settings that do not change the
 * function are not in the list: the mesh, schemes that compute the same sums, the number of steps, what is printed.
 */
#include "emulated_devices/cli/train/data/data_words.h"
#include "emulated_devices/cli/train/train.h"
#include "ref/io/samples.h"
#include "ref/io/sha256.h"
#include "ref/optim/rates.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_LENGTH = 4200 };             /* bytes: a path and more */

/* ---- writing it down --------------------------------------------------------------------------------------------- */

struct run_list { cJSON *run; bool full; };

static void add(struct run_list *l, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add(struct run_list *l, const char *name, const char *format, ...)
{
    char text[TEXT_LENGTH];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (cJSON_AddStringToObject(l->run, name, text) == NULL) l->full = true;
}

static void add_real(struct run_list *l, const char *name, double x) { add(l, name, "%s", real_format(x).text); }

static void add_whole(struct run_list *l, const char *name, int64_t n) { add(l, name, "%lld", (long long)n); }

/* Facts, because there are three for one flag.  Only config.json of a GPT-2 or a GPT-J has a place for all. */
static const char *const dropout_name[] = { "dropout of embeddings", "dropout of residuals", "dropout of attention" };
enum { DROPOUTS = sizeof dropout_name / sizeof *dropout_name };

static void add_model(struct run_list *l, const struct model_config *c)
{
    struct model_number number[MODEL_NUMBERS];
    const int numbers = model_config_numbers(c, number);
    const double dropout[DROPOUTS] = { c->dropout_embedding, c->dropout_residual, c->dropout_attention };
    add(l, "model family", "%s", model_family_name(model_family(c)));
    for (int i = 0; i < numbers; i++) {
        char name[40];
        snprintf(name, sizeof name, "model %s", number[i].name);
        if (number[i].whole) add_whole(l, name, (int64_t)number[i].value);
        else add_real(l, name, number[i].value);
    }
    for (int i = 0; i < DROPOUTS; i++) add_real(l, dropout_name[i], dropout[i]);
    if (c->mixture.z_coefficient > 0) add_real(l, "--z-loss", c->mixture.z_coefficient);
}

static void add_optimizer(struct run_list *l, const struct train_options *o)
{
    const struct plan *p = &o->plan;
    const struct hyperparameters *h = &p->hyper;
    const int64_t lr_steps = o->lr_steps ? o->lr_steps : (o->resume ? o->saved.step : 0) + o->steps;
    add(l, "--optimizer", "%s", p->optimizer->name);
    if (h->as.text[0]) add(l, "--as", "%s", h->as.text);
    add_real(l, "--lr", h->lr);
    add(l, "--lr-schedule", "%s", rate_schedule_names[h->schedule]);
    if (o->lr_decay) add_whole(l, "--lr-decay", o->lr_decay);
    add_real(l, "--min-lr", h->min_lr);
    add_real(l, "--clip", h->clip);
    add_real(l, "--weight-decay", h->weight_decay);
    if (lr_steps > 0) add_whole(l, "--lr-steps", lr_steps);
    if (o->warmup >= 0) add_whole(l, "--warmup", o->warmup);
    if (p->optimizer->forward_only) add_real(l, "--mezo-eps", h->distance);
    if (!p->optimizer->low_rank) return;
    add_whole(l, "--rank", h->rank);
    add_whole(l, "--refresh", h->refresh);
    add_real(l, "--galore-scale", h->galore_scale);
    if (!p->optimizer->natural) return;
    add_whole(l, "--history", h->history);
    add_real(l, "--damping", h->damping);
}

static void add_formats(struct run_list *l, const struct plan *p)
{
    const struct block_format *const f[] = { &p->data.quantise_weights, &p->data.quantise_gradients };
    static const char *const flag[] = { "--quantize-weights", "--quantize-gradients" };
    add(l, "--dtype", "%s", dtype_name(p->dtype));
    if (!p->optimizer->forward_only)
        add(l, "--grad-dtype", "%s", dtype_name(p->data.narrow_gradients ? p->dtype : dtype_wide(p->dtype)));
    if (plan_loss_scale(p).interval > 0) add_real(l, "--loss-scale", plan_loss_scale(p).scale);
    for (int i = 0; i < 2; i++)
        if (f[i]->bits) add(l, flag[i], "int%d", f[i]->bits);
    if (data_quantises(&p->data)) add_whole(l, "--quantize-block", p->data.quantise_weights.block);
}

/* The number of replicas that train apart: each is its own model. */
static void add_replicas(struct run_list *l, const struct plan *p)
{
    const struct outer outer = data_outer(&p->data);
    if (outer.every == 0) return;
    add(l, "--data-parallel", "%s", p->data.scheme);
    add_whole(l, "--local-steps", outer.every);
    add_real(l, "--outer-lr", outer.lr);
    if (outer_has_momentum(&outer)) add_real(l, "--outer-momentum", outer.momentum);
    add_whole(l, "replicas", plan_replicas(p));
}

static const char balance_microbatches[] = "microbatches of balance losses";

/* How many microbatches balance losses are of: with another number the loss is another one. */
static void add_balance(struct run_list *l, const struct plan *p)
{
    const struct mixture_config *m = &p->model.mixture;
    if (p->model.mlp == MLP_MIXTURE && m->balance_coefficient > 0 && m->balance.over == OVER_MICROBATCH)
        add_whole(l, balance_microbatches, (int64_t)p->mesh.size[DP] * p->micros);
}

/* A schedule that does not compute plain training changes the function, as do its numbers of microbatches and
 * places. */
static enum error_code add_schedule(struct run_list *l, const struct plan *p, struct error *err)
{
    struct schedule s;
    const enum error_code e = plan_schedule(p, &s, err);
    if (e) return e;
    bool plain = p->updates == 1 && s.weight_versions == 1;
    for (int m = 0; m < s.micros; m++)
        for (int stage = 0; stage < s.stages; stage++) plain = plain && place_of(&s, m, stage).device >= 0;
    schedule_free(&s);
    if (plain) return OK;
    add(l, "--schedule", "%s", p->schedule);
    add_whole(l, "--micro", p->micros);
    add_whole(l, "--skip", p->skip);
    add_whole(l, "--update-every", p->update_every);
    add_whole(l, "pp", p->mesh.size[PP]);
    add_whole(l, "dp", p->mesh.size[DP]);
    return OK;
}

static void add_path(struct run_list *l, const char *flag, const char *path)
{
    char here[TEXT_LENGTH / 2];
    if (path[0] == '/') add(l, flag, "%s", path);
    else if (getcwd(here, sizeof here)) add(l, flag, "%s/%s", here, path);
}

/* A list of files may be long. */
static void add_data(struct run_list *l, const char *flag, const char *words)
{
    char here[TEXT_LENGTH / 2];
    char *text = words && getcwd(here, sizeof here) ? data_words_with_paths(words, here) : NULL;
    if (words && (text == NULL || cJSON_AddStringToObject(l->run, flag, text) == NULL)) l->full = true;
    free(text);
}

static void add_text(struct run_list *l, const struct train_options *o, const struct train_data *data, int64_t step)
{
    const struct data_facts facts = train_data_facts(data);
    const struct packing *p = &data->text.packing;
    add_data(l, "--data", o->data);
    add_data(l, "--eval-data", o->eval_data);
    if (o->tokenizer) add_path(l, "--tokenizer", o->tokenizer);
    add(l, "text", "%s", facts.train);
    if (facts.held[0]) add(l, "held-out text", "%s", facts.held);
    if (train_data_has_tokens(data)) add_whole(l, SEQUENCES_TAKEN, train_data_position(data, step));
    if (o->pack == NULL) return;
    if (strcmp(o->pack, SAMPLES_LOGNORMAL) == 0) add(l, "--pack", "%s", o->pack);
    else add_path(l, "--pack", o->pack);
    add(l, "lengths of samples", "SHA-256 %s",
        sha256_of(p->length, (size_t)p->samples * sizeof *p->length).text);
}

cJSON *train_run(const struct train_options *o, const struct train_data *data, int64_t step, struct error *err)
{
    struct run_list l = { .run = cJSON_CreateObject() };
    enum error_code e = OK;
    add_model(&l, &o->plan.model);
    add_text(&l, o, data, step);
    add(&l, "--seed", "%llu", (unsigned long long)o->plan.seed);
    if (o->plan.batches) add(&l, "batch plan of --batches", "SHA-256 %s", o->batches.digest.text);
    else add_whole(&l, "--batch", o->plan.B);
    add_whole(&l, "--seq", o->plan.S);
    add_optimizer(&l, o);
    if (o->load_word && o->load.kind == LOAD_FILE) add_path(&l, "--load", o->load_word);
    else if (o->load_word) add(&l, "--load", "%s", o->load_word);
    add_formats(&l, &o->plan);
    add_replicas(&l, &o->plan);
    add_balance(&l, &o->plan);
    e = add_schedule(&l, &o->plan, err);
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
        { "--mezo-eps", { "--optimizer" } }, { "--lr-decay", { "--lr-schedule" } },
    };
    for (size_t i = 0; i < sizeof about / sizeof *about; i++)
        for (int k = 0; k < 2 && strcmp(about[i].name, name) == 0; k++)
            if (about[i].of[k] && given_anew(run, about[i].of[k], argc, argv)) return true;
    return false;
}

enum error_code train_take_saved(const struct checkpoint *c, const struct option *table, int argc, char *const argv[],
                                 struct error *err)
{
    enum error_code e = OK;
    for (const cJSON *f = c->run->child; f && !e; f = f->next)
        if (!cJSON_IsString(f))
            e = fail(err, ERR_FORMAT, "%s: %s must be a text", TRAINING_FILE, printable(f->string).text);
        else if (strncmp(f->string, "--", 2) == 0 && !options_given(argc, argv, f->string) &&
                 !follows_given(c->run, f->string, argc, argv))
            e = options_set(table, f->string, f->valuestring, err);
    return e;
}

void train_take_dropout(const struct checkpoint *c, struct model_config *m)
{
    double *const dropout[DROPOUTS] = { &m->dropout_embedding, &m->dropout_residual, &m->dropout_attention };
    for (int i = 0; i < DROPOUTS; i++) {
        const cJSON *f = cJSON_GetObjectItemCaseSensitive(c->run, dropout_name[i]);
        char *end = NULL;
        const double p = cJSON_IsString(f) ? strtod(f->valuestring, &end) : -1;
        if (end && *end == '\0' && p >= 0 && p < 1) *dropout[i] = p;
    }
}

int64_t train_saved_microbatches(const struct checkpoint *c)
{
    const cJSON *f = cJSON_GetObjectItemCaseSensitive(c->run, balance_microbatches);
    return cJSON_IsString(f) ? strtoll(f->valuestring, NULL, 10) : 0;
}

/* ---- holding to it ----------------------------------------------------------------------------------------------- */

static const char *text_of(const cJSON *run, const char *name)
{
    const cJSON *f = cJSON_GetObjectItemCaseSensitive(run, name);
    return f ? f->valuestring : "not given";
}

static bool differs(const cJSON *saved, const cJSON *now, const char *name)
{
    /* files may have moved; a run goes on after what it has taken */
    static const char *const others[] = { "--data", "--eval-data", "--tokenizer", "--pack", SEQUENCES_TAKEN };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(name, others[i]) == 0) return false;
    return strcmp(text_of(saved, name), text_of(now, name)) != 0;
}

/* Settings that cannot be changed even with --override: there are no states for other values. */
static bool is_for_good(const char *name)
{
    static const char *const names[] = { "--optimizer", "--rank", "--history", "replicas", "--data-parallel" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], name) == 0) return true;
    return strncmp(name, "model ", 6) == 0;
}

struct found { char *text; size_t size, used; int count, left_out; const char *for_good; };

static void note(struct found *f, const char *name, const cJSON *saved, const cJSON *now)
{
    char line[200];
    const int n = snprintf(line, sizeof line, "%s%s: saved %.60s, now %.60s", f->count ? "; " : "", name,
                           printable(text_of(saved, name)).text, printable(text_of(now, name)).text);
    f->count++;
    if (is_for_good(name) && f->for_good == NULL && cJSON_HasObjectItem(saved, name)) f->for_good = name;
    if (f->used + (size_t)n >= f->size) f->left_out++;
    else strcpy(f->text + f->used, line), f->used += (size_t)n;
}

static void compare(struct found *f, const cJSON *saved, const cJSON *now)
{
    f->text[0] = '\0';
    for (const cJSON *x = saved->child; x; x = x->next)
        if (differs(saved, now, x->string)) note(f, x->string, saved, now);
    for (const cJSON *x = now->child; x; x = x->next)
        if (!cJSON_HasObjectItem(saved, x->string) && differs(saved, now, x->string)) note(f, x->string, saved, now);
}

bool train_changes_loss_scale(const struct train_options *o)
{
    const cJSON *saved = cJSON_GetObjectItemCaseSensitive(o->saved.run, "--loss-scale");
    return saved == NULL || strtod(saved->valuestring, NULL) != plan_loss_scale(&o->plan).scale;
}

enum error_code train_check_saved(const struct train_options *o, const struct train_data *data, char *differences,
                                  size_t size, struct error *err)
{
    struct found f = { .text = differences, .size = size };
    char more[40] = "";
    differences[0] = '\0';
    if (!o->resume) return OK;
    cJSON *now = train_run(o, data, o->saved.step, err);
    if (now == NULL) return err->code;
    compare(&f, o->saved.run, now);
    cJSON_Delete(now);
    if (f.count == 0 || (o->override && f.for_good == NULL)) return OK;
    if (f.left_out) snprintf(more, sizeof more, "; and %d more", f.left_out);
    return fail(err, ERR_USAGE, "--resume %.80s: %s: %s%s; %s", printable_path(o->resume).text,
                f.for_good ? "cannot be resumed" : "this would be a different run", differences, more,
                f.for_good ? "--model DIR starts a new run from its weights" : "--override continues anyway");
}
