// What first.js has, for modules.
export const { apiUrl, taken, VAL, MOST, idsOf, axesOf, groupingOf, curvesOf } = globalThis.gsolveFirst;
