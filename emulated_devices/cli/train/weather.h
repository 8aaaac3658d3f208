/* weather.h -- `orrery train` of a model with fields on a globe.  train.c calls weather_train. */
#ifndef ORRERY_TRAIN_WEATHER_H
#define ORRERY_TRAIN_WEATHER_H

#include "emulated_devices/weather/run.h"

/** Start the devices of a run, or be one of them.
 *  @param together     all devices are to be in this process.
 *  @param[out] status  the devices' exit status.  @return the error of the run; ERR_CHECK if something differs. */
enum error_code weather_train(const struct weather_asked *, bool together, int argc, char **argv, int *status,
                              struct error *);

#endif
