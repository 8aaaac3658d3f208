/* list.c -- `orrery list`: the parts of the list, and what of them was asked for.  main.c calls command_list(), manual/
 * list_names_of().  Errors: ERR_USAGE for a word that is no part, operation, axis or name. */
#include "emulated_devices/cli/list/list.h"
#include "emulated_devices/cli/cli.h"
#include "ref/io/document.h"
#include "ref/io/terminal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct list_part parts[] = {
    { "models", "Models (--model)", "--model", NULL, NULL, list_models, false },
    { "tensor", "Tensor parallelism, over tp (--tensor)", "--tensor", "tp", "tensor", list_tensor, false },
    { "attention", "Context parallelism, over cp (--attention)", "--attention", "cp", "attention", list_attention,
      false },
    { "dispatch", "Expert parallelism, over ep (--dispatch)", "--dispatch", "ep", "dispatch", list_experts, false },
    { "routers", "Routers of mixtures of experts (--router)", "--router", NULL, NULL, list_routers, false },
    { "data", "Data parallelism, over dp (--data-parallel)", "--data-parallel", "dp", NULL, list_data, false },
    { "schedules", "Pipeline schedules, over pp (--schedule)", "--schedule", "pp", "schedule", list_schedules, false },
    { "spatial", "Fields on the sphere, in tiles (orrery verify spatial)", NULL, NULL, NULL, list_spatial, false },
    { "collectives", "Collectives, by operation (--allreduce)", NULL, NULL, NULL, list_collectives, true },
    { "optimizers", "Optimizers (--optimizer)", "--optimizer", NULL, NULL, list_optimizers, false },
    { "profiles", "Profiles, whose conventions a step has (--as), and the conventions", "--as", NULL, NULL,
      list_profiles, false },
    { "clusters", "Clusters for the virtual clock (--cluster)", "--cluster", NULL, "cluster", list_clusters, false },
    { "kernels", "Kernels that programs run (--kernels-of), and tables of measured kernels", "--kernels-of", NULL,
      NULL, list_kernel_sets, false },
    { "planners", "Planners of orrery search (--planner)", "--planner", NULL, NULL, list_planners, false },
    { "memory", "Memory profiles of orrery plan (--memory-of)", "--memory-of", NULL, NULL, list_memory, false },
    { "frameworks", "Frameworks whose configurations orrery plan --from reads", "--from", NULL, NULL,
      list_frameworks, false },
    { "likes", "Frameworks whose schemes orrery search may be limited to (--like)", "--like", NULL, NULL, list_likes,
      false },
    { "backends", "Backends, which execute operations (--backend)", "--backend", NULL, NULL, list_backends, false },
    { "dtypes", "Number formats (--dtype)", "--dtype", NULL, NULL, list_dtypes, false },
    { "policies", "Losses of reinforcement learning (orrery rl --rule)", "--rule", NULL, NULL, list_policies, false },
    { "systems", "Published systems that are here, and the commands that show them", NULL, NULL, NULL, list_systems,
      false },
    { "clashes", "What cannot be combined", NULL, NULL, NULL, list_clashes, false },
};
enum { PARTS = sizeof parts / sizeof *parts };

/* Pairs are no names: who asks for all is told where they are. */
static bool is_of_pairs(const struct list_part *part) { return part->say == list_clashes; }

static void collect(enum list_manner manner)
{
    const struct list_wanted wanted = { .manner = manner };
    if (list_names_said()->count > 0) return;
    for (int i = 0; i < PARTS; i++) list_say(&parts[i], &wanted);
}

/* A word that a command takes; options that are listed beside their schemes, and pairs, have dashes. */
static bool is_word(const struct list_name *row) { return row->name[0] != '-'; }

/* ---- a screen: a line for each part ------------------------------------------------------------------------------ */

/* The names of a part, or its operations: as many as the line has room for. */
static void print_names(const struct list_part *part, int room)
{
    const struct list_names *said = list_names_said();
    const char *before = NULL;
    int used = 0;
    for (int i = 0; i < said->count; i++) {
        const struct list_name *row = &said->row[i];
        const char *name = part->has_operations ? row->group : row->name;
        if (row->part != part || !is_word(row) || name == NULL || (before && strcmp(before, name) == 0)) continue;
        const int wide = (int)strlen(name) + (used > 0 ? 2 : 0);
        if (used + wide > room - (int)sizeof ", .." + 1) {
            printf(", ..");
            break;
        }
        printf("%s%s", used > 0 ? ", " : "", name);
        used += wide, before = name;
    }
    printf("\n");
}

static int count_names(const struct list_part *part)
{
    const struct list_names *said = list_names_said();
    int n = 0;
    for (int i = 0; i < said->count; i++)
        n += said->row[i].part == part && (is_word(&said->row[i]) || is_of_pairs(part));
    return n;
}

static void print_screen(void)
{
    enum { LEFT = 37, USUAL = 80 };
    const int columns = terminal_columns(stdout), room = (columns > 0 ? columns : USUAL) - LEFT;
    print_wrapped(stdout, 0, "What is chosen by name.  `orrery list PART`, `list NAME` and `list all` say more.");
    printf("  %-12s %-16s %3s\n", "PART", "flag", "");
    for (int i = 0; i < PARTS; i++) {
        const struct list_part *p = &parts[i];
        printf("  %-12s %-16s %3d  ", p->name, p->has_operations ? "--allreduce .." : p->flag ? p->flag : "",
               count_names(p));
        if (is_of_pairs(p)) printf("features that exclude others\n");
        else print_names(p, room > 12 ? room : 12);
    }
}

