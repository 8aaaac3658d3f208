/* take.c -- makes a plan of what the command line of `orrery train` says.  cli/train/options/options.c calls
 * train_take().  Errors: ERR_USAGE for words that do not go together, ERR_FILE or ERR_FORMAT of a checkpoint. */
#include "emulated_devices/run/words/words.h"
#include "emulated_devices/device/kernel_set.h"
#include "emulated_devices/model/checkpoint/series.h"
#include "emulated_devices/plan/padding.h"
#include "emulated_devices/run/log.h"
#include "emulated_devices/schemes/attention/planned/flexsp_micros.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "ref/io/samples.h"
#include "ref/io/file_kind.h"
#include "ref/io/figures.h"
#include "ref/io/output.h"
#include "ref/model/attention_mask.h"
#include "ref/model/balance.h"
#include "ref/model/kinds.h"
#include "ref/model/loss_rule.h"
#include "ref/optim/rates.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The batch with which a folder's model was trained, if this program has saved it. */
static enum error_code take_folder(struct train_options *options, struct checkpoint *checkpoint, int64_t *batch,
                                   struct error *err)
{
    uint64_t found;
    const cJSON *saved = checkpoint->there ? cJSON_GetObjectItemCaseSensitive(checkpoint->run, "--batch") : NULL;
    if (cJSON_IsString(saved) && size_parse(saved->valuestring, &found) && found > 0 && found <= INT32_MAX)
        *batch = (int64_t)found;
    return checkpoint_config(checkpoint, &options->plan.model, err);
}

/* --pad-vocabulary: the preset gets rows of no token (padding.h). */
static enum error_code pad_vocabulary(struct model_config *config, const struct train_words *words, struct error *err)
{
    const int64_t padded = padded_vocabulary(config->V, words->pad_vocabulary, words->size[TP]);
    if (padded > MOST_VOCABULARY)
        return fail(err, ERR_USAGE, "--pad-vocabulary %d: with --tp %d makes %lld tokens, more than %d",
                    words->pad_vocabulary, words->size[TP], (long long)padded, MOST_VOCABULARY);
    config->V = padded;
    return OK;
}

/* A preset has no weights yet, so it gets positions for longer sequences, and another vocabulary. */
static enum error_code take_preset(struct train_options *options, const char *model, const struct train_words *words,
                                   int64_t *batch, struct error *err)
{
    struct model_config *const c = &options->plan.model;
    int32_t tokens = 0;
    enum error_code e = model_config_preset(c, batch, model, err);
    if (!e && words->seq > c->S) c->S = words->seq;
    if (!e && options->tokenizer && !words->vocabulary) e = train_data_vocabulary(options->tokenizer, &tokens, err);
    if (!e && words->vocabulary) c->V = words->vocabulary;
    else if (!e && tokens > c->V) c->V = tokens;
    return e ? e : pad_vocabulary(c, words, err);
}

/* --model NAME or DIR; a resumed run uses the checkpoint's, unless one is given, which train_check_saved compares. */
static enum error_code take_model(struct train_options *options, const struct train_words *words, int64_t *batch,
                                  struct error *err)
{
    const char *model = words->model;
    *batch = 8;
    if (words->vocabulary && (options->resume || (model && is_folder(model))))
        return fail(err, ERR_USAGE, "--vocabulary %d: is for presets; a model of files has its own", words->vocabulary);
    if (words->pad_vocabulary && (options->resume || (model && is_folder(model))))
        return fail(err, ERR_USAGE, "--pad-vocabulary %d: is for presets; a model of files has its rows",
                    words->pad_vocabulary);
    if (options->resume && model == NULL) {
        const enum error_code e = take_folder(options, &options->saved, batch, err);
        if (!e) train_take_dropout(&options->saved, &options->plan.model);
        return fail_about(err, e, "--resume");
    }
    if (model == NULL) model = model_presets[0].config.name;
    if (!is_folder(model)) return take_preset(options, model, words, batch, err);
    struct checkpoint c;
    enum error_code e = checkpoint_open(&c, model, err);
    if (!e) e = take_folder(options, &c, batch, err);
    if (!e && !options->resume) options->model_dir = model, options->saved = c;
    else if (!e) checkpoint_close(&c);
    return fail_about(err, e, "--model");
}

