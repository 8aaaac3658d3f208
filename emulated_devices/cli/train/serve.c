/* serve.c -- `orrery serve`: reads a trace of requests, or draws one, and answers it on emulated devices.  main.c calls
 * command_serve(), in each device's process too.  Errors: ERR_USAGE and ERR_PLAN of the words; ERR_FILE and ERR_FORMAT
 * of the trace; ERR_CHECK if a token is wrong or could not be judged; those of a run. */
#include "emulated_devices/cli/train/serve.h"
#include "emulated_devices/cli/train/serve_clients.h"
#include "emulated_devices/cli/train/serve_plans.h"
#include "emulated_devices/cli/train/train.h"
#include "emulated_devices/comm/crew.h"
#include "emulated_devices/run/session.h"
#include "emulated_devices/run/speech.h"
#include "emulated_devices/serve/placing.h"
#include "emulated_devices/serve/report.h"
#include "emulated_devices/serve/step_memo.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/output.h"
#include "ref/model/predictor.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- words ------------------------------------------------------------------------------------------------------- */

enum { USUAL_ROOM = 8,                  /* of the longest request, in a cache whose size is not given */
       USUAL_PROPOSALS = 4, USUAL_NGRAM = 3 };  /* as vLLM's examples have them */

static struct serve_words {
    const char *nano;
    const char *trace, *draw, *write_trace, *answers, *check, *draft, *take;
    int requests, shared, step_tokens, running, chunk, block, blocks, host_blocks, prompt_replicas, proposals, ngram;
    double scale, rate, temperature, first_token, per_token;
    bool whole_prompts, ahead, shares, requests_given, scale_given, rate_given, shared_given, temperature_given;
    bool streams, port_given, host_given, open_given, connections_given, time_given, name_given;
    bool proposals_given, ngram_given, take_given;
    struct live_words live;
    struct plan_words plans;
} words = { .requests = 16, .step_tokens = 2048, .running = 128, .block = 16, .scale = 1, .temperature = 1,
            .shares = true, .proposals = USUAL_PROPOSALS, .ngram = USUAL_NGRAM, .take = "same",
            .live = { .host = "127.0.0.1", .open = 64, .connections = 1000, .seconds = 600 } };

static const char *const checks[] = { "ref", NULL }, *const takes[] = { "same", "ratio", NULL };
static const char *const goals[] = { "latency", "time", "energy", NULL };

