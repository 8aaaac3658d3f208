/* serial.h -- one device that runs FourCastNet 3 on the whole globe: forward, the score of an ensemble, backward.
 *
 * Field n of a slot is member n / samples of sample n mod samples.  emulated_devices/weather/ compares its
 * devices with this run, and tests/ref/ the run with the released code.
 */
#ifndef ORRERY_WEATHER_SERIAL_H
#define ORRERY_WEATHER_SERIAL_H

#include "ref/weather/network.h"

/* Fields of a batch: states [samples, channels, points], noise [members, samples, noise, points]. */
struct weather_batch { const double *state, *noise, *next; };   /* next: the states to be forecast */

struct weather_run {
    const struct weather_network *network;      /* the caller's */
    int64_t samples, members;           /* of a batch */
    double alpha;                       /* of the score: 1 is the fair one (ref/sphere/crps.h) */
    double *weights, *gradients;        /* [all parameters] */
    double **slot, **slope;             /* [slots] values and their gradients */
    double **kept;                      /* [nodes] y of a local convolution, the spectrum of a spectral one; or NULL */
};

/** Draw the weights.  @return OK or ERR_MEMORY; weather_run_close works after both. */
enum error_code weather_run_open(struct weather_run *, const struct weather_network *, int64_t samples, int64_t members,
                                 double alpha, uint64_t seed, struct error *);
void weather_run_close(struct weather_run *);

/** Compute the loss of a batch, the mean over samples and channels, and run->gradients.  @return OK or ERR_MEMORY. */
enum error_code weather_run_pass(struct weather_run *, const struct weather_batch *, double *loss, struct error *);

/* ---- waves.c: what is learned -------------------------------------------------------------------------------------
 *
 * There is no archive of weather here: states are Rossby-Haurwitz waves, which solve the barotropic vorticity equation
 * exactly.  Degree l, order m turns by 2 m days / (l (l + 1)) revolutions westward.
 * Source  B. Haurwitz, "The motion of atmospheric disturbances on the spherical earth", J. Mar. Res. 3 (1940)
 */

/** One sample of a step: state and next [channels, points].  @return OK or ERR_MEMORY. */
enum error_code weather_wave(const struct weather_network *, uint64_t seed, int64_t step, int64_t sample, double *state,
                             double *next, struct error *);

/** The noise [noise, points] of one member of a sample. */
enum error_code weather_noise(const struct weather_network *, uint64_t seed, int64_t step, int64_t sample,
                              int64_t member, double *noise, struct error *);

#endif