/* Refuse a folder that has no list of a checkpoint's files. */
static enum error_code resume_refuse(const char *folder, struct error *err)
{
    const enum error_code e =
        fail(err, ERR_FORMAT, "--resume %s: not a checkpoint of orrery train --save, without %s; --model DIR takes its "
             "weights alone", printable_path(folder).text, CHECKPOINT_LIST);
    return file_kind_refuse(e, folder, "a checkpoint of orrery train", FILE_MODEL, err);
}

/* Take from the checkpoint what the command line does not give; then compute the remaining steps. */
static enum error_code take_resumed(struct train_options *options, const struct option *table,
                                    struct train_words *train_words, bool automatic, struct error *err)
{
    static const char *const words[] = { "auto" };
    if (!is_folder(options->resume))
        return file_kind_refuse(fail(err, ERR_FILE, "--resume %s: there is no such folder%s",
                                     printable_path(options->resume).text,
                                     nearest_name(options->resume, words, 1) ? "; did you mean auto?" : ""),
                                options->resume, "a checkpoint of orrery train", FILE_CHECKPOINT, err);
    if (!automatic && series_newest(options->resumed, sizeof options->resumed, options->resume))
        options->resume = options->resumed;
    enum error_code e = fail_about(err, checkpoint_open(&options->saved, options->resume, err), "--resume");
    if (e) return e;
    if (!options->saved.there)
        return resume_refuse(options->resume, err);
    if (options->golden) return OK;             /* the file says everything else */
    e = fail_about(err, train_take_saved(&options->saved, table, train_words->argc, train_words->argv,
                                         err), "--resume");
    const bool given = options_given(train_words->argc, train_words->argv, "--steps");
    if (e || (given && !automatic)) return e;
    if (automatic) {                    /* the same words again: steps count from the very first */
        const int64_t all = given ? train_words->steps : train_words->lr_steps;
        train_words->steps = all > options->saved.step ? (int)(all - options->saved.step) : 0;
        return OK;
    }
    if (train_words->lr_steps <= options->saved.step)
        return fail(err, ERR_USAGE, "--resume %s: all of its %lld steps are done; --steps N continues for N more",
                    printable_path(options->resume).text, (long long)options->saved.step);
    train_words->steps = train_words->lr_steps - (int)options->saved.step;
    return OK;
}

/* Take from the schedule what the command line does not give: stages per device; from a file, also microbatches. */
static enum error_code take_schedule(struct plan *plan, bool chunks_given, bool micro_given, struct error *err)
{
    if (schedule_is_file(plan->schedule)) {
        struct plan whatever = *plan;
        struct schedule s;
        whatever.mesh.size[PP] = whatever.micros = whatever.chunks = 0;
        enum error_code e = plan_schedule(&whatever, &s, err);
        if (e) return e;
        if (!chunks_given) plan->chunks = s.chunks;
        if (!micro_given) plan->micros = s.micros;
        schedule_free(&s);
        return OK;
    }
    const struct schedule_generator *g = schedule_generator(plan->schedule, err);
    if (g == NULL) return err->code;
    if (g->chunks && !chunks_given) plan->chunks = g->chunks;
    return OK;
}

/* A place of the pipeline is as fast as the slowest of its devices. */
static void take_speeds(struct plan *plan, const struct cluster *cluster)
{
    const int inside = plan->mesh.devices / plan->mesh.size[PP];
    for (int rank = 0; rank < plan->mesh.devices; rank++) {
        const int place = mesh_coordinate(&plan->mesh, rank, PP), percent = cluster_percent(cluster, rank);
        if (place < PLAN_MOST_STAGES && (rank % inside == 0 || percent < plan->speed[place]))
            plan->speed[place] = percent;
    }
}

