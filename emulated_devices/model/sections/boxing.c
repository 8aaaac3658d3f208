/* boxing.c -- computes which rectangles of the residual stream travel between two sections, packs and sends them.
 * model/sections/sections_run.c calls these functions in each step, sections_cost.c their formula.  Errors: ERR_MEMORY,
 * ERR_COMM; ERR_PLAN says that no device has an element, which a checked plan excludes. */
#include "emulated_devices/model/sections/boxing.h"
#include "emulated_devices/device/backend.h"
#include "emulated_devices/model/probe.h"
#include <stdlib.h>

/* ---- rectangles -------------------------------------------------------------------------------------------------- */

/* A list of rectangles that grows; room -1: there was no memory. */
struct rectangles { int count, room; struct rectangle *at; };

static bool rectangle_empty(struct rectangle r) { return r.rows.count == 0 || r.cols.count == 0; }

static void rectangles_add(struct rectangles *list, struct rectangle r)
{
    if (rectangle_empty(r) || list->room < 0) return;
    if (list->count == list->room) {
        const int room = list->room ? 2 * list->room : 8;
        struct rectangle *const grown = realloc(list->at, (size_t)room * sizeof *grown);
        if (grown == NULL) {
            list->room = -1;
            return;
        }
        list->at = grown, list->room = room;
    }
    list->at[list->count++] = r;
}

static struct rectangle rectangle_meet(struct rectangle a, struct rectangle b)
{
    return (struct rectangle){ interval_meet(a.rows, b.rows), interval_meet(a.cols, b.cols) };
}

/* Add what is left of `whole` without `hole`, which lies inside: rows before and after, columns left and right. */
static void add_around(struct rectangles *list, struct rectangle whole, struct rectangle hole)
{
    const struct interval above = { whole.rows.first, hole.rows.first - whole.rows.first },
        below = { interval_end(hole.rows), interval_end(whole.rows) - interval_end(hole.rows) },
        left = { whole.cols.first, hole.cols.first - whole.cols.first },
        right = { interval_end(hole.cols), interval_end(whole.cols) - interval_end(hole.cols) };
    rectangles_add(list, (struct rectangle){ above, whole.cols });
    rectangles_add(list, (struct rectangle){ hole.rows, left });
    rectangles_add(list, (struct rectangle){ hole.rows, right });
    rectangles_add(list, (struct rectangle){ below, whole.cols });
}

/* A part is the product of its rows and columns: a rectangle for each pair of ranges. */
static struct rectangles rectangles_of(const struct part *part)
{
    struct rectangles list = { 0 };
    for (int i = 0; i < part->rows.count; i++)
        for (int k = 0; k < part->cols.count; k++)
            rectangles_add(&list, (struct rectangle){ part->rows.at[i], part->cols.at[k] });
    return list;
}

/* ---- who sends what ---------------------------------------------------------------------------------------------- */

int boxing_side_devices(const struct boxing_side *side) { return side->plan->mesh.devices; }
static int side_rank(const struct boxing_side *side, int i) { return side->plan->mesh.first + i; }

enum error_code boxing_side_open(struct boxing_side *side, const struct plan *plan, struct error *err)
{
    *side = (struct boxing_side){ plan, calloc((size_t)plan->mesh.devices, sizeof *side->part) };
    return side->part ? OK : fail(err, ERR_MEMORY, "no memory for the parts of %d devices", plan->mesh.devices);
}

void boxing_side_close(struct boxing_side *side)
{
    for (int i = 0; side->part && i < boxing_side_devices(side); i++) part_free(&side->part[i]);
    free(side->part);
    side->part = NULL;
}

/* Each device's part of the residual stream, or of its gradient, in a microbatch. */
static enum error_code open_stream(struct boxing_side *side, const struct plan *plan, int micro, bool gradient,
                                   struct error *err)
{
    const enum error_code e = boxing_side_open(side, plan, err);
    bool made = !e;
    for (int i = 0; i < plan->mesh.devices && made; i++) {
        side->part[i] = plan_part(plan, side_rank(side, i), WIDTH_MODEL, plan->model.D, micro, gradient);
        made = part_made(&side->part[i]);
    }
    return e || made ? e : fail(err, ERR_MEMORY, "no memory for the parts of %d devices", plan->mesh.devices);
}

