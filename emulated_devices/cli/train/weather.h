/* weather.h -- `orrery train` of a model with fields on a globe.  train.c calls weather_train. */
#ifndef ORRERY_TRAIN_WEATHER_H
#define ORRERY_TRAIN_WEATHER_H

#include "emulated_devices/run/run.h"

/** Start the devices of options->weather, or be one of them.
 *  @param[out] status  the devices' exit status.  @return the error of the run; ERR_CHECK if something differs. */
enum error_code weather_train(const struct train_options *, int argc, char **argv, int *status, struct error *);

#endif
