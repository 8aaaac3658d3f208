/* conventions.c -- the table of conventions by profile, and texts such as "torch,decay-place=after" (--as).
 *
 * cli/train/, cli/check.c and golden files parse texts here; optimizers ask for values with convention().  Errors are
 * ERR_USAGE, which names the flag, the row and the nearest name.
 */
#include "ref/optim/conventions.h"
#include "ref/io/options.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const profile_names[PROFILES + 1] = { "orrery", "torch", "megatron", "deepspeed", "galore-torch", NULL };
const char *const profile_packages[PROFILES] = {
    "this program's own", "PyTorch 2.15.0: torch.optim, clip_grad_norm_, GradScaler",
    "Megatron Core 0.16.1, its optimizers those of Apex (6424da3)", "DeepSpeed 0.19.8, ZeRO and FusedAdam",
    "galore-torch 1.0, and the authors' script, which clips with PyTorch",
};

/* ---- the rows ---------------------------------------------------------------------------------------------------- */

#define LEAST_SCALE 0x1p-149
#define MOST_SCALE  0x1p127
#define MOST_STEPS  1e9
#define LIST(...) (const char *const[]){ __VA_ARGS__, NULL }
#define ADAM                                                                                                        \
    "torch optim/adam.py; apex csrc/multi_tensor_adam.cu; deepspeed csrc/adam/multi_tensor_adam.cu; "               \
    "galore_torch/adamw.py"
#define BALANCE                                                                                                     \
    "transformers models/mixtral/modeling_mixtral.py, in a PyTorch loop; megatron/core/transformer/moe/router.py "  \
    "and moe_utils.py; deepspeed moe/sharded_moe.py"
#define LOSSES                                                                                                      \
    "torch nn/functional.py, cross_entropy; megatron/core/tensor_parallel/cross_entropy.py, "                       \
    "vocab_parallel_cross_entropy; t5x losses.py, compute_weighted_cross_entropy, which subtracts a constant"
#define MEANS                                                                                                       \
    "torch nn/functional.py, cross_entropy; megatron/core/pipeline_parallel/schedules.py, forward_step_calc_loss; " \
    "transformers trainer.py, compute_loss; trl trainer/grpo_trainer.py, _compute_loss"
#define SCALER                                                                                                      \
    "torch amp/grad_scaler.py; megatron/core/optimizer/grad_scaler.py and optimizer_config.py; deepspeed "          \
    "runtime/fp16/loss_scaler.py and runtime/precision_config.py"