const struct option serve_options[] = {
    { .kind = OPTION_HEADING, .help = "Requests (docs/using/serving.md)" },
    { "--trace", "FILE", OPTION_STRING, &words.trace, .help = "requests, a line of JSON each" },
    { "--draw", "NAME", OPTION_STRING, &words.draw,
      .help = "instead: draw requests with the lengths and times of a published trace: azure-code, azure-conv, "
              "sharegpt, lmsys" },
    { "--requests", "N", OPTION_INT, &words.requests, .min = 1, .max = REQUEST_MOST, .given = &words.requests_given,
      .help = "with --draw: how many; with --port: end after so many answers" },
    { "--scale", "F", OPTION_DOUBLE, &words.scale, .min = 1e-6, .max = 1e6, .given = &words.scale_given,
      .help = "with --draw: a factor on all lengths; those beyond the model's positions are cut" },
    { "--rate", "R", OPTION_DOUBLE, &words.rate, .min = 1e-6, .max = 1e12, .given = &words.rate_given,
      .help = "with --draw: requests a second; default: the published trace's" },
    { "--shared-prefix", "N", OPTION_INT, &words.shared, .min = 0, .max = 1e9, .given = &words.shared_given,
      .help = "with --draw: all prompts begin with the same N tokens, before their own" },
    { "--temperature", "T", OPTION_DOUBLE, &words.temperature, .min = 0, .max = 1e6, .given = &words.temperature_given,
      .help = "with --draw: of all requests; 0 always takes the most probable token" },
    { "--write-trace", "FILE", OPTION_STRING, &words.write_trace, .help = "write the requests as --trace reads them" },
    { "--answers", "FILE", OPTION_STRING, &words.answers,
      .help = "write a line of JSON for each answer: tokens, text, times" },
    { "--stream", NULL, OPTION_SWITCH, &words.streams,
      .help = "print a line of JSON for each token as it comes, with its text and its virtual time" },
    { .kind = OPTION_HEADING, .help = "Clients: OpenAI's API, a stated part of it" },
    { "--port", "N", OPTION_INT, &words.live.port, .min = 0, .max = 65535, .given = &words.port_given,
      .help = "instead of a trace: answer /v1/completions and /v1/chat/completions by HTTP until SIGINT, or until "
              "--requests are answered; 0: any free port" },
    { "--host", "ADDRESS", OPTION_STRING, &words.live.host, .given = &words.host_given,
      .help = "where it listens; another one than 127.0.0.1 lets others ask, and nobody is asked who he is" },
    { "--open", "N", OPTION_INT, &words.live.open, .min = 1, .max = 65536, .given = &words.open_given,
      .help = "requests that are open at a time; more are refused with status 429" },
    { "--connections", "N", OPTION_INT, &words.live.connections, .min = 1, .max = 1000000,
      .given = &words.connections_given, .help = "connections at a time; more wait" },
    { "--request-time", "SECONDS", OPTION_DOUBLE, &words.live.seconds, .min = 0.001, .max = 1e6,
      .given = &words.time_given, .help = "a request that takes longer ends with an error" },
    { "--chat-template", "FILE", OPTION_STRING, &words.live.chat, .given = &words.name_given,
      .help = "text of chats, in a stated part of Jinja; default: that of the model's folder" },
    { .kind = OPTION_HEADING, .help = "Scheduler and cache of each replica" },
    { "--step-tokens", "N", OPTION_INT, &words.step_tokens, .min = 1, .max = 1e7, .help = "tokens of an iteration" },
    { "--running", "N", OPTION_INT, &words.running, .min = 1, .max = 1e6, .help = "requests that run at a time" },
    { "--chunk", "N", OPTION_INT, &words.chunk, .min = 0, .max = 1e7,
      .help = "tokens of one request in an iteration; 0: as many as the iteration has room for" },
    { "--whole-prompts", NULL, OPTION_SWITCH, &words.whole_prompts,
      .help = "a prompt waits until it fits into one iteration, instead of being cut" },
    { "--plan-ahead", NULL, OPTION_SWITCH, &words.ahead,
      .help = "plan an iteration before the one before it has ended: after a stop token one more is computed, and "
              "thrown away" },
    { "--nano", "search|N,M", OPTION_STRING, &words.nano,
      .help = "do each operation of a layer on parts of an iteration's rows, while others compute, read or send: in N "
              "parts up to attention, in M behind it (1, 2 or 4), or as many as are fastest" },
    { "--block", "N", OPTION_INT, &words.block, .min = 1, .max = 1e6, .help = "tokens of a block of the cache" },
    { "--cache-blocks", "N", OPTION_INT, &words.blocks, .min = 1, .max = 1e8,
      .help = "blocks of a replica's cache; default: room for 8 requests as long as the longest" },
    { "--host-blocks", "N", OPTION_INT, &words.host_blocks, .min = 0, .max = 1e8,
      .help = "blocks of the host's memory, to which those of preempted requests are copied while there is room; 0: "
              "they are computed again" },
    { "--share-prefixes", "yes|no", OPTION_BOOL, &words.shares,
      .help = "tokens whose keys and values are in the cache are not computed again" },
    { "--prompt-replicas", "N", OPTION_INT, &words.prompt_replicas, .min = 0, .max = 1e6,
      .help = "the first N of dp replicas compute prompts alone, and send first tokens and pages to the others; 0: all "
              "compute both" },
    { .kind = OPTION_HEADING, .help = "Speculative decoding" },
    { "--draft", "ngram|mtp|DIR|NAME", OPTION_STRING, &words.draft,
      .help = "who proposes next tokens, which the model then computes together: what followed the last tokens before; "
              "the model's own layer that predicts a further token; or a smaller model with the same tokens" },
    { "--proposals", "N", OPTION_INT, &words.proposals, .min = 1, .max = PROPOSALS_MOST,
      .given = &words.proposals_given, .help = "with --draft: tokens that are proposed at a time" },
    { "--ngram", "N", OPTION_INT, &words.ngram, .min = 1, .max = 1e6, .given = &words.ngram_given,
      .help = "with --draft ngram: last tokens that are looked for, at most" },
    { "--take", "same|ratio", OPTION_CHOICE, &words.take, .choices = takes, .given = &words.take_given,
      .help = "with --draft: take a proposal that is the token without proposals; or by the quotient of both models' "
              "probabilities, which keeps the distribution alone" },
    { .kind = OPTION_HEADING, .help = "Plans (docs/using/serving_systems.md)" },
    { "--plans", "latency|time|energy", OPTION_CHOICE, &words.plans.goal, .choices = goals,
      .help = "try all plans of as many devices as the mesh has, without numbers, and print them: those first whose "
              "requests take least, which end first, or which draw least" },
    { "--profile", "DIR", OPTION_STRING, &words.plans.profile,
      .help = "with --plans: measured times as APEX's folder `profile` has them; what it lacks is timed here" },
    { "--profile-of", "GPU", OPTION_STRING, &words.plans.gpu,
      .help = "with --plans: the device's name in that folder" },
    { "--write-profile", "DIR", OPTION_STRING, &words.plans.write_profile,
      .help = "with --plans: write the times that were used, as --profile reads them" },
    { .kind = OPTION_HEADING, .help = "What is measured, and checked" },
    { "--first-token", "SECONDS", OPTION_DOUBLE, &words.first_token, .min = 0, .max = 1e9,
      .help = "target of goodput: time to a request's first token; 0: any" },
    { "--per-token", "SECONDS", OPTION_DOUBLE, &words.per_token, .min = 0, .max = 1e9,
      .help = "target of goodput: time per output token after it; 0: any" },
    { "--check", "ref", OPTION_CHOICE, &words.check, .choices = checks,
      .help = "compare each token with the request alone on the one-device model; exit status 3 if one is wrong, or "
              "cannot be judged" },
    { 0 }
};

