// Asks what the first page will need, while the rest of the program is still loading.
import { ask } from "./lib/early.js";
import { MOST, VAL, axesOf, curvesOf, groupingOf, idsOf } from "./lib/compared.js";

const page = location.pathname.slice(new URL(document.baseURI).pathname.length);
const query = new URLSearchParams(location.search);
if (!location.hash) {  // a token in the hash logs in first
  ask("session");
  if (page === "") ask("runs");
  const ids = idsOf(query).slice(0, MOST);
  if (page === "compare" && ids.length && query.get("filter") === null) ask("groups", curvesOf(groupingOf(query, ids), query.get("metric") ?? VAL, axesOf(query)));
}
