// The shapes of the ten glyphs, as a pen draws them.
#ifndef RUBATO_WORKER_DATA_STROKES_H_
#define RUBATO_WORKER_DATA_STROKES_H_

#include "absl/types/span.h"

namespace rubato {

constexpr int kGlyphClasses = 10;
constexpr int kGlyphDesigns = 2;  // of each class

struct Point {
  float x = 0, y = 0;
};

// A point of a stroke. Strokes are chains of parabolas, written as TrueType writes outlines: the
// curve passes through the points marked `on`, where it may have a corner. The other points are
// control points; halfway between two successive control points the curve is smooth.
struct Knot {
  enum Place : char { kOn, kOff };
  Point at;  // x to the right, y downwards; the glyph's box is about [-0.6, 0.6] x [-1, 1]
  Place place;
};

using Stroke = absl::Span<const Knot>;  // begins and ends with a knot that is `on`

// The strokes of a class (< kGlyphClasses) in one of its designs (< kGlyphDesigns).
absl::Span<const Stroke> GlyphStrokes(int glyph_class, int design);

}  // namespace rubato

#endif  // RUBATO_WORKER_DATA_STROKES_H_
