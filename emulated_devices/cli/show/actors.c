/* actors.c -- `orrery show actors`: operations as actors with registers, by how many registers they have.  show.c calls
 * show_actors().  Errors: ERR_USAGE for words that are no actors; ERR_CHECK if a piece is not what one device makes;
 * ERR_MEMORY. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/schemes/sbp/actors.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { DRAWN_WIDTH = 76, DRAWN_MOST = 10 };             /* columns of a drawing; pieces in it, each a digit */

/* Every piece must be the one that one device makes: else a register was written while it was still to be read. */
static enum error_code check_pieces(const struct actors *actors, const struct actors_run *run, struct error *err)
{
    for (int a = 0; a < actors->count; a++)
        for (int64_t n = 0; n < actors->pieces; n++)
            if (run->made[a * actors->pieces + n] != actors_serial(actors, a, n))
                return fail(err, ERR_CHECK, "show actors: wrong: piece %lld of %s is not what one device makes",
                            (long long)n, actors->actor[a].name);
    return OK;
}

/* A row for each actor; the digit of a piece stands where it is made, a point where the actor waits. */
static void draw_actors(const struct actors *actors, const struct actors_run *run)
{
    const int64_t shown = actors->pieces < DRAWN_MOST ? actors->pieces : DRAWN_MOST;
    picoseconds last = 1;
    for (int a = 0; a < actors->count; a++) {
        const picoseconds end = run->end[a * actors->pieces + shown - 1];
        last = end > last ? end : last;
    }
    const picoseconds column = last > DRAWN_WIDTH ? (last + DRAWN_WIDTH - 1) / DRAWN_WIDTH : 1;
    for (int a = 0; a < actors->count; a++) {
        char line[DRAWN_WIDTH + 2];
        memset(line, '.', sizeof line);
        for (int64_t n = 0; n < shown; n++) {
            const picoseconds end = run->end[a * actors->pieces + n];
            for (picoseconds t = end - actors->actor[a].takes; t < end; t++)
                if (t / column < DRAWN_WIDTH) line[t / column] = (char)('0' + n);
        }
        line[(last + column - 1) / column] = '\0';
        printf("  %-12s %s\n", actors->actor[a].name, line);
    }
    if (column > 1) printf("  a column is %lld of time\n", (long long)column);
    printf("\n");
}

static void set_registers(struct actors *actors, int registers)
{
    for (int a = 0; a < actors->count; a++) actors->actor[a].registers = registers;
}

/* One row: all actors with so many registers.  asked: as the words say, -1. */
static enum error_code actors_row(struct actors *actors, struct table *table, int registers, struct error *err)
{
    struct actors_run run;
    int held = 0;
    if (registers >= 0) set_registers(actors, registers);
    enum error_code e = actors_run(actors, &run, err);
    if (e) return e;
    e = check_pieces(actors, &run, err);
    for (int a = 0; a < actors->count; a++) held += run.held[a];
    const double formula = actors_chain_period(actors);
    const int64_t half = actors->pieces / 2;
    char by_formula[24] = "", name[24] = "none";
    if (!isnan(formula)) snprintf(by_formula, sizeof by_formula, "%.4g", formula);
    if (registers != 0) snprintf(name, sizeof name, "%d", registers);
    if (!e)
        table_row(table, "%s\t%lld\t%.4g\t%s\t%d\t%lld", registers < 0 ? "as said" : name, (long long)run.last,
                  half > 0 ? actors_period(actors, &run, half) : 0, by_formula, held, (long long)run.messages);
    actors_free(&run);
    return e;
}

static enum error_code actors_print(struct actors *actors, struct error *err)
{
    static const int tried[] = { 1, 2, 3, 0 };
    struct actors_run run;
    enum error_code e = actors_run(actors, &run, err);
    if (e) return e;
    draw_actors(actors, &run);
    actors_free(&run);
    struct table t = table_start("registers", 1, "registers\ttime\ta piece\tformula\theld\tmessages");
    e = actors_row(actors, &t, -1, err);
    for (size_t i = 0; i < sizeof tried / sizeof *tried && !e; i++) e = actors_row(actors, &t, tried[i], err);
    if (e) return table_drop(&t), e;
    table_end(&t);
    say(stdout, 0, "\ntime: of all %lld pieces; a piece: from one to the next, in the second half; formula: of a\n"
        "chain; held: registers in use at once, of all actors, each at its most.  Every piece is what one\n"
        "device makes.", (long long)actors->pieces);
    return OK;
}

enum error_code show_actors(int argc, char **argv, int *status, struct error *err)
{
    struct actors actors = { .count = 0 };
    const char *words = "load:2,decode:5,copy:1,step:6";
    int registers = 2, pieces = 40, latency = 0;
    bool help;
    (void)status;
    const struct option table[] = {
        { "ACTORS", NULL, OPTION_STRING, &words, .help = "NAME:TIME[:REGISTERS][<PRODUCER+PRODUCER], and so on" },
        { "--registers", "N", OPTION_INT, &registers, .min = 0, .max = ACTOR_REGISTERS,
          .help = "of each actor that names no number; 0: a new one for each piece" },
        { "--pieces", "N", OPTION_INT, &pieces, .min = 2, .max = 10000, .help = "that each actor makes" },
        { "--latency", "T", OPTION_INT, &latency, .min = 0, .max = 1e6, .help = "of a message between actors" },
        { 0 }
    };
    enum error_code e = parse_command(
        "show actors", "[ACTORS] [options]",
        "Operations as actors, as OneFlow runs them: one acts when a register of each producer is ready and\n"
        "one of its own is free.  Draws the first pieces, and compares numbers of registers in virtual time.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    actors.pieces = pieces, actors.latency = latency;
    e = actors_read(&actors, words, registers, err);
    return e ? e : actors_print(&actors, err);
}
