// Runs before the first paint, so that nobody sees the other theme flash by.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("tokenwalk.theme");
  } catch {
    // Storage can be forbidden; then the system's choice stands.
  }
  if (theme !== "dark" && theme !== "light") theme = matchMedia("(prefers-color-scheme: light)").matches ? "light" : "dark";
  document.documentElement.dataset.theme = theme;
})();
