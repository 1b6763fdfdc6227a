// Line charts by uPlot, and sparklines in SVG.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { shade } from "../theme";
import { day, number } from "../words";

const DAY = 86_400;
/** Steps of an axis of counts: whole numbers only. */
const WHOLE = Array.from({ length: 13 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();

export interface Line {
  label: string;
  values: readonly (number | null)[];
  /** A colour of style.css: `good`, `bad`, `main`, `info`, `warn`, `soft`. */
  tone: string;
  isArea?: boolean;
  dash?: number[];
}

interface ChartProps {
  label: string;
  /** Seconds since 1970. */
  at: readonly number[];
  lines: readonly Line[];
  height?: number;
  format?: (value: number) => string;
  /** The smallest value at the top of the vertical axis. */
  least?: number;
}

function colour(tone: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${tone}`).trim() || "#888";
}

/** A label of the time axis: the date if ticks are at least a day apart, otherwise the time. */
function tick(seconds: number, step: number): string {
  const [date, time] = day(new Date(seconds * 1000)).split(", ");
  return (step >= DAY ? date : time) ?? "";
}

/** The indexes of values without a neighbour, which a line would not show. */
function isolated(values: ArrayLike<number | null | undefined>): number[] {
  const isKnown = (index: number) => values[index] !== null && values[index] !== undefined;
  return Array.from({ length: values.length }, (_, index) => index).filter(
    (index) => isKnown(index) && !isKnown(index - 1) && !isKnown(index + 1),
  );
}

/** A chart that resizes with its container, in the colours of the theme. */
export function Chart({ label, at, lines, height = 180, format = number, least = 1 }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shape = `${shade.value} ${height} ${lines.map((line) => `${line.label}:${line.tone}`).join()}`;
  const data = [at, ...lines.map((line) => line.values)] as uPlot.AlignedData;

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const axis = {
      stroke: colour("soft"),
      grid: { stroke: colour("line"), width: 1 },
      ticks: { show: false },
      font: "11px system-ui",
    };
    const made = new uPlot(
      {
        width: element.clientWidth || 300,
        height,
        padding: [8, 8, 0, 0],
        legend: { show: true, live: true },
        cursor: { y: false },
        scales: { y: { range: (_plot, _low, high) => [0, Math.max(least, (high ?? 0) * 1.1)] } },
        axes: [
          {
            ...axis,
            size: 28,
            values: (_plot, splits, _axis, _space, step) => splits.map((value) => tick(value, step)),
          },
          {
            ...axis,
            size: 52,
            ...(format === number ? { incrs: WHOLE } : {}),
            values: (_plot, splits) => splits.map((value) => format(value)),
          },
        ],
        series: [
          { label: "at", value: (_plot, value) => (value === null ? "now" : day(new Date(value * 1000))) },
          ...lines.map((line) => ({
            label: line.label,
            stroke: colour(line.tone),
            width: 1.75,
            points: { show: true, size: 4, filter: (drawn: uPlot, index: number) => isolated(drawn.data[index] ?? []) },
            ...(line.isArea ? { fill: `${colour(line.tone)}22` } : {}),
            ...(line.dash ? { dash: line.dash } : {}),
            value: (drawn: uPlot, value: number | null, index: number, point: number | null) => {
              const shown = point === null ? drawn.data[index]?.at(-1) : value;
              return shown === null || shown === undefined ? "–" : format(shown);
            },
          })),
        ],
      },
      data,
      element,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [JSON.stringify(data)]);

  return <div class="chart" ref={box} role="img" aria-label={`${label}: ${describe(lines, format)}`} />;
}

/** The chart as text, for screen readers. */
function describe(lines: readonly Line[], format: (value: number) => string): string {
  return lines
    .map((line) => {
      const known = line.values.filter((value): value is number => value !== null);
      const last = known.at(-1);
      return last === undefined
        ? `${line.label}: no data`
        : `${line.label}: latest ${format(last)}, maximum ${format(Math.max(...known))}`;
    })
    .join("; ");
}

export function Spark({ values, label, tone = "bad" }: { values: readonly number[]; label: string; tone?: string }) {
  const limit = Math.max(1, ...values);
  const width = Math.max(1, values.length);
  return (
    <svg class={`spark ${tone}`} viewBox={`0 0 ${width} 20`} preserveAspectRatio="none" role="img" aria-label={label}>
      {values.map((value, index) => {
        const height = value ? Math.max(1.5, (value / limit) * 20) : 0;
        return <rect key={index} x={index + 0.1} y={20 - height} width={0.8} height={height} />;
      })}
    </svg>
  );
}
