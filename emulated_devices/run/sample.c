/* sample.c -- evaluates the trained model: collects its weights on rank 0, computes its loss on held-out text, and
 * prints a sample.  between.c, golden.c and session.c call print_sample().  Errors: ERR_MEMORY, and ERR_COMM of the
 * weights' messages. */
#include "emulated_devices/run/run.h"
#include "ref/model/params.h"
#include "ref/text/generate.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPERATURE 0.8
enum { PROMPT = 16 };

struct writer { struct text_stream text; enum error_code failed; struct error error; };

static void write_token(void *context, int32_t token)
{
    struct writer *w = context;
    if (!w->failed) w->failed = text_stream_add(&w->text, token, &w->error);
}

static void sample_write_all(struct writer *writer, const struct token_ids *ids)
{
    for (int64_t i = 0; i < ids->count; i++) write_token(writer, ids->id[i]);
}

/* The prompt is the start of the held-out text. */
static enum error_code start_prompt(struct token_ids *ids, const struct train_data *data, int64_t S, struct error *err)
{
    int32_t prompt[PROMPT];
    const int64_t length = S / 2 < PROMPT ? S / 2 + 1 : PROMPT;
    train_data_prompt(data, length, prompt);
    for (int64_t i = 0; i < length; i++)
        if (!token_ids_add(ids, prompt[i])) return fail(err, ERR_MEMORY, "no memory to sample");
    return OK;
}

static enum error_code write_text(struct transformer *model, const struct train_data *data, int tokens, uint64_t seed,
                                  FILE *out, struct error *err)
{
    const struct sampling how = { .temperature = TEMPERATURE, .top_p = 1, .seed = seed };
    struct writer w = { .text = { .tokenizer = data->tokenizer, .out = out, .indent = "    " } };
    struct token_ids ids = { 0 };
    fprintf(out, "\nsample  (prompt in brackets)\n    [");
    enum error_code e = start_prompt(&ids, data, data->plan->S, err);
    if (!e) sample_write_all(&w, &ids);
    text_stream_end(&w.text);
    fprintf(out, "]");
    if (!e) e = generate(model, &ids, tokens, &how, NULL, 0, write_token, &w, err);
    text_stream_end(&w.text);
    fprintf(out, "\n");
    if (!e && w.failed) e = fail(err, w.failed, "%s", w.error.text);
    text_stream_free(&w.text);
    token_ids_free(&ids);
    return e;
}

/* The mean loss on one batch of the validation text, always the same one. */
static enum error_code validation_loss(struct transformer *model, const struct plan *plan,
                                       const struct train_data *data, double *loss, struct error *err)
{
    const int64_t B = plan_most_sequences(plan);
    const size_t n = (size_t)(B * plan->S);
    int32_t *ids = malloc(2 * n * sizeof *ids);
    if (ids == NULL) return fail(err, ERR_MEMORY, "no memory for a validation batch");
    train_data_fill_held(data, 0, 0, B, ids, ids + n);
    enum error_code e = transformer_forward(model, ids, ids + n, B, plan->S, loss, err);
    free(ids);
    return e;
}

enum error_code print_sample(struct trainer *trainer, const struct train_data *data, int bytes, FILE *out,
                             double *validation, struct error *err)
{
    struct model_config config = trainer->plan.model;
    struct transformer m = { 0 };
    enum error_code e = OK;
    config.dropout_embedding = config.dropout_residual = config.dropout_attention = 0;
    if (trainer->comm->rank == 0) e = transformer_open(&m, &config, trainer->plan.dtype, trainer->plan.seed, err);
    e = comm_agree(trainer->comm, e, err);
    for (int i = 0; i < model_param_count(&config) && !e; i++)
        collect_model(trainer, i, trainer->comm->rank == 0 ? m.w[i] : tensor_none);
    if (trainer->comm->rank == 0) {
        if (!e && trainer->routers.bias)
            memcpy(m.router_bias, trainer->routers.bias,
                   (size_t)(config.L * mixture_columns(&config.mixture)) * sizeof *m.router_bias);
        if (!e) e = validation_loss(&m, &trainer->plan, data, validation, err);
        if (!e && bytes > 0) e = write_text(&m, data, bytes, trainer->plan.seed, out, err);
        if (m.params) transformer_close(&m);
    }
    return comm_agree(trainer->comm, e, err);
}
