// Runs before the first paint, so that the page never flashes in the other theme.
(() => {
  let wanted = null;
  try { wanted = localStorage.getItem("gsolve-theme"); } catch { /* storage may be off */ }
  if (wanted === "dark" || wanted === "light") document.documentElement.dataset.theme = wanted;
})();
