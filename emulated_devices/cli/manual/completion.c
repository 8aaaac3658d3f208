/* completion.c -- completion for bash, zsh and fish: commands, topics, flags, their choices, and files.  manual.c
 * calls these functions.  No function returns an error code. */
#include "emulated_devices/cli/manual/manual.h"
#include <string.h>

static bool is_topic(const struct manual_command *command) { return strchr(command->name, ' ') != NULL; }
static const char *topic_of(const struct manual_command *command) { return strchr(command->name, ' ') + 1; }
static bool is_flag(const struct manual_option *option) { return option->name && option->name[0] == '-'; }
static bool takes_folder(const struct manual_option *option)
{
    return option->argument && strcmp(option->argument, "DIR") == 0;
}

static void put_names(FILE *to, const struct manual *manual)
{
    const char *space = "";
    for (int i = 0; i < manual->commands; i++)
        if (!is_topic(&manual->command[i])) fprintf(to, "%s%s", space, manual->command[i].name), space = " ";
}

static void put_topics(FILE *to, const struct manual_command *command)
{
    for (int i = 1; i <= command->topics; i++) fprintf(to, "%s%s", i > 1 ? " " : "", topic_of(&command[i]));
}

static void put_choices(FILE *to, char **choices)
{
    for (int i = 0; choices[i]; i++) fprintf(to, "%s%s", i > 0 ? " " : "", choices[i]);
}

/* ---- bash -------------------------------------------------------------------------------------------------------- */

static void put_bash_values(FILE *to, const struct manual_command *command)
{
    for (int i = 0; i < command->options; i++) {
        const struct manual_option *o = &command->option[i];
        if (!is_flag(o) || (o->choices == NULL && !takes_folder(o))) continue;
        fprintf(to, "    '%s %s') ", command->name, o->name);
        if (o->choices == NULL) fprintf(to, "COMPREPLY=($(compgen -d -- \"$cur\"))");
        else {
            fprintf(to, "COMPREPLY=($(compgen -W '");
            put_choices(to, o->choices);
            fprintf(to, "' -- \"$cur\"))");
        }
        fprintf(to, "; return ;;\n");
    }
}

static void put_bash_words(FILE *to, const struct manual_command *command)
{
    fprintf(to, "    '%s') words='", command->name);
    put_topics(to, command);
    for (int i = 0; i < command->options; i++) {
        const struct manual_option *o = &command->option[i];
        if (is_flag(o)) fprintf(to, " %s", o->name);
        else if (o->choices) fprintf(to, " "), put_choices(to, o->choices);
    }
    fprintf(to, " --help' ;;\n");
}

void manual_print_bash(FILE *to, const struct manual *manual)
{
    fprintf(to, "# bash completion for orrery; `orrery manual bash' has made it.\n_orrery()\n{\n"
            "    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} "
            "command=${COMP_WORDS[1]} words\n"
            "    COMPREPLY=()\n"
            "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W '");
    put_names(to, manual);
    fprintf(to, " help --version' -- \"$cur\"))\n        return\n    fi\n    case \"$command ${COMP_WORDS[2]}\" in\n");
    for (int i = 0; i < manual->commands; i++)
        if (is_topic(&manual->command[i]))
            fprintf(to, "    '%s') [ \"$COMP_CWORD\" = 2 ] || command='%s' ;;\n", manual->command[i].name,
                    manual->command[i].name);
    fprintf(to, "    esac\n    case \"$command $before\" in\n");
    for (int i = 0; i < manual->commands; i++) put_bash_values(to, &manual->command[i]);
    fprintf(to, "    esac\n    case \"$command\" in\n    help) words='");
    put_names(to, manual);
    fprintf(to, "' ;;\n");
    for (int i = 0; i < manual->commands; i++) put_bash_words(to, &manual->command[i]);
    fprintf(to, "    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
            "    [ ${#COMPREPLY[@]} -gt 0 ] || [[ $cur == -* ]] || COMPREPLY=($(compgen -f -- \"$cur\"))\n"
            "}\ncomplete -o filenames -F _orrery orrery\n");
}

/* ---- zsh --------------------------------------------------------------------------------------------------------- */

