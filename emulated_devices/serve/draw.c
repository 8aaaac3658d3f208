/* draw.c -- draws traces with the lengths and times of published ones.  cli/train/serve.c calls.  Errors: ERR_USAGE for
 * an unknown name, and where shared tokens leave no room; ERR_MEMORY.
 *
 * Source  the moments of the logarithms and the quantiles are those of the traces themselves: AzurePublicDataset
 *         (AzureLLMInferenceTrace_code.csv and _conv.csv, 2023), and the files sharegpt.csv and lmsys.csv of NanoFlow.
 *         Lengths of prompts and answers are hardly correlated there, so each is drawn by itself.
 */
#include "emulated_devices/serve/requests.h"
#include "ref/exact/scalars.h"
#include "ref/io/options.h"
#include "ref/numeric/philox.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct trace_law trace_laws[] = {
    { "azure-code", "Azure 2023, code completion", { 7.00, 1.36 }, { 2.79, 0.85 }, false, 2.57, 13.2 },
    { "azure-conv", "Azure 2023, conversations", { 6.63, 0.99 }, { 5.02, 0.86 }, true, 5.53, 1.09 },
    { "sharegpt", "ShareGPT, as NanoFlow has it", { 4.01, 1.72 }, { 5.35, 1.14 }, false, 1, 1 },
    { "lmsys", "LMSYS-Chat, as NanoFlow has it", { 3.47, 1.44 }, { 4.63, 1.44 }, false, 1, 1 },
    { .name = NULL },
};

enum error_code trace_law_find(const struct trace_law **law, const char *name, struct error *err)
{
    enum { MOST = 8 };
    const char *names[MOST];
    size_t n = 0;
    for (*law = trace_laws; (*law)->name && n < MOST; (*law)++) {
        if (strcmp((*law)->name, name) == 0) return OK;
        names[n++] = (*law)->name;
    }
    return fail_unknown_name(err, "--draw", name, names, n);
}

/* Numbers of one request come from streams of their own, so a trace of more requests begins with the same ones. */
static double uniform_of(uint64_t seed, const char *what, int64_t number, int64_t draw)
{
    return random_uniform(seed, random_stream(what), (uint64_t)(number * 64 + draw));
}

static int64_t length_between(double tokens, double scale)
{
    const double scaled = tokens * scale;
    return scaled < 1 ? 1 : scaled > 1e9 ? (int64_t)1e9 : llrint(scaled);
}

static double drawn_length(const struct length_law *law, const char *what, uint64_t seed, int64_t number)
{
    return scalar_exp(law->mean + law->deviation * random_normal(seed, random_stream(what), (uint64_t)number));
}

/* Answers of conversations have two usual lengths, so they lie between quantiles, evenly between two of them. */
static double quantile_length(double u)
{
    static const double part[] = { 0, .25, .5, .75, .95, .99, 1 }, tokens[] = { 16, 85, 129, 395, 451, 601, 1000 };
    int i = 1;
    while (u > part[i]) i++;
    return tokens[i - 1] + (tokens[i] - tokens[i - 1]) * (u - part[i - 1]) / (part[i] - part[i - 1]);
}

/* A number of the gamma distribution with this shape and scale 1.  Source: G. Marsaglia and W. Tsang, "A simple method
 * for generating gamma variables", 2000; below shape 1 by their boost. */
static double gamma_number(double shape, uint64_t seed, int64_t number)
{
    const double boost = shape < 1 ? scalar_power(uniform_of(seed, "gap boost", number, 0) + 0x1p-25, 1 / shape) : 1;
    const double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (int64_t i = 0;; i++) {
        const double x = random_normal(seed, random_stream("gap normal"), (uint64_t)(number * 64 + i)), y = 1 + c * x;
        const double v = y * y * y, u = uniform_of(seed, "gap test", number, i) + 0x1p-25;
        if (v > 0 && scalar_log(u) < x * x / 2 + d - d * v + d * scalar_log(v)) return d * v * boost;
    }
}

enum error_code request_draw_prompt(struct request *request, int64_t number, int64_t tokens, int64_t shared,
                                    const struct request_rules *rules, struct error *err)
{
    const uint64_t own = random_stream("prompt") + (uint64_t)number, all = random_stream("shared prompt");
    for (int64_t i = 0; i < shared + tokens; i++) {
        const double u = i < shared ? random_uniform(rules->seed, all, (uint64_t)i)
                                    : random_uniform(rules->seed, own, (uint64_t)i);
        if (!token_ids_add(&request->prompt, (int32_t)(u * (double)rules->V)))
            return fail(err, ERR_MEMORY, "no memory for a drawn prompt");
    }
    return OK;
}

static enum error_code draw_request(struct request *request, int64_t number, const struct trace_request *trace,
                                    const struct request_rules *rules, int64_t *cut, struct error *err)
{
    const struct trace_law *const law = trace->law;
    const int64_t room = rules->S - trace->shared;
    char name[24];
    snprintf(name, sizeof name, "%lld", (long long)number);
    int64_t prompt = length_between(drawn_length(&law->prompt, "prompt length", rules->seed, number), trace->scale);
    request->most = length_between(law->by_quantiles
                                   ? quantile_length(uniform_of(rules->seed, "answer quantile", number, 0))
                                   : drawn_length(&law->answer, "answer length", rules->seed, number), trace->scale);
    *cut += prompt + request->most > room;
    if (prompt > room - 1) prompt = room - 1;
    if (request->most > room - prompt) request->most = room - prompt;
    request->how = (struct sampling){ .temperature = trace->temperature, .top_p = 1,
                                      .seed = rules->seed + (uint64_t)number };
    request->name = strdup(name);
    return request->name ? request_draw_prompt(request, number, prompt, trace->shared, rules, err)
                         : fail(err, ERR_MEMORY, "no memory for the name of a request");
}

enum error_code requests_draw(struct requests *requests, const struct trace_request *trace,
                              const struct request_rules *rules, int64_t *cut, struct error *err)
{
    const double spread = trace->law->spread, rate = trace->rate > 0 ? trace->rate : trace->law->rate;
    double now = 0;
    *cut = 0;
    *requests = (struct requests){ .count = 0 };
    if (trace->shared > rules->S - 2)
        return fail(err, ERR_USAGE, "--shared-prefix %lld: leaves no room in the model's %lld positions",
                    (long long)trace->shared, (long long)rules->S);
    requests->at = calloc((size_t)trace->requests + 1, sizeof *requests->at);
    if (requests->at == NULL)
        return fail(err, ERR_MEMORY, "no memory for %lld requests", (long long)trace->requests);
    enum error_code e = OK;
    for (int64_t i = 0; i < trace->requests && !e; i++) {
        struct request *const r = &requests->at[requests->count++];
        /* Gaps of mean 1 / rate and a deviation of `spread` means. */
        if (i > 0) now += gamma_number(1 / (spread * spread), rules->seed, i) * spread * spread / rate;
        r->arrival = request_arrival(now);
        e = draw_request(r, i, trace, rules, cut, err);
    }
    if (e) requests_free(requests);
    return e;
}
