// Trees: their branches and leaves. A leaf opens the plot of its series.

import { request, withParameters } from './api.js';
import { button, errorSlot, h } from './dom.js';
import { formatLink, newState } from './link.js';
import { newSubQuery } from './metric-text.js';

export function treeView() {
  const error = errorSlot();
  const content = h('div');
  const element = h('div', { class: 'view' }, h('h1', {}, 'Trees'), error.slot, content);

  async function load(path, draw) {
    try {
      const loaded = await request(path);
      error.show('');
      content.replaceChildren(...draw(loaded));
    } catch (failure) {
      // The root of an empty tree does not exist.
      error.show(failure.status === 404 && path.includes('treeid') ? 'The tree has no branches. “tsdb uid treesync --all-series” places all series in it.' : failure.message);
    }
  }

  const list = () => load('/api/tree', (trees) => (trees.length === 0
    ? [h('p', { class: 'hint' }, 'The server has no trees. “tsdb tree” and POST /api/tree create them.')]
    : trees.map((tree) => h('div', { class: 'card' }, button(tree.name || `Tree ${tree.treeId}`, () => branch({ treeid: tree.treeId }), { class: 'link' }),
      h('div', {}, tree.description || ''), h('small', {}, tree.enabled ? 'New series are placed in it.' : 'New series are not placed in it.')))));

  const branch = (key) => load(withParameters('/api/tree/branch', key), (found) => {
    const path = Object.entries(found.path ?? {}).sort(([a], [b]) => a - b).map(([, name]) => name);
    const crumbs = [button('Trees', list, { class: 'link' }), ...path.flatMap((name, depth) =>
      ['/', depth === path.length - 1 ? h('b', {}, name) : button(name, () => branch({ branch: depth === 0 ? found.branchId.slice(0, 4) : found.branchId.slice(0, 4 + depth * 8) }), { class: 'link' })])];
    const branches = (found.branches ?? []).map((child) => h('li', {}, button(`${child.displayName} ›`, () => branch({ branch: child.branchId }), { class: 'link' })));
    const leaves = (found.leaves ?? []).map((leaf) => {
      const tags = Object.entries(leaf.tags ?? {}).map(([tagk, value]) => ({ key: tagk, type: 'literal_or', value, group: true }));
      const link = formatLink({ ...newState(), subs: [{ ...newSubQuery(), metric: leaf.metric, tags }] });
      return h('li', {}, h('a', { href: `#${link}` }, leaf.displayName), ' ', h('small', {}, leaf.metric));
    });
    return [h('nav', { class: 'crumbs', 'aria-label': 'Branch' }, ...crumbs),
      branches.length || leaves.length ? h('ul', {}, ...branches, ...leaves) : h('p', { class: 'hint' }, 'The branch is empty.')];
  });

  return { element, show: list, refresh: list };
}
