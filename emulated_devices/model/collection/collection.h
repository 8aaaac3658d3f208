/* collection.h -- the state of a job as one collection of named tensors, and which boxes of each a device has.
 *
 *     weights            NAME, in the format that the optimizer steps
 *     rounded weights    NAME.rounded, where the optimizer steps fp32 copies: the 16-bit weights of devices that do not
 *                        step them themselves
 *     optimizer states   NAME.exp_avg and so on
 *     encoders           of clips, named and kept likewise: encoders.MODALITY.up.weight and so on
 *     the job's numbers  job.progress: steps done (which decide the data's position and, with the seed of the plan, all
 *                        random numbers), steps skipped, the loss scale and its counters; job.router_bias
 *
 * The collection is a function of the plan alone.  Which boxes a device has, wants and writes is a pure function of
 * plan and rank: sharded checkpoints (model/checkpoint/sharded/), `orrery reshard` and changes of the mesh in a run
 * (transfer.h) all ask it, so they cannot disagree about who has what.
 *
 * Source   C. Wagenländer et al., "Tenplex: dynamic parallelism for deep learning using parallelizable tensor
 *          collections", SOSP 2024: state as tensors with functions that slice, partition and allocate them
 *
 * A checkpoint has weights and optimizer states; training.json has the job's numbers as text.  All functions are local.
 */
#ifndef ORRERY_COLLECTION_H
#define ORRERY_COLLECTION_H

#include "emulated_devices/model/collection/boxes.h"
#include "emulated_devices/model/trainer.h"

enum { TENSOR_NAME = PARAM_NAME + 64 };

/* The tensors of a collection: what a checkpoint keeps, or all that other devices need to go on in the same run. */
enum collection_use { FOR_FILES, FOR_DEVICES };

/* A tensor of the job itself is no parameter's; all devices have it whole. */
enum job_tensor { JOB_NONE, JOB_PROGRESS, JOB_ROUTER_BIAS };

struct named_tensor {
    char name[TENSOR_NAME];             /* unique in the collection */
    int index;                          /* its parameter in the model's list, or of its encoder; of the job: -1 */
    enum job_tensor job;                /* which tensor of the job; JOB_NONE: a parameter's */
    int encoder;                        /* 1 + the modality of the encoder that has it; 0: the model's own */
    enum tensor_kind kind;              /* which numbers of the parameter */
    int replica;                        /* whose, where replicas train apart */
    bool common;                        /* they are all replicas' */
    bool weights;                       /* weights are made of it: all that compute with them want it */
    bool rounded;                       /* weights of devices that do not step them themselves */
    enum dtype format;                  /* of its numbers */
    int ndim;                           /* dimensions in use */
    int64_t dim[TENSOR_MAX_DIMS];       /* of the whole tensor */
};

/* Devices of the job that are lost: they have nothing.  What only they had, their keepers have. */
enum { LOST_MOST = 8 };
struct losses { int count, device[LOST_MOST]; };

static inline bool losses_has(const struct losses *losses, int device)
{
    bool has = false;
    for (int i = 0; i < losses->count; i++) has = has || losses->device[i] == device;
    return has;
}

struct collection {
    struct trainer *trainer;            /* the caller's: a trainer or an outline, on any device */
    enum collection_use use;            /* for whom its tensors are */
    const struct losses *losses;        /* devices that are lost, and who keeps copies; NULL: none is lost */
    const int *place;                   /* [devices of the job] the rank in the plan of each, -1: it has none; NULL:
                                         * device n has rank n */
    int count;                          /* tensors */
    struct named_tensor *tensor;        /* [count], weights first */
};

/**
 * List the tensors of a job.
 * @param trainer   a trainer or its outline, on any device of its plan; it stays where it is.
 * @param replicas  that train apart, of which files have each; 0: none do.
 * @return OK or ERR_MEMORY; collection_close works after both.
 */
enum error_code collection_open(struct collection *, struct trainer *trainer, enum collection_use, int replicas,
                                struct error *);
void collection_close(struct collection *);

/** The place of a tensor by its name; -1: there is none. */
int collection_find(const struct collection *, const char *name);

/** Bytes of one element of a tensor, and of the whole collection. */
size_t collection_size(const struct collection *, int tensor);
uint64_t collection_bytes(const struct collection *);

/** The rank in the plan of a device of the job; -1: it has no part. */
int collection_place(const struct collection *, int device);

/**
 * The boxes of a tensor that a device of the job has, in the order of its memory.  Pure.
 * @param[out] boxes  appended to; none if the rank is no device of the mesh, or has no part of the tensor.
 * @return OK or ERR_MEMORY.
 */
enum error_code collection_has(const struct collection *, int tensor, int device, struct boxes *boxes,
                               struct error *);

/** The rank that keeps a copy of what only this rank has: on the next node, or the next rank.  Pure. */
int collection_keeper(const struct collection *, int rank);

/** The boxes of a tensor that no other rank of the plan has.  Pure.  @param[out] boxes  appended to.
 *  @return OK or ERR_MEMORY. */
enum error_code collection_only(const struct collection *, int tensor, int rank, struct boxes *boxes, struct error *);

/** The boxes that a device needs to train: in a run what it has, of files all of which its weights are made.  Pure.
 *  @return as collection_has. */
enum error_code collection_wants(const struct collection *, int tensor, int device, struct boxes *, struct error *);

/**
 * The boxes that a rank writes in its file.  Of all ranks together they are the tensor, each element once: ranks that
 * have the same boxes share them evenly.  Pure.
 * @param[out] boxes  [ranks] appended to, of every rank of the plan.
 * @return OK, ERR_MEMORY, or ERR_CHECK: no rank has some element.
 */
enum error_code collection_writes(const struct collection *, int tensor, struct boxes *boxes, int ranks,
                                  struct error *);

#endif