/* ---- what a word asks for ---------------------------------------------------------------------------------------- */

static bool equal(const char *a, const char *b) { return a && strcmp(a, b) == 0; }

/* A part by its name or axis, or an operation of a part.  @return false: it is neither. */
static bool say_part(const char *word)
{
    struct list_wanted wanted = { .manner = LIST_WHOLE };
    for (int i = 0; i < PARTS; i++)
        if (equal(parts[i].name, word) || equal(parts[i].axis, word)) return list_say(&parts[i], &wanted), true;
    wanted.group = word;
    for (int i = 0; i < PARTS; i++)
        if (parts[i].has_operations && list_say(&parts[i], &wanted) > 0) return true;
    return false;
}

/* Say the entries with a name, of all parts. */
static enum error_code say_named(const char *word, struct error *err)
{
    const struct list_wanted wanted = { .manner = LIST_WHOLE, .name = word };
    const struct list_names *said = list_names_said();
    int found = 0, n = 0;
    for (int i = 0; i < PARTS; i++) found += list_say(&parts[i], &wanted);
    if (found > 0) return OK;
    const char **known = calloc((size_t)said->count * 2 + 2 * PARTS, sizeof *known);
    if (known == NULL) return fail(err, ERR_MEMORY, "no memory for the names of the list");
    for (int i = 0; i < PARTS; i++) {
        known[n++] = parts[i].name;
        if (parts[i].axis) known[n++] = parts[i].axis;
    }
    for (int i = 0; i < said->count; i++) {
        if (!is_word(&said->row[i])) continue;
        known[n++] = said->row[i].name;
        if (said->row[i].part->has_operations && said->row[i].group) known[n++] = said->row[i].group;
    }
    const enum error_code code = fail_unknown_name(err, "WHAT", word, known, (size_t)n);
    free(known);
    return code;
}

static void say_everything(void)
{
    const struct list_wanted brief = { .manner = LIST_BRIEF };
    for (int i = 0; i < PARTS; i++)
        if (!is_of_pairs(&parts[i])) list_say(&parts[i], &brief);
    printf("\n`orrery list clashes` has what cannot be combined.\n");
}

static enum error_code list_answer(const char *what, struct error *err)
{
    collect(what ? LIST_SILENT : LIST_NOTED);
    if (what == NULL) print_screen();
    else if (strcmp(what, "all") == 0) say_everything();
    else if (!say_part(what)) return say_named(what, err);
    return OK;
}

enum error_code command_list(int argc, char **argv, int *status, struct error *err)
{
    const char *what = NULL;
    bool help;
    (void)status;
    const struct option table[] = {
        { "WHAT", NULL, OPTION_STRING, &what,
          .help = "a part of the list; an axis of the mesh, such as tp, for its part; an operation, such as allreduce, "
                  "for its algorithms; a name, for all that is known of what has the name; all: a line for each name; "
                  "default: a line for each part" },
        { 0 }
    };
    enum error_code e = parse_command(
        "list", "[WHAT]", "List everything registered, by the names that other commands take.",
        argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    e = list_answer(what, err);
    list_names_forget();
    return e;
}

/* ---- names for completion ---------------------------------------------------------------------------------------- */

/* The flags of operations and topics of `orrery show` are their names: "--allreduce", "show allreduce". */
static bool takes(const struct list_name *row, const char *command, const char *option)
{
    const char *topic = strncmp(command, "show ", 5) == 0 ? command + 5 : NULL;
    const bool flag = option[0] == '-';
    if (!is_word(row)) return false;
    if (equal(command, "list")) return !flag;
    if (row->part->has_operations) return row->group && equal(row->group, flag ? option + 2 : topic ? topic : "");
    if (row->group) return false;                       /* what stands beside the names: conventions, tables */
    return flag ? equal(row->part->flag, option) : topic && equal(row->part->topic, topic);
}

static bool is_among(char **names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return true;
    return false;
}

/* Without memory the name is left out. */
static void add_name(char **names, int *n, const char *name)
{
    if (is_among(names, *n, name)) return;
    names[*n] = malloc(strlen(name) + 1);
    if (names[*n]) strcpy(names[(*n)++], name);
}

char **list_names_of(const char *command, const char *option)
{
    collect(LIST_SILENT);
    const struct list_names *said = list_names_said();
    char **names = calloc((size_t)(2 * said->count + 2 * PARTS + 2), sizeof *names);
    int n = 0;
    if (names == NULL) return NULL;
    if (equal(command, "list") && option[0] != '-') {
        for (int i = 0; i < PARTS; i++) add_name(names, &n, parts[i].name);
        for (int i = 0; i < said->count; i++)
            if (said->row[i].part->has_operations && said->row[i].group) add_name(names, &n, said->row[i].group);
        add_name(names, &n, "all");
    }
    for (int i = 0; i < said->count; i++)
        if (takes(&said->row[i], command, option)) add_name(names, &n, said->row[i].name);
    if (n > 0) return names;
    free(names);
    return NULL;
}

void list_free_names(char **names)
{
    for (int i = 0; names && names[i]; i++) free(names[i]);
    free(names);
}
