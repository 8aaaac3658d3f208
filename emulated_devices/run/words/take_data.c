/* take_data.c -- takes which device keeps what of weights, gradients and states, in which format, and what lies on a
 * slow tier.  take.c calls take_storage, after the model is known.  Errors are ERR_USAGE. */
#include "emulated_devices/run/words/words.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <string.h>

/* ---- data parallelism -------------------------------------------------------------------------------------------- */

static int bits_of(const char *code) { return code == NULL ? 0 : strcmp(code, "int8") == 0 ? 8 : 4; }

static enum error_code take_data(struct data_request *request, const struct data_flags *flags, struct error *err)
{
    static const char *const stage[] = { "ddp", "zero1", "zero2", "zero3" };
    int used = 0;
    if (flags->zero >= 0 && flags->scheme && strcmp(flags->scheme, stage[flags->zero]) != 0)
        return fail(err, ERR_USAGE, "--zero %d: is %s; --data-parallel says %s", flags->zero, stage[flags->zero],
                    flags->scheme);
    if (flags->zero >= 0) request->scheme = stage[flags->zero];
    else if (flags->scheme) request->scheme = flags->scheme;
    else if (flags->shards) request->scheme = "chain";
    request->outer.every = flags->local_steps;
    const struct outer outer = data_outer(request);
    const bool apart = outer.every > 0;
    if (flags->momentum_given && request->outer.momentum == 0 && outer_has_momentum(&outer))
        return fail(err, ERR_USAGE, "--outer-momentum 0: without momentum %s is --data-parallel local-sgd",
                    request->scheme);
    if (flags->shards && strcmp(request->scheme, "chain") != 0 && strcmp(request->scheme, "buff") != 0 && !apart)
        return fail(err, ERR_USAGE, "--shards %s: is for --data-parallel chain, buff and copies that train apart, not "
                    "%s", flags->shards, request->scheme);
    if (flags->shards && (sscanf(flags->shards, "%4d,%4d,%4d%n", &request->shards[0], &request->shards[1],
                                 &request->shards[2], &used) != 3 ||
                          flags->shards[used] != '\0' || request->shards[0] < 1 || request->shards[1] < 1
                              || request->shards[2] < 1))
        return fail(err, ERR_USAGE, "--shards %s: must be three numbers of devices, such as 2,4,8", flags->shards);
    request->keep = !flags->reshard;
    request->no_prefetch = !flags->prefetch;
    request->quantise_weights = (struct block_format){ bits_of(flags->weights), flags->block };
    request->quantise_gradients = (struct block_format){ bits_of(flags->gradients), flags->block };
    if (flags->block_given && !data_quantises(request))
        return fail(err, ERR_USAGE, "--quantize-block %d: is for --quantize-weights and --quantize-gradients",
                    flags->block);
    return OK;
}

/* Gradients have the model's format; with 16-bit weights they may be fp32. */
static enum error_code take_formats(struct train_options *options, const char *gradients, struct error *err)
{
    const enum dtype own = options->plan.dtype, wide = dtype_wide(own), asked = gradients
        ? dtype_by_name(gradients) : wide;
    if (asked != own && asked != wide)
        return fail(err, ERR_USAGE, "--grad-dtype %s: gradients of a model in %s are kept in %s%s", gradients,
                    dtype_name(own), dtype_name(wide), own == wide ? " too" : " or in its own format");
    if (options->golden && data_quantises(&options->plan.data))
        return fail(err, ERR_USAGE,
                    "--check %s: golden files are not quantised; use --check ref, which quantises as the devices do",
                    printable_path(options->check).text);
    options->plan.data.narrow_gradients = asked != wide;
    return OK;
}

/* ---- the slow tier ----------------------------------------------------------------------------------------------- */

enum { EXPERTS = 31 };                          /* beside the classes: of these only the experts' */
static const struct { const char *name; int bit; } classes[] = {
    { "optimizer", OPTIMIZER }, { "gradients", GRADIENTS }, { "weights", PARAMETERS }, { "activations", ACTIVATIONS },
    { "experts", EXPERTS },
};
enum { CLASSES = sizeof classes / sizeof *classes };

/* A list such as "optimizer,weights". */
static enum error_code take_classes(unsigned *offload, const char *list, struct error *err)
{
    const char *names[CLASSES];
    for (int i = 0; i < CLASSES; i++) names[i] = classes[i].name;
    for (const char *at = list;; at++) {
        const size_t length = strcspn(at, ",");
        char word[80] = "";
        int found = -1;
        memcpy(word, at, length < sizeof word ? length : sizeof word - 1);
        for (int i = 0; i < CLASSES; i++)
            if (strcmp(word, names[i]) == 0) found = i;
        if (found < 0 && length == 0)
            return fail(err, ERR_USAGE, "--offload %s: must be a list such as optimizer,gradients,weights",
                        printable(list).text);
        if (found < 0) return fail_unknown_name(err, "--offload", printable(word).text, names, CLASSES);
        *offload |= 1u << classes[found].bit;
        at += length;
        if (*at == '\0') return OK;
    }
}

static enum error_code take_offload(struct plan *plan, const struct offload_flags *flags, struct error *err)
{
    struct data_request *q = &plan->data;
    unsigned what = 0;
    const char *const cache = flags->cache ? "--host-cache" : NULL;
    const char *alone = flags->to ? "--offload-to" : flags->slice ? "--offload-slice" : flags->stride
        ? "--offload-stride" : cache;
    if (flags->classes == NULL && alone)
        return fail(err, ERR_USAGE, "%s: there is nothing offloaded; --offload optimizer,gradients,weights says what",
                    alone);
    q->offload_to = flags->to && strcmp(flags->to, "host") != 0 ? flags->to : NULL;
    if (cache && q->offload_to == NULL)
        return fail(err, ERR_USAGE, "--host-cache: is for a drive; --offload-to DIR says where it is");
    q->host_cache = flags->cache;
    q->offload_slice = flags->slice ? flags->slice : OFFLOAD_SLICE;
    q->offload_stride = flags->stride;
    const enum error_code e = flags->classes ? take_classes(&what, flags->classes, err) : OK;
    const unsigned weights = 1u << PARAMETERS, state = weights | 1u << GRADIENTS | 1u << OPTIMIZER,
                   usual = plan->optimizer->infers ? weights : state;
    q->offload_experts = what >> EXPERTS & 1;
    q->offload = q->offload_experts && !(what & state) ? usual : what & state;
    plan->offload_activations = what >> ACTIVATIONS & 1;
    q->chosen = flags->chosen;
    if (!e && q->chosen && !(q->offload_experts && offloads(q, PARAMETERS)))
        return fail(err, ERR_USAGE, "--chosen-experts: is for their weights on the slow tier; --offload experts");
    return e;
}

enum error_code take_storage(struct train_options *options, const struct train_words *words, struct error *err)
{
    struct plan *const p = &options->plan;
    p->dtype = dtype_by_name(words->dtype);
    p->data.bucket = (int64_t)words->bucket;
    enum error_code e = take_data(&p->data, &words->data, err);
    if (!e && options->golden && data_outer(&p->data).every > 0)
        e = fail(err, ERR_USAGE,
                 "--data-parallel %s: a golden file's run adds up the gradients of every step; --check ref trains "
                 "copies apart", p->data.scheme);
    if (!e) e = take_formats(options, words->grad_dtype, err);
    return e ? e : take_offload(p, &words->offload, err);
}
