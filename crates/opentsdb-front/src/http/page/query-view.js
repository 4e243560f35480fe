// The view of queries: forms, plot, legend, table, exports; it keeps state, link and history together.

import { ApiError } from './api.js';
import { lineStyle } from './colors.js';
import { toCsv } from './csv.js';
import { button, checkBox, errorSlot, h, labelled, save, select } from './dom.js';
import { FUNCTIONS } from './expression.js';
import { legend } from './legend.js';
import { formatLink, newState, parseBounds, parseLink } from './link.js';
import { newSubQuery } from './metric-text.js';
import { Plot } from './plot.js';
import { run, seriesName } from './query-run.js';
import { rangeBar } from './range-bar.js';
import { subQueryForm, textField } from './sub-query-form.js';
import { shortNumber } from './ticks.js';
import { annotationMs, formatTime, LOCAL_ZONE, niceInterval, parseRange } from './time.js';
import { valueTable } from './value-table.js';

const NOTES = 1000; // Annotations that are drawn, at most.
const NARROW = matchMedia('(max-width: 860px)');

/** @param {{isDark: () => boolean}} options */
export function queryView({ isDark }) {
  let state = newState();
  let zooms = []; // Ranges before each zoom.
  let running = null; // The AbortController of the query that runs.
  let refreshTimer = 0, clock = 0, drawTimer = 0;
  let results = { series: [], from: 0, to: 1 };
  let isVisible = false;
  /** @type {ReturnType<typeof subQueryForm>[]} */
  let forms = [];
  let expressionErrors = [];

  const zone = () => state.tz || LOCAL_ZONE;
  const plot = new Plot({ onzoom: zoom, onback: back, onout: zoomOut });
  const names = legend({ changed: () => { plot.draw(); drawTable(); }, hover: (series) => plot.highlight(series) });
  const bar = rangeBar({ changed: () => { zooms = []; changed(); }, back, shift, out: zoomOut, execute });
  const status = h('span', { class: 'status', role: 'status' });
  const runButton = button('Run', () => (running ? running.abort() : execute()), { class: 'primary' });
  const queries = h('div', { class: 'queries' }), expressions = h('div', { class: 'queries' }), options = h('div', {});
  const tableHolder = h('div', { class: 'values' });
  const empty = h('p', { class: 'empty' }, 'Type a metric to plot it.');
  const otherError = errorSlot();
  const tableToggle = h('span');
  const main = h('div', { class: 'main' }, bar.element,
    h('div', { class: 'bar' }, runButton, bar.refresh, status, tableToggle,
      h('div', { class: 'buttons', role: 'group', 'aria-label': 'Export' },
        button('CSV', exportCsv), button('JSON', exportJson), button('PNG', exportPng))),
    otherError.slot, h('div', { class: 'stage' }, plot.element, empty), names.element, tableHolder);
  const element = h('div', { class: 'query' },
    h('aside', { 'aria-label': 'Query' }, queries, expressions,
      h('div', { class: 'buttons add' },
        button('+ sub-query', () => { state.subs.push(newSubQuery()); restructure(); forms.at(-1).focus(); }),
        button('+ expression', () => { state.exprs.push({ text: '', right: false, off: false }); drawForms(); expressions.lastChild.querySelector('input[type=text]').focus(); })),
      options),
    main);

  // ---- forms

  function drawForms() {
    forms = state.subs.map((sub, place) => subQueryForm(sub, place, {
      changed, restructured: restructure,
      remove: () => { state.subs.splice(place, 1); if (!state.subs.length) state.subs.push(newSubQuery()); restructure(); forms[Math.min(place, forms.length - 1)].focus(); },
      duplicate: () => { state.subs.splice(place + 1, 0, structuredClone(sub)); restructure(); },
    }));
    queries.replaceChildren(...forms.map((form) => form.element));
    expressionErrors = [];
    expressions.replaceChildren(...state.exprs.map(expressionForm));
    drawOptions();
  }

  /** Draws the forms again, keeps the focus at the same control, and runs. */
  function restructure() {
    const controls = () => [...element.querySelectorAll('aside input, aside select, aside button, aside summary')];
    const focused = document.activeElement;
    const name = focused?.getAttribute?.('aria-label') ?? focused?.parentElement?.textContent;
    const card = focused?.closest?.('section')?.getAttribute('aria-label');
    drawForms();
    if (element.querySelector('aside').contains(focused)) return changed();
    const same = controls().find((control) => control.closest('section')?.getAttribute('aria-label') === card &&
      (control.getAttribute('aria-label') ?? control.parentElement.textContent) === name);
    same?.focus({ preventScroll: true });
    changed();
  }

  function expressionForm(expression, place) {
    const name = `Expression ${place + 1}`;
    const text = textField(name, expression.text, (value) => { expression.text = value; changed(); }, FUNCTIONS, 'a / b * 100');
    text.input.title = `Sub-queries are a, b, …; functions: ${FUNCTIONS.join(', ')}`;
    const error = errorSlot(text.input);
    expressionErrors.push(error);
    return h('section', { class: expression.off ? 'card off' : 'card', 'aria-label': name },
      h('div', { class: 'head' },
        h('label', { class: 'letter' }, h('input', { type: 'checkbox', checked: !expression.off, 'aria-label': `Enable ${name}`, onchange: () => { expression.off = !expression.off; restructure(); } }), '='),
        text.element, checkBox('right', expression.right, (value) => { expression.right = value; changed(); }, 'Right axis'),
        button('×', () => { state.exprs.splice(place, 1); restructure(); }, { class: 'icon', 'aria-label': `Remove ${name}` })), error.slot);
  }

  function drawOptions() {
    const text = (name, label, placeholder = '') => textField(label, state[name], (value) => { state[name] = value; redraw(); }, null, placeholder).element;
    const axis = (title, prefix) => h('div', { class: 'line', role: 'group', 'aria-label': title }, h('span', { class: 'title' }, title),
      text(prefix + 'range', `${title}: range`, '[0:100]'), text(prefix + 'label', `${title}: label`, 'label'), text(prefix + 'format', `${title}: format`, '%.2f'),
      checkBox('log', state[prefix + 'log'], (value) => { state[prefix + 'log'] = value; redraw(); }));
    const wasOpen = options.firstChild?.open ?? false;
    options.replaceChildren(h('details', { class: 'card', open: wasOpen }, h('summary', {}, 'Axes and options'),
      axis('Left axis', 'y'), axis('Right axis', 'y2'),
      h('div', { class: 'line' }, labelled('title', text('title', 'Title')),
        labelled('draw', select(['lines', 'linespoint', 'points', 'dots'], state.style || 'lines', (value) => { state.style = value === 'lines' ? '' : value; redraw(); }, 'Style'))),
      h('div', { class: 'line' },
        checkBox('annotations', !state.no_annotations, (value) => { state.no_annotations = !value; changed(); }),
        checkBox('global ones too', state.global_annotations, (value) => { state.global_annotations = value; changed(); }),
        checkBox('legend', !state.nokey, (value) => { state.nokey = !value; redraw(); }))));
    tableToggle.replaceChildren(checkBox('table', state.table, (value) => { state.table = value; redraw(); }, 'Values as a table'));
  }

  // ---- state, link, history

  /** Writes the link, as a new entry of the history if it differs. */
  function writeLink() {
    const link = '#' + formatLink(state, currentInterval());
    if (link !== location.hash) history.pushState(null, '', link);
  }

  function changed() {
    bar.show(state, zooms.length);
    writeLink();
    execute();
  }

  /** Draws again after a change that needs no query. */
  function redraw() {
    writeLink();
    drawPlot();
  }

  function remember() {
    const { start, end, tz, reload } = state;
    zooms.push({ start, end, tz, reload });
  }
  function zoom(from, to) {
    remember();
    setRange(from, to);
  }
  function setRange(from, to) {
    const tz = zone();
    const precise = (ms) => (ms % 1000 ? `${ms}ms` : formatTime(ms, tz));
    // Ranges of hours need no milliseconds.
    const [low, high] = to - from > 60_000 ? [Math.floor(from / 1000) * 1000, Math.ceil(to / 1000) * 1000] : [Math.floor(from), Math.ceil(to)];
    Object.assign(state, { start: precise(low), end: precise(high), tz, reload: 0 });
    changed();
  }
  function back() {
    if (!zooms.length) return;
    Object.assign(state, zooms.pop());
    changed();
  }
  function currentRange() {
    try {
      return parseRange(state, Date.now());
    } catch {
      return { from: results.from, to: results.to };
    }
  }
  function shift(forward) {
    const { from, to } = currentRange();
    remember();
    setRange(from + (forward * (to - from)) / 2, to + (forward * (to - from)) / 2);
  }
  function zoomOut() {
    const { from, to } = currentRange();
    remember();
    setRange(Math.max(0, from - (to - from) / 2), to + (to - from) / 2);
  }
  function currentInterval() {
    const { from, to } = currentRange();
    return niceInterval(to - from, Math.max(200, (plot.element.clientWidth || 800) / 2));
  }

  // ---- the query

  function clearErrors() {
    bar.error('', '');
    otherError.show('');
    for (const form of forms) form.clear();
    for (const error of expressionErrors) error.show('');
  }

  function showError(place, error) {
    const message = error instanceof Error ? error.message : String(error);
    if (/start time|end time|timestamp: -?\d+$/i.test(message)) bar.error('start', message);
    else if (error instanceof ApiError && (error.status === 0 || error.status === 401)) otherError.show(message);
    else if (place < forms.length) forms[place].show(message);
    else if (expressionErrors[place - forms.length]) expressionErrors[place - forms.length].show(message);
    else otherError.show(message);
  }

  async function execute() {
    clearTimeout(refreshTimer);
    running?.abort();
    clearErrors();
    const used = state.subs.some((sub) => sub.metric || sub.tsuids) || state.exprs.some((expression) => expression.text);
    if (!used) {
      results = { ...results, series: [] };
      status.textContent = '';
      stop(null);
      return drawPlot();
    }
    let range;
    try {
      range = parseRange(state, Date.now());
    } catch (error) {
      return bar.error(error.field, error.message);
    }
    const controller = (running = new AbortController());
    const began = performance.now();
    const seconds = () => `${((performance.now() - began) / 1000).toFixed(1)} s`;
    runButton.textContent = 'Cancel';
    element.classList.add('running');
    const arrived = [];
    let failures = null;
    // A refresh of the same range replaces the lines at its end; a new query draws them as they come.
    const show = (isEnd) => {
      if (running !== controller || (!isEnd && arrived.length === 0)) return;
      present(arrived, range);
      drawTimer = 0;
    };
    clearInterval(clock);
    clock = setInterval(() => {
      status.textContent = `${arrived.length ? `${arrived.length} series, ` : ''}${seconds()} …`;
      if (arrived.length) drawTimer ||= setTimeout(show, 0, false);
    }, 400);
    try {
      failures = await run(state, { ...range, auto: currentInterval(), signal: controller.signal, found: (series) => arrived.push(series) });
    } catch (error) {
      failures = [{ place: -1, error }];
    }
    if (running !== controller) return;
    clearTimeout(drawTimer);
    drawTimer = 0;
    show(true);
    const wasCancelled = controller.signal.aborted;
    stop(controller);
    for (const { place, error } of failures) showError(place, error);
    const points = arrived.reduce((sum, { times }) => sum + times.length, 0);
    const count = `${arrived.length} series, ${shortNumber(points)} points, ${seconds()}`;
    status.textContent = wasCancelled ? `Cancelled after ${seconds()}. ${arrived.length} series had arrived.`
      : failures.length && !arrived.length ? `Failed after ${seconds()}: see the marked field.` : arrived.length ? count : `No points in this range, ${seconds()}`;
    if (state.reload && isVisible && !wasCancelled) refreshTimer = setTimeout(refresh, state.reload * 1000);
  }

  function stop(controller) {
    if (controller && running !== controller) return;
    running = null;
    clearInterval(clock);
    runButton.textContent = 'Run';
    element.classList.remove('running');
  }

  function refresh() {
    if (document.hidden) document.addEventListener('visibilitychange', refresh, { once: true });
    else execute();
  }

  /** Takes the series of a query over; those that were hidden stay so. */
  function present(arrived, { from, to }) {
    const hidden = new Set(results.series.filter((series) => series.hidden).map((series) => series.place + series.name));
    const items = [...state.subs, ...state.exprs];
    const series = arrived.map((one) => {
      const expression = state.exprs[one.place - state.subs.length]?.text;
      return { ...one, expression, name: (expression ? `${expression}: ` : '') + seriesName(one) };
    });
    series.sort((a, b) => a.place - b.place || a.name.localeCompare(b.name));
    series.forEach((one, index) => {
      one.right = items[one.place]?.right ?? false;
      one.index = index;
      one.hidden = hidden.has(one.place + one.name);
    });
    if (series.length && series.every((one) => one.hidden)) for (const one of series) one.hidden = false;
    results = { series, from, to };
    drawPlot();
  }

  function notes() {
    const all = new Map();
    const add = (annotation, of) => {
      const text = `${annotation.description || annotation.notes || 'annotation'}${of ? ` (${of})` : ''}`;
      all.set(`${annotation.startTime} ${annotation.tsuid} ${text}`, { at: annotationMs(annotation.startTime), end: annotationMs(annotation.endTime || 0), text });
    };
    for (const series of results.series) {
      for (const annotation of series.annotations ?? []) add(annotation, series.name);
      for (const annotation of series.globalAnnotations ?? []) add(annotation, '');
    }
    return [...all.values()].sort((a, b) => a.at - b.at).slice(0, NOTES);
  }

  function drawPlot() {
    const dark = isDark();
    for (const series of results.series) {
      series.right = [...state.subs, ...state.exprs][series.place]?.right ?? series.right;
      series.style = lineStyle(series.index, dark);
    }
    const axis = (prefix) => ({ ...parseBounds(state[prefix + 'range']), log: state[prefix + 'log'], label: state[prefix + 'label'], format: state[prefix + 'format'] });
    Object.assign(plot, { series: results.series, from: results.from, to: results.to, zone: zone(), dark, notes: notes(), axes: [axis('y'), axis('y2')], marks: state.style || 'lines' });
    plot.overlay.setAttribute('aria-label', `Plot of ${results.series.length} series, ${formatTime(results.from, zone())} to ${formatTime(results.to, zone())}. ` +
      'Arrows move from point to point, Shift and arrows move the range, plus and minus zoom, Backspace goes back.');
    empty.hidden = results.series.length > 0;
    empty.textContent = state.subs.some((sub) => sub.metric) ? 'No points.' : 'Type a metric to plot it.';
    plot.element.classList.toggle('hidden', results.series.length === 0);
    names.element.hidden = state.nokey || results.series.length === 0;
    plot.draw();
    names.show(results.series, results.from, results.to);
    document.title = `${state.title || results.series[0]?.metric || 'Query'} – OxTSDB`;
    drawTable();
  }

  function drawTable() {
    tableHolder.replaceChildren();
    const visible = results.series.filter((series) => !series.hidden);
    if (state.table && visible.length) tableHolder.append(valueTable(visible, results.from, results.to, zone()));
  }

  // ---- exports

  const fileName = (extension) => `${(results.series[0]?.metric || 'query').replaceAll(/[^\w.-]/g, '_').slice(0, 80)}.${extension}`;
  function exportCsv() {
    save(fileName('csv'), new Blob([toCsv(results.series, zone())], { type: 'text/csv' }));
  }
  function exportJson() {
    const plain = results.series.map(({ metric, tags, aggregateTags, times, values }) => ({
      metric, tags, aggregateTags, dps: Object.fromEntries([...times].map((time, i) => [time, Number.isNaN(values[i]) ? null : values[i]])),
    }));
    save(fileName('json'), new Blob([JSON.stringify(plain)], { type: 'application/json' }));
  }
  async function exportPng() {
    save(fileName('png'), await plot.toPng(state.title));
  }
  return {
    element,
    /** Shows a link, or the last state if it has none. @param {string} [hash] */
    show(hash) {
      isVisible = true;
      if (hash) {
        state = parseLink(hash);
        zooms = [];
      }
      // On a phone a link shows its plot first, an empty page its form.
      const isEmpty = !state.subs[0].metric && !state.subs[0].tsuids;
      if (!isEmpty && NARROW.matches) element.prepend(main);
      else element.append(main);
      drawForms();
      bar.show(state, zooms.length);
      history.replaceState(null, '', '#' + formatLink(state, currentInterval()));
      execute();
      if (isEmpty) forms[0].focus();
    },
    hide() {
      isVisible = false;
      clearTimeout(refreshTimer);
    },
    refresh: execute,
    redraw: drawPlot,
    /** Range and zone, for other views. */
    range: () => ({ ...currentRange(), zone: zone() }),
  };
}