/* Ends that the plan learns of late are known to one replica alone, and to no client. */
static enum error_code check_proposals(struct error *err)
{
    const bool ngram = words.draft && strcmp(words.draft, "ngram") == 0;
    const char *const flag = words.ahead ? "--plan-ahead" : NULL;
    if (words.ngram_given && !ngram) return fail(err, ERR_USAGE, "--ngram: is for --draft ngram");
    if (words.draft == NULL && (words.proposals_given || words.take_given))
        return fail(err, ERR_USAGE, "%s: is for --draft", words.proposals_given ? "--proposals" : "--take");
    if (flag && words.port_given)
        return fail(err, ERR_USAGE, "%s: is not served with --port, whose rounds bring a client one token", flag);
    if (flag && words.prompt_replicas > 0)
        return fail(err, ERR_USAGE, "%s: is not served with --prompt-replicas, which hand over one token", flag);
    return OK;
}

static enum error_code check_plans(struct error *err)
{
    const struct plan_words *const w = &words.plans;
    const struct { bool given; const char *flag; } not_of_plans[] = {
        { words.answers, "--answers" }, { words.streams, "--stream" }, { words.port_given, "--port" },
        { words.check, "--check" }, { words.draft, "--draft" }, { words.prompt_replicas > 0, "--prompt-replicas" },
        { words.host_blocks > 0, "--host-blocks" }, { words.first_token > 0, "--first-token" },
        { words.per_token > 0, "--per-token" },
    }, of_plans[] = {
        { w->profile, "--profile" }, { w->gpu, "--profile-of" }, { w->write_profile, "--write-profile" },
    };
    for (size_t i = 0; i < sizeof not_of_plans / sizeof *not_of_plans && w->goal; i++)
        if (not_of_plans[i].given)
            return fail(err, ERR_USAGE, "%s: is not for --plans, which computes no answer", not_of_plans[i].flag);
    for (size_t i = 0; i < sizeof of_plans / sizeof *of_plans && !w->goal; i++)
        if (of_plans[i].given) return fail(err, ERR_USAGE, "%s: is for --plans", of_plans[i].flag);
    if (w->profile && w->gpu == NULL)
        return fail(err, ERR_USAGE, "--profile %s: --profile-of must name the device, such as H100-SXM-80GB",
                    printable_path(w->profile).text);
    return OK;
}

