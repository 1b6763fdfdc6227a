// Formatting of times, durations, sizes and numbers.

const NUMBER = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });

/** The server stops counting here: this value means this many or more. */
export const COUNT_MAX = 10_000;

export function number(value: number): string {
  return NUMBER.format(value);
}

/** A count that may have been capped. */
export function count(value: number): string {
  return value === COUNT_MAX ? `${NUMBER.format(value)}+` : value > 99_999 ? SHORT.format(value) : NUMBER.format(value);
}

/** A duration: 0.4 s, 42 s, 12 min, 3 h, 5 d. */
export function span(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  const value = Math.max(0, seconds);
  if (value < 0.0995) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  if (value < 7_200) return `${Math.round(value / 60)} min`;
  if (value < 172_800) return `${Math.round(value / 3_600)} h`;
  return `${Math.round(value / 86_400)} d`;
}

export function between(from: string | null | undefined, to: string | Date | null | undefined): number | null {
  if (!from || !to) return null;
  return (new Date(to).getTime() - new Date(from).getTime()) / 1000;
}

export function clock(at: string | Date): string {
  return CLOCK.format(new Date(at));
}

export function day(at: string | Date): string {
  return DAY.format(new Date(at));
}

export function bytes(size: number): string {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = size;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${unit && value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

export function credits(value: number): string {
  return `${NUMBER.format(value)} ${Math.abs(value) === 1 ? "credit" : "credits"}`;
}

/** An id without its middle: it begins with its type, and ids of one type differ mostly at the end. */
export function shortId(id: string): string {
  return id.length > 18 ? `${id.slice(0, id.indexOf("_") + 5)}…${id.slice(-5)}` : id;
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** A name from the API as display text: `cancel_requested` becomes "cancel requested". */
export function plain(name: string): string {
  return name.replaceAll("_", " ");
}

/** A time as the value of a `datetime-local` field: local time, without a zone. */
export function localTime(at: Date): string {
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
