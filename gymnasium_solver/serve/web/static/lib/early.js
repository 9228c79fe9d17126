// Questions that are asked before the page that needs them is there. Imports nothing, so that it is
// loaded first.
const answers = new Map();  // address -> the answer, null if there was none

export function apiUrl(path, params = {}) {
  const url = new URL(`api/${path}`, document.baseURI);
  for (const [name, value] of Object.entries(params)) {
    if (value === undefined || value === null || value === "") continue;
    url.searchParams.set(name, Array.isArray(value) ? value.join(",") : String(value));
  }
  return url;
}

export function ask(path, params) {
  const { href } = apiUrl(path, params);
  answers.set(href, fetch(href).then((response) => (response.ok ? response.json() : null)).catch(() => null));
}

/** The answer to a question that was asked, once; undefined if it was not. */
export function taken(url) {
  const answer = answers.get(url.href);
  answers.delete(url.href);
  return answer;
}