const struct convention_row convention_rows[CONVENTIONS] = {
    [CLIP_ADDED] = {
        "clip-added", "clipping multiplies gradients by clip / (norm + this), if that is below 1",
        "torch nn/utils/clip_grad.py; megatron/core/optimizer/clip_grads.py; deepspeed runtime/zero/stage_1_and_2.py; "
        "the authors' torchrun_main.py calls torch's",
        .most = 1, .value = { 0, 1e-6, 1e-6, 1e-6, 1e-6 } },
    [NORM_OF] = {
        "norm-of", "how often a parameter that several devices have counts in the norm.  All agree; plain PyTorch "
                   "where parameters are DTensors",
        "megatron/core/tensor_parallel/layers.py and transformer/module.py; deepspeed runtime/zero/stage_1_and_2.py",
        .choices = LIST("once") },
    [DECAYED] = {
        "decayed", "parameters that decay: matrices, or all, also norms and biases",
        "torch optim/adam.py; megatron/core/optimizer/__init__.py; deepspeed runtime/engine.py; galore_torch/adamw.py",
        .choices = LIST("matrices", "all"),
        .value = { DECAYED_MATRICES, DECAYED_ALL, DECAYED_MATRICES, DECAYED_ALL, DECAYED_ALL } },
    [DECAY_PLACE] = {
        "decay-place", "adamw: weights decay before the step, W (1 - lr decay) - step, or after it, (W - step) "
                       "(1 - lr decay).  Apex and DeepSpeed add decay W to the step, which is the former",
        ADAM, .choices = LIST("before", "after"),
        .value = { DECAY_BEFORE, DECAY_BEFORE, DECAY_BEFORE, DECAY_BEFORE, DECAY_AFTER } },
    [SGD_DECAY] = {
        "sgd-decay", "sgd and momentum: decoupled, W (1 - lr decay), or coupled, gradient + decay W, which the "
                     "momentum keeps",
        "torch optim/sgd.py; apex csrc/multi_tensor_sgd_kernel.cu; deepspeed takes torch's; galore-torch has none",
        .choices = LIST("decoupled", "coupled"),
        .value = { SGD_DECOUPLED, SGD_COUPLED, SGD_COUPLED, SGD_COUPLED, SGD_DECOUPLED } },
    [EPS_PLACE] = {
        "eps-place", "adamw: eps is added to the root of the corrected second moment, sqrt(v/c) + eps, or of the raw "
                     "one, (sqrt(v) + eps)/sqrt(c), where the step size has the corrections",
        ADAM, .choices = LIST("corrected", "raw"),
        .value = { EPS_CORRECTED, EPS_CORRECTED, EPS_CORRECTED, EPS_CORRECTED, EPS_RAW } },
    [BIAS_CORRECTION] = {
        "bias-correction", "adamw and galore: whether the bias of the moments is corrected.  All do, by default",
        ADAM, .choices = LIST("yes", "no") },
    [FACTORS] = {
        "factors", "adamw: betas, 1 - beta, corrections, eps, rate and decay are fp64 numbers, rounded where they are "
                   "used, or fp32 from the start: 1 - 0.999 is then off by 1.3e-5",
        ADAM, .choices = LIST("fp64", "fp32"),
        .value = { FACTORS_FP64, FACTORS_FP64, FACTORS_FP32, FACTORS_FP32, FACTORS_FP64 } },
    [STATES] = {
        "states", "galore and natural-galore: moments are fp32 numbers, or 8-bit codes with a factor for 256 numbers, "
                  "where a tensor has 4096 or more",
        "torch, apex and deepspeed have numbers; galore_torch/adamw.py and adamw8bit.py; bitsandbytes "
        "optim/optimizer.py and csrc/kernels.cu",
        .choices = LIST("fp32", "8-bit") },
    [INITIAL] = {
        "init", "drawn weights. scaled: normal with the model's deviation, divided by sqrt(2 L) in matrices that write "
                "into the residual stream; plain: without that; layers: as nn.Linear and nn.Embedding begin, uniform "
                "in +-1/sqrt(inputs), also biases, and normal with 1",
        "torch nn/modules/linear.py and sparse.py; megatron/core/transformer/transformer_config.py; deepspeed takes "
        "the module's; transformers models/llama/modeling_llama.py, for the authors' script",
        .choices = LIST("scaled", "plain", "layers"),
        .value = { INITIAL_SCALED, INITIAL_LAYERS, INITIAL_SCALED, INITIAL_LAYERS, INITIAL_PLAIN } },
    [BALANCE_OVER] = {
        "balance-over", "the tokens of one balance loss of a mixture: those of each microbatch of a replica, of each "
                        "sequence, or of the batch.  The loss is the mean over tokens of these; --balance-over "
                        "replaces this",
        BALANCE, .choices = LIST("microbatch", "sequence", "batch") },
    [BALANCE_LAYERS] = {
        "balance-layers", "one balance loss of all layers together, or the sum of one of each layer; so is the z loss",
        BALANCE, .choices = LIST("together", "each"),
        .value = { LAYERS_TOGETHER, LAYERS_TOGETHER, LAYERS_EACH, LAYERS_EACH, LAYERS_TOGETHER } },
    [BALANCE_CHOICES] = {
        "balance-choices", "an expert's share in it: its choices per token, the same divided by k, or, where k is 2, "
                           "its first choices per token and, where k is more, choices divided by k",
        BALANCE, .choices = LIST("all", "mean", "first"),
        .value = { CHOICES_ALL, CHOICES_ALL, CHOICES_MEAN, CHOICES_FIRST, CHOICES_ALL } },
    [LABEL_SMOOTHING] = {
        "label-smoothing", "this part of a label's 1 is given to words, and the cross entropy is with what they have",
        LOSSES,
        .most = 0.999 },
    [SMOOTHING_OVER] = {
        "smoothing-over", "words that share it: all V, eps/V each, so that the label has 1 - eps + eps/V; or the "
                          "others, eps/(V-1) each, and the label has 1 - eps", LOSSES, .choices = LIST("all", "others"),
        .value = { SMOOTHING_ALL, SMOOTHING_ALL, SMOOTHING_OTHERS, SMOOTHING_ALL, SMOOTHING_ALL } },
    [LOGITS_Z] = {
        "logits-z", "a token's loss has this times the square of log(sum exp) of its logits of the vocabulary",
        "torch nn/functional.py, cross_entropy, has none; t5x losses.py, cross_entropy_with_logits; PaLM, "
        "arXiv:2204.02311, section 5",
        .most = 1 },
    [LOSS_MEAN] = {
        "loss-mean", "of tokens' losses: the mean over labels of the batch, over rows, ignored ones too, over "
                     "sequences of their means, over parts of the batch of their means, or the sum.  A mean of "
                     "nothing is 0", MEANS,
        .choices = LIST("labels", "rows", "sequences", "parts", "sum") },
    [LOSS_PARTS] = {
        "loss-parts", "loss-mean=parts: how many parts, as ranks, or microbatches, have the batch's sequences; 0: as "
                      "many as microbatches of the golden file", MEANS, .most = 4096, .whole = true },
    [LOSS_DIVISOR] = {
        "loss-divisor", "all of this is divided by it: a constant length, or steps of accumulation", MEANS,
        .least = 1e-9, .most = 1e9, .value = { 1, 1, 1, 1, 1 } },
    [SCALE_START] = {
        "scale-start", "loss scale that training in fp16 begins with; --loss-scale replaces it", SCALER,
        .least = LEAST_SCALE, .most = MOST_SCALE, .value = { 0x1p16, 0x1p16, 0x1p32, 0x1p16, 0x1p16 } },
    [SCALE_GROWTH] = {
        "scale-growth", "its factor after enough good steps", SCALER,
        .least = 1, .most = 0x1p16, .value = { 2, 2, 2, 2, 2 } },
    [SCALE_BACKOFF] = {
        "scale-backoff", "its factor after an overflow", SCALER,
        .least = 0x1p-16, .most = 1, .value = { 0.5, 0.5, 0.5, 0.5, 0.5 } },
    [SCALE_INTERVAL] = {
        "scale-interval", "good steps in a row before it grows", SCALER,
        .least = 1, .most = MOST_STEPS, .whole = true, .value = { 2000, 2000, 1000, 1000, 2000 } },
    [SCALE_LATE] = {
        "scale-late", "further good steps before it grows for the first time, and after an overflow", SCALER,
        .most = MOST_STEPS, .whole = true, .value = { 0, 0, 0, 1, 0 } },
    [SCALE_HYSTERESIS] = {
        "scale-hysteresis", "which overflow reduces it: the first, the second, ...; then every one until it grows",
        SCALER, .least = 1, .most = MOST_STEPS, .whole = true, .value = { 1, 1, 2, 2, 1 } },
    [SCALE_REFILL] = {
        "scale-refill", "overflows are counted from its last growth, or from the last good step, DeepSpeed's "
                        "consecutive_hysteresis",
        SCALER, .choices = LIST("growth", "step") },
    [SCALE_LEAST] = {
        "scale-least", "it is not reduced below this; 2^-149 is the smallest fp32 number", SCALER,
        .least = LEAST_SCALE, .most = MOST_SCALE, .value = { LEAST_SCALE, LEAST_SCALE, 1, 1, LEAST_SCALE } },
    [SCALE_AT_LEAST] = {
        "scale-at-least", "an overflow that would reduce it further: the step is skipped, or the run ends", SCALER,
        .choices = LIST("stay", "stop"),
        .value = { AT_LEAST_STAYS, AT_LEAST_STAYS, AT_LEAST_STAYS, AT_LEAST_STOPS, AT_LEAST_STAYS } },
};

