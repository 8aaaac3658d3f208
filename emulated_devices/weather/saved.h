/* saved.h -- a weather model in a folder, with all that is needed to continue training.
 *
 *   DIR/model.safetensors       whole weights, named and shaped as in the released code; its metadata are the steps
 *                               done, and the settings of the run that must not change
 *   DIR/optimizer.safetensors   the optimizer's states, "NAME.exp_avg" and so on
 *   DIR/weather.sha256          the checksums of both
 *
 * The files are replaced together (ref/io/bundle.h).  They hold whole tensors, so a folder does not depend on the mesh
 * that wrote it; a device of any mesh reads only its own pieces.  run.c, compare.c, cli/train/weather.c and
 * run/words/take_model.c call these functions.
 */
#ifndef ORRERY_WEATHER_SAVED_H
#define ORRERY_WEATHER_SAVED_H

#include "emulated_devices/weather/learner.h"
#include "ref/io/bundle.h"
#include "ref/io/safetensors.h"

/** A folder that is open for reading. */
struct weather_saved {
    struct safetensors weights, states; /**< both files */
    int64_t step;                       /**< steps done */
};

/** Open a folder and check its files.  Local.
 *  @return OK; ERR_FILE; ERR_FORMAT naming what is damaged or is no such folder; ERR_MEMORY; then there is nothing to
 *  close. */
enum error_code weather_saved_open(struct weather_saved *, const char *dir, struct error *);
void weather_saved_close(struct weather_saved *);

/** Check that a job continues what a folder has.  Local.
 *  @return OK, or ERR_USAGE naming the setting that differs. */
enum error_code weather_saved_check(const struct weather_saved *, const struct weather_job *, const char *dir,
                                    struct error *);

/** Read this device's weights and states, and the number of steps.  Collective over all devices.
 *  @return OK or the same error on every device. */
enum error_code weather_saved_read(const struct weather_saved *, struct weather_learner *, struct error *);

/** Read whole weights, or a state, in the order of the vector of all parameters.  Local.
 *  @param state  of the optimizer; -1: the weights.  @return OK, ERR_FORMAT or ERR_FILE. */
enum error_code weather_saved_whole(const struct weather_saved *, const struct weather_learner *, int state,
                                    double *out, struct error *);

/** Write a folder.  Collective over all devices; rank 0 writes, one tensor at a time.
 *  @return OK or the same error on every device; an earlier checkpoint then stays as it was. */
enum error_code weather_save(struct weather_learner *, const char *dir, struct error *);

/** Check that a folder can be written.  Local.  @return OK or ERR_FILE. */
enum error_code weather_save_probe(const char *dir, struct error *);

#endif
