// Elements. Text goes into text nodes only, so data of the server can never become markup.

/**
 * Makes an element. `on…` properties are listeners, `class`, `for`, `role` and `aria-…` attributes; others are
 * set as properties.
 * @param {string} tag @param {Record<string, any>} [properties] @param {...(Node | string | null | false)} children
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (/^(class|for|role|aria-)/.test(name)) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== false));
  return element;
}

let last = 0;
/** An id that no other element has. */
export const uniqueId = () => `e${++last}`;

/** A label around a control. @param {string} text @param {Node} control */
export const labelled = (text, control, name = 'field') => h('label', { class: name }, h('span', {}, text), control);

/** A check box with its text. */
export function checkBox(text, checked, onchange, title) {
  const input = h('input', { type: 'checkbox', checked, onchange: () => onchange(input.checked) });
  return h('label', { class: 'check', title }, input, text);
}

/** A selection of texts, or of pairs of value and text. */
export function select(options, value, onchange, name) {
  const all = options.some((option) => (Array.isArray(option) ? option[0] : option) === value) ? options : [value, ...options];
  const items = all.map((option) => {
    const [key, text] = Array.isArray(option) ? option : [option, option];
    return h('option', { value: key, selected: key === value }, text);
  });
  const element = h('select', { 'aria-label': name, onchange: () => onchange(element.value) }, ...items);
  return element;
}

/** A button. */
export const button = (text, onclick, properties = {}) => h('button', { type: 'button', onclick, ...properties }, text);

/** A place for the error of a field, and how to fill it. @param {HTMLElement[]} controls */
export function errorSlot(...controls) {
  const slot = h('p', { class: 'error', id: uniqueId(), hidden: true, role: 'alert' });
  return {
    slot,
    show(text) {
      slot.textContent = text;
      slot.hidden = !text;
      for (const control of controls) {
        if (text) {
          control.setAttribute('aria-invalid', 'true');
          control.setAttribute('aria-describedby', slot.id);
        } else {
          control.removeAttribute('aria-invalid');
          control.removeAttribute('aria-describedby');
        }
      }
    },
  };
}

/** A table of texts and nodes. @param {string[]} heads @param {(Node|string)[][]} rows @param {string} caption */
export function table(heads, rows, caption) {
  const cell = (content) => h('td', { class: typeof content === 'number' ? 'number' : undefined }, content instanceof Node ? content : String(content));
  return h('div', { class: 'scroll', tabIndex: 0, role: 'region', 'aria-label': caption },
    h('table', {}, h('caption', { class: 'hidden' }, caption),
      h('thead', {}, h('tr', {}, ...heads.map((text) => h('th', { scope: 'col' }, text)))),
      h('tbody', {}, ...rows.map((row) => h('tr', {}, ...row.map(cell))))));
}

/** Saves a file. */
export function save(name, blob) {
  const url = URL.createObjectURL(blob);
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
