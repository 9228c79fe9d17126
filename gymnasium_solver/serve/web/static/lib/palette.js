// Colours of lines: eight that people with any common form of colour vision can tell apart, then the
// same with dashes.
import { cssVar } from "./theme.js";

const N = 8;
const DASHES = [null, [7, 3], [2, 3], [9, 3, 2, 3]];

export const colourVar = (i) => `var(--c${i % N})`;
export const colour = (i) => cssVar(`--c${i % N}`);
export const dash = (i) => DASHES[Math.floor(i / N) % DASHES.length];
