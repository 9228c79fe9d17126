// Calls of the API. Paths are relative to the base of the page, so a proxy may add a prefix.
import { signal } from "../vendor/ui.js";
import { apiUrl, taken } from "./early.js";

export { apiUrl };

/** {version, root, read_only, token} once known. */
export const session = signal(null);
/** "" | "login" | a message: why there is no session. */
export const sessionError = signal("");
export const canWrite = () => session.value !== null && !session.value.read_only;

export class ApiError extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

async function call(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "the server does not answer");
  }
  if (response.status === 401) sessionError.value = "login";
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new ApiError(response.status, body.error ?? `error ${response.status}`);
  }
  return response;
}

export async function get(path, params, options) {
  const url = apiUrl(path, params);
  return (await taken(url)) ?? (await call(url, options)).json();
}

/** The answer itself, for bytes: `(await getResponse(...)).arrayBuffer()`. */
export const getResponse = (path, params, options) => call(apiUrl(path, params), options);

export async function post(path, body = {}) {
  const send = () => call(apiUrl(path), {
    method: "POST",
    headers: { "content-type": "application/json", "x-gsolve-token": session.value?.token ?? "" },
    body: JSON.stringify(body),
  });
  try {
    return await (await send()).json();
  } catch (error) {
    if (error.status !== 403 || !(await renewToken())) throw error;
    return (await send()).json();
  }
}

/** A server that was started again has another token. True if there is a new one. */
async function renewToken() {
  const before = session.value?.token;
  try { session.value = await get("session"); } catch { return false; }
  return session.value.token !== before;
}

/** The same, for what runs a config: code that a stranger's run names is imported if the user agrees. */
export async function postTrusted(path, body = {}) {
  try {
    return await post(path, body);
  } catch (error) {
    if (error.status !== 409 || !confirm(`${error.message}\n\nImport it?`)) throw error;
    return post(path, { ...body, trust: true });
  }
}

/** Trade the token for a cookie; the token is in the fragment of the printed address. */
export async function login(token) {
  await call(apiUrl("login"), { method: "POST", headers: { "x-gsolve-token": token } });
  await openSession();
}

export async function openSession() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    history.replaceState(null, "", location.pathname + location.search);
    try { await login(given); } catch (error) { sessionError.value = error.message; }
    return;
  }
  try {
    session.value = await get("session");
    sessionError.value = "";
  } catch (error) {
    if (error.status !== 401) sessionError.value = error.message;
  }
}
