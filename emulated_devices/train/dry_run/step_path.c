/* step_path.c -- follows the critical path of recorded events, and adds up each device's waits.
 * run/report/plan_report.c and search/search.c call after a dry run.  Times are in picoseconds.  plan_path_of alone
 * can fail, with ERR_MEMORY, and leaves an empty path. */
#include "emulated_devices/train/dry_run/step_path.h"
#include <stdlib.h>

/* ---- finding the two ends of a message --------------------------------------------------------------------------- */

/* Where a device's messages are in its lists: [count] of actor and place, by serial. */
struct sends { uint32_t count; struct { uint8_t actor; uint32_t place; } *at; };

struct walker {
    const struct folding *folding;
    struct events *const *events;
    struct sends *sends;                /* [devices], made when needed */
    bool lost;
};

static bool list_sends(struct sends *sends, const struct events *events)
{
    for (int a = 0; a < EVENT_ACTORS; a++)
        for (uint32_t i = 0; i < events->of[a].count; i++) sends->count += events->of[a].event[i].kind == EVENT_SEND;
    sends->at = calloc((size_t)sends->count + 1, sizeof *sends->at);
    for (int a = 0; a < EVENT_ACTORS && sends->at; a++)
        for (uint32_t i = 0; i < events->of[a].count; i++) {
            const struct event *v = &events->of[a].event[i];
            if (v->kind == EVENT_SEND && v->serial < sends->count)
                sends->at[v->serial].actor = (uint8_t)a, sends->at[v->serial].place = i;
        }
    return sends->at != NULL;
}

/* A place in the lists: an actor of a device, before its event number `at`. */
struct spot { int device, actor; uint32_t at; };

static const struct event *event_at(const struct walker *walker, struct spot spot)
{
    return &walker->events[spot.device]->of[spot.actor].event[spot.at];
}

/* Where a device that ran sent its message of this serial. */
static struct spot find_send(struct walker *walker, int device, uint32_t serial)
{
    struct sends *s = &walker->sends[device];
    if (s->at == NULL && !list_sends(s, walker->events[device])) walker->lost = true;
    if (walker->lost || serial >= s->count) {
        walker->lost = true;
        return (struct spot){ 0 };
    }
    return (struct spot){ device, s->at[serial].actor, s->at[serial].place };
}

/* Where the receiver of a device's message posted its receive. */
static struct spot find_post(struct walker *walker, int sender, const struct event *send)
{
    const int device = folding_stands_for(walker->folding, send->peer);
    const int seen = folding_move(walker->folding, sender, send->peer);
    for (int a = 0; a < EVENT_ACTORS; a++)
        for (uint32_t i = 0; i < walker->events[device]->of[a].count; i++) {
            const struct event *v = &walker->events[device]->of[a].event[i];
            if (v->kind == EVENT_POST && v->peer == seen && v->serial == send->serial)
                return (struct spot){ device, a, i };
        }
    walker->lost = true;
    return (struct spot){ 0 };
}

/* ---- the path ---------------------------------------------------------------------------------------------------- */

struct path { struct walker w; struct spot here; picoseconds now; path_fn *each; void *context; };

static void step_path_add(struct path *path, struct path_piece piece, picoseconds from)
{
    piece.from = from < 0 ? 0 : from, piece.to = path->now;
    piece.stream = path->here.actor;
    if (piece.from < piece.to) path->each(&piece, path->context);
    if (piece.from < path->now) path->now = piece.from;
}

static picoseconds time_before(const struct walker *walker, struct spot spot)
{
    return spot.at > 0 ? walker->events[spot.device]->of[spot.actor].event[spot.at - 1].at : 0;
}

/* A message: from the later of its two ends, where the other one waited already. */
static void follow_message(struct path *path, int sender, int receiver, struct spot send, struct spot post,
                           bool rendezvous)
{
    const struct event *s = event_at(&path->w, send);
    /* A rendezvous starts when both ends are there; an eager message when it is sent. */
    const bool late = rendezvous && event_at(&path->w, post)->at > s->at;
    const struct spot from = late ? post : send;
    const struct path_piece piece = { .kind = PATH_MESSAGE, .device = receiver, .sender = sender,
                                      .traffic = (enum traffic_kind)s->label, .bytes = s->bytes };
    step_path_add(path, piece, event_at(&path->w, from)->at);
    path->here = from;
}