/* Words that say nothing without others. */
static enum error_code check_words(struct error *err)
{
    const struct { bool given; const char *flag; } of_draw[] = {
        { words.scale_given, "--scale" }, { words.rate_given, "--rate" }, { words.shared_given, "--shared-prefix" },
        { words.temperature_given, "--temperature" }, { words.requests_given && !words.port_given, "--requests" },
    }, of_port[] = {
        { words.host_given, "--host" }, { words.open_given, "--open" }, { words.connections_given, "--connections" },
        { words.time_given, "--request-time" }, { words.name_given, "--chat-template" },
    }, not_of_port[] = {
        { words.answers, "--answers" }, { words.write_trace, "--write-trace" }, { words.streams, "--stream" },
        { words.first_token > 0, "--first-token" }, { words.per_token > 0, "--per-token" },
    };
    if ((words.trace != NULL) + (words.draw != NULL) + words.port_given != 1)
        return fail(err, ERR_USAGE, "%s", words.trace && words.draw ? "--draw: --trace has the requests already"
                    : words.port_given ? "--port: clients have the requests; --trace and --draw cannot be beside it"
                    : "needs --trace FILE, --draw NAME or --port N: which requests to answer");
    for (size_t i = 0; i < sizeof of_draw / sizeof *of_draw && words.draw == NULL; i++)
        if (of_draw[i].given) return fail(err, ERR_USAGE, "%s: is for --draw", of_draw[i].flag);
    for (size_t i = 0; i < sizeof of_port / sizeof *of_port && !words.port_given; i++)
        if (of_port[i].given) return fail(err, ERR_USAGE, "%s: is for --port", of_port[i].flag);
    for (size_t i = 0; i < sizeof not_of_port / sizeof *not_of_port && words.port_given; i++)
        if (not_of_port[i].given) return fail(err, ERR_USAGE, "%s: is for --trace and --draw", not_of_port[i].flag);
    if ((words.streams || words.port_given) && document_data())
        return fail(err, ERR_USAGE, "%s: --json keeps what is printed until the end; give one of both",
                    words.streams ? "--stream" : "--port");
    enum error_code e = check_plans(err);
    if (!e) e = check_proposals(err);
    return e || !words.port_given ? e : server_there(err);
}

/* ---- requests ---------------------------------------------------------------------------------------------------- */

/* All that a device needs besides its plan. */
struct serve_run {
    const struct train_options *options;        /* parsed */
    struct tokenizer *tokenizer;                /* NULL: tokens are bytes */
    struct requests requests;                   /* read or drawn */
    struct checkpoint draft;                    /* of the draft model */
    struct model_config draft_config;           /* likewise */
    struct serving_job job;                     /* of them */
    int32_t *placed;                            /* [requests] their replicas, with --affinity */
    int64_t cut;                                /* drawn requests that were too long */
};

static enum error_code get_requests(struct serve_run *run, struct error *err)
{
    const struct plan *const p = &run->options->plan;
    int32_t stop[SPEECH_STOPS];
    const struct request_rules rules = { .V = p->model.V, .S = p->S, .tokenizer = run->tokenizer, .stop = stop,
                                         .stops = speech_stops(run->options->model_dir, stop), .seed = p->seed };
    struct trace_request drawn = { .requests = words.requests, .scale = words.scale, .rate = words.rate,
                                   .shared = words.shared, .temperature = words.temperature };
    if (words.port_given) return OK;
    if (words.trace) return fail_about(err, requests_read(&run->requests, words.trace, &rules, err), "--trace");
    enum error_code e = trace_law_find(&drawn.law, words.draw, err);
    return e ? e : requests_draw(&run->requests, &drawn, &rules, &run->cut, err);
}

/* Tokens of the longest request in the cache, and at least so many. */
static int64_t longest_of(const struct requests *requests, int64_t longest)
{
    int64_t most = longest;
    for (int64_t i = 0; i < requests->count; i++) {
        const int64_t needs = sequence_needs(requests->at[i].prompt.count, requests->at[i].most);
        if (needs > most) most = needs;
    }
    return most;
}

/* Blocks for as many of the longest request. */
static int64_t usual_blocks(const struct requests *requests, int64_t longest)
{
    return USUAL_ROOM * ((longest_of(requests, longest) + words.block - 1) / words.block);
}

/* ---- proposals --------------------------------------------------------------------------------------------------- */

static enum error_code open_draft(struct serve_run *run, struct error *err)
{
    struct stat st;
    int64_t batch;
    const bool folder = stat(words.draft, &st) == 0 && S_ISDIR(st.st_mode);
    if (!folder && strpbrk(words.draft, "./"))
        return fail(err, ERR_FILE, "%s: there is no such folder", printable_path(words.draft).text);
    enum error_code e = folder ? checkpoint_open(&run->draft, words.draft, err) : OK;
    if (!e && folder) e = checkpoint_config(&run->draft, &run->draft_config, err);
    if (!e && !folder && model_config_preset(&run->draft_config, &batch, words.draft, err) != OK)
        return fail(err, ERR_USAGE, "%s: is neither ngram, nor mtp, nor a folder, nor a preset of --model",
                    words.draft);
    struct model_config *const c = &run->draft_config;
    c->dropout_embedding = c->dropout_residual = c->dropout_attention = 0;
    const struct plan *const p = &run->options->plan;
    const int64_t longest = longest_of(&run->requests, words.port_given ? p->S : 1);
    if (!e) e = fail_about(err, proposer_takes(c, &p->model, longest, err), printable_path(words.draft).text);
    return e;
}

