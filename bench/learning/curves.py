"""Curves as an SVG file, with nothing but the standard library."""
import html
import math

COLOURS = ("#0b6e99", "#c2410c", "#15803d", "#7e22ce", "#b45309", "#be185d", "#475569", "#0f766e")
DASHES = ("", "6 3", "2 3")
WIDTH, HEIGHT, LEFT, TOP, BOTTOM, LEGEND = 860, 420, 70, 20, 50, 300


def ticks(low, high):
    """Numbers of one digit that read well, times a power of ten, within the range."""
    found = [factor * 10.0 ** power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
             for factor in (1, 2, 3, 5, 7)]
    return [one for one in found if low <= one <= high]


def draw(path, curves, x_label, y_label):
    """`curves`: name -> values at 1, 2, …; the y axis is logarithmic."""
    most = max(map(len, curves.values()))
    values = [one for curve in curves.values() for one in curve]
    low, high = min(values) / 1.05, max(values) * 1.05
    right = WIDTH - LEGEND

    def x(step):
        return LEFT + (right - LEFT) * (step - 1) / max(1, most - 1)

    def y(value):
        return TOP + (HEIGHT - TOP - BOTTOM) * (math.log(high) - math.log(value)) / (math.log(high) - math.log(low))

    def text(at_x, at_y, words, more=""):
        return f'<text x="{at_x:.1f}" y="{at_y:.1f}" {more}>{html.escape(words)}</text>'

    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>']
    for value in ticks(low, high):
        lines.append(f'<path d="M{LEFT} {y(value):.1f}H{right}" stroke="#e2e8f0"/>')
        lines.append(text(LEFT - 8, y(value) + 4, f"{value:g}", 'text-anchor="end"'))
    for step in range(1, most + 1, max(1, most // 10)):
        lines.append(text(x(step), HEIGHT - BOTTOM + 18, str(step), 'text-anchor="middle"'))
    lines.append(text((LEFT + right) / 2, HEIGHT - 10, x_label, 'text-anchor="middle"'))
    middle = (TOP + HEIGHT - BOTTOM) / 2
    lines.append(text(16, middle, y_label, f'text-anchor="middle" transform="rotate(-90 16 {middle})"'))
    for number, (name, curve) in enumerate(curves.items()):
        style = f'stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2" stroke-dasharray="{DASHES[number // len(COLOURS) % 3]}"'
        points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(curve, 1))
        lines.append(f'<polyline points="{points}" fill="none" {style}/>')
        at = TOP + 14 + 20 * number
        lines.append(f'<path d="M{right + 14} {at - 4}h22" {style}/>' + text(right + 42, at, f"{name}: {curve[-1]:.1f}"))
    with open(path, "w") as file:
        file.write("\n".join(lines + ["</svg>", ""]))
