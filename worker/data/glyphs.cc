#include "worker/data/glyphs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/base/check.h"
#include "common/base/random.h"
#include "common/space/permutation.h"
#include "worker/data/strokes.h"

namespace rubato {
namespace {

// Nothing here but + - * / of floats, which IEEE 754 rounds alike everywhere, and ceil, which is
// exact: so the same bytes come out of every compiler, instruction set and C library.

constexpr int kSide = 28;
constexpr int kPixels = kSide * kSide;

float Clamp(float x) { return std::max(0.0f, std::min(1.0f, x)); }

// A sheet of paper: the darkness of each pixel in [0, 1].
class Sheet {
 public:
  // A line from a to b, `radius` pixels to either side, with round ends and an edge one pixel soft.
  void Line(Point a, Point b, float radius, float ink) {
    const float reach = radius + 0.5f;
    const int left = Cell(std::min(a.x, b.x) - reach), right = Cell(std::max(a.x, b.x) + reach + 1);
    const int top = Cell(std::min(a.y, b.y) - reach), end = Cell(std::max(a.y, b.y) + reach + 1);
    const float dx = b.x - a.x, dy = b.y - a.y;
    const float scale = 1 / std::max(dx * dx + dy * dy, 1e-6f);
    // The edge is linear in the squared distance, which saves a root: nothing half a pixel outside,
    // all half a pixel inside.
    const float slope = 0.5f / radius;
    for (int y = top; y < end; ++y) {
      const float ay = static_cast<float>(y) - a.y;
      float* row = ink_.data() + y * kSide;
      for (int x = left; x < right; ++x) {
        const float ax = static_cast<float>(x) - a.x;
        const float along = Clamp((ax * dx + ay * dy) * scale);
        const float px = ax - along * dx, py = ay - along * dy;
        const float cover = Clamp((reach * reach - (px * px + py * py)) * slope);
        row[x] = std::max(row[x], ink * cover);
      }
    }
  }

  // Clears a line, as Line draws one.
  void Rub(Point a, Point b, float radius) {
    Sheet mask;
    mask.Line(a, b, radius, 1);
    for (int i = 0; i < kPixels; ++i) ink_[i] *= 1 - mask.ink_[i];
  }

  // Of a pixel, row by row.
  float operator[](int pixel) const { return ink_[pixel]; }

 private:
  // The first whole pixel from `position` on.
  static int Cell(float position) {
    return static_cast<int>(std::clamp(std::ceil(position), 0.0f, static_cast<float>(kSide)));
  }

  std::array<float, kPixels> ink_ = {};
};

// A random affine map of the glyph's box onto the sheet.
class Placement {
 public:
  explicit Placement(RandomStream& random) {
    // A rotation without sin or cos: t is the tangent of half the angle.
    const float t = random.Uniform(-0.15f, 0.15f);
    const float cosine = (1 - t * t) / (1 + t * t), sine = 2 * t / (1 + t * t);
    const float width = random.Uniform(6.5f, 11.0f), height = random.Uniform(7.0f, 10.0f);
    const float shear = random.Uniform(-0.3f, 0.3f);
    xx_ = cosine * width;
    xy_ = (cosine * shear - sine) * height;
    yx_ = sine * width;
    yy_ = (sine * shear + cosine) * height;
    constexpr float kCentre = (kSide - 1) / 2.0f;
    x_ = kCentre + random.Uniform(-2.3f, 2.3f);
    y_ = kCentre + random.Uniform(-2.3f, 2.3f);
  }

  Point operator()(Point p) const {
    return {x_ + xx_ * p.x + xy_ * p.y, y_ + yx_ * p.x + yy_ * p.y};
  }

