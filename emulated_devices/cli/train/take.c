/* take.c -- makes a plan of what the command line of `orrery train` says. */
#include "emulated_devices/cli/train/log.h"
#include "emulated_devices/cli/train/series.h"
#include "emulated_devices/cli/train/options/words.h"
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "ref/io/figures.h"
#include "ref/io/output.h"
#include "ref/model/balance.h"
#include "ref/optim/rates.h"
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
static enum error_code take_folder(struct train_options *o, struct checkpoint *c, int64_t *batch, struct error *err)
{
    uint64_t found;
    const cJSON *saved = c->there ? cJSON_GetObjectItemCaseSensitive(c->run, "--batch") : NULL;
    if (cJSON_IsString(saved) && size_parse(saved->valuestring, &found) && found > 0 && found <= INT32_MAX)
        *batch = (int64_t)found;
    return checkpoint_config(c, &o->plan.model, err);
}

/* A preset has no weights yet, so it gets positions for longer sequences, and another vocabulary. */
static enum error_code take_preset(struct train_options *o, const char *model, const struct train_words *w,
                                   int64_t *batch, struct error *err)
{
    struct model_config *const c = &o->plan.model;
    int32_t tokens = 0;
    enum error_code e = model_config_preset(c, batch, model, err);
    if (!e && w->seq > c->S) c->S = w->seq;
    if (!e && o->tokenizer && !w->vocabulary) e = train_data_vocabulary(o->tokenizer, &tokens, err);
    if (!e && w->vocabulary) c->V = w->vocabulary;
    else if (!e && tokens > c->V) c->V = tokens;
    return e;
}

/* --model NAME or DIR; a resumed run uses the checkpoint's, unless one is given, which train_check_saved compares. */
static enum error_code take_model(struct train_options *o, const struct train_words *w, int64_t *batch,
                                  struct error *err)
{
    const char *model = w->model;
    *batch = 8;
    if (w->vocabulary && (o->resume || (model && is_folder(model))))
        return fail(err, ERR_USAGE, "--vocabulary %d: is for presets; a model of files has its own", w->vocabulary);
    if (o->resume && model == NULL) {
        const enum error_code e = take_folder(o, &o->saved, batch, err);
        if (!e) train_take_dropout(&o->saved, &o->plan.model);
        return fail_about(err, e, "--resume");
    }
    if (model == NULL) model = model_presets[0].config.name;
    if (!is_folder(model)) return take_preset(o, model, w, batch, err);
    struct checkpoint c;
    enum error_code e = checkpoint_open(&c, model, err);
    if (!e) e = take_folder(o, &c, batch, err);
    if (!e && !o->resume) o->model_dir = model, o->saved = c;
    else if (!e) checkpoint_close(&c);
    return fail_about(err, e, "--model");
}

/* Take from the checkpoint what the command line does not give; then compute the remaining steps. */
static enum error_code take_resumed(struct train_options *o, const struct option *table, struct train_words *w,
                                    bool automatic, struct error *err)
{
    static const char *const words[] = { "auto" };
    if (!is_folder(o->resume))
        return fail(err, ERR_FILE, "--resume %s: there is no such folder%s", printable_path(o->resume).text,
                    nearest_name(o->resume, words, 1) ? "; did you mean auto?" : "");
    if (!automatic && series_newest(o->resumed, sizeof o->resumed, o->resume)) o->resume = o->resumed;
    enum error_code e = fail_about(err, checkpoint_open(&o->saved, o->resume, err), "--resume");
    if (e) return e;
    if (!o->saved.there)
        return fail(
            err, ERR_FORMAT,
            "--resume %s: not a checkpoint of orrery train --save, without %s; --model DIR takes its weights alone",
            printable_path(o->resume).text, CHECKPOINT_LIST);
    e = fail_about(err, train_take_saved(&o->saved, table, w->argc, w->argv, err), "--resume");
    const bool given = options_given(w->argc, w->argv, "--steps");
    if (e || (given && !automatic)) return e;
    if (automatic) {                    /* the same words again: steps count from the very first */
        const int64_t all = given ? w->steps : w->lr_steps;
        w->steps = all > o->saved.step ? (int)(all - o->saved.step) : 0;
        return OK;
    }
    if (w->lr_steps <= o->saved.step)
        return fail(err, ERR_USAGE, "--resume %s: all of its %lld steps are done; --steps N continues for N more",
                    printable_path(o->resume).text, (long long)o->saved.step);
    w->steps = w->lr_steps - (int)o->saved.step;
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
        return fail(err, ERR_USAGE, "--shards %s: must be three numbers of devices, such as 2,4,8", f->shards);
    q->keep = !f->reshard;
    q->no_prefetch = !f->prefetch;
    q->quantise_weights = (struct block_format){ bits_of(f->weights), f->block };
    q->quantise_gradients = (struct block_format){ bits_of(f->gradients), f->block };
    if (f->block_given && !data_quantises(q))
        return fail(err, ERR_USAGE, "--quantize-block %d: is for --quantize-weights and --quantize-gradients",
                    f->block);
    return OK;
}

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
    h->decay = o->lr_decay ? updates * o->lr_decay : h->steps / 5;
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

