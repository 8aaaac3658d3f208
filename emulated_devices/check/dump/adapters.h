/* adapters.h -- low-rank adapters of a dump's weights: W + scaling B A, as peft's LoRA has them.
 *
 * The base weight W is frozen; A [rank, in] and B [out, rank] are trained.  A dump says so in its metadata
 * (docs/checking/adapters.md), and has A and B of adapter ID as the tensors "ID.lora_A.weight" and "ID.lora_B.weight",
 * with the words of a weight, a gradient or a state before them.  assembly.c adds scaling B A to a weight that it puts
 * together, so all who read weights read those that the program computes with.
 * actual_dump.c reads the list, report/adapted.c holds frozen weights and gradients to it, and report/singles.c hands
 * the list to recompute/.
 */
#ifndef ORRERY_ADAPTERS_H
#define ORRERY_ADAPTERS_H

#include "emulated_devices/device/part.h"
#include "ref/io/json.h"
#include "ref/io/safetensors.h"
#include "ref/model/param.h"

enum { ADAPTER_NAME = PARAM_NAME - 16 };        /* so that the names of A and B are those of parameters */

/* An adapter of some rows of a weight. */
struct adapter {
    char name[ADAPTER_NAME];            /* "model.layers.0.self_attn.q_proj" */
    char of[PARAM_NAME];                /* the weight, by our name */
    struct interval rows;               /* of the weight that are B A's */
    int64_t rank;                       /* rows of A, columns of B */
    double alpha;                       /* scaling is alpha / rank, */
    bool rslora;                        /* or alpha / sqrt(rank) */
    double scaling;                     /* which of both it is, as a number */
};

struct adapters {
    int count;                          /* 0: the dump has no adapters, and all weights are trained */
    struct adapter *all;                /* [count] */
    int trained;                        /* parameters that are trained whole */
    char (*whole)[PARAM_NAME];          /* [trained] parameters that are trained whole beside the adapters */
};

/** Read the list in a file's metadata, if the file has one and no file before it had.
 *  @return OK, also without a list; ERR_FORMAT, naming file, key and what would be right; ERR_MEMORY. */
enum error_code adapters_read(struct adapters *, const struct safetensors *, struct error *);
void adapters_free(struct adapters *);

/** The name of A or of B, as of a parameter: "ID.lora_A.weight".  @param which  'A' or 'B'. */
struct adapter_name { char text[PARAM_NAME]; };
struct adapter_name adapter_name(const struct adapter *, char which);

/**
 * Make the gradient of A or of B from that of the weight: dA = s B^T dW, dB = s dW A^T.
 * @param which   'A' or 'B'.  @param other  the factor that is not `which`: B [out, rank], or A [rank, in].
 * @param dW      [rows of the whole weight, in].
 * @param[out] out  [rank, in] or [out, rank].
 */
void adapter_gradient(const struct adapter *, char which, const double *other, const double *dW, int64_t in,
                      double *out);

/** The adapter that a name is of, "adamw/2/grad/ID.lora_A.weight".  @param[out] which  'A' or 'B'.
 *  @return NULL: the name is of none. */
const struct adapter *adapters_find(const struct adapters *, const char *name, char *which);

/** Whether a tensor is of an adapter's A or B, or a gradient or state of it. */
bool adapter_is_name(const char *name);

/** Whether a parameter is frozen: there are adapters, and it is not trained whole. */
bool adapters_freeze(const struct adapters *, const char *param);

/** The parameter whose weight a tensor's name is of: NAME of "start/NAME", "adamw/weight/NAME", "adamw/2/weight/NAME".
 *  @return NULL: the name is of no weight. */
const char *adapters_param(const char *name);

#endif
