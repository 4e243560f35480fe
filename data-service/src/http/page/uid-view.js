import { h } from './dom.js';
export function uidView() { return { element: h('p', {}, '…'), show() {}, refresh() {} }; }