/* Take the load that says which experts tokens go to, and the file for their choices. */
static enum error_code take_load(struct train_options *o, bool batches, struct error *err)
{
    struct plan *p = &o->plan;
    const char *const flag = o->load_word ? "--load" : "--save-load";
    const char *const word = o->load_word ? o->load_word : o->save_load;
    if (word == NULL) return OK;
    if (p->model.mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "%s %s: --model %s has no experts", flag, printable(word).text, p->model.name);
    if (o->golden)
        return fail(err, ERR_USAGE, "%s %s: in a golden file's run its routers have chosen; use --check ref", flag,
                    printable(word).text);
    if (batches && o->save_load)
        return fail(err, ERR_USAGE, "--save-load %s: with --batches steps have different numbers of tokens",
                    printable(o->save_load).text);
    if (o->load_word == NULL) return OK;
    const enum error_code e = load_open(&o->load, o->load_word, &p->model, plan_stream_rows(p), err);
    if (e) return fail_about(err, e, "--load");
    if (batches && o->load.kind == LOAD_FILE)
        return fail(err, ERR_USAGE, "--load %s: with --batches steps have different numbers of tokens; use even or "
                    "zipf:S", printable(o->load_word).text);
    p->load = &o->load;
    return OK;
}

static const char *usual_attention(const struct plan *p)
{
    if (p->mesh.size[CP] == 1) return attention_scheme_at(0)->head.name;
    return STREAMS(&p->model) > 1 ? "streams" : "ring-zigzag";
}

/* --resume auto: from the newest checkpoint of --save, if there is one. */
static enum error_code take_earlier(struct train_options *o, const struct option *table, struct train_words *w,
                                    struct error *err)
{
    const bool automatic = o->resume && strcmp(o->resume, "auto") == 0;
    if (automatic && o->save == NULL) return fail(err, ERR_USAGE, "--resume auto: needs --save DIR");
    if (automatic) o->resume = series_newest(o->resumed, sizeof o->resumed, o->save) ? o->resumed : NULL;
    if (o->resume) return take_resumed(o, table, w, automatic, err);
    return o->override && !automatic
               ? fail(err, ERR_USAGE,
                      "--override: is only for --resume DIR, with options that make it a different run")
               : OK;
}

/* Flags that mean nothing without others. */
static enum error_code take_output(const struct train_options *o, const struct train_words *w, struct error *err)
{
    if (o->save_every && !o->save) return fail(err, ERR_USAGE, "--save-every %d: needs --save DIR", o->save_every);
    if (o->keep && !o->save_every) return fail(err, ERR_USAGE, "--keep %d: needs --save-every N", o->keep);
    if (options_given(w->argc, w->argv, "--log-every") && !o->log && !o->tensorboard)
        return fail(err, ERR_USAGE, "--log-every %d: needs --log FILE or --tensorboard DIR", o->log_every);
    if (options_given(w->argc, w->argv, "--trace-format") && !o->trace)
        return fail(err, ERR_USAGE, "--trace-format %s: needs --trace FILE", o->trace_format);
    return o->log ? run_log_check(o->log, err) : OK;
}

