/* search.h -- the best plans of a space: by the time that a step of them takes, within a device's memory.
 *
 * A plan is known in three ways, each dearer than the one before:
 *
 *     least      a lower bound of its peak, of the devices at the first and the last place of the pipeline
 *                (plan_memory.h).  A plan above the memory is not planned: its peak cannot be less, so no plan that
 *                fits is ever lost.
 *     estimate   about what a step takes (estimate.h).  It decides which plans are planned, and in which order.
 *     time, peak of the plan itself (dry_run.h): what `orrery plan` says, and a run, to the picosecond and the byte.
 *
 * Plans are ranked by the last alone.  On a cluster whose devices share links, or where messages and computing hinder
 * each other, that time leaves this out; the fastest plans are replayed (contention.h), and ranked by that.
 *
 * Callers: the planners, cli/train/search.c, and for changes run/plan.c.
 */
#ifndef ORRERY_SEARCH_SEARCH_H
#define ORRERY_SEARCH_SEARCH_H

#include "emulated_devices/comm/crew.h"
#include "emulated_devices/train/dry_run/step_path.h"
#include "emulated_devices/search/estimate.h"
#include "emulated_devices/search/plan_space.h"

struct candidate {
    struct choice choice;               /* the plan, as values of all dimensions */
    uint64_t least;                     /* bytes; 0: not yet known */
    picoseconds estimate;               /* 0: none; INT64_MAX: too many devices would run for one (estimate.h) */
    double work;                        /* that planning takes, by the estimate; 0: there is none */
    picoseconds time;                   /* of a step: by the clocks, or replayed; 0: not planned */
    picoseconds clocks;                 /* of a replayed one, by the clocks; 0: it was not replayed */
    uint64_t peak;                      /* of the fullest device */
    uint64_t sent;                      /* bytes that all devices send in a step */
    int unusual;                        /* choices that differ from the defaults of `orrery train` */
    struct step_share share;            /* of the mean device; together they are the time, but for rounding */
    bool share_known;                   /* false: not planned, or its events were too many to keep */
};

struct search {
    const struct plan_space *space;     /* what may be chosen */
    uint64_t memory;                    /* of a device; 0: no limit */
    int most;                           /* plans that are planned at most; 0: all */
    double work_most, worked;           /* what planning may take together, and what estimates may, as struct estimate
                                         * counts it, 0: any; what planning took */
    int unseen;                         /* meshes that were not estimated because that had taken work_most */
    int unimproved;                     /* starts that do not fit, and were not improved, likewise */
    int64_t dear;                       /* plans that were not planned because so much work was not left */
    bool only_memory;                   /* no step is estimated, and the plan that needs least is the best */
    bool plans_all;                     /* also what the lower bound says does not fit: for tests */
    int64_t most_events;                /* kept of a step; 0: STEP_MOST_EVENTS; less: for tests */
    struct candidate *of;               /* [count] plans that were looked at */
    int count, room;                    /* entries of `of`, and for how many there is memory */
    int *slot, slots;                   /* where a choice is among them, by its bytes: place + 1; 0: free */
    int64_t bounded, over, planned;     /* of them: whose bound is known; is above the memory; that were planned */
    struct estimator estimator;         /* gives a time without planning, from rates of the cluster */
    /* Tell how far the search is, 0 to 1, with the best plan so far if there is one; NULL: nobody wants to know. */
    void (*tell)(void *context, const char *doing, double part);
    bool (*ends)(void *context);        /* whether the search shall end with what it has; NULL: it shall not */
    void *context;                      /* first argument of both */
    struct crew_stop stop;              /* whether it shall end in the middle of planning a step, with what it has */
    bool ended;                         /* before all was looked at that the planner wanted */
};

void search_close(struct search *);

/** Keep a legal plan.
 *  @param estimates  estimate its step.
 *  @param[out] place among the candidates; may be NULL.  @return OK or ERR_MEMORY. */
enum error_code search_add(struct search *, const struct plan *, const struct choice *, bool estimates, int *place,
                           struct error *);

/** The place of a choice that was added; -1: it was not. */
int search_find(const struct search *, const struct choice *);

