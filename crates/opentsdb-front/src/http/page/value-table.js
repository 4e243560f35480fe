// The table of values: a row for each instant, a column for each series.

import { button, h, table } from './dom.js';
import { lowerBound } from './reduce.js';
import { showTime } from './time.js';

const ROWS = 500, COLUMNS = 30;

/** @param {any[]} series those that are shown @param {number} from @param {number} to @param {string} zone */
export function valueTable(series, from, to, zone) {
  const columns = series.slice(0, COLUMNS);
  const instants = new Set();
  for (const { times } of columns) {
    for (let i = lowerBound(times, from), end = lowerBound(times, to + 1); i < end; i++) instants.add(times[i]);
  }
  const rows = [...instants].sort((a, b) => b - a);
  const holder = h('div', {});
  function draw(count) {
    const shown = rows.slice(0, count).map((time) => [showTime(time, zone), ...columns.map(({ times, values }) => {
      const index = lowerBound(times, time);
      return times[index] === time && !Number.isNaN(values[index]) ? values[index] : '';
    })]);
    const left = [];
    if (series.length > columns.length) left.push(`The first ${columns.length} of ${series.length} series; the exports have all.`);
    holder.replaceChildren(table(['time', ...columns.map(({ name }) => name)], shown, 'Values, the latest first'), h('p', { class: 'hint' }, left.join(' ')));
    if (rows.length > count) holder.append(button(`${rows.length - count} earlier rows`, () => draw(count + 5000)));
  }
  draw(ROWS);
  return holder;
}
