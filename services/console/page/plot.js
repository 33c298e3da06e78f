// What a chart needs to know before it is drawn. No DOM in here.

// At most about `most` points: neighbours become their mean, unless there is a gap between them. The last point stays,
// since its label says its value.
export function thin(points, most) {
    if (points.length <= most) return points;
    const size = Math.ceil(points.length / most);
    const kept = [];
    let bucket = [];
    const close = () => {
        if (bucket.length === 0) return;
        const mean = (key) => bucket.reduce((sum, point) => sum + point[key], 0) / bucket.length;
        kept.push({x: mean('x'), y: mean('y'), ...(bucket[0].gap && {gap: true})});
        bucket = [];
    };
    for (const point of points) {
        if (point.gap || bucket.length === size) close();
        bucket.push(point);
    }
    close();
    const last = kept[kept.length - 1];
    kept[kept.length - 1] = {...points[points.length - 1], ...(last.gap && {gap: true})};
    return kept;
}

// A line that ends at each gap and begins anew behind it; what stands alone between two gaps is a dot.
export function path(points, x, y) {
    const begins = (i) => i === 0 || points[i].gap;
    return points
        .map((point, i) => {
            const at = `${x(point.x).toFixed(1)} ${y(point.y).toFixed(1)}`;
            const isAlone = begins(i) && (i + 1 === points.length || begins(i + 1));
            return `${begins(i) ? 'M' : 'L'}${at}${isAlone ? 'h0' : ''}`;
        })
        .join('');
}

// Moves labels apart: from the places where they want to be to places at least `gap` apart within [top, bottom], in the
// same order. Returns the places in the order given.
export function spread(places, gap, top, bottom) {
    const order = places.map((place, i) => i).sort((a, b) => places[a] - places[b] || a - b);
    const moved = order.map((i) => places[i]);
    for (let i = 0; i < moved.length; ++i) moved[i] = Math.max(moved[i], i === 0 ? top : moved[i - 1] + gap);
    for (let i = moved.length - 1; i >= 0; --i)
        moved[i] = Math.min(moved[i], i === moved.length - 1 ? bottom : moved[i + 1] - gap);
    const result = [];
    order.forEach((original, i) => (result[original] = moved[i]));
    return result;
}

// The point of each series nearest to x.
export function nearest(points, x) {
    let best = null;
    for (const point of points) if (!best || Math.abs(point.x - x) < Math.abs(best.x - x)) best = point;
    return best;
}