/* The device of another side that is as far along it as a device of this side. */
static int across(const struct boxing_side *side, const struct boxing_side *other, int device)
{
    return (int)((int64_t)device * boxing_side_devices(other) / boxing_side_devices(side));
}

/* How far a sender is: -1 the receiver itself; then by the level of the link, then by how far its place is from that of
 * the receiver, so that neighbours ask different devices, and devices of a class likes of each other. */
static int64_t distance(const struct boxing_side *from, const struct boxing_side *to, int sender, int receiver)
{
    const int a = side_rank(from, sender), b = side_rank(to, receiver), n = boxing_side_devices(from);
    const struct cluster *const c = to->plan->cluster;
    if (a == b) return -1;
    const int level = c ? cluster_level(c, a, b) : 0;
    return (int64_t)level * n + (sender - across(to, from, receiver) + n) % n;
}

/* A sender of some of what a receiver needs. */
struct sender { int64_t distance; int device; };

static int by_distance(const void *a, const void *b)
{
    const struct sender *const x = a, *const y = b;
    return (x->distance > y->distance) - (x->distance < y->distance);
}

/* Whether two parts may have elements in common. */
static bool parts_may_meet(const struct part *a, const struct part *b)
{
    return interval_meet(intervals_span(&a->rows), intervals_span(&b->rows)).count > 0
        && interval_meet(intervals_span(&a->cols), intervals_span(&b->cols)).count > 0;
}

/* Who makes the lists of one device. */
struct boxing_maker {
    struct boxing *boxing;
    int rank;
    struct boxing_side from, to;
    struct sender *order;               /* [devices of from] those that may send, nearest first */
    bool lost;                          /* there was no memory */
};

/* Where a transfer of the device is noted; NULL: it is another device's. */
static struct boxing_transfer *noted_at(const struct boxing_maker *maker, int sender, int receiver)
{
    const int a = side_rank(&maker->from, sender), b = side_rank(&maker->to, receiver);
    if (a == b) return a == maker->rank ? &maker->boxing->own : NULL;
    if (a == maker->rank) return &maker->boxing->send[receiver];
    return b == maker->rank ? &maker->boxing->receive[sender] : NULL;
}

static void note_rectangle(struct boxing_maker *maker, struct boxing_transfer *transfer, struct rectangle r)
{
    struct rectangles list = { transfer->count, transfer->room, transfer->at };
    rectangles_add(&list, r);
    if (list.room < 0) {
        maker->lost = true;
        return;
    }
    transfer->count = list.count, transfer->room = list.room, transfer->at = list.at;
    transfer->elements += r.rows.count * r.cols.count;
}

/* Take from one sender what it has of what is needed; what is left stays in `need`. */
static void take_from(struct boxing_maker *maker, int sender, int receiver, struct rectangles *need)
{
    struct boxing_transfer *const transfer = noted_at(maker, sender, receiver);
    const struct rectangles has = rectangles_of(&maker->from.part[sender]);
    for (int h = 0; h < has.count; h++) {
        struct rectangles left = { 0 };
        for (int i = 0; i < need->count; i++) {
            const struct rectangle meet = rectangle_meet(need->at[i], has.at[h]);
            if (rectangle_empty(meet)) {
                rectangles_add(&left, need->at[i]);
                continue;
            }
            if (transfer) note_rectangle(maker, transfer, meet);
            add_around(&left, need->at[i], meet);
        }
        maker->lost = maker->lost || left.room < 0;
        free(need->at);
        *need = left;
    }
    maker->lost = maker->lost || has.room < 0;
    free(has.at);
}

/* The senders of some of what a receiver needs, nearest first.  @return how many. */
static int sort_senders(struct boxing_maker *maker, int receiver)
{
    int n = 0;
    for (int i = 0; i < boxing_side_devices(&maker->from); i++)
        if (parts_may_meet(&maker->from.part[i], &maker->to.part[receiver]))
            maker->order[n++] = (struct sender){ distance(&maker->from, &maker->to, i, receiver), i };
    qsort(maker->order, (size_t)n, sizeof *maker->order, by_distance);
    return n;
}

