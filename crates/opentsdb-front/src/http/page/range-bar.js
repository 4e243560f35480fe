// The range of a query: texts, usual ranges, date pickers, steps, refresh.

import { button, errorSlot, h, labelled, select } from './dom.js';
import { formatTime, LOCAL_ZONE, parseTime, wall } from './time.js';

const USUAL = ['15m', '1h', '6h', '1d', '7d', '30d'];
/** Replaces a selection and keeps the focus on it. */
function replace(holder, selection) {
  const hadFocus = holder.contains(document.activeElement);
  holder.replaceChildren(selection);
  if (hadFocus) selection.focus();
}

const REFRESH = [[0, 'no refresh'], [5, '5 s'], [15, '15 s'], [60, '1 min'], [300, '5 min']];

/**
 * @param {{changed: () => void, back: () => void, shift: (forward: number) => void, out: () => void, execute: () => void}} callbacks
 */
export function rangeBar({ changed, back, shift, out, execute }) {
  let state;
  const zone = () => state.tz || LOCAL_ZONE;
  function field(name, label, placeholder) {
    const input = h('input', {
      type: 'text', placeholder, 'aria-label': label, spellcheck: false,
      onchange: () => set(name, input.value.trim()),
      onkeydown: (event) => { if (event.key === 'Enter' && state[name] === input.value.trim()) execute(); },
    });
    const picker = h('input', {
      type: 'datetime-local', step: 1, class: 'picker', tabIndex: -1, 'aria-hidden': 'true',
      onchange: () => picker.value && set(name, picker.value.replace(/^(\d+)-(\d+)-(\d+)T/, '$1/$2/$3-')),
    });
    const open = button('▾', () => {
      try {
        picker.value = wall(parseTime(input.value, Date.now(), zone()), zone()).toISOString().slice(0, 19);
      } catch { /* The picker begins empty. */ }
      picker.showPicker?.();
    }, { class: 'icon', 'aria-label': `Pick ${label}` });
    return { input, element: h('div', { class: 'time' }, input, open, picker) };
  }
  function set(name, text) {
    state[name] = text;
    // A time of the wall clock means nothing without its zone.
    if (/^\d{4}[/-]/.test(text) && !state.tz) state.tz = LOCAL_ZONE;
    if (name === 'end' && text) state.reload = 0;
    changed();
  }
  const start = field('start', 'Start', '1h-ago'), end = field('end', 'End', 'now');
  const startError = errorSlot(start.input), endError = errorSlot(end.input);
  const usual = USUAL.map((text) => button(text, () => {
    Object.assign(state, { start: `${text}-ago`, end: '' });
    changed();
  }, { 'aria-label': `The last ${text}` }));
  const backButton = button('↩', back, { 'aria-label': 'Back to the range before the zoom', title: 'Back (Backspace on the plot)', class: 'icon' });
  const zoneHolder = h('span'), refreshHolder = h('span');
  const element = h('div', { class: 'range' },
    h('div', { class: 'times' }, labelled('from', start.element), labelled('to', end.element)),
    h('div', { class: 'buttons', role: 'group', 'aria-label': 'Usual ranges' }, ...usual),
    h('div', { class: 'buttons', role: 'group', 'aria-label': 'Move the range' },
      button('‹', () => shift(-1), { 'aria-label': 'Earlier', title: 'Earlier', class: 'icon' }),
      button('›', () => shift(1), { 'aria-label': 'Later', title: 'Later', class: 'icon' }),
      button('−', out, { 'aria-label': 'Zoom out', title: 'Zoom out', class: 'icon' }), backButton),
    zoneHolder, startError.slot, endError.slot);

  return {
    element,
    refresh: refreshHolder,
    /** Shows a state. */
    show(of, zooms) {
      state = of;
      start.input.value = state.start;
      end.input.value = state.end;
      backButton.disabled = zooms === 0;
      usual.forEach((item, place) => item.setAttribute('aria-pressed', String(state.start === `${USUAL[place]}-ago` && !state.end)));
      const zones = [...new Set([LOCAL_ZONE, 'UTC', zone()])];
      replace(zoneHolder, select(zones, zone(), (value) => {
        // Absolute times stay the same instants.
        for (const name of ['start', 'end']) {
          if (/^\d{4}[/-]/.test(state[name])) {
            try { state[name] = formatTime(parseTime(state[name], 0, zone()), value); } catch { /* The error is shown already. */ }
          }
        }
        state.tz = value;
        changed();
      }, 'Time zone'));
      const intervals = REFRESH.some(([seconds]) => seconds === state.reload) ? REFRESH : [...REFRESH, [state.reload, `${state.reload} s`]];
      const refresh = select(intervals.map(([seconds, text]) => [String(seconds), text]), String(state.reload), (value) => {
        state.reload = Number(value);
        if (state.reload) state.end = '';
        changed();
      }, 'Refresh');
      replace(refreshHolder, refresh);
    },
    error(field, text) {
      startError.show(field === 'start' ? text : '');
      endError.show(field === 'end' ? text : '');
    },
  };
}
