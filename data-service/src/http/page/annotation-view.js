import { h } from './dom.js';
export function annotationView() { return { element: h('p', {}, '…'), show() {}, refresh() {} }; }