/* Find who sends to one receiver.  @return whether every element has a sender. */
static bool serve(struct boxing_maker *maker, int receiver)
{
    struct rectangles need = rectangles_of(&maker->to.part[receiver]);
    const int senders = sort_senders(maker, receiver);
    for (int i = 0; i < senders && need.count > 0 && !maker->lost; i++)
        take_from(maker, maker->order[i].device, receiver, &need);
    maker->lost = maker->lost || need.room < 0;
    const bool served = need.count == 0;
    free(need.at);
    return served;
}

/* Whether the device takes part in what a receiver gets: as that receiver, or since it has some of that. */
static bool takes_part(const struct boxing_maker *maker, int receiver)
{
    const int own = maker->rank - maker->from.plan->mesh.first;
    return side_rank(&maker->to, receiver) == maker->rank
        || (mesh_has(&maker->from.plan->mesh, maker->rank)
            && parts_may_meet(&maker->from.part[own], &maker->to.part[receiver]));
}

/* Leave out devices with which nothing is exchanged; the list begins with the device across.  @return how many are
 * left, or -1 without memory. */
static int pack_transfers(struct boxing_transfer **list, const struct boxing_side *peers, int across)
{
    const int devices = boxing_side_devices(peers);
    int count = 0, n = 0;
    for (int i = 0; i < devices; i++) count += (*list)[i].count > 0;
    struct boxing_transfer *const packed = calloc((size_t)count + 1, sizeof *packed);
    if (packed == NULL) return -1;
    for (int k = 0; k < devices; k++) {
        const int i = (across + k) % devices;
        if ((*list)[i].count > 0) packed[n] = (*list)[i], packed[n++].peer = side_rank(peers, i);
    }
    free(*list);
    *list = packed;
    return n;
}

/* Free lists that are not packed. */
static void free_transfers(struct boxing_transfer *list, const struct boxing_side *peers)
{
    for (int i = 0; list && i < boxing_side_devices(peers); i++) free(list[i].at);
    free(list);
}

/* Pack what the device sends and receives: on a side where it is not, nothing. */
static void pack_both(struct boxing_maker *maker)
{
    struct boxing *const boxing = maker->boxing;
    const struct boxing_side *const from = &maker->from, *const to = &maker->to;
    const int own_from = maker->rank - side_rank(from, 0), own_to = maker->rank - side_rank(to, 0);
    boxing->sends = pack_transfers(&boxing->send, to, mesh_has(&from->plan->mesh, maker->rank)
                                   ? across(from, to, own_from) : 0);
    boxing->receives = boxing->sends < 0 ? -1
        : pack_transfers(&boxing->receive, from, mesh_has(&to->plan->mesh, maker->rank) ? across(to, from, own_to) : 0);
    if (boxing->receives >= 0) return;
    maker->lost = true;
    if (boxing->sends < 0) free_transfers(boxing->send, to), boxing->send = NULL, boxing->sends = 0;
    free_transfers(boxing->receive, from), boxing->receive = NULL, boxing->receives = 0;
}

static struct part part_taken(struct boxing_side *side, int rank)
{
    const int i = rank - side->plan->mesh.first;
    struct part taken = { .dim = { 0, 0 } };
    if (!mesh_has(&side->plan->mesh, rank)) return taken;
    taken = side->part[i], side->part[i] = (struct part){ .dim = { 0, 0 } };
    return taken;
}

