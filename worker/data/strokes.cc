#include "worker/data/strokes.h"

#include "common/base/check.h"

namespace rubato {
namespace {

constexpr Knot On(float x, float y) { return {{x, y}, Knot::kOn}; }
constexpr Knot Off(float x, float y) { return {{x, y}, Knot::kOff}; }

// Zero: plain, and with a stroke across.
constexpr Knot kOval[] = {On(0, -1), Off(.6, -1), Off(.6, 1), Off(-.6, 1), Off(-.6, -1), On(0, -1)};
constexpr Knot kSlash[] = {On(.35, -.55), On(-.35, .55)};
constexpr Stroke kPlainZero[] = {kOval}, kSlashedZero[] = {kOval, kSlash};

// One: with a flag, and with a foot too.
constexpr Knot kStem[] = {On(-.35, -.6), On(.1, -1), On(.1, 1)};
constexpr Knot kFoot[] = {On(-.4, 1), On(.6, 1)};
constexpr Stroke kPlainOne[] = {kStem}, kFootedOne[] = {kStem, kFoot};

// Two: with a straight base, and with a wavy one.
constexpr Knot kSharpTwo[] = {On(-.55, -.6),  Off(-.5, -1), Off(.5, -1.05),
                              Off(.65, -.35), On(-.55, 1),  On(.6, 1)};
constexpr Knot kWavyTwo[] = {On(-.55, -.55), Off(-.35, -1.05), Off(.6, -1.05),
                             Off(.5, -.05),  Off(-.2, .5),     On(-.55, .95),
                             Off(-.2, .6),   Off(.2, 1.2),     On(.6, .8)};
constexpr Stroke kPlainTwo[] = {kSharpTwo}, kCurlyTwo[] = {kWavyTwo};

// Three: with a round top, and with a flat one.
constexpr Knot kRound[] = {On(-.5, -.75),  Off(-.3, -1.05), Off(.55, -1.05),
                           Off(.5, -.1),   On(-.1, -.08),   Off(.65, -.1),
                           Off(.65, 1.05), Off(-.35, 1.1),  On(-.55, .65)};
constexpr Knot kFlat[] = {On(-.5, -1),   On(.5, -1),     On(-.05, -.2), Off(.6, -.2),
                          Off(.65, 1.0), Off(-.35, 1.1), On(-.55, .65)};
constexpr Stroke kRoundThree[] = {kRound}, kFlatThree[] = {kFlat};

// Four: open, and closed.
constexpr Knot kChair[] = {On(-.35, -1), On(-.5, .2), On(.6, .2)};
constexpr Knot kLeg[] = {On(.3, -.5), On(.3, 1)};
constexpr Knot kSail[] = {On(.25, 1), On(.25, -1), On(-.6, .35), On(.6, .35)};
constexpr Stroke kOpenFour[] = {kChair, kLeg}, kClosedFour[] = {kSail};

// Five: with corners, and in one swing.
constexpr Knot kCorners[] = {On(.5, -1),    On(-.4, -1),   On(-.48, -.1), Off(-.1, -.4),
                             Off(.65, -.2), Off(.6, 1.05), Off(-.3, 1.1), On(-.55, .7)};
constexpr Knot kSwing[] = {On(.5, -.95),  Off(-.5, -1.1), Off(-.65, -.15), Off(.6, -.15),
                           Off(.65, .95), Off(-.2, 1.1),  On(-.55, .8)};
constexpr Stroke kSharpFive[] = {kCorners}, kSwungFive[] = {kSwing};

// Six: with a curved back, and with a nearly straight one.
constexpr Knot kCurved[] = {On(.4, -1),    Off(-.6, -.7),  Off(-.6, 1.05), Off(.6, 1.05),
                            Off(.6, -.05), Off(-.4, -.15), On(-.45, .5)};
constexpr Knot kLeaning[] = {On(.25, -1),   Off(-.35, -.3), On(-.5, .4),   Off(-.5, 1),
                             Off(.55, 1.1), Off(.55, 0),    Off(-.3, -.1), On(-.5, .4)};
constexpr Stroke kCurvedSix[] = {kCurved}, kLeaningSix[] = {kLeaning};

// Seven: plain, and with a serif and a bar.
constexpr Knot kHook[] = {On(-.55, -1), On(.55, -1), On(-.1, 1)};
constexpr Knot kSerif[] = {On(-.55, -.75), On(-.55, -1), On(.5, -1), Off(.1, -.1), On(-.05, 1)};
constexpr Knot kBar[] = {On(-.3, 0), On(.45, 0)};
constexpr Stroke kPlainSeven[] = {kHook}, kBarredSeven[] = {kSerif, kBar};

// Eight: two rings, and one line that crosses itself.
constexpr Knot kRings[] = {On(0, -.08),    Off(-.5, -.15), Off(-.5, -1), Off(.5, -1),
                           Off(.5, -.15),  On(0, -.08),    Off(-.6, 0),  Off(-.65, 1.02),
                           Off(.65, 1.02), Off(.6, 0),     On(0, -.08)};
constexpr Knot kCrossing[] = {On(.42, -.75),  Off(.2, -1.1), Off(-.6, -1.0), Off(-.5, -.3),
                              Off(.6, .15),   Off(.6, 1.1),  Off(-.6, 1.1),  Off(-.6, .25),
                              Off(.45, -.25), On(.42, -.75)};
constexpr Stroke kRingedEight[] = {kRings}, kCrossedEight[] = {kCrossing};

// Nine: with a straight stem, and with a tail.
constexpr Knot kStemmed[] = {On(.5, -.5),   Off(.45, -1.08), Off(-.55, -1.08), Off(-.55, .08),
                             Off(.45, .08), On(.5, -.5),     On(.42, 1)};
constexpr Knot kTailed[] = {On(.5, -.45),   Off(.5, -1.08), Off(-.55, -1.08),
                            Off(-.55, .05), Off(.4, .15),   On(.5, -.45),
                            Off(.6, .9),    Off(-.1, 1.1),  On(-.45, .8)};
constexpr Stroke kStemmedNine[] = {kStemmed}, kTailedNine[] = {kTailed};

}  // namespace

absl::Span<const Stroke> GlyphStrokes(int glyph_class, int design) {
  static constexpr absl::Span<const Stroke> kGlyphs[kGlyphClasses][kGlyphDesigns] = {
      {kPlainZero, kSlashedZero},  {kPlainOne, kFootedOne},     {kPlainTwo, kCurlyTwo},
      {kRoundThree, kFlatThree},   {kOpenFour, kClosedFour},    {kSharpFive, kSwungFive},
      {kCurvedSix, kLeaningSix},   {kPlainSeven, kBarredSeven}, {kRingedEight, kCrossedEight},
      {kStemmedNine, kTailedNine},
  };
  RUBATO_CHECK(glyph_class >= 0 && glyph_class < kGlyphClasses);
  RUBATO_CHECK(design >= 0 && design < kGlyphDesigns);
  return kGlyphs[glyph_class][design];
}

}  // namespace rubato
