// The legend: a row for each series, with its values in the range. A row hides its series, or all others.

import { button, h } from './dom.js';
import { summary } from './reduce.js';
import { shortNumber } from './ticks.js';

const SHOWN = 200;
const COLUMNS = ['min', 'avg', 'max', 'last'];

/** @param {{changed: () => void, hover: (series: any) => void}} callbacks */
export function legend({ changed, hover }) {
  const element = h('div', { class: 'legend' });
  let series = [], range = [0, 1], order = null, descending = true, all = false;

  function draw() {
    const focused = [...element.querySelectorAll('button')].indexOf(document.activeElement);
    const rows = series.map((one) => ({ one, name: one.name, ...summary(one.times, one.values, ...range) }));
    if (order) {
      const compare = order === 'name' ? (a, b) => a.name.localeCompare(b.name) : (a, b) => (a[order] || 0) - (b[order] || 0);
      rows.sort((a, b) => (descending ? -compare(a, b) : compare(a, b)));
    }
    const head = (name) => h('th', { scope: 'col', class: name, 'aria-sort': order === name ? (descending ? 'descending' : 'ascending') : 'none' },
      button(name === 'name' ? `${series.length} series` : name, () => {
        if (order === name) descending = !descending;
        else [order, descending] = [name, name !== 'name'];
        draw();
      }, { 'aria-label': `Sort by ${name}` }));
    const shown = all ? rows : rows.slice(0, SHOWN);
    const more = rows.length > shown.length ? [button(`Show all ${rows.length}`, () => { all = true; draw(); })] : [];
    element.replaceChildren(h('table', {}, h('caption', { class: 'hidden' }, 'Series'),
      h('thead', {}, h('tr', {}, head('name'), ...COLUMNS.map(head))),
      h('tbody', {}, ...shown.map(({ one, ...values }) => row(one, values)))), ...more);
    if (focused >= 0) element.querySelectorAll('button')[focused]?.focus({ preventScroll: true });
  }

  function row(one, values) {
    const swatch = h('i', { class: one.style.dash.length ? 'swatch dashed' : 'swatch' });
    swatch.style.color = one.style.color;
    const toggle = button('', (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) one.hidden = !one.hidden;
      else {
        // The first click shows the series alone, the second one all.
        const isAlone = !one.hidden && series.every((other) => other === one || other.hidden);
        for (const other of series) other.hidden = !isAlone && other !== one;
      }
      redraw();
      changed();
    }, { class: 'series', title: 'Click: show alone, or all. Ctrl-click: hide or show.', 'aria-pressed': String(!one.hidden) });
    toggle.append(swatch, ...(one.expression ? [h('b', {}, one.expression)] : []), h('span', {}, one.metric), ...Object.keys(one.tags).sort().map((key) =>
      h('span', { class: 'pair' }, h('small', {}, key + '='), one.tags[key])));
    if (one.right) toggle.append(h('small', { class: 'axis' }, ' right'));
    const item = h('tr', { onpointerenter: () => hover(one), onpointerleave: () => hover(null), class: one.hidden ? 'off' : undefined },
      h('td', {}, toggle), ...COLUMNS.map((name) => h('td', { class: 'number' }, shortNumber(values[name]))));
    toggle.addEventListener('focus', () => hover(one));
    toggle.addEventListener('blur', () => hover(null));
    item.series = one;
    return item;
  }

  /** Shows which series are hidden, and keeps the focus. */
  function redraw() {
    for (const item of element.querySelectorAll('tbody tr')) {
      item.classList.toggle('off', item.series.hidden);
      item.querySelector('button').setAttribute('aria-pressed', String(!item.series.hidden));
    }
  }

  return {
    element,
    show(of, from, to) {
      series = of;
      range = [from, to];
      draw();
    },
  };
}
