/* sample.c -- evaluates the trained model: collects its weights on rank 0, computes its loss on held-out text, and
 * prints a sample. */
#include "emulated_devices/cli/train/train.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEMPERATURE 0.8

/* A token drawn from softmax(logits / temperature) by a number in [0,1). */
static int32_t draw(const struct tensor logits, int64_t row, double u)
{
    const int64_t V = tensor_cols(logits);
    double top = -INFINITY, total = 0;
    for (int64_t v = 0; v < V; v++) top = fmax(top, tensor_get(logits, row * V + v));
    for (int64_t v = 0; v < V; v++) total += exp((tensor_get(logits, row * V + v) - top) / TEMPERATURE);
    for (int64_t v = 0; v < V; v++) {
        u -= exp((tensor_get(logits, row * V + v) - top) / TEMPERATURE) / total;
        if (u < 0) return (int32_t)v;
    }
    return (int32_t)V - 1;
}

/* Print a byte of text; a token that is no byte as a number. */
static void print_token(FILE *out, int32_t token)
{
    if (token == '\n') fprintf(out, "\n    ");
    else if ((token >= ' ' && token <= '~') || token == '\t') fputc(token, out);
    else if (token < TEXT_VOCABULARY) fputc('?', out);
    else fprintf(out, "<%ld>", (long)token);
}

/* The window slides when it is full; the prompt is the start of the validation text. */
static enum error_code write_text(struct transformer *m, const struct text *text, int bytes, uint64_t seed, FILE *out,
                                  struct error *err)
{
    const int64_t S = m->config.S;
    int64_t length = S / 2 < 16 ? S / 2 + 1 : 16;
    int32_t *window = calloc((size_t)(2 * S), sizeof *window);
    if (window == NULL) return fail(err, ERR_MEMORY, "no memory to sample");
    for (int64_t i = 0; i < length; i++) window[i] = text->bytes[text->train + i];
    fprintf(out, "\nsample  (prompt in brackets)\n    [");
    for (int64_t i = 0; i < length; i++) print_token(out, window[i]);
    fprintf(out, "]");
    enum error_code e = OK;
    for (int i = 0; i < bytes && !e; i++) {
        double loss;
        if (length == S) memmove(window, window + S / 2, sizeof *window * (size_t)(S - S / 2)), length = S - S / 2;
        e = transformer_forward(m, window, window, 1, length, &loss, err);
        if (e) break;
        window[length] = draw(m->logits, length - 1, random_uniform(seed, random_stream("sample"), (uint64_t)i));
        print_token(out, window[length++]);
    }
    fprintf(out, "\n");
    free(window);
    return e;
}

/* The mean loss on one batch of the validation text, always the same one. */
static enum error_code validation_loss(struct transformer *m, const struct plan *p, const struct text *text,
                                       double *loss, struct error *err)
{
    const int64_t B = plan_most_sequences(p);
    const size_t n = (size_t)(B * p->S);
    int32_t *ids = malloc(2 * n * sizeof *ids);
    if (ids == NULL) return fail(err, ERR_MEMORY, "no memory for a validation batch");
    text_batch(text, TEXT_VALIDATION, p->seed, 0, p->S, 0, B, ids, ids + n);
    enum error_code e = transformer_forward(m, ids, ids + n, B, p->S, loss, err);
    free(ids);
    return e;
}

enum error_code print_sample(struct trainer *t, const struct text *text, int bytes, FILE *out, double *validation,
                             struct error *err)
{
    struct model_config config = t->plan.model;
    struct transformer m = { 0 };
    enum error_code e = OK;
    config.dropout_embedding = config.dropout_residual = config.dropout_attention = 0;
    if (t->comm->rank == 0) e = transformer_open(&m, &config, t->plan.dtype, t->plan.seed, err);
    e = comm_agree(t->comm, e, err);
    for (int i = 0; i < model_param_count(&config) && !e; i++)
        collect_model(t, i, t->comm->rank == 0 ? m.w[i] : tensor_none);
    if (t->comm->rank == 0) {
        if (!e) e = validation_loss(&m, &t->plan, text, validation, err);
        if (!e && bytes > 0) e = write_text(&m, text, bytes, t->plan.seed, out, err);
        if (m.params) transformer_close(&m);
    }
    return comm_agree(t->comm, e, err);
}