/* All wait for the last member of a group: the path goes on with a device that did not wait. */
static void follow_meeting(struct path *path, const struct event *meeting)
{
    const struct folding *folding = path->w.folding;
    for (int d = 0; d < folding->mesh.devices; d++)
        for (int a = 0; a < EVENT_ACTORS && folding_stands_for(folding, d) == d; a++)
            for (uint32_t i = 0; i < path->w.events[d]->of[a].count; i++) {
                const struct spot spot = { d, a, i };
                const struct event *v = event_at(&path->w, spot);
                if (v->kind != EVENT_MEET || v->at != meeting->at || v->serial != meeting->serial
                    || v->other != meeting->other || time_before(&path->w, spot) < v->at) continue;
                path->here = spot;
                return;
            }
    path->w.lost = true;
}

static void step_path_follow(struct path *path)
{
    const struct event *v = event_at(&path->w, (struct spot){ path->here.device, path->here.actor, --path->here.at });
    const struct spot own = path->here;
    if (v->kind == EVENT_WORK || v->kind == EVENT_SHARED) {
        step_path_add(path, (struct path_piece){ .kind = PATH_WORK, .device = own.device, .what = v->what },
                      v->at - v->takes);
        return;
    }
    if (v->at <= time_before(&path->w, own)) return;               /* it did not wait */
    if (v->kind == EVENT_AFTER) path->here.actor = v->other, path->here.at = v->place;
    if (v->kind == EVENT_MEET) follow_meeting(path, v);
    if (v->kind == EVENT_RECEIVE)
        follow_message(path, v->peer, own.device,
                       find_send(&path->w, folding_stands_for(path->w.folding, v->peer), v->serial),
                       (struct spot){ own.device, v->other, v->place }, v->rendezvous);
    if (v->kind == EVENT_SENT) {
        const struct spot send = find_send(&path->w, own.device, v->serial);
        if (!path->w.lost)
            follow_message(path, own.device, event_at(&path->w, send)->peer, send,
                           find_post(&path->w, own.device, event_at(&path->w, send)), true);
    }
}

picoseconds step_end(const struct folding *folding, struct events *const *events)
{
    picoseconds end = 0;
    for (int n = 0; n < folding_lives(folding); n++) {
        const int d = folding_first(folding, n);
        const struct event_list *l = &events[d]->of[COMPUTE];
        if (events[d]->lost) return -1;
        if (l->count > 0 && l->event[l->count - 1].at > end) end = l->event[l->count - 1].at;
    }
    return end;
}

static int last_device(const struct folding *folding, struct events *const *events, picoseconds end)
{
    for (int n = 0; n < folding_lives(folding); n++) {
        const struct event_list *l = &events[folding_first(folding, n)]->of[COMPUTE];
        if (l->count > 0 && l->event[l->count - 1].at == end) return folding_first(folding, n);
    }
    return 0;
}

picoseconds step_path(const struct folding *folding, struct events *const *events, path_fn *each, void *context)
{
    const picoseconds end = step_end(folding, events);
    if (end <= 0) return end;
    const int last = last_device(folding, events, end);
    struct path p = {
        .w = { folding, events, calloc((size_t)folding->mesh.devices, sizeof *p.w.sends), false },
        .here = { last, COMPUTE, events[last]->of[COMPUTE].count }, .now = end, .each = each, .context = context,
    };
    p.w.lost = p.w.sends == NULL;
    while (p.now > 0 && !p.w.lost) {
        const picoseconds known = time_before(&p.w, p.here);
        /* A gap between events is idle time of the device that is followed. */
        if (known < p.now) step_path_add(&p, (struct path_piece){ .kind = PATH_IDLE, .device = p.here.device }, known);
        if (p.here.at == 0) break;
        step_path_follow(&p);
    }
    for (int d = 0; d < folding->mesh.devices && p.w.sends; d++) free(p.w.sends[d].at);
    free(p.w.sends);
    return p.w.lost ? -1 : end;
}