 private:
  float xx_, xy_, yx_, yy_, x_, y_;
};

Point Middle(Point a, Point b) { return {(a.x + b.x) * 0.5f, (a.y + b.y) * 0.5f}; }

// The parabola from a to c that b pulls, as a chain of lines.
void DrawParabola(Point a, Point b, Point c, float radius, float ink, Sheet* sheet) {
  constexpr int kLines = 4;
  Point from = a;
  for (int i = 1; i <= kLines; ++i) {
    const float t = static_cast<float>(i) / kLines, s = 1 - t;
    const Point to = {s * s * a.x + 2 * s * t * b.x + t * t * c.x,
                      s * s * a.y + 2 * s * t * b.y + t * t * c.y};
    sheet->Line(from, to, radius, ink);
    from = to;
  }
}

void DrawStroke(absl::Span<const Knot> stroke, float radius, float ink, Sheet* sheet) {
  Point from = stroke[0].at;
  for (size_t i = 1; i < stroke.size(); ++i) {
    if (stroke[i].place == Knot::kOn) {
      sheet->Line(from, stroke[i].at, radius, ink);
      from = stroke[i].at;
    } else {
      const Knot& next = stroke[i + 1];
      const Point to = next.place == Knot::kOn ? next.at : Middle(stroke[i].at, next.at);
      DrawParabola(from, stroke[i].at, to, radius, ink, sheet);
      from = to;
      if (next.place == Knot::kOn) ++i;
    }
  }
}

Point AnyPoint(RandomStream& random) {
  return {random.Uniform(0, kSide), random.Uniform(0, kSide)};
}

// A line of up to `length` pixels in either axis.
void AnyLine(RandomStream& random, float length, Point* a, Point* b) {
  *a = AnyPoint(random);
  *b = {a->x + random.Uniform(-length, length), a->y + random.Uniform(-length, length)};
}

// A glyph as a shaky hand draws it.
void DrawGlyph(int glyph_class, RandomStream& random, Sheet* sheet) {
  constexpr float kShake = 0.15f;
  const auto strokes = GlyphStrokes(glyph_class, random.Below(kGlyphDesigns));
  const Placement place(random);
  const float radius = random.Uniform(0.6f, 1.7f), ink = random.Uniform(0.55f, 1.0f);
  std::array<Knot, 16> shaken;
  for (const Stroke& stroke : strokes) {
    RUBATO_CHECK(stroke.size() <= shaken.size());
    for (size_t i = 0; i < stroke.size(); ++i) {
      Point at = stroke[i].at;
      at.x += random.Uniform(-kShake, kShake);
      at.y += random.Uniform(-kShake, kShake);
      shaken[i] = {place(at), stroke[i].place};
    }
    DrawStroke({shaken.data(), stroke.size()}, radius, ink, sheet);
  }
}

// The sheet as bytes, each off by up to `grain` either way. In 1/256 of a byte's step and in
// integers, which compilers turn into vectors.
void AddGrain(const Sheet& sheet, uint64_t key, int grain, uint8_t* pixels) {
  static_assert(kPixels % 16 == 0, "Philox gives 16 bytes at a time");
  constexpr int kFull = 255 << 8;
  std::array<int, kPixels> noise;
  for (int i = 0; i < kPixels; i += 16) {
    const std::array<uint32_t, 4> words = Philox(key, i / 16);
    for (int j = 0; j < 16; ++j) noise[i + j] = static_cast<int>(words[j / 4] >> (j % 4 * 8) & 255);
  }
  for (int i = 0; i < kPixels; ++i) {
    const int value = static_cast<int>(sheet[i] * kFull) + grain * (2 * noise[i] - 255);
    pixels[i] = static_cast<uint8_t>(std::min(std::max(value, 0), kFull) >> 8);
  }
}

// A glyph that is partly rubbed out, with scratches and grain beside it.
void DrawExample(int glyph_class, uint64_t key, uint8_t* pixels) {
  RandomStream random(Key(key, "shape"));
  Sheet sheet;
  DrawGlyph(glyph_class, random, &sheet);
  Point a, b;
  if (random.Below(2) == 0) {
    AnyLine(random, 12, &a, &b);
    sheet.Rub(a, b, random.Uniform(0.5f, 1.2f));
  }
  for (int left = random.Below(3); left > 0; --left) {
    AnyLine(random, 7, &a, &b);
    const float radius = random.Uniform(0.3f, 0.9f), ink = random.Uniform(0.3f, 0.8f);
    sheet.Line(a, b, radius, ink);
  }
  AddGrain(sheet, Key(key, "grain"), 4 + static_cast<int>(random.Below(24)), pixels);
}

}  // namespace

Examples DrawGlyphs(uint64_t seed, absl::string_view split, int64_t count) {
  Examples examples;
  examples.shape = {1, kSide, kSide};
  examples.classes = kGlyphClasses;
  examples.pixels.resize(count * kPixels);
  examples.labels.resize(count);
  const uint64_t key = Key(seed, "glyphs", split);
  for (int64_t i = 0; i < count; ++i) {
    const Permutation labels(Key(key, "labels", i / kGlyphClasses), kGlyphClasses);
    examples.labels[i] = static_cast<int32_t>(labels(i % kGlyphClasses));
    DrawExample(examples.labels[i], Key(key, "example", i), examples.pixels.data() + i * kPixels);
  }
  return examples;
}

}  // namespace rubato