/* Read sizes of batches from a file; flags must not give them, too. */
static enum error_code take_batches(struct train_options *options, const char *file, int batch, int micro,
                                    struct error *err)
{
    struct plan *p = &options->plan;
    const char *flag = batch ? "--batch" : micro ? "--micro" : options->golden ? "--check FILE" : NULL;
    if (flag)
        return fail(err, ERR_USAGE, "%s: --batches %s says how many sequences there are", flag,
                    printable_path(file).text);
    if (batch_plan_load(&options->batches, file, err)) return fail_about(err, ERR_USAGE, "--batches");
    p->batches = &options->batches;
    p->micros = options->batches.micros;
    plan_take_step(p, 0);
    return OK;
}

/* Defaults: the optimizer's numbers, and a quarter of the model's width as rank. */
static enum error_code take_low_rank(struct plan *plan, const struct low_rank_flags *flags, struct error *err)
{
    const char *const flag = flags->rank ? "--rank" : flags->refresh ? "--refresh" : flags->scale >= 0
        ? "--galore-scale"
                           : flags->history ? "--history" : flags->damping >= 0 ? "--damping" : NULL;
    if (flag && !plan->optimizer->low_rank)
        return fail(err, ERR_USAGE, "%s: is for --optimizer galore and natural-galore, not %s", flag,
                    plan->optimizer->name);
    if (!plan->optimizer->low_rank) return OK;
    if (!plan->optimizer->natural && (flags->history || flags->damping >= 0))
        return fail(err, ERR_USAGE, "%s: is for --optimizer natural-galore, not %s",
                    flags->history ? "--history" : "--damping", plan->optimizer->name);
    struct hyperparameters *h = &plan->hyper;
    h->rank = flags->rank ? flags->rank : plan->model.D >= 8 ? plan->model.D / 4 : 1;
    if (flags->refresh) h->refresh = flags->refresh;
    if (flags->scale >= 0) h->galore_scale = flags->scale;
    if (flags->history) h->history = flags->history;
    if (flags->damping >= 0) h->damping = flags->damping;
    return OK;
}

/* The distance of an optimizer that uses only losses; refuses flags that clash with it and are not in the plan. */
static enum error_code take_distance(struct train_options *options, double distance, bool gradients_given,
                                     struct error *err)
{
    struct plan *p = &options->plan;
    const char *const name = p->optimizer->name;
    if (distance >= 0) p->hyper.distance = distance;
    if (p->optimizer->infers) return OK;
    if (!p->optimizer->forward_only)
        return distance < 0
                   ? OK
                   : fail(err, ERR_USAGE, "--mezo-eps %g: is for --optimizer mezo; %s has gradients", distance, name);
    if (gradients_given) return fail(err, ERR_USAGE, "--grad-dtype: --optimizer %s has no gradients", name);
    if (options->golden)
        return fail(err, ERR_USAGE, "--check %s: golden files have no steps of %s; use --check ref",
                    printable_path(options->check).text, name);
    if (options->isolate)
        return fail(err, ERR_USAGE,
                    "--isolate: with --optimizer %s only losses and weights are compared, no activations", name);
    if (options->timeline)
        return fail(err, ERR_USAGE,
                    "--timeline %s: draws forward and backward passes; for --optimizer %s use --trace FILE",
                    printable_path(options->timeline).text, name);
    return OK;
}

/* Refuse flags that need numbers, if the backend has none. */
static enum error_code refuse_numbers(const struct train_options *options, const char *backend, struct error *err)
{
    const char *flag = options->check ? "--check" : options->save ? "--save" : options->dump ? "--dump"
        : options->sample ? "--sample" : NULL;
    return flag ? fail(err, ERR_USAGE, "%s: the backend %s only counts, and has no numbers", flag, backend) : OK;
}

/* Experts lie over the devices of a stage.  If these are too few, each copy's part of the batch is cut further. */
static void take_experts(struct plan *plan, const char *dispatch, int size[AXIS_COUNT])
{
    const int n = plan->ep <= MESH_MOST_LISTED / plan->etp ? plan->ep * plan->etp : MESH_MOST_LISTED;
    if ((int64_t)size[DP] * size[CP] * size[TP] % n != 0 && size[DP] <= MESH_MOST_DEVICES / n) size[DP] *= n;
    plan->dispatch = dispatch ? dispatch : expert_scheme_at(n > 1)->head.name;
}

