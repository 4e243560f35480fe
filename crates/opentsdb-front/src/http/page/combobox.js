// A text field with a list of suggestions: ARIA's combobox with a listbox.

import { h, uniqueId } from './dom.js';
import { isAbort } from './api.js';

/**
 * @param {object} options
 * @param {string} options.value @param {string} options.name its accessible name
 * @param {(text: string, signal: AbortSignal) => Promise<string[]>} options.suggest
 * @param {(text: string) => void} options.commit called when the text has changed and the field is left, or Enter or a pick
 * @param {(text: string) => void} [options.input] called with each change
 */
export function combobox({ value, name, suggest, commit, input: oninput, placeholder = '', className = '' }) {
  const listId = uniqueId();
  const list = h('ul', { class: 'suggestions', role: 'listbox', id: listId, 'aria-label': `${name}: suggestions`, hidden: true });
  const input = h('input', {
    type: 'text', value, placeholder, role: 'combobox', autocomplete: 'off', spellcheck: false, 'aria-label': name,
    'aria-autocomplete': 'list', 'aria-expanded': 'false', 'aria-controls': listId,
  });
  input.autocapitalize = 'off';
  let committed = value, active = -1, timer = 0, pending = null;

  const options = () => [...list.children];
  function mark(index) {
    options().forEach((option, place) => option.setAttribute('aria-selected', String(place === index)));
    active = index;
    if (index >= 0) {
      input.setAttribute('aria-activedescendant', list.children[index].id);
      list.children[index].scrollIntoView({ block: 'nearest' });
    } else input.removeAttribute('aria-activedescendant');
  }
  function close() {
    clearTimeout(timer);
    pending?.abort();
    list.hidden = true;
    input.setAttribute('aria-expanded', 'false');
    mark(-1);
  }
  function done() {
    close();
    if (input.value === committed) return;
    committed = input.value;
    commit(committed);
  }
  function pick(text) {
    input.value = text;
    oninput?.(text);
    done();
  }
  async function load() {
    pending?.abort();
    const controller = (pending = new AbortController());
    try {
      const typed = input.value;
      const texts = await suggest(typed, controller.signal);
      if (controller.signal.aborted || document.activeElement !== input) return;
      list.replaceChildren(...texts.slice(0, 60).map((text) => {
        const start = text.toLowerCase().indexOf(typed.toLowerCase());
        const parts = typed && start >= 0
          ? [text.slice(0, start), h('b', {}, text.slice(start, start + typed.length)), text.slice(start + typed.length)] : [text];
        return h('li', {
          role: 'option', id: uniqueId(), 'aria-selected': 'false', title: text,
          onpointerdown: (event) => { event.preventDefault(); pick(text); },
        }, ...parts);
      }));
      const isUseless = texts.length === 0 || (texts.length === 1 && texts[0] === typed);
      list.hidden = isUseless;
      input.setAttribute('aria-expanded', String(!isUseless));
      mark(-1);
    } catch (error) {
      if (!isAbort(error)) close(); // The query shows what is wrong with the server.
    }
  }
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(load, 120);
  };
  input.addEventListener('input', () => { oninput?.(input.value); soon(); });
  input.addEventListener('click', soon);
  input.addEventListener('blur', done);
  input.addEventListener('keydown', (event) => {
    const count = list.hidden ? 0 : list.children.length;
    if (event.key === 'ArrowDown' || event.key === 'ArrowUp') {
      event.preventDefault();
      if (count === 0) load();
      else if (event.key === 'ArrowDown') mark(active + 1 >= count ? -1 : active + 1);
      else mark(active < 0 ? count - 1 : active - 1);
    } else if (event.key === 'Enter') {
      event.preventDefault();
      if (active >= 0) pick(list.children[active].title);
      else done();
    } else if (event.key === 'Escape' && count > 0) {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  });
  return { element: h('div', { class: `combo ${className}` }, input, list), input };
}
