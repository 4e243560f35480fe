// Ticks of axes, and numbers for people.

import { fromWall, wall } from './time.js';

const STEPS = [1, 2, 5, 10, 50, 100, 250, 500, 1e3, 2e3, 5e3, 10e3, 15e3, 30e3, 60e3, 120e3, 300e3, 600e3, 900e3, 1800e3, 3600e3, 7200e3,
  3 * 3600e3, 6 * 3600e3, 12 * 3600e3, 86400e3, 2 * 86400e3, 4 * 86400e3, 7 * 86400e3, 14 * 86400e3];
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120, 240, 600];
const NAMES = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const two = (number) => String(number).padStart(2, '0');

/**
 * Times at round places of the wall clock, with a text; `major` where a day begins.
 * @returns {{at: number, text: string, major: boolean}[]}
 */
export function timeTicks(from, to, count, zone) {
  const wanted = (to - from) / Math.max(1, count);
  const step = STEPS.find((candidate) => candidate >= wanted);
  const ticks = [];
  const add = (wallMs, showsDay) => {
    const at = fromWall(wallMs, zone);
    if (at < from || at > to) return;
    const date = new Date(wallMs);
    const [year, month, day] = [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()];
    const midnight = wallMs % 86400e3 === 0;
    let text;
    if (!step) text = month === 0 ? String(year) : `${NAMES[month]} ${year}`;
    else if (showsDay || midnight) text = `${day} ${NAMES[month]}`;
    else if (step < 1000) text = `${two(date.getUTCSeconds())}.${String(date.getUTCMilliseconds()).padStart(3, '0')}`;
    else text = `${two(date.getUTCHours())}:${two(date.getUTCMinutes())}${step < 60e3 ? ':' + two(date.getUTCSeconds()) : ''}`;
    ticks.push({ at, text, major: midnight });
  };
  const first = +wall(from, zone), last = +wall(to, zone);
  if (step) {
    const base = step >= 7 * 86400e3 ? 4 * 86400e3 : 0; // The epoch was a Thursday; weeks begin on Mondays.
    for (let at = Math.floor((first - base) / step) * step + base; at <= last + 3600e3; at += step) add(at, step >= 86400e3);
    return ticks;
  }
  const months = MONTHS.find((candidate) => candidate * 30.4 * 86400e3 >= wanted) ?? 1200;
  const start = new Date(first);
  let month = Math.floor((start.getUTCFullYear() * 12 + start.getUTCMonth()) / months) * months;
  for (let at; (at = Date.UTC(Math.floor(month / 12), month % 12)) <= last; month += months) add(at, true);
  return ticks;
}

/** Round values of a linear axis. */
export function valueTicks(min, max, count) {
  const span = max - min;
  if (!(span > 0) || !Number.isFinite(span)) return [min];
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(min / step - 1e-9); i * step <= max + step * 1e-9; i++) ticks.push(Number((i * step).toPrecision(12)));
  return ticks;
}

/** Powers of ten of a logarithmic axis, and 2 and 5 times them if there are few. */
export function logTicks(min, max) {
  const ticks = [];
  const [low, high] = [Math.floor(Math.log10(min)), Math.ceil(Math.log10(max))];
  const every = Math.max(1, Math.ceil((high - low) / 8));
  for (let power = low; power <= high; power += every) {
    for (const factor of high - low <= 3 ? [1, 2, 5] : [1]) {
      const value = Number((factor * 10 ** power).toPrecision(6));
      if (value >= min * 0.999 && value <= max * 1.001) ticks.push(value);
    }
  }
  return ticks;
}

const SUFFIXES = [[1e15, 'P'], [1e12, 'T'], [1e9, 'G'], [1e6, 'M'], [1e3, 'k']];

/** A short number: `1.2 M`, `0.003`, `4e-9`. @param {number} value @param {number} [digits] */
export function shortNumber(value, digits = 4) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? '–' : value > 0 ? '∞' : '−∞';
  const size = Math.abs(value);
  if (size >= 1e18 || (size > 0 && size < 1e-4)) return value.toExponential(2).replace('-', '−').replace('e−', 'e-').replace(/\.?0+e/, 'e');
  const [scale, suffix] = size >= 1e4 ? SUFFIXES.find(([least]) => size >= least) : [1, ''];
  const text = Number((value / scale).toPrecision(digits)).toString().replace('-', '−');
  return suffix ? `${text} ${suffix}` : text;
}

/** Bytes in powers of 1024. @param {number} value */
export function bytes(value) {
  const power = Math.min(5, Math.max(0, Math.floor(Math.log2(Math.max(1, value)) / 10)));
  return `${Number((value / 1024 ** power).toPrecision(3))} ${['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'][power]}`;
}

/** Formats by gnuplot's format of OpenTSDB (`%.2f`, `%.0f%%`, `%.1s %cB`); null if the format is another one. @param {string} format */
export function gnuplotFormat(format) {
  const match = /^((?:[^%]|%%)*)%(?:\.(\d+))?([fegs])( ?)(%c)?((?:[^%]|%%)*)$/.exec(format);
  if (!match) return null;
  const [, before, digits = '6', kind, space, prefix, after] = match;
  const plain = (text) => text.replaceAll('%%', '%');
  return (value) => {
    let text;
    if (kind === 's') {
      const found = SUFFIXES.find(([least]) => Math.abs(value) >= least) ?? [1, ''];
      text = (value / found[0]).toFixed(match[2] ? Number(digits) : 0) + (prefix ? space + found[1] : '');
    } else if (kind === 'f') text = value.toFixed(Number(digits)) + space;
    else if (kind === 'e') text = value.toExponential(Number(digits)) + space;
    else text = Number(value.toPrecision(Math.max(1, Number(digits)))).toString() + space;
    return plain(before) + text + plain(after);
  };
}