/** Whether the search shall end now with what it has.  Planners ask between looks, and return OK if so. */
bool search_ends(struct search *);

/** Whether it shall end at once, even if it has nothing. */
bool search_stops(struct search *);

/** Plan a candidate now, if it may fit and was not planned: for an early answer.  @return OK or an error. */
enum error_code search_plan_now(struct search *, int place, struct error *);

/** Look for the plan that needs least memory: each mesh is improved by the lower bound alone, and planned if the bound
 *  fits, until a planned one fits (beam.c).  @param[out] place  that one, or else the one that needs least; -1: no plan
 *  is legal.  @return OK or an error. */
enum error_code search_leanest(struct search *, int *place, struct error *);

/** Whether estimates and bounds have taken more than this share of what they may.  False without such a limit. */
bool search_is_tired(const struct search *, double share);

/** Whether planning a candidate takes at most this share of all work, and no more than is left. */
bool search_affords(const struct search *, int place, double share);

/** The fastest of the planned candidates that fit; NULL: none does yet. */
const struct candidate *search_best(const struct search *);

/** By how much the lower bound of a candidate is above the memory; 0: it may fit.  @return OK or ERR_MEMORY. */
enum error_code search_lacks(struct search *, int place, uint64_t *lacks, struct error *);

/** The lower bound of a plan's peak.  @return OK or ERR_MEMORY. */
enum error_code search_bound(const struct plan *, uint64_t *least, struct error *);

/** Plan a step: time, peak and share of a candidate.  @return OK, or the plan's error. */
enum error_code search_plan(const struct plan *, struct candidate *, struct error *);

/** Plan the candidates that promise most, by estimate, until `most` of them are, or until the search shall end and one
 *  that fits is planned, and put those that are planned and fit
 *  first: by time, peak, bytes sent and choices that differ from the defaults, then in the order of the space.
 *  @param[out] ranked  how many.  @return OK or an error. */
enum error_code search_rank(struct search *, int *ranked, struct error *);

/* A plan that takes less than this share longer than another one is no idea of its own.  The time of a plan is that of
 * a model of the machine, and the model misses published steps by 2 to 4 % in the mean
 * (docs/plans/virtual_clock.md). */
#define SEARCH_NEAR 0.01

/** Whether two planned candidates are one plan to its user: same mesh, time, peak and bytes sent. */
bool search_equal(const struct candidate *, const struct candidate *);

/** Put ranked plans into groups of one idea.  A plan joins the first group on its mesh whose first plan is faster by
 *  less than SEARCH_NEAR, and needs no more memory but for that share.
 *  @param[out] first  [ranked] the place of the first plan of each plan's group.  @return how many groups. */
int search_group(const struct candidate *, int ranked, int first[]);

/**
 * Replay ranked plans, on a cluster that needs it: the frontier, then one after another by the clocks, until `best`
 * groups of replayed ones take no longer than the next by the clocks, or until `most` plans were replayed.
 * Sharing mostly takes time, so the others are hardly faster; where messages of several devices pass in another order,
 * a replay can save a little.
 * Replayed ones are first then, by their new times.  Elsewhere nothing changes.
 * @param[in,out] ranked  how many are ranked; after a replay how many were replayed.
 * @param[out] beaten  whether each of the others takes longer by the clocks than the first `best` groups do replayed.
 * @return OK or an error.
 */
enum error_code search_replay(struct search *, int best, int most, int *ranked, bool *beaten, struct error *);

/** The ranked candidates that no other candidate beats in both time and peak, fastest first.
 *  @param[out] place [ranked].  @return how many. */
int search_frontier(const struct candidate *, int ranked, int place[]);

/* A change of a plan that makes it fit, and the plan with it. */
struct change { char words[PLAN_WORDS]; picoseconds time; uint64_t peak; };

/**
 * The changes of one dimension, or of two, with which a plan fits into the memory, each of them planned; those that
 * take the least time first.  If there are none, those of three, or of four.  Of many only the most promising are
 * planned; several at once are of microbatches, recomputation, the data scheme and offloading.
 * @param[out] out [most].  @return how many.
 */
int search_changes(const struct plan_space *, const struct plan *, uint64_t memory, struct change *out, int most);

#endif