/* What of a golden file's run cannot be chosen; what needs a golden file or a checkpoint. */
static enum error_code take_check(struct train_options *o, const struct train_words *w, struct error *err)
{
    const struct model_flags *const m = &w->changed;
    o->golden = o->check && strcmp(o->check, "ref") != 0;
    if (o->golden && strpbrk(o->check, "./") == NULL)           /* a word, not a file */
        return fail(err, ERR_USAGE, "--check %s: must be ref or a golden file, NAME.safetensors; did you mean ref?",
                    printable(o->check).text);
    if (o->golden &&
        (w->model || o->resume || o->data || o->tokenizer || w->vocabulary || o->save || o->trace ||
         w->batch || w->seq || w->lr >= 0 ||
         w->dropout >= 0 || w->untied || m->router || m->z_loss >= 0 || m->zero || m->top_p > 0 || m->streams ||
         m->prefix || w->as || w->balance_over))
        return fail(err, ERR_USAGE,
                    "--check %s: the golden file says what is trained; of the model, the text and the training only "
                    "--optimizer can be chosen",
                    printable_path(o->check).text);
    if (o->golden && o->eval_every && !o->eval_data)
        return fail(err, ERR_USAGE, "--eval-every %d: a golden file has no held-out text; --eval-data FILE names one",
                    o->eval_every);
    if (o->golden && o->eval_data && !o->eval_every)
        return fail(err, ERR_USAGE, "--eval-data %s: beside a golden file needs --eval-every N",
                    printable(o->eval_data).text);
    if (o->dump && !o->golden)
        return fail(err, ERR_USAGE, "--dump %s: is of a golden file's run; --check must name the file",
                    printable_path(o->dump).text);
    return o->isolate && !o->check ? fail(err, ERR_USAGE, "--isolate: needs --check ref") : OK;
}

static enum error_code take_backend(const struct train_options *o, const struct train_words *w, struct error *err)
{
    set_wait_limit(w->limit);
    const enum error_code e = set_backend(w->backend, err);
    if (w->direct) setenv("ORRERY_DIRECT", w->direct, 1);
    return !e && w->backend && !backend_find(w->backend)->has_numbers ? refuse_numbers(o, w->backend, err) : e;
}

/* The model, the mesh and how devices share the model. */
static enum error_code take_parts(struct train_options *o, const struct run_kind *kind, struct train_words *w,
                                  struct error *err)
{
    struct plan *const p = &o->plan;
    int64_t usual_batch;
    enum error_code e = take_model(o, w, &usual_batch, err);
    take_experts(p, w->dispatch, w->size);
    if (!e) e = mesh_make(&p->mesh, w->size, err);
    if (!e) e = optimizer_find(&p->optimizer, w->optimizer, err);
    if (!e && kind->take) e = kind->take(o, err);
    if (!e) e = train_change_model(&p->model, &w->changed, err);
    if (!e) p->attention = w->attention ? w->attention : usual_attention(p);
    if (!e) e = take_affinity(o, w->affinity, err);
    if (!e) e = take_owners(o, w->owners, err);
    if (!e) e = take_encoders(o, w->encoders, err);
    if (e) return e;
    if (w->untied) p->model.tied = false;
    if (w->dropout >= 0)
        p->model.dropout_embedding = p->model.dropout_residual = p->model.dropout_attention = w->dropout;
    p->B = w->batch ? w->batch : usual_batch;
    p->S = w->seq ? w->seq : p->model.S;
    p->packed = o->pack != NULL;
    return take_load(o, w->batches != NULL, err);
}

/* What is kept where, and in which format. */
static enum error_code take_storage(struct train_options *o, const struct train_words *w, struct error *err)
{
    struct plan *const p = &o->plan;
    p->dtype = dtype_by_name(w->dtype);
    p->data.bucket = (int64_t)w->bucket;
    enum error_code e = take_data(&p->data, &w->data, err);
    if (!e && o->golden && data_outer(&p->data).every > 0)
        e = fail(err, ERR_USAGE,
                 "--data-parallel %s: a golden file's run adds up the gradients of every step; --check ref trains "
                 "copies apart",
                 p->data.scheme);
    if (!e) e = take_formats(o, w->grad_dtype, err);
    return e ? e : train_take_offload(p, &w->offload, err);
}

/* The conventions as typed, or of a run that goes on; then --balance-over, which is one of them. */
static enum error_code take_conventions(struct plan *p, const struct train_words *w, struct error *err)
{
    const enum error_code e = w->as ? conventions_parse(&p->hyper.as, w->as, err) : OK;
    if (e || w->balance_over == NULL) return e;
    if (!(p->model.mlp == MLP_MIXTURE && p->model.mixture.balance_coefficient > 0))
        return fail(err, ERR_USAGE, "--balance-over %s: is for mixtures with a balance loss; model %s has none",
                    printable(w->balance_over).text, p->model.name);
    if (options_given(w->argc, w->argv, "--as") && strstr(w->as, "balance-over="))
        return fail(err, ERR_USAGE, "--balance-over %s: --as %s says it already; give one of them", w->balance_over,
                    printable(w->as).text);
    return conventions_change(&p->hyper.as, BALANCE_OVER, w->balance_over, err);
}

