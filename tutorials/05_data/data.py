"""data.py -- lesson 05: data parallelism.  README.md says what to do; the texts below say what each function must do.

All devices call a function together, with the same sizes.  data_given.py has Model, place_of and backward.
"""
from course import *
from data_given import *


def make_buckets(count, most, bucket):
    """Put parameters into buckets, from the last one to parameter 0.  A parameter goes into the open bucket
    {CLOSE: unless that would then have more than `most` numbers: then it is the first of a new one.|and if that then has
    `most` numbers or more it is closed: the next parameter is the first of a new one.}
    bucket[i] becomes the number of parameter i's bucket; that of the last parameter is 0.  Returns how many buckets
    there are."""
#SOLUTION
    number = filled = 0
    for i in reversed(range(len(count))):
        if filled > 0 and {CLOSE: filled + count[i] > most|filled >= most}:
            number, filled = number + 1, 0
        bucket[i] = number
        filled += count[i]
    return number + 1 if len(count) else 0
#SKELETON
#|     return 0  # your code: from the last parameter to the first
#END


def data_gradients(g, m, most):
    """Afterwards m.gradient on every device is the mean of all devices' gradients:
    {MEAN: the sum of all devices', divided by W|the sum of what each device has divided by W}.
    One all_reduce a bucket, as soon as the gradients of the bucket are computed, on the stream beside the computations.
    Allocates at most 4 bytes for each of the parameters."""
#SOLUTION
    bucket, W = allocate(m.parameters, np.int32), np.float32(g.size)
    make_buckets(m.count, most, bucket)
    end = place_of(m, m.parameters)
    for i in reversed(range(m.parameters)):
        backward(m, i)
        start = place_of(m, i)
        m.gradient[start:start + m.count[i]] /= {MEAN: np.float32(1)|W}
        if i > 0 and bucket[i - 1] == bucket[i]:
            continue
        stream_begin()
        all_reduce(g, m.gradient[start:end])
        stream_end()
        end = start
    stream_join()
    m.gradient /= {MEAN: W|np.float32(1)}
    release(bucket)
#SKELETON
#|     pass  # your code: backward(m, i) for each parameter; where can a bucket be reduced?
#END


def data_train(g, m, most, steps, rate):
    """All devices take the weights of {ROOT: device 0|the last device}.  Then `steps` times: the gradients as above, and
    weights -= rate * gradient, in float32."""
#SOLUTION
    broadcast(g, {ROOT: 0|g.size - 1}, m.weights)
    for step in range(steps):
        data_gradients(g, m, most)
        m.weights -= rate * m.gradient
#SKELETON
#|     pass  # your code: the same start for all, then the steps
#END