#define ROUTER "megatron/core/transformer/moe/router.py, TopKRouter."

/* A diagnosis takes the first that explains a result.  So what needs no number of microbatches comes first: with one
 * sequence in each, microbatches are sequences. */
const struct loss_name loss_names[] = {
    { "batch-aux-loss", "balance-over=batch,balance-layers=together,balance-choices=all",
      "the balance loss is of all tokens of the batch and all layers together",
      "transformers models/mixtral/modeling_mixtral.py, load_balancing_loss_func, of the whole batch" },
    { "sequence-aux-loss", "balance-over=sequence,balance-layers=together,balance-choices=all",
      "the balance loss is of each sequence's tokens, of all layers together",
      "transformers models/mixtral/modeling_mixtral.py, load_balancing_loss_func, of one sequence" },
    { "megatron-seq-aux-loss", "balance-over=sequence,balance-layers=each,balance-choices=mean",
      "the balance loss is of each sequence's tokens and each layer, with choices divided by k",
      ROUTER "_apply_seq_aux_loss; moe_utils.py, switch_load_balancing_loss_func" },
    { "deepseek-seq-aux-loss", "balance-over=sequence,balance-layers=each,balance-choices=mean",
      "the balance loss is of each sequence's tokens and each layer, with choices divided by k",
      "DeepSeek-V2 modeling_deepseek.py, MoEGate.forward with seq_aux" },
    { "transformers-aux-loss", "balance-over=microbatch,balance-layers=together,balance-choices=all",
      "the balance loss is of each microbatch's tokens, of all layers together",
      "transformers models/mixtral/modeling_mixtral.py, load_balancing_loss_func" },
    { "megatron-aux-loss", "balance-over=microbatch,balance-layers=each,balance-choices=mean",
      "the balance loss is of each microbatch's tokens and each layer, with choices divided by k",
      ROUTER "_apply_aux_loss; moe_utils.py, switch_load_balancing_loss_func" },
    { "megatron-global-aux-loss", "balance-over=batch,balance-layers=each,balance-choices=mean",
      "the balance loss is of the batch's tokens and each layer, with choices divided by k",
      ROUTER "_apply_global_aux_loss, of one microbatch, times the replicas" },
    { "deepspeed-aux-loss", "balance-over=microbatch,balance-layers=each,balance-choices=first",
      "the balance loss is of each microbatch's tokens and each layer, with first choices",
      "deepspeed moe/sharded_moe.py, top1gating and top2gating" },
    { "hard-labels", "label-smoothing=0", "labels are not smoothed", "torch nn/functional.py, cross_entropy" },
    { "torch-smoothing", "label-smoothing=0.1,smoothing-over=all",
      "labels are smoothed by 0.1, which all words share",
      "torch nn/functional.py, cross_entropy with label_smoothing=0.1; transformers trainer_pt_utils.py, "
      "LabelSmoother" },
    { "megatron-smoothing", "label-smoothing=0.1,smoothing-over=others",
      "labels are smoothed by 0.1, which the other words share",
      "megatron/core/tensor_parallel/cross_entropy.py, _VocabParallelCrossEntropy.forward with label_smoothing=0.1" },
    { "no-z-loss", "logits-z=0", "without the z loss of the logits", "torch nn/functional.py, cross_entropy" },
    { "palm-z-loss", "logits-z=0.0001", "with a z loss of the logits: 0.0001 log(sum exp)^2 of each token",
      "PaLM, arXiv:2204.02311, section 5; t5x losses.py, cross_entropy_with_logits with z_loss=1e-4" },
    { "token-mean", "loss-mean=labels", "the mean over all labels of the batch",
      "transformers trainer.py, num_items_in_batch of all ranks; trl trainer/grpo_trainer.py, loss_type dapo" },
    { "sequence-mean", "loss-mean=sequences", "a mean over sequences of the mean of each",
      "trl trainer/grpo_trainer.py, _compute_loss with loss_type grpo" },
    { "mean-of-means", "loss-mean=parts,loss-parts=0", "a mean over microbatches, or ranks, of the mean of each",
      "megatron/core/pipeline_parallel/schedules.py, forward_step_calc_loss; torch nn/parallel/distributed.py" },
    { "row-mean", "loss-mean=rows", "the mean over all rows, those whose label is ignored too",
      "torch nn/functional.py, cross_entropy with reduction none, then mean()" },
    { "loss-sum", "loss-mean=sum", "the sum over labels, not divided",
      "torch nn/functional.py, cross_entropy with reduction sum; with loss-divisor trl's loss_type dr_grpo" },
    { 0 }
};

