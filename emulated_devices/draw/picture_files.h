/* picture_files.h -- the files that a drawing of `orrery show` is also written to.  The drawings of this folder and
 * cli/show/ use it. */
#ifndef ORRERY_DRAW_PICTURE_FILES_H
#define ORRERY_DRAW_PICTURE_FILES_H

/* Names of files; NULL: none. */
struct picture_files {
    const char *svg;                    /* an SVG document */
    const char *page;                   /* a page that shows the drawing moving (page/page_html.h) */
};

#endif
