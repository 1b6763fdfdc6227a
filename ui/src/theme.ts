// Light or dark: as the system says, unless the reader has chosen.

import { effect, signal } from "@preact/signals";

export type Theme = "auto" | "light" | "dark";

const KEY = "theme";
const kept = localStorage.getItem(KEY);

export const theme = signal<Theme>(kept === "light" || kept === "dark" ? kept : "auto");

effect(() => {
  const { dataset } = document.documentElement;
  if (theme.value === "auto") {
    delete dataset["theme"];
    localStorage.removeItem(KEY);
  } else {
    dataset["theme"] = theme.value;
    localStorage.setItem(KEY, theme.value);
  }
});