/* Zeros in memory are orrery's own conventions, so a struct that nobody has parsed is valid. */
double convention(const struct conventions *conventions, enum convention row)
{
    return conventions->text[0] ? conventions->value[row] : convention_rows[row].value[AS_ORRERY];
}

struct convention_text convention_value(enum convention row, double value)
{
    struct convention_text t;
    const struct convention_row *r = &convention_rows[row];
    int power;
    if (r->choices) snprintf(t.text, sizeof t.text, "%s", r->choices[(int)value]);
    /* Powers of two beyond 2^13 or below 2^-11 are shown as powers. */
    else if (frexp(value, &power) == 0.5 && (power > 14 || power < -10))
        snprintf(t.text, sizeof t.text, "2^%d", power - 1);
    else snprintf(t.text, sizeof t.text, "%.10g", value);
    return t;
}

/* ---- as typed ---------------------------------------------------------------------------------------------------- */

static int conventions_find(const char *const names[], const char *word)
{
    int i = 0;
    while (names[i] && strcmp(names[i], word) != 0) i++;
    return names[i] ? i : -1;
}

static size_t conventions_count(const char *const names[])
{
    size_t n = 0;
    while (names[n]) n++;
    return n;
}

/* The row of a name, or -1 with an error. */
static int find_row(const char *word, struct error *err)
{
    const char *names[CONVENTIONS];
    for (int i = 0; i < CONVENTIONS; i++) {
        names[i] = convention_rows[i].name;
        if (strcmp(names[i], word) == 0) return i;
    }
    (void)fail_unknown_name(err, "--as: convention", word, names, CONVENTIONS);
    return -1;
}