static void put_zsh_options(FILE *to, const struct manual_command *command)
{
    fprintf(to, "    _arguments");
    for (int i = 0; i < command->options; i++) {
        const struct manual_option *o = &command->option[i];
        if (!is_flag(o)) continue;
        fprintf(to, " \\\n        '%s[", o->name);
        manual_print_plain(to, o->text, 60);
        fprintf(to, "]");
        if (o->argument) {
            fprintf(to, ":");
            manual_print_plain(to, o->argument, 20);
            fprintf(to, ":");
            if (o->choices) fprintf(to, "("), put_choices(to, o->choices), fprintf(to, ")");
            else fprintf(to, "%s", takes_folder(o) ? "_files -/" : "_files");
        }
        fprintf(to, "'");
    }
    fprintf(to, " \\\n        '--help[all options]'");
    for (int i = 0; i < command->options; i++)
        if (!is_flag(&command->option[i]) && command->option[i].choices) {
            fprintf(to, " '1:name:(");
            put_choices(to, command->option[i].choices);
            fprintf(to, ")'");
            break;
        }
    fprintf(to, " '*:file:_files'\n");
}

static void put_zsh_list(FILE *to, const struct manual_command *command, int n, bool topics)
{
    fprintf(to, "    list=(");
    for (int i = 0; i < n; i++) {
        if (is_topic(&command[i]) != topics) continue;
        fprintf(to, " '%s:", topics ? topic_of(&command[i]) : command[i].name);
        manual_print_plain(to, command[i].line, 70);
        fprintf(to, "'");
    }
    fprintf(to, " )\n");
}

void manual_print_zsh(FILE *to, const struct manual *manual)
{
    fprintf(to, "#compdef orrery\n# zsh completion for orrery; `orrery manual zsh' has made it.\n"
            "local -a list\nlocal command=$words[2] topic=$words[3]\nif (( CURRENT == 2 )); then\n");
    put_zsh_list(to, manual->command, manual->commands, false);
    fprintf(to, "    _describe command list\n    return\nfi\nif (( CURRENT == 3 )); then\n    case $command in\n");
    for (int i = 0; i < manual->commands; i++) {
        if (manual->command[i].topics == 0) continue;
        fprintf(to, "    %s)\n", manual->command[i].name);
        put_zsh_list(to, &manual->command[i + 1], manual->command[i].topics, true);
        fprintf(to, "    _describe topic list ;;\n");
    }
    fprintf(to, "    esac\nfi\ncase \"$command $topic\" in\n");
    for (int i = 0; i < manual->commands; i++) {
        if (!is_topic(&manual->command[i])) continue;
        fprintf(to, "'%s')\n    shift 2 words; (( CURRENT -= 2 ))\n", manual->command[i].name);
        put_zsh_options(to, &manual->command[i]);
        fprintf(to, "    return ;;\n");
    }
    fprintf(to, "esac\nshift words; (( CURRENT -= 1 ))\ncase $command in\n");
    for (int i = 0; i < manual->commands; i++) {
        if (is_topic(&manual->command[i])) continue;
        fprintf(to, "%s)\n", manual->command[i].name);
        put_zsh_options(to, &manual->command[i]);
        fprintf(to, "    ;;\n");
    }
    fprintf(to, "esac\n");
}

/* ---- fish -------------------------------------------------------------------------------------------------------- */

static void put_fish_condition(FILE *to, const struct manual_command *command)
{
    if (is_topic(command))
        fprintf(to, "complete -c orrery -n '__fish_seen_subcommand_from %.*s; and __fish_seen_subcommand_from %s'",
                (int)strcspn(command->name, " "), command->name, topic_of(command));
    else fprintf(to, "complete -c orrery -n '__fish_seen_subcommand_from %s'", command->name);
}

static void put_fish_option(FILE *to, const struct manual_command *command, const struct manual_option *option)
{
    if (!is_flag(option) && option->choices == NULL) return;
    put_fish_condition(to, command);
    if (is_flag(option)) fprintf(to, " -l %s%s", option->name + 2, option->argument ? " -r" : "");
    if (option->choices) {
        fprintf(to, " -a '");
        put_choices(to, option->choices);
        fprintf(to, "'");
    }
    fprintf(to, " -d '");
    manual_print_plain(to, option->text, 60);
    fprintf(to, "'\n");
}

void manual_print_fish(FILE *to, const struct manual *manual)
{
    fprintf(to, "# fish completion for orrery; `orrery manual fish' has made it.\n");
    for (int i = 0; i < manual->commands; i++) {
        const struct manual_command *c = &manual->command[i];
        if (is_topic(c)) fprintf(to, "complete -c orrery -n '__fish_seen_subcommand_from %.*s' -a %s -d '",
                                 (int)strcspn(c->name, " "), c->name, topic_of(c));
        else fprintf(to, "complete -c orrery -n __fish_use_subcommand -a %s -d '", c->name);
        manual_print_plain(to, c->line, 70);
        fprintf(to, "'\n");
        for (int k = 0; k < c->options; k++)
            if (c->option[k].kind != OPTION_HEADING) put_fish_option(to, c, &c->option[k]);
    }
}
