/* show.c -- `orrery show`: pictures of what is registered. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/show/collective.h"
#include "emulated_devices/cli/show/schedule.h"

static enum error_code show_schedule_topic(int argc, char **argv, int *status, struct error *err)
{
    (void)status;
    return show_schedule(argc - 3, argv + 3, stdout, err);
}

static const struct command topics[] = {
    { "schedule", "a pipeline schedule as a timeline, with its bubble, memory and messages", show_schedule_topic },
    { "allreduce", "step by step: every device's numbers summed, on all of them", show_collective },
    { "reduce", "the same sum, on one device", show_collective },
    { "reduce-scatter", "the same sum, a block on each", show_collective },
    { "broadcast", "one device's vector, to all", show_collective },
    { "scatter", "one device's blocks, one to each", show_collective },
    { "gather", "everybody's block, on one device", show_collective },
    { "allgather", "everybody's block, on all of them", show_collective },
    { "alltoall", "from everybody a block for everybody", show_collective },
    { "scan", "for each device the sum of those before it and its own", show_collective },
    { "barrier", "everybody waits for everybody", show_collective },
    { "tensor", "a linear layer under a tensor scheme: who has which block, what travels, what is multiplied", show_tensor },
    { "sbp", "what split, broadcast and partial-sum signatures make of a layer, and what travels", show_sbp },
    { 0 }
};

enum error_code command_show(int argc, char **argv, int *status, struct error *err)
{
    return run_topic("Show what something does, without training anything.", topics, false, argc, argv, status, err);
}