/* A layer of the model reads the stream of all tokens before an answer's, as one device has computed it. */
static enum error_code check_module(const struct plan *plan, struct error *err)
{
    const struct { bool asked; const char *flag, *why; } refused[] = {
        { !predictor_serves(&plan->model), "--model", "its family has no layer that predicts a further token" },
        { plan->mesh.size[CP] > 1, "--cp", "a device has the stream of some tokens alone" },
        { words.prompt_replicas > 0, "--prompt-replicas", "pages travel without the stream of their tokens" },
        { words.host_blocks > 0, "--host-blocks", "blocks go to the host without the stream of their tokens" },
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].asked) return fail(err, ERR_PLAN, "mtp: not with %s: %s", refused[i].flag, refused[i].why);
    return OK;
}

static enum error_code open_proposals(struct serve_run *run, struct error *err)
{
    struct speculation *const s = &run->job.speculation;
    const struct train_options *const o = run->options;
    if (words.draft == NULL) return OK;
    *s = (struct speculation){ .most = words.proposals, .longest = words.ngram, .seed = o->plan.seed,
                               .rule = strcmp(words.take, "ratio") == 0 ? RULE_RATIO : RULE_SAME };
    if (strcmp(words.draft, "ngram") == 0) return OK;
    if (strcmp(words.draft, "mtp") == 0) {
        s->module = true, s->config = &o->plan.model, s->saved = o->model_dir ? &o->saved : NULL;
        return fail_about(err, check_module(&o->plan, err), "--draft");
    }
    const enum error_code e = open_draft(run, err);
    s->config = &run->draft_config, s->saved = run->draft.dir ? &run->draft : NULL;
    return fail_about(err, e, "--draft");
}

/* Numbers of nano-batches, or a search of them. */
static enum error_code take_nano(struct nano_asked *nano, struct error *err)
{
    char behind;
    int *const n = nano->batches;
    nano->cuts = words.nano != NULL;
    if (words.nano == NULL || strcmp(words.nano, "search") == 0) return OK;
    const bool two = sscanf(words.nano, "%1d,%1d%c", &n[0], &n[1], &behind) == 2;
    for (int i = 0; i < 2; i++)
        if (!two || (n[i] != 1 && n[i] != 2 && n[i] != 4))
            return fail(err, ERR_USAGE, "--nano %.40s: is neither search nor two numbers of parts, such as 4,2: each "
                        "is 1, 2 or 4", words.nano);
    return OK;
}

static enum error_code check_apart(const struct train_options *options, struct error *err)
{
    const int n = words.prompt_replicas, dp = options->plan.mesh.size[DP];
    if (n == 0) return OK;
    if (n >= dp)
        return fail(err, ERR_USAGE, "--prompt-replicas %d: of --dp %d replicas at least one must write answers", n, dp);
    if (options->plan.ep > 1)
        return fail(err, ERR_PLAN, "--prompt-replicas: is not served with --ep: replicas that share experts compute "
                    "together");
    if (words.port_given)
        return fail(err, ERR_USAGE, "--prompt-replicas: is not served with --port, whose replicas go in rounds");
    return OK;
}

/* The pages of each prompt wait in the host's memory. */
static enum error_code apart_fits(const struct serving_job *job, struct error *err)
{
    const struct serving_limits *const l = &job->limits;
    for (int64_t i = 0; i < job->requests->count && job->prompt_replicas > 0; i++)
        if (job->requests->at[i].prompt.count > l->host_blocks * l->block_tokens)
            return fail(err, ERR_USAGE, "--host-blocks %lld: have room for %lld tokens; the prompt of request %.60s "
                        "has %lld", (long long)l->host_blocks, (long long)(l->host_blocks * l->block_tokens),
                        job->requests->at[i].name, (long long)job->requests->at[i].prompt.count);
    return OK;
}

