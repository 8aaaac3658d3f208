/* learner.h -- one device's part of a training step of a weather model on samples x ensemble x polar x azimuth devices.
 *
 * Source  FourCastNet 3, arXiv:2507.12144; makani (NVIDIA): groups of makani/utils/comm.py, weights shared and cut as
 *         is_shared_mp and sharded_dims_mp say
 * Layout  a device has its tile of the globe, its members of the ensemble and its samples of the batch.  Weights are on
 *         all devices; those of a spectral convolution only for the degrees of the device's spectrum
 * Sends   forward and backward: schemes/spatial/spatial.h.  Gradients of layers of channels: an all-reduce over tiles;
 *         those of spectra: over azimuth; then all gradients over samples x ensemble, in traffic "data": one
 *         all-reduce, or with ZeRO what schemes/data/ sends.  Loss and norm: one all-reduce, in traffic "result"
 * Memory  PARAMETERS, GRADIENTS, OPTIMIZER: the device's weights, so many times; ACTIVATIONS: all fields of a pass, and
 *         what convolutions keep; BUFFERS: gradients of fields, and what exchanges pack
 * Equals  one device (ref/weather/serial.h) but for the order of sums
 *
 * cli/train/weather.c, compare.c and tests run a learner; all numbers are fp64.
 */
#ifndef ORRERY_WEATHER_LEARNER_H
#define ORRERY_WEATHER_LEARNER_H

#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/schemes/spatial/spatial.h"
#include "ref/optim/optimizer.h"
#include "ref/weather/serial.h"

/* The options of `orrery train` that only such jobs have. */
#define WEATHER_OPTIONS "--polar", "--azimuth", "--ensemble", "--members", "--fairness", "--convolution"

/* A job says what is trained where. */
struct weather_job {
    const struct weather_network *network;      /* that all devices of a process share; NULL: each makes its own */
    const struct weather_shape *shape;  /* the model */
    int size[TILE_AXES];                /* devices along samples, ensemble, polar and azimuth */
    int64_t samples, members;           /* of a batch */
    double alpha;                       /* of the score: 1 is fair (ref/sphere/crps.h) */
    enum convolution_form form;         /* of local convolutions */
    uint64_t seed;                      /* of weights, waves and noise */
    int zero;                           /* stage of ZeRO over samples x ensemble: 0 or 1 */
    const struct optimizer *optimizer;  /* the rule of the step */
    struct hyperparameters hyper;       /* its numbers */
};

/** How many devices a job has. */
int weather_devices(const struct weather_job *);

/**
 * Check that a job can be: every device has a point of the grid, a degree, a member and a sample; the fair score has
 * members to compare.
 * @return OK, or ERR_PLAN naming the flag.
 */
enum error_code weather_check(const struct weather_job *, struct error *);

/* Results of a step, the same on all devices. */
struct weather_step { double loss, norm, lr; };

/* A parameter's piece on this device. */
struct weather_piece { int64_t at, count; };    /* in the vector of the device's weights; numbers */

struct weather_learner {
    const struct weather_job *job;      /* the caller's */
    struct comm *comm;                  /* the caller's */
    struct weather_network network;     /* the table; the caller's, if the job has one */
    struct tiling tiling;               /* this device's place */
    struct group copies, world;         /* devices with the same tile; all devices */
    struct interval samples, members, rows, columns, degrees, orders;   /* this device's */
    struct weather_piece piece[WEATHER_MOST_PARAMS];    /* [params] */
    int64_t share_at[WEATHER_SHARES + 1];       /* as in the network, of this device's numbers */
    struct parameters parameters;       /* the pieces, as the data room knows them */
    struct data_parallel data;          /* weights, gradients and states, over samples x ensemble; in one unit */
    struct tensor weights, gradients;   /* [this device's numbers] the unit's, whole; gradients in a backward pass */
    struct tensor slot[WEATHER_MOST_NODES + SLOTS_GIVEN], slope[WEATHER_MOST_NODES + SLOTS_GIVEN];      /* fields of a
                                         * pass, and their gradients */
    struct tensor kept[WEATHER_MOST_NODES];     /* [nodes] y of a local convolution, the spectrum of a spectral one */
    struct tensor next, loss, d_loss;   /* what is to be forecast; the score of each sample and channel; its slope */
    int64_t step;                       /* steps done */
};

/** Open groups and draw weights.  Collective over all devices; the job must have been checked.
 *  @return OK, or the same error on every device, with nothing to close. */
enum error_code weather_learner_open(struct weather_learner *, const struct weather_job *, struct comm *,
                                     struct error *);
void weather_learner_close(struct weather_learner *);

/* The part of the unit's row whose numbers of a kind this device keeps, and whether it is the first that keeps it. */
struct weather_own { struct tensor numbers; struct interval part; bool first; };
struct weather_own weather_own_of(const struct weather_learner *, enum tensor_kind);

/** The elements of a parameter's piece that are in this part; its element k is numbers[piece.at + k - part.first]. */
struct interval weather_owned(const struct weather_learner *, const struct weather_own *, int param);

/** Where number i of a parameter's piece is in the whole parameter. */
int64_t weather_piece_place(const struct weather_learner *, int param, int64_t i);

/** Whether this is the first of the tiles that have the same piece of a parameter. */
bool weather_piece_is_first(const struct weather_learner *, int param);

/** Read the batch of a step, compute loss and gradients, and reduce them.  Collective over all devices.
 *  @return OK or the same error on every device. */
enum error_code weather_gradients(struct weather_learner *, struct weather_step *, struct error *);

/** Clip, and step the weights.  Local.  @return OK or ERR_MEMORY. */
enum error_code weather_update(struct weather_learner *, struct weather_step *, struct error *);

/** The step of a parameter's numbers, number t from 1, after gradients of this norm. */
struct step weather_step_of(const struct weather_job *, const struct weather_param *, int64_t t, double norm);

/** Compute by formula what this device sends and adds in so many steps.  Local.  @return OK or ERR_MEMORY. */
enum error_code weather_predict(struct weather_learner *, int64_t steps, struct ledger *, struct error *);

/** The peak of this device's memory of one tag after a step, by formula: all but BUFFERS. */
uint64_t weather_peak(const struct weather_learner *, enum arena_tag);

/* ---- nodes.c: the nodes of the table on tiles -------------------------------------------------------------------- */

/** Run a node.  Collective over the tiles of a field.  @param cost  not NULL: only add what would be sent. */
enum error_code weather_node_forward(struct weather_learner *, int node, struct account *cost, struct error *);
enum error_code weather_node_backward(struct weather_learner *, int node, struct account *cost, struct error *);

/** A part of the device's weights or gradients: the piece of a parameter. */
struct tensor weather_piece_of(const struct weather_learner *, struct tensor, int param);

/** Whether the device only counts: then nothing is computed, and host views are not looked at. */
bool weather_only_counts(const struct weather_learner *);

/** How many fields this device has, and points of each. */
int64_t weather_fields(const struct weather_learner *);
int64_t weather_tile_points(const struct weather_learner *);

/** How many numbers a node keeps for its backward pass. */
int64_t weather_kept(const struct weather_learner *, int node);

/** Memory of the device for n numbers; at least one.  .data NULL: there is none, and *e is set. */
struct tensor weather_room(struct weather_learner *, enum arena_tag, int64_t n, enum error_code *e, struct error *);

#endif
