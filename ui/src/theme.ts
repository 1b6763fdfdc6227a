// Light or dark: as the system says, unless the reader has chosen.

import { computed, effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";

const KEY = "theme";
const kept = localStorage.getItem(KEY);
const system = matchMedia("(prefers-color-scheme: dark)");
const isDark = signal(system.matches);
system.addEventListener("change", () => {
  isDark.value = system.matches;
});

/** What the reader has chosen. */
export const theme = signal<Theme>(kept === "light" || kept === "dark" ? kept : "auto");
/** What it comes to. */
export const shade = computed(() => (theme.value === "auto" ? (isDark.value ? "dark" : "light") : theme.value));

effect(() => {
  document.documentElement.dataset["theme"] = shade.value;
  if (theme.value === "auto") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme.value);
});
