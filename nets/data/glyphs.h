/* glyphs.h: handwritten digits as pen strokes. Private to digits. */
#ifndef CNN_GLYPHS_H
#define CNN_GLYPHS_H

#include <stdint.h>

enum { CNN_GLYPH_STROKES = 3, CNN_GLYPH_POINTS = 12, CNN_N_GLYPHS = 24 };

enum cnn_pen { CNN_PEN_NONE, CNN_PEN_LINE, CNN_PEN_CURVE };

/* Points in hundredths of the digit's height, x to the right, y down, the digit's middle at (50, 50). (0, 0)
 * ends a stroke. */
struct cnn_stroke {
    enum cnn_pen pen; /* CNN_PEN_NONE ends a glyph */
    uint8_t point[CNN_GLYPH_POINTS][2];
};

struct cnn_glyph {
    uint8_t digit;
    struct cnn_stroke stroke[CNN_GLYPH_STROKES];
};

/* In order of digits. */
extern const struct cnn_glyph cnn_glyphs[CNN_N_GLYPHS];

#endif