/* Where speculative dispatch expects the experts of each token. */
static enum error_code take_affinity(struct train_options *options, const char *file, struct error *err)
{
    struct plan *p = &options->plan;
    const struct expert_scheme *s;
    const enum error_code e = file ? OK : expert_scheme_find(&s, p->dispatch, err);
    if (e || (!file && !s->predicts)) return e;
    if (!file)
        return fail(err, ERR_USAGE, "--dispatch %s: needs --affinity FILE, which `orrery affinity` makes", p->dispatch);
    if (affinity_read(&options->affinity, file, err)) return fail_about(err, ERR_USAGE, "--affinity");
    p->affinity = &options->affinity;
    return OK;
}

/* Names of modalities, with commas between them. */
static enum error_code take_clips(struct encoder_request *request, const char *list, struct error *err)
{
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const size_t letters = strcspn(at, ",");
        const int m = modality_find(at, letters);
        if (m < 0 || m >= request->kinds)
            return fail(err, ERR_USAGE, "--clips-of %s: %.*s is no modality with an encoder; %s", printable(list).text,
                        (int)letters, printable(at).text, m < 0 ? "there are image, audio and video"
                        : "--modalities says how many there are");
        request->only |= 1u << m;
    }
    if (list && request->given)
        return fail(err, ERR_USAGE, "--clips-of: the file of --pack says which clips there are");
    return OK;
}

static enum error_code take_encoders(struct train_options *options, const char *where, const char *clips,
                                     struct error *err)
{
    struct encoder_request *r = &options->plan.encoders;
    const bool apart = where && strcmp(where, "apart") == 0;
    r->placement = apart ? ENCODERS_APART : ENCODERS_EVERYWHERE;
    if (r->kinds == 0 && (where || clips || r->chunks > 0 || r->slack > 0))
        return fail(err, ERR_USAGE, "%s: needs --modalities", where ? "--encoders" : clips ? "--clips-of"
                                              : r->chunks ? "--bridge-chunks" : "--encoder-slack");
    if (r->kinds > 0 && options->golden)
        return fail(err, ERR_USAGE, "--modalities: not with --check of a file, which has no encoders");
    enum error_code e = OK;
    if (r->kinds > 0 && options->pack && !samples_are_drawn(options->pack))
        e = fail_about(err, samples_say_clips(options->pack, &r->given, err), "--pack");
    return e ? e : take_clips(r, clips, err);
}

static enum error_code take_owners(struct train_options *options, const char *file, struct error *err)
{
    struct plan *p = &options->plan;
    const struct expert_scheme *s;
    const enum error_code e = expert_scheme_find(&s, p->dispatch, err);
    if (e || (!file && !options->owners_out)) return e;
    if (!s->copies)
        return fail(err, ERR_USAGE, "%s: --dispatch %s copies no experts; fssdp does",
                    file ? "--owners" : "--owners-out", p->dispatch);
    if (file && expert_owners_read(&options->owners, file, err)) return fail_about(err, ERR_USAGE, "--owners");
    if (file) p->owners = &options->owners;
    return OK;
}

/* Take the load that says which experts tokens go to, and the file for their choices. */
static enum error_code take_load(struct train_options *options, bool batches, struct error *err)
{
    struct plan *p = &options->plan;
    const char *const flag = options->load_word ? "--load" : "--save-load";
    const char *const word = options->load_word ? options->load_word : options->save_load;
    if (word == NULL) return OK;
    if (p->model.mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "%s %s: --model %s has no experts", flag, printable(word).text, p->model.name);
    if (options->golden)
        return fail(err, ERR_USAGE, "%s %s: in a golden file's run its routers have chosen; use --check ref", flag,
                    printable(word).text);
    if (batches && options->save_load)
        return fail(err, ERR_USAGE, "--save-load %s: with --batches steps have different numbers of tokens",
                    printable(options->save_load).text);
    if (options->load_word == NULL) return OK;
    const enum error_code e = load_open(&options->load, options->load_word, &p->model, plan_stream_rows(p), err);
    if (e) return fail_about(err, e, "--load");
    if (batches && options->load.kind == LOAD_FILE)
        return fail(err, ERR_USAGE, "--load %s: with --batches steps have different numbers of tokens; use even or "
                    "zipf:S", printable(options->load_word).text);
    p->load = &options->load;
    return OK;
}