/* Rows without choices take numbers in a range, some of them whole. */
static enum error_code take_number(struct conventions *conventions, int row, const char *word, struct error *err)
{
    const struct convention_row *r = &convention_rows[row];
    char *end;
    const double x = strtod(word, &end);
    if (end == word || *end != '\0' || !(x >= r->least && x <= r->most) || (r->whole && x != floor(x)))
        return fail(err, ERR_USAGE, "--as: %s=%s: must be a %snumber from %g to %g", r->name, printable(word).text,
                    r->whole ? "whole " : "", r->least, r->most);
    conventions->value[row] = x;
    return OK;
}

static enum error_code take_row(struct conventions *, char *word, struct error *);

/* A named loss is found by its whole name. */
static const struct loss_name *find_loss(const char *word)
{
    const struct loss_name *loss = loss_names;
    while (loss->name && strcmp(loss->name, word) != 0) loss++;
    return loss->name ? loss : NULL;
}

void conventions_take_loss(struct conventions *conventions, const struct loss_name *loss)
{
    char copy[CONVENTIONS_TEXT], *rest = copy;
    snprintf(copy, sizeof copy, "%s", loss->rows);
    for (char *word; (word = strtok_r(rest, ",", &rest)) != NULL;) (void)take_row(conventions, word, NULL);
}

/* "ROW=VALUE", or the name of a loss. */
static enum error_code take_row(struct conventions *conventions, char *word, struct error *err)
{
    char *value = strchr(word, '=');
    const struct loss_name *const loss = find_loss(word);
    if (loss) {
        conventions_take_loss(conventions, loss);
        return OK;
    }
    if (value == NULL)
        return fail(err, ERR_USAGE, "--as: %s: must be PROFILE or PROFILE,CONVENTION=VALUE,...; or a loss that "
                    "`orrery list profiles` names", printable(word).text);
    *value++ = '\0';
    const int row = find_row(word, err);
    if (row < 0) return ERR_USAGE;
    const struct convention_row *r = &convention_rows[row];
    /* A row without choices takes a number, else the name of a choice, kept as its index. */
    if (r->choices == NULL) return take_number(conventions, row, value, err);
    const int choice = conventions_find(r->choices, value);
    char flag[64];
    snprintf(flag, sizeof flag, "--as: %s", r->name);
    if (choice < 0) return fail_unknown_name(err, flag, value, r->choices, conventions_count(r->choices));
    conventions->value[row] = choice;
    return OK;
}