enum error_code boxing_between(struct boxing *boxing, struct boxing_side *from, struct boxing_side *to, int rank,
                               struct error *err)
{
    struct boxing_maker maker = { .boxing = boxing, .rank = rank, .from = *from, .to = *to,
                                  .order = calloc((size_t)boxing_side_devices(from), sizeof *maker.order) };
    *boxing = (struct boxing){ .send = calloc((size_t)boxing_side_devices(to), sizeof *boxing->send),
                               .receive = calloc((size_t)boxing_side_devices(from), sizeof *boxing->receive) };
    enum error_code e = OK;
    maker.lost = !(boxing->send && boxing->receive && maker.order);
    for (int r = 0; r < boxing_side_devices(to) && !e && !maker.lost; r++)
        if (takes_part(&maker, r) && !serve(&maker, r) && !maker.lost)
            e = fail(err, ERR_PLAN, "device %d needs numbers that no device of the other section has",
                     side_rank(to, r));
    const bool packed = !e && !maker.lost;
    if (packed) pack_both(&maker);
    if (!e && maker.lost) e = fail(err, ERR_MEMORY, "no memory for what device %d sends to another section", rank);
    free(maker.order);
    if (e && !packed) {
        free_transfers(boxing->send, to), free_transfers(boxing->receive, from);
        boxing->send = boxing->receive = NULL;
    }
    if (e) {
        boxing_free(boxing);
        return e;
    }
    boxing->from = part_taken(from, rank), boxing->to = part_taken(to, rank);
    return OK;
}

/* ---- the stream -------------------------------------------------------------------------------------------------- */

bool boxing_stream_turns(const struct plan *plan, int micro, bool gradient, int parts)
{
    struct boxing_side side = { 0 };
    struct error unread;
    const bool turns = open_stream(&side, plan, micro, gradient, &unread) == OK && boxing_side_turns(&side, parts);
    boxing_side_close(&side);
    return turns;
}

enum error_code boxing_make(struct boxing *boxing, const struct plan *from, const struct plan *to, int rank, int micro,
                            bool gradient, struct error *err)
{
    struct boxing_side before = { 0 }, after = { 0 };
    *boxing = (struct boxing){ 0 };
    enum error_code e = open_stream(&before, from, micro, gradient, err);
    if (!e) e = open_stream(&after, to, micro, gradient, err);
    if (!e) e = boxing_between(boxing, &before, &after, rank, err);
    boxing_side_close(&before), boxing_side_close(&after);
    return e;
}

void boxing_free(struct boxing *boxing)
{
    for (int i = 0; i < boxing->sends; i++) free(boxing->send[i].at);
    for (int i = 0; i < boxing->receives; i++) free(boxing->receive[i].at);
    free(boxing->send), free(boxing->receive), free(boxing->own.at);
    part_free(&boxing->from), part_free(&boxing->to);
    *boxing = (struct boxing){ 0 };
}

void boxing_cost(const struct boxing *boxing, const struct group *group, enum dtype dtype, struct ledger *ledger)
{
    for (int i = 0; i < boxing->sends; i++)
        ledger_messages(ledger, group, POINT_TO_POINT, boxing->send[i].peer,
                        (uint64_t)boxing->send[i].elements * dtype_size(dtype), 1);
}

/* ---- moving numbers ---------------------------------------------------------------------------------------------- */

/* The place of an element of the whole in a list of its ranges. */
static int64_t place_in(const struct intervals *ranges, int64_t element)
{
    int64_t before = 0;
    for (int i = 0; i < ranges->count; i++) {
        if (element >= ranges->at[i].first && element < interval_end(ranges->at[i]))
            return before + element - ranges->at[i].first;
        before += ranges->at[i].count;
    }
    return before;
}

/* The address of a rectangle's first element in a part's memory, and the bytes from row to row. */
static char *rectangle_in(const struct part *part, struct tensor stream, struct rectangle r, uint64_t *pitch)
{
    const int64_t cols = intervals_total(&part->cols);
    const size_t size = dtype_size(stream.dtype);
    *pitch = (uint64_t)cols * size;
    return (char *)stream.data + (size_t)(place_in(&part->rows, r.rows.first) * cols
                                          + place_in(&part->cols, r.cols.first)) * size;
}

/* Copy the rectangles of a transfer between the part's memory and a message's, where they lie one after another. */
static void copy_transfer(struct device *device, const struct boxing_transfer *transfer, const struct part *part,
                          struct tensor stream, struct tensor packed, bool out)
{
    char *at = packed.data;
    for (int i = 0; i < transfer->count; i++) {
        uint64_t pitch;
        const struct rectangle r = transfer->at[i];
        const uint64_t width = (uint64_t)r.cols.count * dtype_size(stream.dtype);
        char *const inside = rectangle_in(part, stream, r, &pitch);
        if (out) device_copy_rows(device, at, width, inside, pitch, width, r.rows.count);
        else device_copy_rows(device, inside, pitch, at, width, width, r.rows.count);
        at += width * (uint64_t)r.rows.count;
    }
}