/* --resume auto: from the newest checkpoint of --save, if there is one. */
static enum error_code take_earlier(struct train_options *options, const struct option *table,
                                    struct train_words *words, struct error *err)
{
    const bool automatic = options->resume && strcmp(options->resume, "auto") == 0;
    if (automatic && options->save == NULL) return fail(err, ERR_USAGE, "--resume auto: needs --save DIR");
    if (automatic) options->resume = series_newest(options->resumed, sizeof options->resumed, options->save)
        ? options->resumed : NULL;
    if (options->resume) return take_resumed(options, table, words, automatic, err);
    return options->override && !automatic
               ? fail(err, ERR_USAGE,
                      "--override: is only for --resume DIR, with options that make it a different run")
               : OK;
}

/* Flags that mean nothing without others. */
static enum error_code take_output(const struct train_options *options, const struct train_words *words,
                                   struct error *err)
{
    if (options->save_every && !options->save)
        return fail(err, ERR_USAGE, "--save-every %d: needs --save DIR", options->save_every);
    if (options->sharded && !options->save) return fail(err, ERR_USAGE, "--sharded: needs --save DIR");
    if (options->keep && !options->save_every)
        return fail(err, ERR_USAGE, "--keep %d: needs --save-every N", options->keep);
    if (options_given(words->argc, words->argv, "--log-every") && !options->log && !options->tensorboard)
        return fail(err, ERR_USAGE, "--log-every %d: needs --log FILE or --tensorboard DIR", options->log_every);
    if (options_given(words->argc, words->argv, "--trace-format") && !options->trace)
        return fail(err, ERR_USAGE, "--trace-format %s: needs --trace FILE", options->trace_format);
    if (options->film && !options->json) return fail(err, ERR_USAGE, "--film: needs --json FILE");
    if (options_given(words->argc, words->argv, "--page-steps") && !options->page && !options->film &&
        options->live == LIVE_OFF)
        return fail(err, ERR_USAGE, "--page-steps %d: needs --page FILE, --film or --live PORT", options->page_steps);
    if (options->golden && (options->page || options->film || options->live != LIVE_OFF))
        return fail(err, ERR_USAGE, "%s: a golden file's run is not filmed; use --check ref",
                    options->page ? "--page" : options->film ? "--film" : "--live");
    return options->log ? run_log_check(options->log, err) : OK;
}

/* Refuse what of a golden file's run cannot be chosen; what needs a golden file or a checkpoint. */
static enum error_code take_check(struct train_options *options, const struct train_words *words, struct error *err)
{
    const struct model_flags *const m = &words->changed;
    if (options->golden && strpbrk(options->check, "./") == NULL)           /* a word, not a file */
        return fail(err, ERR_USAGE, "--check %s: must be ref or a golden file, NAME.safetensors; did you mean ref?",
                    printable(options->check).text);
    if (options->golden &&
        (words->model || options->data || options->tokenizer || words->vocabulary ||
         words->pad_vocabulary || options->trace || words->batch ||
         words->seq || words->lr >= 0 || words->clip >= 0 || words->decay >= 0 || moments_given(&words->moments) ||
         words->dropout >= 0 || words->untied || m->router || m->z_loss >= 0 || m->zero || m->top_p > 0 || m->streams ||
         m->prefix || m->rank || m->trained || words->as || words->balance_over || words->mask))
        return fail(err, ERR_USAGE,
                    "--check %s: the golden file says what is trained; of the model, the text and the training only "
                    "--optimizer can be chosen",
                    printable_path(options->check).text);
    if (options->golden && options->eval_every && !options->eval_data)
        return fail(err, ERR_USAGE, "--eval-every %d: a golden file has no held-out text; --eval-data FILE names one",
                    options->eval_every);
    if (options->golden && options->eval_data && !options->eval_every)
        return fail(err, ERR_USAGE, "--eval-data %s: beside a golden file needs --eval-every N",
                    printable(options->eval_data).text);
    if (options->dump && !options->golden)
        return fail(err, ERR_USAGE, "--dump %s: is of a golden file's run; --check must name the file",
                    printable_path(options->dump).text);
    const char *const slash = options->dump ? strrchr(options->dump, '/') : NULL;
    if (options->dump && options->resume && (slash == NULL || slash[1] != '\0'))
        return fail(err, ERR_USAGE, "--dump %s: of a resumed run is a folder, whose name ends with /",
                    printable_path(options->dump).text);
    if (options->dump_passes && !options->dump)
        return fail(err, ERR_USAGE, "--dump-passes: says what --dump FILE|DIR/ writes, which is not given");
    const size_t length = options->dump ? strlen(options->dump) : 0;
    if (options->dump_steps && (length == 0 || options->dump[length - 1] != '/'))
        return fail(err, ERR_USAGE, "--dump-steps: says what --dump DIR/ writes, which is not given");
    return options->isolate && !options->check ? fail(err, ERR_USAGE, "--isolate: needs --check ref") : OK;
}