/* The text is a profile, then rows that differ from it.  After an error the conventions are not to be used. */
enum error_code conventions_parse(struct conventions *conventions, const char *text, struct error *err)
{
    char copy[CONVENTIONS_TEXT], *rest = copy;
    enum error_code e = OK;
    *conventions = (struct conventions){ 0 };
    if (strlen(text) >= sizeof copy)
        return fail(err, ERR_USAGE, "--as: is longer than %d characters", CONVENTIONS_TEXT - 1);
    snprintf(copy, sizeof copy, "%s", text);
    rest = strchr(copy, ',');
    if (rest) *rest++ = '\0';
    const int profile = conventions_find(profile_names, copy);
    if (profile < 0) return fail_unknown_name(err, "--as", copy, profile_names, PROFILES);
    /* The profile gives every row; single rows replace values behind it. */
    for (int i = 0; i < CONVENTIONS; i++) conventions->value[i] = convention_rows[i].value[profile];
    conventions->profile = (enum profile)profile;
    while (rest && !e) {
        char *word = rest;
        rest = strchr(word, ',');
        if (rest) *rest++ = '\0';
        e = take_row(conventions, word, err);
    }
    /* An empty text stands for orrery's own conventions, so that zeros in memory mean the same. */
    if (!e && strcmp(text, profile_names[AS_ORRERY]) != 0)
        snprintf(conventions->text, sizeof conventions->text, "%s", text);
    return e;
}

bool conventions_say(const char *text, enum convention row)
{
    const char *const name = convention_rows[row].name;
    const size_t n = strlen(name);
    for (const char *at = strchr(text, ','); at; at = strchr(at, ',')) {
        char word[CONVENTIONS_TEXT];
        at++;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
        const struct loss_name *const loss = find_loss(word);
        if (strncmp(word, name, n) == 0 && word[n] == '=') return true;
        /* A named loss has rows behind one another, as a text has. */
        char rows[CONVENTIONS_TEXT + 1];
        snprintf(rows, sizeof rows, ",%s", loss ? loss->rows : "");
        if (loss && conventions_say(rows, row)) return true;
    }
    return false;
}

/* The text without a row. */
static void drop_row(const char *text, const char *row, char out[CONVENTIONS_TEXT])
{
    const size_t n = strlen(row);
    size_t used = 0;
    for (const char *at = text; *at; ) {
        const size_t word = strcspn(at, ",");
        if (at == text || strncmp(at, row, n) != 0 || at[n] != '=') {
            if (at != text) out[used++] = ',';
            memcpy(out + used, at, word), used += word;
        }
        at += word + (at[word] == ',');
    }
    out[used] = '\0';
}

/* A flag of its own, such as --balance-over, replaces a row of the text. */
enum error_code conventions_change(struct conventions *conventions, enum convention row, const char *value,
                                   struct error *err)
{
    char word[64], rest[CONVENTIONS_TEXT], text[CONVENTIONS_TEXT + 64];
    struct conventions with = *conventions;
    snprintf(word, sizeof word, "%s=%s", convention_rows[row].name, value);
    const enum error_code e = take_row(&with, word, err);
    /* A value that is in force already leaves the text as it was typed. */
    if (e || with.value[row] == convention(conventions, row)) return e;
    /* The row's old word goes, so that the text has every row at most once. */
    drop_row(conventions->text[0] ? conventions->text : profile_names[AS_ORRERY], convention_rows[row].name, rest);
    snprintf(text, sizeof text, "%s,%s=%s", rest, convention_rows[row].name, value);
    return conventions_parse(conventions, text, err);
}
