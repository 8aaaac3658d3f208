/* loop_open.c -- the tasks of a run: which there are, on which devices, with which plans.  loop.c calls; cli/train/rl.c
 * asks for the number of devices.  Errors: ERR_PLAN, naming the task. */
#include "emulated_devices/rl/loop_parts.h"
#include <string.h>

static const char *const role_names[ROLES] = { "train", "--rollout-mesh:", "--reference-mesh:", "critic", "values" };

int64_t rl_length(const struct task *task) { return task_prompt_tokens(task) + task_answer_tokens(task); }

/* The mesh of training without parts of sequences, which answers do not have: these are replicas. */
static void usual_mesh(const struct mesh *train, int size[AXIS_COUNT])
{
    for (int a = 0; a < AXIS_COUNT; a++) size[a] = train->size[a];
    size[DP] *= size[CP] * size[EP], size[CP] = size[EP] = 1;
}

static enum error_code infer_on(struct plan *plan, const struct rl_job *job, const int asked[AXIS_COUNT], bool rollout,
                                struct error *err)
{
    int size[AXIS_COUNT];
    if (asked[DP] > 0) memcpy(size, asked, sizeof size);
    else usual_mesh(&job->plan.mesh, size);
    return role_infers(plan, &job->plan, size, rollout ? size[DP] : job->plan.B,
                       role_names[rollout ? ROLE_ROLLOUT : ROLE_REFERENCE], err);
}

/* Devices of training come first, so that rank 0 is one of them. */
static enum error_code plan_roles(const struct rl_job *job, struct role role[ROLES], int *devices, struct error *err)
{
    const int own = job->plan.mesh.devices;
    const bool scores = rl_scores(job) || job->rule->values;
    for (int r = 0; r < ROLES; r++) role[r].name = role_names[r], role[r].first = 0;
    role[ROLE_TRAIN].plan = role[ROLE_CRITIC].plan = job->plan;
    role[ROLE_CRITIC].plan.seed = ~job->plan.seed;
    enum error_code e = infer_on(&role[ROLE_ROLLOUT].plan, job, job->rollout, true, err);
    if (!e) e = infer_on(&role[ROLE_REFERENCE].plan, job, job->reference, false, err);
    if (e) return e;
    role[ROLE_VALUES].plan = role[ROLE_REFERENCE].plan;
    role[ROLE_VALUES].plan.seed = ~job->plan.seed;
    const int draws = role[ROLE_ROLLOUT].plan.mesh.devices, sees = scores ? role[ROLE_REFERENCE].plan.mesh.devices : 0;
    *devices = draws > own ? draws : own;
    if (sees > *devices) *devices = sees;
    if (!job->apart) return OK;
    role[ROLE_ROLLOUT].first = own, role[ROLE_REFERENCE].first = role[ROLE_VALUES].first = own + draws;
    *devices = own + draws + sees;
    return OK;
}

enum error_code rl_devices(const struct rl_job *job, int *devices, struct error *err)
{
    static struct role role[ROLES];     /* plans are large */
    return plan_roles(job, role, devices, err);
}

enum error_code rl_roles(struct rl_run *run, struct error *err)
{
    int devices = 0;
    const enum error_code e = plan_roles(run->job, run->role, &devices, err);
    run->has[ROLE_TRAIN] = run->has[ROLE_ROLLOUT] = true;
    run->has[ROLE_REFERENCE] = rl_scores(run->job);
    run->has[ROLE_CRITIC] = run->has[ROLE_VALUES] = run->job->rule->values;
    if (!e && devices != run->whole->size)
        return fail(err, ERR_PLAN, "the job has %d devices, and its tasks need %d", run->whole->size, devices);
    return e;
}