static void copy_own(struct device *device, const struct boxing *boxing, struct tensor own, struct tensor stream)
{
    for (int i = 0; i < boxing->own.count; i++) {
        uint64_t from_pitch, to_pitch;
        const struct rectangle r = boxing->own.at[i];
        const char *const from = rectangle_in(&boxing->from, own, r, &from_pitch);
        char *const to = rectangle_in(&boxing->to, stream, r, &to_pitch);
        device_copy_rows(device, to, to_pitch, from, from_pitch, (uint64_t)r.cols.count * dtype_size(own.dtype),
                         r.rows.count);
    }
}

static struct tensor packed_tensor(struct device *device, const struct boxing_transfer *transfer, enum dtype dtype)
{
    return device_tensor_in(device, BUFFERS, dtype, transfer->elements);
}

enum error_code boxing_send(const struct boxing *boxing, struct exchange *exchange, struct tensor stream,
                            struct boxing_flight *flight, struct error *err)
{
    struct comm *const comm = exchange->group->comm;
    *flight = (struct boxing_flight){ .message = calloc((size_t)boxing->sends + 1, sizeof *flight->message),
                                      .packed = calloc((size_t)boxing->sends + 1, sizeof *flight->packed) };
    if (flight->message == NULL || flight->packed == NULL)
        return fail(err, ERR_MEMORY, "no memory for %d messages", boxing->sends);
    for (int i = 0; i < boxing->sends; i++) {
        const struct boxing_transfer *const transfer = &boxing->send[i];
        const struct tensor packed = packed_tensor(comm->device, transfer, stream.dtype);
        if (packed.data == NULL) return fail(err, ERR_MEMORY, "no memory to send %lld numbers to another section",
                                             (long long)transfer->elements);
        copy_transfer(comm->device, transfer, &boxing->from, stream, packed, true);
        ledger_messages(&comm->expected, exchange->group, POINT_TO_POINT, transfer->peer, tensor_bytes(packed), 1);
        clock_start_collective(&comm->device->clock);
        flight->packed[i] = packed;
        flight->message[i] = message_send(exchange, transfer->peer, packed.data, tensor_bytes(packed));
        flight->count++;
    }
    return OK;
}

enum error_code boxing_receive(const struct boxing *boxing, struct exchange *exchange, struct tensor own,
                               struct tensor stream, struct error *err)
{
    struct comm *const comm = exchange->group->comm;
    struct message *const message = calloc((size_t)boxing->receives + 1, sizeof *message);
    struct tensor *const packed = calloc((size_t)boxing->receives + 1, sizeof *packed);
    enum error_code e = message && packed ? OK : fail(err, ERR_MEMORY, "no memory for %d messages", boxing->receives);
    int posted = 0;
    for (; posted < boxing->receives && !e; posted++) {
        const struct boxing_transfer *const transfer = &boxing->receive[posted];
        packed[posted] = packed_tensor(comm->device, transfer, stream.dtype);
        if (packed[posted].data == NULL)
            return fail(err, ERR_MEMORY, "no memory to receive %lld numbers of another section",
                        (long long)transfer->elements);
        clock_start_collective(&comm->device->clock);
        message[posted] = message_receive(exchange, transfer->peer, packed[posted].data, tensor_bytes(packed[posted]));
    }
    if (!e) copy_own(comm->device, boxing, own, stream);
    for (int i = 0; i < posted; i++) {
        if (!e) e = message_wait(comm, message[i], err);
        if (!e) copy_transfer(comm->device, &boxing->receive[i], &boxing->to, stream, packed[i], false);
        device_free(comm->device, packed[i]);
    }
    free(message), free(packed);
    return e;
}

enum error_code boxing_arrive(struct comm *comm, struct boxing_flight *flight, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < flight->count; i++) {
        if (!e) e = message_wait(comm, flight->message[i], err);
        device_free(comm->device, flight->packed[i]);
    }
    free(flight->message), free(flight->packed);
    *flight = (struct boxing_flight){ 0 };
    return e;
}
