// The form of one sub-query.

import { button, checkBox, errorSlot, h, labelled, select } from './dom.js';
import { combobox } from './combobox.js';
import { names, tagKeys, tagValues } from './suggest.js';

/** Functions that aggregate and filter types of the server; loaded once. */
export const known = { aggregators: ['avg', 'max', 'min', 'none', 'sum'], filters: ['literal_or', 'regexp', 'wildcard'], examples: {} };

const INTERVALS = ['auto', '10s', '1m', '5m', '10m', '30m', '1h', '6h', '1d', '1dc', '1w', '0all'];
const FILLS = [['none', 'no fill'], ['nan', 'NaN'], ['zero', 'zero'], ['null', 'null']];

export const letter = (place) => String.fromCharCode(65 + (place % 26));

/**
 * @param {import('./metric-text.js').SubQuery} sub changed in place
 * @param {number} place
 * @param {{changed: () => void, restructured: () => void, remove: () => void, duplicate: () => void}} callbacks
 */
export function subQueryForm(sub, place, { changed, restructured, remove, duplicate }) {
  const set = (field) => (value) => { sub[field] = value; changed(); };
  const setAndShow = (field) => (value) => { sub[field] = value; restructured(); };

  const source = sub.tsuids
    ? textField('TSUIDs', sub.tsuids, set('tsuids'))
    : combobox({ value: sub.metric, name: `Metric of ${letter(place)}`, placeholder: 'metric', className: 'metric', suggest: (text, signal) => names('metrics', text, signal), commit: set('metric') });
  const metricError = errorSlot(source.input);

  const tagRows = h('div', { class: 'tags' });
  /** @type {{tag: any, key: HTMLElement, value: HTMLElement}[]} */
  let tagInputs = [];
  function drawTags() {
    const blank = { key: '', type: sub.tags.at(-1)?.type ?? 'literal_or', value: '', group: true };
    tagInputs = [];
    const controls = () => [...tagRows.querySelectorAll('input, select, button')];
    const focused = controls().indexOf(document.activeElement);
    tagRows.replaceChildren(...[...sub.tags, blank].map((tag, index) => {
      const isNew = index === sub.tags.length;
      const commit = (field) => (text) => {
        tag[field] = text.trim();
        // A star in a literal is meant as a wildcard.
        if (field === 'value' && tag.type === 'literal_or' && tag.value.includes('*')) tag.type = 'wildcard';
        if (isNew && !sub.tags.includes(tag)) sub.tags.push(tag);
        if (!tag.key && !tag.value) sub.tags.splice(sub.tags.indexOf(tag), 1);
        // Later, so that the field that Tab goes to has the focus and keeps it.
        setTimeout(() => {
          drawTags();
          if (isNew && tag.key) tagInputs[sub.tags.indexOf(tag)]?.value.focus();
          if (Boolean(tag.key) === Boolean(tag.value)) changed();
        });
      };
      const key = combobox({ value: tag.key, name: 'Tag key', placeholder: isNew ? 'tag' : 'key', className: 'key', suggest: (text, signal) => tagKeys(sub.metric, text, signal), commit: commit('key') });
      const type = select(known.filters, tag.type, (value) => { tag.type = value; if (tag.value) changed(); }, 'Filter type');
      type.title = known.examples[tag.type] ?? '';
      const value = combobox({ value: tag.value, name: `Value of ${tag.key || 'the tag'}`, placeholder: isNew ? '' : '*', className: 'value', suggest: (text, signal) => tagValues(sub.metric, tag.key, text, signal), commit: commit('value') });
      tagInputs.push({ tag, key: key.input, value: value.input });
      if (isNew) return h('div', { class: 'tag new' }, key.element, h('span', { class: 'hint' }, sub.tags.length ? 'another filter' : 'filter or group by a tag'));
      const group = checkBox('group', tag.group, (checked) => { tag.group = checked; changed(); }, 'A line for each value. Without it the series that match are aggregated.');
      const drop = button('×', () => { sub.tags.splice(index, 1); drawTags(); changed(); }, { class: 'icon', 'aria-label': `Remove the filter of ${tag.key}` });
      return h('div', { class: 'tag' }, key.element, type, value.element, group, drop);
    }));
    if (focused >= 0) controls()[focused]?.focus({ preventScroll: true });
  }
  drawTags();
  const tagError = errorSlot();

  const aggregator = select(known.aggregators, sub.agg, set('agg'), 'Aggregator');
  const aggregatorError = errorSlot(aggregator);

  const interval = textField('Interval', sub.interval, set('interval'), INTERVALS);
  const downsampleError = errorSlot(interval.input);
  const max = textField('Largest value of the counter', sub.max, set('max'), null, 'max');
  const reset = textField('Reset value of the counter', sub.reset, set('reset'), null, 'reset');
  const rateError = errorSlot(max.input, reset.input);
  const functions = h('div', { class: 'line tight' },
    checkBox('downsample', sub.ds, setAndShow('ds')),
    sub.ds && interval.element,
    sub.ds && select(known.aggregators.filter((name) => name !== 'none'), sub.fn, set('fn'), 'Downsampling function'),
    sub.ds && select(FILLS, sub.fill, set('fill'), 'Fill policy'),
    checkBox('rate', sub.rate, setAndShow('rate'), 'Change per second'),
    sub.rate && checkBox('counter', sub.counter, setAndShow('counter'), 'The values are those of a counter that may overflow'),
    sub.rate && sub.counter && max.element, sub.rate && sub.counter && reset.element,
    sub.rate && sub.counter && checkBox('drop resets', sub.drop, set('drop')));

  const percentiles = textField('Percentiles of histograms', sub.percentiles, set('percentiles'), null, '99,99.9');
  const more = h('details', { open: Boolean(sub.explicit || sub.percentiles) }, h('summary', {}, 'More'),
    h('div', { class: 'line' }, checkBox('explicit tags', sub.explicit, set('explicit'), 'Only series that have exactly the tags of the filters'),
      labelled('percentiles', percentiles.element)));

  const generalError = errorSlot();
  const element = h('section', { class: sub.off ? 'card off' : 'card', 'aria-label': `Sub-query ${letter(place)}` },
    h('div', { class: 'head' },
      h('label', { class: 'letter', title: 'Enabled' }, h('input', { type: 'checkbox', checked: !sub.off, 'aria-label': `Enable sub-query ${letter(place)}`, onchange: () => setAndShow('off')(!sub.off) }), letter(place)),
      source.element,
      button('copy', duplicate, { class: 'icon', 'aria-label': `Duplicate sub-query ${letter(place)}`, title: 'Duplicate' }),
      button('×', remove, { class: 'icon', 'aria-label': `Remove sub-query ${letter(place)}`, title: 'Remove' })),
    metricError.slot,
    h('div', { class: 'line' }, labelled('aggregator', aggregator), checkBox('right axis', sub.right, set('right'))), aggregatorError.slot,
    tagRows, tagError.slot, functions, downsampleError.slot, rateError.slot, more, generalError.slot);

  const slots = [metricError, aggregatorError, tagError, downsampleError, rateError, generalError];
  return {
    element,
    focus: () => source.input.focus(),
    clear: () => {
      for (const slot of slots) slot.show('');
      for (const { key, value } of tagInputs) for (const input of [key, value]) input.removeAttribute('aria-invalid');
    },
    /** Shows an error of the server at the field that it is about. */
    show(message) {
      const name = /for '(metrics|tagk|tagv)': '(.*?)'/.exec(message);
      if (name && name[1] !== 'metrics') {
        const isMeant = ({ tag }) => (name[1] === 'tagk' ? tag.key === name[2] : tag.value.split('|').includes(name[2]));
        const meant = tagInputs.find(isMeant);
        meant?.[name[1] === 'tagk' ? 'key' : 'value'].setAttribute('aria-invalid', 'true');
        tagError.show(message);
      } else if (name || /metric|TSUID/.test(message)) metricError.show(message);
      else if (sub.ds && /downsampl|duration|interval|fill polic|For input string/i.test(message)) downsampleError.show(message);
      else if (/filter|regular|regex|tagk|tagv/i.test(message)) tagError.show(message);
      else if (sub.rate && /rate|counter|reset/i.test(message)) rateError.show(message);
      else if (/aggregat/i.test(message)) aggregatorError.show(message);
      else generalError.show(message);
    },
  };
}

/** A text field, with suggestions if there are any. */
export function textField(name, value, commit, suggestions = null, placeholder = '') {
  if (suggestions) {
    const suggest = async (text) => (suggestions.includes(text) ? suggestions : suggestions.filter((item) => item.startsWith(text)));
    return combobox({ value, name, commit, placeholder, className: 'short', suggest });
  }
  const input = h('input', { type: 'text', value, placeholder, 'aria-label': name, class: 'short', spellcheck: false, onchange: () => commit(input.value.trim()) });
  return { element: input, input };
}
