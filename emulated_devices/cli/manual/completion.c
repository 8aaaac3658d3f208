/* completion.c -- completion for bash, zsh and fish: commands, topics, flags, their choices, and files. */
#include "emulated_devices/cli/manual/manual.h"
#include <string.h>

static bool is_topic(const struct manual_command *c) { return strchr(c->name, ' ') != NULL; }
static const char *topic_of(const struct manual_command *c) { return strchr(c->name, ' ') + 1; }
static bool is_flag(const struct manual_option *o) { return o->name && o->name[0] == '-'; }
static bool takes_folder(const struct manual_option *o) { return o->argument && strcmp(o->argument, "DIR") == 0; }

static void put_names(FILE *to, const struct manual *m)
{
    const char *space = "";
    for (int i = 0; i < m->commands; i++)
        if (!is_topic(&m->command[i])) fprintf(to, "%s%s", space, m->command[i].name), space = " ";
}

static void put_topics(FILE *to, const struct manual_command *c)
{
    for (int i = 1; i <= c->topics; i++) fprintf(to, "%s%s", i > 1 ? " " : "", topic_of(&c[i]));
}

static void put_choices(FILE *to, char **choices)
{
    for (int i = 0; choices[i]; i++) fprintf(to, "%s%s", i > 0 ? " " : "", choices[i]);
}

/* ---- bash -------------------------------------------------------------------------------------------------------- */

static void put_bash_values(FILE *to, const struct manual_command *c)
{
    for (int i = 0; i < c->options; i++) {
        const struct manual_option *o = &c->option[i];
        if (!is_flag(o) || (o->choices == NULL && !takes_folder(o))) continue;
        fprintf(to, "    '%s %s') ", c->name, o->name);
        if (o->choices == NULL) fprintf(to, "COMPREPLY=($(compgen -d -- \"$cur\"))");
        else {
            fprintf(to, "COMPREPLY=($(compgen -W '");
            put_choices(to, o->choices);
            fprintf(to, "' -- \"$cur\"))");
        }
        fprintf(to, "; return ;;\n");
    }
}

static void put_bash_words(FILE *to, const struct manual_command *c)
{
    fprintf(to, "    '%s') words='", c->name);
    put_topics(to, c);
    for (int i = 0; i < c->options; i++) {
        const struct manual_option *o = &c->option[i];
        if (is_flag(o)) fprintf(to, " %s", o->name);
        else if (o->choices) fprintf(to, " "), put_choices(to, o->choices);
    }
    fprintf(to, " --help' ;;\n");
}

void manual_print_bash(FILE *to, const struct manual *m)
{
    fprintf(to, "# bash completion for orrery; `orrery manual bash' has made it.\n_orrery()\n{\n"
            "    local cur=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} "
            "command=${COMP_WORDS[1]} words\n"
            "    COMPREPLY=()\n"
            "    if [ \"$COMP_CWORD\" = 1 ]; then\n        COMPREPLY=($(compgen -W '");
    put_names(to, m);
    fprintf(to, " help --version' -- \"$cur\"))\n        return\n    fi\n    case \"$command ${COMP_WORDS[2]}\" in\n");
    for (int i = 0; i < m->commands; i++)
        if (is_topic(&m->command[i]))
            fprintf(to, "    '%s') [ \"$COMP_CWORD\" = 2 ] || command='%s' ;;\n", m->command[i].name,
                    m->command[i].name);
    fprintf(to, "    esac\n    case \"$command $before\" in\n");
    for (int i = 0; i < m->commands; i++) put_bash_values(to, &m->command[i]);
    fprintf(to, "    esac\n    case \"$command\" in\n    help) words='");
    put_names(to, m);
    fprintf(to, "' ;;\n");
    for (int i = 0; i < m->commands; i++) put_bash_words(to, &m->command[i]);
    fprintf(to, "    esac\n    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
            "    [ ${#COMPREPLY[@]} -gt 0 ] || [[ $cur == -* ]] || COMPREPLY=($(compgen -f -- \"$cur\"))\n"
            "}\ncomplete -o filenames -F _orrery orrery\n");
}

/* ---- zsh --------------------------------------------------------------------------------------------------------- */

