/* pictures.h -- the options of topics that also draw to files.  The topics in cli/show/ include this file. */
#ifndef ORRERY_SHOW_PICTURES_H
#define ORRERY_SHOW_PICTURES_H

/* The option --svg; file: a const char *. */
#define SVG_OPTION(file) { "--svg", "FILE", OPTION_STRING, &(file), .help = "also draw to an SVG file" }

/* The option --page; file: a const char *. */
#define PAGE_OPTION(file) { "--page", "FILE", OPTION_STRING, &(file), \
    .help = "also write a page that shows it moving: one HTML file, for a browser, without network" }

#endif