enum error_code take_backend(const struct train_options *options, const struct train_words *words,
                             struct error *err)
{
    set_wait_limit(words->limit);
    const enum error_code e = set_backend(words->backend, err);
    if (words->direct) setenv("ORRERY_DIRECT", words->direct, 1);
    return !e && words->backend && !backend_find(words->backend)->has_numbers
           ? refuse_numbers(options, words->backend, err) : e;
}

/* Forward passes alone: no optimizer, no dropout. */
static enum error_code take_inference(struct train_options *options, struct error *err)
{
    struct model_config *c = &options->plan.model;
    if (options->golden)
        return fail(err, ERR_USAGE, "--check %s: golden files are of training; --check ref compares forward passes",
                    options->check);
    options->infers = true;
    options->plan.optimizer = &no_optimizer;
    options->plan.hyper = no_optimizer.usual;
    c->dropout_embedding = c->dropout_residual = c->dropout_attention = 0;
    return OK;
}

/* The mask as typed, or that with which the folder's model was trained: its weights have no other. */
static enum error_code take_mask_word(struct train_options *options, const struct train_words *words,
                                      struct error *err)
{
    const cJSON *const saved = words->mask == NULL && options->model_dir && options->saved.there
        ? cJSON_GetObjectItemCaseSensitive(options->saved.run, "--mask") : NULL;
    const char *const text = words->mask ? words->mask : cJSON_IsString(saved) ? saved->valuestring : NULL;
    if (text == NULL) return OK;
    const enum error_code e = attention_mask_parse(&options->plan.model.mask, text, err);
    if (!e && options->sample && !attention_mask_is_causal(&options->plan.model.mask))
        return fail(err, ERR_USAGE, "--sample %d: text is made with causal attention, but the model has --mask %s",
                    options->sample, text);
    return words->mask ? e : fail_about(err, e, "--model");
}

/* Requests have no losses, and so none of routers. */
static void take_serving(struct mixture_config *mixture)
{
    mixture->balance_coefficient = mixture->z_coefficient = mixture->sequence_coefficient = 0;
}

/* The model, the mesh and how devices share the model. */
static enum error_code take_parts(struct train_options *options, struct train_words *words, struct error *err)
{
    struct plan *const p = &options->plan;
    int64_t usual_batch;
    enum error_code e = take_model(options, words, &usual_batch, err);
    take_experts(p, words->dispatch, words->size);
    if (words->serves) words->batch = words->size[DP];
    if (!e) e = mesh_make(&p->mesh, words->size, err);
    if (!e) e = optimizer_find(&p->optimizer, words->optimizer, err);
    if (!e && words->infers) e = take_inference(options, err);
    if (!e) e = take_changes(&p->model, &words->changed, err);
    if (words->serves) take_serving(&p->model.mixture);
    if (!e) e = take_mask_word(options, words, err);
    if (!e) p->attention = words->attention ? words->attention : plan_usual_attention(p);
    if (!e) e = take_affinity(options, words->affinity, err);
    if (!e) e = take_owners(options, words->owners, err);
    if (!e) e = take_encoders(options, words->encoders, words->clips, err);
    if (e) return e;
    if (words->untied) p->model.tied = false;
    p->model.exact = exact_rule_named(words->arithmetic);
    if (words->dropout >= 0)
        p->model.dropout_embedding = p->model.dropout_residual = p->model.dropout_attention = words->dropout;
    p->B = words->batch ? words->batch : usual_batch;
    p->S = words->seq ? words->seq : p->model.S;
    if (!options->golden) p->packed = options->pack != NULL;
    return take_load(options, words->batches != NULL, err);
}