/* With a table of affinities, requests go where their experts probably are. */
static enum error_code place_requests(struct serve_run *run, struct error *err)
{
    const struct plan *const p = &run->options->plan;
    if (p->affinity == NULL || p->mesh.size[DP] == 1) return OK;
    if (words.port_given)
        return fail(err, ERR_USAGE, "--affinity: is not served with --port, whose requests are dealt as they come");
    run->placed = calloc((size_t)run->requests.count + 1, sizeof *run->placed);
    if (run->placed == NULL) return fail(err, ERR_MEMORY, "no memory to place requests");
    run->job.placed = run->placed;
    return placing_of_requests(p, &run->requests, run->placed, err);
}

static void serve_close(struct serve_run *run)
{
    free(run->placed);
    requests_free(&run->requests);
    checkpoint_close(&run->draft);
    if (run->tokenizer) tokenizer_close(run->tokenizer);
}

/* All but the sizes of caches. */
static struct serving_limits serving_limits(void)
{
    return (struct serving_limits){ .step_tokens = words.step_tokens, .running = words.running, .chunk = words.chunk,
                                    .whole_prompts = words.whole_prompts, .ahead = words.ahead, .shares = words.shares,
                                    .block_tokens = words.block };
}

/* Read what is to be answered; the same on every device.  Call serve_close afterwards, also after a failure. */
static enum error_code serve_open(struct serve_run *run, const struct train_options *options, struct error *err)
{
    *run = (struct serve_run){ .options = options };
    enum error_code e = speech_tokenizer(&run->tokenizer, options->tokenizer, options->model_dir, &options->saved, err);
    if (!e) e = get_requests(run, err);
    if (e) return e;
    run->job = (struct serving_job){
        .plan = &options->plan, .saved = options->model_dir ? &options->saved : NULL, .requests = &run->requests,
        .prompt_replicas = words.prompt_replicas,
        .check = words.check != NULL, .streams = words.streams, .tokenizer = run->tokenizer,
        .limits = serving_limits(),
    };
    struct serving_limits *const limits = &run->job.limits;
    limits->host_blocks = words.host_blocks || words.prompt_replicas == 0 ? words.host_blocks
                          : words.blocks ? words.blocks : usual_blocks(&run->requests, 1);
    limits->blocks = words.blocks ? words.blocks : usual_blocks(&run->requests, words.port_given ? options->plan.S : 1);
    e = take_nano(&run->job.nano, err);
    if (!e) e = check_apart(options, err);
    if (!e) e = serving_takes(&options->plan, &run->job.limits, err);
    if (!e) e = nano_takes(&run->job, err);
    if (!e) e = apart_fits(&run->job, err);
    if (!e) e = place_requests(run, err);
    if (!e) e = serving_fits(&run->requests, &run->job.limits, err);
    return e ? e : open_proposals(run, err);
}

/* ---- one device -------------------------------------------------------------------------------------------------- */

/* Files may differ on several machines. */
static enum error_code agree_on_requests(struct comm *comm, const struct requests *requests, struct error *err)
{
    struct sha256 sum = sha256_begin();
    for (int64_t i = 0; i < requests->count; i++) {
        const struct request *const r = &requests->at[i];
        sha256_add(&sum, r->prompt.id, (size_t)r->prompt.count * sizeof *r->prompt.id);
        sha256_add(&sum, &r->arrival, sizeof r->arrival), sha256_add(&sum, &r->most, sizeof r->most);
        sha256_add(&sum, &r->how.seed, sizeof r->how.seed);
    }
    const struct sha256_text text = sha256_end(&sum);
    return group_same(comm->everyone, text.text, sizeof text.text - 1, "--trace: the requests", err);
}

static enum error_code report_on(const struct serve_run *run, const struct serving_record *record, bool numbers,
                                 struct error *err)
{
    struct serving_report report = {
        .job = &run->job, .record = record, .trace = words.trace ? words.trace : words.draw,
        .cluster = run->options->cluster.name, .target = { words.first_token, words.per_token },
        .tokenizer = run->tokenizer, .numbers = numbers,
    };
    enum error_code e = serving_report_make(&report, err);
    if (e) return e;
    if (run->cut > 0)
        printf("note    %lld drawn requests were longer than the model, and were cut\n", (long long)run->cut);
    serving_report_print(&report);
    if (words.answers) e = fail_about(err, serving_answers_write(&report, words.answers, err), "--answers");
    return e ? e : serving_verdict(&report, err);
}