/* ---- shares ------------------------------------------------------------------------------------------------------ */

/* The last message among the first `seen` events of a list has this label, and ends so many events. */
struct last_message { uint32_t seen, events; int label; };

static bool is_message(const struct event *event) { return event->kind == EVENT_RECEIVE || event->kind == EVENT_SEND; }

/* The messages that another stream was busy with before this place of its list; -1: it is an engine, or had none.
 * Places that are asked for mostly ascend, so each event is looked at once. */
static int traffic_before(const struct event_list *list, struct last_message *last, uint32_t place)
{
    for (; last->seen < place; last->seen++)
        if (is_message(&list->event[last->seen]))
            last->events = last->seen + 1, last->label = list->event[last->seen].label;
    if (last->events == 0) return -1;
    if (last->events <= place) return last->label;
    while (place-- > 0)
        if (is_message(&list->event[place])) return list->event[place].label;
    return -1;
}

/* A rendezvous ends when its last byte has left; its sending has the label. */
static int label_of_sent(const struct event_list *list, uint32_t i)
{
    const uint32_t serial = list->event[i].serial;
    while (i-- > 0)
        if (list->event[i].kind == EVENT_SEND && list->event[i].serial == serial) return list->event[i].label;
    return TRAFFIC_OTHER;
}

/* How long the pass beside computes from one time to another, between which the compute stream waits.  Times of calls
 * ascend.  @param[in,out] at  its first event that may matter. */
static picoseconds work_beside(const struct event_list *list, uint32_t *at, picoseconds from, picoseconds to)
{
    picoseconds sum = 0;
    for (uint32_t i = *at; i < list->count; i++) {
        const picoseconds start = i > 0 ? list->event[i - 1].at : 0, end = list->event[i].at;
        if (end <= from) *at = i + 1;
        if (start >= to) break;
        const picoseconds first = start > from ? start : from, last = end < to ? end : to;
        if (list->event[i].kind == EVENT_WORK && last > first) sum += last - first;
    }
    return sum;
}

static void add_wait(struct step_share *share, const struct events *events, struct last_message *last, uint32_t i,
                     picoseconds took)
{
    const struct event *v = &events->of[COMPUTE].event[i];
    int traffic = -1;
    if (v->kind == EVENT_RECEIVE || v->kind == EVENT_MEET) traffic = v->label;
    if (v->kind == EVENT_SENT) traffic = label_of_sent(&events->of[COMPUTE], i);
    if (v->kind == EVENT_AFTER) traffic = traffic_before(&events->of[v->other], &last[v->other], v->place);
    if (v->kind == EVENT_AFTER && v->other == ISSUE) share->starts += took;
    else if (traffic >= 0 && traffic < TRAFFIC_KIND_COUNT) share->waiting[traffic] += took;
    else share->engines += took;
}

struct step_share step_share(const struct events *events, picoseconds end)
{
    const struct event_list *l = &events->of[COMPUTE];
    struct step_share s = { 0 };
    struct last_message last[EVENT_ACTORS] = { { 0 } };
    picoseconds now = 0;
    uint32_t beside = 0;
    for (uint32_t i = 0; i < l->count; i++) {
        const struct event *v = &l->event[i];
        const picoseconds took = v->at - now;
        /* While the compute stream waits, the pass beside it may compute. */
        const picoseconds filled = v->kind == EVENT_WORK ? 0 : work_beside(&events->of[BESIDE], &beside, now, v->at);
        s.computing += filled;
        if (v->kind == EVENT_WORK) s.computing += v->takes, s.engines += took - v->takes;
        else if (took > filled) add_wait(&s, events, last, i, took - filled);
        now = v->at;
    }
    s.ended = end - now;
    return s;
}

