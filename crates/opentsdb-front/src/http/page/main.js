// Starts the page: views by tab, theme, token.

import { request, setToken } from './api.js';
import { annotationView } from './annotation-view.js';
import { button, h } from './dom.js';
import { isQuery } from './link.js';
import { queryView } from './query-view.js';
import { serverView } from './server-view.js';
import { known } from './sub-query-form.js';
import { treeView } from './tree-view.js';
import { uidView } from './uid-view.js';

const scheme = matchMedia('(prefers-color-scheme: dark)');
let theme = 'auto';
const isDark = () => theme === 'dark' || (theme === 'auto' && scheme.matches);

const query = queryView({ isDark });
const views = {
  query: { title: 'Query', ...query },
  annotations: { title: 'Annotations', ...annotationView({ range: query.range }) },
  uids: { title: 'UIDs', ...uidView() },
  trees: { title: 'Trees', ...treeView() },
  server: { title: 'Server', ...serverView({ isDark }) },
};
let current = '';

const tabs = Object.entries(views).map(([name, view]) => h('a', { href: `#${name}`, class: 'tab' }, view.title));
const themeButton = button('', () => {
  theme = { auto: 'dark', dark: 'light', light: 'auto' }[theme];
  drawTheme();
}, { class: 'icon theme' });
function drawTheme() {
  document.documentElement.dataset.theme = theme;
  themeButton.textContent = { auto: '◐', dark: '●', light: '○' }[theme];
  themeButton.setAttribute('aria-label', `Colours: ${theme}`);
  themeButton.title = `Colours: ${theme}`;
  views[current]?.redraw?.();
}
scheme.addEventListener('change', drawTheme);

// The token is asked for when the server has refused a request. It stays in memory.
const tokenText = h('span', {});
const tokenInput = h('input', { type: 'password', 'aria-label': 'Token', placeholder: 'token', autocomplete: 'off' });
const tokenForm = h('form', { class: 'token', hidden: true, onsubmit: (event) => {
  event.preventDefault();
  setToken(tokenInput.value);
  tokenForm.hidden = true;
  views[current].refresh();
} }, h('span', { role: 'alert' }, tokenText), tokenInput, h('button', { type: 'submit', class: 'primary' }, 'Use token'),
button('Close', () => { tokenForm.hidden = true; }), h('small', {}, 'The page keeps the token until it is closed, and stores it nowhere.'));
window.addEventListener('refused', ({ detail }) => {
  tokenText.textContent = `The server refused a request: ${detail}`;
  tokenForm.hidden = false;
});

const main = h('main', { id: 'main', tabIndex: -1 });
function route() {
  const hash = location.hash;
  const name = hash.slice(1);
  const isView = Object.hasOwn(views, name);
  const next = isView ? name : 'query';
  if (next !== current) {
    views[current]?.hide?.();
    current = next;
    main.replaceChildren(views[current].element);
    document.title = `${views[current].title} – OxTSDB`;
  }
  tabs.forEach((tab, place) => {
    if (Object.keys(views)[place] === current) {
      tab.setAttribute('aria-current', 'page');
      tab.scrollIntoView({ block: 'nearest', inline: 'nearest' });
    } else tab.removeAttribute('aria-current');
  });
  views[current].show(!isView && isQuery(hash) ? hash : undefined);
}
window.addEventListener('popstate', route);

document.body.append(
  h('a', { href: '#main', class: 'skip', onclick: (event) => { event.preventDefault(); main.focus(); } }, 'Skip to content'),
  h('header', {}, h('span', { class: 'brand' }, 'OxTSDB'), h('nav', { 'aria-label': 'Views' }, ...tabs), themeButton), tokenForm, main);
drawTheme();

// The lists of the server replace those of the page; without them the page works too.
const lists = Promise.allSettled([request('/api/aggregators'), request('/api/config/filters')]);
const [aggregators, filters] = await Promise.race([lists, new Promise((resolve) => setTimeout(resolve, 1500, []))]);
if (aggregators?.value) known.aggregators = [...aggregators.value].sort();
if (filters?.value) {
  known.filters = Object.keys(filters.value).sort();
  for (const [name, { description, examples }] of Object.entries(filters.value)) known.examples[name] = `${description} Example: ${examples}`;
}
route();
