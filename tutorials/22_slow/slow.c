/* slow.c -- lesson 22: finding the slow device.  README.md says what to do,
 * slow.h what each function must return. */
#include "slow.h"

int slow_outside(const double *waits, int W)
{
/*SOLUTION*/
    int least = 0;
    for (int d = 1; d < W; d++)
        if (waits[d] < waits[least]) least = d;
    for (int d = 0; d < W; d++)
        if (d != least && waits[least] * /*LESS*/2/*|3*/ >= waits[d]) return -1;
    return least;
/*SKELETON
    // your code: who waits least, and is that little enough?
    return -1;
*/
}

double usual_delay(const double *delay, int W)
{
/*SOLUTION*/
    double sorted[12 * 12];
    int n = 0;
    for (int i = 0; i < W * W; i++) {
        if (delay[i] == 0) continue;
        int at = n++;
        for (; at > 0 && sorted[at - 1] > delay[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = delay[i];
    }
    return n > 0 ? sorted[(n - 1) / 2] : 0;
/*SKELETON
    // your code: W is at most 12
    return 0;
*/
}

/*SOLUTION*/
static double delay_of(const double *delay, int W, int from, int to)
{
    return /*ROWS*/delay[from * W + to]/*|delay[to * W + from]*/;
}

static int all_hot(const double *delay, int W, int device, int sends, double hot)
{
    int cells = 0;
    for (int d = 0; d < W; d++) {
        const double t = sends ? delay_of(delay, W, device, d) : delay_of(delay, W, d, device);
        if (t == 0) continue;
        if (t < hot) return 0;
        cells++;
    }
    return cells >= 2;
}
/*SKELETON*/
int slow_part(const double *delay, int W, int32_t *which)
{
/*SOLUTION*/
    const double hot = 1.5 * usual_delay(delay, W);
    for (int sends = 1; sends >= 0; sends--)
        for (int d = 0; d < W; d++)
            if (all_hot(delay, W, d, sends, hot)) {
                which[0] = d;
                return sends ? SENDER : RECEIVER;
            }
    for (int from = 0; from < W; from++)
        for (int to = 0; to < W; to++)
            if (delay_of(delay, W, from, to) > 0 && delay_of(delay, W, from, to) >= hot) {
                which[0] = from, which[1] = to;
                return LINK;
            }
    return NO_PART;
/*SKELETON
    // your code: whole rows and columns first, then single cells
    return NO_PART;
*/
}

int who_hangs(const int32_t *waits_for, int W, int device)
{
/*SOLUTION*/
    for (int i = 0; i < W; i++) {
        if (waits_for[device] < 0) return device;
        device = waits_for[device];
    }
    return -1;
/*SKELETON
    // your code: follow the waits; when do they go round in a ring?
    return 0;
*/
}
