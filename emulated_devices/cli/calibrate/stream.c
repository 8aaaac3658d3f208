/* stream.c -- `orrery calibrate --stream`: tells what STREAM's loops reach as loops and as tasks.  calibrate.c calls
 * calibrate_stream.  Errors: ERR_MEMORY, ERR_CHECK for wrong arrays, ERR_FILE of --json. */
#include "emulated_devices/cli/calibrate/stream.h"
#include "emulated_devices/bench/calibrate/stream.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/machine/cores.h"
#include "ref/machine/threads.h"

enum { TASKS_OF_A_THREAD = 8 };         /* so that a thread that is late leaves pieces to others */

static void stream_print(const struct stream_asked *asked, const struct stream_rates *rates, int threads)
{
    say(stdout, 0, "%lld elements of fp64 in each of three arrays, %d thread%s, %d pieces; the best of %d rounds",
        (long long)asked->elements, threads, plural(threads), asked->tasks, asked->rounds);
    struct table t = table_start("stream", 1, "loop\tby loops GB/s\tby tasks GB/s\ttasks / loops");
    for (int loop = 0; loop < STREAM_LOOPS; loop++)
        table_row(&t, "%s\t%.2f\t%.2f\t%.2f", stream_loop_name[loop], 1e-9 * rates->rate[STREAM_BY_LOOPS][loop],
                  1e-9 * rates->rate[STREAM_BY_TASKS][loop],
                  rates->rate[STREAM_BY_TASKS][loop] / rates->rate[STREAM_BY_LOOPS][loop]);
    table_end(&t);
}

static enum error_code stream_write(const char *path, const struct stream_asked *asked,
                                    const struct stream_rates *rates, int threads, struct error *err)
{
    cJSON *root = document_start("orrery calibrate --stream");
    json_add(root, "elements %g threads %d pieces %d rounds %d", (double)asked->elements, threads, asked->tasks,
             asked->rounds);
    cJSON *rows = cJSON_AddArrayToObject(root, "loops");
    for (int loop = 0; loop < STREAM_LOOPS; loop++)
        json_add(json_row(rows), "loop %s by_loops %g by_tasks %g", stream_loop_name[loop],
                 rates->rate[STREAM_BY_LOOPS][loop], rates->rate[STREAM_BY_TASKS][loop]);
    return fail_about(err, json_finish(path, root, err), "--json");
}

enum error_code calibrate_stream(int elements, int rounds, const char *json, bool quiet, struct error *err)
{
    const int threads = threads_use(cores_usable());
    const struct stream_asked asked = { elements, rounds, threads * TASKS_OF_A_THREAD };
    struct stream_rates rates;
    enum error_code e = stream_measure(&asked, &rates, err);
    if (!e && !quiet) stream_print(&asked, &rates, threads);
    return !e && json ? stream_write(json, &asked, &rates, threads, err) : e;
}