/* The conventions as typed, or of a run that goes on; then --balance-over, which is one of them. */
static enum error_code take_conventions(struct plan *plan, const struct train_words *words, struct error *err)
{
    const enum error_code e = words->as ? conventions_parse(&plan->hyper.as, words->as, err) : OK;
    if (e || words->balance_over == NULL) return e;
    if (!(plan->model.mlp == MLP_MIXTURE && plan->model.mixture.balance_coefficient > 0))
        return fail(err, ERR_USAGE, "--balance-over %s: is for mixtures with a balance loss; model %s has none",
                    printable(words->balance_over).text, plan->model.name);
    if (options_given(words->argc, words->argv, "--as") && conventions_say(words->as, BALANCE_OVER))
        return fail(err, ERR_USAGE, "--balance-over %s: --as %s says it already; give one of them", words->balance_over,
                    printable(words->as).text);
    return conventions_change(&plan->hyper.as, BALANCE_OVER, words->balance_over, err);
}

/* The conventions of the optimizer's step, then what a golden file says of it. */
static enum error_code take_rule(struct train_options *options, const struct train_words *words, struct error *err)
{
    struct plan *const p = &options->plan;
    enum error_code e = take_conventions(p, words, err);
    if (e) return e;
    const struct conventions as = p->hyper.as;
    if (!options->golden) p->hyper = optimizer_usual(p->optimizer, &as);
    p->model.initial = (int)convention(&p->hyper.as, INITIAL);
    e = take_distance(options, words->distance, words->grad_dtype != NULL, err);
    if (!e && options->golden)
        e = train_take_golden(options, options_given(words->argc, words->argv, "--optimizer"), err);
    p->model.mixture.balance = balance_rule_of(&p->hyper.as);
    if (!options->golden) p->model.loss = loss_rule_of(&p->hyper.as);
    return e;
}

/* Room for all numbers of microbatches that FlexSP tries: from those that hold the tokens of a copy on. */
static int most_microbatches(const struct plan *plan)
{
    const double tokens = (double)plan->B * (double)plan->S / plan->mesh.size[DP];
    const double least = ceil(tokens / ((double)plan->micro_tokens * plan->mesh.size[CP]));
    return (int)fmin(least, 1e6) + FLEXSP_OPTIONS - 1;
}

/* As many microbatches as fill the pipeline; in a run that goes on, as many as its balance losses are of. */
static int usual_microbatches(const struct train_options *options, const struct train_words *words)
{
    const int usual = words->size[PP] * options->plan.chunks, dp = words->size[DP];
    const int64_t saved = options->resume ? train_saved_microbatches(&options->saved) : 0;
    if (saved >= dp && saved % dp == 0 && saved <= options->plan.B) return (int)(saved / dp);
    return options->plan.B >= (int64_t)dp * usual ? usual : 1;
}

static enum error_code take_microbatches(struct train_options *options, const struct train_words *words,
                                         struct error *err)
{
    struct plan *const p = &options->plan;
    p->micros = words->micro ? words->micro
              : p->micro_tokens ? most_microbatches(p) : usual_microbatches(options, words);
    if (options->pack && options->golden) return fail(err, ERR_USAGE, "--pack: a golden file has its own batches");
    enum error_code e = words->batches ? take_batches(options, words->batches, words->batch, words->micro, err) : OK;
    if (!e) e = take_schedule(p, words->chunks_given, words->micro > 0 || words->batches, err);
    return e;
}

/* Balance losses of microbatches are the golden file's only with as many of them.  With such losses sections have the
 * same copies. */
