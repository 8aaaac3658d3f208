/* streams.c -- the stream of each kind of message, by the number of communication streams of a device.
 *
 * schemes/ and collectives/registry.c ask which stream sends; flight.c and trace.c ask for names.  No function here
 * can fail.
 */
#include "emulated_devices/device/streams.h"

/* Each column divides what the one before it has in line, so that no two of a later column are in line that an earlier
 * one has apart.  PyTorch's FSDP2 gathers on one stream and reduces on another (all_gather_stream and
 * reduce_scatter_stream of FSDPCommContext); Transformer Engine sends what is cut along tp on streams of its own
 * (_stream_comm of CommOverlapBase). */
static const enum stream streams[SENDINGS][MOST_COMM_STREAMS] = {
    [SENDS_WEIGHTS]   = { COMMUNICATION, COMMUNICATION, COMMUNICATION, COMMUNICATION },
    [SENDS_GRADIENTS] = { COMMUNICATION, COMMUNICATION, REDUCTION, REDUCTION },
    [SENDS_SUMS]      = { COMMUNICATION, COMMUNICATION, COMMUNICATION, TENSOR_SUMS },
    [SENDS_ROWS]      = { COMMUNICATION, DISPATCH, DISPATCH, DISPATCH },
    [SENDS_AND_WAITS] = { COMMUNICATION, COMPUTE, COMPUTE, COMPUTE },
};

enum stream sending_stream(const struct clock *clock, enum sending sending)
{
    return streams[sending][clock->comm_streams - 1];
}

/* A collective inside another one is on a communication stream already, so it does not change the stream. */
bool sending_in_line(struct clock *clock)
{
    const enum stream s = sending_stream(clock, SENDS_AND_WAITS);
    if (s == COMPUTE || clock->current != clock->home) return false;
    clock_begin(clock, s);
    return true;
}

void sending_done(struct clock *clock)
{
    clock_end(clock);
    clock_join(clock, sending_stream(clock, SENDS_AND_WAITS));
/* The device continues when the collective is complete. */
}

const char *stream_name(enum stream stream)
{
    static const char *const name[STREAMS] = {
        [COMPUTE] = "compute", [COMMUNICATION] = "communication", [DISPATCH] = "dispatch",
        [REDUCTION] = "reduction", [TENSOR_SUMS] = "tensor sums", [BESIDE] = "second pass",
        [FETCH] = "copy from host", [FLUSH] = "copy to host", [DRIVE] = "drive", [HOST] = "host",
        [ISSUE] = "host's starts",
    };
    return name[stream];
}