/* A device that has needed more than its budget is named. */
static enum error_code check_memory(const struct comm *comm, struct error *err)
{
    const struct arena *const a = &comm->device->arena;
    if (!arena_over(a)) return OK;
    return fail(err, ERR_MEMORY, "device %d needs %s of memory; its budget is %s", comm->rank,
                size_format(a->peak.total).text, memory_format(a->budget).text);
}

static enum error_code check_start(const struct comm *comm, const struct mesh *mesh, struct error *err)
{
    if (comm->size == mesh->devices) return OK;
    return fail(err, ERR_PLAN, "the launcher started %d process%s, but --dp %d --tp %d --pp %d is a mesh of %d",
                comm->size, comm->size == 1 ? "" : "es", mesh->size[DP], mesh->size[TP], mesh->size[PP],
                mesh->devices);
}

/* Without numbers there are times alone: of requests whose lengths are known. */
static enum error_code check_counting(const struct comm *comm, const struct serve_run *run, struct error *err)
{
    const char *const name = comm->device->backend->name;
    if (comm->device->backend->has_numbers) return OK;
    if (words.check || words.answers)
        return fail(err, ERR_USAGE, "%s: the backend %s only counts, and an answer is made of numbers",
                    words.check ? "--check" : "--answers", name);
    if (words.streams || words.port_given || words.prompt_replicas > 0)
        return fail(err, ERR_USAGE, "%s: the backend %s only counts, and %s", words.streams ? "--stream"
                    : words.port_given ? "--port" : "--prompt-replicas", name, words.streams || words.port_given
                    ? "an answer is made of numbers" : "pages that travel are numbers");
    if (words.draft)
        return fail(err, ERR_USAGE, "--draft: the backend %s only counts; whether a proposal is taken is a matter of "
                    "numbers", name);
    if (run->options->plan.model.mixture.E > 0)
        return fail(err, ERR_USAGE, "--model: the backend %s only counts, and a router chooses by numbers", name);
    for (int64_t i = 0; i < run->requests.count; i++)
        if (run->requests.at[i].stop.count > 0)
            return fail(err, ERR_USAGE, "request %.60s: the backend %s only counts, so stop tokens are not seen: "
                        "ignore_eos must be true", run->requests.at[i].name, name);
    return OK;
}

/* Clients instead of a trace, until the end. */
static enum error_code live_end(struct comm *comm, struct serve_run *run, struct error *err)
{
    const struct train_options *const o = run->options;
    int32_t stop[SPEECH_STOPS];
    const struct live_serving live = {
        .words = &words.live, .job = &run->job, .dir = o->model_dir,
        .answers = words.requests_given ? words.requests : 0,
        .rules = { .V = o->plan.model.V, .S = o->plan.S, .tokenizer = run->tokenizer, .stop = stop,
                   .stops = speech_stops(o->model_dir, stop), .seed = o->plan.seed },
    };
    enum error_code e = serve_clients(comm, &live, err);
    if (!e) e = comm_agree(comm, check_memory(comm, err), err);
    serve_close(run);
    return comm_agree(comm, e, err);
}

/* One device's part.  shared: what all devices of this process have read together; NULL: each reads on its own. */
static enum error_code serve_on(struct comm *comm, const struct train_options *options, struct serve_run *shared,
                                struct error *err)
{
    const struct cluster own = cluster_of_rank(&options->cluster, comm->rank);
    struct serving_record record = { 0 };
    struct serve_run own_run, *const run = shared ? shared : &own_run;
    char place[64];
    clock_restart(&comm->device->clock, &own, options->plan.dtype);
    enum error_code e = check_start(comm, &options->plan.mesh, err);
    if (e) return comm_agree(comm, e, err);
    threads_use(comm->cores);
    announce_process(comm->rank, mesh_describe(&options->plan.mesh, comm->rank, place, sizeof place));
    if (!shared) e = comm_agree(comm, serve_open(run, options, err), err);
    if (!e) e = comm_agree(comm, check_counting(comm, run, err), err);
    if (!e && !shared && comm->size > 1) e = agree_on_requests(comm, &run->requests, err);
    if (!e && comm->rank == 0 && words.write_trace)
        e = fail_about(err, requests_write(&run->requests, words.write_trace, err), "--write-trace");
    e = comm_agree(comm, e, err);
    if (!e && words.port_given) return live_end(comm, run, err);
    if (!e) e = serve_requests(comm, &run->job, &record, err);
    if (!e) e = comm_agree(comm, check_memory(comm, err), err);
    if (!e && comm->rank == 0) e = report_on(run, &record, comm->device->backend->has_numbers, err);
    serving_record_free(&record);
    if (!shared) serve_close(run);
    return comm_agree(comm, e, err);
}

