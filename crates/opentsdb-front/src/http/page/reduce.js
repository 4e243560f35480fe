// Reduces a series to what a plot of some columns shows of it.
//
// Of each column the first, smallest, largest and last points stay, in their order. Lines through them cover the same
// pixels as lines through all points, so one spike among a million points stays visible.

/** The first index whose time is not before `time`. @param {ArrayLike<number>} times */
export function lowerBound(times, time) {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The index of the point nearest to a time; -1 without points. @param {ArrayLike<number>} times */
export function nearest(times, time) {
  const index = lowerBound(times, time);
  if (index === times.length) return index - 1;
  return index > 0 && time - times[index - 1] < times[index] - time ? index - 1 : index;
}

/**
 * Indices of the points to draw: those of the range, reduced, and one point on each side, so that lines reach the edge.
 * A column that has only gaps (NaN) keeps one of them, which breaks the line.
 * @param {ArrayLike<number>} times ascending
 * @param {ArrayLike<number>} values
 * @param {number} from @param {number} to @param {number} columns
 * @returns {number[]}
 */
export function reduce(times, values, from, to, columns) {
  const begin = Math.max(0, lowerBound(times, from) - 1);
  let end = lowerBound(times, to);
  if (end < times.length) end++;
  const indices = [];
  if (end - begin <= columns * 4) {
    for (let i = begin; i < end; i++) indices.push(i);
    return indices;
  }
  const scale = columns / (to - from);
  let i = begin;
  while (i < end) {
    const column = Math.floor((times[i] - from) * scale);
    let first = -1, last = -1, min = -1, max = -1;
    const start = i;
    for (; i < end && Math.floor((times[i] - from) * scale) === column; i++) {
      const value = values[i];
      if (Number.isNaN(value)) continue;
      if (first < 0) first = min = max = i;
      else if (value < values[min]) min = i;
      else if (value > values[max]) max = i;
      last = i;
    }
    if (first < 0) {
      indices.push(start);
      continue;
    }
    let before = -1;
    for (const index of min < max ? [first, min, max, last] : [first, max, min, last]) {
      if (index > before) indices.push(index);
      before = Math.max(before, index);
    }
  }
  return indices;
}

/**
 * Smallest, largest, mean and last value of the points of a range, and their number.
 * @param {ArrayLike<number>} times @param {ArrayLike<number>} values
 */
export function summary(times, values, from = -Infinity, to = Infinity) {
  let min = Infinity, max = -Infinity, sum = 0, count = 0, last = NaN;
  for (let i = lowerBound(times, from); i < times.length && times[i] <= to; i++) {
    const value = values[i];
    if (Number.isNaN(value)) continue;
    if (value < min) min = value;
    if (value > max) max = value;
    sum += value;
    count++;
    last = value;
  }
  return count ? { min, max, avg: sum / count, last, count } : { min: NaN, max: NaN, avg: NaN, last, count };
}
