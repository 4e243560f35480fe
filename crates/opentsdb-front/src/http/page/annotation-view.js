// Annotations: those of the range, writing and deleting.

import { request, withParameters } from './api.js';
import { button, errorSlot, h, labelled, table } from './dom.js';
import { annotationMs, formatTime, parseTime, showTime } from './time.js';
import { lookup } from './uid-view.js';

/** @param {{range: () => {from: number, to: number, zone: string}}} options the range of the query */
export function annotationView({ range }) {
  const { zone } = range();
  const text = (name, placeholder = '') => h('input', { type: 'text', 'aria-label': name, placeholder, spellcheck: false });
  const [from, to, scope] = [text('From', '1d-ago'), text('To', 'now'), text('Series', 'global ones; or metric{host=web01}')];
  const [start, end, of] = [text('Start', 'now'), text('End', 'an instant'), text('Series of the annotation', 'global; or metric{host=web01}')];
  const [description, notes] = [text('Description'), h('textarea', { rows: 3, 'aria-label': 'Notes' })];
  const listError = errorSlot(from, to, scope), formError = errorSlot(start, of);
  const result = h('div'), heading = h('h2', {}, 'Write an annotation');
  let edited = null, version = 0;
  const form = h('form', { class: 'form', onsubmit: (event) => { event.preventDefault(); write(); } },
    ...[['start', start], ['end', end], ['series', of], ['description', description], ['notes', notes]].flatMap(([name, input]) => [h('label', {}, name), input]),
    h('div', { class: 'wide line' }, h('button', { type: 'submit', class: 'primary' }, 'Save'), button('New', () => edit(null))), h('div', { class: 'wide' }, formError.slot));
  const element = h('div', { class: 'view' }, h('h1', {}, 'Annotations'),
    h('form', { class: 'line', onsubmit: (event) => { event.preventDefault(); list(); } }, labelled('from', from), labelled('to', to), labelled('series', scope), h('button', { type: 'submit' }, 'List')),
    listError.slot, result, heading, form);

  const seconds = (input, fallback) => Math.floor(parseTime(input.value.trim() || fallback, Date.now(), range().zone) / 1000);

  /** The TSUID of a text; empty for global annotations. */
  async function tsuidOf(text) {
    if (!text.trim()) return '';
    if (/^[0-9A-Fa-f]{12,}$/.test(text.trim())) return text.trim();
    const found = await lookup(text, 2);
    if (found.length !== 1) throw new Error(found.length ? `More than one series matches “${text}”. Add tags until it is one.` : `No series matches “${text}”.`);
    return found[0].tsuid;
  }

  async function list() {
    const mine = ++version;
    try {
      const [start_time, end_time] = [seconds(from, '1d-ago'), seconds(to, 'now')];
      let found;
      if (scope.value.trim()) {
        // The list of an endpoint has global ones only; a query has those of its series.
        const body = { start: start_time, end: end_time, queries: [{ aggregator: 'none', tsuids: [await tsuidOf(scope.value)], downsample: '0all-count' }] };
        found = (await request('/api/query', { body })).flatMap((series) => series.annotations ?? []);
      } else found = await request(withParameters('/api/annotations', { start_time, end_time }));
      if (mine !== version) return;
      listError.show('');
      const rows = found.sort((a, b) => b.startTime - a.startTime).map((one) => [showTime(annotationMs(one.startTime), range().zone), one.endTime ? showTime(annotationMs(one.endTime), range().zone) : '',
        one.description ?? '', one.notes ?? '', h('span', { class: 'code' }, one.tsuid || 'global'),
        h('div', { class: 'line' }, button('Edit', () => edit(one)), button('Delete', (event) => remove(one, event.target)))]);
      result.replaceChildren(rows.length ? table(['start', 'end', 'description', 'notes', 'series', ''], rows, 'Annotations') : h('p', { class: 'hint' }, 'No annotations in this range.'));
    } catch (failure) {
      listError.show(failure.message);
    }
  }

  function edit(annotation) {
    edited = annotation;
    const { zone: current } = range();
    const show = (time) => (time ? formatTime(annotationMs(time), current) : '');
    heading.textContent = annotation ? 'Edit the annotation' : 'Write an annotation';
    [start.value, end.value, of.value] = [show(annotation?.startTime), show(annotation?.endTime), annotation?.tsuid ?? ''];
    [description.value, notes.value] = [annotation?.description ?? '', annotation?.notes ?? ''];
    start.disabled = of.disabled = Boolean(annotation); // They are its key.
    formError.show('');
    (annotation ? description : start).focus();
  }

  async function write() {
    try {
      const body = { startTime: edited?.startTime ?? seconds(start, 'now'), description: description.value, notes: notes.value };
      const tsuid = edited ? edited.tsuid : await tsuidOf(of.value);
      if (tsuid) body.tsuid = tsuid;
      body.endTime = end.value.trim() ? seconds(end, '') : 0;
      await request('/api/annotation', { body });
      edit(null);
      await list();
    } catch (failure) {
      formError.show(failure.message);
    }
  }

  async function remove({ startTime, tsuid }, pressed) {
    if (pressed.textContent === 'Delete') {
      pressed.textContent = 'Really?';
      setTimeout(() => { pressed.textContent = 'Delete'; }, 3000);
      return;
    }
    try {
      await request(withParameters('/api/annotation', tsuid ? { start_time: startTime, tsuid } : { start_time: startTime }), { method: 'DELETE' });
      await list();
    } catch (failure) {
      listError.show(failure.message);
    }
  }

  function show() {
    const { from: low, to: high, zone: current } = range();
    if (!from.value) [from.value, to.value] = [formatTime(low, current), formatTime(Math.ceil(high / 1000) * 1000 + 1000, current)];
    list();
  }
  from.title = to.title = `Times are in ${zone}.`;
  return { element, show, refresh: list };
}