static enum error_code serve_device(const struct train_options *options, struct error *err)
{
    struct device device;
    struct comm comm;
    enum error_code e = session_open_device(&device, options, err);
    if (e) return e;
    e = comm_open(&comm, &device, err);
    if (!e) e = serve_on(&comm, options, NULL, err), comm_close(&comm);
    device_close(&device);
    return e;
}

/* All devices of a process: what they are asked for, and what they have read together. */
struct serve_crew { const struct train_options *options; struct serve_run *run; };

static enum error_code be_device_of_serving(struct crew *crew, int rank, const void *asked, struct error *err)
{
    const struct serve_crew *const all = asked;
    const struct train_options *const options = all->options;
    struct device device;
    struct comm comm;
    enum error_code e = session_open_device(&device, options, err);
    if (e) return e;
    e = crew_join(&comm, crew, rank, &device, err);
    if (!e) {
        crew_agree_by_messages(&comm);
        e = serve_on(&comm, options, all->run, err);
        comm_close(&comm);
    }
    device_close(&device);
    return e;
}

/* Without numbers a device has so little to do that processes would only wait for each other. */
static bool counts_alone(void)
{
    const char *const name = getenv("ORRERY_BACKEND");
    const struct backend *const backend = name ? backend_find(name) : NULL;
    return backend && !backend->has_numbers;
}

/* All devices in this process.  Those of a trace read it together: it may be large. */
static enum error_code serve_in_one_process(const struct train_options *options, struct error *err)
{
    struct serve_run run;
    struct step_memo memo = { 0 };
    const struct serve_crew all = { options, words.port_given ? NULL : &run };
    enum error_code e = all.run ? serve_open(&run, options, err) : OK;
    if (!e && all.run && options->cluster.speeds == 0) run.job.memo = &memo;
    if (!e) e = crew_run(options->plan.mesh.devices, be_device_of_serving, &all, err);
    if (all.run) serve_close(&run);
    step_memo_close(&memo);
    return e;
}

/* Plans are searched before any device starts.  Their caches have other sizes than this mesh's. */
static enum error_code search_plans(const struct train_options *options, struct error *err)
{
    struct serve_run run = { .options = options };
    enum error_code e = get_requests(&run, err);
    struct serving_limits limits = serving_limits();
    limits.blocks = words.blocks;
    if (!e && words.write_trace)
        e = fail_about(err, requests_write(&run.requests, words.write_trace, err), "--write-trace");
    if (!e) e = serve_plans(&options->plan, &run.requests, &limits, &words.plans, err);
    serve_close(&run);
    return e;
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

/* Errors of files are told once, before the devices start. */
static enum error_code launch_checked(const struct train_options *options, int argc, char **argv, int *status,
                                      struct error *err)
{
    struct serve_run run;
    const enum error_code e = serve_open(&run, options, err);
    serve_close(&run);
    return e ? e : launch_devices(options->plan.mesh.devices, argc, argv, status, err);
}

static enum error_code probe_outputs(struct error *err)
{
    const struct server_place place = { words.live.host, words.live.port, 1 };
    if (words.port_given) return server_probe(&place, err);
    enum error_code e = words.answers ? fail_about(err, output_probe(words.answers, err), "--answers") : OK;
    if (!e && words.write_trace) e = fail_about(err, output_probe(words.write_trace, err), "--write-trace");
    return e;
}

enum error_code command_serve(int argc, char **argv, int *status, struct error *err)
{
    struct train_options o;
    enum error_code e = train_parse(&o, &run_serve, argc - 2, argv + 2, err);
    const bool alone = under_launcher() || o.plan.mesh.devices == 1;
    if (!e && !o.help) e = check_words(err);
    if (!e && !o.help && launcher_rank() == 0) e = probe_outputs(err);
    if (!e && !o.help && words.plans.goal) e = launcher_rank() == 0 ? search_plans(&o, err) : OK;
    else if (!e && !o.help && !alone && (one_process() || counts_alone()))
        e = serve_in_one_process(&o, err);
    else if (!e && !o.help) e = alone ? serve_device(&o, err) : launch_checked(&o, argc, argv, status, err);
    train_options_free(&o);
    return e;
}