/* The conventions of the optimizer's step, then what a golden file says of it. */
static enum error_code take_rule(struct train_options *o, const struct train_words *w, struct error *err)
{
    struct plan *const p = &o->plan;
    if (!o->golden) p->hyper = p->optimizer->usual;
    enum error_code e = take_conventions(p, w, err);
    if (e) return e;
    p->model.initial = (int)convention(&p->hyper.as, INITIAL);
    e = take_distance(o, w->distance, w->grad_dtype != NULL, err);
    if (!e && o->golden) e = train_take_golden(o, options_given(w->argc, w->argv, "--optimizer"), err);
    p->model.mixture.balance = balance_rule_of(&p->hyper.as);
    return e;
}

/* As many microbatches as fill the pipeline; in a run that goes on, as many as its balance losses are of. */
static int usual_microbatches(const struct train_options *o, const struct train_words *w)
{
    const int usual = w->size[PP] * o->plan.chunks, dp = w->size[DP];
    const int64_t saved = o->resume ? train_saved_microbatches(&o->saved) : 0;
    if (saved >= dp && saved % dp == 0 && saved <= o->plan.B) return (int)(saved / dp);
    return o->plan.B >= (int64_t)dp * usual ? usual : 1;
}

static enum error_code take_microbatches(struct train_options *o, const struct train_words *w, struct error *err)
{
    struct plan *const p = &o->plan;
    p->micros = w->micro ? w->micro : usual_microbatches(o, w);
    if (o->pack && o->golden) return fail(err, ERR_USAGE, "--pack: a golden file has its own batches");
    enum error_code e = w->batches ? take_batches(o, w->batches, w->batch, w->micro, err) : OK;
    if (!e) e = take_schedule(p, w->chunks_given, w->micro > 0 || w->batches, err);
    const int64_t micros = (int64_t)w->size[DP] * p->micros;
    if (!e && o->golden_micros > 0 && o->golden_micros != micros)
        e = fail(err, ERR_USAGE, "--check: the golden file's balance losses are of %lld microbatches; with --dp %d and "
                 "--micro %d there are %lld", (long long)o->golden_micros, w->size[DP], p->micros, (long long)micros);
    return e;
}

static enum error_code take_numbers(struct train_options *o, const struct train_words *w, struct error *err)
{
    struct hyperparameters *const h = &o->plan.hyper;
    if (w->lr >= 0) h->lr = w->lr;
    if (w->clip >= 0) h->clip = w->clip;
    if (w->decay >= 0) h->weight_decay = w->decay;
    h->min_lr = w->min_lr >= 0 ? w->min_lr : h->lr / 10;
    h->schedule = rate_schedule_named(w->rates);
    o->lr_steps = w->lr_steps;
    o->lr_decay = w->lr_decay;
    o->warmup = w->warmup;
    if (o->lr_decay && !rate_decays(h->schedule))
        return fail(err, ERR_USAGE, "--lr-decay %d: is for --lr-schedule wsd, not %s", w->lr_decay, w->rates);
    return take_low_rank(&o->plan, &w->low_rank, err);
}

static enum error_code take_cluster(struct train_options *o, const struct train_words *w, struct error *err)
{
    struct plan *const p = &o->plan;
    enum error_code e = cluster_find(&o->cluster, w->cluster, err);
    p->cluster = &o->cluster;
    if (!e && strcmp(w->placement, "speed") == 0) take_speeds(p, &o->cluster);
    if (!e) e = plan_check(p, err);
    if (!o->golden) train_set_rates(&p->hyper, o, 0);
    return e ? e : cluster_check(&o->cluster, p->mesh.devices, p->dtype, err);
}

enum error_code train_take(struct train_options *o, const struct run_kind *kind, struct train_words *w,
                           const struct option *table, struct error *err)
{
    enum error_code e = take_backend(o, w, err);
    if (!e) e = take_output(o, w, err);
    if (!e) e = take_earlier(o, table, w, err);
    if (!e) e = take_check(o, w, err);
    if (!e) e = take_parts(o, kind, w, err);
    o->steps = w->steps;
    if (!e) e = take_storage(o, w, err);
    if (!e) e = take_rule(o, w, err);
    if (!e) e = take_microbatches(o, w, err);
    if (!e) e = take_numbers(o, w, err);
    return e ? e : take_cluster(o, w, err);
}
