// The colour theme: that of the system, unless the user has chosen one.

import { computed, effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";

const KEY = "theme";
const stored = localStorage.getItem(KEY);
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = signal(system.matches);
system.addEventListener("change", () => {
  isDark.value = system.matches;
});

/** The theme that the user has chosen. */
export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "auto");
/** The theme in effect. */
export const shade = computed(() => (theme.value === "auto" ? (isDark.value ? "dark" : "light") : theme.value));

effect(() => {
  document.documentElement.dataset["theme"] = shade.value;
  if (theme.value === "auto") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme.value);
});