static enum error_code check_golden_micros(const struct train_options *options, struct error *err)
{
    const struct plan *const p = plan_of_layer(&options->plan, 0);
    const int dp = p->mesh.size[DP];
    const int64_t micros = (int64_t)dp * p->micros;
    if (options->golden_micros == 0 || options->golden_micros == micros) return OK;
    return fail(err, ERR_USAGE, "--check: the golden file's balance losses are of %lld microbatches; with dp %d and "
                "--micro %d there are %lld", (long long)options->golden_micros, dp, p->micros, (long long)micros);
}

enum error_code take_numbers(struct train_options *options, const struct train_words *words, struct error *err)
{
    struct hyperparameters *const h = &options->plan.hyper;
    if (words->lr >= 0) h->lr = words->lr;
    if (words->clip >= 0) h->clip = words->clip;
    if (words->decay >= 0) h->weight_decay = words->decay;
    const enum error_code e = moments_check(&options->plan.optimizer, 1, &words->moments, err);
    if (e) return e;
    moments_take(h, options->plan.optimizer, &words->moments);
    h->min_lr = words->min_lr >= 0 ? words->min_lr : h->lr / 10;
    h->schedule = rate_schedule_named(words->rates);
    options->lr_steps = words->lr_steps;
    options->lr_decay = words->lr_decay;
    options->warmup = words->warmup;
    if (options->lr_decay && !rate_decays(h->schedule))
        return fail(err, ERR_USAGE, "--lr-decay %d: is for --lr-schedule wsd, not %s", words->lr_decay, words->rates);
    return take_low_rank(&options->plan, &words->low_rank, err);
}

/* A seed of the run draws its noise, too. */
static enum error_code take_disturbances(struct train_options *options, const struct train_words *words,
                                         struct error *err)
{
    const enum error_code e = disturbances_parse(&options->disturbances, words->disturb, err);
    options->disturbances.seed = options->plan.seed;
    return e ? e : disturbances_check(&options->disturbances, options->plan.mesh.devices, err);
}

static enum error_code take_cluster(struct train_options *options, const struct train_words *words, struct error *err)
{
    struct plan *const p = &options->plan;
    enum error_code e = cluster_find(&options->cluster, words->cluster, err);
    if (!e && words->disturb) e = take_disturbances(options, words, err);
    if (!e && words->kernels != NULL) e = kernel_set_choose(&options->cluster, words->kernels, err);
    p->cluster = &options->cluster;
    options->cluster.slot = words->places;
    if (!e && strcmp(words->placement, "speed") == 0) take_speeds(p, &options->cluster);
    if (!e && words->plan) e = train_take_sections(options, words, err);
    if (!e) e = check_golden_micros(options, err);
    if (!e && words->slots) e = train_take_slots(options, words, err);
    if (!e) e = plan_check(p, err);
    if (!options->golden) train_set_rates(&p->hyper, options, 0);
    /* Products with exact sums are computed in fp64. */
    if (!e && p->model.exact) e = cluster_check(&options->cluster, p->mesh.devices, F64, err);
    return e ? e : cluster_check(&options->cluster, p->mesh.devices, p->dtype, err);
}

enum error_code train_take(struct train_options *options, struct train_words *words, const struct option *table,
                           struct error *err)
{
    options->golden = options->check && strcmp(options->check, "ref") != 0;
    /* A replica answers its requests iteration by iteration: the plan has a sequence for each, and one microbatch. */
    if (words->serves) words->micro = 1;
    enum error_code e = take_backend(options, words, err);
    if (!e) e = take_output(options, words, err);
    if (!e) e = take_earlier(options, table, words, err);
    if (!e) e = take_check(options, words, err);
    if (!e) e = take_parts(options, words, err);
    options->steps = words->steps;
    if (!e) e = take_storage(options, words, err);
    if (!e) e = take_rule(options, words, err);
    if (!e) e = take_microbatches(options, words, err);
    if (!e) e = take_numbers(options, words, err);
    if (!e) e = take_cluster(options, words, err);
    return e ? e : train_check_saving(options, err);
}
