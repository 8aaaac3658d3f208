/* proxies.h -- a message to another node, carried by all devices of both: each sends its part through its own card.
 *
 * Source   Zeppelin, arXiv:2509.21841, the routing layer
 *
 *     nodes of 2; device 0 sends n bytes to device 3
 *     dispatch   0 -> 1   n/2            fast links
 *     transfer   0 -> 2   n/2            both at once, each from a card of its own
 *                1 -> 3   n/2
 *     combine    2 -> 3   n/2            fast links
 *
 * Sends     with x devices of a node: n (x-1)/x inside each of both nodes, n between them, of which a card has n/x
 * Equals    the message: its bytes arrive
 *
 * planned_pass.c sends by these hops, planned_cost.c counts them.  Both functions are pure, and cannot fail.
 */
#ifndef ORRERY_ATTENTION_PROXIES_H
#define ORRERY_ATTENTION_PROXIES_H

#include "emulated_devices/device/interval.h"

enum proxy_stage { PROXY_DISPATCH, PROXY_TRANSFER, PROXY_COMBINE, PROXY_STAGES };

/* Part of a message, on its way at one stage; nothing is sent if from is to, or the part empty. */
struct proxy_hop { int from, to; struct interval part; };

/** Parts of a message: the devices of a node, or 1 if it goes straight, in PROXY_TRANSFER.
 *  @param node  devices of a node; 0: all messages go straight. */
int proxy_parts(int node, int from, int to);

/** The hop of a part, counted in elements of a message of `count`.  Pure. */
struct proxy_hop proxy_hop(int node, int from, int to, int64_t count, enum proxy_stage, int part);

#endif
