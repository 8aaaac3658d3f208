/* The value of --rollout-mesh from anybody: one that is accepted has a size of at least 1 for each axis, and none that
 * an answer's mesh cannot have.
 * tier: check
 */
#include "emulated_devices/cli/train/rl.h"
#include "tests/fuzz/fuzz.h"

static void try(const uint8_t *data, size_t size)
{
    struct error err = { 0 };
    int mesh[AXIS_COUNT];
    char *text = as_text(data, size), again[100];
    if (rl_mesh_read("--rollout-mesh", text, mesh, &err) != OK)
        must(strncmp(err.text, "--rollout-mesh ", 15) == 0, "refused without its flag: %s", err.text);
    else {
        for (int a = 0; a < AXIS_COUNT; a++)
            must(mesh[a] >= 1 && (mesh[a] == 1 || a == DP || a == TP || a == PP), "%s=%d", axis_name((enum axis)a),
                 mesh[a]);
        /* An accepted mesh that is said in full is the same mesh. */
        int same[AXIS_COUNT];
        snprintf(again, sizeof again, "dp=%d,tp=%d,pp=%d", mesh[DP], mesh[TP], mesh[PP]);
        must(rl_mesh_read("--rollout-mesh", again, same, &err) == OK, "%s: %s", again, err.text);
        must(memcmp(same, mesh, sizeof mesh) == 0, "%s is another mesh than %s", again, text);
    }
    free(text);
}

FUZZ_TARGET("rollout_mesh")
