/* advantage.h -- rewards and advantages of samples, with statistics over all devices.
 *
 * Each copy of the model along dp rewards its own part of the samples.  Means and deviations over all of them are sums
 * without rounding, which the devices add: so they have the same bits on every mesh, and those of one device.
 *
 * loop.c calls advantage_of_devices, serial.c advantage_alone.
 */
#ifndef ORRERY_RL_ADVANTAGE_H
#define ORRERY_RL_ADVANTAGE_H

#include "emulated_devices/model/trainer.h"
#include "emulated_devices/rl/samples.h"
#include "emulated_devices/rl/task.h"
#include "ref/policy/policy.h"

/* The mean and the deviation of rewards, or of advantages. */
struct reward_spread { double mean, deviation; };

/** Rewards of the samples that this device's copy has; NaN for the others.  Local. */
void advantage_rewards(const struct trainer *, const struct task *, struct samples *);

/** Advantages and returns of all samples, whose rewards, values and reference are there.
 *  Collective over the trainer's devices.
 *  @param[out] over  the statistics over all devices, where the rule has any.  @return OK or ERR_COMM. */
enum error_code advantage_of_devices(struct trainer *, const struct policy_rule *, struct samples *,
                                     struct reward_spread *over, struct error *);

/** Rewards and advantages of all samples, on one device.  Local. */
void advantage_alone(const struct policy_rule *, const struct task *, struct samples *, struct reward_spread *over);

#endif