picoseconds step_share_bubble(const struct step_share *share)
{
    return share->waiting[TRAFFIC_PIPELINE] + share->waiting[TRAFFIC_RESULT] + share->ended;
}

picoseconds step_share_exposed(const struct step_share *share)
{
    picoseconds sum = share->engines;
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++)
        if (k != TRAFFIC_PIPELINE && k != TRAFFIC_RESULT) sum += share->waiting[k];
    return sum;
}

/* ---- by sort ----------------------------------------------------------------------------------------------------- */

struct adding { struct plan_path *path; const struct cluster *cluster; bool *on; int devices; };

static bool alike(const struct path_row *path_row, const struct path_piece *piece, int level)
{
    if (path_row->like.kind != piece->kind || path_row->level != level) return false;
    if (piece->kind == PATH_IDLE) return true;
    if (path_row->like.stream != piece->stream) return false;
    return piece->kind == PATH_MESSAGE ? path_row->like.traffic == piece->traffic
           : strcmp(path_row->like.what, piece->what) == 0;
}

static struct path_row *plan_report_row_of(struct plan_path *path, const struct path_piece *piece, int level)
{
    int i = 0;
    while (i < path->rows && !alike(&path->row[i], piece, level)) i++;
    if (i == path->rows && path->rows < PATH_ROWS)
        path->row[path->rows++] = (struct path_row){ *piece, level, 0, 0, 0 };
    return &path->row[i < path->rows ? i : path->rows - 1];
}

static void add_piece(const struct path_piece *piece, void *context)
{
    struct adding *a = context;
    const int level = piece->kind == PATH_MESSAGE
        ? cluster_level(a->cluster, piece->sender, piece->device) : 0;
    struct path_row *r = plan_report_row_of(a->path, piece, level);
    bool *on = &a->on[(r - a->path->row) * a->devices + piece->device];
    r->takes += piece->to - piece->from;
    r->pieces++;
    r->devices += !*on;
    *on = true;
}

/* Rows that take as long stay in the order in which the path has met them, on every system: qsort would not say. */
static void sort_longest_first(struct plan_path *path)
{
    for (int i = 1; i < path->rows; i++) {
        const struct path_row row = path->row[i];
        int at = i;
        for (; at > 0 && path->row[at - 1].takes < row.takes; at--) path->row[at] = path->row[at - 1];
        path->row[at] = row;
    }
}

/* The mean of all devices: each that ran stands for as many. */
static void add_shares_of_all(struct plan_path *path, const struct folding *folding, struct events *const *events)
{
    struct step_share sum = { 0 };
    path->least = path->total;
    const int lives = folding_lives(folding);
    for (int n = 0; n < lives; n++) {
        const struct step_share s = step_share(events[folding_first(folding, n)], path->total);
        if (s.computing < path->least) path->least = s.computing;
        if (s.computing > path->most) path->most = s.computing;
        sum.computing += s.computing, sum.engines += s.engines, sum.ended += s.ended;
        sum.starts += s.starts;
        for (int k = 0; k < TRAFFIC_KIND_COUNT; k++) sum.waiting[k] += s.waiting[k];
    }
    sum.computing /= lives, sum.engines /= lives, sum.ended /= lives, sum.starts /= lives;
    for (int k = 0; k < TRAFFIC_KIND_COUNT; k++) sum.waiting[k] /= lives;
    path->share = sum;
}

enum error_code plan_path_of(struct plan_path *path, const struct cluster *cluster, const struct folding *folding,
                             struct events *const *events, struct error *err)
{
    struct adding a = { path, cluster, calloc((size_t)folding->mesh.devices * PATH_ROWS, sizeof *a.on),
                       folding->mesh.devices };
    *path = (struct plan_path){ .rows = 0 };
    if (a.on == NULL) return fail(err, ERR_MEMORY, "no memory for the path of %d devices", folding->mesh.devices);
    path->total = step_path(folding, events, add_piece, &a);
    free(a.on);
    if (path->total < 0) return OK;
    sort_longest_first(path);
    add_shares_of_all(path, folding, events);
    return OK;
}