static void put_zsh_options(FILE *to, const struct manual_command *c)
{
    fprintf(to, "    _arguments");
    for (int i = 0; i < c->options; i++) {
        const struct manual_option *o = &c->option[i];
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
    fprintf(to, " \\\n        '--help[all options]' '*:file:_files'\n");
}

static void put_zsh_list(FILE *to, const struct manual_command *c, int n, bool topics)
{
    fprintf(to, "    list=(");
    for (int i = 0; i < n; i++) {
        if (is_topic(&c[i]) != topics) continue;
        fprintf(to, " '%s:", topics ? topic_of(&c[i]) : c[i].name);
        manual_print_plain(to, c[i].line, 70);
        fprintf(to, "'");
    }
    fprintf(to, " )\n");
}

void manual_print_zsh(FILE *to, const struct manual *m)
{
    fprintf(to, "#compdef orrery\n# zsh completion for orrery; `orrery manual zsh' has made it.\n"
            "local -a list\nlocal command=$words[2] topic=$words[3]\nif (( CURRENT == 2 )); then\n");
    put_zsh_list(to, m->command, m->commands, false);
    fprintf(to, "    _describe command list\n    return\nfi\nif (( CURRENT == 3 )); then\n    case $command in\n");
    for (int i = 0; i < m->commands; i++) {
        if (m->command[i].topics == 0) continue;
        fprintf(to, "    %s)\n", m->command[i].name);
        put_zsh_list(to, &m->command[i + 1], m->command[i].topics, true);
        fprintf(to, "    _describe topic list ;;\n");
    }
    fprintf(to, "    esac\nfi\ncase \"$command $topic\" in\n");
    for (int i = 0; i < m->commands; i++) {
        if (!is_topic(&m->command[i])) continue;
        fprintf(to, "'%s')\n    shift 2 words; (( CURRENT -= 2 ))\n", m->command[i].name);
        put_zsh_options(to, &m->command[i]);
        fprintf(to, "    return ;;\n");
    }
    fprintf(to, "esac\nshift words; (( CURRENT -= 1 ))\ncase $command in\n");
    for (int i = 0; i < m->commands; i++) {
        if (is_topic(&m->command[i])) continue;
        fprintf(to, "%s)\n", m->command[i].name);
        put_zsh_options(to, &m->command[i]);
        fprintf(to, "    ;;\n");
    }
    fprintf(to, "esac\n");
}

/* ---- fish -------------------------------------------------------------------------------------------------------- */

static void put_fish_condition(FILE *to, const struct manual_command *c)
{
    if (is_topic(c))
        fprintf(to, "complete -c orrery -n '__fish_seen_subcommand_from %.*s; and __fish_seen_subcommand_from %s'",
                (int)strcspn(c->name, " "), c->name, topic_of(c));
    else fprintf(to, "complete -c orrery -n '__fish_seen_subcommand_from %s'", c->name);
}

static void put_fish_option(FILE *to, const struct manual_command *c, const struct manual_option *o)
{
    if (!is_flag(o) && o->choices == NULL) return;
    put_fish_condition(to, c);
    if (is_flag(o)) fprintf(to, " -l %s%s", o->name + 2, o->argument ? " -r" : "");
    if (o->choices) {
        fprintf(to, " -a '");
        put_choices(to, o->choices);
        fprintf(to, "'");
    }
    fprintf(to, " -d '");
    manual_print_plain(to, o->text, 60);
    fprintf(to, "'\n");
}

void manual_print_fish(FILE *to, const struct manual *m)
{
    fprintf(to, "# fish completion for orrery; `orrery manual fish' has made it.\n");
    for (int i = 0; i < m->commands; i++) {
        const struct manual_command *c = &m->command[i];
        if (is_topic(c)) fprintf(to, "complete -c orrery -n '__fish_seen_subcommand_from %.*s' -a %s -d '",
                                 (int)strcspn(c->name, " "), c->name, topic_of(c));
        else fprintf(to, "complete -c orrery -n __fish_use_subcommand -a %s -d '", c->name);
        manual_print_plain(to, c->line, 70);
        fprintf(to, "'\n");
        for (int k = 0; k < c->options; k++)
            if (c->option[k].kind != OPTION_HEADING) put_fish_option(to, c, &c->option[k]);
    }
}
